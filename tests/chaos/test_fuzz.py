"""Whatever is read from Redis, files or channels, readers answer or raise their own error."""

from __future__ import annotations

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hashring.core.groups.json_codec import load_facts, load_state, load_terms, load_view_change
from hashring.core.ring_change_message import parse_change
from hashring.errors import GroupFormatError, MessageFormatError
from hashring.store.faithful_challenge.commands import told_partition
from tests.chaos.fuzz import CHANGES, Target, fuzz, targets

TARGETS = targets()
NAMES = [target.name for target in TARGETS]

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inside: st.lists(inside) | st.dictionaries(st.text(), inside),
    max_leaves=12,
)
QUICK = settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow], database=None
)


@pytest.mark.parametrize("target", TARGETS, ids=NAMES)
def test_damaged_inputs(target: Target) -> None:
    done = fuzz(target, 2000, seed=1)
    assert done.findings == {}
    assert done.inputs == 2000


@given(data=st.binary() | JSON.map(lambda value: json.dumps(value).encode()))
@QUICK
def test_any_bytes_and_any_json(data: bytes) -> None:
    for target in TARGETS:
        target.read(data)


@pytest.mark.parametrize("target", TARGETS[:-1], ids=NAMES[:-1])
def test_the_inputs_to_begin_with_are_read(target: Target) -> None:
    """Else only the first check of a reader would be tested."""
    for seed in target.seeds:
        assert target.read(seed) is not None


def test_a_reader_that_lets_something_else_through_is_found() -> None:
    broken = Target("broken", CHANGES, lambda data: json.loads(data)["nodes"][0])
    done = fuzz(broken, 500, seed=1)
    assert any(kind.startswith("KeyError") for kind in done.findings)
    assert any(kind.startswith("IndexError") for kind in done.findings)


@pytest.mark.parametrize("number", ["Infinity", "-Infinity", "1e999"])
def test_a_change_at_no_time_is_no_change(number: str) -> None:
    text = json.dumps({**json.loads(CHANGES[0]), "at": "?"}).replace('"?"', number)
    with pytest.raises(MessageFormatError, match="is not a whole change"):
        parse_change(text)


@pytest.mark.parametrize(
    "told",
    [{"at": "1" + "0" * 18}, {"epoch": 2**64}, *({name: "\ud800"} for name in ("prev", "reason"))],
)
def test_a_change_that_no_table_can_hold_is_no_change(told: dict[str, object]) -> None:
    with pytest.raises(MessageFormatError, match="is not a whole change"):
        parse_change(json.dumps({**json.loads(CHANGES[0]), **told}))


DEEP = "[" * 100_000


def test_what_a_group_keeps_may_be_nested_too_deeply_to_read() -> None:
    with pytest.raises(GroupFormatError, match="is not a whole state"):
        load_state({"core": DEEP}, 1.0)
    with pytest.raises(GroupFormatError, match="is not whole"):
        load_facts("a", 1, 2.0, DEEP)
    with pytest.raises(GroupFormatError, match="is not whole"):
        load_view_change(DEEP)
    with pytest.raises(GroupFormatError, match="are not whole"):
        load_terms(DEEP)


def test_a_group_cannot_last_for_longer_than_a_float_tells() -> None:
    with pytest.raises(GroupFormatError, match="are not whole"):
        load_terms(json.dumps({"partitions": 4, "ttl": 10**400}))


@pytest.mark.parametrize("payload", [b"", b"4", b"-1", b"x", b"9" * 5000, "٣".encode()])
def test_what_names_no_partition_is_passed_over(payload: bytes) -> None:
    assert told_partition(payload, 4) is None
    assert told_partition(b"3", 4) == 3
