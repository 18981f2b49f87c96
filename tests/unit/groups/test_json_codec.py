"""What stands in Redis as JSON is read as it was written, or refused: never half believed."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hashring.core.groups.json_codec import (
    dump_facts,
    dump_state,
    dump_table,
    dump_view_change,
    load_facts,
    load_state,
    load_table,
    load_terms,
    load_view_change,
)
from hashring.core.groups.lease_challenge import LeaseTable, PartitionLease
from hashring.core.groups.partition_column import Column
from hashring.core.groups.state import (
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
from hashring.errors import GroupFormatError

STATE = GroupState(
    Terms(4, "learner", handoffs=2),
    generation=7,
    phase=GroupPhase.REBALANCING,
    holddown=Holddown(1.5, 2.5),
    roster={"a": Seat(1, "session", 3.5, 2.0), "b": Seat(2, "other")},
    settled=2,
    owners=Column(("a", "b", "b", None, "a")),
    tokens=Column((3, 4, 5, 0, 6)),
    free=frozenset({3}),
    handoffs={1: Handoff("b", "a", 6, 9.5, 11.5)},
    warming={2: "a"},
    standbys={0: ("b",)},
    draining=frozenset({4}),
    token=6,
    recovering=12.5,
    committed=4.5,
    longest_ttl=20.5,
    load_moves=(3.5,),
    orders={
        "a": MemberOrder("ops", 1.5, True, 99.5, 2.0),
        "z": MemberOrder("ops", 1.5, True, 3.5, 0.5, "dev"),
    },
)
FACTS = MemberFacts("a", "session", 1, 2.0, 1.5, 7, 3.5, True, {0: 3}, {4: 6}, {2: 0.5}, {1: 4})
VIEW = ViewChange({0: 3}, (1,), {0: 9.5}, (1,), (2,), (3,), (4,), (5,))
TABLE = LeaseTable(
    3, {0: PartitionLease("a", 3, 9.5, 1.5, "b", 4.5)}, {"a": 9.5, "b": 8.5}, 3, 2.5, 1.5
)


def as_text(fields: dict[str, str]) -> str:
    """All fields of a state in one text."""
    return json.dumps({name: json.loads(text) for name, text in fields.items()})


def as_fields(text: str) -> dict[str, str | bytes]:
    return {name: json.dumps(body) for name, body in json.loads(text).items()}


TEXTS: dict[str, tuple[str, Any, Callable[[str], object]]] = {
    "state": (as_text(dump_state(STATE)), STATE, lambda text: load_state(as_fields(text), 4.5)),
    "report": (dump_facts(FACTS), FACTS, lambda text: load_facts("a", 1, 2.0, text)),
    "view": (dump_view_change(VIEW), VIEW, load_view_change),
    "table": (dump_table(TABLE), TABLE, load_table),
}

# What may be nothing at all.
OPTIONAL = [("core", "holddown"), ("core", "recovering"), ("leaving",)]
OPTIONAL += [("core", "handoffs", "1", 4)]
OPTIONAL += [("orders", name, number) for name in "az" for number in (3, 4)]
OPTIONAL += [("leases", "0", number) for number in (0, 4, 5)]

other_values = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3)
other_values |= st.lists(other_values, max_size=3)
other_values |= st.dictionaries(st.text(max_size=3), other_values, max_size=3)


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where there is a value in JSON, the whole but for itself."""
    inner = value.items() if isinstance(value, dict) else ()
    inner = enumerate(value) if isinstance(value, list) else inner
    for key, each in inner:
        yield (*path, key)
        yield from places(each, (*path, key))


def replaced(body: Any, path: tuple[Any, ...], value: Any) -> Any:
    if not path:
        return value
    copy = dict(body) if isinstance(body, dict) else list(body)
    copy[path[0]] = replaced(body[path[0]], path[1:], value)
    return copy


