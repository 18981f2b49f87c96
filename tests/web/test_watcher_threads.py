"""Watchers go on whatever happens, and the service says what is wrong with itself."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from typing import Any

import pytest
from redis import Redis

from hashring import PartitionGroup, RingNode
from hashring.core.groups import member_orders
from hashring.core.groups.next_state import StepOutcome
from hashring.core.groups.state import GroupState
from hashring.errors import RedisUnavailable
from hashring.health import State
from hashring.metrics import FleetCollector
from hashring.metrics.fleet_collector import STALE
from hashring.protocol.flow import run_flow
from hashring.protocol.group.group_flows import change
from hashring.store.group.key_names import group_keys
from hashring.store.interface import Message
from hashring.store.redis_store import RedisStore, _RedisSubscription
from hashring.store.ring.commands import Scoring, forget
from hashring.store.ring.key_names import ring_keys
from hashring.web import (
    group_watcher,
    names_watcher,
    ring_watcher,
    watcher_threads,
    watchers_by_name,
)
from hashring.web.group_page import GroupPage
from hashring.web.group_watcher import GroupWatcher
from hashring.web.names_watcher import NamesWatcher
from hashring.web.page_templates import Templates
from hashring.web.pages_by_watcher import LivePages
from hashring.web.ring_view import RingView
from hashring.web.ring_watcher import RingWatcher
from hashring.web.service import Service
from hashring.web.watcher_health import verdict_of
from hashring.web.watcher_threads import Failure, until_turn
from tests.conftest import PATIENCE, eventually
from tests.web.conftest import TOKEN, Visit, Visitor, put

pytestmark = pytest.mark.one_server


def test_an_error_in_showing_a_ring_does_not_end_its_watcher(redis: Redis, visit: Visit) -> None:
    put(redis, "a", 0)
    service = visit(rings=["ring"]).service
    watcher = service.ring("ring")
    assert watcher is not None

    class Broken:
        def looked(self, _: Any) -> None:
            raise ValueError("cannot be shown")

        pulsed = forgotten = stopped = lambda *_: None

    service.listen(Broken())
    looks = watcher.looks
    eventually(lambda: watcher.looks > looks + 2, "it looks again and again")
    assert watcher.running
    assert isinstance(watcher.fault, ValueError)
    redis.set("ring", "no ring")
    eventually(lambda: watcher.failure is not None, "an error of Redis is reported meanwhile")
    redis.delete("ring")
    eventually(lambda: watcher.failure is None, "and it is well again")


def test_while_redis_is_away_a_group_shows_no_state_and_nothing_that_ends_in_some_time(
    redis: Redis, visit: Visit
) -> None:
    with PartitionGroup(redis, "orders", partitions=2, member="m", rebalance_delay=0):
        watcher = visit().service.group("orders")
        assert watcher is not None
        assert watcher.view is not None
        page = GroupPage(Templates("", "", actions=False), watcher)
        (row,) = page.current()[2].values()
        assert "data-until" in row.html
        watcher.stop()
        watcher.join(PATIENCE)
        watcher.failure, watcher.looks = Failure(0.0, RedisUnavailable("gone")), watcher.looks + 1
        _, parts, rows = page.current()
        (row,) = rows.values()
        assert "data-until" not in row.html + parts["waits"]
        assert ">unknown<" in row.html
        assert "phase unknown" in parts["head"]


def test_while_redis_is_away_no_ring_of_the_list_is_healthy_even_if_nobody_looked(
    redis: Redis, visit: Visit
) -> None:
    put(redis, "a", 0, told={"ttl": 900})
    visitor = visit(rings=["ring"])
    assert visitor.service.ring("ring") is not None
    watcher = visitor.service._pulse
    eventually(lambda: watcher.view is not None, "Redis has responded")
    assert "badge s-healthy" in visitor.page("/")
    watcher.stop()
    watcher.join(PATIENCE)
    watcher.failure, watcher.looks = Failure(0.0, RedisUnavailable("gone")), watcher.looks + 1
    assert "badge s-healthy" not in visitor.page("/")


def of_four_nodes(redis: Redis, visit: Visit) -> tuple[Visitor, RingWatcher]:
    """A visitor of a service that watches a ring of a, b, c and d."""
    for point, name in enumerate("abcd"):
        put(redis, name, point)
    visitor = visit(rings=["ring"], token=TOKEN)
    watcher = visitor.service.ring("ring")
    assert watcher is not None
    return visitor, watcher


def status_of_removal(visitor: Visitor, node: str) -> int:
    asked = {"ring": "ring", "node": node, "by": "ada"}
    headers = {"Authorization": f"Bearer {TOKEN}"}
    return visitor.client.post("/api/act/remove", json=asked, headers=headers).status_code


def counted(visitor: Visitor) -> int:
    """How many changes of the ring the metrics tell."""
    found = re.findall(r"^hashring_ring_changes_total\{.* (\d+)", visitor.page("/metrics"), re.M)
    return sum(map(int, found))


@pytest.mark.parametrize("step", ["snapshot", "continued"])
def test_requests_that_act_while_a_ring_is_read_take_no_event_and_add_none(
    redis: Redis, visit: Visit, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    visitor, watcher = of_four_nodes(redis, visit)

    def remove(node: str) -> int:
        return status_of_removal(visitor, node)

    def removed() -> list[str]:
        told = visitor.json("/api/changes", ring="ring")["changes"]
        return [node for change in told for node in change["nodes"]]

    assert remove("a") == 200
    eventually(lambda: removed() == ["a"], "the watcher has read the first removal")
    eventually(lambda: counted(visitor) == 1, "and counted it")
    answers, read = list[int](), getattr(ring_watcher, step)

    def acting(*arguments: Any, **named: Any) -> Any:
        # In the watcher's thread, so within one reading.
        if not answers:
            answers.append(0)
            answers[:] = [remove("b"), remove("c")]
        return read(*arguments, **named)

    monkeypatch.setattr(ring_watcher, step, acting)
    eventually(lambda: len(removed()) >= 3, "the watcher has read the other removals")
    looks = watcher.looks
    eventually(lambda: watcher.looks > looks + 1, "it has looked again")
    assert answers == [200, 200]
    assert removed() == ["a", "b", "c"]
    assert counted(visitor) == 3


def test_what_was_counted_is_not_counted_again_when_redis_returns_with_older_data(
    redis: Redis, visit: Visit
) -> None:
    visitor, watcher = of_four_nodes(redis, visit)

    def remove(node: str) -> None:
        assert status_of_removal(visitor, node) == 200

    remove("a")
    copy = {key: redis.dump(key) for key in redis.scan_iter()}
    remove("b")
    eventually(lambda: counted(visitor) == 2, "both removals are counted")
    with redis.pipeline() as together:
        together.delete(*redis.keys())
        for key, value in copy.items():
            together.restore(key, 0, value)
        together.execute()
    eventually(
        lambda: watcher.view is not None and {n.name for n in watcher.view.live} == set("bcd"),
        "the older data is read",
    )
    looks = watcher.looks
    eventually(lambda: watcher.looks > looks, "and reported to the metrics")
    assert counted(visitor) == 2
    remove("c")
    eventually(lambda: counted(visitor) == 3, "what comes after is counted")


def test_what_redis_lost_with_live_nodes_or_members_was_not_stopped(
    redis: Redis, visit: Visit
) -> None:
    redis.set("{ring}:epoch", "1 0123abcd")
    put(redis, "a", 0)
    member = PartitionGroup(redis, "g", 4, member="m", ttl=60, heartbeat_interval=20)
    member.start()
    try:
        visitor = visit(rings=["ring"])
        ring, group = visitor.service.ring("ring"), visitor.service.group("g")
        assert ring is not None
        assert group is not None
        eventually(lambda: group.view and group.view.status.has_members, "the group is seen")
        redis.flushall()
        eventually(lambda: ring.is_gone and group.is_gone, "nothing is left of both")
        for watcher in (ring, group):
            [reason] = verdict_of(watcher).reasons
            assert reason.state is State.UNKNOWN
            assert reason.text.startswith("Redis lost it")
        put(redis, "a", 0)
        eventually(lambda: not ring.is_gone, "the ring is back")
        assert verdict_of(ring).state is State.HEALTHY
    finally:
        member.stop()


def test_of_a_ring_that_redis_lost_no_metric_says_that_its_nodes_left(
    redis: Redis, visit: Visit
) -> None:
    redis.set("{ring}:epoch", "4 0123abcd")
    visitor, watcher = of_four_nodes(redis, visit)
    redis.flushall()
    eventually(lambda: watcher.is_gone, "nothing is left of it")
    looks = watcher.looks
    eventually(lambda: watcher.looks > looks, "and the metrics know")
    assert 'hashring_ring_nodes{ring="ring",state="live"} 4.0' in visitor.page("/metrics")


def test_a_ring_whose_last_node_of_redis_hashring_left_was_stopped(
    redis: Redis, visit: Visit
) -> None:
    visitor, watcher = of_four_nodes(redis, visit)
    redis.zremrangebyrank("ring", 0, -1)
    eventually(lambda: watcher.is_gone, "such nodes leave no trace")
    assert verdict_of(watcher).state is State.STOPPED
    looks = watcher.looks
    eventually(lambda: watcher.looks > looks, "and the metrics know")
    assert 'hashring_ring_nodes{ring="ring",state="live"} 0.0' in visitor.page("/metrics")


def test_a_history_that_began_again_with_smaller_ids_is_read_however_much_is_in_it(
    redis: Redis,
) -> None:
    store = RedisStore(redis, 5.0)
    watcher = RingWatcher(store, "ring", Scoring.expiry(0.0))

    def joined() -> list[tuple[str, ...]]:
        watcher.view = watcher._look()
        return [event.nodes for event in watcher.view.events if event.kind == "join"]

    with RingNode(redis, "ring", name="lost"):
        [(_, fields)] = redis.xrange("{ring}:events")
        redis.xadd("{ring}:events", fields, id="9999999999999-0")
        assert joined() == [("lost",), ("lost",)]
    redis.flushall()
    with (
        RingNode(redis, "ring", name="a"),
        RingNode(redis, "ring", name="b"),
        RingNode(redis, "ring", name="c"),
    ):
        assert joined() == [("a",), ("b",), ("c",)]
    store.close()


def test_what_a_failover_noted_before_the_last_event_that_it_took_back_is_read(
    redis: Redis,
) -> None:
    store = RedisStore(redis, 5.0)
    watcher = RingWatcher(store, "ring", Scoring.expiry(0.0))

    def read(*history: int) -> list[str]:
        redis.delete("{ring}:events")
        for at in history:
            redis.xadd("{ring}:events", {"kind": "note"}, id=f"{at}-0")
        watcher.view = watcher._look()
        return [event.id for event in watcher.view.events]

    assert read(100, 200) == ["100-0", "200-0"]
    assert read(100, 150, 300) == ["100-0", "150-0", "300-0"]
    assert read(400) == ["400-0"]
    store.close()


def test_what_a_failover_noted_before_the_last_event_that_it_took_back_is_counted(
    redis: Redis,
) -> None:
    store, metrics = RedisStore(redis, 5.0), FleetCollector()
    watcher = RingWatcher(store, "ring", Scoring.expiry(0.0))

    def counted(*history: int) -> int:
        redis.delete("{ring}:events")
        for at in history:
            change = {"v": 1, "kind": "leave", "nodes": ["a"], "prev": "", "tag": f"{at}"}
            change |= {"epoch": at, "members": 0, "at": at * 1000}
            fields = {"kind": "leave", "by": "a", "data": json.dumps(change)}
            redis.xadd("{ring}:events", fields, id=f"{at}-0")
        watcher.view = watcher._look()
        watcher.report(metrics)
        return metrics._rings["ring"]._changes.counts["leave"]

    assert counted(100) == 0
    assert counted(100, 200, 300) == 2
    assert counted(100, 150) == 3
    assert counted(100, 150, 250, 320) == 5
    assert counted(100) == 5
    store.close()


def test_a_look_goes_on_after_events_that_are_dropped_meanwhile(
    redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = RedisStore(redis, 5.0)
    watcher = RingWatcher(store, "ring", Scoring.expiry(0.0))
    for number in range(1, 1502):
        redis.xadd("{ring}:events", {"kind": "note"}, id=f"{number}-0")
        if number == 1:
            watcher.view = watcher._look()
    call = RedisStore.call

    def then_cut(store: RedisStore, *command: Any) -> Any:
        found = call(store, *command)
        redis.xtrim("{ring}:events", maxlen=400, approximate=False)
        return found

    monkeypatch.setattr(RedisStore, "call", then_cut)
    assert watcher._look().events[-1].id == "1000-0"
    assert watcher._look().events[-1].id == "1501-0"
    store.close()


def test_a_service_that_cannot_show_what_it_reads_is_not_ready(visit: Visit) -> None:
    visitor = visit()
    eventually(lambda: visitor.get("/readyz").status_code == 200, "it is ready")
    failing = True

    class Broken:
        def pulsed(self) -> None:
            if failing:
                raise ValueError("cannot be shown")

        looked = forgotten = stopped = lambda *_: None

    visitor.service.listen(Broken())
    eventually(lambda: visitor.get("/readyz").status_code == 503, "it is not ready")
    assert "cannot be shown" in visitor.json("/readyz", 503)["fault"]
    failing = False
    eventually(lambda: visitor.get("/readyz").status_code == 200, "it is ready again")


def test_a_ring_that_is_forgotten_in_the_middle_of_a_request_is_shown_once_more(
    redis: Redis,
) -> None:
    put(redis, "a", 0)
    service = Service(redis, rings=["ring"])
    pages = LivePages(service, Templates("", "", actions=False))
    service.listen(pages)
    service.start()
    watcher = service.ring("ring")
    assert isinstance(watcher, RingWatcher)
    assert isinstance(watcher.view, RingView)
    watcher.stop()
    pages.forgotten(watcher)
    assert ">a</a>" in "".join(row.html for row in pages.ring(watcher).current()[2].values())
    # Nothing of it is kept.
    assert pages.ring(watcher) is not pages.ring(watcher)
    service.stop()


def test_a_ring_for_which_there_was_no_thread_is_watched_once_there_is_one(
    redis: Redis, visit: Visit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(names_watcher, "_SCAN_INTERVAL", 0.1)
    visitor = visit()
    start = RingWatcher.start

    def refused(_: RingWatcher) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(RingWatcher, "start", refused)
    put(redis, "a", 0)
    redis.set("{ring}:epoch", "1 ab")
    wrong = "there is no thread to watch the ring 'ring' (can't start new thread): raise the limit"
    eventually(lambda: wrong in visitor.service.fault, "the service says so")
    assert visitor.get("/readyz").status_code == 503
    assert wrong in visitor.json("/api/ring", 503, ring="ring")["error"]
    monkeypatch.setattr(RingWatcher, "start", start)
    eventually(lambda: visitor.get("/readyz").status_code == 200, "it is ready again")
    assert visitor.json("/api/ring", ring="ring")["nodes"]
    assert 'hashring_ring_state{ring="ring"' in visitor.page("/metrics")


def test_a_ring_that_is_forgotten_while_it_is_read_has_no_metrics_again(redis: Redis) -> None:
    put(redis, "a", 0, expires_in=-5)
    service = Service(redis)
    service.start()
    watcher = service.ring("ring")
    assert isinstance(watcher, RingWatcher)
    redis.delete("ring")
    eventually(lambda: service.listed()[0] == [], "it is not watched any more")
    service.stop()
    assert not service.metrics._rings
    watcher.looked()  # as after a look that was under way
    assert not service.metrics._rings


def test_of_a_ring_that_is_gone_from_redis_nothing_is_kept(
    redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(names_watcher, "_SCAN_INTERVAL", 0.1)
    with RingNode(redis, "old", name="a"):
        pass
    store = RedisStore(redis, 5.0)
    assert store.run(forget(ring_keys("old"), scoring=Scoring.expiry(0.0), by="ada"))
    service = Service(redis)
    service.start()
    try:
        eventually(lambda: bool(service._watched._over), "it was found, and forgotten")
        redis.flushall()
        eventually(lambda: not service._watched._over, "its name goes with its keys")
    finally:
        service.stop()
        store.close()


def test_more_rings_than_redis_py_allows_connections_are_watched(redis: Redis) -> None:
    names = [f"ring-{number:03}" for number in range(120)]
    for name in names:
        put(redis, "a", 0, ring=name)
    service = Service(redis, rings=names)
    service.start()
    rings, _ = service.listed()
    eventually(lambda: all(ring.looks > 1 for ring in rings), "all of them are read")
    failures = [str(ring.failure.error) for ring in rings if ring.failure]
    service.stop()
    assert failures == []


def test_a_ring_that_was_stopped_is_forgotten_after_a_time_until_a_node_joins_again(
    redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(names_watcher, "_SCAN_INTERVAL", 0.1)
    for name in ("old", "new", "wanted"):
        with RingNode(redis, name, name="a"):
            pass
    entries = redis.xrange("{old}:events")
    redis.delete("{old}:events")
    for number, (_, fields) in enumerate(entries, 1):
        redis.xadd("{old}:events", fields, id=f"{number}-0")
    service = Service(redis, rings=["wanted"], forget_after=3600)
    service.start()

    def listed() -> set[str]:
        return {ring.name for ring in service.listed()[0]}

    try:
        eventually(lambda: listed() == {"new", "wanted"}, "the old one is forgotten")
        with RingNode(redis, "old", name="a"):
            eventually(lambda: "old" in listed(), "it is shown again")
    finally:
        service.stop()


def test_a_group_that_was_stopped_is_forgotten_after_a_time_until_a_member_joins_again(
    redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(names_watcher, "_SCAN_INTERVAL", 0.1)
    for name in ("old", "new"):
        with PartitionGroup(redis, name, 2, member="m"):
            pass
    history = "{old}:group:control"
    entries = redis.xrange(history)
    redis.delete(history)
    for number, (_, fields) in enumerate(entries, 1):
        redis.xadd(history, fields, id=f"{number}-0")
    service = Service(redis, forget_after=3600)
    service.start()

    def listed() -> set[str]:
        return {group.name for group in service.listed()[1]}

    try:
        eventually(lambda: listed() == {"new"}, "the old one is forgotten")
        with PartitionGroup(redis, "old", 2, member="m"):
            eventually(lambda: "old" in listed(), "it is shown again")
    finally:
        service.stop()


def test_a_ring_with_an_old_order_to_drain_is_forgotten_like_any_other(
    redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(names_watcher, "_SCAN_INTERVAL", 0.1)
    for name in ("old", "new"):
        with RingNode(redis, name, name="a"):
            pass
    since = redis.time()[0] - 2 * 86_400
    order = {"drain": {"by": "alice", "since": str(since * 10**6)}}
    redis.hset("{old}:orders", "a", json.dumps(order))
    store = RedisStore(redis, 5.0)
    assert store.run(forget(ring_keys("old"), scoring=Scoring.expiry(0.0), by="ada"))
    service = Service(redis)
    service.start()
    try:
        assert service.ring("old") is not None
        eventually(
            lambda: {ring.name for ring in service.listed()[0]} == {"new"}, "it is forgotten"
        )
    finally:
        service.stop()
        store.close()


def test_of_many_rings_those_that_nobody_follows_are_looked_at_less_often(
    redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watchers_by_name, "LOOKS", 0.01)
    for name in ("followed", "other"):
        put(redis, "a", 0, ring=name)
        redis.set(f"{{{name}}}:epoch", "1 ab")
    service = Service(redis)
    pages = LivePages(service, Templates("", "", actions=False))
    service.listen(pages)
    followed, other = service.ring("followed"), service.ring("other")
    assert followed is not None
    assert other is not None
    feed = pages.ring(followed).feed
    reader = feed.follow("", 0.0)
    next(reader)
    service.start()
    try:
        eventually(lambda: other.pace == 200, "the pace is set")
        looks = followed.looks
        eventually(lambda: followed.looks > looks + 2, "the one that is followed is looked at")
        # A message on its channel is a reason to look at once.
        looks = other.looks
        redis.publish("other", "a change")
        eventually(lambda: other.looks > looks, "so is one that tells of a change")
    finally:
        reader.close()
        service.stop()


def test_messages_that_never_end_keep_no_watcher_from_looking(
    redis: Redis, visit: Visit, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(redis, "a", 0)
    monkeypatch.setattr(watcher_threads, "INTERVAL", 0.1)
    monkeypatch.setattr(
        _RedisSubscription, "wait", lambda *_: Message(b"ring", b"of somebody who never stops")
    )
    watcher = visit(rings=["ring"]).service.ring("ring")
    assert watcher is not None
    looks = watcher.looks
    eventually(lambda: watcher.looks > looks + 2, "it looks again and again")


def test_watchers_have_turns_of_their_own_evenly_spread() -> None:
    pace = 6.0
    waits = {name: until_turn(name, pace, 1000.0) for name in map(str, range(1000))}
    assert all(0 < wait <= pace for wait in waits.values())
    for part in range(6):
        assert 100 < sum(part < wait <= part + 1 for wait in waits.values()) < 250
    for name, wait in list(waits.items())[:20]:
        assert until_turn(name, pace, 1000.0 + wait / 2) == pytest.approx(wait / 2)
        assert until_turn(name, pace, 1000.001 + wait) == pytest.approx(pace - 0.001)


def test_the_list_makes_anew_only_the_rows_of_which_something_new_was_read(
    redis: Redis, visit: Visit
) -> None:
    for name in ("a", "b"):
        put(redis, "node", 0, ring=name)
    service = visit(rings=["a", "b"]).service
    watchers_, _ = service.listed()
    for watcher in watchers_:
        watcher.wait_for_look(0, PATIENCE)
        watcher.stop()
        watcher.join(PATIENCE)
    index = LivePages(service, Templates("", "", actions=False)).index
    (_, _, first), looks = index.current(), service.looks
    watchers_[0].view = watchers_[0]._look()
    eventually(lambda: service.looks > looks, "the list is made again")
    _, _, second = index.current()
    kept = {row for row in first.values() if row in second.values()}
    assert len(first) == len(second) == 2
    assert len(kept) == 1
    pulse = service._pulse
    pulse.stop()
    pulse.join(PATIENCE)
    pulse.failure, pulse.looks = Failure(0.0, RedisUnavailable("gone")), pulse.looks + 1
    _, _, third = index.current()
    assert all("unknown" in row.html for row in third.values())


@pytest.mark.parametrize("key", ["{" + "n" * 600 + "}", "}{a}", "{a}}"])
def test_a_key_that_can_be_no_ring_s_hides_no_other_ring_and_is_no_fault(
    redis: Redis, visit: Visit, key: str
) -> None:
    redis.set(f"{key}:epoch", "1 ab")
    for name in ("0", "zz"):
        put(redis, "a", 0, ring=name)
        redis.set(f"{{{name}}}:epoch", "1 ab")
    service = visit().service
    eventually(lambda: {"0", "zz"} <= {ring.name for ring in service.listed()[0]}, "both are found")
    eventually(lambda: service.ready, "the service is well")
    assert service.fault == ""


def test_a_group_without_a_state_that_can_be_read_says_so(redis: Redis, visit: Visit) -> None:
    redis.hset("{orders}:group:state", "a", "b")
    visitor = visit()
    visitor.page("/")
    eventually(
        lambda: "its key in Redis has no state that can be read" in visitor.page("/"),
        "the list says why it is unknown",
    )


def test_a_redis_that_hangs_keeps_no_thread_for_each_request_about_it(
    redis: Redis, visit: Visit
) -> None:
    put(redis, "a", 0)
    visitor = visit(rings=["ring"], token=TOKEN)
    visitor.json("/api/ring", ring="ring")
    process = redis.info("server")["process_id"]
    os.kill(process, signal.SIGSTOP)
    try:
        eventually(lambda: visitor.service.failure is not None, "it is found out")
        started = time.monotonic()
        for _ in range(5):
            owner = visitor.json("/api/owner", ring="ring", key="k")
            assert owner["owner"] == "a"
            assert "did not answer" in owner["lock_error"]
            for path, name in (("/api/ring", "ring"), ("/api/group", "group")):
                assert "did not answer" in visitor.json(path, 503, **{name: "unknown"})["error"]
            answer = visitor.client.post(
                "/api/act/remove",
                json={"ring": "ring", "node": "a", "by": "ada"},
                headers={"Authorization": f"Bearer {TOKEN}"},
            )
            assert answer.status_code == 503
            # It was not tried.
            assert "may have been done" not in answer.json["error"]
        assert time.monotonic() - started < 3
    finally:
        os.kill(process, signal.SIGCONT)
    eventually(lambda: visitor.service.failure is None, "it is back")
    assert visitor.json("/api/owner", ring="ring", key="k")["lock_error"] is None


def test_after_one_slow_look_a_ring_is_looked_at_as_often_as_before(
    redis: Redis, visit: Visit
) -> None:
    put(redis, "a", 0)
    watcher = visit(rings=["ring"]).service.ring("ring")
    assert watcher is not None
    process = redis.info("server")["process_id"]
    os.kill(process, signal.SIGSTOP)
    try:
        time.sleep(2.5)  # at least one second of which is of a look
    finally:
        os.kill(process, signal.SIGCONT)
    eventually(lambda: watcher.took > 1, "a look was slow")
    looks = watcher.looks
    eventually(lambda: watcher.looks > looks, "it looks again", patience=7)


def test_a_ring_whose_looks_are_slow_is_read_again_before_its_metrics_end(redis: Redis) -> None:
    store = RedisStore(redis, 5.0)
    watcher = RingWatcher(store, "ring", Scoring.expiry(0.0))
    for seconds in (0.1, 1.0, 3.0, 7.0, 13.0):
        watcher._usual = watcher._worked = seconds
        pause, look = seconds, seconds
        assert pause + watcher._rest() + look < STALE
    store.close()


def test_of_many_decisions_between_two_looks_each_is_counted(redis: Redis) -> None:
    store, metrics, keys = RedisStore(redis, 5.0), FleetCollector(), group_keys("orders")
    with PartitionGroup(redis, "orders", partitions=2, member="m", rebalance_delay=0):
        watcher = GroupWatcher(store, "orders")

        def look() -> None:
            watcher.view = watcher._look()
            watcher.report(metrics)

        look()
        for number in range(40):

            def weighed(state: GroupState, now: float, number: int = number) -> StepOutcome:
                return member_orders.weigh(state, "m", 2.0 + number, now, "ada")

            run_flow(store.run, change("orders", keys, "ada", weighed))
        for _ in range(2):
            look()
    store.close()
    assert watcher.view is not None
    assert len(watcher.view.decisions) == group_watcher.DECISIONS
    assert metrics._groups["orders"]._events.counts["weighed"] == 40


def test_rests_in_a_search_among_many_keys_do_not_put_off_the_next(
    redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(names_watcher, "_SCAN_INTERVAL", 0.1)
    monkeypatch.setattr(names_watcher, "_SCAN_BREATH", 0.1)
    redis.mset({f"key:{number}": "" for number in range(10_000)})
    store = RedisStore(redis, 5.0)
    search = NamesWatcher(store)
    search.start()
    try:
        eventually(lambda: search.looks, "the first search")
        assert search._rested > 1
        eventually(lambda: search.looks > 1, "the second", patience=15)
    finally:
        search.stop()
        search.join(PATIENCE)
        store.close()
