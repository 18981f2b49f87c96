"""Histories of rings: nodes, with locks or without, and what happens to them, drawn by chance."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from random import Random
from typing import Final

from hashring.testing.simulator import random_events
from hashring.testing.simulator.history import Event
from hashring.testing.simulator.random_events import (
    SET_BACK,
    drawn,
    seconds,
    with_clock_set_back,
    with_rare_events,
)
from hashring.testing.simulator.ring.history import (
    TTL,
    LockTerms,
    NodeHistory,
    ProcessSpec,
)

# Kinds of events, and how often each is drawn. What each does is in `fault_effects`. Those about
# locks are drawn only where there are locks.
KINDS: Final[dict[str, int]] = {
    **random_events.KINDS,
    "stay": 5,
    "delete": 3,
    "garbage member": 3,
    "garbage message": 2,
    "garbage entry": 1,
}

LOCK_KINDS: Final[dict[str, int]] = {
    "hold": 25,
    "idle user": 6,
    "release by hand": 3,
}

GARBAGE_MEMBERS: Final = (
    "abc",
    "12:only",
    "99999999999:{name}:x",
    "012:{name}:x",
    "12:{name}",
    "77:phantom:x",
    "78:phantom:y",
    "79:{name}:x",
)
GARBAGE_MESSAGES: Final = ("*", "", "{}", '{"v": 1}', '{"v": 2, "kind": "join"}', "[1")
KEYS: Final = (
    "ring",
    "epoch",
    "nodes",
    "events",
    "left",
    "points",
    "ring nodes",
    "ring epoch nodes",
    "nodes points",
    "places",
    "nodes places",
)

WEIGHTS: Final = ("0.25", "0.5", "1", "2", "2", "3", "5")

SKEWS: Final = (-5.0, -1.0, 0.0, 1.0, 5.0)

LATE: Final = ("slow command", "slow command", "slow reply", "lose reply")

# After these somebody may start the process anew.
_ENDINGS: Final = ("kill", "pause", "cut", "hole", "stop", "stay", "slow join")


def _drawn(kind: str, at: float, label: str, name: str, rng: Random) -> Event:
    match kind:
        case "delete":
            return Event(at, kind, what=rng.choice(KEYS))
        case "garbage member":
            member = rng.choice(GARBAGE_MEMBERS).replace("{name}", name)
            return Event(at, kind, seconds=round(rng.uniform(0.0, TTL), 3), what=member)
        case "garbage message":
            return Event(at, kind, what=rng.choice(GARBAGE_MESSAGES))
        case "garbage entry":
            return Event(at, kind, what=name)
        case _:
            return drawn(kind, at, label, rng)


def random_history(seed: int) -> NodeHistory:
    """A history at random, always the same for a seed."""
    rng = Random(seed)
    window = rng.uniform(2.0, 8.0)
    processes = [_process(i, rng) for i in range(rng.choice((1, 2, 2, 3, 3, 3, 4, 5)))]
    for i in range(1, len(processes)):
        if rng.random() < 0.15:
            twin = processes[rng.randrange(i)]
            processes[i] = replace(processes[i], name=twin.name, named=twin.named)
    together = rng.random() < 0.3
    events = []
    for index, spec in enumerate(processes):
        at = 0.0 if together or not index else rng.uniform(0.0, window * 0.7)
        events.append(Event(round(at, 3), "start", spec.label))

    kinds, weights = list(KINDS), list(KINDS.values())
    at = 0.0
    back = []
    number = rng.randrange(1, 9) if rng.random() < 0.9 else rng.randrange(9, 25)
    for kind in rng.choices(kinds, weights, k=number):
        # Half of all trouble comes with other trouble.
        at = rng.uniform(0.0, window) if rng.random() < 0.5 else at + rng.uniform(0.0, 0.4)
        spec = rng.choice(processes)
        if kind == "slow join":
            spec = rng.choice([each for each in processes if each.named] or processes)
        events.append(_drawn(kind, round(at, 3), spec.label, spec.name, rng))
        if kind == "slow join":
            # While its join is on its way the process dies, perhaps.
            begins = next(event.at for event in events if event.who == spec.label)
            events[-1] = replace(events[-1], at=begins)
            at = begins + rng.uniform(0.1, 1.5)
            if rng.random() < 0.7:
                events.append(Event(round(at, 3), "kill", spec.label))
        if kind in _ENDINGS and spec.named and (rng.random() < 0.4 or kind == "stay"):
            # Somebody starts the process anew, under its name.
            again = _again(spec, len(processes), rng)
            later = rng.uniform(0.0, 1.5)
            if kind == "stay":
                # As the old one stops, in time, or too late.
                again = replace(again, points=spec.points)
                later = rng.choice((0.02, 1.5, 1.5 * TTL)) * rng.random()
            processes.append(again)
            events.append(Event(round(at + later, 3), "start", again.label))
            if kind == "stay":
                back.append((again, events[-1].at))
    apart = Random(f"{seed} given up")
    for again, at in back:
        if apart.random() < 0.5:
            # Its start is given up while an answer is on its way, and somebody starts one more.
            kind = apart.choice(("slow reply", "lose reply"))
            late = seconds(apart) if kind == "slow reply" else 0.0
            events += [Event(at, kind, again.label, late) for _ in range(apart.choice((1, 2, 3)))]
            events.append(Event(round(at + 0.1 * apart.random(), 3), "stop", again.label))
            processes.append(replace(again, label=f"{again.label}x"))
            later = at + apart.uniform(0.1, 2.5)
            events.append(Event(round(later, 3), "start", processes[-1].label))
    return NodeHistory(seed, tuple(processes), tuple(events))


def own_ranges(history: NodeHistory) -> NodeHistory:
    """The history with nodes that know only their own ranges: all of them, or some, by its seed."""
    rng = Random(f"{history.seed} follow")
    part = rng.choice((1.0, 1.0, 0.5))
    processes = tuple(replace(spec, follow=rng.random() >= part) for spec in history.processes)
    return replace(history, processes=processes)


def with_drains(history: NodeHistory) -> NodeHistory:
    """The history with orders to drain nodes, and to drain them no more, by its seed."""
    rng = Random(f"{history.seed} drains")
    events = []
    for at, who in _orders(history, rng, 4):
        events.append(Event(round(at, 3), "drain", who, rng.choice((0.0, 0.0, seconds(rng)))))
        if rng.random() < 0.4:
            later = at + rng.choice((0.0, 0.05, rng.uniform(0.0, 3.0)))
            events.append(Event(round(later, 3), "undrain", who))
    return replace(history, events=(*history.events, *events))


def with_weights(history: NodeHistory) -> NodeHistory:
    """The history with other weights for nodes, by order or by their own code, by its seed."""
    rng = Random(f"{history.seed} weights")
    events = []
    for at, who in _orders(history, rng, 5):
        kind = rng.choice(("weigh", "weigh", "weigh itself"))
        events.append(Event(round(at, 3), kind, who, what=rng.choice(WEIGHTS)))
        if rng.random() < 0.4:
            # Somebody else gives another one, perhaps at once.
            later = at + rng.choice((0.0, 0.002, 0.05, rng.uniform(0.0, 3.0)))
            kind = rng.choice(("weigh", "weigh itself"))
            what = rng.choice((*WEIGHTS, "own")) if kind == "weigh" else rng.choice(WEIGHTS)
            events.append(Event(round(later, 3), kind, who, what=what))
    late = _late_heartbeats(history.seed, events)
    return replace(history, events=(*history.events, *events, *late))


def with_ring_clock_set_back(history: NodeHistory) -> NodeHistory:
    """As :func:`with_clock_set_back`, by not too much: locks last longer by as much."""
    return with_clock_set_back(history, SET_BACK[:3])


def with_rare_ring_events(history: NodeHistory) -> NodeHistory:
    """The history with rare events, by its seed."""
    return with_rare_events(history, SKEWS if history.locks is None else (0.0,))


def _late_heartbeats(seed: int, orders: Iterable[Event]) -> Iterator[Event]:
    """What makes heartbeats late about the time of some orders: on their way, or their answers."""
    rng = Random(f"{seed} late heartbeats")
    for order in orders:
        kind = rng.choice((None, None, *LATE))
        if kind is None:
            continue
        for _ in range(rng.choice((1, 1, 2, 3))):
            # About as long as a heartbeat may take, or as a node that is not on the ring lasts.
            late = rng.choice((0.3, 1.0, 1.5, 2.5, 3.5, 5.0)) * rng.uniform(0.8, 1.2)
            at = max(0.0, round(order.at - 0.001, 3))
            yield Event(at, kind, order.who, 0.0 if kind == "lose reply" else round(late, 3))


def _orders(history: NodeHistory, rng: Random, most: int) -> Iterator[tuple[float, str]]:
    """When an order is given, in seconds, and to which process."""
    window = history.last_at + 2.0
    for _ in range(rng.randrange(1, most + 1)):
        yield rng.uniform(0.0, window), rng.choice(history.processes).label


def random_lock_history(seed: int) -> NodeHistory:
    """A history at random in which nodes lock keys and have limits, always the same for a seed."""
    if Random(f"{seed} joins").random() < 0.1:
        return _joins_at_work(seed)
    plain = random_history(seed)
    rng = Random(f"{seed} locks")
    # A server whose clock was set back is beyond what is promised of tokens.
    events = [
        replace(event, what=f"{event.lag_and_skew[0]} 0") if event.kind == "failover" else event
        for event in plain.events
    ]
    apart = Random(f"{seed} restarts")
    events = [
        replace(event, what=apart.choice(("kept", "restarted"))) if event.what == "kept" else event
        for event in events
    ]
    terms = LockTerms(
        keys=tuple(b"key-%d" % number for number in range(rng.choice((3, 8, 16)))),
        ttl=rng.choice((2.0, 3.0)),
        idle=rng.choice((2.0, 3.0)),
        max_handoff_time=rng.choice((0.5, 1.5, 3.0)),
    )
    limits = (None, None, 1, 2, 5, len(terms.keys))
    processes = tuple(replace(spec, limit=rng.choice(limits)) for spec in plain.processes)
    window = plain.last_at + 1.0
    kinds, weights = list(LOCK_KINDS), list(LOCK_KINDS.values())
    for kind in rng.choices(kinds, weights, k=rng.randrange(1, 7)):
        at, who = round(rng.uniform(0.2, window), 3), rng.choice(processes).label
        key = rng.choice(terms.keys).decode()
        if kind == "release by hand":
            events.append(Event(at, kind, what=key))
        else:
            events.append(Event(at, kind, who, seconds(rng), key if kind == "hold" else ""))
    return NodeHistory(seed, processes, tuple(events), terms)


def _joins_at_work(seed: int) -> NodeHistory:
    """Nodes join while one holds the keys. What they ask is late, but for the last that joins."""
    rng = Random(f"{seed} joins at work")
    processes = [_process(index, rng) for index in range(rng.choice((3, 3, 4)))]
    keys = tuple(b"key-%d" % number for number in range(8))
    # What the first holds lasts beyond the joins, for the others to wait for.
    events = [Event(0.0, "start", processes[0].label)]
    for key in rng.sample(keys, 7):
        begins, lasts = round(rng.uniform(0.5, 0.9), 3), round(rng.uniform(1.5, 4.0), 3)
        events.append(Event(begins, "hold", processes[0].label, lasts, key.decode()))
    at = 1.0
    for spec in processes[1:]:
        events.append(Event(round(at, 3), "start", spec.label))
        if spec is not processes[-1]:
            asks, late = at + rng.uniform(0.02, 0.4), rng.uniform(0.3, 1.5)
            events.append(Event(round(asks, 3), "slow command", spec.label, round(late, 3)))
        at += rng.uniform(0.05, 0.6)
    return NodeHistory(seed, tuple(processes), tuple(events), LockTerms(keys, 3.0, 3.0, 3.0))


def _process(index: int, rng: Random) -> ProcessSpec:
    label = "abcdefgh"[index]
    named = rng.random() < 0.4
    return ProcessSpec(
        label=label,
        name=f"node-{label}" if named else f"host:{index}",
        named=named,
        placement=rng.choice(("random", "random", "random", "balanced")),
        points=rng.choice((1, 2, 3, 4)),
        asynchronous=rng.random() < 0.4,
        strict=rng.random() < 0.2,
        monotonic=rng.choice((0.0, 1.0, 100.0, 54321.0)),
    )


def _again(spec: ProcessSpec, number: int, rng: Random) -> ProcessSpec:
    fresh = _process(0, rng)
    return replace(fresh, label=f"{spec.label}{number}", name=spec.name, named=True)
