"""What a live group does, on a real server: callbacks, the iterator, and bad input."""

from __future__ import annotations

import asyncio
import json
import math
import re
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np
import pytest
from click.testing import CliRunner
from redis import Redis
from redis.asyncio import Redis as AsyncRedis

from hashring import AsyncPartitionGroup, PartitionGroup
from hashring.cli import main
from hashring.core.assignors import GroupSituation, LearnerAssignor, TargetAssignment
from hashring.core.groups.group_foresight import MoveReason
from hashring.core.groups.partition_change import PartitionChange, PartitionChangeKind
from hashring.core.groups.state import EventKind, GroupPhase, MemberFacts
from hashring.errors import (
    AssignorError,
    ConfigError,
    GroupMismatch,
    MemberExists,
    NodeStateError,
    RedisUnavailable,
    StoreError,
    UnknownMemberError,
)
from hashring.groups import sync_member
from hashring.groups.base_member import BaseMember, Put
from hashring.protocol.group.base_member_machine import ENDED, Stage
from hashring.protocol.listening import ListeningState
from hashring.running.threads_and_greenlets import Latch
from hashring.store.embedded_server import RedisServer
from hashring.store.group.commands import join
from hashring.store.group.decision_history import read_decision
from hashring.store.group.key_names import group_keys
from hashring.store.interface import Store
from hashring.store.redis_store import RedisStore
from hashring.testing import MemoryStore
from tests.conftest import PATIENCE, eventually, shared

Make = Callable[..., PartitionGroup]


@pytest.fixture
def make(redis: Redis) -> Iterator[Make]:
    made: list[PartitionGroup] = []

    def build(member: str, partitions: int | None = 8, **more: Any) -> PartitionGroup:
        settings = {"rebalance_delay": 0.0, "handoffs": 4, "max_handoff_time": 30.0} | more
        made.append(PartitionGroup(redis, "orders", partitions, member=member, **settings))
        return made[-1]

    yield build
    for group in made:
        group.stop()


def test_members_share_the_partitions_and_pass_them_on(make: Make) -> None:
    a, b = make("a"), make("b")
    a.start()
    eventually(shared(a), "a has everything")
    tokens = a.held
    b.start()
    eventually(shared(a, b), "a and b have four each")
    assert a.held == {p: t for p, t in tokens.items() if p in a.held}
    assert all(token > tokens[p] for p, token in b.held.items())
    a.stop()
    eventually(shared(b), "b has everything")


def test_callbacks_tell_of_every_change_in_order(make: Make) -> None:
    told: list[tuple[str, int]] = []
    a = make(
        "a",
        2,
        on_assigned=lambda partition, token: told.append(("assigned", partition)),
        on_revoked=lambda partition, deadline: told.append(("revoked", partition)),
    )
    a.start()
    eventually(lambda: len(told) == 2, "both were assigned")
    b = make("b", 2)
    b.start()
    eventually(shared(a, b, count=2), "one each")
    a.stop()
    assert told == [("assigned", 0), ("assigned", 1), ("revoked", 1), ("revoked", 0)]


def test_a_partition_is_not_given_on_before_its_callback_has_returned(make: Make) -> None:
    may_return, called = threading.Event(), threading.Event()

    def end(partition: int, deadline: float) -> None:
        called.set()
        may_return.wait()

    a, b = make("a", 2, on_revoked=end), make("b", 2)
    a.start()
    eventually(shared(a, count=2), "a has both")
    b.start()
    assert called.wait(60)
    status = b.status()
    assert status.phase is GroupPhase.REBALANCING
    assert status.blocking == ("a",)
    assert b.held == {}
    may_return.set()
    eventually(shared(a, b, count=2), "one each")


class Worker:
    """An ``on_assigned`` that works on its first partition until it may end."""

    def __init__(self) -> None:
        self.begun, self.may_end = threading.Event(), threading.Event()

    def __call__(self, partition: int, token: int) -> None:
        self.begun.set()
        assert self.may_end.wait(PATIENCE)


@pytest.mark.parametrize("callback", ["on_assigned", "on_active", "on_drain"])
def test_without_on_revoked_a_partition_is_not_given_on_while_a_callback_works(
    make: Make, callback: str
) -> None:
    begun: list[int] = []
    work = Worker()
    a = make("a", 2, **{callback: lambda *_: work(0, 0)})
    b = make("b", None, on_assigned=lambda partition, token: begun.append(partition))
    a.start()
    eventually(shared(a, count=2), "a has both")
    if callback == "on_drain":
        a.resize(1)
    assert work.begun.wait(PATIENCE)
    leaving = threading.Thread(target=a.stop)
    leaving.start()
    eventually(lambda: a._machine.holdings.closing, "a begins to leave")
    b.start()
    time.sleep(0.3)
    assert len(a.held) == 2
    assert begun == []
    work.may_end.set()
    leaving.join(PATIENCE)
    eventually(lambda: 0 in b.held, "b has it")


def test_without_on_revoked_a_drained_member_keeps_a_partition_while_on_assigned_works(
    make: Make,
) -> None:
    work = Worker()
    a, b = make("a", 2, on_assigned=work), make("b", 2)
    a.start()
    assert work.begun.wait(PATIENCE)
    b.start()
    a.drain()
    eventually(lambda: b.status().blocking == ("a",), "a is asked for what it has")
    time.sleep(0.3)
    assert len(a.held) == 2
    work.may_end.set()
    eventually(shared(b, count=2), "b has both")


def test_a_loop_that_has_asked_for_the_next_change_waits_for_a_callback_that_works(
    make: Make,
) -> None:
    work = Worker()
    looked: list[int] = []

    def look() -> None:
        for change in a.changes():
            if change.kind is PartitionChangeKind.REVOKED:
                looked.append(change.partition)

    a, b = make("a", 2, on_assigned=work), make("b", 2)
    a.start()
    assert work.begun.wait(PATIENCE)
    thread = threading.Thread(target=look)
    thread.start()
    b.start()
    a.drain()
    eventually(lambda: sorted(looked) == [0, 1], "the loop has heard of both")
    time.sleep(0.3)
    assert len(a.held) == 2
    assert b.held == {}
    work.may_end.set()
    eventually(shared(b, count=2), "b has both")
    a.stop()
    thread.join()


def test_an_asyncio_loop_that_has_asked_for_the_next_change_waits_for_a_callback_that_works(
    redis_server: RedisServer,
) -> None:
    async def play() -> None:
        may_end = asyncio.Event()
        looked: list[int] = []

        async def work(partition: int, token: int) -> None:
            await may_end.wait()

        async def look() -> None:
            async for change in a.changes():
                if change.kind is PartitionChangeKind.REVOKED:
                    looked.append(change.partition)

        async with AsyncRedis.from_url(redis_server.url) as client:
            a = AsyncPartitionGroup(client, "orders", 1, max_handoff_time=30.0, on_assigned=work)
            await a.start()
            while not a.held:
                await asyncio.sleep(0.01)
            looking = asyncio.create_task(look())
            await asyncio.sleep(0)
            stopping = asyncio.create_task(a.stop())
            while not looked:
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.3)
            assert a.owns(0)
            may_end.set()
            await stopping
            await looking

    asyncio.run(asyncio.wait_for(play(), PATIENCE))


def test_a_loop_that_begins_behind_a_callback_lets_go_of_what_was_revoked(make: Make) -> None:
    work = Worker()
    a, b = make("a", 2, on_assigned=work), make("b", 2)
    a.start()
    assert work.begun.wait(PATIENCE)
    b.start()
    eventually(lambda: b.status().blocking == ("a",), "a is asked for one")
    changes = a.changes()
    while (change := next(changes)).kind is not PartitionChangeKind.REVOKED:
        pass
    work.may_end.set()
    time.sleep(0.3)
    assert a.owns(change.partition)
    changes.close()  # type: ignore[attr-defined]
    assert a.release(change.partition)
    eventually(shared(a, b, count=2), "one each")


@pytest.mark.parametrize("lets_go", ["nobody works", "a callback", "a loop", "a closed loop"])
def test_a_loop_that_begins_when_a_partition_is_about_to_be_let_go_of_is_waited_for(
    make: Make, monkeypatch: pytest.MonkeyPatch, lets_go: str
) -> None:
    works = (lambda *_: None) if lets_go == "a callback" else None
    a, b = make("a", 1, on_assigned=works), make("b", 1)
    begun: list[Iterator[PartitionChange]] = []
    let_go_of = a._let_go_of

    def begins_before(held: Iterable[tuple[int, int]]) -> None:
        held = list(held)
        if held and not begun:
            begun.append(a.changes())
            while next(begun[0]).kind is not PartitionChangeKind.ASSIGNED:
                pass
        let_go_of(held)

    monkeypatch.setattr(a, "_let_go_of", begins_before)
    a.start()
    eventually(lambda: a.owns(0), "a has it")
    changes = a.changes()
    if lets_go.endswith("loop"):
        next(changes)
    b.start()
    a.drain()
    if lets_go == "a closed loop":
        eventually(lambda: a._ending, "the loop is told that it is revoked")
        changes.close()  # type: ignore[attr-defined]
    elif lets_go == "a loop":
        threading.Thread(target=list, args=[changes], daemon=True).start()
    eventually(lambda: begun, "a loop begins")
    time.sleep(0.3)
    assert a.owns(0)
    assert next(begun[0]).kind is PartitionChangeKind.REVOKED
    threading.Thread(target=list, args=begun, daemon=True).start()
    eventually(lambda: b.owns(0), "b has it at once")


