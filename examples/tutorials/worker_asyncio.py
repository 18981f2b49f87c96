"""A node of an event loop: says which accounts are its own. Usage: worker_asyncio.py URL NAME."""

import asyncio
import sys

from redis.asyncio import Redis

from hashring import AsyncRingNode

ACCOUNTS = ["alice", "bob", "carol", "dave", "erin", "frank"]


async def main() -> None:
    redis = Redis.from_url(sys.argv[1])
    async with AsyncRingNode(
        redis, "accounts", name=sys.argv[2], ttl=3, heartbeat_interval=1
    ) as node:
        while True:
            mine = [account for account in ACCOUNTS if node.contains(account)]
            print(f"{node.name} works on {len(mine)} of {len(ACCOUNTS)}: {mine}", flush=True)
            await asyncio.sleep(1)


asyncio.run(main())
