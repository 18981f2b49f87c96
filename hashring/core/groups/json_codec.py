"""Terms, decisions, facts, views and tables of leases as JSON text, as they stand in Redis."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Final, TypeVar

from hashring.core.assignors.protocol import is_weight
from hashring.core.groups.lease_table import LeaseTable, PartitionLease
from hashring.core.groups.partition_column import BUCKET, Column
from hashring.core.groups.reported_loads import GREATEST
from hashring.core.groups.state import (
    MAX_PARTITIONS,
    EventKind,
    GroupEvent,
    GroupPhase,
    GroupState,
    Handoff,
    Holddown,
    MemberFacts,
    MemberOrder,
    Seat,
    Terms,
)
from hashring.core.groups.view_changes import ViewChange
from hashring.core.value_checks import is_finite
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
    return value


def _seconds_or_none(value: Any) -> float | None:
    return None if value is None else _seconds(value)


def _until_from_commit(value: Any) -> float:
    return math.inf if value == _FROM_COMMIT else _seconds(value)


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


def _weight(value: Any) -> float:
    if not is_weight(value):
        raise ValueError("no weight")
    return float(value)


def _held(columns: Any) -> dict[int, int]:
    """Partitions with their tokens, from a list of the ones and a list of the others."""
    partitions, tokens = _a(list, columns)
    return dict(zip(_counts(partitions), _counts(tokens), strict=True))


def _names(values: Any) -> tuple[str, ...]:
    return tuple(_only(_a(list, values), str))


def _seat(value: Any) -> Seat:
    place, session, sheds_after, weight = _a(list, value)
    return Seat(_count(place), _a(str, session), _seconds(sheds_after), _weight(weight))


def _order(value: Any) -> MemberOrder:
    by, since, drained, until, weight, weighed_by = _a(list, value)
    return MemberOrder(
        _a(str, by),
        _seconds(since),
        _a(bool, drained),
        _seconds_or_none(until),
        None if weight is None else _weight(weight),
        _a(str, weighed_by),
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


def _names_by_partition(mapping: Any) -> dict[int, tuple[str, ...]]:
    return _by_partition(mapping, _names)


def _bucket(columns: Any) -> tuple[tuple[str | None, ...], tuple[int, ...]]:
    """Owners and tokens of some partitions in a row."""
    numbers, names, tokens = _a(list, columns)
    known = _names(names)
    owners = tuple(None if n < 0 else known[n] for n in _only(_a(list, numbers), int))
    if not owners or len(owners) != len(_counts(tokens)):
        raise ValueError("partitions without owner or token")
    return owners, tuple(tokens)


def _terms(body: Any) -> Terms:
    terms = Terms(**_a(dict, body))
    _a(str, terms.assignor)
    return terms


# --- decisions ----------------------------------------------------------------------------------
#
# A state stands in Redis in fields of their own for what changes at its own pace, so that a
# decision writes, and its readers read, what it has changed:
#
# - "core": what every decision changes, and what is about partitions on their way;
# - one field for each of _PARTS;
# - "0", "1", ...: owners and tokens of 64 partitions each.

_CORE: Final = "core"

# Names of fields, each with how it is written and how it is read.
_PARTS: Final[Mapping[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]]] = {
    "terms": (vars, _terms),
    "roster": (
        lambda roster: {
            name: [seat.place, seat.session, seat.sheds_after, seat.weight]
            for name, seat in roster.items()
        },
        lambda body: {name: _seat(seat) for name, seat in _a(dict, body).items()},
    ),
    "free": (sorted, lambda body: frozenset(_counts(body))),
    "draining": (sorted, lambda body: frozenset(_counts(body))),
    "standbys": (dict, _names_by_partition),
    "orders": (
        lambda orders: {
            name: [o.by, o.since, o.drained, o.until, o.weight, o.weighed_by]
            for name, o in orders.items()
        },
        lambda body: {name: _order(order) for name, order in _a(dict, body).items()},
    ),
}


def dump_terms(terms: Terms) -> str:
    """Terms as JSON text."""
    return json.dumps(vars(terms), sort_keys=True)


def load_terms(text: str | bytes) -> Terms:
    """Terms from JSON text.

    Raises:
        GroupFormatError: the text holds none.
    """
    try:
        return Terms(**json.loads(text))
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        raise GroupFormatError("terms", text, "are not whole") from error


def _dump_core(state: GroupState) -> str:
    return _dumps(
        {
            "v": VERSION,
            "generation": state.generation,
            "phase": state.phase.value,
            "holddown": state.holddown and [state.holddown.began, state.holddown.until],
            "settled": state.settled,
            "size": len(state.owners),
            "handoffs": {
                p: [h.owner, h.to, h.generation, h.deadline, h.lease_end]
                for p, h in state.handoffs.items()
            },
            "warming": state.warming,
            "token": state.token,
            "recovering": _FROM_COMMIT if state.recovering == math.inf else state.recovering,
            "longest_ttl": state.longest_ttl,
            "longest_until": _FROM_COMMIT
            if state.longest_until == math.inf
            else state.longest_until,
            "load_moves": state.load_moves,
        }
    )


def _dump_bucket(owners: tuple[str | None, ...], tokens: tuple[int, ...]) -> str:
    names = sorted({name for name in owners if name is not None})
    index: dict[str | None, int] = {name: number for number, name in enumerate(names)}
    index[None] = -1
    return _dumps([[index[owner] for owner in owners], names, tokens])


def dump_state(state: GroupState, before: GroupState | None = None) -> dict[str, str]:
    """The fields of a state, but for when it was committed.

    Args:
        before: a state whose fields are there; only those that differ are returned. An empty text
            stands for a field that is no more.
    """
    fields = {_CORE: _dump_core(state)}
    for name, (dump, _) in _PARTS.items():
        value = getattr(state, name)
        if before is None or getattr(before, name) != value:
            fields[name] = _dumps(dump(value))
    nothing: Column[Any] = Column()
    owners, tokens = (nothing, nothing) if before is None else (before.owners, before.tokens)
    changed = {*state.owners.other_buckets(owners), *state.tokens.other_buckets(tokens)}
    for number in sorted(changed):
        fields[str(number)] = (
            _dump_bucket(state.owners.buckets[number], state.tokens.buckets[number])
            if number < len(state.owners.buckets)
            else ""
        )
    return fields


def load_state(
    fields: Mapping[str, str | bytes], committed: float, known: GroupState | None = None
) -> GroupState:
    """The state that was committed then, its handoffs stamped.

    Args:
        known: an earlier state; it has what is not among the fields.

    Raises:
        GroupFormatError: the fields hold no state of this version.
    """
    text: str | bytes = fields.get(_CORE, "")
    try:
        core = json.loads(text)
        if _count(core["v"]) != VERSION:
            raise GroupFormatError("state", text, f"is of version {core['v']}, not {VERSION}")
        parts = {}
        for name, (_, load) in _PARTS.items():
            if name in fields or known is None:
                text = fields[name]
                parts[name] = load(json.loads(text))
            else:
                parts[name] = getattr(known, name)
        owners, tokens = _buckets(_count(core["size"]), fields, known)
        if not parts["terms"].partitions <= len(owners):
            raise ValueError("partitions without owner or token")
        return GroupState(
            generation=_count(core["generation"]),
            phase=GroupPhase(core["phase"]),
            holddown=_holddown(core["holddown"]),
            settled=_count(core["settled"]),
            owners=owners,
            tokens=tokens,
            handoffs=_by_partition(core["handoffs"], _handoff),
            warming=_by_partition(core["warming"], partial(_a, str)),
            token=_count(core["token"]),
            recovering=None
            if core["recovering"] is None
            else _until_from_commit(core["recovering"]),
            longest_ttl=_seconds(core["longest_ttl"]),
            longest_until=_until_from_commit(core["longest_until"]),
            load_moves=tuple(map(_seconds, _a(list, core["load_moves"]))),
            **parts,
        ).stamped(committed)
    except _NOT_WHOLE as error:
        if isinstance(error, GroupFormatError):
            raise
        raise GroupFormatError("state", text, "is not a whole state") from error


def _buckets(
    size: int, fields: Mapping[str, str | bytes], known: GroupState | None
) -> tuple[Column[str | None], Column[int]]:
    if size > MAX_PARTITIONS:
        raise ValueError("too many partitions")
    number = -(-size // BUCKET)
    owners = [] if known is None else [*known.owners.buckets[:number]]
    tokens = [] if known is None else [*known.tokens.buckets[:number]]
    owners += [()] * (number - len(owners))
    tokens += [()] * (number - len(tokens))
    for name, text in fields.items():
        if name.isascii() and name.isdigit() and int(name) < number and text:
            owners[int(name)], tokens[int(name)] = _bucket(json.loads(text))
    if sum(map(len, owners)) != size:
        raise ValueError("partitions without owner or token")
    return Column.of(owners), Column.of(tokens)


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
            "turn": facts.turn,
            "stopping": facts.stopping,
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
            _weight(body["weight"]),
            _count(body["seen"]),
            _seconds_or_none(body["leaving"]),
            _a(bool, body["stalled"]),
            _counts_by_partition(body["released"]),
            _counts_by_partition(body["drained"]),
            _by_partition(body["lags"], _seconds),
            _counts_by_partition(body["claims"]),
            _by_partition(body["loads"], _load),
            float(_seconds(body["lease"])),
            _count(body["turn"]),
            _a(bool, body["stopping"]),
        )
    except _NOT_WHOLE as error:
        raise GroupFormatError(f"report of member {name!r}", text, "is not whole") from error


def dump_view_change(change: ViewChange) -> str:
    """A change of a view; parts without one are left out."""
    body: dict[str, Any] = {
        # Two lists: there may be thousands, and numbers are read and written fastest so.
        "held": [[*change.held], [*change.held.values()]] if change.held else None,
        "not held": change.not_held,
        "revoked": change.revoked,
        "not revoked": change.not_revoked,
        "warming": change.warming,
        "not warming": change.not_warming,
        "draining": change.draining,
        "not draining": change.not_draining,
    }
    return _dumps({part: value for part, value in body.items() if value})


def load_view_change(text: str | bytes) -> ViewChange:
    """A change of a view.

    Raises:
        GroupFormatError: the text is none.
    """
    try:
        body = _a(dict, json.loads(text))
        return ViewChange(
            _held(body["held"]) if "held" in body else {},
            _partitions(body, "not held"),
            _by_partition(body.get("revoked", {}), _seconds),
            _partitions(body, "not revoked"),
            _partitions(body, "warming"),
            _partitions(body, "not warming"),
            _partitions(body, "draining"),
            _partitions(body, "not draining"),
        )
    except _NOT_WHOLE as error:
        raise GroupFormatError("view", text, "is not whole") from error


def _partitions(body: Mapping[str, Any], part: str) -> tuple[int, ...]:
    return tuple(_counts(body.get(part, [])))


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
                _name_or_none(body.get("member")),
                None if (partition := body.get("partition")) is None else _count(partition),
                _name_or_none(body.get("to")),
                _a(str, body.get("why", "")),
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
            "ttl": table.ttl,
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
            _seconds(body["ttl"]),
        )
    except _NOT_WHOLE as error:
        raise GroupFormatError("table", text, "is not whole") from error
