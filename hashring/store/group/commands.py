"""What can be asked of a partition group in Redis, and what it answers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

from hashring.core.groups.json_codec import (
    dump_events,
    dump_facts,
    dump_state,
    dump_terms,
    dump_view_change,
    load_terms,
    load_view_change,
)
from hashring.core.groups.next_state import StepOutcome, deputies
from hashring.core.groups.state import GroupPhase, GroupState, MemberFacts, MemberView, Terms
from hashring.core.groups.view_changes import ViewChange, changed_view, changed_views
from hashring.errors import GroupFormatError
from hashring.store.command import Argument, Command
from hashring.store.group.key_names import GroupKeys
from hashring.store.group.reading import Reading, Reports, looked_at, parse_reading, parted
from hashring.store.lua_scripts import script

DECISIONS_KEPT: Final = 1000
"""About how many decisions the history of a group keeps, unless they are large."""

HISTORY_BYTES: Final = 64 * 2**20
"""About how large the history of a group becomes: it keeps fewer decisions if these are large."""

_FEWEST_KEPT: Final = 10
"""Decisions that a history keeps however large they are: readers look at the last few."""

CLAIM: Final = 0.5
"""Seconds that one member has for a step before the next is asked for it."""

STEP: Final = b"step"
"""The message that asks a member to take the next step."""

WATCHERS: Final = 3
"""How many members wait for the time of the next step, besides the one that decided on it."""


@dataclass(frozen=True)
class Joined:
    """The member is in the group.

    Attributes:
        now: Redis time.
        terms: the group's.
        due: whether this member is to take the next step; else another does.
    """

    now: float
    terms: Terms
    due: bool


@dataclass(frozen=True)
class Taken:
    """The name is another live session's.

    Attributes:
        expires_in: seconds until that one's lease ends unless renewed.
    """

    expires_in: float


@dataclass(frozen=True)
class JoinEnded:
    """This session has joined before, and its lease has ended since: it cannot come back."""


def join(
    keys: GroupKeys, facts: MemberFacts, terms: Terms, before: str = ""
) -> Command[Joined | Taken | JoinEnded]:
    """Join as a new session.

    Args:
        facts: ``joined`` and ``expires`` are ignored: Redis sets them.
        terms: the member's; they become the group's when it has none.
        before: this process' own earlier session, whose name it may take.
    """

    def read(raw: Any) -> Joined | Taken | JoinEnded:
        if raw[0] == b"taken":
            return Taken(float(raw[1]))
        if raw[0] == b"ended":
            return JoinEnded()
        return Joined(int(raw[1]) / 1e6, load_terms(raw[2]), bool(raw[3]))

    arguments = (
        facts.name,
        facts.session,
        terms.ttl,
        dump_facts(facts),
        dump_terms(terms),
        before,
        CLAIM,
    )
    return Command(script("group", "join"), keys.script_keys(), arguments, read)


@dataclass(frozen=True)
class Brought:
    """What a decider needs to read, as it came with a renewal.

    Attributes:
        since: the tag of the decision that it goes on from.
        raw: what has changed since, as ``read.lua`` answers it.
    """

    since: str
    raw: Any

    def reading(self, known: GroupState | None, reports: Reports) -> Reading:
        """The group at the instant of the renewal.

        Args:
            known: the decision of the tag.
            reports: as for :func:`hashring.store.group.reading.read`.

        Raises:
            GroupFormatError: what stands in Redis cannot be read.
        """
        return parse_reading(self.raw, self.since, known, reports)


@dataclass(frozen=True)
class Beat:
    """The reply to a renewal.

    Attributes:
        now: Redis time.
        tag: names the decision that stands.
        due: whether this member is to take the next step.
        part: the tag of the decision that changed this member's part last.
        view: the member's part of the decision; ``None`` when it cannot be told from the known
            one, and the decision has to be read.
        wait: seconds after which this member is to renew again, since a step is due then;
            ``None`` when others wait for that, or there is nothing to wait for.
        left: whether another is to take the step that this report asks for.
        brought: what the member's decider needs for the step, if the step is due and this could be
            told.
        terms: the group's, if they may be others than the known ones.
    """

    now: float
    tag: str
    due: bool
    part: str
    view: MemberView | None
    wait: float | None
    left: bool = False
    brought: Brought | None = None
    terms: Terms | None = None

    @property
    def generation(self) -> int:
        """The number of the decision that stands."""
        return parted(self.tag)[0]


NO_PART: Final = "-"
"""The tag of a part that no decision has changed yet."""


def beat(
    keys: GroupKeys,
    facts: MemberFacts,
    ttl: float,
    known_part: str = NO_PART,
    known: MemberView | None = None,
    *,
    decided: str = "",
    others_first: float = 0.0,
    terms: Terms | None = None,
) -> Command[Beat | None]:
    """Renew and report; ``None`` for a session that is gone, and has to join anew.

    Args:
        known_part, known: the member's part as it is known, and its tag.
        decided: the tag of the decision that the member's decider knows; empty when it is to read
            for itself.
        others_first: seconds for which a step that is due, or that somebody began and did not take,
            is left to the other members.
        terms: the group's, as the member knows them.
    """

    def read(raw: Any) -> Beat | None:
        if raw[0] == b"gone":
            return None
        tag, part = raw[2].decode("utf-8", "replace"), raw[5].decode("utf-8", "replace")
        generation, _ = parted(tag)
        phase = _readable_phase(raw[3], known)
        view: MemberView | None = MemberView(generation, phase)
        if raw[6] is not None and part != NO_PART:
            lines = raw[6].split(b"\n")[1:]
            try:
                changes = [load_view_change(line.partition(b" ")[2]) for line in lines]
            except GroupFormatError:
                # The lease is renewed, and the state has what cannot be read here.
                view, part = None, NO_PART
            else:
                view = changed_view(known or MemberView(0, phase), changes, generation, phase)
        elif raw[6] is None:
            view = None
        wait = float(raw[7]) if raw[7] else None
        brought = None if raw[8] is None else Brought(decided, raw[8])
        return Beat(
            int(raw[1]) / 1e6,
            tag,
            raw[4] == 1,
            part,
            view,
            wait,
            raw[4] == 2,
            brought,
            None if raw[9] is None else _readable_terms(raw[9]),
        )

    arguments = (
        facts.name,
        facts.session,
        ttl,
        dump_facts(facts),
        facts.seen,
        known_part,
        CLAIM,
        WATCHERS,
        decided,
        others_first,
        "" if terms is None else dump_terms(terms),
    )
    return Command(script("group", "beat"), keys.script_keys(), arguments, read)


def _readable_phase(text: bytes, known: MemberView | None) -> GroupPhase:
    """The group's phase; the last known one for text that costs no member its lease.

    The next decision writes it anew. No member decides by it: the state has its own.
    """
    try:
        return GroupPhase(text.decode("utf-8", "replace"))
    except ValueError:
        return GroupPhase.READY if known is None else known.phase


def _readable_terms(text: bytes) -> Terms | None:
    """Terms; ``None`` for text that costs no member its lease: who decides reports it."""
    try:
        return load_terms(text)
    except GroupFormatError:
        return None


@dataclass(frozen=True)
class Left:
    """The member is not in the group any more.

    Attributes:
        due: whether nobody else takes the step that is due now.
    """

    due: bool


def leave(keys: GroupKeys, member: str, session: str = "") -> Command[Left | None]:
    """Leave; ``None`` if the member was not there.

    A member that stays is asked to take the next step.

    Args:
        session: only this one; empty for any.
    """

    def read(raw: Any) -> Left | None:
        return Left(raw == 2) if raw else None

    arguments = (member, session, CLAIM)
    return Command(script("group", "leave"), keys.script_keys(), arguments, read)


def agreed(keys: GroupKeys) -> Command[Terms | None]:
    """The group's terms; ``None`` when no member ever joined."""

    def read(raw: Any) -> Terms | None:
        return load_terms(raw) if raw else None

    return Command(script("group", "terms"), keys.script_keys(), (), read)


