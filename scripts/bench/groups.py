#!/usr/bin/env python
"""How long a live group on a real Redis takes to settle, how long partitions pause, and what it
costs at rest.

    python scripts/bench/groups.py              all
    python scripts/bench/groups.py settle
    python scripts/bench/groups.py rest
    python scripts/bench/groups.py delay
    python scripts/bench/groups.py moves
    python scripts/bench/groups.py crowd [--members 500] [--partitions 10000]

A crowd says how far it is, and is given up when one change takes more than five minutes.

Members are threads of this process on one embedded Redis; in a crowd, tasks of the event loops of a
few processes.
A partition's pause is the time in which none of them holds it, looked at all the time by a thread
of its own; a partition that is not moved must never be seen without its owner. On a busy machine
the CPU seconds of the members say more than the time they took. At rest, Redis itself tells of
every call (MONITOR).
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import multiprocessing
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

import program
from redis import Redis
from redis.asyncio import Redis as AsyncRedis
from result import Result

from hashring import AsyncPartitionGroup, PartitionGroup
from hashring.core.groups.state import GroupPhase
from hashring.errors import RedisUnavailable
from hashring.store.embedded_server import RedisServer

PARTITIONS = 256
MEMBERS, HEARTBEAT, REST = 16, 1.0, 30.0
MOVES = 100
MANY = argparse.Namespace(members=500, partitions=10_000)


class Watch:
    """Looks at who holds what, all the time."""

    def __init__(self, groups: list[PartitionGroup]) -> None:
        self._groups = groups
        self._end = threading.Event()
        self.paused: dict[int, float] = {}
        self.looks = 0
        self._thread = threading.Thread(target=self._look)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def _look(self) -> None:
        seen = {p: time.perf_counter() for p in range(PARTITIONS)}
        while not self._end.wait(0.002):
            held = {p for group in list(self._groups) for p in group.held}
            now = time.perf_counter()
            self.looks += 1
            for partition in range(PARTITIONS):
                if partition in held:
                    # A pause is longer than the time between two looks that saw an owner.
                    seen[partition] = now
                else:
                    pause = now - seen[partition]
                    self.paused[partition] = max(self.paused.get(partition, 0.0), pause)


def settled(groups: list[PartitionGroup]) -> bool:
    sizes = [len(group.held) for group in groups]
    return sum(sizes) == PARTITIONS and max(sizes) - min(sizes) <= 1


def settle(result: Result) -> None:
    slowest, beyond, paused = 0.0, 0, 0
    for handoffs in (1, 16):
        with RedisServer() as server, Redis(unix_socket_path=str(server.socket)) as client:
            groups: list[PartitionGroup] = []
            for size in (1, 2, 16):
                before = {p: token for group in groups for p, token in group.held.items()}
                least = PARTITIONS - len(groups) * (PARTITIONS // size) if groups else 0
                watched = Watch(groups)
                begin, burnt = time.perf_counter(), time.process_time()
                with watched:
                    for number in range(len(groups), size):
                        group = PartitionGroup(
                            client,
                            "bench",
                            PARTITIONS,
                            member=f"m{number:02}",
                            rebalance_delay=0,
                            handoffs=handoffs,
                        )
                        group.start()
                        groups.append(group)
                    while not settled(groups):
                        time.sleep(0.002)
                    took = time.perf_counter() - begin
                    burnt = time.process_time() - burnt
                after = {p: token for group in groups for p, token in group.held.items()}
                moved = {p for p in after if before and before[p] != after[p]}
                pauses = [watched.paused.get(p, 0.0) for p in moved]
                others = sum(p in watched.paused for p in before.keys() - moved)
                result.add(
                    f"{handoffs} handoffs at once, to {size} members: settled; CPU; moves; the "
                    "longest pause of a partition that moved",
                    f"{took:.2f} s; {burnt:.2f} s; {len(moved)}; "
                    f"{1000 * max(pauses, default=0.0):.1f} ms",
                    f"{least} at least",
                )
                slowest = max(slowest, took)
                beyond += len(moved) - least
                paused += others
            for group in groups:
                group.stop()
    slowest = round(slowest, 2)
    result.add("settled, the longest", "", value=slowest, unit="s", target="group-settled")
    for what, count, target in (
        ("partitions that did not move and paused", paused, "group-pause"),
        ("moves beyond the least possible", max(0, beyond), "group-moves"),
    ):
        result.add(what, str(count), value=float(count), unit="", target=target)


def delay(result: Result) -> None:
    """How long after a stop and after a join the rebalance delay of 1 s is acted upon."""
    for ttl in (6.0, 20.0, 60.0):
        with RedisServer() as server, Redis(unix_socket_path=str(server.socket)) as client:
            groups = [
                PartitionGroup(
                    client,
                    "bench",
                    PARTITIONS,
                    member=f"m{number:02}",
                    rebalance_delay=1,
                    handoffs=PARTITIONS,
                    ttl=ttl,
                )
                for number in range(4)
            ]
            for group in groups[:3]:
                group.start()
            while not settled(groups[:3]):
                time.sleep(0.002)
            groups[0].stop()
            begin = time.perf_counter()
            while not settled(groups[1:3]):
                time.sleep(0.002)
            stopped = time.perf_counter() - begin
            begin = time.perf_counter()
            groups[3].start()
            while not settled(groups[1:]):
                time.sleep(0.002)
            joined = time.perf_counter() - begin
            result.add(
                f"ttl {ttl:g} s, renewals every {ttl / 4:g} s: after a stop; after a join",
                f"{stopped:.2f} s; {joined:.2f} s",
            )
            for group in groups:
                group.stop()


def moves(result: Result) -> None:
    """What one handoff costs, one at a time, as a second member takes over."""
    for partitions in (256, 2000, 10_000):
        with RedisServer() as server, Redis(unix_socket_path=str(server.socket)) as client:
            first, second = (
                PartitionGroup(client, "bench", partitions, member=name, rebalance_delay=0)
                for name in "ab"
            )
            first.start()
            while len(first.held) < partitions:
                time.sleep(0.01)
            burnt, cpu = time.process_time(), _cpu(client)
            second.start()
            # Looking costs, too, the more the more there is to see.
            while len(second.held) < MOVES:
                time.sleep(0.5)
            burnt, cpu = time.process_time() - burnt, _cpu(client) - cpu
            moved = len(second.held)
            members, redis = 1000 * burnt / moved, 1000 * cpu / moved
            result.values |= {f"members-{partitions}": members, f"redis-{partitions}": redis}
            result.add(
                f"{partitions:,} partitions, {moved} moves: CPU of the members for a move, and of "
                "Redis",
                f"{members:.2f} ms, {redis:.2f} ms",
            )
            # Not by handing over: the rest would move, one by one.
            first.stop()
            second.stop()


CROWD: dict[str, Any] = {
    "rebalance_delay": 1,
    "handoffs": 64,
    "ttl": 40,
    "heartbeat_interval": 10,
}
PROCESSES, AT_ONCE = 5, 2
"""Of members that start, each process starts so many at the same moment."""
PATIENCE, SAID_EVERY = 300.0, 10.0
"""Seconds after which a crowd that has not come to rest is given up, and between two lines that say
how far it is."""


async def _start(member: AsyncPartitionGroup) -> None:
    while True:
        try:
            return await member.start()
        except RedisUnavailable:
            # Redis and hundreds of members share a few cores: it may be late, as anywhere.
            await asyncio.sleep(1)


async def _live(pipe: Connection, socket: str, partitions: int) -> None:
    """Members in the event loop of a process of their own, as the crowd orders."""
    redis = AsyncRedis(unix_socket_path=socket, max_connections=10_000)
    members: dict[str, AsyncPartitionGroup] = {}

    async def obey(order: str, names: list[str]) -> Any:
        if order == "start":
            new = {
                name: AsyncPartitionGroup(redis, "bench", partitions, member=name, **CROWD)
                for name in names
            }
            members.update(new)
            waiting = [*new.values()]
            for at in range(0, len(waiting), AT_ONCE):
                await asyncio.gather(*map(_start, waiting[at : at + AT_ONCE]))
        elif order == "stop":
            await asyncio.gather(*(members.pop(name).stop() for name in names))
        elif order == "held":
            return {p: token for member in members.values() for p, token in member.held.items()}
        return time.process_time()

    def ordered() -> Any:
        try:
            return pipe.recv()
        except EOFError:
            # The benchmark was killed. Members that leave one by one would only take long.
            os._exit(1)

    while (order := await asyncio.to_thread(ordered)) is not None:
        pipe.send(await obey(*order))
    await redis.aclose()


def _process(pipe: Connection, socket: str, partitions: int) -> None:
    # Each member may keep the whole group in memory; one has a process of its own, as a rule. The
    # collector would look at all of them again and again.
    gc.set_threshold(100_000, 100, 100)
    asyncio.run(_live(pipe, socket, partitions))


class Crowd:
    """Many members in a few processes, and what their changes cost."""

    def __init__(self, server: RedisServer, client: Redis, partitions: int, result: Result) -> None:
        self.client, self.result = client, result
        self.partitions = partitions
        # It looks at the group, and never joins.
        self.looks = PartitionGroup(client, "bench", partitions, **CROWD)
        self.pipes: list[Connection] = []
        self.processes: list[BaseProcess] = []
        self.homes: dict[str, int] = {}
        self.doing, self.began, self.said = "the first member", time.perf_counter(), 0.0
        started = multiprocessing.get_context("spawn")
        # The last is for the member that crashes.
        for _ in range(PROCESSES + 1):
            ours, theirs = started.Pipe()
            process = started.Process(
                target=_process, args=(theirs, str(server.socket), partitions), daemon=True
            )
            process.start()
            self.pipes.append(ours)
            self.processes.append(process)

    def begin(self) -> None:
        """Wait until the processes are there, one after the other, and start the first member."""
        for number in range(len(self.pipes)):
            self.ask({number: ("start", [])})
        self.add(1)
        self.rest(1)

    def ask(self, orders: dict[int, tuple[str, list[str]]]) -> list[Any]:
        """Have processes do something, at the same time; what they answer."""
        for number, order in orders.items():
            self.pipes[number].send(order)
        answers = []
        for number in orders:
            while not self.pipes[number].poll(1.0):
                self.say_how_far()
            answers.append(self.pipes[number].recv())
        return answers

    def say_how_far(self) -> None:
        """Say now and then how far the crowd is, and give it up when that takes too long.

        Raises:
            TimeoutError: it took too long.
        """
        took = time.perf_counter() - self.began
        if took < self.said + SAID_EVERY:
            return
        self.said = took
        count, phase = self.at_a_glance()
        told = f"{self.doing}: {count} members, {phase}, {self.generation()} decisions so far"
        print(f"  … {took:.0f} s, {told}", file=sys.stderr, flush=True)
        if took > PATIENCE:
            raise TimeoutError(f"the crowd did not come to rest in {PATIENCE:g} s. {told}")

    def at_a_glance(self) -> tuple[int, str]:
        """How many members there are, and the group's phase; for next to nothing."""
        phase = self.client.hget("{bench}:group:state", "phase") or b"no phase"
        return self.client.zcard("{bench}:group:leases"), phase.decode()

    def every(self, order: str) -> list[Any]:
        """Ask every process that lives."""
        alive = [n for n, process in enumerate(self.processes) if process.is_alive()]
        return self.ask({number: (order, []) for number in alive})

    def add(self, count: int) -> None:
        new = {f"m{len(self.homes) + number:03}" for number in range(count)}
        homes = {name: int(name[1:]) % PROCESSES for name in sorted(new)}
        self.homes.update(homes)
        self.ask(
            {
                home: ("start", [name for name in homes if homes[name] == home])
                for home in sorted({*homes.values()})
            }
        )

    def leave(self, count: int) -> None:
        left = dict(self.homes.popitem() for _ in range(count))
        self.ask(
            {
                home: ("stop", [name for name in left if left[name] == home])
                for home in sorted({*left.values()})
            }
        )

    def invite(self) -> None:
        self.ask({PROCESSES: ("start", ["victim"])})

    def crash(self) -> None:
        self.processes[-1].kill()
        self.processes[-1].join()

    def rest(self, members: int) -> None:
        """Wait until the partitions are shared out evenly among so many."""
        while True:
            time.sleep(0.5)
            self.say_how_far()
            if self.at_a_glance() != (members, GroupPhase.READY.value):
                continue
            # This costs what the members need, so it is not asked all the time.
            status = self.looks.status()
            ready = status.phase is GroupPhase.READY and len(status.members) == members
            # Nobody decides at the very moment at which a lease ends.
            if ready and len(self.held()) == self.partitions:
                return

    def held(self) -> dict[int, int]:
        return {p: token for held in self.every("held") for p, token in held.items()}

    def burnt(self) -> float:
        """CPU seconds of the members' processes."""
        return sum(self.every("burnt"))

    def generation(self) -> int:
        tag = self.client.hget("{bench}:group:state", "tag") or b"0"
        return int(tag.partition(b":")[0])

    def measured(self, what: str, members: int, deed: Callable[[], None]) -> None:
        """Do it, wait until the group has come to rest, and note what that cost."""
        before, decided = self.held(), self.generation()
        cpu, burnt, began = _cpu(self.client), self.burnt(), time.perf_counter()
        self.doing, self.began, self.said = what, began, 0.0
        deed()
        self.rest(members)
        took = time.perf_counter() - began
        # Of a process that was killed nobody knows what it burnt meanwhile: next to nothing.
        cpu, burnt = _cpu(self.client) - cpu, max(0.0, self.burnt() - burnt)
        after = self.held()
        moved = sum(after.get(p) != token for p, token in before.items())
        decisions = self.generation() - decided
        self.result.add(
            f"{what}, {members} members: moves; decisions; time; CPU of the members, of Redis, and "
            "of both for a move",
            f"{moved}; {decisions}; {took:.1f} s; {burnt:.2f} s, {cpu:.2f} s, "
            f"{1000 * (burnt + cpu) / max(moved, 1):.2f} ms",
        )

    def end(self) -> None:
        for pipe, process in zip(self.pipes, self.processes, strict=True):
            if process.is_alive():
                # It may end at this moment, by the same Ctrl-C.
                with contextlib.suppress(OSError):
                    pipe.send(None)
                process.terminate()
                process.join(5)
                process.kill()
            process.join()


