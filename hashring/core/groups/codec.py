"""Decisions, facts, views and tables of leases as JSON text, as they stand in Redis."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable
from dataclasses import asdict
from functools import partial
from typing import Any, Final, TypeVar

from hashring.core.assignors.protocol import Owners, is_finite
from hashring.core.groups.challenge import LeaseTable, PartitionLease
from hashring.core.groups.loads import GREATEST
from hashring.core.groups.state import (
    EventKind,
    GroupEvent,
    GroupState,
    Handoff,
    Holddown,
    MemberFacts,
    MemberOrder,
    MemberView,
    Phase,
    Seat,
    Terms,
)
from hashring.errors import GroupFormatError

T = TypeVar("T")

VERSION: Final = 1

# For a recovery: one lease from the commit on, whose time is not known when the state is written.
_FROM_COMMIT: Final = "commit"

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


# JSON that is whole may still be of other types: whatever is read goes through one of these, which
# raise one of `_NOT_WHOLE`. Of types alone, and by `type` in bulk: a state may have a million
# partitions, and `bool` is a kind of `int`.


def _only(values: Iterable[T], *kinds: type) -> Iterable[T]:
    if not set(map(type, values)) <= set(kinds):
        raise TypeError(f"not only {kinds}")
    return values


def _a(kind: type[T], value: Any) -> T:
    if type(value) is not kind:
        raise TypeError(f"no {kind}")
    return value


def _counts(values: Any) -> list[int]:
    """A list of whole numbers, none below 0."""
    if min(_only(_a(list, values), int), default=0) < 0:
        raise ValueError("below 0")
    return _a(list, values)


def _count(value: Any) -> int:
    return _counts([value])[0]


def _seconds(value: Any) -> float:
    """Any finite number."""
    if not is_finite(value):
        raise TypeError("no finite number")
    return value  # type: ignore[no-any-return]


def _seconds_or_none(value: Any) -> float | None:
    return None if value is None else _seconds(value)


def _recovering(value: Any) -> float | None:
    return math.inf if value == _FROM_COMMIT else _seconds_or_none(value)


def _by_partition(mapping: Any, read: Callable[[Any], T]) -> dict[int, T]:
    return {_count(int(p)): read(value) for p, value in _a(dict, mapping).items()}


def _counts_by_partition(mapping: Any) -> dict[int, int]:
    """The same for whole numbers, of which there may be as many as partitions."""
    body = _a(dict, mapping)
    return dict(zip(_counts([*map(int, body)]), _counts([*body.values()]), strict=True))


def _load(value: Any) -> float:
    if not 0 <= _seconds(value) < GREATEST:
        raise ValueError("no load")
    return float(value)


def _held(columns: Any) -> dict[int, int]:
    """Partitions with their tokens, from a list of the ones and a list of the others."""
    partitions, tokens = _a(list, columns)
    return dict(zip(_counts(partitions), _counts(tokens), strict=True))


def _names(values: Any) -> tuple[str, ...]:
    return tuple(_only(_a(list, values), str))


def _seat(value: Any) -> Seat:
    place, session, sheds_after, weight = _a(list, value)
    return Seat(_count(place), _a(str, session), _seconds(sheds_after), float(_seconds(weight)))


def _order(value: Any) -> MemberOrder:
    by, since, drained, until, weight = _a(list, value)
    if weight is not None and not _seconds(weight) > 0:
        raise ValueError("no weight")
    return MemberOrder(
        _a(str, by), _seconds(since), _a(bool, drained), _seconds_or_none(until), weight
    )


def _handoff(value: Any) -> Handoff:
    owner, to, generation, deadline, lease_end = _a(list, value)
    return Handoff(
        _a(str, owner),
        _a(str, to),
        _count(generation),
        _seconds(deadline),
        _seconds_or_none(lease_end),
    )


def _lease(value: Any) -> PartitionLease:
    owner, token, expires, since, wanted_by, deadline = _a(list, value)
    return PartitionLease(
        _name_or_none(owner),
        _count(token),
        _seconds(expires),
        _seconds(since),
        _name_or_none(wanted_by),
        _seconds_or_none(deadline),
    )


def _name_or_none(value: Any) -> str | None:
    return None if value is None else _a(str, value)


def _holddown(value: Any) -> Holddown | None:
    if value is None:
        return None
    began, until = _a(list, value)
    return Holddown(_seconds(began), _seconds(until))


def _owners(numbers: Any, names: tuple[str, ...]) -> Owners:
    return tuple(None if n < 0 else names[n] for n in _only(_a(list, numbers), int))


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
            "roster": {
                name: [seat.place, seat.session, seat.sheds_after, seat.weight]
                for name, seat in state.roster.items()
            },
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
            "recovering": _FROM_COMMIT if state.recovering == math.inf else state.recovering,
            "longest_ttl": state.longest_ttl,
            "load_moves": state.load_moves,
            "orders": {
                name: [order.by, order.since, order.drained, order.until, order.weight]
                for name, order in state.orders.items()
            },
        }
    )


def load_state(text: str | bytes, committed: float) -> GroupState:
    """The state that was committed then, its handoffs stamped.

    Raises:
        GroupFormatError: the text is no state of this version.
    """
    try:
        body = json.loads(text)
        if _count(body["v"]) != VERSION:
            raise GroupFormatError("state", text, f"is of version {body['v']}, not {VERSION}")
        terms = Terms(**body["terms"])
        _a(str, terms.assignor)
        owners = _owners(body["owners"], _names(body["names"]))
        tokens = tuple(_counts(body["tokens"]))
        if not terms.partitions <= len(owners) == len(tokens):
            raise ValueError("partitions without owner or token")
        return GroupState(
            terms,
            _count(body["generation"]),
            Phase(body["phase"]),
            _holddown(body["holddown"]),
            {name: _seat(seat) for name, seat in _a(dict, body["roster"]).items()},
            _count(body["settled"]),
            owners,
            tokens,
            frozenset(_counts(body["free"])),
            _by_partition(body["handoffs"], _handoff),
            _by_partition(body["warming"], partial(_a, str)),
            _by_partition(body["standbys"], _names),
            frozenset(_counts(body["draining"])),
            _count(body["token"]),
            _recovering(body["recovering"]),
            longest_ttl=_seconds(body["longest_ttl"]),
            load_moves=tuple(map(_seconds, _a(list, body["load_moves"]))),
            orders={name: _order(order) for name, order in _a(dict, body["orders"]).items()},
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
            "loads": facts.loads,
            "lease": facts.lease,
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
            _a(str, body["session"]),
            joined,
            expires,
            float(_seconds(body["weight"])),
            _count(body["seen"]),
            _seconds_or_none(body["leaving"]),
            _a(bool, body["stalled"]),
            _counts_by_partition(body["released"]),
            _counts_by_partition(body["drained"]),
            _by_partition(body["lags"], _seconds),
            _counts_by_partition(body["claims"]),
            _by_partition(body["loads"], _load),
            float(_seconds(body["lease"])),
        )
    except _NOT_WHOLE as error:
        raise GroupFormatError(f"report of member {name!r}", text, "is not whole") from error


def dump_view(view: MemberView) -> str:
    """A view, but for the generation and the phase, which all views of a group share."""
    return _dumps(
        {
            # Two lists: there may be thousands, and numbers are read and written fastest so.
            "held": [[*view.held], [*view.held.values()]],
            "revoked": view.revoked,
            "warming": sorted(view.warming),
            "draining": sorted(view.draining),
        }
    )


def load_view(generation: int, phase: str, text: str | bytes | None) -> MemberView:
    """A member's view; one without a seat when there is none.

    Raises:
        GroupFormatError: the text is no view.
    """
    try:
        if not text:
            return MemberView(generation, Phase(phase))
        body = json.loads(text)
        return MemberView(
            generation,
            Phase(phase),
            _held(body["held"]),
            _by_partition(body["revoked"], _seconds),
            frozenset(_counts(body["warming"])),
            frozenset(_counts(body["draining"])),
            seated=True,
        )
    except _NOT_WHOLE as error:
        raise GroupFormatError("view", text, "is not whole") from error


def dump_events(events: tuple[GroupEvent, ...]) -> str:
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


def load_events(text: str | bytes) -> tuple[GroupEvent, ...]:
    """Events; those of kinds this version does not know are left out.

    Raises:
        GroupFormatError: the text is no list of events.
    """
    try:
        known = {kind.value for kind in EventKind}
        return tuple(
            GroupEvent(
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


def dump_table(table: LeaseTable) -> str:
    """The leases of a lease challenge."""
    return _dumps(
        {
            "partitions": table.partitions,
            "leases": {
                p: [x.owner, x.token, x.expires, x.since, x.wanted_by, x.deadline]
                for p, x in table.leases.items()
            },
            "members": dict(table.members),
            "token": table.token,
            "quiet_until": table.quiet_until,
        }
    )


def load_table(text: str | bytes) -> LeaseTable:
    """The leases of a lease challenge.

    Raises:
        GroupFormatError: the text is no table.
    """
    try:
        body = json.loads(text)
        return LeaseTable(
            _count(body["partitions"]),
            _by_partition(body["leases"], _lease),
            {name: _seconds(until) for name, until in _a(dict, body["members"]).items()},
            _count(body["token"]),
            _seconds(body["quiet_until"]),
        )
    except _NOT_WHOLE as error:
        raise GroupFormatError("table", text, "is not whole") from error
