"""A tour through what a node does with its Redis client, for ``scripts/compat``.

On one server (bytes and ``decode_responses``), under Sentinel and on Redis Cluster. Prints one
line, or a traceback.

    python scripts/compat.py asyncio
    python scripts/compat.py greenlet-patched
"""

from __future__ import annotations

import argparse

_parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
)
_parser.add_argument("runner", choices=("thread", "greenlet", "greenlet-patched", "asyncio"))
RUNNER = _parser.parse_args().runner
if RUNNER == "greenlet-patched":
    from gevent import monkey

    monkey.patch_all()

import asyncio  # noqa: E402 - nothing may be imported before the patching
import logging  # noqa: E402
import time  # noqa: E402
from collections.abc import Callable, Iterator  # noqa: E402
from contextlib import contextmanager  # noqa: E402
from typing import Any  # noqa: E402

import redis  # noqa: E402
import redis.asyncio  # noqa: E402

from hashring import AsyncRingNode, RingNode  # noqa: E402
from hashring.store.embedded_server import RedisServer  # noqa: E402

PATIENCE = 60
KEYS = [f"key-{number}" for number in range(100)]
# A heartbeat finds what a message did not tell, but not within PATIENCE.
LONG = {"ttl": 600.0, "heartbeat_interval": 200.0}
SHORT = {"ttl": 2.0, "heartbeat_interval": 0.3}


class Driver:
    """Starts and stops nodes, and asks them, whatever runs them."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop() if RUNNER == "asyncio" else None

    def wait(self, result: Any) -> Any:
        return self._loop.run_until_complete(result) if self._loop else result

    def sleep(self) -> None:
        if self._loop:
            self.wait(asyncio.sleep(0.01))
        elif RUNNER == "greenlet":
            import gevent  # noqa: PLC0415 - only where it is the runner

            gevent.sleep(0.01)
        else:
            time.sleep(0.01)

    def node(self, client: Any, ring: str, **settings: Any) -> Any:
        kind = AsyncRingNode if self._loop else RingNode
        node = kind(client, ring, **settings)
        if RUNNER.startswith("greenlet"):
            node.gevent_start()
        else:
            self.wait(node.start())
        return node

    def hold(self, node: Any, key: str) -> int:
        if not self._loop:
            with node.hold(key) as lease:
                return int(lease.token)

        async def held() -> int:
            async with node.hold(key) as lease:
                return int(lease.token)

        return int(self.wait(held()))

    def until(self, holds: Callable[[], Any], what: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while not holds():
            if time.monotonic() > deadline:
                raise AssertionError(f"not within {PATIENCE} s: {what}")
            self.sleep()

    def end(self, client: Any, *nodes: Any) -> None:
        for node in nodes:
            self.wait(node.stop())
        self.wait(getattr(client, "aclose", client.close)() if self._loop else client.close())


def agree(*nodes: Any) -> bool:
    return all(sum(node.contains(key) for node in nodes) == 1 for key in KEYS)


def failing(node: Any) -> bool:
    return node.status.failing_for is not None


def tour(driver: Driver, client: Any, ring: str, server: RedisServer) -> None:
    """A change is seen, locks and limits hold, and a restart of Redis is survived."""
    one = driver.node(client, ring, name="one", **LONG)
    two = driver.node(client, ring, name="two", **LONG)
    driver.until(lambda: agree(one, two), "a join is seen by its message")
    driver.wait(two.stop())
    driver.until(lambda: agree(one), "a leave is seen by its message")
    driver.wait(one.stop())

    one = driver.node(client, ring, name="one", lock=True, limit=10, **LONG)
    assert len(driver.wait(one.select(KEYS))) == 10
    held = next(key for key in KEYS if one.contains(key))
    token = driver.hold(one, held)
    assert token > 0
    driver.wait(one.stop())

    one = driver.node(client, ring, name="one", **SHORT)
    two = driver.node(client, ring, name="two", **SHORT)
    driver.until(lambda: agree(one, two), "two split the keys")
    server.kill()
    driver.until(lambda: failing(one) and failing(two), "both notice that Redis is gone")
    server.start()
    driver.until(lambda: agree(one, two) and not failing(one) and not failing(two), "both are back")
    driver.end(client, one, two)


def clients() -> Any:
    return redis.asyncio if RUNNER == "asyncio" else redis


@contextmanager
def cluster() -> Iterator[RedisServer]:
    """A Redis Cluster of one server."""
    with RedisServer(port=0, config=["cluster-enabled yes"]) as server:
        with redis.Redis.from_url(server.url) as client:
            client.execute_command("CLUSTER ADDSLOTS", *range(16384))
            while client.execute_command("CLUSTER INFO")["cluster_state"] != "ok":
                time.sleep(0.05)
        yield server


def main() -> None:
    logging.disable()  # that Redis goes is no news here
    driver = Driver()
    with RedisServer(port=0) as server:
        for decode in (False, True):
            client = clients().Redis.from_url(server.url, decode_responses=decode)
            tour(driver, client, f"plain-{decode}", server)
        with RedisServer(
            port=0, config=[f"sentinel monitor main 127.0.0.1 {server.port} 1"]
        ) as sentinel:
            found = clients().sentinel.Sentinel([("127.0.0.1", sentinel.port)])
            tour(driver, found.master_for("main"), "sentinel", server)
    with cluster() as server:
        client = clients().RedisCluster(host="127.0.0.1", port=server.port)
        tour(driver, client, "cluster", server)
    print(f"redis-py {redis.__version__}, {RUNNER}: well")


if __name__ == "__main__":
    main()