def at(body: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        body = body[key]
    return body


def kind(value: Any) -> type:
    return float if type(value) is int else type(value)


@pytest.mark.parametrize("what", TEXTS)
def test_what_was_written_is_read(what: str) -> None:
    text, value, load = TEXTS[what]
    assert load(text) == value


def test_standbys_stand_there_as_a_list_whatever_collection_they_are_in() -> None:
    odd: Any = {0: {"b": 0.5}}
    assert load_state(dump_state(replace(STATE, standbys=odd)), 4.5) == STATE


@pytest.mark.parametrize("what", TEXTS)
@given(data=st.data())
def test_a_value_of_another_type_is_refused_wherever_it_is(what: str, data: st.DataObject) -> None:
    text, _, load = TEXTS[what]
    body = json.loads(text)
    path = data.draw(st.sampled_from(list(places(body))), label="where")
    known = kind(at(body, path))
    other = data.draw(
        other_values.filter(
            lambda value: kind(value) is not known and not (value is None and path in OPTIONAL)
        ),
        label="instead",
    )
    with pytest.raises(GroupFormatError, match=what):
        load(json.dumps(replaced(body, path, other)))


# A change of a view says nothing of what stays as it is.
@pytest.mark.parametrize("what", [what for what in TEXTS if what != "view"])
@given(data=st.data())
def test_a_part_that_is_missing_is_refused(what: str, data: st.DataObject) -> None:
    text, _, load = TEXTS[what]
    body = json.loads(text)
    # What a report lacks, an older version did not know; so it is with the time of a table.
    needed = ["session"] if what == "report" else sorted(body.keys() - {"as_of"})
    del body[data.draw(st.sampled_from(needed))]
    with pytest.raises(GroupFormatError, match=what):
        load(json.dumps(body))


@pytest.mark.parametrize(
    ("what", "path", "value"),
    [
        ("state", ("0", 2), [3, 4, 5, 0]),
        ("state", ("0", 0), [0, 1, 1]),
        ("state", ("0", 0, 0), 2),
        ("state", ("0", 2, 0), 3.0),
        ("state", ("0",), [[], [], []]),
        ("state", ("core", "size"), 10**9),
        ("state", ("free", 0), -1),
        ("state", ("core", "generation"), 7.5),
        ("state", ("core", "longest_ttl"), float("inf")),
        ("state", ("terms", "ttl"), -1),
        ("state", ("core", "phase"), "Resting"),
        ("state", ("core", "warming"), {"-1": "a"}),
        ("state", ("core", "handoffs", "1"), ["b", "a", 6, 9.5]),
        ("report", ("weight",), float("nan")),
        ("report", ("lags",), {"2": float("inf")}),
        ("report", ("released",), {"one": 3}),
        ("view", ("held",), {"0": 3.5}),
        ("table", ("partitions",), 0),
        ("table", ("leases", "0"), ["a", 3, 9.5]),
    ],
)
def test_a_value_that_cannot_be_is_refused(what: str, path: tuple[Any, ...], value: Any) -> None:
    text, _, load = TEXTS[what]
    with pytest.raises(GroupFormatError, match=what):
        load(json.dumps(replaced(json.loads(text), path, value)))


def test_terms_with_an_assignor_that_is_no_name_are_refused() -> None:
    with pytest.raises(GroupFormatError, match="terms"):
        load_terms('{"partitions": 4, "assignor": 5}')


def test_a_recovery_of_which_the_commit_is_not_known_yet_comes_back_with_it() -> None:
    begun = replace(STATE, recovering=math.inf)
    assert load_state(dump_state(begun), 4.5).recovering == 4.5 + begun.longest_lease


def test_a_state_is_written_by_what_it_changes_and_read_with_what_was_known() -> None:
    before = GroupState.new(Terms(1000, rebalance_delay=0.0))
    owners = before.owners.with_({130: "a"})
    after = replace(before, owners=owners, generation=1, free=before.free - {130})
    changed = dump_state(after, before)
    assert sorted(changed) == ["2", "core", "free"]
    assert load_state(changed, 4.5, before) == load_state(dump_state(after), 4.5)


def test_a_state_that_has_fewer_partitions_says_which_fields_are_no_more() -> None:
    before = GroupState.new(Terms(1000))
    terms = Terms(128)
    after = replace(
        before, terms=terms, owners=before.owners.sized(128, None), tokens=Column([0] * 128)
    )
    gone = {name for name, text in dump_state(after, before).items() if not text}
    assert gone == {str(number) for number in range(2, 16)}


def test_a_report_of_an_adjacent_version_is_read() -> None:
    body = json.loads(dump_facts(FACTS))
    newer = json.dumps({**body, "what is to come": {"1": 2}})
    assert load_facts("a", 1, 2.0, newer) == FACTS
    older = json.dumps({name: body[name] for name in body if name not in ("stopping", "claims")})
    assert load_facts("a", 1, 2.0, older) == replace(FACTS, claims={}, stopping=False)
    with pytest.raises(GroupFormatError):
        load_facts("a", 1, 2.0, "{}")
