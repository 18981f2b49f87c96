"""The fleet's metrics, from readings made by hand."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Iterator
from dataclasses import replace
from math import inf
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from hashring.core.assignors.situation import MemberState
from hashring.core.groups.group_status import GroupStatus, GroupWait, MemberStatus, WaitKind
from hashring.core.groups.state import EventKind, GroupEvent, GroupPhase
from hashring.core.ring import Ring
from hashring.core.ring_balance import balance
from hashring.core.ring_change_message import ChangeKind, RingChange, Stamp
from hashring.health import group_health, ring_health
from hashring.metrics import FleetCollector, GroupReading, RingReading, fleet_collector
from hashring.metrics.fleet_collector import NODES_SHOWN, STALE
from hashring.metrics.metric_families import FLEET_METRICS
from hashring.store.group.decision_history import Decision
from hashring.store.ring.node_reports import NodeFacts, Sees
from hashring.store.ring.ring_events import RingEvent

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]

FACTS = NodeFacts(
    name="a",
    host="h",
    pid="1",
    replicas=16,
    share=0.5,
    delay=2.5,
    expires_in=7.5,
    expired=False,
    ttl=10.0,
    weight=1.0,
    started=0.0,
    version="1",
    hash_algorithm="crc-32",
    held=3,
    limit=5,
    unserved=1,
    fingerprint="f",
    sees=Sees.CURRENT,
)


def reading(*nodes: NodeFacts, at: float = 100.0, events: Iterable[RingEvent] = ()) -> RingReading:
    ring = Ring({node.name: [7 * i] for i, node in enumerate(nodes) if not node.expired})
    known = tuple(events)
    health = ring_health(nodes, known, ring="ring", now=at)
    return RingReading("accounts", at, 4, nodes, len(ring), balance(ring), 0, 0, 0, known, health)


def event(at: float, kind: ChangeKind, reason: str, *nodes: str) -> RingEvent:
    stamp = Stamp(1, "tag", 1, int(at * 1e6))
    change = RingChange(kind, nodes, (), "", stamp, reason=reason)
    return RingEvent(f"{int(at * 1000)}-0", kind.value, "by", change)


def group_reading(status: GroupStatus, *decisions: Decision) -> GroupReading:
    return GroupReading(
        "orders", status, decisions, group_health(status, decisions, group="orders", now=100.0)
    )


PHASES = ("ready", "holddown", "rebalancing")


def group(*, phase: GroupPhase = GroupPhase.READY, **more: Any) -> GroupStatus:
    fields: dict[str, Any] = {
        "phase": phase,
        "generation": 7,
        "partitions": 8,
        "until": None,
        "waits": (),
        "unowned": (),
        "draining": (),
        "members": (),
    }
    return GroupStatus(**{**fields, **more})


def read(collector: FleetCollector) -> Samples:
    """What a scrape says, through the text format, each series once."""
    registry = CollectorRegistry()
    registry.register(collector)
    found: Samples = {}
    for family in text_string_to_metric_families(generate_latest(registry).decode()):
        for sample in family.samples:
            key = sample.name, frozenset(sample.labels.items())
            assert key not in found, key
            found[key] = sample.value
    return found


def one(samples: Samples, name: str, **labels: str) -> float | None:
    return samples.get((name, frozenset(labels.items())))


def test_a_ring_that_was_read_has_its_numbers() -> None:
    collector = FleetCollector()
    gone = replace(FACTS, name="b", expired=True, share=0.0, sees=Sees.OLDER, held=None, limit=None)
    collector.saw_ring(reading(FACTS, gone))
    samples = read(collector)
    assert one(samples, "hashring_ring_nodes", ring="accounts", state="live") == 1
    assert one(samples, "hashring_ring_nodes", ring="accounts", state="expired") == 1
    assert one(samples, "hashring_ring_epoch", ring="accounts") == 4
    assert one(samples, "hashring_ring_peak_to_mean_ratio", ring="accounts") == 1
    assert one(samples, "hashring_ring_expected_peak_to_mean_ratio", ring="accounts") == 1
    on_node = {
        name.removeprefix("hashring_ring_node_"): value
        for (name, labels), value in samples.items()
        if ("node", "a") in labels
    }
    assert on_node == {
        "up": 1,
        "share_ratio": 0.5,
        "replicas": 16,
        "heartbeat_age_seconds": 2.5,
        "ttl_seconds": 10,
        "agrees": 1,
        "keys_held": 3,
        "keys_limit": 5,
        "keys_unserved": 1,
    }
    assert one(samples, "hashring_ring_node_up", ring="accounts", node="b") == 0
    assert one(samples, "hashring_ring_node_agrees", ring="accounts", node="b") == 0
    assert one(samples, "hashring_ring_node_keys_held", ring="accounts", node="b") is None


def test_a_node_that_is_gone_has_no_series() -> None:
    collector = FleetCollector()
    collector.saw_ring(reading(FACTS, replace(FACTS, name="b")))
    collector.saw_ring(reading(FACTS))
    assert {value for _, labels in read(collector) for key, value in labels if key == "node"} == {
        "a"
    }


def test_a_ring_or_group_that_is_forgotten_has_no_series() -> None:
    collector = FleetCollector()
    collector.saw_ring(reading(FACTS))
    collector.saw_group(group_reading(group()))
    collector.forget_ring("accounts")
    collector.forget_group("orders")
    collector.forget_ring("never seen")
    assert {name for name, _ in read(collector)} == {
        "hashring_redis_round_trip_seconds_bucket",
        "hashring_redis_round_trip_seconds_count",
        "hashring_redis_round_trip_seconds_sum",
    }


def test_an_old_reading_has_no_series(monkeypatch: pytest.MonkeyPatch) -> None:
    collector = FleetCollector()
    now = 1000.0
    monkeypatch.setattr(fleet_collector.time, "monotonic", lambda: now)
    collector.saw_ring(reading(FACTS))
    collector.saw_group(group_reading(group()))
    now += STALE
    assert one(read(collector), "hashring_ring_read_age_seconds", ring="accounts") == STALE
    assert one(read(collector), "hashring_group_read_age_seconds", group="orders") == STALE
    now += 0.5
    assert not [name for name, _ in read(collector) if name.startswith("hashring_ring")]
    assert not [name for name, _ in read(collector) if name.startswith("hashring_group")]
    # Its counters go on where they were when it is read again.
    collector.saw_ring(reading(FACTS, events=[event(99, ChangeKind.JOIN, "start", "a")]))
    assert one(read(collector), "hashring_ring_changes_total", ring="accounts", reason="start") == 1


def test_changes_are_counted_once_from_the_first_reading_on() -> None:
    before = event(90, ChangeKind.JOIN, "start", "a")
    joined = event(101, ChangeKind.JOIN, "start", "b")
    full = event(102, ChangeKind.FULL, "", "b")
    odd = event(103, ChangeKind.LEAVE, "anybody's word", "b")
    collector = FleetCollector()
    collector.saw_ring(reading(FACTS, events=[before]))
    collector.saw_ring(reading(FACTS, events=[before, joined]))
    collector.saw_ring(reading(FACTS, events=[before, joined, full, odd]))
    collector.saw_ring(reading(FACTS, events=[full, odd]))
    counted = {
        dict(labels)["reason"]: value
        for (name, labels), value in read(collector).items()
        if name == "hashring_ring_changes_total"
    }
    assert {reason: value for reason, value in counted.items() if value} == {
        "start": 1,
        "full": 1,
        "leave": 1,
    }
    assert counted["expired"] == 0  # there before it happens, so that a rise from nothing is one


def test_a_history_that_begins_anew_is_counted_anew() -> None:
    collector = FleetCollector()
    collector.saw_ring(reading(FACTS, events=[event(500, ChangeKind.JOIN, "start", "a")]))
    collector.saw_ring(reading(FACTS, events=[event(20, ChangeKind.JOIN, "start", "a")]))
    assert one(read(collector), "hashring_ring_changes_total", ring="accounts", reason="start") == 1


def test_a_history_that_lost_its_end_is_not_counted_again() -> None:
    kept = [
        event(90, ChangeKind.JOIN, "start", "a"),
        event(101, ChangeKind.EXPIRE, "expired", "b"),
    ]
    lost = event(102, ChangeKind.JOIN, "start", "b")
    after = event(103, ChangeKind.EXPIRE, "expired", "a")
    collector = FleetCollector()
    collector.saw_ring(reading(FACTS, replace(FACTS, name="b"), events=kept[:1]))
    for events in ([*kept, lost], kept, [*kept, after], kept):
        collector.saw_ring(reading(FACTS, replace(FACTS, name="b"), events=events))
    samples = read(collector)
    counted = {
        reason: one(samples, "hashring_ring_changes_total", ring="accounts", reason=reason)
        for reason in ("start", "expired")
    }
    assert counted == {"start": 1, "expired": 2}
    assert one(samples, "hashring_ring_takeover_seconds_count", ring="accounts") == 2


def test_decisions_of_a_group_that_lost_the_last_ones_are_not_counted_again() -> None:
    kept, lost, after = (
        Decision(id_, 7, "Ready", "m", (GroupEvent(EventKind.REVOKED),))
        for id_ in ("5-0", "6-0", "7-0")
    )
    collector = FleetCollector()
    collector.saw_group(group_reading(group()))
    for decisions in ((kept,), (kept, lost), (kept,), (kept, after)):
        collector.saw_group(group_reading(group(), *decisions))
    samples = read(collector)
    assert one(samples, "hashring_group_events_total", group="orders", kind="revoked") == 3


def test_what_a_failover_noted_before_what_it_took_back_is_counted() -> None:
    stands, instead, later = (event(at, ChangeKind.JOIN, "start", "a") for at in (100, 150, 300))
    taken_back = [event(at, ChangeKind.LEAVE, "stop", "a") for at in (200, 210)]
    collector = FleetCollector()
    for events in (
        [stands],
        taken_back,
        [stands, instead],
        [later],
        [stands, instead, later],
        [stands, *taken_back],
    ):
        collector.saw_ring(reading(FACTS, events=events))
    samples = read(collector)
    counted = {
        reason: one(samples, "hashring_ring_changes_total", ring="accounts", reason=reason)
        for reason in ("start", "stop")
    }
    assert counted == {"start": 2, "stop": 2}


def test_decisions_that_a_failover_noted_before_those_that_it_took_back_are_counted() -> None:
    stands, instead, taken_back = (
        Decision(f"{at}-0", at, "Ready", "m", (GroupEvent(EventKind.REVOKED),)) for at in (5, 6, 7)
    )
    collector = FleetCollector()
    for decisions in ((stands,), (taken_back, stands), (instead, stands)):
        collector.saw_group(group_reading(group(), *decisions))
    samples = read(collector)
    assert one(samples, "hashring_group_events_total", group="orders", kind="revoked") == 2


def test_takeover_is_from_the_last_heartbeat_to_the_change() -> None:
    collector = FleetCollector()
    collector.saw_ring(reading(FACTS, at=100.0))  # the last heartbeat was at 97.5
    expired = event(109.5, ChangeKind.EXPIRE, "expired", "a", "never seen")
    collector.saw_ring(reading(replace(FACTS, name="b"), at=110.0, events=[expired]))
    samples = read(collector)
    assert one(samples, "hashring_ring_takeover_seconds_sum", ring="accounts") == 12.0
    assert one(samples, "hashring_ring_takeover_seconds_count", ring="accounts") == 1
    assert one(samples, "hashring_ring_takeover_seconds_bucket", ring="accounts", le="10.0") == 0
    assert one(samples, "hashring_ring_takeover_seconds_bucket", ring="accounts", le="20.0") == 1
    assert one(samples, "hashring_ring_takeover_seconds_bucket", ring="accounts", le="+Inf") == 1


def test_a_takeover_during_an_outage_of_the_reader_has_no_known_beginning() -> None:
    collector, other = FleetCollector(), replace(FACTS, name="b")
    collector.saw_ring(reading(FACTS, at=100.0))
    expired = event(699.0, ChangeKind.EXPIRE, "expired", "a")
    collector.saw_ring(reading(other, at=700.0, events=[expired]))
    samples = read(collector)
    changes = "hashring_ring_changes_total"
    assert one(samples, changes, ring="accounts", reason="expired") == 1
    assert one(samples, "hashring_ring_takeover_seconds_count", ring="accounts") == 0


def test_a_scrape_keeps_no_reader_of_rings_waiting() -> None:
    collector, done = FleetCollector(), []

    class Nodes(list[NodeFacts]):
        def __iter__(self) -> Iterator[NodeFacts]:
            later = reading(FACTS, events=[event(20, ChangeKind.JOIN, "start", "a")])
            handing_over = threading.Thread(target=collector.saw_ring, args=[later])
            handing_over.start()
            handing_over.join(10)
            done.append(not handing_over.is_alive())
            return super().__iter__()

    first = replace(reading(FACTS), nodes=[])
    collector.saw_ring(first)
    collector._rings["accounts"]._reading = replace(first, nodes=Nodes())
    changes = {"name": "hashring_ring_changes_total", "ring": "accounts", "reason": "start"}
    assert one(read(collector), **changes) == 0
    assert done
    assert all(done)
    assert one(read(collector), **changes) == 1


def test_redis_is_up_when_it_answered_last() -> None:
    collector = FleetCollector()
    assert one(read(collector), "hashring_redis_up") is None
    collector.redis_answered(0.001)
    assert one(read(collector), "hashring_redis_up") == 1
    assert one(read(collector), "hashring_redis_round_trip_seconds_bucket", le="0.001") == 1
    collector.redis_failed()
    assert one(read(collector), "hashring_redis_up") == 0
    assert one(read(collector), "hashring_redis_round_trip_seconds_count") == 1


def test_a_group_that_was_read_has_its_numbers() -> None:
    collector = FleetCollector()
    busy = MemberStatus("m", MemberState.ACTIVE, (1, 2), 5.0)
    status = group(
        phase=GroupPhase.REBALANCING,
        members=(busy,),
        unowned=(3,),
        waits=(GroupWait(WaitKind.RELEASE, "m", 1, 9.0), GroupWait(WaitKind.RELEASE, "m", 2, 9.0)),
    )
    moved = Decision("5-0", 7, "Rebalancing", "m", (GroupEvent(EventKind.REVOKED),) * 2)
    collector.saw_group(group_reading(group()))
    collector.saw_group(group_reading(status, moved))
    collector.saw_group(group_reading(status, moved))
    samples = read(collector)
    told = {
        name.removeprefix("hashring_group_"): value
        for (name, labels), value in samples.items()
        if labels == frozenset({("group", "orders")})
    }
    del told["read_age_seconds"]
    assert told == {
        "members": 1,
        "partitions": 8,
        "unowned_partitions": 1,
        "draining_partitions": 0,
        "generation": 7,
        "blocking_members": 1,
        "drained_members": 0,
    }
    assert one(samples, "hashring_group_phase", group="orders", phase="rebalancing") == 1
    assert one(samples, "hashring_group_phase", group="orders", phase="ready") == 0
    assert one(samples, "hashring_group_waits", group="orders", reason="release") == 2
    assert one(samples, "hashring_group_events_total", group="orders", kind="revoked") == 2
    assert one(samples, "hashring_group_member_partitions", group="orders", member="m") == 2


def test_a_group_without_members_is_in_no_phase() -> None:
    collector = FleetCollector()
    collector.saw_group(group_reading(group(phase=GroupPhase.HOLDDOWN)))
    samples = read(collector)
    phases = [one(samples, "hashring_group_phase", group="orders", phase=p) for p in PHASES]
    assert phases == [0, 0, 0]


@pytest.mark.parametrize(
    "name", ['"} 1\nevil{x="', "a\0b", "\udcff", "\\", "é" * 200, "\x1b[2J", "x" * 10_000]
)
def test_no_name_breaks_the_answer(name: str) -> None:
    collector = FleetCollector()
    longer = replace(FACTS, name=name + "2")
    collector.saw_ring(replace(reading(), ring=name, nodes=(replace(FACTS, name=name), longer)))
    samples = read(collector)
    assert {sample for sample, _ in samples if not re.fullmatch(r"hashring_\w+", sample)} == set()
    labels = {value for _, pairs in samples for key, value in pairs if key in ("ring", "node")}
    assert all(value.isprintable() and len(value) <= 120 for value in labels)
    assert sum(key == "hashring_ring_node_up" for key, _ in samples) == 2


def test_names_that_are_shown_alike_do_not_make_a_series_twice() -> None:
    collector = FleetCollector()
    collector.saw_ring(reading(replace(FACTS, name="a\0"), replace(FACTS, name="a\\x00")))
    collector.saw_ring(replace(reading(FACTS), ring="r\0"))
    collector.saw_ring(replace(reading(FACTS), ring="r\\x00"))
    samples = read(collector)  # which fails on a series that is there twice
    assert one(samples, "hashring_ring_node_up", ring="accounts", node="a\\x00") == 1


def test_a_node_that_is_away_has_no_heartbeat_that_could_be_late() -> None:
    collector = FleetCollector()
    away = replace(FACTS, name="b", away=True, sees=Sees.UNKNOWN)
    collector.saw_ring(reading(FACTS, away))
    samples = read(collector)
    counts = {
        state: one(samples, "hashring_ring_nodes", ring="accounts", state=state)
        for state in ("live", "away")
    }
    assert counts == {"live": 1, "away": 1}
    age = "hashring_ring_node_heartbeat_age_seconds"
    assert one(samples, age, ring="accounts", node="a") == 2.5
    assert one(samples, age, ring="accounts", node="b") is None


@pytest.mark.parametrize("state", ["away", "expired"])
def test_a_node_that_does_not_run_has_no_series_of_its_work(state: str) -> None:
    collector = FleetCollector()
    running = replace(FACTS, load=2.0)
    collector.saw_ring(reading(running, replace(running, name="b", **{state: True})))
    samples = read(collector)
    for what in ("keys_held", "keys_limit", "keys_unserved", "load"):
        name = f"hashring_ring_node_{what}"
        assert one(samples, name, ring="accounts", node="a") is not None
        assert one(samples, name, ring="accounts", node="b") is None


def test_of_a_huge_ring_only_so_many_nodes_have_series() -> None:
    collector = FleetCollector()
    many = tuple(replace(FACTS, name=f"n{i}") for i in range(NODES_SHOWN + 5))
    collector.saw_ring(replace(reading(), nodes=many))
    samples = read(collector)
    assert sum(name == "hashring_ring_node_up" for name, _ in samples) == NODES_SHOWN
    assert one(samples, "hashring_ring_nodes", ring="accounts", state="live") == NODES_SHOWN + 5


def test_live_nodes_are_counted_by_zone() -> None:
    collector = FleetCollector()
    zones = ["eu-1a", "eu-1a", "eu-1b", None]
    nodes = [replace(FACTS, name=f"n{i}", zone=zone) for i, zone in enumerate(zones)]
    gone = replace(FACTS, name="gone", zone="eu-1b", expired=True)
    collector.saw_ring(reading(*nodes, gone))
    samples = read(collector)
    assert one(samples, "hashring_ring_zone_nodes", ring="accounts", zone="eu-1a") == 2
    assert one(samples, "hashring_ring_zone_nodes", ring="accounts", zone="eu-1b") == 1


def test_a_node_has_a_series_of_its_load_if_it_reports_one() -> None:
    collector = FleetCollector()
    collector.saw_ring(reading(replace(FACTS, name="a", load=0.8), replace(FACTS, name="b")))
    loads = {labels: value for (name, labels), value in read(collector).items() if "load" in name}
    assert list(loads.values()) == [0.8]


def test_names_follow_the_conventions() -> None:
    for spec in FLEET_METRICS:
        assert re.fullmatch(r"hashring(_[a-z]+)+", spec.name)
        assert not spec.name.endswith("_total")
        assert spec.text.endswith(".")
    registry = CollectorRegistry()
    registry.register(FleetCollector())
    with pytest.raises(ValueError, match="Duplicated timeseries"):
        registry.register(FleetCollector())


def test_infinite_numbers_are_told_as_such() -> None:
    collector = FleetCollector()
    collector.redis_answered(inf)
    assert one(read(collector), "hashring_redis_round_trip_seconds_bucket", le="+Inf") == 1
