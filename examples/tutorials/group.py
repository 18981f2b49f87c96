"""A member of a group: says when a partition begins and ends. Usage: group.py URL NAME."""

import sys
import time

from redis import Redis

from hashring import PartitionGroup

member = sys.argv[2]


def begin(partition: int, token: int) -> None:
    print(f"{member} begins {partition}", flush=True)


def finish(partition: int, deadline: float) -> None:
    # Finish the work at hand. When this returns, the next owner begins.
    print(f"{member} finishes {partition}", flush=True)


def work(partition: int, token: int) -> None:
    """Do a part of the partition's work; send the token with every write."""


with PartitionGroup(
    Redis.from_url(sys.argv[1]),
    "orders",
    partitions=4,
    member=member,
    ttl=3,
    rebalance_delay=1,
    on_assigned=begin,
    on_revoked=finish,
) as group:
    while True:
        for partition, token in group.held.items():
            work(partition, token)
        group.tick()  # the application makes progress
        time.sleep(0.1)