@dataclass(frozen=True)
class Committed:
    """A decision stands.

    Attributes:
        now: Redis time.
        again: whether another step is due at once.
        tag, state: the decision that stands now.
        own: what it changed for the member that decided; ``None`` when nothing.
    """

    now: float
    again: bool
    tag: str
    state: GroupState
    own: ViewChange | None = None


@dataclass(frozen=True)
class Conflict:
    """Another decision was written since the reading.

    Attributes:
        left: another member is at work on the next step, and sees what was seen here.
    """

    left: bool


def commit(
    keys: GroupKeys,
    reading: Reading,
    outcome: StepOutcome,
    by: str,
    *,
    goes_on: bool = False,
    stays: bool = False,
    counts_out: bool = True,
) -> Command[Committed | Conflict]:
    """Write what a step decided, unless another decision was written since the reading.

    Args:
        by: who decided, for the history.
        goes_on: whether they are a member's decider, and take the next step, too, if one is due
            at once. No message goes to that member: the answer says what it needs.
        stays: whether they wait for the next step that is due later. Otherwise two members are
            told of the decision, so that they do.
        counts_out: whether it is a step, which takes note of the leases that have ended. Otherwise
            their entries stay, so that the next step does not take an end for a departure.
    """
    before, after = reading.standing(), outcome.state
    decided = before is None or after.generation != before.generation
    fields: list[Argument] = []
    views: list[Argument] = []
    changes: dict[str, ViewChange] = {}
    dismissed: list[Argument] = [part for pair in outcome.dismissed for part in pair]
    gone: list[Argument] = []
    if decided:
        # What stands there is the reading's, but nothing does before the first decision.
        for part, text in dump_state(after, reading.state).items():
            fields += (part, text)
        changes = changed_views(before, after)
        for name, change in changes.items():
            views += (name, after.roster[name].session, int(change.fresh), dump_view_change(change))
        # One that left while a decision about it was made has a part that nobody reads.
        facts = reading.facts
        there = {member.name for member in (*facts.members, *facts.unreadable)}
        seats = {} if before is None else before.roster
        for name, seat in seats.items():
            if seat.session and name not in there:
                gone += (name, seat.session)
    terms = before is None or before.terms != after.terms
    events = dump_events(outcome.events)
    arguments: tuple[Argument, ...] = (
        reading.tag,
        after.generation if decided else "",
        len(fields) // 2,
        after.phase.value,
        "" if outcome.due is None else f"{outcome.due:.6f}",
        reading.changes,
        events,
        by,
        _kept(events),
        dump_terms(after.terms) if decided and terms else "",
        CLAIM if goes_on else 0,
        looked_at(reading) if counts_out else 0,
        reading.facts.server,
        after.server,
        len(views) // 4,
        len(dismissed) // 2,
        "" if stays or outcome.due is None else "\n".join(deputies(reading.facts, after, by)),
        after.terms.max_handoff_time,
        *fields,
        *views,
        *dismissed,
        *gone,
    )

    def read_(raw: Any) -> Committed | Conflict:
        if raw[0] == b"conflict":
            return Conflict(bool(raw[1]))
        now, again = int(raw[1]) / 1e6, bool(raw[2])
        if not decided:
            return Committed(now, again, reading.tag, after)
        tag = f"{after.generation}:{int(raw[1])}"
        stamped, own = after.stamped(now), changes.get(by)
        if own is not None and own.revoked:
            deadlines = {
                partition: stamped.handoffs[partition].deadline for partition in own.revoked
            }
            own = replace(own, revoked=deadlines)
        return Committed(now, again, tag, stamped, own)

    return Command(script("group", "commit"), keys.script_keys(), arguments, read_)


def _kept(events: str) -> int:
    """How many decisions the history keeps from one with these events on.

    A start or a stop of a member may be a megabyte of events, and a program that fails at once
    starts and stops again and again.
    """
    return min(DECISIONS_KEPT, max(_FEWEST_KEPT, HISTORY_BYTES // len(events)))


def forget(keys: GroupKeys, reading: Reading, outcome: StepOutcome, by: str) -> Command[bool]:
    """Note that a group was stopped for good, and take away what its members left.

    The answer is whether it was noted. It was not if the lease of a member stands, or if another
    decision was written since the reading.

    Args:
        outcome: what :func:`hashring.core.groups.group_orders.forget` makes of the reading.
        by: who forgets it, for the history.
    """
    after = outcome.state
    fields = dump_state(after, reading.state)
    events = dump_events(outcome.events)
    arguments = (
        reading.tag,
        after.generation,
        after.phase.value,
        by,
        events,
        _kept(events),
        *(part for field in fields.items() for part in field),
    )
    return Command(script("group", "forget"), keys.script_keys(), arguments, bool)
