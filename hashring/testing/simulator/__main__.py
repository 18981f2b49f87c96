"""``python -m hashring.testing.simulator``: play histories, tell the first that fails."""

from __future__ import annotations

import argparse
import sys
import time

from hashring.testing.simulator import RingSimulator, random_history, random_lock_history


def main(arguments: list[str] | None = None) -> int:
    """Run the command; the exit status is 1 when a history breaks a rule."""
    parser = argparse.ArgumentParser(
        prog="python -m hashring.testing.simulator",
        description="Play random histories of faults on the ring's protocol, in virtual time.",
    )
    parser.add_argument("--seed", type=int, help="play only the history of this seed")
    parser.add_argument("--start", type=int, default=0, help="the first seed (default 0)")
    parser.add_argument("--count", type=int, default=2000, help="how many (default 2000)")
    parser.add_argument("--locks", action="store_true", help="histories with locks and limits")
    options = parser.parse_args(arguments)

    simulator = RingSimulator()
    if options.seed is None:
        seeds = range(options.start, options.start + options.count)
    else:
        seeds = range(options.seed, options.seed + 1)
    begin = time.perf_counter()
    failing = simulator.find(seeds, random_lock_history if options.locks else random_history)
    if failing is not None:
        print(simulator.story(failing))
        return 1
    print(f"{len(seeds)} histories in {time.perf_counter() - begin:.1f} s: no rule was broken")
    return 0


if __name__ == "__main__":
    sys.exit(main())
