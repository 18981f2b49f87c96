"""What a node reads before it joins, without reading the ring, on every store."""

from __future__ import annotations

import random
from typing import Any

import pytest

from hashring.core.replica import Replica
from hashring.core.ring import Ring
from hashring.store.ring import node_orders
from hashring.store.ring.commands import Look, look
from tests.conftest import some
from tests.contract.places import LONG_AGO, Place, RealPlace, replicas

A, B, C = "a" * 16, "b" * 16, "c" * 16

NAMED: dict[str, Any] = {"told": {"named": True, "ranges": ""}}


def look_for(place: Place, node: str, whole: int = 0, count: int = 0, *starts: int) -> Look:
    return place.store.run(look(place.keys, node=node, whole=whole, count=count, starts=starts))


def test_a_fresh_name_finds_nothing_of_its_own(place: Place) -> None:
    reply = place.join("n", A, 10, 20)
    found = look_for(place, "x")
    assert (found.record, found.replicas, found.remembered, found.ranges) == (None, (), (), {})
    assert (found.stamp.tag, found.stamp.members, found.points) == (reply.stamp.tag, 2, 2)


def test_a_name_finds_its_replicas_and_the_session_that_has_it(place: Place) -> None:
    place.join("n", A, 10, 20, **NAMED)
    place.join("m", B, 30)
    found = look_for(place, "n")
    assert found.replicas == tuple(replicas("n", 10, 20))
    assert found.record is not None
    assert found.record.session == A
    assert found.taken == frozenset()


def test_a_name_finds_what_is_remembered_of_it(place: Place) -> None:
    place.join("m", B, 30)
    place.join("n", A, 10, 20, **NAMED)
    place.leave("n", A, 10, 20)
    found = look_for(place, "n")
    assert (found.replicas, found.remembered, found.record) == ((), (10, 20), None)


def test_a_name_finds_which_of_its_points_others_have_by_now(place: Place) -> None:
    place.join("n", A, 10, 20, 30, **NAMED)
    place.leave("n", A, 10, 20, 30)
    place.join("m", B, 20)
    assert look_for(place, "n").taken == {20}
    place.join("n", A, 10, 20, **NAMED)
    assert look_for(place, "n").taken == {20}


def test_a_name_looks_past_garbage_on_the_index(place: Place) -> None:
    place.join("m", A, 10)
    place.join("full", B, 30, full=True)
    place.index_alone(b"garbage", 20)
    place.index_alone(b"5000000000:x:y", 20)
    closed = {"m": ((10, 20),), "full": ((30, 2**32 - 20),)}
    assert look_for(place, "x", whole=9).ranges == closed
    assert look_for(place, "x", 1, 3, 0).ranges == {"m": ((10, 20),)}


def test_members_of_full_nodes_are_found_too(place: Place) -> None:
    place.join("n", A, 10, full=True, **NAMED)
    place.join("m", B, 20, full=True)
    found = look_for(place, "n", 5)
    assert found.replicas == tuple(replicas("n", 10))
    assert found.ranges == {"m": ((20, 2**32 - 10),)}


def test_replicas_that_expired_are_found_until_they_are_swept(place: Place) -> None:
    place.join("n", A, 10, **NAMED)
    place.age("n")
    assert look_for(place, "n").replicas == tuple(replicas("n", 10))
    place.sweep()
    assert look_for(place, "n").replicas == ()
    assert look_for(place, "n").remembered == (10,)


def test_a_look_before_a_join_changes_nothing(place: Place) -> None:
    place.join("n", A, 10, **NAMED)
    before = (place.zset(), place.index(), place.placed(), place.raw_events())
    look_for(place, "n", 8)
    look_for(place, "n", 1, 1, 50)
    assert (place.zset(), place.index(), place.placed(), place.raw_events()) == before


@pytest.mark.parametrize("name", ["n", "d", "x"], ids=["on the ring", "drained", "fresh"])
def test_a_look_reads_no_more_of_a_ring_than_it_is_asked_for(real: RealPlace, name: str) -> None:
    for number, other in enumerate("ndm"):
        real.join(other, A, 10 * number + 5, **NAMED)
    real.store.run(node_orders.drain(real.keys, node="d", by="ops"))
    real.beat("d", A, 15, **NAMED)
    real.client.config_resetstat()
    look_for(real, name, 1, 1, 50)
    # That would be all of it.
    assert "cmdstat_zrange" not in real.client.info("commandstats")


