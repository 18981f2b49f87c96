"""The index of a ring's points: what it states to nodes that follow no ring, on every store."""

from __future__ import annotations

import random
from typing import Any

import pytest

from hashring.core.own_ranges import Nearby, OwnRanges, Reach
from hashring.core.ranges import bounds_of
from hashring.core.ring import Ring
from hashring.core.ring_change_message import ChangeKind
from hashring.store.ring.commands import BeatReply, BeatStatus, Scoring, owner
from hashring.store.ring.snapshot import snapshot
from tests.conftest import some
from tests.contract.places import TTL, Listener, Place, replicas

A, B, C = "a" * 16, "b" * 16, "c" * 16

OWN = {"ranges": ""}
"""What a node tells that knows only its own ranges."""


def ask(place: Place, node: str, session: str, *points: int, **options: Any) -> BeatReply:
    options.setdefault("told", OWN)
    options.setdefault("digest", "")
    return place.beat(node, session, *points, **options)


def ranges_of(place: Place, node: str, session: str, *points: int, **options: Any) -> OwnRanges:
    reply = ask(place, node, session, *points, **options)
    assert reply.ranges is not None
    return OwnRanges(node, reply.ranges)


@pytest.mark.parametrize("seed", some(range(4)))
def test_a_node_that_hears_its_messages_knows_what_its_heartbeat_states(
    place: Place, seed: int
) -> None:
    # Few points, so that they meet.
    rng = random.Random(seed)
    names = ["n", "n!", "o", "p", "q"]
    listener = Listener(place, *names)
    known: dict[str, OwnRanges] = {}
    on: dict[str, tuple[list[int], bool]] = {}
    for _ in range(50):
        name = rng.choice(names)
        match rng.randrange(5):
            case 0 | 1:
                points = sorted(rng.sample(range(25), rng.choice((1, 2, 5))))
                drop = replicas(name, *set(on.get(name, ([], False))[0]) - set(points))
                full = rng.random() < 0.4
                known[name] = ranges_of(place, name, A, *points, joining=True, drop=drop, full=full)
                on[name] = (points, full)
            case 2 if name in on:
                place.leave(name, A, *on.pop(name)[0], reason="removed")
                del known[name]
            case 3 if name in on:
                place.age(name)
                other = rng.choice(sorted(on))
                if other != name:
                    points, full = on[other]
                    known[other] = ranges_of(place, other, A, *points, full=full)
                else:
                    place.sweep()
                del on[name], known[name]
            case 4 if name in on:
                on[name] = (on[name][0], not on[name][1])
                known[name] = ranges_of(place, name, A, *on[name][0], full=on[name][1])
        for node, news in listener.nearby():
            if node in known:
                known[node] = known[node].after(news)
        ring = Ring({node: points for node, (points, _) in on.items()})
        full_nodes = {node for node, (_, full) in on.items() if full}
        for node, (points, full) in on.items():
            near = known[node]
            assert near.ranges == ring.node_ranges(node)
            heir = ring.without_nodes(*(full_nodes if not full else ()))
            assert near.bounds == bounds_of(heir.node_ranges(node))
            reply = ask(place, node, A, *points, full=full, digest=near.digest)
            assert reply.ranges is None
            assert reply.all_full == (full_nodes == set(on))
            assert reply.nodes == len(on)
        for point in rng.sample(range(25), 3):
            found = place.store.run(owner(place.keys, point))
            assert found == (ring.owner_of_point(point) if on else None)
    listener.close()


def told(place: Place, listener: Listener) -> list[tuple[str, ChangeKind, tuple[Reach, ...]]]:
    return [(node, news.change.kind, news.reaches) for node, news in listener.nearby()]


