"""The range of each replica, on a whole ring and on stretches of one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hashring.core.hashing import RING_SIZE
from hashring.core.replica_ranges import duplicate_holders, replica_lengths, stretch_ranges
from hashring.core.ring import Ring

TOP = RING_SIZE - 1

point = st.one_of(st.integers(0, 5), st.integers(TOP - 2, TOP), st.integers(0, TOP))
rings = st.dictionaries(
    st.sampled_from(["a", "b", "c", "d"]), st.lists(point, max_size=8), max_size=4
).map(Ring)


@given(rings)
def test_what_points_own_adds_up_to_what_their_node_owns(ring: Ring) -> None:
    for node in ring.nodes:
        assert sum(replica_lengths(ring, node).values()) == ring.shares[node]


@given(rings)
def test_who_has_a_point_of_several_nodes_is_named_and_its_owner_last(ring: Ring) -> None:
    found = duplicate_holders(ring)
    assert tuple(found) == ring.duplicate_points
    for point, nodes in found.items():
        assert sorted(nodes) == [node for node in ring.nodes if point in ring.points_of(node)]
        assert nodes[-1] == ring.owner_of_point(point)


@given(rings, st.integers(0, TOP))
def test_the_whole_ring_is_one_stretch(ring: Ring, start: int) -> None:
    replicas = list(ring.replicas())
    turned = sorted(replicas, key=lambda replica: (replica[0] - start) % RING_SIZE)
    ranges = stretch_ranges([turned], closed=True)
    assert {name: sum(length for _, length in each) for name, each in ranges.items()} == {
        name: share for name, share in ring.shares.items() if share
    }


def test_stretches_that_overlap_have_each_range_once_and_none_that_has_no_end() -> None:
    stretches = [[(10, "a"), (20, "b"), (30, "a")], [(20, "b"), (30, "a"), (30, "b"), (35, "c")]]
    assert stretch_ranges(stretches) == {"a": ((10, 10),), "b": ((20, 10), (30, 5))}


def test_a_stretch_may_go_over_the_top() -> None:
    assert stretch_ranges([[(TOP, "a"), (3, "b")]]) == {"a": ((TOP, 4),)}
