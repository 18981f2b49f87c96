#!/usr/bin/env python
"""How long a live group on a real Redis takes to settle, how long partitions pause, and what it
costs at rest.

    python scripts/bench/groups.py              all
    python scripts/bench/groups.py settle
    python scripts/bench/groups.py rest
    python scripts/bench/groups.py delay
    python scripts/bench/groups.py moves

Members are threads of this process on one embedded Redis. A partition's pause is the time in
which none of them holds it, looked at all the time by a thread of its own; a partition that is
not moved must never be seen without its owner. On a busy machine the CPU seconds of the members
say more than the time they took. At rest, Redis itself tells of every call (MONITOR).
"""

from __future__ import annotations

import argparse
import threading
import time
from collections import Counter
from collections.abc import Callable

from redis import Redis

from hashring import PartitionGroup
from hashring.store.embedded import RedisServer

PARTITIONS = 256
MEMBERS, HEARTBEAT, REST = 16, 1.0, 30.0
MOVES = 100


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


def settle() -> None:
    print(
        f"{'handoffs at once':>16}  {'members':>7}  {'settled s':>9}  {'CPU s':>5}  {'moves':>5}  "
        f"{'least':>5}  "
        f"{'longest pause ms':>16}  {'pauses of others':>16}"
    )
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
                print(
                    f"{handoffs:>16}  {size:>7}  {took:>9.2f}  {burnt:>5.2f}  "
                    f"{len(moved):>5}  {least:>5}  "
                    f"{1000 * max(pauses, default=0.0):>16.1f}  {others:>16}"
                )
            for group in groups:
                group.stop()


def delay() -> None:
    """How long after a stop and after a join the rebalance delay of 1 s is acted upon."""
    print(f"{'ttl s':>5}  {'renewals s':>10}  {'after a stop s':>14}  {'after a join s':>14}")
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
            print(f"{ttl:>5g}  {ttl / 4:>10.1f}  {stopped:>14.2f}  {joined:>14.2f}")
            for group in groups:
                group.stop()


def moves() -> None:
    """What one handoff costs, one at a time, as a second member takes over."""
    print(f"{'partitions':>10}  {'moves':>5}  {'members CPU ms':>14}  {'Redis CPU ms':>12}  a move")
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
            print(
                f"{partitions:>10}  {moved:>5}  {1000 * burnt / moved:>14.2f}  "
                f"{1000 * cpu / moved:>12.2f}"
            )
            # Not by handing over: the rest would move, one by one.
            first.stop()
            second.stop()


def _cpu(client: Redis) -> float:
    found = client.info("cpu")
    return float(found["used_cpu_user"]) + float(found["used_cpu_sys"])


def calls_within(client: Redis, seconds: float) -> Counter[str]:
    """The calls that Redis gets in that time, by command and script; not what scripts call."""
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


def rest() -> None:
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
        # By far the most; the others are a member that looks whether a lease has ended.
        heartbeats = max(counted.values())
        calls = sum(counted.values())
        print(
            f"at rest, {MEMBERS} members, {heartbeats} heartbeats: {calls} calls to Redis, "
            f"{calls / heartbeats:.3f} a heartbeat"
        )
        for group in groups:
            group.stop()


PARTS: dict[str, Callable[[], None]] = {
    "settle": settle,
    "rest": rest,
    "delay": delay,
    "moves": moves,
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}")
    given = parser.parse_args()
    if unknown := [part for part in given.parts if part not in PARTS]:
        parser.error(f"there is no {', '.join(unknown)}; there are {', '.join(PARTS)}")
    for part in given.parts or PARTS:
        PARTS[part]()


if __name__ == "__main__":
    main()