def test_a_loop_may_be_collected_while_another_is_told_that_it_is_over(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by Python's collector of cycles, which runs in whatever thread makes an object."""
    a, b = make("a", 2), make("b", 2)
    a.start()
    eventually(shared(a, count=2), "a has both")
    collected, changes = a.changes(), a.changes()
    next(collected)
    b.start()
    a.drain()
    told = []
    while len(told) < 2:
        change = next(changes)
        told += [change.partition] if change.kind is PartitionChangeKind.REVOKED else []
    is_over = a._is_over

    def collects(*arguments: Any) -> bool:
        monkeypatch.undo()
        collected.close()  # type: ignore[attr-defined]
        return is_over(*arguments)

    monkeypatch.setattr(a, "_is_over", collects)
    changes.close()  # type: ignore[attr-defined]
    eventually(lambda: b.owns(told[0]), "b has the one that no loop was at work on")
    assert a.owns(told[1])
    assert a.release(told[1])
    eventually(shared(b, count=2), "b has both")


def test_nothing_waits_for_a_loop_that_a_signal_handler_ended_as_it_began(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    longer = {"max_handoff_time": 2 * PATIENCE}
    a, b = make("a", 2, **longer), make("b", 2, **longer)
    a.start()
    eventually(shared(a, count=2), "a has both")
    held_changes = a._held_changes

    def interrupted(put: Put) -> None:
        held_changes(put)
        raise TimeoutError

    with monkeypatch.context() as patched:
        patched.setattr(a, "_held_changes", interrupted)
        with pytest.raises(TimeoutError):
            next(a.changes())
    b.start()
    a.drain()
    eventually(shared(b, count=2), "b has both")


def test_a_callback_that_never_returns_loses_its_partition_at_the_deadline(make: Make) -> None:
    may_return = threading.Event()
    lost: list[int] = []
    a = make(
        "a",
        2,
        max_handoff_time=0.2,
        heartbeat_interval=0.3,
        on_revoked=lambda partition, deadline: may_return.wait(),
        on_lost=lost.append,
    )
    b = make("b", 2, max_handoff_time=0.2, heartbeat_interval=0.3)
    a.start()
    eventually(shared(a, count=2), "a has both")
    b.start()
    eventually(shared(a, b, count=2), "one each, though the callback hangs")
    may_return.set()
    eventually(lambda: lost == [1], "the loss is reported once the callback is over")


def test_a_callback_that_raises_counts_as_done_and_is_logged(
    make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: Any) -> None:
        raise RuntimeError("a bug")

    a = make("a", 2, on_assigned=fail, on_revoked=fail)
    a.start()
    eventually(shared(a, count=2), "a has both")
    b = make("b", 2)
    b.start()
    eventually(shared(a, b, count=2), "one each")
    a.stop()
    assert "the callback for revoked of partition 1 raised" in caplog.text


def test_what_keeps_a_member_from_renewing_is_logged_once_while_it_lasts(
    caplog: pytest.LogCaptureFixture,
) -> None:
    settings = {"member": "a", "rebalance_delay": 0.0, "ttl": 2.0, "heartbeat_interval": 0.2}
    with (
        RedisServer() as server,
        Redis(unix_socket_path=str(server.socket)) as client,
        PartitionGroup(client, "orders", 4, **settings) as group,  # type: ignore[arg-type]
    ):
        eventually(lambda: len(group.held) == 4, "it has everything")
        server.stop()
        eventually(lambda: not group.held, "its lease has ended")
    (told,) = [text for text in caplog.messages if text.startswith("hashring group orders: a: ")]
    assert "No such file or directory; check host, port and that Redis runs" in told


def test_more_partitions_than_a_decision_has_time_for_are_warned_of_with_how_many_are_not_too_many(
    client: Redis, caplog: pytest.LogCaptureFixture
) -> None:
    def told() -> list[str]:
        return [text for text in caplog.messages if "partitions are many" in text]

    # A third of the ttl is for an answer of Redis'.
    settings: dict[str, Any] = {"rebalance_delay": 0.0, "ttl": 1.5}
    with PartitionGroup(client, "orders", 15_000, **settings) as group:
        assert told() == []
        group.resize(15_001)
        (text,) = told()
        assert text == (
            "hashring group orders: 15,001 partitions are many for a ttl of 1.5 s: while Redis "
            "writes a decision it serves nobody else, and members may lose their leases; have "
            "15,000 partitions at most"
        )
    with PartitionGroup(client, "orders", 15_001, **settings):
        assert len(told()) == 2


def test_a_member_whose_handoffs_may_take_centuries_leaves(make: Make) -> None:
    member = make("a", max_handoff_time=1e15)
    member.start()
    eventually(shared(member), "it has everything")
    member.stop()
    assert not member.running


def test_the_iterator_tells_the_same_and_lets_go_with_the_next_turn(make: Make) -> None:
    told: list[tuple[str, int]] = []
    a, b = make("a", 2), make("b", 2)
    a.start()
    eventually(shared(a, count=2), "a has both")
    entered, go_on = threading.Event(), threading.Event()

    def follow() -> None:
        for change in a.changes():
            told.append((change.kind.value, change.partition))
            if change.kind is PartitionChangeKind.REVOKED and not go_on.is_set():
                entered.set()
                go_on.wait()

    thread = threading.Thread(target=follow)
    thread.start()
    eventually(lambda: len(told) == 3, "what is held is reported first")
    b.start()
    assert entered.wait(60)
    assert a.owns(1)
    go_on.set()
    eventually(shared(a, b, count=2), "one each")
    a.stop()
    thread.join()
    assert told == [
        ("active", 0),
        ("assigned", 0),
        ("assigned", 1),
        ("revoked", 1),
        ("revoked", 0),
        ("inactive", 0),
    ]


def test_a_learner_moves_only_to_who_is_ready(make: Make) -> None:
    warming: list[int] = []
    a = make("a", 4, assignor=LearnerAssignor(1.0))
    b = make("b", 4, assignor=LearnerAssignor(1.0), on_warmup=warming.append)
    a.start()
    eventually(shared(a, count=4), "a has everything")
    b.start()
    eventually(lambda: len(warming) == 2, "b is to warm up for two")
    assert b.held == {}
    assert [move.warm_up for move in b.explain().moves] == [True, True]
    for partition in warming:
        assert b.ready(partition)
    eventually(shared(a, b, count=4), "two each")
    assert sorted(b.held) == sorted(warming)
    assert not b.ready(3)


def test_a_member_is_active_while_it_has_a_partition(make: Make) -> None:
    # Solace's active indicator: of three members on two partitions one stands by.
    told: list[tuple[str, object]] = []

    def telling(name: str) -> dict[str, Any]:
        return {
            "on_active": lambda active: told.append((name, active)),
            "on_assigned": lambda partition, token: told.append((name, "assigned")),
        }

    a, b, c = (make(name, 2, **telling(name)) for name in "abc")
    for member in (a, b, c):
        member.start()
    eventually(lambda: a.active and b.active, "one each")
    assert not c.active
    assert [(m.name, m.active) for m in c.status().members] == [
        ("a", True),
        ("b", True),
        ("c", False),
    ]
    b.stop()
    eventually(lambda: c.active, "the spare takes over")
    assert not b.active
    eventually(lambda: ("c", "assigned") in told, "and learns of it")
    assert [what for name, what in told if name == "b"] == [True, "assigned", False]
    assert [what for name, what in told if name == "c"] == [True, "assigned"]


def test_exclusive_access_gives_one_member_everything_and_the_next_takes_over(make: Make) -> None:
    a, b, c = (make(name, access="exclusive") for name in "abc")
    for member in (a, b, c):
        member.start()
    eventually(shared(a), "a has everything")
    assert a.status().access == "exclusive"
    assert a.status().phase is GroupPhase.READY
    assert [member.active for member in (a, b, c)] == [True, False, False]
    a.stop()
    eventually(shared(b), "b, which joined next, has everything")
    a.start()
    assert a.status().phase is GroupPhase.READY
    assert shared(b)()


def test_a_switch_to_non_exclusive_access_rebalances_at_once(
    make: Make, redis_server: RedisServer
) -> None:
    # Solace: "if the parent queue access type changes from exclusive to non-exclusive"; the delay
    # of an hour is not waited out.
    a = make("a", access="exclusive", rebalance_delay=3600.0)
    b = make("b", access="exclusive", rebalance_delay=3600.0)
    a.start()
    b.start()
    eventually(shared(a), "a has everything")
    foreseen = a.plan(access="non-exclusive")
    assert (len(foreseen.moves), foreseen.delay) == (4, 0.0)
    done = CliRunner().invoke(
        main, ["group", "access", "orders", "non-exclusive", "--yes", "--url", redis_server.url]
    )
    assert done.exit_code == 0, done.output
    eventually(shared(a, b), "four each")
    assert {move.partition for move in foreseen.moves} == set(b.held)


def test_a_member_with_another_access_type_is_refused_by_name(make: Make) -> None:
    make("a").start()
    with pytest.raises(GroupMismatch, match="access"):
        make("b", access="exclusive").start()


HARDLY: dict[str, Any] = {"ttl": 7200.0, "rebalance_delay": 0.3, "heartbeat_interval": 2400.0}
"""Nothing is renewed while a test lasts: a decision comes at its own time, or never."""


def test_the_end_of_the_delay_is_acted_upon_without_a_renewal(make: Make) -> None:
    a, b, c = (make(name, **HARDLY) for name in "abc")
    a.start()
    b.start()
    eventually(shared(a, b), "a join is waited out and acted upon")
    c.start()
    eventually(shared(a, b, c, count=8), "another one, too")
    c.stop()
    eventually(shared(a, b), "and a leave")
    # The member that began a delay may be the next to go.
    a.stop()
    b.status()
    eventually(shared(b), "b has everything")


def test_a_handoffs_deadline_is_acted_upon_without_a_renewal(make: Make) -> None:
    may_return = threading.Event()
    settings = HARDLY | {"rebalance_delay": 0.0, "max_handoff_time": 0.3}
    a = make("a", 2, on_revoked=lambda partition, deadline: may_return.wait(), **settings)
    b = make("b", 2, **settings)
    a.start()
    b.start()
    eventually(shared(a, b, count=2), "one each, though the callback hangs")
    may_return.set()


def test_the_end_of_the_time_to_leave_is_acted_upon_without_a_renewal(make: Make) -> None:
    never = LearnerAssignor(1.0)
    settings = HARDLY | {"assignor": never, "leave_timeout": 0.5}
    a = make("a", 2, on_warmup=lambda partition: None, **settings)
    b = make("b", 2, on_warmup=lambda partition: None, **settings)
    a.start()
    eventually(shared(a, count=2), "a has both")
    b.start()
    a.stop(handover=True)
    eventually(shared(b, count=2), "b has both, though it never was warm")


def test_work_that_ends_may_take_longer_than_a_lease(make: Make, redis: Redis) -> None:
    over, called = threading.Event(), threading.Event()

    def end(partition: int, deadline: float) -> None:
        called.set()
        over.wait()

    settings = {"ttl": 2.0, "heartbeat_interval": 0.2, "max_handoff_time": 60.0}
    a = make("a", 4, on_revoked=end, **settings)
    a.start()
    eventually(shared(a, count=4), "a has everything")
    tokens = a.held
    stopping = threading.Thread(target=a.stop)
    stopping.start()
    assert called.wait(PATIENCE)
    begin = redis.time()[0]
    eventually(lambda: redis.time()[0] >= begin + 5, "two leases have gone by")
    assert a.held == tokens
    over.set()
    stopping.join()
    assert a.held == {}


def test_every_partition_that_a_stop_does_not_end_in_time_is_lost(make: Make) -> None:
    over = threading.Event()
    lost: list[int] = []
    # The callback for one partition returns too late, and the others are not reached.
    a = make(
        "a",
        4,
        max_handoff_time=1.0,
        on_revoked=lambda partition, deadline: over.wait(),
        on_lost=lost.append,
    )
    a.start()
    eventually(shared(a, count=4), "a has everything")
    stopping = threading.Thread(target=a.stop)
    stopping.start()
    eventually(lambda: a.held == {}, "its time is over")
    over.set()
    stopping.join()
    eventually(lambda: len(lost) == 4, "it learns of each")
    assert lost == [0, 1, 2, 3]


def test_a_second_request_to_hand_over_does_not_put_off_leaving(make: Make) -> None:
    settings = {"assignor": LearnerAssignor(1.0), "leave_timeout": 1.0, "max_handoff_time": 0.1}
    a = make("a", 4, **settings)
    # It never says that it is warm.
    b = make("b", 4, on_warmup=lambda partition: None, **settings)
    a.start()
    eventually(shared(a, count=4), "a has everything")
    b.start()
    stopping = threading.Thread(target=lambda: a.stop(handover=True))
    stopping.start()

    def again() -> bool:
        # More often than it may stay.
        threading.Thread(target=lambda: a.stop(handover=True), daemon=True).start()
        return not a.running

    eventually(again, "a has left")
    stopping.join()


def test_a_stalled_member_sheds_in_its_time_without_a_renewal(make: Make) -> None:
    settings = HARDLY | {"rebalance_delay": 0.0, "max_handoff_time": 0.3, "handoffs": 1}
    a = make("a", 4, progress_timeout=0.5, **settings)
    b = make("b", 4, **settings)
    a.start()
    b.start()
    eventually(shared(b, count=4), "a has shed one after the other")


def test_a_new_count_is_acted_upon_without_a_renewal(make: Make, redis: Redis) -> None:
    a, b = (make(name, **HARDLY) for name in "ab")
    a.start()
    b.start()
    eventually(shared(a, b), "four each")
    # Somebody who is no member: it decides, and goes.
    outsider = PartitionGroup(redis, "orders")
    outsider.resize(12)
    eventually(shared(a, b, count=12), "six each")


def test_every_member_knows_a_new_count_also_one_that_takes_no_step(make: Make) -> None:
    members = [make(name, heartbeat_interval=0.25) for name in "abc"]
    for member in members:
        member.start()
    eventually(shared(*members), "everything is shared")
    for count in (12, 6, 9):
        members[count % 2].resize(count)
        eventually(lambda count=count: {m.partitions for m in members} == {count}, "all know it")  # type: ignore[misc]


def test_a_learner_that_hears_of_no_warm_up_is_warm_at_once(make: Make) -> None:
    a = make("a", 4, assignor=LearnerAssignor(1.0, standbys=1), heartbeat_interval=0.3)
    b = make("b", 4, assignor=LearnerAssignor(1.0, standbys=1), heartbeat_interval=0.3)
    a.start()
    eventually(shared(a, count=4), "a has everything")
    b.start()
    eventually(shared(a, b, count=4), "two each")
    eventually(lambda: a.status().phase is GroupPhase.READY, "and the group comes to rest")


def test_a_loop_that_begins_later_hears_what_to_warm_up_for(make: Make) -> None:
    # One interval is long enough that nothing counts as warm before the loop begins.
    a, b = (make(name, 4, assignor=LearnerAssignor(1.0), ttl=3600.0) for name in "ab")
    a.start()
    eventually(shared(a, count=4), "a has everything")
    b.start()
    eventually(lambda: b.status().waits != (), "b is to warm up")
    warmed: list[int] = []

    def follow() -> None:
        for change in b.changes():
            if change.kind is PartitionChangeKind.WARMUP:
                warmed.append(change.partition)
                assert b.ready(change.partition)

    thread = threading.Thread(target=follow)
    thread.start()
    eventually(shared(a, b, count=4), "two each")
    assert sorted(warmed) == sorted(b.held)
    b.stop()
    thread.join()


def test_a_loop_that_begins_later_hears_what_to_let_go_of_and_what_to_drain(make: Make) -> None:
    entered, go_on = threading.Event(), threading.Event()

    def busy() -> None:
        for change in a.changes():
            if change.kind is PartitionChangeKind.REVOKED:
                entered.set()
                go_on.wait()

    a, b = make("a", 3, heartbeat_interval=0.25), make("b", None)
    a.start()
    eventually(shared(a, count=3), "a has everything")
    thread = threading.Thread(target=busy)
    thread.start()
    a.resize(2)
    eventually(lambda: a.status().draining == (2,), "one is to be drained")
    eventually(lambda: a._machine.holdings.holding.partitions[2].draining, "a knows")
    b.start()
    assert entered.wait(PATIENCE)
    later = a.changes()
    told = [next(later) for _ in range(6)]
    assert [(change.kind.value, change.partition) for change in told] == [
        ("active", 0),
        ("assigned", 0),
        ("assigned", 1),
        ("revoked", 1),
        ("assigned", 2),
        ("drain", 2),
    ]
    assert time.monotonic() < told[3].deadline < time.monotonic() + 31
    later.close()
    go_on.set()
    a.stop()
    thread.join()


@dataclass
class Loop:
    """A loop over a member's changes that works on what was revoked until it may go on."""

    member: PartitionGroup
    entered: threading.Event = field(default_factory=threading.Event)
    go_on: threading.Event = field(default_factory=threading.Event)
    breaks: bool = False

    def __post_init__(self) -> None:
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self) -> None:
        with closing(cast(Any, self.member.changes())) as changes:
            for change in changes:
                if change.kind is PartitionChangeKind.REVOKED:
                    self.entered.set()
                    self.go_on.wait(PATIENCE)
                    if self.breaks:
                        break


def test_a_loop_hears_nothing_of_what_went_before_it_came_to_its_assignment(make: Make) -> None:
    a, b = (make(name, 2, max_handoff_time=0.2) for name in "ab")
    a.start()
    eventually(shared(a, count=2), "a has both")
    changes = a.changes()
    assert next(changes).kind is PartitionChangeKind.ACTIVE
    b.start()
    eventually(lambda: 1 in b.held, "one was taken from a, whose loop did not come round")
    assert next(changes).kind is PartitionChangeKind.ASSIGNED
    a.stop()
    rest = list(changes)
    assert PartitionChangeKind.REVOKED in [change.kind for change in rest]
    assert {change.partition for change in rest} == {0}


def test_an_assignment_counts_while_an_answer_that_prolongs_the_lease_is_taken_up(
    make: Make,
) -> None:
    a = make("a", 1)
    a.start()
    eventually(shared(a, count=1), "a has it")
    changes = a.changes()
    assert next(changes).kind is PartitionChangeKind.ACTIVE
    assigned = next(changes)
    holdings, renewer_has = a._machine.holdings, a._lock
    with renewer_has:
        prolonged = holdings.holding

        class TakenUp:
            def __enter__(self) -> None:
                holdings.holding = prolonged

            def __exit__(self, *_: object) -> None:
                pass

        holdings.holding = replace(prolonged, lease_until=0.0)
        a._lock = TakenUp()
        came_to_nothing = a._came_to_nothing(assigned, {})
        a._lock, holdings.holding = renewer_has, prolonged
    assert not came_to_nothing


def test_callbacks_hear_nothing_of_what_went_before_it_was_the_turn_of_its_assignment(
    make: Make,
) -> None:
    may_return = threading.Event()
    told: list[tuple[str, int]] = []

    def begin(partition: int, token: int) -> None:
        told.append(("assigned", partition))
        may_return.wait()

    a = make(
        "a",
        2,
        max_handoff_time=0.2,
        on_assigned=begin,
        on_lost=lambda partition: told.append(("lost", partition)),
        on_active=lambda active: told.append(("active", active)),
    )
    b = make("b", 2, max_handoff_time=0.2)
    a.start()
    eventually(shared(a, count=2), "a has both")
    b.start()
    eventually(lambda: 1 in b.held, "one was taken from a, whose callback did not return")
    may_return.set()
    a.stop()
    assert told == [("active", True), ("assigned", 0), ("active", False)]


def test_a_member_is_not_told_that_it_is_active_when_it_is_not_any_more(make: Make) -> None:
    may_return = threading.Event()
    told: list[bool] = []

    def on_active(active: bool) -> None:
        told.append(active)
        if not active:
            may_return.wait()

    a = make("a", 1, max_handoff_time=0.2, on_active=on_active)
    a.start()
    eventually(lambda: told == [True], "a has it")
    changes = a.changes()
    assert [next(changes).kind for _ in range(2)] == [
        PartitionChangeKind.ACTIVE,
        PartitionChangeKind.ASSIGNED,
    ]
    token = a.token(0)
    a.release(0)
    eventually(lambda: a.token(0) not in (token, None), "a has it again")
    stopping = threading.Thread(target=a.stop)
    stopping.start()
    eventually(lambda: not a.running, "a has left, whose callback did not return")
    may_return.set()
    stopping.join()
    assert told == [True, False]
    assert [change.kind for change in changes] == [PartitionChangeKind.INACTIVE]


def test_an_asyncio_loop_hears_nothing_of_what_went_before_it_came_to_its_assignment(
    make: Make, redis_server: RedisServer
) -> None:
    async def run() -> None:
        client = AsyncRedis(unix_socket_path=str(redis_server.socket))
        terms = {"rebalance_delay": 0.0, "handoffs": 4, "max_handoff_time": 0.2}
        a: Any = AsyncPartitionGroup(client, "orders", 2, member="a", **terms)
        await a.start()
        await asyncio.to_thread(eventually, shared(a, count=2), "a has both")
        changes = a.changes()
        assert (await anext(changes)).kind is PartitionChangeKind.ACTIVE
        b.start()
        taken = "one was taken from a, whose loop did not come round"
        await asyncio.to_thread(eventually, lambda: 1 in b.held, taken)
        assert (await anext(changes)).kind is PartitionChangeKind.ASSIGNED
        await a.stop()
        assert {change.partition async for change in changes} == {0}
        await client.aclose()

    b = make("b", 2, max_handoff_time=0.2)
    asyncio.run(asyncio.wait_for(run(), PATIENCE))


def test_of_several_loops_the_last_to_ask_lets_go(make: Make) -> None:
    a, b = make("a", 2, heartbeat_interval=0.2), make("b", 2)
    a.start()
    eventually(shared(a, count=2), "a has both")
    quick, slow = Loop(a), Loop(a)
    quick.go_on.set()
    b.start()
    assert slow.entered.wait(PATIENCE)
    assert quick.entered.wait(PATIENCE)
    time.sleep(0.3)
    assert a.owns(1)
    assert b.held == {}
    slow.go_on.set()
    eventually(shared(a, b, count=2), "one each")
    a.stop()
    quick.thread.join()
    slow.thread.join()


def test_a_loop_that_ends_is_not_waited_for_by_those_that_have_asked(make: Make) -> None:
    a, b = make("a", 2, heartbeat_interval=0.2), make("b", 2)
    a.start()
    eventually(shared(a, count=2), "a has both")
    quick, slow = Loop(a), Loop(a, breaks=True)
    quick.go_on.set()
    b.start()
    assert slow.entered.wait(PATIENCE)
    slow.go_on.set()
    eventually(shared(a, b, count=2), "one each")
    a.stop()
    quick.thread.join()
    slow.thread.join()


def test_a_loop_that_ends_is_not_waited_for_if_it_had_not_begun_to_end_its_work(make: Make) -> None:
    a, b = (make(name, 2, max_handoff_time=2.0 * PATIENCE) for name in "ab")
    a.start()
    eventually(shared(a, count=2), "a has both")
    changes = a.changes()
    assert next(changes).kind is PartitionChangeKind.ACTIVE
    b.start()
    eventually(lambda: a._ending, "one is to be let go of")
    changes.close()  # type: ignore[attr-defined]
    eventually(shared(a, b, count=2), "one each")


def test_what_a_loop_was_at_work_on_when_it_ended_is_not_let_go_of(make: Make) -> None:
    a, b = (make(name, 2, max_handoff_time=2.0 * PATIENCE) for name in "ab")
    a.start()
    eventually(shared(a, count=2), "a has both")
    changes = a.changes()
    change = next(changes)
    b.start()
    while change.kind is not PartitionChangeKind.REVOKED:
        change = next(changes)
    changes.close()  # type: ignore[attr-defined]
    assert a.owns(change.partition)
    assert a.release(change.partition)
    eventually(shared(a, b, count=2), "one each")


def test_an_asyncio_member_that_left_its_loop_leaves_at_once(redis_server: RedisServer) -> None:
    async def run() -> None:
        client = AsyncRedis(unix_socket_path=str(redis_server.socket))
        a = AsyncPartitionGroup(client, "orders", 2, max_handoff_time=2.0 * PATIENCE)
        await a.start()
        async for change in a.changes():
            if change.kind is PartitionChangeKind.ASSIGNED:
                break
        await a.stop()
        await client.aclose()

    asyncio.run(asyncio.wait_for(run(), PATIENCE))


def held_up(member: Any, method: str, when: Callable[[], object]) -> Callable[[], None]:
    """Have the renewer wait before it calls the method, once that holds; lets it go on.

    Returns when it waits.
    """
    do, waits, go_on = getattr(member, method), threading.Event(), threading.Event()

    def wait(*arguments: Any) -> None:
        if when() and not waits.is_set():
            waits.set()
            go_on.wait(PATIENCE)
        do(*arguments)

    setattr(member, method, wait)
    member.waits = waits
    return go_on.set


@pytest.mark.parametrize("method", ["_show", "_tell"])
def test_a_loop_that_begins_while_others_are_told_hears_of_everything_once(
    make: Make, method: str
) -> None:
    a: Any = make("a", 2)
    go_on = held_up(a, method, lambda: a.held)
    starting = threading.Thread(target=a.start)
    starting.start()
    assert a.waits.wait(PATIENCE)
    changes = a.changes()
    told = [next(changes) for _ in range(3)]
    go_on()
    starting.join()
    stopping = threading.Thread(target=a.stop)
    stopping.start()
    told += changes
    stopping.join()
    assert [(change.kind.value, change.partition) for change in told] == [
        ("active", 0),
        ("assigned", 0),
        ("assigned", 1),
        ("revoked", 0),
        ("revoked", 1),
        ("inactive", 1),
    ]


@pytest.mark.parametrize("method", ["_show", "_tell"])
def test_an_asyncio_loop_that_begins_while_others_are_told_hears_of_everything_once(
    redis_server: RedisServer, method: str
) -> None:
    async def run() -> None:
        client = AsyncRedis(unix_socket_path=str(redis_server.socket))
        a: Any = AsyncPartitionGroup(client, "orders", 2, rebalance_delay=0)
        go_on = held_up(a, method, lambda: a.held)
        starting = asyncio.create_task(a.start())
        await asyncio.to_thread(a.waits.wait, PATIENCE)
        changes = a.changes()
        told = [await anext(changes) for _ in range(3)]
        go_on()
        await starting
        stopping = asyncio.create_task(a.stop())
        told += [change async for change in changes]
        await stopping
        await client.aclose()
        kinds = [change.kind.value for change in told]
        assert kinds == ["active", *["assigned"] * 2, *["revoked"] * 2, "inactive"]

    asyncio.run(asyncio.wait_for(run(), PATIENCE))


@pytest.mark.parametrize("method", ["_show", "_tell"])
def test_a_loop_that_begins_while_something_is_revoked_is_waited_for(
    make: Make, method: str
) -> None:
    a: Any = make("a", 2, heartbeat_interval=0.2)
    b = make("b", 2)
    a.start()
    eventually(shared(a, count=2), "a has both")

    def revoked() -> bool:
        held = a._machine.holdings.holding.partitions
        return 1 in held and held[1].until < math.inf

    go_on = held_up(a, method, revoked)
    b.start()
    assert a.waits.wait(PATIENCE)
    changes = a.changes()
    told = [next(changes) for _ in range(4)]
    assert told[-1].kind is PartitionChangeKind.REVOKED
    go_on()
    time.sleep(0.3)  # in which it may do wrong
    assert a.owns(1)
    asks = threading.Thread(target=lambda: list(changes))
    asks.start()
    eventually(shared(a, b, count=2), "one each")
    a.stop()
    asks.join()


def test_a_loop_of_an_earlier_stay_is_not_waited_for(make: Make) -> None:
    longer = {"max_handoff_time": 2.0 * PATIENCE}
    a, b = make("a", 2, **longer), make("b", 2, **longer)
    a.start()
    eventually(shared(a, count=2), "a has both")
    old = a.changes()
    assert next(old).kind is PartitionChangeKind.ACTIVE
    stopping = threading.Thread(target=a.stop)
    stopping.start()
    # It is at work on the last that it was told of until the end of the test.
    while next(old).kind is not PartitionChangeKind.INACTIVE:
        pass
    stopping.join()
    a.start()
    eventually(shared(a, count=2), "a has both again")
    new = Loop(a)
    new.go_on.set()
    b.start()
    eventually(shared(a, b, count=2), "one each")
    assert new.entered.is_set()
    assert [*old] == []
    a.stop()
    new.thread.join()


def test_a_loop_that_has_begun_ends_when_the_start_fails(make: Make) -> None:
    make("a", 2).start()
    b: Any = make("b", 3)
    go_on = held_up(b, "_begin", lambda: True)
    failed: list[Exception] = []

    def start() -> None:
        try:
            b.start()
        except GroupMismatch as error:
            failed.append(error)

    starting = threading.Thread(target=start)
    starting.start()
    assert b.waits.wait(PATIENCE)
    told: list[Any] = []
    loop = threading.Thread(target=lambda: told.extend(b.changes()), daemon=True)
    loop.start()
    eventually(lambda: b._iterators, "the loop has begun")
    go_on()
    starting.join()
    loop.join(PATIENCE)
    assert (loop.is_alive(), len(failed), told) == (False, 1, [])


def test_a_loop_that_has_begun_ends_when_the_start_finds_no_thread(make: Make) -> None:
    b: Any = make("b")
    told: list[Any] = []

    def no_thread(*_: Any) -> None:
        told.append(b.changes())
        told.append(threading.Thread(target=lambda: told.extend(told[0]), daemon=True))
        told[1].start()
        eventually(lambda: b._iterators, "the loop has begun")
        raise RuntimeError("can't start new thread")

    thread, b._thread = b._thread, no_thread
    with pytest.raises(RuntimeError, match="can't start new thread"):
        b.start()
    loop = told[1]
    loop.join(PATIENCE)
    assert (loop.is_alive(), told[2:]) == (False, [])
    b._thread = thread
    b.start()
    eventually(shared(b), "b has everything")


def test_a_loop_beside_a_callback_lets_go_of_nothing(make: Make) -> None:
    called, go_on = threading.Event(), threading.Event()
    looked: list[int] = []

    def end(partition: int, deadline: float) -> None:
        called.set()
        go_on.wait()

    def look() -> None:
        for change in a.changes():
            if change.kind is PartitionChangeKind.REVOKED:
                looked.append(change.partition)

    a, b = make("a", 2, on_revoked=end), make("b", 2)
    a.start()
    eventually(shared(a, count=2), "a has both")
    thread = threading.Thread(target=look)
    thread.start()
    b.start()
    assert called.wait(PATIENCE)
    eventually(lambda: looked == [1], "the loop has heard of it")
    time.sleep(0.3)
    assert a.owns(1)
    assert b.held == {}
    go_on.set()
    eventually(shared(a, b, count=2), "one each")
    a.stop()
    thread.join()


def test_a_member_that_hands_over_leaves_once_others_have_everything(make: Make) -> None:
    revoked: list[int] = []
    a = make("a", on_revoked=lambda partition, deadline: revoked.append(partition))
    b = make("b")
    a.start()
    b.start()
    eventually(shared(a, b), "four each")
    had = sorted(a.held)
    a.stop(handover=True)
    assert sorted(revoked[-4:]) == had
    eventually(shared(b), "b has everything")
    assert [member.name for member in b.status().members] == ["b"]


def test_a_stalled_member_sheds_and_gets_back_once_it_goes_on(make: Make) -> None:
    a = make("a", 4, progress_timeout=0.3, max_handoff_time=0.05)
    b = make("b", 4, max_handoff_time=0.05)
    a.start()
    b.start()
    eventually(lambda: len(a.held) == 0 and len(b.held) == 4, "a sheds everything")
    going = threading.Event()

    def work() -> None:
        while not going.is_set():
            a.tick()
            time.sleep(0.02)

    thread = threading.Thread(target=work)
    thread.start()
    eventually(shared(a, b, count=4), "a has its share again")
    going.set()
    thread.join()


def test_the_count_can_grow_and_shrink_and_nothing_is_dropped(make: Make) -> None:
    draining: list[int] = []
    a = make("a", 4, on_drain=draining.append)
    a.start()
    eventually(shared(a, count=4), "a has four")
    a.resize(6)
    eventually(shared(a, count=6), "a has six")
    a.resize(3)
    eventually(lambda: draining == [3, 4, 5], "a is to drain three")
    assert len(a.held) == 6
    assert a.status().draining == (3, 4, 5)
    for partition in draining:
        assert a.drained(partition)
    eventually(shared(a, count=3), "a has three")
    eventually(lambda: a.status().draining == (), "nothing is left to drain")
    eventually(lambda: a.partitions == 3, "a knows the new count")


def test_a_drained_partition_does_not_come_back_to_a_member_that_restarts(make: Make) -> None:
    a = make("a", 3)
    a.start()
    eventually(shared(a, count=3), "a has three")
    a.resize(1)
    eventually(lambda: a.drained(1), "a has emptied one of the two removed ones")
    eventually(lambda: a.status().draining == (2,), "the group knows")
    a.stop()
    told: list[int] = []
    again = make("a", 1, on_assigned=lambda partition, token: told.append(partition))
    again.start()
    eventually(lambda: sorted(told) == sorted(again.held) == [0, 2], "what exists is granted anew")
    again.resize(3)
    b = make("b", 3)
    b.start()
    eventually(shared(again, b, count=3), "a and b share what there is now")


def test_a_redis_from_before_a_drain_gives_nothing_removed_back(make: Make, redis: Redis) -> None:
    a = make("a", 3, ttl=3.0)
    a.start()
    eventually(shared(a, count=3), "a has three")
    a.resize(1)
    eventually(lambda: a.drained(1), "a has emptied one of the two removed ones")
    eventually(lambda: a.status().draining == (2,), "the group knows")
    keys = [key.decode() for key in group_keys("orders").script_keys()]
    older = {key: redis.dump(key) for key in keys if redis.exists(key)}
    eventually(lambda: a.drained(2), "a has emptied the other one, too")
    eventually(lambda: a.status().draining == (), "the group knows")
    with redis.pipeline(transaction=True) as pipe:
        # As after a restart from an older snapshot.
        pipe.delete(*keys)
        for key, value in older.items():
            pipe.restore(key, 0, value)
        pipe.execute()
    eventually(lambda: sorted(a.held) == [0, 2], "what Redis knows of is granted")
    assert min(a.held.values()) > 0
    assert a.status().unowned == ()


def test_a_partition_that_was_let_go_of_is_not_drained_any_more(make: Make) -> None:
    told: list[tuple[str, int, bool]] = []
    called, over = threading.Event(), threading.Event()

    def begin(partition: int, token: int) -> None:
        if partition == 0:
            called.set()
            over.wait()

    def drain(partition: int) -> None:
        told.append(("drain", partition, a.owns(partition)))

    a = make("a", 3, on_assigned=begin, on_drain=drain)
    a.start()
    assert called.wait(PATIENCE)
    # Both wait behind a callback that takes long.
    a.resize(1)
    eventually(lambda: a.status().draining == (1, 2), "two are to be drained")
    eventually(lambda: a._machine.holdings.holding.partitions[1].draining, "a knows")
    assert a.release(1)
    over.set()
    eventually(lambda: ("drain", 2, True) in told, "the one that it has is drained")
    assert all(held for _, _, held in told)


def test_a_plan_says_what_a_join_would_move(make: Make) -> None:
    a = make("a", 4)
    a.start()
    eventually(shared(a, count=4), "a has everything")
    found = a.plan(join=["b"])
    assert [(m.before, m.after, m.reason) for m in found.moves] == [
        ("a", "b", MoveReason.BALANCE)
    ] * 2
    assert a.status().phase is GroupPhase.READY


def test_members_need_not_say_how_many_partitions_there_are(make: Make) -> None:
    a, b = make("a", 8), make("b", None)
    expected = a.partition_of("N12345")
    a.start()
    with pytest.raises(NodeStateError, match="give partitions=, or start it first"):
        b.partition_of("N12345")
    b.start()
    assert b.partitions == 8
    assert b.partition_of("N12345") == expected > 0


# --- bad input --------------------------------------------------------------------------------


def test_a_member_with_another_count_is_refused_by_name(make: Make) -> None:
    a = make("a", 8)
    a.start()
    with pytest.raises(GroupMismatch) as raised:
        make("b", 9).start()
    error = raised.value
    assert (error.setting, error.mine, error.theirs) == ("partitions", 9, 8)
    assert str(error).startswith("group 'orders' has partitions=8, this member partitions=9: ")
    eventually(shared(a), "the group stays as it was")
    assert [member.name for member in a.status().members] == ["a"]


def test_a_member_with_another_assignor_is_refused_by_name(make: Make) -> None:
    make("a").start()
    with pytest.raises(GroupMismatch, match="has assignor='balanced', this member assignor='con"):
        make("b", assignor="contiguous").start()


def test_a_member_may_bring_other_terms_when_it_says_so(make: Make) -> None:
    a = make("a", 8)
    a.start()
    eventually(shared(a), "a has everything")
    tokens = a.held
    b = make("b", 10, migrate=True)
    b.start()
    eventually(shared(a, b, count=10), "five each")
    assert a.held.items() <= tokens.items()


@pytest.mark.parametrize("wait", [True, False])
def test_a_name_in_use_is_refused_and_says_until_when(make: Make, wait: bool) -> None:
    a = make("a", heartbeat_interval=0.5)
    a.start()
    with pytest.raises(MemberExists) as raised:
        make("a").start(wait=wait)
    assert (raised.value.group, raised.value.member) == ("orders", "a")
    assert 0 < raised.value.expires_in <= 10
    eventually(shared(a), "the first has everything")


def test_an_assignor_with_a_wrong_answer_is_refused_and_the_group_stays_as_it_was(
    make: Make,
) -> None:
    def wrong(situation: GroupSituation) -> dict[str, list[int]]:
        return {"nobody": list(range(situation.partitions))}

    with pytest.raises(AssignorError, match="assignor 'wrong' gave partition 0 to 'nobody'"):
        make("a", assignor=wrong).start()


def test_standbys_in_another_collection_than_a_list_leave_a_group_that_can_be_read(
    make: Make,
) -> None:
    class Lagging:
        name = "lagging"

        def __init__(self) -> None:
            self.standbys: Any = {}

        def assign(self, situation: GroupSituation) -> TargetAssignment:
            owners = ("a",) * situation.partitions
            return TargetAssignment(owners, owners, standbys=self.standbys)

    rule = Lagging()
    a = make("a", assignor=rule)
    a.start()
    eventually(shared(a), "a has everything")
    rule.standbys = {0: {"a": 3.0}}
    with pytest.raises(AssignorError, match="names the standbys of partition 0 in a dict"):
        make("b", assignor=rule).start()
    rule.standbys = {0: ["a"]}
    make("c", assignor=rule).start()
    assert {member.name for member in a.status().members} >= {"a", "c"}
    assert shared(a)()


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"partitions": 0}, "partitions=0: must be from 1 to 1000000"),
        ({"weight": 0}, "weight=0: of member 'a' must be a number from 0.001 to 1000"),
        ({"weight": 1e308}, "weight=1e+308: of member 'a' must be a number from 0.001 to 1000"),
        ({"assignor": "best"}, "assignor='best': choose one of balanced, contiguous, learner"),
        ({"heartbeat_interval": 4, "ttl": 10}, "heartbeat_interval=4: must be above 0 and at"),
        ({"progress_timeout": 0}, "progress_timeout=0: must be a finite number of seconds above"),
        ({"access": "shared"}, "access='shared': must be 'non-exclusive' or 'exclusive'"),
    ],
)
def test_arguments_that_cannot_work_are_refused(make: Make, settings: Any, text: str) -> None:
    with pytest.raises(ConfigError) as raised:
        make("a", **settings)
    assert str(raised.value).startswith(text)


