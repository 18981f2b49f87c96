"""The frozen ring, held against the rule spelled out the slow way."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hashring.core.hashing import RING_SIZE, HashAlgorithm
from hashring.core.ranges import PointRange, RangeMove
from hashring.core.ring import Ring
from hashring.errors import ConfigError, EmptyRingError, KeyTypeError, UnknownNodeError

Points = dict[str, list[int]]

TOP = RING_SIZE - 1

# Few points, so that nodes meet on one, and the two ends, where the ring wraps.
point = st.one_of(
    st.integers(0, 12), st.integers(TOP - 3, TOP), st.integers(0, TOP), st.just(2**31)
)
node = st.sampled_from(["a", "b", "c", "d", "é", "z:1", "\uffff", "\U00010000"])
rings = st.dictionaries(node, st.lists(point, max_size=6), max_size=6)


def owner_by_rule(points: Mapping[str, list[int]], at: int) -> str:
    """The greatest replica at or below the point, else of all; on one point the greatest name."""
    replicas = [(p, name.encode()) for name, own in points.items() for p in own]
    below = [replica for replica in replicas if replica[0] <= at]
    return max(below or replicas)[1].decode()


def telling(*rings: Ring) -> list[int]:
    """Points that tell rings apart: every boundary, its neighbours, and the ends."""
    bounds = {point for ring in rings for point, _ in ring.replicas()}
    near = {b + d for b in bounds for d in (-1, 0, 1)}
    return sorted({0, TOP, *(p for p in near if 0 <= p <= TOP)})


# --- the worked example -------------------------------------------------------------------------


def test_the_worked_example_of_the_specification() -> None:
    ring = Ring({"first": [1_000_000_000], "second": [2_000_000_000]})
    assert ring.node_ranges("first") == (PointRange(1_000_000_000, 2_000_000_000),)
    assert ring.node_ranges("second") == (
        PointRange(0, 1_000_000_000),
        PointRange(2_000_000_000, RING_SIZE),
    )
    # `hello` is at 907 060 870, below the first node's start, so by these very ranges it is on the
    # second node. (The specification gives the ranges and then says "on the first node", which
    # contradicts them.)
    assert ring.hash_algorithm.point("hello") == 907_060_870
    assert ring.owner("hello") == "second"


def test_the_share_of_the_worked_example() -> None:
    ring = Ring({"first": [1_000_000_000], "second": [2_000_000_000]})
    assert ring.share("first") == 1_000_000_000 / RING_SIZE
    assert ring.share("first") + ring.share("second") == 1


# --- who owns what ------------------------------------------------------------------------------


@given(rings, point)
@example({"a": [5], "b": [5]}, 5)
@example({"a": [0]}, 0)
@example({"a": [TOP], "b": [0]}, TOP)
def test_the_owner_is_the_greatest_replica_at_or_below(points: Points, at: int) -> None:
    ring = Ring(points)
    if not len(ring):
        return
    for p in [at, *telling(ring)]:
        assert ring.owner_of_point(p) == owner_by_rule(points, p)


@given(rings, st.text(min_size=1))
def test_a_keys_owner_is_that_of_its_point(points: Points, key: str) -> None:
    ring = Ring(points)
    if len(ring):
        assert ring.owner(key) == ring.owner_of_point(ring.hash_algorithm.point(key))


def test_on_a_shared_point_the_greatest_name_in_utf8_owns() -> None:
    # As UTF-16, or as locale order, the answer would be another.
    ring = Ring({"\uffff": [7], "\U00010000": [7], "Z": [7]})
    assert ring.owner_of_point(7) == "\U00010000"
    assert ring.duplicate_points == (7,)
    assert list(ring.replicas()) == [(7, "Z"), (7, "\uffff"), (7, "\U00010000")]


@given(rings)
@example({"a": [5], "b": [5, 3]})
@example({"a": [5], "b": [5]})
@example({"a": [3, 9], "b": [9, 5], "c": [9]})
def test_the_ranges_cover_the_ring_without_gap_or_neighbours_of_one_owner(points: Points) -> None:
    ring = Ring(points)
    ranges = list(ring.ranges())
    if not len(ring):
        assert ranges == []
        return
    assert ranges[0][0].start == 0
    assert ranges[-1][0].end == RING_SIZE
    for (before, its), (after, others) in pairwise(ranges):
        assert before.end == after.start
        assert its != others
    for range_, name in ranges:
        assert range_.start < range_.end
        for p in (range_.start, range_.end - 1):
            assert owner_by_rule(points, p) == name


@given(rings)
def test_a_nodes_ranges_are_those_of_the_ring_that_it_owns(points: Points) -> None:
    ring = Ring(points)
    for name in [*points, "stranger"]:
        own = tuple(range_ for range_, owner in ring.ranges() if owner == name)
        assert ring.node_ranges(name) == own


@given(rings)
def test_the_shares_sum_to_the_whole_ring(points: Points) -> None:
    ring = Ring(points)
    assert sum(ring.shares.values()) == (RING_SIZE if len(ring) else 0)
    assert set(ring.shares) == set(ring.nodes)
    for name in ring.nodes:
        assert ring.shares[name] == sum(end - start for start, end in ring.node_ranges(name))
        assert ring.share(name) == ring.shares[name] / RING_SIZE


@given(rings, point)
def test_the_successors_are_the_owners_after_one_departure_after_another(
    points: Points, at: int
) -> None:
    ring = Ring(points)
    expected = []
    left = ring
    while len(left):
        expected.append(left.owner_of_point(at))
        left = left.without_nodes(expected[-1])
    assert list(ring.successors(at)) == expected


# --- what is on the ring ------------------------------------------------------------------------


@given(rings)
def test_the_ring_holds_what_it_was_given_once_and_sorted(points: Points) -> None:
    ring = Ring(points)
    present = {name: tuple(sorted(set(own))) for name, own in points.items() if own}
    assert ring.nodes == tuple(sorted(present, key=str.encode))
    assert ring.node_count == len(present)
    assert len(ring) == sum(map(len, present.values()))
    assert {name: ring.points_of(name) for name in ring.nodes} == present
    assert sorted(ring.replicas(), key=lambda r: (r[0], r[1].encode())) == list(ring.replicas())
    assert all((name in ring) == (name in present) for name in [*points, "stranger"])


@given(rings)
def test_a_duplicate_point_is_one_that_several_nodes_have(points: Points) -> None:
    at = {
        p: {name for name, own in points.items() if p in own}
        for own in points.values()
        for p in own
    }
    expected = tuple(sorted(p for p, names in at.items() if len(names) > 1))
    assert Ring(points).duplicate_points == expected


def test_an_empty_ring_owns_nothing_and_says_so() -> None:
    ring = Ring()
    with pytest.raises(EmptyRingError) as caught:
        ring.owner("key")
    assert str(caught.value) == (
        "the ring has no nodes, so no key has an owner: start a node first"
    )
    assert isinstance(caught.value, LookupError)
    assert list(ring.ranges()) == list(ring.successors(0)) == []
    assert ring.node_ranges("a") == ring.nodes == ring.duplicate_points == ()
    assert Ring({"a": []}) == ring


def test_a_node_that_is_not_there_is_named() -> None:
    ring = Ring({"a": [1]})
    for ask in (ring.points_of, ring.share):
        with pytest.raises(UnknownNodeError) as caught:
            ask("A")
        assert caught.value.node == "A"
        assert str(caught.value) == (
            "node 'A' is not on this ring; list its nodes with the nodes command or Ring.nodes, "
            "and mind that names are case-sensitive"
        )


@pytest.mark.parametrize("wrong", [-1, RING_SIZE])
def test_a_point_beyond_the_ring_is_refused(wrong: int) -> None:
    with pytest.raises(ConfigError) as caught:
        Ring({"a": [1, wrong]})
    assert str(caught.value) == (f"point={wrong}: of node 'a' is outside the ring [0, 4294967296)")
    ring = Ring({"a": [1]})
    with pytest.raises(ConfigError, match=f"point={wrong}: outside the ring"):
        ring.owner_of_point(wrong)
    with pytest.raises(ConfigError, match=f"point={wrong}: outside the ring"):
        list(ring.successors(wrong))


@pytest.mark.parametrize("wrong", ["1", None, 1.5, True, float("nan"), [1]])
@pytest.mark.parametrize(
    "ask",
    [Ring.owner_of_point, Ring.successors, lambda ring, point: ring.nearer(point, "a", "b")],
    ids=["owner_of_point", "successors", "nearer"],
)
def test_what_is_no_point_is_refused_at_once(ask: Callable[[Ring, Any], Any], wrong: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        ask(Ring({"a": [1]}), wrong)
    assert str(caught.value) == f"point={wrong!r}: give an int in [0, 4294967296)"


def test_a_point_of_numpy_is_a_point() -> None:
    ring = Ring({"a": [1], "b": [5]})
    assert (ring.owner_of_point(np.uint32(3)), next(ring.successors(np.uint32(7)))) == ("a", "b")


@pytest.mark.parametrize("wrong", [-1, RING_SIZE])
def test_a_hash_function_that_leaves_the_ring_is_refused(wrong: int) -> None:
    ring = Ring({"a": [1]}, HashAlgorithm("far", lambda data: wrong))
    with pytest.raises(ConfigError, match=f"point={wrong}: outside the ring"):
        ring.owner("key")


def test_a_key_that_has_no_point_has_no_owner() -> None:
    with pytest.raises(KeyTypeError):
        Ring({"a": [1]}).owner(7)  # type: ignore[arg-type]


class Name(str, Enum):
    A = "a"


def test_a_node_whose_name_is_of_a_subclass_of_str_has_its_text() -> None:
    for ring in (Ring({Name.A: [1]}), Ring().with_node(Name.A, [1])):
        assert type(ring.owner("key")) is type(ring.nodes[0]) is str
        assert ring.nodes == ("a",)


# --- changes ------------------------------------------------------------------------------------


@given(rings, node, st.lists(point, max_size=6))
def test_a_ring_changed_by_a_node_is_the_ring_built_anew(
    points: Points, name: str, own: list[int]
) -> None:
    before = Ring(points)
    changed = before.with_node(name, own)
    anew = Ring({**points, name: own})
    assert changed == anew
    assert changed.fingerprint == anew.fingerprint
    assert hash(changed) == hash(anew)
    assert list(changed.replicas()) == list(anew.replicas())
    assert list(changed.ranges()) == list(anew.ranges())
    assert before == Ring(points)


@given(rings, st.lists(node, max_size=4))
def test_a_ring_without_nodes_is_the_ring_built_without_them(
    points: Points, gone: list[str]
) -> None:
    before = Ring(points)
    changed = before.without_nodes(*gone)
    anew = Ring({name: own for name, own in points.items() if name not in gone})
    assert changed == anew
    assert changed.fingerprint == anew.fingerprint
    assert list(changed.replicas()) == list(anew.replicas())
    assert before == Ring(points)


def test_a_ring_is_copied_once_however_many_nodes_leave(monkeypatch: pytest.MonkeyPatch) -> None:
    ring = Ring({f"n{number}": [number, 1000 + number] for number in range(10)})
    made = []
    assemble = Ring._assemble

    def counted(self: Ring, *parts: Any) -> None:
        made.append(self)
        assemble(self, *parts)

    monkeypatch.setattr(Ring, "_assemble", counted)
    left = ring.without_nodes("n1", "n3", "no such node", "n5", "n3")
    assert made == [left]
    assert left.nodes == ("n0", "n2", "n4", "n6", "n7", "n8", "n9")
    assert ring.without_nodes("no such node") is ring


@given(st.lists(st.tuples(node, st.lists(point, max_size=4)), max_size=12))
def test_after_any_history_only_the_present_counts(history: list[tuple[str, list[int]]]) -> None:
    ring = Ring()
    now: Points = {}
    for name, own in history:
        ring = ring.with_node(name, own)
        now[name] = own
    assert ring.fingerprint == Ring(now).fingerprint
    assert ring == Ring(now)


@given(rings, rings)
def test_rings_that_differ_have_different_fingerprints(one: Points, other: Points) -> None:
    assert (Ring(one) == Ring(other)) == (Ring(one).fingerprint == Ring(other).fingerprint)


def test_the_fingerprint_is_the_same_in_every_process_and_tells_algorithms_apart() -> None:
    points = {"a": [1, 2], "é": [3]}
    assert Ring(points).fingerprint == "57faacfe345009ac"
    assert Ring(points, "crc-32c").fingerprint != Ring(points).fingerprint
    assert Ring(points, "crc-32c") != Ring(points)
    assert Ring({"a": [3], "é": [1, 2]}).fingerprint != Ring(points).fingerprint


@given(rings, rings)
def test_moves_are_the_points_whose_owner_differs(one: Points, other: Points) -> None:
    before, after = Ring(one), Ring(other)
    moves = before.moves(after)
    for p in telling(before, after):
        was = owner_by_rule(one, p) if len(before) else None
        becomes = owner_by_rule(other, p) if len(after) else None
        found = [(m.before, m.after) for m in moves if m.start <= p < m.end]
        assert found == ([(was, becomes)] if was != becomes else [])
    for move, following in pairwise(moves):
        assert move.end <= following.start
        touch = move.end == following.start
        assert not (touch and (move.before, move.after) == (following.before, following.after))
    assert all(move.points == move.end - move.start > 0 for move in moves)


def test_what_is_no_ring_has_no_moves() -> None:
    with pytest.raises(ConfigError, match=r"^after=5: give a Ring"):
        Ring({"a": [1]}).moves(5)  # type: ignore[arg-type]


def test_what_is_no_name_is_an_unknown_node() -> None:
    with pytest.raises(UnknownNodeError, match=r"^node 5 is not on this ring; list its nodes"):
        Ring({"a": [1]}).points_of(5)  # type: ignore[arg-type]


@given(rings, rings)
def test_moves_there_and_back_mirror_each_other(one: Points, other: Points) -> None:
    there = Ring(one).moves(Ring(other))
    back = Ring(other).moves(Ring(one))
    assert back == tuple(RangeMove(m.start, m.end, m.after, m.before) for m in there)


@given(rings, node, st.lists(point, max_size=6))
def test_a_join_moves_keys_only_to_the_one_who_joins(
    points: Points, name: str, own: list[int]
) -> None:
    before = Ring(points).without_nodes(name)
    after = before.with_node(name, own)
    assert {move.after for move in before.moves(after)} <= {name}
    assert {move.before for move in after.moves(before)} <= {name}


def test_rings_of_two_algorithms_cannot_be_compared() -> None:
    with pytest.raises(ConfigError) as caught:
        Ring({"a": [1]}).moves(Ring({"a": [1]}, "crc-32c"))
    assert str(caught.value) == (
        "hash_algorithm='crc-32c': the other ring uses crc-32; compare rings of one algorithm"
    )


def test_a_ring_tells_its_size_when_printed() -> None:
    ring = Ring({"a": [1, 2], "b": [3]})
    assert repr(ring) == f"<Ring of 2 nodes, 3 replicas, crc-32, fingerprint {ring.fingerprint}>"
    assert ring != "a ring"


# --- several owners of one key ------------------------------------------------------------------

ZONES = {"a": "eu-1a", "b": "eu-1a", "c": "eu-1b", "d": "eu-1b", "e": "eu-1c", "f": "eu-1a"}
zones = st.dictionaries(node, st.sampled_from(["x", "y", "z"]))


@pytest.mark.parametrize(
    ("key", "n", "zoned", "expected"),
    [
        ("account:17", 6, None, "cbafed"),
        ("account:17", 3, ZONES, "cbe"),
        ("account:17", 6, ZONES, "cbeadf"),
        ("account:18", 6, None, "edcbaf"),
        ("account:18", 3, ZONES, "edb"),
        ("account:18", 6, ZONES, "edbcaf"),
        ("account:18", 3, {"b": "eu-1a", "e": "eu-1a"}, "edc"),
        ("account:18", 9, ZONES, "edbcaf"),
    ],
)
def test_the_owners_of_a_key_are_these(
    key: str, n: int, zoned: dict[str, str] | None, expected: str
) -> None:
    ring = Ring({name: [2**32 // 6 * number] for number, name in enumerate("abcdef")})
    assert "".join(ring.owners(key, n, zones=zoned)) == expected


@given(rings, point, zones)
def test_no_zone_is_named_again_before_the_others_are(
    points: Points, at: int, zoned: dict[str, str]
) -> None:
    ring = Ring(points)
    if not len(ring):
        return
    walk = list(ring.successors(ring.hash_algorithm.point(str(at))))
    found = ring.owners(str(at), 99, zones=zoned)
    assert found[0] == walk[0]
    # By which time its zone is named, then by its place on the walk.
    places = [
        [zoned.get(n) for n in walk[:i]].count(zoned.get(name)) for i, name in enumerate(walk)
    ]
    assert list(found) == [
        name for _, name in sorted(zip(places, walk, strict=True), key=lambda e: e[0])
    ]
    for n in range(1, len(found)):
        assert ring.owners(str(at), n, zones=zoned) == found[:n]
    assert ring.owners(str(at), 99) == tuple(walk)


@given(rings, point, zones)
def test_a_node_that_leaves_changes_no_owner_before_its_place(
    points: Points, at: int, zoned: dict[str, str]
) -> None:
    ring = Ring(points)
    if ring.node_count < 2:
        return
    found = ring.owners(str(at), 99, zones=zoned)
    for place, name in enumerate(found):
        after = ring.without_nodes(name).owners(str(at), 99, zones=zoned)
        assert after[:place] == found[:place]


@pytest.mark.parametrize(
    ("points", "message"),
    [
        (5, "points=5: give a mapping from node to points"),
        ("abc", "points='abc': give a mapping from node to points"),
        ({5: [1]}, "node=5: a node's name is a non-empty str"),
        ({"": [1]}, "node='': a node's name is a non-empty str"),
        ({"a": [1.0]}, "points=[1.0]: of node 'a' must be ints in [0, 4294967296)"),
        ({"a": ["1"]}, "points=['1']: of node 'a' must be ints in"),
        ({"a": 5}, "points=5: of node 'a' must be ints in"),
        ({"\ud800": [1]}, "node='\\ud800': cannot be encoded as UTF-8"),
    ],
)
def test_points_that_are_none_are_refused_by_node_and_value(points: Any, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Ring(points)
    assert str(caught.value).startswith(message)


def test_a_node_whose_name_has_no_encoding_comes_on_no_ring() -> None:
    with pytest.raises(ConfigError, match="cannot be encoded as UTF-8"):
        Ring({"a": [1]}).with_node("\ud800", [2])


@pytest.mark.parametrize("zones", [["eu"], "eu", 3])
def test_zones_that_are_no_mapping_are_refused(zones: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        Ring({"a": [1]}).owners("key", 1, zones=zones)
    assert str(caught.value) == f"zones={zones!r}: give a mapping from node to zone"


def test_more_owners_than_there_are_nodes_are_all_nodes() -> None:
    ring = Ring({"a": [1], "b": [2]})
    for zones in (None, {"a": "x"}):
        assert sorted(ring.owners("key", 10**30, zones=zones)) == ["a", "b"]


@pytest.mark.parametrize("n", [0, -1, True, 1.5, "2", None])
def test_a_number_of_owners_that_is_none_is_refused(n: object) -> None:
    with pytest.raises(ConfigError, match=r"n=.*: give a number of nodes, at least 1"):
        Ring({"a": [1]}).owners("key", n)  # type: ignore[arg-type]


def test_an_empty_ring_has_no_owners() -> None:
    with pytest.raises(EmptyRingError):
        Ring().owners("key", 2)
