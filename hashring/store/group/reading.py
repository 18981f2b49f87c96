"""What stands in Redis of a partition group, read at one instant."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any, Final

from hashring.core.groups.json_codec import load_facts, load_state, load_terms
from hashring.core.groups.state import Facts, GroupState, MemberFacts, Terms
from hashring.errors import GroupFormatError
from hashring.store.command import Command, pairs
from hashring.store.group.key_names import GroupKeys
from hashring.store.lua_scripts import script

_FAR: Final = 1e12
"""Seconds since 1970 of a lease that ends later than any."""

_RECORD: Final = re.compile(rb"([0-9a-fA-F]+) ([0-9]{1,15}) ")
"""What an entry of a member begins with, as the scripts know it; see ``_head.lua``."""

_FIELD: Final = b"="
"""What names of fields of a state begin with in Redis."""


def parted(tag: str) -> tuple[int, float]:
    """The generation of a tag, and when it was committed; zeros when there was no decision yet."""
    generation, _, at = tag.partition(":")
    try:
        return int(generation or 0), int(at or 0) / 1e6
    except ValueError as error:
        raise GroupFormatError("tag", tag, "is none") from error


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
        lambda raw: parse_reading(raw, known_tag, known, parsed),
    )


def parse_reading(raw: Any, known_tag: str, known: GroupState | None, parsed: Reports) -> Reading:
    """The group that a raw answer of ``read.lua`` is; the arguments are those of :func:`read`.

    Raises:
        GroupFormatError: what stands in Redis cannot be read.
    """
    at, tag_, whole, stored, changes, terms, told, leases, server_, run = raw
    server = server_.decode("utf-8", "replace")
    tag = tag_.decode("utf-8", "replace")
    generation, committed = parted(tag)
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