def test_without_a_count_the_group_must_exist(make: Make) -> None:
    with pytest.raises(ConfigError, match="the group 'orders' does not exist yet"):
        make("a", None).start()


def test_a_group_starts_once(make: Make) -> None:
    a = make("a")
    a.start()
    with pytest.raises(NodeStateError, match="runs already"):
        a.start()
    a.stop()
    a.stop()
    a.start()
    eventually(shared(a), "it can start again")


def test_of_two_that_start_one_group_at_once_one_is_refused(make: Make) -> None:
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(10):
            a, outcomes, barrier = make("a"), [], threading.Barrier(2)

            def start(
                a: PartitionGroup = a,
                outcomes: list[str] = outcomes,
                barrier: threading.Barrier = barrier,
            ) -> None:
                barrier.wait()
                try:
                    a.start()
                    outcomes.append("started")
                except NodeStateError:
                    outcomes.append("refused")

            threads = [threading.Thread(target=start) for _ in range(2)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert sorted(outcomes) == ["refused", "started"]
            a.stop()
    finally:
        sys.setswitchinterval(interval)


def test_without_redis_it_does_not_start_and_leaves_nothing_behind() -> None:
    client = Redis(unix_socket_path="/nonexistent/socket")
    with pytest.raises(RedisUnavailable):
        PartitionGroup(client, "orders", 4).start()


@pytest.mark.parametrize("thread", ["renewer", "decider", "listener"])
def test_a_thread_that_cannot_make_its_connections_at_first_makes_them_later(
    make: Make, thread: str
) -> None:
    a: Any = make("a")
    new_store, faults = a._new_store, [OSError(24, "Too many open files")]

    def at_first_none(timeout: float) -> Store:
        if faults and threading.current_thread().name.endswith(thread):
            raise faults.pop()
        return cast(Store, new_store(timeout))

    a._new_store = at_first_none
    if thread != "listener":
        with pytest.raises(StoreError, match="Too many open files"):
            a.start()
    a.start()
    eventually(shared(a), "a has everything")
    eventually(lambda: a._machine.listening.state is ListeningState.STANDING, "a listens")
    eventually(lambda: a.error is None, "nothing is wrong any more")
    assert not faults


def test_a_member_starts_again_after_a_fault_of_this_package_in_its_start(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    a: Any = make("a")
    fault = ZeroDivisionError("a fault of this package")

    def fails(now: float) -> None:
        raise fault

    monkeypatch.setattr(a._machine, "next", fails)
    with pytest.raises(ZeroDivisionError):
        a.start()
    a.start()
    eventually(shared(a), "a has everything")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_member_starts_again_after_a_fault_of_this_package_has_ended_its_thread(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    a: Any = make("a", ttl=1.0)
    a.start()
    eventually(shared(a), "a has everything")

    def fails(now: float) -> None:
        raise ZeroDivisionError("a fault of this package")

    monkeypatch.setattr(a._machine, "next", fails)
    eventually(lambda: not a.running, "its thread has ended")
    a.start()
    eventually(shared(a), "a has everything again")


@pytest.mark.parametrize("stage", [Stage.WAITING, Stage.JOINED])
def test_a_start_whose_member_is_stopped_meanwhile_raises(
    make: Make, redis: Redis, stage: Stage
) -> None:
    go_on = threading.Event()

    def slow(situation: GroupSituation) -> dict[str, list[int]]:
        go_on.wait()
        return {"a": list(range(situation.partitions))}

    a = make("a", ttl=60.0, assignor=slow)
    if stage is Stage.WAITING:
        crashed = MemberFacts("a", "c" * 16, 0, 0.0)
        RedisStore(redis, 5.0).run(join(group_keys("orders"), crashed, a._mine))
    raised: list[BaseException] = []

    def start() -> None:
        with pytest.raises(NodeStateError, match="member 'a' was stopped while it started") as e:
            a.start()
        raised.append(e.value)

    starting = threading.Thread(target=start)
    starting.start()
    eventually(lambda: a._machine.stage is stage, "it starts")
    stopping = threading.Thread(target=a.stop)
    stopping.start()
    eventually(lambda: a._machine.stage in ENDED, "it has left")
    go_on.set()
    starting.join(PATIENCE)
    stopping.join(PATIENCE)
    assert raised
    assert not a.running


def test_stop_in_the_middle_of_start_waits_for_no_callbacks(
    make: Make, redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a signal handler: what is to run them comes after it."""
    a = make("a", ttl=60.0)
    crashed = MemberFacts("a", "c" * 16, 0, 0.0)
    RedisStore(redis, 5.0).run(join(group_keys("orders"), crashed, a._mine))

    def wait(entered: Latch) -> None:
        monkeypatch.undo()
        monkeypatch.setattr(BaseMember, "_patience", property(lambda _: pytest.fail("it waits")))
        eventually(lambda: a._machine.stage is Stage.WAITING, "it waits for its name")
        a.stop()
        assert entered.is_set()

    monkeypatch.setattr(sync_member, "_wait", wait)
    with pytest.raises(NodeStateError, match="stopped while it started"):
        a.start()
    assert not a.running


def test_an_assignor_that_raises_is_refused_with_what_it_raised(make: Make) -> None:
    def broken(situation: GroupSituation) -> dict[str, list[int]]:
        return {"a": [situation.members[5].joined]}

    with pytest.raises(AssignorError, match="assignor 'broken' raised IndexError: tuple index"):
        make("a", assignor=broken).start()


def test_an_assignor_that_raises_what_would_end_a_thread_is_refused_as_well(make: Make) -> None:
    def broken(situation: GroupSituation) -> dict[str, list[int]]:
        sys.exit("no partitions today")

    with pytest.raises(AssignorError, match="assignor 'broken' raised SystemExit: no partitions"):
        make("a", assignor=broken).start()


def test_an_assignor_that_raises_what_ends_a_program_is_refused_as_well(make: Make) -> None:
    def broken(situation: GroupSituation) -> dict[str, list[int]]:
        raise KeyboardInterrupt

    with pytest.raises(AssignorError, match="assignor 'broken' raised KeyboardInterrupt"):
        make("a", assignor=broken).start()


def test_an_assignor_that_goes_wrong_later_stops_nobodys_work(make: Make) -> None:
    def rule(situation: GroupSituation) -> dict[str, list[int]]:
        return {"a": list(range(situation.partitions if len(situation.members) == 1 else 1))}

    a = make("a", assignor=rule)
    a.start()
    eventually(shared(a), "a has everything")
    before = a.held
    with pytest.raises(AssignorError, match="left partition 1 without a member"):
        make("b", assignor=rule).start()
    assert a.held == before
    eventually(lambda: a.error is None, "b is gone, and the rule is right again")


def test_an_assignor_that_never_returns_costs_nobody_the_lease(make: Make, redis: Redis) -> None:
    entered, may_return = threading.Event(), threading.Event()

    def slow(situation: GroupSituation) -> dict[str, list[int]]:
        if len(situation.members) > 1:
            entered.set()
            may_return.wait()
        return {"a": list(range(situation.partitions))}

    settings = {"ttl": 3.0, "heartbeat_interval": 0.1}
    a, b = make("a", assignor=slow, **settings), make("b", assignor=slow, **settings)
    a.start()
    eventually(shared(a), "a has everything")
    before = a.held
    joining = threading.Thread(target=b.start)
    joining.start()
    assert entered.wait(60)
    begin = redis.time()[0]
    eventually(lambda: redis.time()[0] >= begin + 7, "two leases have gone by")
    assert a.held == before
    may_return.set()
    joining.join()


def test_an_assignor_that_never_returns_does_not_hold_up_who_starts(make: Make) -> None:
    may_return = threading.Event()

    def slow(situation: GroupSituation) -> dict[str, list[int]]:
        may_return.wait()
        return {"a": list(range(situation.partitions))}

    a = make("a", assignor=slow, ttl=1.5, heartbeat_interval=0.1)
    a.start()
    session = a._group._session
    watch = make("b", assignor=slow)
    begin = time.monotonic()
    eventually(lambda: time.monotonic() > begin + 3, "two leases have gone by")
    assert [member.name for member in watch.status().members] == ["a"]
    # Its entry was renewed all the time.
    assert a._group._session == session
    may_return.set()
    eventually(shared(a), "the first decision gives it everything")


def test_members_follow_when_the_group_is_migrated_to_another_rule(make: Make) -> None:
    a = make("a", 8)
    a.start()
    eventually(shared(a), "a has everything")
    b = make("b", 8, assignor="contiguous", migrate=True)
    b.start()
    eventually(lambda: sorted(a.held) == [0, 1, 2, 3], "by the new rule")
    eventually(lambda: sorted(b.held) == [4, 5, 6, 7], "by the new rule")
    eventually(lambda: a.assignor == b.assignor == "contiguous", "both know the new rule")
    eventually(lambda: a.status().phase is GroupPhase.READY, "it comes to rest")


def test_a_plan_goes_by_the_rule_that_the_group_was_migrated_to(make: Make) -> None:
    a, b = make("a", 8), make("b", 8)
    a.start()
    b.start()
    eventually(shared(a, b), "a and b have four each")
    c = make("c", 8, assignor="contiguous", migrate=True)
    c.start()
    eventually(lambda: len(c.held) == 2, "they share by the new rule")
    eventually(lambda: a.status().phase is GroupPhase.READY, "it comes to rest")
    # One of them may have decided nothing since.
    assert a.plan(join=["d"]) == b.plan(join=["d"]) == c.plan(join=["d"])


def test_a_plan_needs_the_rule_that_the_group_was_migrated_to(make: Make) -> None:
    def mine(situation: GroupSituation) -> dict[str, list[int]]:
        return {situation.candidates()[-1].name: list(range(situation.partitions))}

    a = make("a", 8)
    a.start()
    eventually(shared(a), "a has everything")
    b = make("b", 8, assignor=mine, migrate=True)
    b.start()
    with pytest.raises(GroupMismatch, match="has assignor='mine'"):
        a.plan(join=["c"])


def test_a_member_without_the_groups_new_rule_decides_nothing(make: Make, redis: Redis) -> None:
    def mine(situation: GroupSituation) -> dict[str, list[int]]:
        return {situation.candidates()[-1].name: list(range(situation.partitions))}

    a = make("a", 8, heartbeat_interval=0.25)
    a.start()
    eventually(shared(a), "a has everything")
    b = make("b", 8, assignor=mine, migrate=True, heartbeat_interval=0.25)
    b.start()
    eventually(lambda: len(b.held) == 8, "b has everything by its rule")
    b.stop()
    eventually(lambda: isinstance(a.error, GroupMismatch), "a says that it does not know the rule")
    assert str(a.error).startswith("group 'orders' has assignor='mine'")
    entries = [read_decision(entry) for entry in redis.xrange(group_keys("orders").control, "-")]
    migrated = next(n for n, e in enumerate(entries) if e.events[0].kind is EventKind.MIGRATED)
    assert {entry.by for entry in entries[migrated:]} == {"b"}


def test_a_member_that_was_away_takes_up_what_the_group_has_become(
    make: Make, redis: Redis
) -> None:
    a = make("a", 8)
    a.start()
    eventually(shared(a), "a has everything")
    keys = group_keys("orders")
    with redis.pipeline(transaction=True) as pipe:
        # As after a pause, in which its lease ended and somebody changed the count.
        state = redis.hget(keys.state.decode(), "terms")
        terms = json.loads(state) | {"partitions": 6}  # type: ignore[arg-type]
        pipe.delete(*(key.decode() for key in keys.script_keys()))
        pipe.hset(keys.state.decode(), "terms", json.dumps(terms, sort_keys=True))
        pipe.execute()
    eventually(shared(a, count=6), "a has the six there are")
    assert a.partitions == 6
    assert a.error is None


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"ttl": "10"}, "ttl='10': must be a finite number of seconds above 0"),
        ({"ttl": float("nan")}, "ttl=nan: must be a finite number of seconds above 0"),
        ({"ttl": 10**400}, f"ttl=1{'0' * 199}…: must be a finite number of seconds above 0"),
        ({"rebalance_delay": None}, "rebalance_delay=None: must be a finite number of seconds"),
        ({"handoffs": 1.5}, "handoffs=1.5: must be a whole number"),
        ({"handoffs": 0}, "handoffs=0: without handoffs nothing could move"),
        ({"handoffs": 10**5000}, "handoffs=<int>: must be a whole number of 64 bits"),
        ({"partitions": "8"}, "partitions='8': must be a whole number"),
        ({"partitions": True}, "partitions=True: must be a whole number"),
        ({"weight": "2"}, "weight='2': of member 'a' must be a number from 0.001 to 1000"),
        ({"member": ""}, "member='': a member's name is a non-empty str"),
        ({"heartbeat_interval": "1"}, "heartbeat_interval='1': must be above 0"),
        (
            {"heartbeat_interval": 1e-9},
            "heartbeat_interval=1e-09: must be at least 0.01 s: shorter",
        ),
        ({"progress_timeout": "1"}, "progress_timeout='1': must be a finite number of seconds"),
        ({"ttl": 0.001}, "ttl=0.001: must be at least 0.1 s: a shorter lease ends while its"),
        ({"migrate": "no"}, "migrate='no': say True or False"),
        ({"migrate": 0}, "migrate=0: say True or False"),
        ({"on_revoked": 3}, "on_revoked=3: give something that can be called"),
        ({"assignor": LearnerAssignor}, "assignor=<class"),
        ({"assignor": None}, "assignor=None: choose one of"),
    ],
)
def test_values_of_a_wrong_kind_are_refused(make: Make, settings: Any, text: str) -> None:
    member = settings.pop("member", "a")
    with pytest.raises(ConfigError) as raised:
        make(member, **settings)
    assert str(raised.value).startswith(text)


def test_numbers_of_numpy_are_numbers(make: Make) -> None:
    a = make(
        "a",
        np.int64(8),
        weight=np.int64(2),
        ttl=np.float64(30),
        heartbeat_interval=np.float32(0.5),
        rebalance_delay=np.float64(0),
        max_handoff_time=np.int64(30),
        handoffs=np.int64(8),
        leave_timeout=np.float64(30),
        progress_timeout=np.float64(60),
    )
    a.start()
    eventually(shared(a), "a has everything")
    a.lag(0, np.float64(1.5))
    a.weigh(np.int64(3))
    a.drain(np.float64(0.1), force=True)
    a.resize(np.int64(10))
    eventually(shared(a, count=10), "a has what is new")
    assert a.error is None


@pytest.mark.parametrize("partition", ["0", None, 1.0, True])
def test_a_partition_that_is_no_number_of_one_is_refused(make: Make, partition: Any) -> None:
    a = make("a", assignor="load")
    reports: list[Callable[[Any], Any]] = [
        lambda number: a.load(number, 1.0),
        lambda number: a.lag(number, 1.0),
        a.ready,
        a.release,
        a.drained,
        a.owns,
        a.token,
    ]
    for report in reports:
        with pytest.raises(ConfigError, match=r"partition=.*: give the number of a partition"):
            report(partition)


def test_a_plan_wants_lists_of_names(make: Make) -> None:
    a = make("a", 4)
    a.start()
    with pytest.raises(ConfigError, match="join='bcd': give a list of names"):
        a.plan(join="bcd")
    for wrong in (None, 5, b"b", [5], [None], [b"b"]):
        value = re.escape(repr(wrong[0] if isinstance(wrong, list) else wrong))
        with pytest.raises(ConfigError, match=f"join={value}: give a list of names, or of members"):
            a.plan(join=wrong)  # type: ignore[arg-type]
        with pytest.raises(ConfigError, match=f"leave={value}: give a list of names"):
            a.plan(leave=wrong)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="leave='a': give a list of names"):
        a.plan(leave="a")
    with pytest.raises(ConfigError, match="join='a': is a member already"):
        a.plan(join=["a"])
    with pytest.raises(UnknownMemberError, match="'z' is not a member"):
        a.plan(leave=["z"])
    with pytest.raises(ConfigError, match="partitions=0"):
        a.plan(partitions=0)
    assert a.plan(join=["b", "c"], leave=["a"]).after == {"a": 0, "b": 2, "c": 2}


def test_a_warm_up_is_behind_by_a_number(make: Make) -> None:
    a = make("a", 4)
    for wrong in (-1, float("nan"), "far"):
        with pytest.raises(ConfigError, match="behind="):
            a.lag(0, wrong)  # type: ignore[arg-type]


def test_each_kind_of_client_has_its_class() -> None:
    with pytest.raises(ConfigError, match="is an asyncio client: use AsyncPartitionGroup"):
        PartitionGroup(AsyncRedis(), "orders", 4)
    with pytest.raises(ConfigError, match="is not an asyncio client: use PartitionGroup"):
        AsyncPartitionGroup(Redis(), "orders", 4)
    with pytest.raises(ConfigError, match="not a client of redis-py or valkey-py"):
        PartitionGroup("localhost", "orders", 4)


@pytest.mark.parametrize(
    "setting", ["on_assigned", "on_revoked", "on_lost", "on_warmup", "on_drain", "on_active"]
)
def test_a_coroutine_function_is_no_callback_of_a_sync_group(setting: str) -> None:
    async def callback(*_: object) -> None: ...

    with pytest.raises(ConfigError, match=f"{setting}=.*: is a coroutine function: use AsyncPart"):
        PartitionGroup(MemoryStore(), "orders", 4, **{setting: callback})  # type: ignore[arg-type]
    AsyncPartitionGroup(MemoryStore(), "orders", 4, **{setting: callback})  # type: ignore[arg-type]


def test_an_asyncio_callback_that_is_cancelled_is_over_like_any_other(
    redis_server: RedisServer,
) -> None:
    told: list[int] = []

    async def begin(partition: int, token: int) -> None:
        told.append(partition)
        work = asyncio.create_task(asyncio.sleep(60))
        work.cancel()
        await work

    async def run() -> None:
        client = AsyncRedis(unix_socket_path=str(redis_server.socket))
        async with AsyncPartitionGroup(client, "orders", 3, on_assigned=begin, rebalance_delay=0):
            while len(told) < 3:
                await asyncio.sleep(0.01)
        await client.aclose()

    asyncio.run(asyncio.wait_for(run(), PATIENCE))
    assert told == [0, 1, 2]


async def stop_in_a_task(group: AsyncPartitionGroup) -> None:
    await asyncio.create_task(group.stop())


async def stop_within_a_time(group: AsyncPartitionGroup) -> None:
    # Before Python 3.12 that makes a task.
    await asyncio.wait_for(group.stop(), PATIENCE / 2)


@pytest.mark.parametrize("stop", [stop_in_a_task, stop_within_a_time])
def test_an_asyncio_callback_may_stop_its_member_in_a_task_that_it_waits_for(
    redis_server: RedisServer, stop: Callable[[AsyncPartitionGroup], Any]
) -> None:
    async def run() -> None:
        async def begin(partition: int, token: int) -> None:
            await stop(group)
            stopped.set()

        stopped = asyncio.Event()
        client = AsyncRedis(unix_socket_path=str(redis_server.socket))
        group = AsyncPartitionGroup(
            client, "orders", 1, on_assigned=begin, max_handoff_time=4.0 * PATIENCE
        )
        await group.start()
        await asyncio.wait_for(stopped.wait(), PATIENCE / 2)
        await group.stop()
        await client.aclose()

    asyncio.run(asyncio.wait_for(run(), PATIENCE))


def test_a_task_that_an_asyncio_callback_left_behind_waits_until_the_member_has_left(
    redis_server: RedisServer,
) -> None:
    async def run() -> None:
        async def stop() -> bool:
            await returned.wait()
            await group.stop()
            return group.running

        async def begin(partition: int, token: int) -> None:
            left.append(asyncio.create_task(stop()))

        async def end(partition: int, deadline: float) -> None:
            await asyncio.sleep(0.1)

        returned = asyncio.Event()
        left: list[asyncio.Task[bool]] = []
        client = AsyncRedis(unix_socket_path=str(redis_server.socket))
        group = AsyncPartitionGroup(client, "orders", 1, on_assigned=begin, on_revoked=end)
        await group.start()
        while not left:
            await asyncio.sleep(0.01)
        returned.set()
        assert not await left[0]
        await client.aclose()

    asyncio.run(asyncio.wait_for(run(), PATIENCE))


def test_an_asyncio_callback_may_be_cancelled_with_everything_else(
    redis_server: RedisServer,
) -> None:
    async def begin(partition: int, token: int) -> None:
        begun.set()
        await asyncio.Event().wait()

    async def run() -> None:
        client = AsyncRedis(unix_socket_path=str(redis_server.socket))
        group = AsyncPartitionGroup(client, "orders", 3, on_assigned=begin, rebalance_delay=0)
        await group.start()
        while not begun.is_set():
            await asyncio.sleep(0.01)
        groups.append(group)

    groups: list[AsyncPartitionGroup] = []
    begun = threading.Event()
    asyncio.run(run())
    eventually(lambda: groups[0].held == {}, "the event loop is gone, and so is the member")
