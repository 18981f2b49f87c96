"""A simulated ring has the shares of a ring, and full nodes refuse keys as live ones do."""

import random

import numpy as np
import pytest

from hashring.core.ring import Ring
from hashring.spark.analysis.simulated_trial import _Points, _served


def test_shares_are_those_of_a_ring():
    rng = random.Random(3)
    points = {str(i): [rng.randrange(2**32) for _ in range(5)] for i in range(7)}
    ring = Ring(points)
    flat = [(p, int(node)) for node, own in points.items() for p in own]
    drawn = _Points.of(np.array([p for p, _ in flat]), np.array([n for _, n in flat]))
    assert list(drawn.shares(7)) == [ring.share(str(i)) for i in range(7)]
    without = ring.without_nodes("3")
    assert list(np.delete(drawn.without(3).shares(7), 3)) == [
        without.share(str(i)) for i in range(7) if i != 3
    ]


def test_refused_keys_go_to_the_next_node_with_room():
    ring = _Points.of(np.array([0, 100, 200]), np.array([0, 1, 2]))
    keys = np.array([1, 2, 3, 101, 102, 250])
    served, spilled = _served(ring, keys, np.array([1 / 3, 1 / 3, 1 / 3]), 1.0)
    # Room for two each: 0 refuses its third key, 1 is full, 2 takes it.
    assert list(served) == [0, 0, 2, 1, 1, 2]
    assert spilled == pytest.approx(1 / 6)


@pytest.mark.parametrize("seed", range(4))
def test_refused_keys_go_where_they_would_if_full_nodes_had_left(seed):
    rng = np.random.default_rng(seed)
    nodes = 6
    drawn = _Points.of(rng.integers(0, 2**32, 4 * nodes), np.repeat(np.arange(nodes), 4))
    ring = Ring(
        {str(i): [int(p) for p in drawn.points[drawn.owners == i]] for i in range(nodes)},
    )
    keys = np.sort(rng.integers(0, 2**32, 300))
    room = dict.fromkeys(map(str, range(nodes)), 63)  # 1.25 times the fair share
    own, refused = [], []
    for key in keys.tolist():
        owner = next(ring.successors(key))
        (own if room[owner] else refused).append((key, owner))
        room[owner] -= bool(room[owner])
    for key, _ in refused:
        node = next(node for node in ring.successors(key) if room[node])
        room[node] -= 1
        own.append((key, node))
    served, spilled = _served(drawn, keys, np.full(nodes, 1 / nodes), 1.25)
    assert len(refused) > 5
    assert dict(zip(keys.tolist(), map(str, served), strict=True)) == dict(own)
    assert spilled == len(refused) / len(keys)


@pytest.mark.parametrize("limit", [1e15, 1e17, 1.7e308])
def test_a_limit_that_no_node_reaches_refuses_no_key(limit):
    ring = _Points.of(np.array([0, 100, 200]), np.array([0, 1, 2]))
    fair = np.array([1 / 3, 1 / 3, 1 / 3])
    # The room as a number of keys is more than 64 bits hold.
    served, spilled = _served(ring, np.repeat([1, 101, 102], 1000), fair, limit)
    assert (np.bincount(served).tolist(), spilled) == ([1000, 2000], 0)
