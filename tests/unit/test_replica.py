"""A replica and its text form."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hashring.core.hashing import RING_SIZE
from hashring.core.replica import Replica, parse_replica
from hashring.errors import ReplicaFormatError

points = st.integers(0, RING_SIZE - 1)
names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)
ids = st.text(st.characters(exclude_categories=["Cs"], exclude_characters=":"), min_size=1)


@given(points, names, ids)
def test_what_is_written_is_what_is_read(point: int, node: str, id_: str) -> None:
    replica = Replica(point, node, id_)
    assert parse_replica(replica.member) == replica
    assert parse_replica(str(replica)) == replica


@pytest.mark.parametrize(
    ("member", "replica"),
    [
        ("706234936:mbp.local:80721:249d729d", (706234936, "mbp.local:80721", "249d729d")),
        ("0:[2001:db8::1]:8080:aa", (0, "[2001:db8::1]:8080", "aa")),
        ("5:::1:1234:aa", (5, "::1:1234", "aa")),
        ("5::::aa", (5, "::", "aa")),
        ("4294967295:Zürich 北京:7:0", (4294967295, "Zürich 北京:7", "0")),
    ],
)
def test_a_name_may_hold_colons_and_any_script(member: str, replica: tuple[int, str, str]) -> None:
    assert parse_replica(member) == Replica(*replica)
    assert parse_replica(member.encode()) == Replica(*replica)


@pytest.mark.parametrize(
    ("member", "why"),
    [
        (b"", "does not begin with a point in plain decimal"),
        (b"abc", "does not begin with a point in plain decimal"),
        (b":host:1:aa", "does not begin with a point in plain decimal"),
        (b"-1:host:1:aa", "does not begin with a point in plain decimal"),
        (b"+1:host:1:aa", "does not begin with a point in plain decimal"),
        (b" 1:host:1:aa", "does not begin with a point in plain decimal"),
        (b"1.5:host:1:aa", "does not begin with a point in plain decimal"),
        (b"1_0:host:1:aa", "does not begin with a point in plain decimal"),
        (b"01:host:1:aa", "does not begin with a point in plain decimal"),
        ("٣:host:1:aa".encode(), "does not begin with a point in plain decimal"),
        (b"12", "names no node"),
        (b"12:", "names no node"),
        (b"12:only", "names no node"),
        (b"12::aa", "names no node"),
        (b"12:host:", "has no replica id"),
        (b"4294967296:host:1:aa", "has a point beyond the ring's 4294967296 points"),
        (b"12:\xff\xfe:aa", "is not UTF-8"),
        ("12:\udcff:aa", "is not UTF-8"),
    ],
    ids=lambda value: repr(value)[:30],
)
def test_garbage_is_refused_and_named(member: bytes | str, why: str) -> None:
    with pytest.raises(ReplicaFormatError) as caught:
        parse_replica(member)
    assert str(caught.value) == f"ring member {member!r} {why}; expected start:node:id"
    assert caught.value.text == member


def test_of_very_long_garbage_the_error_shows_the_beginning() -> None:
    member = b"9" * 5000 + b":host:1:aa"
    why = "has a point beyond the ring's 4294967296 points"
    with pytest.raises(ReplicaFormatError) as caught:
        parse_replica(member)
    beginning = repr(member)[:200]
    assert str(caught.value) == f"ring member {beginning}… {why}; expected start:node:id"
    assert caught.value.text == member


@given(st.binary() | st.text(st.characters()))
def test_anything_at_all_is_read_or_refused_and_what_is_read_is_written_the_same(
    member: bytes | str,
) -> None:
    try:
        replica = parse_replica(member)
    except ReplicaFormatError:
        return
    assert replica.member == (member if isinstance(member, bytes) else member.encode())


def test_replicas_are_ordered_by_point_then_node() -> None:
    rising = [Replica(1, "b", "x"), Replica(2, "a", "y"), Replica(2, "b", "a")]
    falling = [Replica(2, "b", "a"), Replica(2, "a", "y"), Replica(1, "b", "x")]
    assert sorted(falling) == rising