@pytest.mark.parametrize("seed", some(range(3)))
def test_the_ranges_of_all_nodes_are_those_of_the_ring(place: Place, seed: int) -> None:
    rng = random.Random(seed)
    on = {}
    for number in range(6):
        name = f"n{number}"
        on[name] = sorted(rng.sample(range(40), 3))
        place.join(name, A, *on[name], full=rng.random() < 0.3)
    ring = Ring(on)
    found = look_for(place, "x", 18)
    assert set(found.ranges) == set(on)
    for name, ranges in found.ranges.items():
        assert sum(length for _, length in ranges) == ring.shares[name]
        assert {point for point, _ in ranges} <= set(on[name])
    assert found.points == 18


def test_the_own_ranges_are_not_among_those_to_take_from(place: Place) -> None:
    place.join("n", A, 10)
    place.join("m", B, 20)
    assert look_for(place, "n", 2).ranges == {"m": ((20, 2**32 - 10),)}


@pytest.mark.parametrize("full", ["", "b", "abcd"])
def test_of_a_large_ring_stretches_are_looked_at(place: Place, full: str) -> None:
    for number, name in enumerate("abcd"):
        place.join(name, A, 100 * number + 100, 100 * number + 150, full=name in full)
    found = look_for(place, "x", 7, 2, 110, 351)
    assert found.ranges == {
        "a": ((150, 50),),
        "b": ((200, 50),),
        "d": ((400, 50), (450, 2**32 - 350)),
    }


@pytest.mark.parametrize("full", ["", "b"])
def test_a_stretch_goes_on_behind_the_top_of_the_ring(place: Place, full: str) -> None:
    for number, name in enumerate("abcd"):
        place.join(name, A, 100 * number + 100, full=name in full)
    found = look_for(place, "x", 3, 3, 350)
    assert found.ranges == {"d": ((400, 2**32 - 300),), "a": ((100, 100),), "b": ((200, 100),)}


def test_what_is_no_replica_is_in_no_stretch(place: Place) -> None:
    place.join("n", A, 10, 20)
    place.zadd(b"garbage", place.now() + 60)
    place.beat("n", A, 10, 20)
    assert look_for(place, "x", 2).ranges == {"n": ((10, 10), (20, 2**32 - 10))}


# --- where nodes are --------------------------------------------------------------------------


def test_where_nodes_are_is_written_down_until_they_go(place: Place) -> None:
    place.join("n", A, 10, 20)
    place.join("m", B, 30)
    place.join("o", C, 40)
    assert place.placed() == {b"n": b"10 20", b"m": b"30", b"o": b"40"}
    place.join("n", A, 10, 25, drop=[Replica(20, "n", "id20")])
    assert place.placed()[b"n"] == b"10 25"
    place.leave("n", A, 10, 25)
    assert place.placed() == {b"m": b"30", b"o": b"40"}
    place.age("m")
    place.sweep()
    assert place.placed() == {b"o": b"40"}


def test_a_heartbeat_that_finds_a_node_expired_forgets_where_it_was(place: Place) -> None:
    place.join("n", A, 10)
    place.join("m", B, 30)
    place.age("n")
    place.beat("m", B, 30)
    assert place.placed() == {b"m": b"30"}


def test_a_sweep_forgets_where_nodes_are_that_are_not_on_the_ring(place: Place) -> None:
    place.join("n", A, 10)
    place.place(b"5", "ghost")
    place.sweep()
    assert place.placed() == {b"n": b"10"}


def test_heartbeats_write_it_down_again_when_it_was_deleted(place: Place) -> None:
    place.join("n", A, 10)
    place.join("m", B, 30)
    place.displace()
    place.beat("n", A, 10)
    assert place.placed() == {b"n": b"10"}
    place.beat("m", B, 30)
    assert place.placed() == {b"n": b"10", b"m": b"30"}


def test_a_name_finds_its_replicas_when_it_was_deleted(place: Place) -> None:
    place.join("n", A, 10, **NAMED)
    place.join("m", B, 20, 21, 22)
    place.zadd(b"15:n:spare", place.now() - LONG_AGO)
    place.zadd(b"95:n:newest", place.now() + 60)
    place.displace()
    # It had been remembered where it is, too.
    place.remember(b'{"points": [10]}', "n")
    found = look_for(place, "n")
    assert found.replicas == (
        *replicas("n", 10),
        Replica(15, "n", "spare"),
        Replica(95, "n", "newest"),
    )
