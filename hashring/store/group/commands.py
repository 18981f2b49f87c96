"""What can be asked of a partition group in Redis, and what it answers."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any, Final

from hashring.core.groups.json_codec import (
    dump_events,
    dump_facts,
    dump_state,
    dump_terms,
    dump_view_change,
    load_events,
    load_facts,
    load_state,
    load_terms,
    load_view_change,
)
from hashring.core.groups.next_state import StepOutcome, deputies
from hashring.core.groups.state import (
    Facts,
    GroupEvent,
    GroupPhase,
    GroupState,
    MemberFacts,
    MemberView,
    Terms,
)
from hashring.core.groups.view_changes import ViewChange, changed_view, changed_views
from hashring.errors import GroupFormatError
from hashring.store.command import Argument, Command, pairs
from hashring.store.interface import RedisCaller
from hashring.store.lua_scripts import script
from hashring.store.ring_and_group_names import tagged

DECISIONS_KEPT: Final = 1000
"""About how many decisions the history of a group keeps, unless they are large."""

HISTORY_BYTES: Final = 64 * 2**20
"""About how large the history of a group becomes: it keeps fewer decisions if these are large."""

_FEWEST_KEPT: Final = 10
"""Decisions that a history keeps however large they are: readers look at the last few."""

_FAR: Final = 1e12
"""Seconds since 1970 of a lease that ends later than any."""

CLAIM: Final = 0.5
"""Seconds that one member has for a step before the next is asked for it."""

STEP: Final = b"step"
"""The message that asks a member to take the next step."""

_RECORD: Final = re.compile(rb"([0-9a-fA-F]+) ([0-9]{1,15}) ")
"""What an entry of a member begins with, as the scripts know it; see ``_head.lua``."""

_FIELD: Final = b"="
"""What names of fields of a state begin with in Redis."""

WATCHERS: Final = 3
"""How many members wait for the time of the next step, besides the one that decided on it."""


@dataclass(frozen=True)
class GroupKeys:
    """The key names of one group, as bytes; all in one hash slot.

    Attributes:
        state, members, leases, views, control: see ``_head.lua``.
    """

    state: bytes
    members: bytes
    leases: bytes
    views: bytes
    control: bytes

    @property
    def channel(self) -> bytes:
        """The channel of those who watch the group: the tags of decisions."""
        return self.control

    def member_channel(self, member: str) -> bytes:
        """The channel of messages to one member: the tags of decisions, and :data:`STEP`."""
        return self.control.removesuffix(b"control") + b"to:" + member.encode()

    def script_keys(self) -> tuple[bytes, ...]:
        """The KEYS of every script, in their order."""
        return (self.state, self.members, self.leases, self.views, self.control)


def group_keys(name: str | bytes) -> GroupKeys:
    """The keys of the group of that name. A ring may have the same name.

    Raises:
        ConfigError: the name cannot be one: see :func:`hashring.store.ring_and_group_names.tagged`.
    """
    base = tagged("group", name) + b":group:"
    return GroupKeys(
        *(base + part for part in (b"state", b"members", b"leases", b"views", b"control"))
    )


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


def join(
    keys: GroupKeys, facts: MemberFacts, terms: Terms, before: str = ""
) -> Command[Joined | Taken]:
    """Join as a new session.

    Args:
        facts: ``joined`` and ``expires`` are ignored: Redis sets them.
        terms: the member's; they become the group's when it has none.
        before: this process' own earlier session, whose name it may take.
    """

    def read(raw: Any) -> Joined | Taken:
        if raw[0] == b"taken":
            return Taken(float(raw[1]))
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
            reports: as for :func:`read`.

        Raises:
            GroupFormatError: what stands in Redis cannot be read.
        """
        return _reading(self.raw, self.since, known, reports)


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
        return _parted(self.tag)[0]


def _parted(tag: str) -> tuple[int, float]:
    """The generation of a tag, and when it was committed; zeros when there was no decision yet."""
    generation, _, at = tag.partition(":")
    try:
        return int(generation or 0), int(at or 0) / 1e6
    except ValueError as error:
        raise GroupFormatError("tag", tag, "is none") from error


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
        generation, _ = _parted(tag)
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
class Reading:
    """A group at one instant.

    Attributes:
        tag: names the decision that stands, or before the first the group; empty when no member
            ever joined.
        state: the decision; ``None`` before the first.
        facts: all members' reports.
        changes: counts changes of facts.
        terms: the group's; ``None`` when no member ever joined.
        garbage: members whose report cannot be read. Those whose lease stands are among the facts
            as unreadable.
        server: the run of the Redis server that was recorded last; empty when none was.
    """

    tag: str
    state: GroupState | None
    facts: Facts
    changes: int
    terms: Terms | None
    garbage: tuple[str, ...]
    server: str

    def standing(self) -> GroupState | None:
        """The decision that stands, or the state of a group before its first."""
        if self.state is None and self.terms is not None:
            return replace(GroupState.new(self.terms), server=self.server)
        return self.state


def looked_at(reading: Reading) -> str:
    """The Redis time of a reading, as a commit states it."""
    return f"{reading.facts.now:.6f}"


