"""The verdict: each thing that can be wrong makes the state it should, with its reason in words."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from hashring.core.assignors.situation import MemberState
from hashring.core.groups.group_status import GroupStatus, GroupWait, MemberStatus, WaitKind
from hashring.core.groups.state import EventKind, GroupEvent, GroupPhase, MemberOrder
from hashring.core.ring_change_message import ChangeKind, RingChange, Stamp
from hashring.health import Health, Reason, State, exit_status, group_health, ring_health, worst
from hashring.store.group.decision_history import Decision
from hashring.store.ring.node_orders import DrainOrder
from hashring.store.ring.node_reports import NodeFacts, Sees
from hashring.store.ring.ring_events import RingEvent

NOW = 1_000_000.0
WELL = NodeFacts(
    name="a",
    host="h",
    pid="1",
    replicas=16,
    share=0.5,
    delay=2.0,
    expires_in=58.0,
    expired=False,
    ttl=60.0,
    weight=1.0,
    started=0.0,
    version="1",
    hash_algorithm="crc-32",
    held=None,
    limit=None,
    unserved=0,
    fingerprint="f",
    sees=Sees.CURRENT,
)


def event(kind: ChangeKind, ago: float, reason: str = "") -> RingEvent:
    stamp = Stamp(1, "tag", 1, int((NOW - ago) * 1e6))
    change = RingChange(kind, ("a",), (), "", stamp, reason=reason)
    return RingEvent(f"{int((NOW - ago) * 1000)}-0", kind.value, "by", change)


def verdict(*nodes: NodeFacts, events: tuple[RingEvent, ...] = (), **more: Any) -> Health:
    return ring_health(nodes, events, ring="ring", now=NOW, **more)


def text(health: Health) -> str:
    return "; ".join(reason.text for reason in health.reasons)


def test_a_ring_whose_nodes_expired_is_down_until_somebody_forgets_it() -> None:
    gone = (event(ChangeKind.EXPIRE, 90),)
    assert verdict(events=gone).state is State.DOWN
    forgotten = RingEvent(f"{int((NOW - 60) * 1000)}-0", "forget", "ada", None)
    health = verdict(events=(*gone, forgotten))
    assert (health.state, text(health)) == (State.STOPPED, "forgotten 60 s ago by ada")
    assert verdict(WELL, events=(*gone, forgotten)).state is State.HEALTHY
    # Somebody lifted an order about one of its nodes since.
    order = RingEvent(f"{int((NOW - 30) * 1000)}-0", "undrain", "bob", None, node="a")
    assert verdict(events=(*gone, forgotten, order)) == health
    again = event(ChangeKind.EXPIRE, 10)
    assert verdict(events=(*gone, forgotten, order, again)).state is State.DOWN


def test_a_ring_without_fault_is_healthy_and_gives_no_reason() -> None:
    assert verdict(WELL, replace(WELL, name="b")) == Health(State.HEALTHY)


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        ({"unserved": 25}, "25 keys unserved: all nodes full"),
        ({"unserved": 1}, "1 key unserved"),
        ({"refusal": "OOM: full"}, "Redis refuses new locks to b: OOM: full"),
        ({"delay": 40.0, "expires_in": 20.0}, "1 node late: b; no heartbeat for 40 s"),
        ({"expired": True, "expires_in": -65.0, "delay": 125.0}, "1 node expired 65 s ago"),
        ({"sees": Sees.ANOTHER}, "1 node sees another ring than Redis has: b"),
    ],
)
def test_what_is_wrong_with_a_node_degrades_its_ring(node: dict[str, Any], expected: str) -> None:
    health = verdict(WELL, replace(WELL, name="b", **node))
    assert health.state is State.DEGRADED
    assert expected in text(health)
    assert all(reason.remedy for reason in health.reasons)


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        ({"sees": Sees.ANOTHER}, "hashring doctor --ring ring"),
        (
            {"name": "b c", "expired": True, "expires_in": -65.0},
            "hashring remove 'b c' --ring ring",
        ),
        (
            {"name": "-b", "expired": True, "expires_in": -65.0},
            "hashring remove --ring ring -- -b",
        ),
    ],
)
def test_a_remedy_comes_with_the_whole_command(node: dict[str, Any], expected: str) -> None:
    [reason] = verdict(WELL, replace(WELL, **{"name": "b", **node})).reasons
    assert reason.command == expected


def test_after_a_change_a_ring_is_changing_until_half_a_ttl_has_passed() -> None:
    behind = replace(WELL, name="b", sees=Sees.OLDER)
    health = verdict(WELL, behind, events=(event(ChangeKind.JOIN, 29),))
    assert (health.state, text(health)) == (
        State.CHANGING,
        "join 29 s ago; 1 of 2 nodes confirmed it",
    )
    # Neither has a node confirmed it that reports nothing, and drained ones own nothing.
    silent, drained = replace(WELL, name="c", sees=Sees.UNKNOWN), replace(behind, drained=True)
    health = verdict(WELL, behind, silent, drained, events=(event(ChangeKind.JOIN, 29),))
    assert text(health) == "join 29 s ago; 1 of 3 nodes confirmed it"
    assert verdict(WELL, drained, events=(event(ChangeKind.JOIN, 99),)).state is State.HEALTHY
    health = verdict(WELL, behind, events=(event(ChangeKind.JOIN, 31),))
    assert (health.state, text(health)) == (
        State.DEGRADED,
        "1 node did not confirm the change of 31 s ago: b",
    )


def test_a_ring_whose_nodes_left_is_stopped_and_one_whose_nodes_expired_is_down() -> None:
    assert verdict(events=(event(ChangeKind.LEAVE, 7200),)).state is State.STOPPED
    assert "2 h ago" in text(verdict(events=(event(ChangeKind.LEAVE, 7200),)))
    assert verdict().state is State.STOPPED
    assert verdict(events=(event(ChangeKind.EXPIRE, 5),)).state is State.DOWN
    assert verdict(replace(WELL, expired=True, expires_in=-3.0)).state is State.DOWN


def test_an_event_that_is_no_change_does_not_hide_the_last_leave() -> None:
    events = (event(ChangeKind.LEAVE, 60), RingEvent(f"{int(NOW * 1000)}-0", "release", "by", None))
    assert verdict(events=events).state is State.STOPPED


def test_two_hash_algorithms_are_worse_than_anything_else_and_come_first() -> None:
    health = verdict(replace(WELL, unserved=3), algorithms=("crc-32", "xxh32"))
    assert [reason.state for reason in health.reasons] == [State.DOWN, State.DEGRADED]


def test_of_many_nodes_three_are_named() -> None:
    late = [replace(WELL, name=f"n{n}", delay=40, expires_in=20) for n in range(5)]
    assert "n0, n1, n2 and 2 more;" in text(verdict(*late))


# --- groups -----------------------------------------------------------------------------------


MEMBER = MemberStatus("m", MemberState.ACTIVE, (0,), 5.0)


def group(**more: Any) -> GroupStatus:
    fields: dict[str, Any] = {
        "phase": GroupPhase.READY,
        "generation": 7,
        "partitions": 8,
        "until": None,
        "waits": (),
        "unowned": (),
        "draining": (),
        "members": (MEMBER,),
    }
    return GroupStatus(**{**fields, **more})


@pytest.mark.parametrize(
    ("status", "state", "expected"),
    [
        ({}, State.HEALTHY, ""),
        ({"phase": GroupPhase.HOLDDOWN, "until": NOW + 12}, State.CHANGING, "holddown, 12 s more"),
        ({"phase": GroupPhase.REBALANCING}, State.CHANGING, "rebalancing"),
        ({"unowned": (1, 2)}, State.DEGRADED, "2 partitions without an owner"),
        (
            {"waits": (GroupWait(WaitKind.LEASE, "m", 1, NOW + 5),)},
            State.DEGRADED,
            "1 member not responding: m",
        ),
        (
            {"members": (MemberStatus("m", MemberState.STALLED, (), 5.0),)},
            State.DEGRADED,
            "1 member stalled: m",
        ),
        (
            {"unreadable": ("m",)},
            State.DEGRADED,
            "1 member with a report that cannot be read: m",
        ),
        (
            {"members": (), "unreadable": ("m", "n")},
            State.DEGRADED,
            "2 members with reports that cannot be read: m, n",
        ),
        ({"members": ()}, State.STOPPED, "it has no members"),
        # Others may have left in order.
        (
            {"members": (), "expired": ("m", "n")},
            State.DOWN,
            "no member is left; m, n expired without leaving: no partition has an owner",
        ),
    ],
)
def test_a_group_is_as_its_status_says(status: dict[str, Any], state: State, expected: str) -> None:
    health = group_health(group(**status), (), group="orders", now=NOW)
    assert health.state is state
    assert expected in text(health)


def test_a_group_at_rest_with_a_partition_that_nobody_has_is_to_be_looked_at() -> None:
    [reason] = group_health(group(unowned=(1,)), (), group="my orders", now=NOW).reasons
    assert (reason.remedy, reason.command) == ("see why", "hashring group show 'my orders'")


def test_a_group_whose_last_member_expired_is_down() -> None:
    gone = Decision("1-0", 8, "Ready", "m", (GroupEvent(EventKind.EXPIRED, "m"),))
    older = Decision("0-1", 7, "Ready", "m", (GroupEvent(EventKind.LEFT, "n"),))
    health = group_health(group(members=()), (older, gone), group="orders", now=NOW)
    assert health.state is State.DOWN
    assert "no member is left; m expired without leaving: no partition" in text(health)
    assert group_health(group(members=()), (older,), group="orders", now=NOW).state is State.STOPPED


def test_a_group_that_is_down_can_be_started_or_forgotten() -> None:
    status = group(members=(), expired=("m",))
    [reason] = group_health(status, (), group="my orders", now=NOW).reasons
    assert reason.remedy == "start the members, or forget the group"
    assert reason.command == "hashring group forget 'my orders'"


def test_a_ring_that_is_down_can_be_started_or_forgotten() -> None:
    expired = replace(WELL, expired=True, expires_in=-5.0)
    for health in (verdict(expired), verdict(events=(event(ChangeKind.EXPIRE, 60),))):
        [reason] = health.reasons
        assert reason.remedy == "start its nodes, or forget the ring"
        assert reason.command == "hashring forget --ring ring"


def decision(generation: int, *kinds: EventKind, by: str = "m") -> Decision:
    events = tuple(GroupEvent(kind, "m") for kind in kinds)
    at = int((NOW - 60) * 1000)
    return Decision(f"{at}-{generation}", generation, "Ready", by, events)


FORGOTTEN_GROUP = decision(8, EventKind.EXPIRED, EventKind.FORGOTTEN, by="ada")


@pytest.mark.parametrize(
    ("later", "state", "expected"),
    [
        ((), State.STOPPED, "forgotten 60 s ago by ada"),
        # Somebody gave an order about it since.
        ((EventKind.WEIGHED,), State.STOPPED, "forgotten 60 s ago by ada"),
        ((EventKind.JOINED, EventKind.LEFT), State.STOPPED, "it has no members"),
        ((EventKind.JOINED, EventKind.EXPIRED), State.DOWN, "m expired without leaving"),
    ],
)
def test_a_forgotten_group_is_stopped_until_a_member_joins(
    later: tuple[EventKind, ...], state: State, expected: str
) -> None:
    after = [decision(9, *later)] if later else []
    health = group_health(group(members=()), (*after, FORGOTTEN_GROUP), group="orders", now=NOW)
    assert health.state is state
    assert expected in text(health)


def test_a_member_that_expired_after_its_group_was_forgotten_is_missed() -> None:
    status = group(members=(), expired=("m",))
    health = group_health(status, (FORGOTTEN_GROUP,), group="orders", now=NOW)
    assert health.state is State.DOWN


# --- all together -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("states", "overall", "status"),
    [
        ([], State.HEALTHY, 0),
        ([State.HEALTHY, State.STOPPED], State.HEALTHY, 0),
        ([State.STOPPED], State.STOPPED, 0),
        ([State.HEALTHY, State.CHANGING], State.CHANGING, 0),
        ([State.CHANGING, State.DEGRADED], State.DEGRADED, 1),
        ([State.DEGRADED, State.UNKNOWN], State.UNKNOWN, 2),
        ([State.UNKNOWN, State.DOWN], State.DOWN, 2),
    ],
)
def test_the_worst_counts_and_makes_the_exit_status(
    states: list[State], overall: State, status: int
) -> None:
    verdicts = [Health.of([Reason(state, "x")]) for state in states]
    assert (worst(verdicts), exit_status(verdicts)) == (overall, status)


def test_an_old_drain_of_a_ring_without_a_live_node_is_no_reason() -> None:
    drains = {"b": DrainOrder("alice", NOW - 90_000)}
    forgotten = RingEvent(f"{int((NOW - 60) * 1000)}-0", "forget", "ada", None)
    stopped = verdict(events=(forgotten,), drains=drains)
    assert (stopped.state, text(stopped)) == (State.STOPPED, "forgotten 60 s ago by ada")
    left = verdict(events=(event(ChangeKind.LEAVE, 60),), drains=drains)
    assert (left.state, text(left)) == (State.STOPPED, "the last node left 60 s ago")
    expired = replace(WELL, expired=True, expires_in=-5.0)
    assert "drained" not in text(verdict(expired, drains=drains))


@pytest.mark.parametrize(
    ("name", "there", "state"),
    [
        ("m", True, State.DEGRADED),
        ("gone", False, State.DEGRADED),
        ("host:1:0a1b2c", True, State.DEGRADED),
        ("host:1:0a1b2c", False, State.HEALTHY),
    ],
)
def test_an_old_drain_of_a_member_that_is_gone_for_good_is_no_reason(
    name: str, there: bool, state: State
) -> None:
    members = (MEMBER, replace(MEMBER, name=name)) if there else (MEMBER,)
    orders = {name: MemberOrder("alice", NOW - 90_000, drained=True)}
    status = group(members=members, orders=orders)
    assert group_health(status, (), group="orders", now=NOW).state is state


def test_a_ring_whose_nodes_are_all_drained_is_down() -> None:
    off = replace(WELL, share=0.0, replicas=0, drained=True)
    assert verdict(WELL, replace(off, name="b")).state is State.HEALTHY
    health = verdict(off, replace(off, name="b"))
    assert health.state is State.DOWN
    assert text(health) == "every node is drained (2): no key has an owner"


def test_a_node_that_is_away_for_a_restart_is_no_alarm_until_it_expires() -> None:
    away = replace(WELL, name="b", delay=40.0, expires_in=20.0, sees=Sees.UNKNOWN, away=True)
    health = verdict(WELL, away)
    assert (health.state, exit_status([health])) == (State.CHANGING, 0)
    assert text(health) == ("1 node away for a restart: b; keys of an away node have no owner")
    assert health.reasons[0].remedy == "if b is not back in 20 s, other nodes take over"
    # It told of them before it stopped.
    assert verdict(WELL, replace(away, unserved=3)) == health
    assert verdict(away).state is State.CHANGING
    expired = replace(away, away=False, expired=True, expires_in=-5.0)
    assert verdict(WELL, expired).state is State.DEGRADED


@pytest.mark.parametrize(
    ("ago", "until", "forgotten"), [(90_000, None, True), (80_000, None, False), (90_000, 1, False)]
)
def test_a_drain_without_an_end_may_have_been_forgotten_after_a_day(
    ago: float, until: float | None, forgotten: bool
) -> None:
    order = DrainOrder("alice", NOW - ago, until if until is None else NOW + until)
    health = verdict(WELL, drains={"b": order})
    assert (health.state is State.DEGRADED) is forgotten
    assert ("1 node drained for more than a day: b" in text(health)) is forgotten
