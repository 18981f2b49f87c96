"""Events that chance draws for a history: which kinds, how often, and how long each lasts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Final, TypeVar

from hashring.testing.simulator.history import Event, History

H = TypeVar("H", bound=History)

# Kinds of events that every world has, and how often each is drawn. What each does is in
# `fault_effects`.
KINDS: Final[dict[str, int]] = {
    "start": 0,
    "stop": 3,
    "kill": 6,
    "pause": 8,
    "cut": 5,
    "hole": 6,
    "lose reply": 5,
    "slow command": 5,
    "slow reply": 3,
    "slow join": 4,
    "lose messages": 5,
    "delay messages": 4,
    "unsubscribe": 3,
    "deaf": 4,
    "down": 3,
    "hang": 3,
    "wipe": 3,
    "failover": 5,
}

RARE: Final[dict[str, int]] = {
    "pause unsent": 4,
    "pause untold": 4,
    "repeat call": 3,
    "double messages": 2,
    "mix messages": 2,
    "refuse": 2,
}
"""Kinds of events that come up in histories :func:`with_rare_events`."""

SET_BACK: Final = (0.5, 3.0, 30.0, 600.0)
"""By how many seconds Redis' clock is set back: less than a ttl, about one, and many."""

RATES: Final = (1.0, 1.0, 1.01)
"""How fast clocks go there. A member whose clock loses is late by that: it is not promised."""


def is_rare(history: History) -> bool:
    """Whether something happens that is rare."""
    return any(event.kind in RARE for event in history.events)


def seconds(rng: Random) -> float:
    """How long a fault lasts: moments, about a heartbeat, longer than the ttl."""
    low, high = rng.choice(((0.02, 0.6), (0.5, 2.0), (1.5, 3.5), (3.0, 5.0)))
    return round(rng.uniform(low, high), 3)


def drawn(kind: str, at: float, label: str, rng: Random) -> Event:
    """An event of one of the :data:`KINDS`, with what is left to chance of it."""
    match kind:
        case "pause" | "pause unsent" | "pause untold" | "cut":
            return Event(at, kind, label, seconds(rng))
        case "delay messages" | "double messages" | "mix messages":
            return Event(at, kind, label, seconds(rng))
        case "hole":
            return Event(at, kind, label, seconds(rng), rng.choice(("late", "lost")))
        case "slow command" | "slow reply" | "slow join":
            return Event(at, kind, label, seconds(rng))
        case "lose messages":
            return Event(at, kind, label, what=rng.choice("1124"))
        case "down":
            return Event(at, kind, seconds=seconds(rng), what=rng.choice(("kept", "empty")))
        case "hang" | "refuse":
            return Event(at, kind, seconds=seconds(rng))
        case "wipe":
            return Event(at, kind)
        case "failover":
            # What was written in the last moments is lost; the new server's clock is a bit off.
            skew = rng.choice((0.0, 0.0, -0.2, 0.1, 0.2))
            return Event(at, kind, what=f"{rng.uniform(0.0, 2.0):.3f} {skew:+}")
        case _:
            return Event(at, kind, label)


def with_returns(history: H) -> H:
    """The history with nodes, or members, that stop and are started again as the same objects.

    Mostly Redis loses its data about then. By the history's seed.
    """
    rng = Random(f"{history.seed} returns")
    window = history.last_at + 2.0
    events = [*history.events]
    for _ in range(rng.randint(1, 3)):
        at, away = rng.uniform(0.0, window), rng.choice((0.0, 0.0, seconds(rng)))
        events.append(Event(round(at, 3), "return", rng.choice(history.processes).label, away))
        if rng.random() < 0.8:
            lost = at + rng.choice((-0.2, -0.05, 0.002, away)) * rng.random()
            events.append(Event(max(0.0, round(lost, 3)), "wipe"))
    return replace(history, events=tuple(events))


def has_returns(history: History) -> bool:
    """Whether a process stops and is started again."""
    return any(event.kind == "return" for event in history.events)


def with_clock_set_back(history: H, amounts: Sequence[float] = SET_BACK) -> H:
    """The history with a Redis whose clock is set back once or twice, by its seed.

    Args:
        amounts: by how many seconds.
    """
    rng = Random(f"{history.seed} set back")
    window = history.last_at + 2.0
    events = [*history.events]
    for _ in range(rng.choice((1, 1, 2))):
        # Half of it comes with other trouble.
        about = rng.choice(history.events).at + rng.uniform(-0.05, 0.3)
        at = max(0.0, rng.choice((rng.uniform(0.0, window), about)))
        events.append(Event(round(at, 3), "set back", what=str(rng.choice(amounts))))
    return replace(history, events=tuple(events))


def with_rare_events(history: H, skews: Sequence[float] = ()) -> H:
    """The history with :data:`RARE` events, and with clocks that gain, by its seed.

    Args:
        skews: how far off the clocks may be, in seconds, of servers that take over with data that
            may be older than in other failovers; without any there are none of these.
    """
    rng = Random(f"{history.seed} rare")
    window = history.last_at + 2.0
    events = [*history.events]
    at = 0.0
    for kind in rng.choices(list(RARE), list(RARE.values()), k=rng.randint(1, 6)):
        # Half of it comes with other trouble.
        about = rng.choice(events).at + rng.uniform(-0.3, 0.3)
        at = max(0.0, rng.choice((rng.uniform(0.0, window), about, at + 0.1)))
        events.append(drawn(kind, round(at, 3), rng.choice(history.processes).label, rng))
    if skews and rng.random() < 0.3:
        what = f"{rng.choice((2.0, 30.0)) * rng.random():.3f} {rng.choice(skews):+}"
        events.append(Event(round(rng.uniform(0.0, window), 3), "failover", what=what))
    processes = tuple(replace(spec, rate=rng.choice(RATES)) for spec in history.processes)
    return replace(history, processes=processes, events=tuple(events))
