"""A node: says which accounts are its own. Usage: worker.py URL NAME."""

import sys
import time

from redis import Redis

from hashring import RingNode

ACCOUNTS = ["alice", "bob", "carol", "dave", "erin", "frank"]

redis = Redis.from_url(sys.argv[1])
with RingNode(redis, "accounts", name=sys.argv[2], ttl=3, heartbeat_interval=1) as node:
    while True:
        mine = [account for account in ACCOUNTS if node.contains(account)]
        print(f"{node.name} works on {len(mine)} of {len(ACCOUNTS)}: {mine}", flush=True)
        time.sleep(1)
