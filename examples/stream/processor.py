#!/usr/bin/env python
"""Count events of Redis Streams exactly once, by the members of a partition group.

An event goes to the stream of its key's partition. A member reads the streams of the partitions
that it holds. One script changes the counts, the place reached and the token of a partition
together, and refuses a member with an older token. So an event counts once, whatever happens to
the members, and the events of one key count in their order.

    examples/run stream              two members, with a Redis and 100,000 events of their own
    python examples/stream/processor.py --redis URL
"""

import argparse
import logging
import signal
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from itertools import islice
from zlib import crc32

from redis import Redis, exceptions

from hashring import PartitionGroup

GROUP = "events"
PARTITIONS = 32
BATCH = 200

# begin script
# KEYS  1 place and token of a partition  2 its counts  3 the last number of each key
# ARGV  1 token  2 place the batch begins after  3 place it ends at  then: key, number, ...
APPLY = """
local token = tonumber(redis.call('HGET', KEYS[1], 'token') or '0')
local place = redis.call('HGET', KEYS[1], 'place') or '0-0'
if tonumber(ARGV[1]) < token or place ~= ARGV[2] then
  redis.call('HINCRBY', KEYS[1], 'refused', 1)
  return 0
end
for i = 4, #ARGV, 2 do
  local last = tonumber(redis.call('HGET', KEYS[3], ARGV[i]) or '-1')
  if tonumber(ARGV[i + 1]) <= last then
    redis.call('HINCRBY', KEYS[1], 'disorder', 1)
  end
  redis.call('HSET', KEYS[3], ARGV[i], ARGV[i + 1])
  redis.call('HINCRBY', KEYS[2], ARGV[i], 1)
end
redis.call('HSET', KEYS[1], 'token', ARGV[1], 'place', ARGV[3])
redis.call('HINCRBY', KEYS[1], 'done', (#ARGV - 3) / 2)
return 1
"""
# end script


def key(what: str, partition: int) -> str:
    return f"{{{GROUP}}}:{what}:{partition}"


def fill(redis: Redis, events: Iterable[str]) -> None:
    """Add events, each to the stream of its key's partition, numbered from 0."""
    rows = iter(enumerate(events))
    while chunk := list(islice(rows, 5000)):
        with redis.pipeline(transaction=False) as pipe:
            for number, name in chunk:
                stream = key("in", crc32(name.encode()) % PARTITIONS)
                pipe.xadd(stream, {"key": name, "number": number})
            pipe.execute()


# begin worker
class Worker:
    """Reads the streams of the partitions it holds."""

    def __init__(self, redis: Redis, name: str | None, assignor: str) -> None:
        self.redis = redis
        self.apply = redis.register_script(APPLY)
        self.busy = threading.Lock()
        self.ending: set[int] = set()
        self.group = PartitionGroup(
            redis,
            GROUP,
            PARTITIONS,
            assignor,
            member=name,
            ttl=1.5,
            heartbeat_interval=0.3,
            rebalance_delay=0.2,
            handoffs=4,
            on_assigned=lambda partition, token: self.ending.discard(partition),
            on_revoked=self.end,
        )

    def end(self, partition: int, deadline: float) -> None:
        """Finish the batch, and begin no other; then the next owner may begin."""
        self.ending.add(partition)
        with self.busy:
            pass

    def batch(self, partition: int, token: int) -> bool:
        """Count the next events of a partition; whether there were any."""
        place = self.redis.hget(key("state", partition), "place") or "0-0"
        entries = self.redis.xrange(key("in", partition), f"({place}", "+", count=BATCH)
        if not entries:
            return False
        events = [part for _, entry in entries for part in (entry["key"], entry["number"])]
        keys = [key(what, partition) for what in ("state", "count", "last")]
        self.apply(keys=keys, args=[token, place, entries[-1][0], *events])
        return True

    def run(self, received: list[int]) -> None:
        with self.group:
            while not received:
                worked = False
                for partition, token in self.group.held.items():
                    # After an outage the script counts what it had not counted, and only that.
                    with self.busy, suppress(exceptions.ConnectionError, exceptions.TimeoutError):
                        if partition not in self.ending:
                            worked = self.batch(partition, token) or worked
                    self.group.tick()
                if not worked:
                    time.sleep(0.05)


# end worker


def main() -> None:
    logging.basicConfig(level=logging.ERROR)
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--redis", required=True, metavar="URL")
    parser.add_argument("--name", help="the member's name")
    parser.add_argument("--assignor", default="balanced", help="balanced, learner, ...")
    parser.add_argument("--fill", type=int, metavar="N", help="add N events, and end")
    given = parser.parse_args()
    redis = Redis.from_url(given.redis, decode_responses=True)
    if given.fill is not None:
        fill(redis, (f"customer-{number % 1000}" for number in range(given.fill)))
        return
    received: list[int] = []  # a handler must not wait for a lock, so this is no Event
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, frame: received.append(number))
    Worker(redis, given.name, given.assignor).run(received)


if __name__ == "__main__":
    main()
