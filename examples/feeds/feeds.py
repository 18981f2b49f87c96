#!/usr/bin/env python
"""Hold one websocket for each feed, over all processes together.

Each process is a node with locks in one event loop. It opens a connection for every feed that it
holds, and closes it when the ring gives the feed to another node. The lock keeps a feed from
having two connections, also while nodes come and go.

    examples/run feeds               two nodes, with a Redis and a feed server of their own
    python examples/feeds/feeds.py --redis URL --source ws://host:port
"""

import argparse
import asyncio
import logging
import signal
from contextlib import suppress

import websockets
from redis.asyncio import Redis

from hashring import AsyncRingNode, NotHeld

FEEDS = [f"feed-{number}" for number in range(24)]


# begin follow
async def follow(node: AsyncRingNode, source: str, feed: str) -> None:
    """Keep the feed's connection for as long as this node may have it."""
    while True:
        with suppress(NotHeld, OSError, websockets.WebSocketException):
            async with node.hold(feed) as lease:
                connection = asyncio.create_task(read(f"{source}/{feed}"))
                # Revoked: the ring gave the feed to another node, which waits for us.
                # Lost: the lock is gone, and another connection may be open already.
                ends = {asyncio.create_task(each.wait()) for each in (lease.revoked, lease.lost)}
                try:
                    await asyncio.wait({connection, *ends}, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    for task in (connection, *ends):
                        task.cancel()
                    await asyncio.gather(connection, *ends, return_exceptions=True)
        if not node.contains(feed):
            return
        await asyncio.sleep(0.2)


async def read(url: str) -> None:
    async with websockets.connect(url) as socket:
        async for message in socket:
            logging.debug("%s: %s", url, message)


# end follow


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--redis", required=True, metavar="URL")
    parser.add_argument("--source", required=True, metavar="URL", help="of the feed server")
    parser.add_argument("--name", help="the node's name")
    parser.add_argument("--ttl", type=float, default=3, help="seconds")
    given = parser.parse_args()
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(message)s")

    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    node = AsyncRingNode(
        Redis.from_url(given.redis),
        "feeds",
        name=given.name,
        lock=True,
        ttl=given.ttl,
        heartbeat_interval=given.ttl / 6,
    )
    following: dict[str, asyncio.Task[None]] = {}
    # begin loop
    async with node:
        while not stop.is_set():
            for feed in await node.select(FEEDS):
                if feed not in following:
                    following[feed] = asyncio.create_task(follow(node, given.source, feed))
            done = [feed for feed, task in following.items() if task.done()]
            for feed in done:
                await following.pop(feed)
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(stop.wait(), 0.2)
        for task in following.values():
            task.cancel()
        await asyncio.gather(*following.values(), return_exceptions=True)
    # end loop


if __name__ == "__main__":
    asyncio.run(main())
