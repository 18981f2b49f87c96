"""``select`` over very many keys, and redis-hashring's way: one JSON line of seconds.

    python scripts/bench/many_keys.py with mixed 1000000 3         with numpy
    python scripts/bench/many_keys.py without alike 1000000 3      keys of one length

A program of its own: what numpy is to a process, it is for good.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import zlib
from array import array
from random import Random

from peers import plain_node, their_node
from redis_hashring import HashAlgorithm

WIDTHS = {"mixed": "", "alike": "09d"}
"""How the number in a key is written."""


def compare(lengths: str, count: int, rounds: int) -> dict[str, float]:
    """Seconds of select, redis-hashring's way, and hashing alone over so many keys.

    The best of the rounds of each. ``hash`` is what it costs to call ``zlib.crc32`` for each key
    from C and to keep the points: a floor for all that hashes key by key.
    """
    rng = Random(7)
    node = plain_node(16, others=99)
    keys = [f"account-{rng.randrange(10**9):{WIDTHS[lengths]}}" for _ in range(count)]
    peers = {
        "crc": their_node(node, HashAlgorithm.CRC32),
        "xxh": their_node(node, HashAlgorithm.XXHASH),
    }
    times = dict.fromkeys(("ours", "hash", *peers), float("inf"))
    for _ in range(rounds):
        began = time.perf_counter()
        mine = node.select(keys)
        times["ours"] = min(times["ours"], time.perf_counter() - began)
        began = time.perf_counter()
        array("I", map(zlib.crc32, map(str.encode, keys)))
        times["hash"] = min(times["hash"], time.perf_counter() - began)
        for name, peer in peers.items():
            began = time.perf_counter()
            theirs = [key for key in keys if peer.contains(key)]
            times[name] = min(times[name], time.perf_counter() - began)
            if name == "crc":
                assert mine == theirs
    return times


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("numpy", choices=("with", "without"))
    parser.add_argument("lengths", choices=WIDTHS)
    parser.add_argument("keys", type=int, help="how many")
    parser.add_argument("rounds", type=int, help="of which the best counts")
    given = parser.parse_args()
    if given.numpy == "without":
        sys.modules["numpy"] = None  # type: ignore[assignment]
    print(json.dumps(compare(given.lengths, given.keys, given.rounds)))


if __name__ == "__main__":
    main()
