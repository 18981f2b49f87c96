"""Very many keys: which are mine?"""

from __future__ import annotations

import json

from result import Measure, Result, Run
from targets import LOCKS

from measures.programs import output


def take(run: Run) -> Result:
    count, rounds = (20_000, 1) if run.quick else (1_000_000, 5)
    result = Result()
    for way, target in (("without", "select"), ("with", "select-numpy")):
        for lengths, name in (("mixed", ""), ("alike", ", keys of one length")):
            of = f"{way} numpy{name}"
            run.say(f"{count:,} keys {of}, {rounds} rounds in turn")
            told = output(run, "many_keys.py", way, lengths, str(count), str(rounds))
            times = json.loads(told)
            ours = f"{times['ours'] * 1e3:.0f} ms"
            for peer, kind in (("crc", "CRC-32"), ("xxh", "xxHash")):
                result.add(
                    f"{of}: redis-hashring with {kind} / ours",
                    ours,
                    f"{times[peer] * 1e3:.0f} ms",
                    value=times[peer] / times["ours"],
                    target=target if (peer, lengths) == ("crc", "mixed") else None,
                )
            result.add(
                f"{of}: zlib.crc32 of each key, called from C, and no more / ours",
                ours,
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
    "node on the same ranges. Both find the same keys. Best of five rounds in turn, in a "
    "process with numpy and in one without. The keys are ``account-`` and a random number below a "
    "billion: their lengths differ, so that without numpy each must be hashed by a call of its "
    "own, which alone takes most of the time. Keys of one length, the number written with nine "
    "digits, are not hashed one by one.",
    60,
    take,
)
