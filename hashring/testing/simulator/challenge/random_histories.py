"""Histories of lease challenges, drawn by chance."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Final

from hashring.core.groups.faithful_challenge import FaithfulChallengeSpans
from hashring.core.groups.lease_challenge import LeaseChallengeRules
from hashring.testing.simulator.challenge.history import ChallengeHistory, ChallengerSpec
from hashring.testing.simulator.history import Event
from hashring.testing.simulator.random_events import KINDS, drawn

_ENDINGS: Final = ("kill", "pause", "cut", "hole", "stop")


def random_challenge_history(seed: int, *, faithful: bool | None = None) -> ChallengeHistory:
    """A history at random, always the same for a seed.

    Args:
        faithful: of the faithful challenge; every fourth is, unless given.
    """
    rng = Random(f"{seed} challenge")
    terms: LeaseChallengeRules | FaithfulChallengeSpans = LeaseChallengeRules(
        ttl=rng.choice((3.0, 6.0)),
        interval=rng.choice((0.5, 1.0)),
        max_handoff_time=rng.choice((0.5, 2.0)),
        residency=rng.choice((0.0, 2.0)),
    )
    if seed % 4 == 0 if faithful is None else faithful:
        terms = FaithfulChallengeSpans(6.0, 18.0, rng.choice((0.5, 2.0)), 3.0, 0.1)
    specs = [_member(f"{n}", rng) for n in range(rng.choice((1, 2, 3, 3, 4, 5)))]
    window = rng.uniform(5.0, 30.0)
    events = [
        Event(round(0.0 if not n else rng.uniform(0, window), 3), "start", spec.label)
        for n, spec in enumerate(specs)
    ]
    kinds, weights = list(KINDS), list(KINDS.values())
    at = 0.0
    for kind in rng.choices(kinds, weights, k=rng.randrange(1, 12)):
        # Half of all trouble comes with other trouble.
        at = rng.uniform(0.0, window) if rng.random() < 0.5 else at + rng.uniform(0.0, 0.4)
        spec = rng.choice(specs)
        event = drawn(kind, round(at, 3), spec.label, rng)
        if kind == "down":
            event = replace(event, what=rng.choice(("kept", "restarted", "empty")))
        if kind == "slow join":
            event = replace(event, at=next(each.at for each in events if each.who == spec.label))
        events.append(event)
        if kind in _ENDINGS and rng.random() < 0.5:
            again = replace(spec, label=f"{spec.label}.{len(specs)}")
            specs.append(again)
            events.append(Event(round(at + rng.uniform(0.0, 3.0), 3), "start", again.label))
    return ChallengeHistory(
        seed,
        tuple(specs),
        tuple(events),
        terms,
        partitions=rng.randint(1, 12),
        drain=rng.choice((0.1, 1.0, 5.0)),
    )


def _member(label: str, rng: Random) -> ChallengerSpec:
    late = rng.choice((0.0, 0.0, 0.05))
    return ChallengerSpec(f"p{label}", late, rng.choice((0.0, 1.0, 100.0, 54321.0)))
