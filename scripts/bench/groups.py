#!/usr/bin/env python
"""How long a live group on a real Redis takes to settle, and how long partitions pause.

    python scripts/bench/groups.py

Members are threads of this process on one embedded Redis. A partition's pause is the time in
which none of them holds it, looked at all the time by a thread of its own; a partition that is
not moved must never be seen without its owner. On a busy machine the CPU seconds of the members
say more than the time they took.
"""

from __future__ import annotations

import threading
import time

from redis import Redis

from hashring import PartitionGroup
from hashring.store.embedded import RedisServer

PARTITIONS = 256


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


def main() -> None:
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


if __name__ == "__main__":
    main()
