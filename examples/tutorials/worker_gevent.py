"""A node run by greenlets: says which accounts are its own. Usage: worker_gevent.py URL NAME."""

import sys

import gevent
from redis import Redis

from hashring import RingNode

ACCOUNTS = ["alice", "bob", "carol", "dave", "erin", "frank"]

redis = Redis.from_url(sys.argv[1])
node = RingNode(redis, "accounts", name=sys.argv[2], ttl=3, heartbeat_interval=1)
node.gevent_start()
try:
    while True:
        mine = [account for account in ACCOUNTS if node.contains(account)]
        print(f"{node.name} works on {len(mine)} of {len(ACCOUNTS)}: {mine}", flush=True)
        gevent.sleep(1)
finally:
    node.gevent_stop()