def test_a_change_is_told_to_the_neighbours_and_to_nobody_else(place: Place) -> None:
    for number, node in enumerate("nopq"):
        place.join(node, A, 100 * number, told=OWN)
    listener = Listener(place, *"nopq")
    place.join("x", B, 150)
    assert told(place, listener) == [("o", ChangeKind.JOIN, (Reach(100, 50, 50),))]
    place.beat("x", B, 150, full=True)
    assert told(place, listener) == [("o", ChangeKind.FULL, (Reach(100, 50, 100),))]
    place.beat("x", B, 150)
    assert told(place, listener) == [("o", ChangeKind.ROOM, (Reach(100, 50, 50),))]
    place.leave("x", B, 150)
    assert told(place, listener)[:1] == [("o", ChangeKind.LEAVE, (Reach(100, 100, 100),))]
    listener.close()


def test_a_node_that_follows_the_ring_is_not_told_alone(place: Place) -> None:
    place.join("n", A, 0)
    assert _nearby(place, "n", lambda: place.join("x", B, 150)) == []


def test_over_several_full_nodes_the_next_one_with_room_is_told(place: Place) -> None:
    place.join("n", A, 100, told=OWN)
    for number in range(1, 4):
        place.join(f"full-{number}", B, 100 + number, full=True, told=OWN)
    listener = Listener(place, "n", "full-1")
    place.join("x", C, 110)
    assert told(place, listener) == [("n", ChangeKind.JOIN, (Reach(100, 1, 10),))]
    listener.close()


def test_of_several_that_expired_each_hears_of_itself_and_who_stays_of_all(place: Place) -> None:
    # Else what is sent grows with the square of how many expired.
    for number, node in enumerate(("n", "o", "m", "p"), 1):
        place.join(node, A, 100 * number, told=OWN)
    place.age("n", "o")
    listener = Listener(place, "n", "o", "p")
    place.beat("m", A, 300, told=OWN)
    assert [(node, sorted(news.change.nodes)) for node, news in listener.nearby()] == [
        ("p", ["n", "o"]),
        ("n", ["n"]),
        ("o", ["o"]),
    ]
    listener.close()


def _nearby(place: Place, node: str, deed: Any) -> list[Nearby]:
    listener = Listener(place, node)
    deed()
    found = [news for _, news in listener.nearby()]
    listener.close()
    return found


def test_a_node_is_told_of_the_session_that_took_its_name(place: Place) -> None:
    place.join("n", A, 10)
    (news,) = _nearby(place, "n", lambda: place.join("n", B, 20, take_from=A))
    assert (news.change.kind, news.change.session) == (ChangeKind.JOIN, B)


def test_a_node_is_told_that_it_was_removed_or_expired(place: Place) -> None:
    place.join("m", B, 99)
    place.join("n", A, 10)
    (news,) = _nearby(place, "n", lambda: place.leave("n", "", 10, reason="removed"))
    assert (news.change.kind, news.change.nodes) == (ChangeKind.LEAVE, ("n",))
    place.join("n", A, 10)
    place.age("n")
    (news,) = _nearby(place, "n", lambda: place.beat("m", B, 99))
    assert (news.change.kind, news.change.nodes) == (ChangeKind.EXPIRE, ("n",))


@pytest.mark.parametrize("full", [False, True])
def test_the_soonest_expiry_is_that_of_the_members_at_the_ends(place: Place, full: bool) -> None:
    for number, node in enumerate("nopq"):
        place.join(node, A, 100 * number, full=full and node == "o")
    place.zadd(b"300:q:id300", place.now() + TTL / 4)
    far = ask(place, "n", A, 0).soonest
    place.zadd(b"100:o:id100", place.now() + TTL / 2)
    near = ask(place, "n", A, 0).soonest
    assert far is not None
    assert near is not None
    assert near < TTL * 0.6 < far


def test_the_soonest_expiry_is_of_every_end_of_a_node_with_many_points(place: Place) -> None:
    # Redis is asked for a thousand members at once.
    points = [10 * number for number in range(1, 1002)]
    place.join("o", B, points[-1] + 5)
    place.join("n", A, *points)
    place.zadd(b"%d:o:id%d" % (points[-1] + 5, points[-1] + 5), place.now() + TTL / 2)
    soonest = ask(place, "n", A, *points).soonest
    assert soonest is not None
    assert soonest < TTL * 0.6