Reports = dict[bytes, tuple[bytes, MemberFacts]]
"""Members' reports as they were read, each with its text."""


def read(
    keys: GroupKeys,
    known_tag: str = "",
    known: GroupState | None = None,
    reports: Reports | None = None,
) -> Command[Reading]:
    """Read everything at one instant, and write nothing.

    Args:
        known_tag, known: an earlier decision; what has not changed since is not read again.
        reports: those of an earlier reading, which are not parsed again if their text is the same.
            They are replaced by those of this one.
    """
    parsed: Reports = {} if reports is None else reports
    return Command(
        script("group", "read"),
        keys.script_keys(),
        (known_tag,),
        lambda raw: _reading(raw, known_tag, known, parsed),
    )


def _reading(raw: Any, known_tag: str, known: GroupState | None, parsed: Reports) -> Reading:
    at, tag_, whole, stored, changes, terms, told, leases, server_, run = raw
    server = server_.decode("utf-8", "replace")
    tag = tag_.decode("utf-8", "replace")
    generation, committed = _parted(tag)
    # A score written by hand may be infinite.
    until = {name: min(float(score), _FAR) for name, score in pairs(leases)}
    members, unreadable, garbage, before = [], [], [], parsed.copy()
    parsed.clear()
    for name, entry in pairs(told):
        try:
            text, facts = before.get(name) or (entry, _report(name, entry))
            if text != entry:
                facts = _report(name, entry)
            parsed[name] = entry, facts
            members.append(replace(facts, expires=until.get(name, 0.0)))
        except (GroupFormatError, ValueError):
            garbage.append(name.decode("utf-8", "replace"))
            unreadable.append((name, entry))
    # Leaving removes both. So a lease without an entry is of a member in the group.
    unreadable += [(name, b"") for name in until.keys() - set(told[::2])]
    # What is known of a group without a decision stands nowhere.
    state = known if generation and not whole else None
    if generation and (state is None or tag != known_tag):
        fields = {
            name[1:].decode("utf-8", "replace"): text
            for name, text in pairs(stored)
            if name.startswith(_FIELD)
        }
        state = load_state(fields, committed, state)
    return Reading(
        tag,
        _served(state, server),
        Facts(
            int(at) / 1e6,
            tuple(members),
            run.decode("utf-8", "replace"),
            tuple(
                _unreadable(name, entry, until[name])
                for name, entry in sorted(unreadable)
                if name in until
            ),
        ),
        int(changes),
        load_terms(terms) if terms else None,
        tuple(garbage),
        server,
    )


def _report(name: bytes, entry: bytes) -> MemberFacts:
    """What an entry says, but for when the member's lease ends.

    Raises:
        GroupFormatError, ValueError: it is no report.
    """
    session, joined, report = entry.split(b" ", 2)
    facts = load_facts(name.decode("utf-8", "replace"), int(joined), 0.0, report)
    if facts.session.encode() != session:
        # Redis renews the lease of the session that it has, whatever the report says.
        raise ValueError("a report of another session")
    return facts


def _unreadable(name: bytes, entry: bytes, expires: float) -> MemberFacts:
    """What Redis itself has of a member; without a session if the entry has none."""
    begins = _RECORD.match(entry)
    session, joined = ("", 0) if begins is None else (begins[1].decode(), int(begins[2]))
    return MemberFacts(name.decode("utf-8", "replace"), session, joined, expires)


def _served(state: GroupState | None, server: str) -> GroupState | None:
    """The state with the run of Redis that stands beside it; the same object if it has it."""
    if state is None or state.server == server:
        return state
    return replace(state, server=server)


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
        outcome: what :func:`hashring.core.groups.next_state.forget` makes of the reading.
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


@dataclass(frozen=True)
class Decision:
    """An entry of a group's history.

    Attributes:
        id: the stream's id; its first part is Redis time in milliseconds.
        generation: the decision's number.
        phase: the group's from then on.
        by: who decided.
        events: what the decision consists of.
    """

    id: str
    generation: int
    phase: str
    by: str
    events: tuple[GroupEvent, ...]

    @property
    def at(self) -> float:
        """Redis time in seconds since 1970."""
        return int(self.id.partition("-")[0]) / 1000


def newest_decisions(redis: RedisCaller, keys: GroupKeys, count: int) -> list[Decision]:
    """The last ``count`` decisions of a group, newest first.

    Raises:
        StoreError: they could not be read.
        GroupFormatError: an entry is none.
    """
    entries = redis.call("XREVRANGE", keys.control, "+", "-", "COUNT", count)
    return [read_decision(entry) for entry in entries]


def read_decision(entry: Any) -> Decision:
    """The decision that a raw stream entry ``(id, fields)`` is.

    Raises:
        GroupFormatError: it is none.
    """
    id_, fields = entry
    fields = dict(pairs(fields))
    try:
        return Decision(
            id_.decode(),
            int(fields[b"generation"]),
            fields[b"phase"].decode(),
            fields[b"by"].decode("utf-8", "replace"),
            load_events(fields[b"events"]),
        )
    except (KeyError, ValueError) as error:
        raise GroupFormatError("history", fields, "is not whole") from error
