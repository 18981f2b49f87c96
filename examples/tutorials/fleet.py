"""Three nodes work and log it; one of them has a bug. Usage: fleet.py URL LOG."""

import csv
import random
import sys
import time

from redis import Redis

from hashring import RingNode

ACCOUNTS = [f"account-{number}" for number in range(100)]
SECONDS = 5


redis = Redis.from_url(sys.argv[1])
nodes = [RingNode(redis, "audited", name=name) for name in ("alder", "birch", "cedar")]
for node in nodes:
    node.start()
time.sleep(1)
with open(sys.argv[2], "w", newline="") as file:
    log = csv.writer(file)
    log.writerow(("key", "node", "start", "end"))
    ends = time.monotonic() + SECONDS
    while time.monotonic() < ends:
        account = random.choice(ACCOUNTS)
        for node in nodes:
            # cedar has a bug: it sometimes works on an account that is not its own.
            if node.contains(account) or (node.name == "cedar" and random.random() < 0.05):
                start = time.time()
                time.sleep(0.01)
                log.writerow((account, node.name, start, time.time()))
for node in nodes:
    node.stop()
