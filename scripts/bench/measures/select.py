"""Very many keys: which are mine?"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from random import Random

from frame import Measure, Result, Run
from peers import plain_node, their_node
from redis_hashring import HashAlgorithm
from targets import LOCKS


def compare(count: int, rounds: int) -> dict[str, float]:
    """Seconds of select, and of redis-hashring's way, over so many keys; the best of the rounds."""
    rng = Random(7)
    node = plain_node(16, others=99)
    keys = [f"account-{rng.randrange(10**9)}" for _ in range(count)]
    peers = {
        "crc": their_node(node, HashAlgorithm.CRC32),
        "xxh": their_node(node, HashAlgorithm.XXHASH),
    }
    times = dict.fromkeys(("ours", *peers), float("inf"))
    for _ in range(rounds):
        began = time.perf_counter()
        mine = node.select(keys)
        times["ours"] = min(times["ours"], time.perf_counter() - began)
        for name, peer in peers.items():
            began = time.perf_counter()
            theirs = [key for key in keys if peer.contains(key)]
            times[name] = min(times[name], time.perf_counter() - began)
            if name == "crc":
                assert mine == theirs
    return times


# A process of its own for each: what numpy is to a process, it is for good.
_PROGRAM = """
import json, sys
sys.path[:0] = json.loads(sys.argv[1])
if sys.argv[2] == "without":
    sys.modules["numpy"] = None
from measures.select import compare
print(json.dumps(compare(int(sys.argv[3]), int(sys.argv[4]))))
"""


def take(run: Run) -> Result:
    count, rounds = (20_000, 1) if run.quick else (1_000_000, 3)
    result = Result()
    for way, target in (("without", "select"), ("with", "select-numpy")):
        run.say(f"{count:,} keys {way} numpy, {rounds} rounds in turn")
        arguments = (json.dumps(sys.path), way, str(count), str(rounds))
        done = subprocess.run(
            [sys.executable, "-c", _PROGRAM, *arguments], check=True, capture_output=True, text=True
        )
        times = json.loads(done.stdout)
        for name, peer in (("crc", "CRC-32"), ("xxh", "xxHash")):
            result.add(
                f"{way} numpy, redis-hashring with {peer} / ours",
                f"{times['ours'] * 1e3:.0f} ms",
                f"{times[name] * 1e3:.0f} ms",
                value=times[name] / times["ours"],
                target=target if name == "crc" else None,
            )
    return result


MEASURE = Measure(
    "select",
    LOCKS,
    "Many keys",
    "``node.select(keys)`` over a million different ``str`` keys on a ring of 100 nodes x 16 "
    "replicas, against ``[key for key in keys if node.contains(key)]`` with redis-hashring's "
    "node on the same ranges. Both find the same keys. Best of three rounds in turn, in a "
    "process with numpy and in one without.",
    40,
    take,
)
