"""Whether a ring or a partition group is well, and if not, why and what to do.

Pure: computed from one reading. The service's pages, its API, its metrics and ``hashring status``
all show this verdict.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, Literal

from hashring.core.assignors.situation import MemberState
from hashring.core.groups.group_status import GroupStatus, WaitKind
from hashring.core.groups.made_up_names import is_made_up
from hashring.core.groups.state import EventKind, GroupPhase, MemberOrder
from hashring.core.readable_numbers import counted, listed, whole_duration
from hashring.core.ring_change_message import ChangeKind
from hashring.store.group.decision_history import Decision
from hashring.store.ring.commands import FORGET
from hashring.store.ring.node_orders import DrainOrder
from hashring.store.ring.node_reports import NodeFacts, Sees
from hashring.store.ring.ring_events import RingEvent

_LATE: Final = 0.5
"""A node with less than this part of its ttl left has missed heartbeats."""

_UNKNOWN_TTL: Final = 60.0  # seconds, for nodes that do not report theirs
_LONG_DRAINED: Final = 86_400.0  # seconds after which a drain without an end may be forgotten
_NAMED: Final = 3  # names in a reason


class State(str, Enum):
    """How a ring or group is."""

    HEALTHY = "healthy"
    STOPPED = "stopped"
    """All nodes left on purpose, or none has joined yet."""
    CHANGING = "changing"
    """A change is under way and within its time."""
    DEGRADED = "degraded"
    """Some keys or partitions are not worked on, or soon will not be."""
    UNKNOWN = "unknown"
    """It cannot be read."""
    DOWN = "down"
    """No key or partition has an owner."""


_ORDER: Final = {state: place for place, state in enumerate(State)}


@dataclass(frozen=True)
class Reason:
    """One thing that is not as it should be.

    Attributes:
        state: how bad it is.
        text: what it is.
        remedy: what to do; empty when it passes without anybody.
        command: of the command line, what does that or shows more, without the address of Redis;
            empty when there is none.
    """

    state: State
    text: str
    remedy: str = ""
    command: str = ""

    def as_dict(self) -> dict[str, str]:
        """The same as JSON types."""
        return {**vars(self), "state": self.state.value}


@dataclass(frozen=True)
class Health:
    """The verdict.

    Attributes:
        state: the worst of the reasons'.
        reasons: why, worst first; empty when healthy.
    """

    state: State
    reasons: tuple[Reason, ...] = ()

    @classmethod
    def of(cls, reasons: Iterable[Reason]) -> Health:
        """The verdict that the reasons make."""
        found = sorted(reasons, key=lambda reason: -_ORDER[reason.state])
        return cls(found[0].state if found else State.HEALTHY, tuple(found))


def worst_first(verdict: Health) -> int:
    """A key to sort by."""
    return -_ORDER[verdict.state]


def worst(verdicts: Iterable[Health]) -> State:
    """The worst state of all; a stopped ring beside a healthy one does not count."""
    states = {verdict.state for verdict in verdicts}
    if states == {State.STOPPED}:
        return State.STOPPED
    return max(states - {State.STOPPED}, key=_ORDER.__getitem__, default=State.HEALTHY)


def exit_status(verdicts: Iterable[Health]) -> Literal[0, 1, 2]:
    """0 when all are well, changing or stopped, 1 when one is degraded, 2 when one is worse."""
    state = worst(verdicts)
    if state is State.DEGRADED:
        return 1
    return 2 if _ORDER[state] > _ORDER[State.DEGRADED] else 0


def unreadable(error: Exception) -> Health:
    """The verdict when Redis does not respond, or refuses."""
    return Health.of([Reason(State.UNKNOWN, str(error), "")])


# --- nodes ------------------------------------------------------------------------------------


class NodeHealth(str, Enum):
    """How a node is, as seen from Redis."""

    UP = "up"
    LATE = "late"
    """It has missed heartbeats: half of its ttl is gone."""
    FULL = "full"
    """It holds as many keys as it may."""
    DRAINED = "drained"
    """By order it runs and owns nothing."""
    AWAY = "away"
    """It stopped to come back; its keys wait for it until it expires."""
    EXPIRED = "expired"
    """It owns nothing; the next heartbeat of any node takes it off the ring."""


NOT_LIVE: Final = (NodeHealth.DRAINED, NodeHealth.AWAY, NodeHealth.EXPIRED)
"""A node in one of these does not work on keys."""


def node_health(node: NodeFacts) -> NodeHealth:
    """The first that it is of: expired, drained, away, late, full."""
    if node.expired:
        return NodeHealth.EXPIRED
    if node.drained:
        return NodeHealth.DRAINED
    if node.away:
        return NodeHealth.AWAY
    if _is_late(node):
        return NodeHealth.LATE
    if node.limit is not None and node.held is not None and node.held >= node.limit:
        return NodeHealth.FULL
    return NodeHealth.UP


def _is_late(node: NodeFacts) -> bool:
    return not node.away and node.ttl is not None and node.expires_in < _LATE * node.ttl


# --- rings ------------------------------------------------------------------------------------


def ring_health(
    nodes: Sequence[NodeFacts],
    events: Sequence[RingEvent],
    *,
    ring: str,
    now: float,
    algorithms: Collection[str] = (),
    drains: Mapping[str, DrainOrder] | None = None,
    without_locks: Sequence[str] = (),
) -> Health:
    """The verdict on a ring.

    Args:
        ring: its name.
        nodes: every node that has an entry, expired ones and drained ones included.
        events: the end of the ring's history, oldest first.
        now: Redis time of the reading, in seconds since 1970.
        algorithms: the hash algorithms that the nodes report.
        drains: the orders to drain nodes, without those about processes that lost a made-up name.
        without_locks: the live nodes that do not lock keys although others do.
    """
    found = [
        *_mixed_locks(ring, without_locks),
        *_ring_reasons(ring, nodes, events, now, algorithms),
    ]
    if any(not node.expired for node in nodes):
        found += _forgotten(ring, drains or {}, now)
    return Health.of(found)


def _mixed_locks(ring: str, without: Sequence[str]) -> Iterator[Reason]:
    if without:
        verb = "works" if len(without) == 1 else "work"
        yield Reason(
            State.DEGRADED,
            f"{counted(len(without), 'node')} without lock=True: {_listed(without)}; "
            f"{verb} on keys that others have locked",
            "give all nodes lock=True",
            command_line("doctor", ring=ring),
        )


def _forgotten(ring: str, drains: Mapping[str, DrainOrder], now: float) -> Iterator[Reason]:
    if forgotten := long_drained(drains, now):
        yield Reason(
            State.DEGRADED,
            f"{counted(len(forgotten), 'node')} drained for more than a day: {_listed(forgotten)}",
            "lift the order, or give it an end",
            command_line("undrain", forgotten[0], ring=ring),
        )


def long_drained_members(status: GroupStatus, now: float) -> list[str]:
    """The members whose drain may have been forgotten, as :func:`long_drained`.

    A member with a made-up name that is gone does not count: no other process takes its name.
    """
    present = {member.name for member in status.members}
    return [
        name for name in long_drained(status.orders, now) if name in present or not is_made_up(name)
    ]


def long_drained(orders: Mapping[str, DrainOrder | MemberOrder], now: float) -> list[str]:
    """The nodes or members whose drain may have been forgotten: no end, and older than a day.

    Args:
        now: Redis time in seconds since 1970.
    """
    return sorted(
        name
        for name, order in orders.items()
        if (isinstance(order, DrainOrder) or order.drained)
        and order.until is None
        and now - order.since > _LONG_DRAINED
    )


def _ring_reasons(
    ring: str,
    nodes: Sequence[NodeFacts],
    events: Sequence[RingEvent],
    now: float,
    algorithms: Collection[str],
) -> Iterator[Reason]:
    changes = [event for event in events if event.change is not None]
    live = [node for node in nodes if not node.expired]
    expired = [node for node in nodes if node.expired]
    if not live:
        if not expired and (forgotten := event_to_forget(events)):
            ago = whole_duration(max(0.0, now - forgotten.at))
            yield Reason(State.STOPPED, f"forgotten {ago} ago by {forgotten.by}")
        else:
            yield _nobody(ring, expired, changes[-1] if changes else None, now)
        return
    if all(node.drained for node in live):
        yield Reason(
            State.DOWN,
            f"every node is drained ({len(live)}): no key has an owner",
            "lift the order, or add nodes",
            command_line("undrain", live[0].name, ring=ring),
        )
    if len(algorithms) > 1:
        yield Reason(
            State.DOWN,
            f"the nodes hash keys differently ({', '.join(sorted(algorithms))}): keys have two "
            "owners or none",
            "give all nodes the same hash_algorithm",
            command_line("doctor", ring=ring),
        )
    # What a node that is away has told is about a time when it ran.
    unserved = sum(node.unserved for node in live if node.live)
    if unserved:
        yield Reason(
            State.DEGRADED,
            f"{counted(unserved, 'key')} unserved: all nodes full",
            "add nodes or raise the limit",
        )
    if refused := [node for node in live if node.live and node.refusal is not None]:
        yield Reason(
            State.DEGRADED,
            f"Redis refuses new locks to {_names(refused)}: {refused[0].refusal}",
            "lift the reason: until then no more keys are taken there",
            command_line("doctor", ring=ring),
        )
    if expired:
        since = max(-node.expires_in for node in expired)
        yield Reason(
            State.DEGRADED,
            f"{counted(len(expired), 'node')} expired "
            f"{_at_most(expired)}{whole_duration(since)} ago: {_names(expired)}",
            "remove it if it stays" if len(expired) == 1 else "remove those that stay",
            command_line("remove", expired[0].name, ring=ring),
        )
    if away := [node for node in live if node.away]:
        first = min(away, key=lambda node: node.expires_in)
        yield Reason(
            State.CHANGING,
            f"{counted(len(away), 'node')} away for a restart: {_names(away)}; keys of an away "
            "node have no owner",
            f"if {first.name} is not back in {whole_duration(max(0.0, first.expires_in))}, "
            "other nodes take over",
        )
    late = [node for node in live if _is_late(node)]
    if late:
        worst_one = max(late, key=lambda node: node.delay)
        yield Reason(
            State.DEGRADED,
            f"{counted(len(late), 'node')} late: {_names(late)}; no heartbeat for "
            f"{_at_most(late)}{whole_duration(worst_one.delay)}",
            f"check that {worst_one.name} runs and reaches Redis: it expires in "
            f"{whole_duration(max(0.0, worst_one.expires_in))}",
        )
    others = [node for node in live if node.sees is Sees.ANOTHER]
    if others:
        verb = "sees" if len(others) == 1 else "see"
        yield Reason(
            State.DEGRADED,
            f"{counted(len(others), 'node')} {verb} another ring than Redis has: {_names(others)}",
            "compare what the nodes see",
            command_line("doctor", ring=ring),
        )
    yield from _catching_up(ring, live, changes, now)


def event_to_forget(events: Sequence[RingEvent]) -> RingEvent | None:
    """The event by which a ring was forgotten; ``None`` if the ring changed after it.

    Args:
        events: the end of its history, oldest first.
    """
    for event in reversed(events):
        if event.change is not None:
            return None
        if event.kind == FORGET:
            return event
    return None


def _catching_up(
    ring: str, live: list[NodeFacts], changes: list[RingEvent], now: float
) -> Iterator[Reason]:
    owners = [node for node in live if not node.drained and not node.away]
    behind = [node for node in owners if node.sees is Sees.OLDER]
    if not behind or not changes:
        return
    since = max(0.0, now - changes[-1].at)
    # A node confirms a change with its next heartbeat but one.
    missed = [node for node in behind if since > _LATE * (node.ttl or _UNKNOWN_TTL)]
    if missed:
        yield Reason(
            State.DEGRADED,
            f"{counted(len(missed), 'node')} did not confirm the change of {whole_duration(since)} "
            f"ago: {_names(missed)}",
            "see why",
            command_line("doctor", ring=ring),
        )
    else:
        # A node that has not reported yet has confirmed nothing.
        confirmed = sum(node.sees is Sees.CURRENT for node in owners)
        yield Reason(
            State.CHANGING,
            f"{changes[-1].kind} {whole_duration(since)} ago; {confirmed:,} of "
            f"{counted(len(owners), 'node')} confirmed it",
        )


def _nobody(ring: str, expired: list[NodeFacts], last: RingEvent | None, now: float) -> Reason:
    if expired:
        return Reason(
            State.DOWN,
            f"every node expired ({len(expired)}), the last one "
            f"{whole_duration(min(-node.expires_in for node in expired))} ago: no key has an owner",
            "start its nodes, or forget the ring",
            command_line("forget", ring=ring),
        )
    if last is None:
        return Reason(State.STOPPED, "no node has joined yet")
    ago = whole_duration(max(0.0, now - last.at))
    if last.change is not None and last.change.kind is ChangeKind.EXPIRE:
        return Reason(
            State.DOWN,
            f"the last node expired {ago} ago: no key has an owner",
            "start its nodes, or forget the ring",
            command_line("forget", ring=ring),
        )
    return Reason(State.STOPPED, f"the last node left {ago} ago")


# --- groups -----------------------------------------------------------------------------------


def group_health(
    status: GroupStatus, decisions: Sequence[Decision], *, group: str, now: float
) -> Health:
    """The verdict on a partition group.

    Args:
        group: its name.
        decisions: its last ones, in any order.
        now: Redis time of the reading, in seconds since 1970.
    """
    return Health.of(_group_reasons(group, status, decisions, now))


def _group_reasons(
    group: str, status: GroupStatus, decisions: Sequence[Decision], now: float
) -> Iterator[Reason]:
    if not status.has_members:
        yield _no_member(group, status.expired, decisions, now)
        return
    if status.unreadable:
        text = f"{unread_reports(len(status.unreadable))}: {_listed(status.unreadable)}"
        yield Reason(State.DEGRADED, text, UNREAD_REMEDY)
    if status.unowned:
        yield Reason(
            State.DEGRADED,
            f"{counted(len(status.unowned), 'partition')} without an owner",
            "" if status.phase is not GroupPhase.READY else "see why",
            "" if status.phase is not GroupPhase.READY else command_line("group show", group),
        )
    stalled = [m.name for m in status.members if m.state is MemberState.STALLED]
    if stalled:
        yield Reason(
            State.DEGRADED,
            f"{counted(len(stalled), 'member')} stalled: {_listed(stalled)}",
            "see its log: it runs, but makes no progress",
        )
    forgotten = long_drained_members(status, now)
    if forgotten:
        yield Reason(
            State.DEGRADED,
            f"{counted(len(forgotten), 'member')} drained for more than a day: "
            f"{_listed(forgotten)}",
            "lift the order, or give it an end",
            command_line("group undrain", group, forgotten[0]),
        )
    silent = sorted({w.member or "" for w in status.waits if w.kind is WaitKind.LEASE})
    if silent:
        ends = max((w.until or now for w in status.waits if w.kind is WaitKind.LEASE), default=now)
        yield Reason(
            State.DEGRADED,
            f"{counted(len(silent), 'member')} not responding: {_listed(silent)}",
            f"check its process; its lease ends in {whole_duration(max(0.0, ends - now))}",
        )
    if status.phase is not GroupPhase.READY:
        until = ""
        if status.until is not None and status.until > now:
            until = f", {whole_duration(status.until - now)} more at most"
        yield Reason(State.CHANGING, f"{status.phase.value.lower()}{until}")


def _no_member(
    group: str, expired: Sequence[str], decisions: Sequence[Decision], now: float
) -> Reason:
    newest_first = sorted(decisions, key=lambda decision: -decision.generation)
    if not expired and (last := decision_to_forget(newest_first)):
        ago = whole_duration(max(0.0, now - last.at))
        return Reason(State.STOPPED, f"forgotten {ago} ago by {last.by}")
    if not expired and newest_first:
        events = newest_first[0].events
        expired = [event.member or "" for event in events if event.kind is EventKind.EXPIRED]
    if expired:
        # Only a live member makes a decision, so none tells how the last ones went.
        gone = f"no member is left; {_listed(expired)} expired without leaving"
        return Reason(
            State.DOWN,
            f"{gone}: no partition has an owner",
            START_OR_FORGET,
            command_line("group forget", group),
        )
    return Reason(State.STOPPED, "it has no members")


def decision_to_forget(decisions: Iterable[Decision]) -> Decision | None:
    """The decision to forget a group without members; ``None`` if a member joined after it.

    Args:
        decisions: the group's last ones, newest first.
    """
    for decision in decisions:
        kinds = {event.kind for event in decision.events}
        if EventKind.FORGOTTEN in kinds:
            return decision
        if EventKind.JOINED in kinds:
            return None
    return None


START_OR_FORGET: Final = "start the members, or forget the group"
"""What to do about a group whose last members expired."""


def unread_reports(count: int) -> str:
    """So many members have reports that cannot be read, in words."""
    reports = "a report" if count == 1 else "reports"
    return f"{counted(count, 'member')} with {reports} that cannot be read"


UNREAD_REMEDY: Final = (
    "if this lasts, restart each with the version of the other members; until then it keeps its "
    "partitions and gets no others"
)


# --- words ------------------------------------------------------------------------------------


def command_line(command: str, *names: str, ring: str = "") -> str:
    """A command to copy into a shell, whatever is in the names.

    Args:
        command: ``remove``, or ``group undrain``.
        names: its arguments, such as a node.
    """
    options = ("--ring", ring) if ring else ()
    words = (*names, *options)
    if any(name.startswith("-") for name in names):
        words = (*options, "--", *names)
    return shlex.join(("hashring", *command.split(), *words))


def command_at(command: str, url: str) -> str:
    """A command line of :func:`command_line`, asked of the Redis at this URL."""
    # First, since a node or a ring may be named "--", as what ends the options is.
    program, _, rest = command.partition(" ")
    return f"{program} --url {shlex.quote(url)} {rest}"


def _names(nodes: Sequence[NodeFacts]) -> str:
    return _listed([node.name for node in nodes])


def _listed(names: Sequence[str]) -> str:
    return listed(names, _NAMED)


def _at_most(nodes: Sequence[NodeFacts]) -> str:
    return "up to " if len(nodes) > 1 else ""
