"""Decisions, facts and views as JSON text, as they stand in Redis."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Final

from hashring.core.groups.state import (
    Event,
    EventKind,
    GroupState,
    Handoff,
    Holddown,
    MemberFacts,
    Phase,
    Seat,
    Terms,
    View,
)
from hashring.errors import GroupFormatError

VERSION: Final = 1

# What text from Redis may raise that is no JSON, too deep, of other types, or lacks something;
# overflow: JSON's Infinity, which Python reads, is no integer.
_NOT_WHOLE: Final = (
    ValueError,
    KeyError,
    TypeError,
    IndexError,
    AttributeError,
    OverflowError,
    RecursionError,
)


def _dumps(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), sort_keys=True)


def _numbers(mapping: Mapping[str, Any]) -> dict[int, Any]:
    return {int(partition): value for partition, value in mapping.items()}


def dump_state(state: GroupState) -> str:
    """A state, but for when it was committed."""
    names = sorted({name for name in state.owners if name is not None})
    index = {name: number for number, name in enumerate(names)}
    return _dumps(
        {
            "v": VERSION,
            "terms": asdict(state.terms),
            "generation": state.generation,
            "phase": state.phase.value,
            "holddown": state.holddown and [state.holddown.began, state.holddown.until],
            "roster": {n: [s.place, s.session, s.sheds_after] for n, s in state.roster.items()},
            "settled": state.settled,
            "names": names,
            "owners": [-1 if name is None else index[name] for name in state.owners],
            "tokens": state.tokens,
            "free": sorted(state.free),
            "handoffs": {
                p: [h.owner, h.to, h.generation, h.deadline, h.lease_end]
                for p, h in state.handoffs.items()
            },
            "warming": state.warming,
            "standbys": {p: list(names) for p, names in state.standbys.items()},
            "draining": sorted(state.draining),
            "token": state.token,
            "recovering": state.recovering,
            "longest_ttl": state.longest_ttl,
        }
    )


def load_state(text: str | bytes, committed: float) -> GroupState:
    """The state that was committed then, its handoffs stamped.

    Raises:
        GroupFormatError: the text is no state of this version.
    """
    try:
        body = json.loads(text)
        if body["v"] != VERSION:
            raise GroupFormatError("state", text, f"is of version {body['v']}, not {VERSION}")
        names = body["names"]
        return GroupState(
            Terms(**body["terms"]),
            body["generation"],
            Phase(body["phase"]),
            Holddown(*body["holddown"]) if body["holddown"] else None,
            {name: Seat(*seat) for name, seat in body["roster"].items()},
            body["settled"],
            tuple(None if number < 0 else names[number] for number in body["owners"]),
            tuple(body["tokens"]),
            frozenset(body["free"]),
            {p: Handoff(*handoff) for p, handoff in _numbers(body["handoffs"]).items()},
            _numbers(body["warming"]),
            {p: tuple(kept) for p, kept in _numbers(body["standbys"]).items()},
            frozenset(body["draining"]),
            body["token"],
            body["recovering"],
            longest_ttl=body["longest_ttl"],
        ).stamped(committed)
    except _NOT_WHOLE as error:
        if isinstance(error, GroupFormatError):
            raise
        raise GroupFormatError("state", text, "is not a whole state") from error


def dump_facts(facts: MemberFacts) -> str:
    """What a member reports, without what Redis adds: its order of joining and its lease."""
    return _dumps(
        {
            "session": facts.session,
            "weight": facts.weight,
            "seen": facts.seen,
            "leaving": facts.leaving,
            "stalled": facts.stalled,
            "released": facts.released,
            "drained": facts.drained,
            "lags": facts.lags,
            "claims": facts.claims,
        }
    )


def load_facts(name: str, joined: int, expires: float, text: str | bytes) -> MemberFacts:
    """What a member reported.

    Raises:
        GroupFormatError: the text is no report.
    """
    try:
        body = json.loads(text)
        return MemberFacts(
            name,
            body["session"],
            joined,
            expires,
            float(body["weight"]),
            int(body["seen"]),
            body["leaving"],
            bool(body["stalled"]),
            _numbers(body["released"]),
            _numbers(body["drained"]),
            _numbers(body["lags"]),
            _numbers(body["claims"]),
        )
    except _NOT_WHOLE as error:
        raise GroupFormatError(f"report of member {name!r}", text, "is not whole") from error


def dump_view(view: View) -> str:
    """A view, but for the generation and the phase, which all views of a group share."""
    return _dumps(
        {
            "held": view.held,
            "revoked": view.revoked,
            "warming": sorted(view.warming),
            "draining": sorted(view.draining),
        }
    )


def load_view(generation: int, phase: str, text: str | bytes | None) -> View:
    """A member's view; one without a seat when there is none.

    Raises:
        GroupFormatError: the text is no view.
    """
    try:
        if not text:
            return View(generation, Phase(phase))
        body = json.loads(text)
        return View(
            generation,
            Phase(phase),
            _numbers(body["held"]),
            _numbers(body["revoked"]),
            frozenset(body["warming"]),
            frozenset(body["draining"]),
            seated=True,
        )
    except _NOT_WHOLE as error:
        raise GroupFormatError("view", text, "is not whole") from error


def dump_events(events: tuple[Event, ...]) -> str:
    """Events as a list of those of their parts that say something."""
    return _dumps(
        [
            {"kind": event.kind.value}
            | {
                part: value
                for part in ("member", "partition", "to", "why")
                if (value := getattr(event, part)) not in (None, "")
            }
            for event in events
        ]
    )


def load_events(text: str | bytes) -> tuple[Event, ...]:
    """Events; those of kinds this version does not know are left out.

    Raises:
        GroupFormatError: the text is no list of events.
    """
    try:
        known = {kind.value for kind in EventKind}
        return tuple(
            Event(
                EventKind(body["kind"]),
                body.get("member"),
                body.get("partition"),
                body.get("to"),
                body.get("why", ""),
            )
            for body in json.loads(text)
            if body["kind"] in known
        )
    except _NOT_WHOLE as error:
        raise GroupFormatError("events", text, "are not whole") from error
