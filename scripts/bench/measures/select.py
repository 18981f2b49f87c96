"""Very many keys: which are mine?"""

from __future__ import annotations

import json

from frame import Measure, Result, Run
from targets import LOCKS

from measures.programs import output


def take(run: Run) -> Result:
    count, rounds = (20_000, 1) if run.quick else (1_000_000, 3)
    result = Result()
    for way, target in (("without", "select"), ("with", "select-numpy")):
        run.say(f"{count:,} keys {way} numpy, {rounds} rounds in turn")
        (told,) = output(run, "many_keys.py", way, str(count), str(rounds))
        times = json.loads(told)
        for name, peer in (("crc", "CRC-32"), ("xxh", "xxHash")):
            result.add(
                f"{way} numpy, redis-hashring with {peer} / ours",
                f"{times['ours'] * 1e3:.0f} ms",
                f"{times[name] * 1e3:.0f} ms",
                value=times[name] / times["ours"],
                target=target if name == "crc" else None,
            )
        result.add(
            f"{way} numpy, zlib.crc32 of each key, called from C, and no more / ours",
            f"{times['ours'] * 1e3:.0f} ms",
            f"{times['hash'] * 1e3:.0f} ms",
            value=times["hash"] / times["ours"],
        )
    return result


MEASURE = Measure(
    "select",
    LOCKS,
    "Many keys",
    "``node.select(keys)`` over a million different ``str`` keys on a ring of 100 nodes x 16 "
    "replicas, against ``[key for key in keys if node.contains(key)]`` with redis-hashring's "
    "node on the same ranges. Both find the same keys. Best of three rounds in turn, in a "
    "process with numpy and in one without. The keys are ``account-`` and a random number below a "
    "billion: their lengths differ, so that without numpy each must be hashed by a call of its "
    "own, which alone takes most of the time. Keys of one length are not hashed one by one.",
    40,
    take,
)