def crowd(result: Result) -> None:
    """What a change costs in a group of many members, on many partitions."""
    members, partitions = MANY.members, MANY.partitions
    with RedisServer() as server, Redis(unix_socket_path=str(server.socket)) as client:
        crowd = Crowd(server, client, partitions, result)
        try:
            _change_crowd(crowd, client, members)
        except TimeoutError as error:
            program.show(result)
            sys.exit(f"groups.py crowd: {error}")
        finally:
            crowd.end()


def _change_crowd(crowd: Crowd, client: Redis, members: int) -> None:
    crowd.begin()
    crowd.measured("start", members, lambda: crowd.add(members - 1))
    crowd.measured("join", members + 1, lambda: crowd.add(1))
    crowd.measured("leave", members, lambda: crowd.leave(1))
    crowd.measured("(invite)", members + 1, crowd.invite)
    crowd.measured("crash", members, crowd.crash)
    cpu, burnt = _cpu(client), crowd.burnt()
    time.sleep(REST)
    cpu, burnt = _cpu(client) - cpu, crowd.burnt() - burnt
    crowd.result.add(
        f"at rest for {REST:g} s: CPU of a member, and of Redis for it, in a second",
        f"{1e6 * burnt / (members * REST):.0f} µs, {1e6 * cpu / (members * REST):.0f} µs",
    )
    stay = max(1, members // 10)
    crowd.measured("most stop", stay, lambda: crowd.leave(members - stay))


def _cpu(client: Redis) -> float:
    found = client.info("cpu")
    return float(found["used_cpu_user"]) + float(found["used_cpu_sys"])


def calls_within(client: Redis, seconds: float) -> Counter[str]:
    """The calls that Redis gets in that time, by command and script.

    Without what scripts call, and without the PING on each silent subscription.
    """
    counted: Counter[str] = Counter()
    with client.client() as ender, client.monitor() as monitor:
        ender.ping()
        # An end, should nobody else call.
        end = threading.Timer(seconds, lambda: ender.echo("the end"))
        end.start()
        while "the end" not in (told := monitor.next_command())["command"]:
            if told["client_type"] != "lua" and told["command"] != "PING":
                counted[" ".join(told["command"].split()[:2])] += 1
        end.join()
    return counted


def rest(result: Result) -> None:
    with RedisServer() as server, Redis(unix_socket_path=str(server.socket)) as client:
        groups = [
            PartitionGroup(
                client,
                "bench",
                PARTITIONS,
                member=f"m{number:02}",
                rebalance_delay=0,
                handoffs=16,
                ttl=10 * HEARTBEAT,
                heartbeat_interval=HEARTBEAT,
            )
            for number in range(MEMBERS)
        ]
        for group in groups:
            group.start()
        while not settled(groups):
            time.sleep(0.01)
        # What comes of the last handoff, and of connecting.
        time.sleep(3 * HEARTBEAT)
        counted = calls_within(client, REST)
        # Not those that were counted: a member that sends each twice would be none the worse.
        heartbeats = round(MEMBERS * REST / HEARTBEAT)
        calls = sum(counted.values())
        result.add(
            f"{MEMBERS} members, {heartbeats} heartbeats: calls to Redis, a heartbeat",
            str(calls),
            value=round(calls / heartbeats, 2),  # the window cuts some intervals
            unit="",
            target="group-calls",
        )
        for group in groups:
            group.stop()


PARTS: dict[str, Callable[[Result], None]] = {
    "settle": settle,
    "rest": rest,
    "delay": delay,
    "moves": moves,
    "crowd": crowd,
}


if __name__ == "__main__":
    asked = program.parser(__doc__)
    asked.add_argument("--members", type=int, default=MANY.members, help="of a crowd")
    asked.add_argument("--partitions", type=int, default=MANY.partitions, help="of a crowd")
    program.play(asked, PARTS, MANY)
