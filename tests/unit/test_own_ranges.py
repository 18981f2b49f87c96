"""What a node makes of what Redis states of its ranges."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hashring.core.hashing import RING_SIZE
from hashring.core.own_ranges import Nearby, OwnRanges, Reach, parse_nearby, read_reaches
from hashring.core.ranges import bounds_of
from hashring.core.ring import Ring
from hashring.core.ring_change_message import ChangeKind
from hashring.errors import MessageFormatError

# Few points, near the ends and each other, so that they meet.
POINTS = st.one_of(
    st.integers(0, 12), st.integers(RING_SIZE - 5, RING_SIZE - 1), st.integers(0, RING_SIZE - 1)
)
RINGS = st.dictionaries(
    st.sampled_from(["a", "a!", "b", "ç"]), st.sets(POINTS, min_size=1, max_size=4), min_size=1
)


def stated(points: dict[str, set[int]], node: str, full: set[str]) -> OwnRanges:
    """What Redis states, by the definition: how far it is to the next point that counts."""
    others = {name: own for name, own in points.items() if name != node}
    with_room = {name: own for name, own in others.items() if name not in full}

    def length(point: int, nodes: dict[str, set[int]]) -> int:
        if any(point in own and name.encode() > node.encode() for name, own in nodes.items()):
            return 0
        ends = set().union(*nodes.values(), points[node])
        return min((end - point - 1) % RING_SIZE + 1 for end in ends)

    return OwnRanges(
        node,
        tuple(
            Reach(point, length(point, others), length(point, with_room))
            for point in sorted(points[node])
        ),
    )


@given(RINGS, st.sets(st.sampled_from(["a", "a!", "b", "ç"])))
def test_ranges_and_bounds_are_those_of_the_whole_ring(
    points: dict[str, set[int]], full: set[str]
) -> None:
    ring = Ring(points)
    for node in points:
        near = stated(points, node, full - {node})
        assert near.ranges == ring.node_ranges(node)
        room = ring.without_nodes(*(full - {node}))
        assert near.own_bounds == bounds_of(ring.node_ranges(node))
        assert near.bounds == bounds_of(room.node_ranges(node))


def test_bounds_are_the_own_ones_unless_something_is_inherited() -> None:
    near = OwnRanges("n", (Reach(10, 5, 5),))
    assert near.bounds is near.own_bounds


@given(RINGS)
def test_the_digest_is_of_the_statement_as_redis_writes_it(points: dict[str, set[int]]) -> None:
    for node in points:
        near = stated(points, node, set())
        text = ",".join(f"{point} {own} {reach}" for point, own, reach in near.reaches)
        assert OwnRanges("another", read_reaches(text)).digest == near.digest
    assert OwnRanges().digest == ""


def message(**body: object) -> bytes:
    change = {
        "v": 1,
        "kind": "leave",
        "nodes": ["m"],
        "epoch": 2,
        "tag": "02",
        "prev": "01",
        "at": "5",
        "members": 3,
        "ranges": "10 7 9",
    }
    return b"ranges\n" + json.dumps(change | body).encode()


def told(**body: object) -> Nearby:
    news = parse_nearby(message(**body))
    assert news is not None
    return news


def test_news_replace_the_ranges_of_the_points_that_they_name() -> None:
    near = OwnRanges("n", (Reach(10, 5, 5), Reach(20, 5, 5)))
    after = near.after(told(ranges="10 7 9,99 1 1"))
    assert after.reaches == (Reach(10, 7, 9), Reach(20, 5, 5))


def test_a_join_needs_no_points_in_news() -> None:
    assert told(kind="join", session="s").change.kind is ChangeKind.JOIN


def test_a_node_that_the_news_took_off_the_ring_has_gone() -> None:
    near = OwnRanges("n", (Reach(10, 5, 5),))
    assert "m" in near
    assert "m" not in near.after(told())
    assert "m" in near.after(told(kind="join"))


def test_only_a_node_that_may_be_on_the_ring_and_own_the_key_is_nearer() -> None:
    near = OwnRanges("n", (Reach(10, 5, 9),))
    assert near.nearer(17, "m", "n")
    assert not near.nearer(12, "m", "n")
    assert not near.after(told(ranges="")).nearer(17, "m", "n")


def test_the_owner_of_a_point_is_known_when_it_is_the_node_itself() -> None:
    near = OwnRanges("n", (Reach(RING_SIZE - 2, 5, 9),))
    assert [near.owner_of_point(point) for point in (RING_SIZE - 1, 2, 3)] == ["n", "n", ""]


def test_the_owner_of_very_many_points_is_known_at_once() -> None:
    # To look at each range for each point would take longer than a test may.
    near = OwnRanges("n", tuple(Reach(10 * number, 5, 5) for number in range(100_000)))
    assert [near.owner_of_point(point) for point in range(100_000)].count("n") == 50_000


@pytest.mark.parametrize("ranges", [None, 7, "10 7", "10 7 x", "-1 2 3", f"{RING_SIZE} 0 0"])
def test_news_that_are_no_statement_are_refused(ranges: object) -> None:
    with pytest.raises(MessageFormatError, match="is not a whole change"):
        parse_nearby(message(ranges=ranges))


def test_other_messages_are_no_news_of_ranges() -> None:
    assert parse_nearby(b"freed\nkey") is None
