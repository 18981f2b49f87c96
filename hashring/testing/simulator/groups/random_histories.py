"""Histories of partition groups: members, and what happens to them, drawn by chance."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Final

from hashring.core.assignors import (
    BalancedAssignor,
    ContiguousAssignor,
    LearnerAssignor,
    LoadAssignor,
    RingAssignor,
)
from hashring.core.groups.state import Terms
from hashring.testing.simulator import random_events
from hashring.testing.simulator.groups.history import GroupHistory, MemberSpec
from hashring.testing.simulator.history import Event
from hashring.testing.simulator.random_events import drawn, seconds, with_rare_events

_OFTEN: Final = tuple(
    assignor.name
    for assignor in (
        BalancedAssignor(),
        ContiguousAssignor(),
        LearnerAssignor(),
        LearnerAssignor(1.0, standbys=1),
        LearnerAssignor(1.0, warmups=1, standbys=2),
        RingAssignor(8),
    )
)
_LOADS: Final = (LoadAssignor().name, LoadAssignor(1.05).name)
ASSIGNORS: Final = (*_OFTEN, *_LOADS)

# Those of every world, and these. What a group cannot promise when Redis loses writes is left to
# fencing tokens, so failovers are rare here.
KINDS: Final[dict[str, int]] = {
    **random_events.KINDS,
    "failover": 2,
    "slow decision": 4,
    "hand over": 5,
    "return": 4,
    "stall": 5,
    "resize": 5,
    "switch access": 3,
}

LOAD_KIND: Final = "busy"
"""A partition becomes more or less busy. Under other assignors nobody looks at that."""

RARE: Final = {"migrate": 4, "odd answers": 2, "delete": 1, "garble": 3, "strange reports": 2}
"""Kinds of events that come up in histories :func:`with_rare_group_events`."""

MIGRATIONS: Final = {
    "ttl": (3.0, 4.5, 6.0, 9.0),
    "assignor": ASSIGNORS,
    "rebalance_delay": (0.0, 2.0, 5.0),
    "max_handoff_time": (0.5, 2.0, 4.0),
    "handoffs": (1, 3),
    "leave_timeout": (2.0, 10.0),
}

DELETED: Final = ("state", "views", "control", "members")

GARBLED: Final = ("report", "report", "entry", "view", "views", "phase")

SKEWS: Final = (0.0, 1.0, 5.0)

_ENDINGS: Final = ("kill", "pause", "cut", "hole", "stop", "hand over", "slow join")


def _drawn(kind: str, at: float, label: str, rng: Random) -> Event:
    match kind:
        case "stall" | "slow decision" | "return":
            return Event(at, kind, label, seconds(rng))
        case "resize":
            return Event(at, kind, label, what=str(rng.randint(1, 12)))
        case "down":
            what = rng.choice(("kept", "restarted", "empty"))
            return Event(at, kind, seconds=seconds(rng), what=what)
        case "failover":
            # A server whose clock was set back is beyond what is promised of tokens.
            return Event(at, kind, what=f"{rng.uniform(0.0, 2.0):.3f} 0")
        case _:
            return drawn(kind, at, label, rng)


def random_group_history(seed: int, assignor: str | None = None) -> GroupHistory:
    """A history at random, always the same for a seed.

    Args:
        assignor: the group's; at random unless given.
    """
    rng = Random(f"{seed} group")
    window = rng.uniform(5.0, 30.0)
    terms = Terms(
        rng.randint(1, 12),
        assignor or _assignor(seed, rng),
        ttl=rng.choice((3.0, 6.0)),
        rebalance_delay=rng.choice((0.0, 2.0, 5.0)),
        max_handoff_time=rng.choice((0.5, 2.0)),
        handoffs=rng.choice((1, 1, 3)),
        leave_timeout=rng.choice((2.0, 10.0)),
    )
    specs = [_member(f"{number}", rng) for number in range(rng.choice((1, 2, 2, 3, 3, 4, 5)))]
    events = [
        Event(
            round(0.0 if not n or rng.random() < 0.3 else rng.uniform(0, window), 3),
            "start",
            s.label,
        )
        for n, s in enumerate(specs)
    ]
    kinds, weights = list(KINDS), list(KINDS.values())
    at = 0.0
    number = rng.randrange(1, 12) if rng.random() < 0.9 else rng.randrange(12, 30)
    for kind in rng.choices(kinds, weights, k=number):
        # Half of all trouble comes with other trouble.
        at = rng.uniform(0.0, window) if rng.random() < 0.5 else at + rng.uniform(0.0, 0.4)
        spec = rng.choice(specs)
        events.append(_drawn(kind, round(at, 3), spec.label, rng))
        if kind == "hand over" and rng.random() < 0.5:
            # Somebody asks twice.
            later = round(at + rng.uniform(0.1, terms.leave_timeout), 3)
            events.append(Event(later, kind, spec.label))
        if kind in _ENDINGS and rng.random() < 0.5:
            # Somebody starts the process anew, under its name or under another one.
            label = f"{spec.label}.{len(specs)}"
            name = spec.name if rng.random() < 0.6 else f"{spec.name}.{len(specs)}"
            again = replace(_member("", rng), label=label, name=name)
            specs.append(again)
            events.append(Event(round(at + rng.uniform(0.0, 3.0), 3), "start", again.label))
    if terms.assignor in _LOADS:
        events += _busy(seed, window)
    return GroupHistory(
        seed,
        tuple(specs),
        tuple(events),
        terms,
        handoff=rng.choice((0.1, 1.0, 3.0)),
        drain=rng.choice((0.1, 3.0, 20.0)),
        warm_up=rng.choice((0.5, 2.0)),
        interval=rng.choice((0.5, 1.0)),
    )


def _assignor(seed: int, rng: Random) -> str:
    often, apart = rng.choice(_OFTEN), Random(f"{seed} load")
    return apart.choice(_LOADS) if apart.random() < 0.15 else often


def _busy(seed: int, window: float) -> list[Event]:
    rng = Random(f"{seed} busy")
    return [
        Event(
            round(rng.uniform(0.0, window), 3),
            LOAD_KIND,
            what=f"{rng.randrange(12)} {rng.choice((0.0, 0.1, 3.0, 30.0))}",
        )
        for _ in range(rng.randrange(8))
    ]


def with_rare_group_events(history: GroupHistory) -> GroupHistory:
    """The history with rare events, of all worlds and of groups alone, by its seed."""
    rng = Random(f"{history.seed} rare group")
    window = history.last_at + 2.0
    events = list(history.events)
    for kind in rng.choices(list(RARE), list(RARE.values()), k=rng.randint(0, 4)):
        at, who = round(rng.uniform(0.0, window), 3), rng.choice(history.processes).label
        what = ""
        if kind == "migrate":
            name = rng.choice(list(MIGRATIONS))
            what = f"{name} {rng.choice(MIGRATIONS[name])}"
        elif kind == "delete":
            who, what = "", rng.choice(DELETED)
        elif kind in ("garble", "strange reports"):
            events.append(_garbled(at, kind, who, rng))
            continue
        events.append(Event(at, kind, who, what=what))
    if Random(f"{history.seed} comeback").random() < 0.15:
        events += _comeback(history)
    return with_rare_events(replace(history, events=tuple(events)), SKEWS)


def _comeback(history: GroupHistory) -> list[Event]:
    """A member comes back, hears nothing of that, and is cut off until about its new lease's end.

    Then it asks again, while others decide what to do with its partitions.
    """
    rng = Random(f"{history.seed} comes back")
    who, *others = rng.sample(history.processes, len(history.processes))
    ttl = history.terms.ttl
    paused, late = ttl + rng.uniform(0.0, 1.5), rng.uniform(0.2, 0.6)
    at = history.last_at + rng.uniform(2.0, 12.0)
    back = at + paused + late
    # Until its partitions are another's.
    away = ttl + history.terms.rebalance_delay
    lost = away + rng.uniform(-0.9, 0.6)
    cut = back - rng.uniform(0.0, 0.15)
    slow = [
        Event(round(back + away, 3), "slow decision", other.label, round(rng.uniform(0.5, 2.0), 3))
        for other in others
    ]
    return [
        Event(round(at, 3), "pause", who.label, round(paused, 3)),
        Event(round(at + paused - 0.1, 3), "slow join", who.label, round(late, 3)),
        Event(round(cut, 3), "hole", who.label, round(lost, 3), "lost"),
        *slow,
    ]


def ordered_group_history(seed: int) -> GroupHistory:
    """A history at random in which members are drained, weighed and let back, too."""
    history = random_group_history(seed)
    rng = Random(f"{seed} orders")
    window = history.last_at + 5.0
    events = list(history.events)
    for _ in range(rng.randint(1, 6)):
        label = rng.choice(history.processes).label
        at = round(rng.uniform(0.5, window), 3)
        match rng.choice(("drain", "drain", "drain", "undrain", "weigh")):
            case "drain":
                events.append(Event(at, "drain", label, rng.choice((0.0, 2.0, 8.0))))
            case "weigh":
                events.append(Event(at, "weigh", label, what=rng.choice(("0.5", "3"))))
            case kind:
                events.append(Event(at, kind, label))
    return replace(history, events=tuple(events))


def _garbled(at: float, kind: str, who: str, rng: Random) -> Event:
    """What Redis has of a member becomes unreadable, once or for a while."""
    if kind == "garble":
        return Event(at, kind, who, what=rng.choice(GARBLED))
    return Event(at, kind, who, seconds(rng))


def garbled_group_history(seed: int) -> GroupHistory:
    """A history at random in which what Redis has of members becomes unreadable, often."""
    history = random_group_history(seed)
    rng = Random(f"{seed} garbled")
    window = history.last_at + 3.0
    events = list(history.events)
    for kind in rng.choices(("garble", "garble", "strange reports"), k=rng.randint(2, 6)):
        at, who = round(rng.uniform(0.0, window), 3), rng.choice(history.processes).label
        if kind == "strange reports" and rng.random() < 0.5:
            # Redis loses something, so a member joins anew with such a report.
            events.append(Event(at, kind, who, round(rng.uniform(5.0, 15.0), 3)))
            events.append(_drawn("failover", round(at + rng.uniform(0.0, 1.0), 3), "", rng))
        else:
            events.append(_garbled(at, kind, who, rng))
    return replace(history, events=tuple(events))


def forgotten_group_history(seed: int) -> GroupHistory:
    """A history at random in which all members are gone for a time, and the group is forgotten.

    Some of them wake up again, and one starts about then or later.
    """
    history = random_group_history(seed)
    rng = Random(f"{seed} forgotten")
    late = MemberSpec("late", "late", monotonic=rng.choice((0.0, 100.0)))
    window = history.last_at
    gone = round(rng.uniform(0.7 * window, window + 3.0), 3)
    away = history.terms.ttl + rng.uniform(0.0, 3.0)
    events = [
        Event(round(gone + rng.uniform(0.0, 0.3), 3), kind, spec.label, round(away, 3))
        for spec in history.processes
        for kind in rng.choices(("pause", "kill", "cut"), (6, 2, 2))
    ]
    # About when the last lease ends, and when the members are back.
    for since in rng.choices((history.terms.ttl, away), k=rng.randint(2, 6)):
        events.append(Event(round(gone + since + rng.uniform(-0.5, 1.0), 3), "forget"))
    start = gone + history.terms.ttl + rng.uniform(-0.5, 5.0)
    events.append(Event(round(start, 3), "start", late.label))
    return replace(
        history,
        processes=(*history.processes, late),
        events=(*history.events, *events),
    )


def undecided_group_history(seed: int) -> GroupHistory:
    """A history at random in which the assignors of some members fail, and not of all."""
    history = random_group_history(seed)
    rng = Random(f"{seed} undecided")
    able = MemberSpec("able", "able", monotonic=rng.choice((0.0, 100.0)))
    window = history.last_at
    events = [Event(round(rng.uniform(0.0, window), 3), "start", able.label)]
    for spec in rng.sample(history.processes, rng.randint(1, len(history.processes))):
        what = rng.choice(("raises", "raises", "hangs"))
        at = round(rng.uniform(0.0, window), 3)
        events.append(Event(at, "fail to decide", spec.label, what=what))
    return replace(
        history,
        processes=(*history.processes, able),
        events=(*history.events, *events),
    )


def joining_group_history(seed: int) -> GroupHistory:
    """A history at random of a learner: members join, and let go slowly.

    Perhaps one that is to get something goes meanwhile, stalls, or is drained or weighed by order.
    """
    rng = Random(f"{seed} joining")
    specs = tuple(MemberSpec(f"p{n}", f"m{n}") for n in range(rng.choice((3, 3, 4))))
    at, events = 0.0, []
    for spec in specs:
        events.append(Event(round(at, 3), "start", spec.label))
        at += rng.uniform(0.5, 5.0)
    if rng.random() < 0.5:
        kind = rng.choice(("kill", "stop", "hand over", "stall", "drain", "weigh"))
        label = rng.choice((*specs, specs[-1])).label
        lasts = 8.0 if kind == "stall" else 0.0
        what = "0.5" if kind == "weigh" else ""
        events.append(Event(round(at, 3), kind, label, lasts, what))
    assignor = LearnerAssignor(1.0, warmups=rng.choice((1, 2)), standbys=rng.choice((0, 1, 2)))
    terms = Terms(
        rng.randint(6, 12),
        assignor.name,
        ttl=12.0,
        rebalance_delay=rng.choice((0.0, 2.0)),
        max_handoff_time=10.0,
        handoffs=3,
    )
    warm_up = rng.choice((0.0, 1.0))
    return GroupHistory(seed, specs, tuple(events), terms, handoff=10.0, warm_up=warm_up)


def _member(label: str, rng: Random) -> MemberSpec:
    return MemberSpec(
        label=f"p{label}",
        name=f"m{label}",
        weight=2.0 if rng.random() < 0.1 else 1.0,
        warms_up=rng.random() < 0.8,
        insistent=rng.random() < 0.7,
        progress_timeout=rng.choice((None, None, 2.0)),
        lag=rng.choice((0.0, 0.0, 0.3)),
        monotonic=rng.choice((0.0, 1.0, 100.0, 54321.0)),
    )