def test_a_call_that_fails_states_nothing(place: Place) -> None:
    place.join("n", A, 10)
    reply = ask(place, "n", B, 20)
    assert (reply.status, reply.ranges) == (BeatStatus.SUPERSEDED, ())


def test_a_node_that_expired_owns_no_point_though_nobody_swept_it(place: Place) -> None:
    for node, points in {"m": (10, 40), "n": (20, 40), "o": (30,)}.items():
        place.join(node, A, *points)

    def owners() -> list[str | None]:
        return [place.store.run(owner(place.keys, point)) for point in (5, 15, 25, 35, 45)]

    assert owners() == ["n", "m", "n", "o", "n"]
    for gone, expected in (("n", "mmmom"), ("o", "mmmmm")):
        place.age(gone)
        assert owners() == list(expected)
        assert place.look().ring().nodes == tuple(sorted(set(expected)))
    place.age("m")
    assert owners() == [None] * 5
    assert len(place.zset()) == 5


# --- what somebody else wrote -----------------------------------------------------------------


def test_a_member_that_nobody_vouches_for_counts_for_no_reader_and_is_swept(place: Place) -> None:
    place.join("n", A, 10)
    place.zadd(b"20:phantom:x", place.now() + TTL)
    seen = place.look()
    assert seen.ring().nodes == ("n",)
    assert [record.replica.node for record in seen.unvouched] == ["phantom"]
    listener = Listener(place)
    assert place.sweep().members == 1
    (change,) = listener.changes()
    assert (change.kind, change.nodes) == (ChangeKind.EXPIRE, ("phantom",))
    assert (change.reason, change.was, change.stamp.members) == ("unvouched", 2, 1)
    listener.close()
    assert place.look().unindexed == 0
    assert set(place.zset()) == {b"10:n:id10"}


def test_a_heartbeat_takes_away_what_nobody_vouches_for(place: Place) -> None:
    place.join("n", A, 10)
    place.zadd(b"20:phantom:x", place.now() + TTL)
    assert ranges_of(place, "n", A, 10).ranges == Ring({"n": [10]}).node_ranges("n")
    assert set(place.zset()) == {b"10:n:id10"}


def test_a_member_under_the_name_of_a_node_that_does_not_know_it_is_taken_away(
    place: Place,
) -> None:
    place.join("n", A, 10, told=OWN)
    place.join("m", B, 30, told=OWN)
    place.zadd(b"20:n:x", place.now() + TTL)
    ask(place, "m", B, 30)
    assert set(place.zset()) == {b"10:n:id10", b"30:m:id30"}


def test_a_member_under_the_name_of_a_node_that_follows_the_ring_stays(place: Place) -> None:
    place.join("n", A, 10)
    place.join("m", B, 30, told=OWN)
    place.zadd(b"20:n:x", place.now() + TTL)
    assert ranges_of(place, "m", B, 30).reaches == (Reach(30, 2**32 - 20, 2**32 - 20),)
    assert place.index()[b"20:n:x"] == (20, False)


def test_an_index_that_was_lost_is_made_anew(place: Place) -> None:
    place.join("n", A, 10, 20, told=OWN)
    place.join("m", B, 30, told=OWN, full=True)
    for member in place.index():
        place.unindex(member)
    ask(place, "n", A, 10, 20)
    assert place.index() == {
        b"10:n:id10": (10, False),
        b"20:n:id20": (20, False),
        b"30:m:id30": (30, True),
    }


def test_what_is_on_the_index_alone_is_found_by_the_node_before_it(place: Place) -> None:
    place.join("n", A, 10, told=OWN)
    place.join("m", B, 30, told=OWN)
    place.unindex(b"30:m:id30")
    place.index_alone(b"20:x:x", 20)
    assert ranges_of(place, "n", A, 10).reaches == (Reach(10, 2**32, 2**32),)
    # What one took away the other put back: the next heartbeat sees that the numbers differ.
    ask(place, "m", B, 30, told=OWN)
    assert ranges_of(place, "n", A, 10).reaches == (Reach(10, 20, 20),)


