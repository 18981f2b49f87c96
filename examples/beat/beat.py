#!/usr/bin/env python
"""Periodic jobs that run on one node each, whatever happens to the others.

Every process schedules every job with APScheduler. A run starts only on the node that owns the
job, and only while that node holds its lock. The time of the run is written with the lock's
fencing token, so one time is run once, also when two processes wake up for it.

    examples/run beat --nodes 3      three nodes, with a Redis of their own
    python examples/beat/beat.py --redis URL
"""

import argparse
import logging
import signal
import time

from apscheduler.schedulers.background import BackgroundScheduler
from redis import Redis

from hashring import LeaseLost, NotHeld, RingNode, StaleToken
from hashring.fencing import RedisFence

JOBS = {"invoices": 1, "reports": 2, "cleanup": 3}
"""Each job with the seconds between its runs."""


# begin run
class Beat:
    """Runs jobs for one node."""

    def __init__(self, redis: Redis, node: RingNode) -> None:
        self.redis = redis
        self.node = node
        self.fence = RedisFence(redis)

    def run(self, job: str, every: int) -> None:
        """Run the job for the present period, unless it has been run or belongs to another."""
        period = int(time.time()) // every
        try:
            with self.node.hold(job) as lease:
                last = self.redis.hget(f"{{{job}}}:state", "period")
                if last is not None and int(last) >= period:
                    return
                # The claim comes before the work: a run that crashes is not repeated.
                self.fence.write(
                    f"{{{job}}}", lease.token, ["HSET", f"{{{job}}}:state", "period", period]
                )
                self.work(job, period, lease.token)
        except (NotHeld, LeaseLost, StaleToken) as refusal:
            logging.info("%s runs elsewhere: %s", job, refusal)

    def work(self, job: str, period: int, token: int) -> None:
        """Do the job; here it leaves a line in a list."""
        print(f"{self.node.name} runs {job} of period {period}", flush=True)
        self.fence.write(
            f"{{{job}}}", token, ["RPUSH", f"{{{job}}}:runs", f"{period} {self.node.name}"]
        )


# end run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--redis", required=True, metavar="URL")
    parser.add_argument("--name", help="the node's name")
    given = parser.parse_args()
    logging.basicConfig(level=logging.WARNING)

    received: list[int] = []  # a handler must not wait for a lock, so this is no Event
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, frame: received.append(number))
    redis = Redis.from_url(given.redis)
    with RingNode(redis, "beat", name=given.name, lock=True, ttl=3, heartbeat_interval=0.5) as node:
        beat = Beat(redis, node)
        scheduler = BackgroundScheduler()
        for job, every in JOBS.items():
            scheduler.add_job(beat.run, "interval", seconds=every, args=(job, every))
        scheduler.start()
        while not received:
            time.sleep(0.2)
        scheduler.shutdown()


if __name__ == "__main__":
    main()
