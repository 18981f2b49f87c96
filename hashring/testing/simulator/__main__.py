"""``python -m hashring.testing.simulator``: play histories, tell the first that fails."""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections.abc import Callable
from typing import Any

from hashring.testing.simulator import (
    ChallengeSimulator,
    GroupSimulator,
    RingSimulator,
    ordered_group_history,
    own_ranges,
    random_challenge_history,
    random_group_history,
    random_history,
    random_lock_history,
    with_clock_set_back,
    with_drains,
    with_rare_events,
    with_rare_group_events,
    with_rare_ring_events,
    with_returns,
    with_ring_clock_set_back,
    with_weights,
)
from hashring.testing.simulator.play import Simulator


def main(arguments: list[str] | None = None) -> int:
    """Run the command; the exit status is 1 when a history breaks a rule."""
    parser = argparse.ArgumentParser(
        prog="python -m hashring.testing.simulator",
        description="Play random histories of faults on the protocols that ship, in virtual time.",
    )
    parser.add_argument("--seed", type=int, help="play only the history of this seed")
    parser.add_argument("--start", type=int, default=0, help="the first seed (default 0)")
    parser.add_argument("--count", type=int, default=2000, help="how many (default 2000)")
    of = parser.add_mutually_exclusive_group()
    of.add_argument("--locks", action="store_true", help="histories with locks and limits")
    of.add_argument("--groups", action="store_true", help="histories of partition groups")
    of.add_argument("--challenge", action="store_true", help="histories of the lease challenge")
    parser.add_argument(
        "--own-ranges", action="store_true", help="some nodes, or all, know only their own ranges"
    )
    parser.add_argument(
        "--drains",
        action="store_true",
        help="nodes of a ring are drained by order; members of a group are drained or weighed",
    )
    parser.add_argument("--weights", action="store_true", help="nodes of a ring change weight")
    parser.add_argument(
        "--returns",
        action="store_true",
        help="nodes, or members of a lease challenge, stop and are started again, about a loss of "
        "data; members of groups always do",
    )
    parser.add_argument(
        "--set-back", action="store_true", help="somebody sets the clock of Redis' machine back"
    )
    parser.add_argument(
        "--rare",
        action="store_true",
        help="more faults: pauses between two lines, commands sent twice, messages in another "
        "order, a full Redis, one whose clock is wrong, clocks that gain, other group settings",
    )
    options = parser.parse_args(arguments)
    if options.count < 1:
        parser.error(f"--count {options.count} plays nothing: give 1 or more")
    if (options.own_ranges or options.weights) and (options.groups or options.challenge):
        parser.error("--own-ranges and --weights are for rings: leave out --groups and --challenge")
    if options.drains and options.challenge:
        parser.error("--drains is for rings and groups: leave out --challenge")
    if options.returns and options.groups:
        parser.error("members of groups return anyway: leave out --returns")

    simulator, make = _played(options)
    if options.seed is None:
        seeds = range(options.start, options.start + options.count)
    else:
        seeds = range(options.seed, options.seed + 1)
    # Of nodes that are only played, whose troubles are made.
    logging.getLogger("hashring").setLevel(logging.CRITICAL)
    begin = time.perf_counter()
    failing = simulator.find(seeds, make)
    if failing is not None:
        print(simulator.story(failing))
        return 1
    print(f"{len(seeds)} histories in {time.perf_counter() - begin:.1f} s: no rule was broken")
    return 0


def _played(options: argparse.Namespace) -> tuple[Simulator[Any, Any], Callable[[int], Any]]:
    """What plays the histories, and what makes the history of a seed."""
    simulator: Simulator[Any, Any] = RingSimulator()
    make: Callable[[int], Any] = random_lock_history if options.locks else random_history
    if options.groups:
        simulator = GroupSimulator()
        make = ordered_group_history if options.drains else random_group_history
    if options.challenge:
        simulator, make = ChallengeSimulator(), random_challenge_history
    rare: Callable[[Any], Any] = with_rare_ring_events
    set_back: Callable[[Any], Any] = with_ring_clock_set_back
    if options.groups or options.challenge:
        rare = with_rare_group_events if options.groups else with_rare_events
        set_back = with_clock_set_back
    for asked, change in (
        (options.own_ranges, own_ranges),
        (options.drains and not options.groups, with_drains),
        (options.weights, with_weights),
        (options.returns, with_returns),
        (options.set_back, set_back),
        (options.rare, rare),
    ):
        if asked:
            make = _changed(make, change)
    return simulator, make


def _changed(make: Callable[[int], Any], change: Callable[[Any], Any]) -> Callable[[int], Any]:
    return lambda seed: change(make(seed))


if __name__ == "__main__":
    sys.exit(main())