def test_what_is_on_the_index_alone_is_taken_off_when_the_numbers_differ(place: Place) -> None:
    place.join("n", A, 10, told=OWN)
    place.index_alone(b"20:x:x", 20)
    place.sweep()
    assert place.index() == {b"10:n:id10": (10, False)}


def test_what_is_on_the_index_alone_is_taken_off_when_the_numbers_differ_after_a_sweep(
    place: Place,
) -> None:
    place.join("n", A, 10)
    place.zadd(b"20:phantom:x", place.now() - 1.0)
    place.index_alone(b"30:ghost:x", 30)
    assert place.sweep().members == 1
    assert set(place.index()) == {b"10:n:id10"}


@pytest.mark.parametrize("where", [None, 25])
def test_a_node_that_is_not_where_it_should_be_on_the_index_goes_back_there(
    place: Place, where: int | None
) -> None:
    place.join("n", A, 10, told=OWN)
    place.join("m", B, 30, told=OWN)
    place.unindex(b"30:m:id30")
    # The index has as many members as the ring, so numbers do not show it.
    place.index_alone(*((b"20:x:x", 20) if where is None else (b"30:m:id30", where)))
    assert ranges_of(place, "m", B, 30).reaches == (Reach(30, 2**32 - 20, 2**32 - 20),)
    assert place.index()[b"30:m:id30"] == (30, False)


def test_members_of_the_index_that_the_ring_has_not_or_elsewhere_are_counted(place: Place) -> None:
    place.join("n", A, 10, 20)
    place.join("m", B, 30, full=True)
    place.zadd(b"abc", place.now() + TTL)
    place.sweep()
    seen = snapshot(place.keys, scoring=Scoring.expiry(TTL), index=True)
    assert place.store.run(seen).misplaced == 0
    place.unindex(b"30:m:id30")
    place.index_alone(b"40:m:id40", 40)
    place.index_alone(b"20:n:id20", 21)
    found = place.store.run(seen)
    assert (found.unindexed, found.misplaced) == (0, 2)


@pytest.mark.parametrize("full", [False, True])
def test_the_last_member_of_each_index_is_compared_with_the_ring(place: Place, full: bool) -> None:
    place.join("n", A, 10, full=not full)
    place.join("m", B, 30, full=full)
    place.zrem(b"30:m:id30")
    seen = snapshot(place.keys, scoring=Scoring.expiry(TTL), index=True)
    assert place.store.run(seen).misplaced == 1


def test_what_is_no_replica_is_taken_off_the_index_by_the_node_before_it(place: Place) -> None:
    place.join("n", A, 10, told=OWN)
    place.join("m", B, 30, told=OWN)
    place.index_alone(b"garbage", 20)
    assert ranges_of(place, "n", A, 10).reaches == (Reach(10, 20, 20),)
    assert b"garbage" not in place.index()


def test_garbage_is_on_the_index_where_nobody_counts_it(place: Place) -> None:
    place.join("n", A, 10)
    place.zadd(b"abc", place.now() + TTL)
    assert ranges_of(place, "n", A, 10).ranges == Ring({"n": [10]}).node_ranges("n")
    assert place.index()[b"abc"] == (-1, False)
    assert place.look().unindexed == 0
    assert b"abc" in place.zset()


@pytest.mark.parametrize("point", [b"4294967296", b"5000000000", b"9" * 400])
def test_a_member_beyond_the_ring_is_counted_by_nobody_though_the_index_has_it(
    place: Place, point: bytes
) -> None:
    place.join("n", A, 10, told=OWN)
    place.join("m", B, 30, told=OWN)
    member = point + b":x:y"
    place.zadd(member, place.now() + TTL)
    place.index_alone(member, 5_000_000_000)
    assert ranges_of(place, "m", B, 30).ranges == Ring({"n": [10], "m": [30]}).node_ranges("m")
    # The next heartbeat puts it where no reader counts it.
    ask(place, "n", A, 10)
    assert place.index()[member] == (-1, False)
