"""The states of a node and of its keys are data: code, table and text say the same."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import pytest

import hashring.protocol.locks
import hashring.protocol.node
from hashring.core.state_table import StateTable
from hashring.protocol.locks import key_states
from hashring.protocol.node import node_states
from hashring.protocol.node.node_states import NodeEvent, NodeState
from hashring.testing.simulator import RingSimulator, own_ranges, random_history, with_drains
from hashring.testing.simulator.ring.history import NodeHistory
from tests.unit.node import (
    test_drain,
    test_lock_histories,
    test_locks,
    test_node_machine,
    test_own_ranges,
)
from tests.unit.node.bookworld import World
from tests.unit.state_assignments import places_that_set

HISTORIES = 250
SEEDS = (197, 124, 120, 74, 63, 62, 15, 11, 8, 4, 1)
"""Histories that went every way of a node when they were chosen; they only save time."""
_S = NodeState
Ways = set[tuple[Any, Any]]


@pytest.fixture
def gone(monkeypatch: pytest.MonkeyPatch) -> Callable[[StateTable[Any, Any]], Ways]:
    """The ways of a table that are gone from now on."""
    found: dict[int, Ways] = {}
    after = StateTable.after

    def noted(self: StateTable[Any, Any], state: Any, event: Any) -> Any:
        found.setdefault(id(self), set()).add((state, event))
        return after(self, state, event)

    monkeypatch.setattr(StateTable, "after", noted)
    return lambda table: found.get(id(table), set())


# --- nodes --------------------------------------------------------------------------------------


@pytest.mark.parametrize("table", [node_states.NODE_LIFE, node_states.SIGHT, node_states.CLAIM])
def test_the_text_shows_the_tables(table: StateTable[Any, Any]) -> None:
    assert table.as_text() in (node_states.__doc__ or "")
    assert list(table.meanings) == list(type(next(iter(table.meanings))))


@pytest.mark.parametrize(
    ("file", "where"),
    [
        ("node_machine.py", ["_enter"]),
        ("ring_sight.py", ["__init__", "see", "start"]),
        ("name_claim.py", ["__init__", "begin_anew", "see"]),
    ],
)
def test_nothing_but_the_tables_moves_a_node(file: str, where: list[str]) -> None:
    places = places_that_set("state", hashring.protocol.node)
    found = [name for place in places for of, name in [place.split(":")] if of == file]
    assert sorted(found) == sorted(where)


def test_a_state_of_a_node_is_set_where_its_table_is_used() -> None:
    files = {place.split(":")[0] for place in places_that_set("state", hashring.protocol.node)}
    assert files == {"node_machine.py", "ring_sight.py", "name_claim.py"}


def test_every_way_of_a_node_is_gone(gone: Callable[[StateTable[Any, Any]], Ways]) -> None:
    # What takes more bad luck than histories have.
    test_node_machine.test_a_ring_that_may_differ_is_read_whatever_else_is_heard()
    test_node_machine.test_a_ring_that_may_differ_is_read_though_missing_messages_come()
    test_node_machine.test_what_happened_until_an_answer_that_came_too_late_is_read()
    test_node_machine.test_a_named_node_whose_name_is_taken_while_it_looks_asks_who_began_first()
    test_own_ranges.test_one_that_came_back_unheard_and_whose_name_was_taken_since_asks_who_began_first()
    # What users do by hand.
    test_node_machine.test_a_running_node_that_is_removed_by_hand_owns_nothing_until_it_is_back()
    test_drain.test_a_drained_node_that_is_removed_by_hand_has_missed_no_deadline()
    # What the histories leave to users: they stop at any time, and start what never stopped.
    by_users: Ways = {(state, NodeEvent.STOP) for state in (_S.NEW, _S.FENCED, _S.LEAVING)}
    by_users |= {(state, NodeEvent.START) for state in NodeState if state is not NodeState.NEW}
    tables = (node_states.NODE_LIFE, node_states.SIGHT, node_states.CLAIM)
    every = {(state, event) for table in tables for state, event, _ in table}
    makes = (random_history, _drained, _of_own_ranges)
    for seed, make in product((*SEEDS, *range(HISTORIES)), makes):
        if by_users.union(*map(gone, tables)) == every:
            return
        RingSimulator().play(make(seed))
    assert by_users.union(*map(gone, tables)) == every


def _drained(seed: int) -> NodeHistory:
    return with_drains(random_history(seed))


def _of_own_ranges(seed: int) -> NodeHistory:
    return own_ranges(random_history(seed))


def test_a_way_that_the_table_does_not_have_is_a_fault() -> None:
    with pytest.raises(LookupError, match="'ttl over' cannot happen while 'leaving'"):
        node_states.NODE_LIFE.after(NodeState.LEAVING, NodeEvent.RAN_OUT)


# --- keys under locks ---------------------------------------------------------------------------


def test_the_text_shows_the_life_of_a_key() -> None:
    assert key_states.KEY_LIFE.as_text() in (key_states.__doc__ or "")


def test_nothing_but_the_table_moves_a_key() -> None:
    assert places_that_set("state", hashring.protocol.locks) == [
        "key_states.py:__init__",
        "key_states.py:_enter",
    ]


def test_every_way_of_a_key_is_gone(gone: Callable[[StateTable[Any, Any]], Ways]) -> None:
    # What takes more bad luck than histories have.
    test_locks.test_a_late_answer_about_a_key_that_another_had_in_between_is_looked_into()
    for told in (
        test_locks.test_a_key_is_not_let_go_for_who_waited_and_went,
        test_locks.test_a_lease_is_lost_when_its_node_leaves_but_its_lock_stands_until_it_is_done,
        test_locks.test_a_lock_whose_release_is_under_way_is_not_held_by_a_late_answer,
        test_locks.test_an_answer_that_comes_after_it_was_given_up_is_looked_into,
        test_locks.test_an_idle_key_is_not_let_go_in_the_moment_it_is_asked_for,
        test_locks.test_what_a_node_waits_for_keeps_its_place_when_the_lock_outlasts_the_wait,
        test_locks.test_only_who_is_nearer_gets_a_key,
    ):
        told(World("a", "b"))
    for wanted, leased in product((False, True), repeat=2):
        test_locks.test_what_is_kept_for_another_is_lost_and_let_go_like_any_other_key(
            World("a", "b"), wanted, leased
        )
        test_locks.test_a_node_that_drains_hands_over_what_it_kept_for_another(
            World("a", "b"), wanted, leased
        )
    every = {(state, event) for state, event, _ in key_states.KEY_LIFE}
    for seed in range(HISTORIES):
        if gone(key_states.KEY_LIFE) == every:
            break
        test_lock_histories.History(seed).play()
    assert every == gone(key_states.KEY_LIFE)
