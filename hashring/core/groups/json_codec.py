"""Terms, decisions, facts, views and tables of leases as JSON text, as they stand in Redis."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

from hashring.core.assignors.situation import is_weight
from hashring.core.groups.lease_challenge import LeaseTable, PartitionLease
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

# For a deadline: commit.lua replaces it, in quotes, by a time. It is no name: those have no control
# characters.
_DEADLINE_FROM_COMMIT: Final = "\0deadline"

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


def _from_commit_on(value: Any) -> float:
    return math.inf if value == _FROM_COMMIT else _seconds(value)


def _deadline(value: Any) -> float:
    return math.inf if value == _DEADLINE_FROM_COMMIT else _seconds(value)


def _dumped_deadline(deadline: float) -> float | str:
    return _DEADLINE_FROM_COMMIT if deadline == math.inf else deadline


def _handoff_row(handoff: Handoff) -> list[Any]:
    row = vars(handoff) | {"deadline": _dumped_deadline(handoff.deadline)}
    return [*row.values()]


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


def _counts_by_partition(mapping: Any) -> dict[int, int]:
    """Like :func:`_by_partition`, at the speed of whole numbers: there may be very many."""
    body = _a(dict, mapping)
    return dict(zip(_counts([*map(int, body)]), _counts([*body.values()]), strict=True))


def _names(values: Any) -> tuple[str, ...]:
    return tuple(_only(_a(list, values), str))


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


def _as_is(value: Any) -> Any:
    return value


class _Form(NamedTuple):
    """How a value is read from what JSON has, and what JSON has of it."""

    load: Callable[[Any], Any]
    dump: Callable[[Any], Any] = _as_is


_TEXT: Final = _Form(partial(_a, str))
_FLAG: Final = _Form(partial(_a, bool))
_COUNT: Final = _Form(_count)
_SECONDS: Final = _Form(_seconds)
_WEIGHT: Final = _Form(_weight)
_COUNTS: Final = _Form(_counts_by_partition)
_UNTIL: Final = _Form(_from_commit_on, lambda until: _FROM_COMMIT if until == math.inf else until)
_NUMBERS: Final = _Form(lambda numbers: tuple(_counts(numbers)))
_NUMBER_SET: Final = _Form(lambda numbers: frozenset(_counts(numbers)), sorted)


def _or_none(form: _Form) -> _Form:
    return _Form(
        lambda value: None if value is None else form.load(value),
        lambda value: None if value is None else form.dump(value),
    )


# A member or nobody, and a time or never.
_NAME: Final = _or_none(_TEXT)
_SECONDS_OR_NONE: Final = _or_none(_SECONDS)


def _by_name(form: _Form) -> _Form:
    return _Form(
        lambda body: {name: form.load(value) for name, value in _a(dict, body).items()},
        dict
        if form.dump is _as_is
        else lambda values: {name: form.dump(value) for name, value in values.items()},
    )


def _by_partition(form: _Form) -> _Form:
    return _Form(
        lambda body: {_count(int(p)): form.load(value) for p, value in _a(dict, body).items()},
        _by_name(form).dump,
    )


def _row(kind: Callable[..., Any], *forms: _Form) -> _Form:
    """A dataclass as a list of all its fields, in the order in which it has them."""
    loads = [form.load for form in forms]
    return _Form(
        lambda row: kind(*(load(part) for load, part in zip(loads, _a(list, row), strict=True))),
        lambda value: [*vars(value).values()],
    )


_Fields = Mapping[str, _Form]
"""The fields of a dataclass that stand in a JSON object, under their names."""


def _dumped(value: Any, fields: _Fields) -> dict[str, Any]:
    return {name: form.dump(getattr(value, name)) for name, form in fields.items()}


def _loaded(body: Any, fields: _Fields) -> dict[str, Any]:
    return {name: form.load(body[name]) for name, form in fields.items()}


def _loaded_if_there(body: Any, fields: _Fields) -> dict[str, Any]:
    return _loaded(body, {name: form for name, form in fields.items() if name in body})


_FACTS: Final[_Fields] = {
    "session": _TEXT,
    "weight": _WEIGHT,
    "seen": _COUNT,
    "leaving": _SECONDS_OR_NONE,
    "stalled": _FLAG,
    "released": _COUNTS,
    "drained": _COUNTS,
    "lags": _by_partition(_SECONDS),
    "claims": _COUNTS,
    "loads": _by_partition(_Form(_load)),
    "lease": _Form(lambda value: float(_seconds(value))),
    "turn": _COUNT,
    "stopping": _FLAG,
}

_TABLE: Final[_Fields] = {
    "partitions": _COUNT,
    "leases": _by_partition(
        _row(PartitionLease, _NAME, _COUNT, _SECONDS, _SECONDS, _NAME, _SECONDS_OR_NONE)
    ),
    "members": _by_name(_SECONDS),
    "token": _COUNT,
    "quiet_until": _SECONDS,
    "ttl": _SECONDS,
}

# Earlier versions write none.
_TABLE_TIME: Final[_Fields] = {"as_of": _SECONDS}

_EVENT: Final[_Fields] = {
    "member": _NAME,
    "partition": _or_none(_COUNT),
    "to": _NAME,
    "why": _TEXT,
}

# Parts without a change are left out.
_VIEW: Final[_Fields] = {
    # Two lists: there may be thousands, and numbers are read and written fastest so.
    "held": _Form(_held, lambda held: [[*held], [*held.values()]] if held else None),
    "not_held": _NUMBERS,
    "revoked": _by_partition(_Form(_seconds, _dumped_deadline)),
    "not_revoked": _NUMBERS,
    "warming": _NUMBERS,
    "not_warming": _NUMBERS,
    "draining": _NUMBERS,
    "not_draining": _NUMBERS,
}


# --- decisions ----------------------------------------------------------------------------------
#
# A state stands in Redis in fields of their own for what changes at its own pace, so that a
# decision writes, and its readers read, what it has changed:
#
# - "core": what every decision changes, and what is about partitions on their way;
# - one field for each of _PARTS;
# - "0", "1", ...: owners and tokens of 64 partitions each.

_CORE: Final = "core"

_HANDOFF: Final = _row(Handoff, _TEXT, _TEXT, _COUNT, _Form(_deadline), _SECONDS_OR_NONE)

_CORE_FIELDS: Final[_Fields] = {
    "generation": _COUNT,
    "holddown": _or_none(_row(Holddown, _SECONDS, _SECONDS)),
    "settled": _COUNT,
    "handoffs": _by_partition(_Form(_HANDOFF.load, _handoff_row)),
    "warming": _by_partition(_TEXT),
    "token": _COUNT,
    "recovering": _or_none(_UNTIL),
    "longest_ttl": _SECONDS,
    "longest_until": _UNTIL,
    "load_moves": _Form(lambda moves: tuple(map(_seconds, _a(list, moves)))),
}

_PARTS: Final[_Fields] = {
    "terms": _Form(_terms, vars),
    "roster": _by_name(_row(Seat, _COUNT, _TEXT, _SECONDS, _WEIGHT)),
    "free": _NUMBER_SET,
    "draining": _NUMBER_SET,
    "standbys": _by_partition(_Form(_names, list)),
    "orders": _by_name(
        _row(MemberOrder, _TEXT, _SECONDS, _FLAG, _SECONDS_OR_NONE, _or_none(_WEIGHT), _TEXT)
    ),
}


def _whole(what: str, text: str | bytes, read: Callable[[Any], T], why: str = "is not whole") -> T:
    """What a text says.

    Raises:
        GroupFormatError: it is not JSON, or not of that.
    """
    try:
        return read(json.loads(text))
    except _NOT_WHOLE as error:
        raise GroupFormatError(what, text, why) from error


def dump_terms(terms: Terms) -> str:
    """Terms as JSON text."""
    return json.dumps(vars(terms), sort_keys=True)


def load_terms(text: str | bytes) -> Terms:
    """Terms from JSON text.

    Raises:
        GroupFormatError: the text holds none.
    """
    return _whole("terms", text, _terms, "are not whole")


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
    core = {"v": VERSION, "size": len(state.owners), "phase": state.phase.value}
    fields = {_CORE: _dumps(core | _dumped(state, _CORE_FIELDS))}
    for name, form in _PARTS.items():
        value = getattr(state, name)
        if before is None or getattr(before, name) != value:
            fields[name] = _dumps(form.dump(value))
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
        for name, form in _PARTS.items():
            if name in fields or known is None:
                text = fields[name]
                parts[name] = form.load(json.loads(text))
            else:
                parts[name] = getattr(known, name)
        owners, tokens = _buckets(_count(core["size"]), fields, known)
        if not parts["terms"].partitions <= len(owners):
            raise ValueError("partitions without owner or token")
        return GroupState(
            phase=GroupPhase(core["phase"]),
            owners=owners,
            tokens=tokens,
            **parts,
            **_loaded(core, _CORE_FIELDS),
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
    return _dumps(_dumped(facts, _FACTS))


def load_facts(name: str, joined: int, expires: float, text: str | bytes) -> MemberFacts:
    """What a member reported.

    Raises:
        GroupFormatError: the text is no report.
    """
    fields = _whole(f"report of member {name!r}", text, _report)
    return MemberFacts(name, joined=joined, expires=expires, **fields)


def _report(body: Any) -> dict[str, Any]:
    """The fields of a report; another version may have more of them, or fewer."""
    return {"session": _FACTS["session"].load(body["session"]), **_loaded_if_there(body, _FACTS)}


def dump_view_change(change: ViewChange) -> str:
    """A change of a view; parts without one are left out."""
    return _dumps({name: part for name, part in _dumped(change, _VIEW).items() if part})


def load_view_change(text: str | bytes) -> ViewChange:
    """A change of a view.

    Raises:
        GroupFormatError: the text is none.
    """
    return ViewChange(**_whole("view", text, lambda body: _loaded_if_there(_a(dict, body), _VIEW)))


def dump_events(events: tuple[GroupEvent, ...]) -> str:
    """Events as a list of those of their parts that say something."""
    return _dumps(
        [
            {"kind": event.kind.value}
            | {
                part: value
                for part, value in _dumped(event, _EVENT).items()
                if value not in (None, "")
            }
            for event in events
        ]
    )


def load_events(text: str | bytes) -> tuple[GroupEvent, ...]:
    """Events; those of kinds this version does not know are left out.

    Raises:
        GroupFormatError: the text is no list of events.
    """
    known = {kind.value for kind in EventKind}

    def read(body: Any) -> tuple[GroupEvent, ...]:
        return tuple(
            GroupEvent(EventKind(each["kind"]), **_loaded_if_there(each, _EVENT))
            for each in body
            if each["kind"] in known
        )

    return _whole("events", text, read, "are not whole")


def dump_table(table: LeaseTable) -> str:
    """The leases of a lease challenge."""
    return _dumps(_dumped(table, {**_TABLE, **_TABLE_TIME}))


def load_table(text: str | bytes) -> LeaseTable:
    """The leases of a lease challenge.

    Raises:
        GroupFormatError: the text is no table.
    """

    def read(body: Any) -> LeaseTable:
        return LeaseTable(**_loaded(body, _TABLE), **_loaded_if_there(body, _TABLE_TIME))

    return _whole("table", text, read)
