"""The states of a node and of its keys are data: code, table and text say the same."""

from __future__ import annotations

import ast
import re
from itertools import product
from pathlib import Path
from typing import Any

import pytest

import hashring.node
import hashring.protocol.locks
from hashring.core.states import StateTable
from hashring.node import machine
from hashring.node.machine import MOVES, NodeEvent, NodeMachine, NodeState
from hashring.protocol.locks import key
from hashring.protocol.states import Moves
from hashring.testing.simulator import RingSimulator, random_history
from tests.conftest import ROOT
from tests.unit.node import test_lock_histories, test_locks
from tests.unit.node.bookworld import World

HISTORIES = 250
LOCKS_PAGE = ROOT / "docs" / "explanation" / "locks.rst"

Move = tuple[NodeState, NodeEvent]
_S = NodeState


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> set[Move]:
    """The moves that machines make from now on."""
    found: set[Move] = set()
    enter = NodeMachine._enter

    def record(self: NodeMachine, event: NodeEvent) -> None:
        found.add((self.state, event))
        enter(self, event)

    monkeypatch.setattr(NodeMachine, "_enter", record)
    return found


def test_the_text_shows_the_table() -> None:
    assert MOVES.table() in (machine.__doc__ or "")


def test_nothing_but_the_table_moves_a_node() -> None:
    places = [
        f"{path.name}:{function.name}"
        for path in Path(hashring.node.__path__[0]).glob("*.py")
        for function in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for node in ast.walk(function)
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Attribute)
        and target.attr == "state"
        and "machine" in ast.unparse(target.value) + path.name
    ]
    assert places == ["machine.py:_enter"]


def test_every_move_of_the_table_is_made_and_no_other(made: set[Move]) -> None:
    for seed in range(HISTORIES):
        RingSimulator().play(random_history(seed))
    # What the histories leave to users: they stop at any time, and start what never stopped.
    by_users = {(state, NodeEvent.STOP) for state in (_S.NEW, _S.FENCED, _S.LEAVING)}
    by_users |= {(state, NodeEvent.START) for state in NodeState if state is not NodeState.NEW}
    assert made | by_users == set(MOVES.after)


def test_a_move_that_the_table_does_not_have_is_a_fault() -> None:
    with pytest.raises(RuntimeError, match="RAN_OUT cannot happen in state leaving"):
        MOVES.next(NodeState.LEAVING, NodeEvent.RAN_OUT)


def test_a_table_has_a_line_for_each_event_and_outcome() -> None:
    moves = Moves(
        {
            (NodeState.NEW, NodeEvent.STOP): NodeState.STOPPED,
            (NodeState.LIVE, NodeEvent.STOP): NodeState.LEAVING,
            (NodeState.FENCED, NodeEvent.STOP): NodeState.LEAVING,
        }
    )
    assert moves.table().splitlines()[3:-1] == [
        "stop()  new           stopped",
        "stop()  live, fenced  leaving",
    ]


# --- keys under locks ---------------------------------------------------------------------------


def test_the_texts_show_the_life_of_a_key() -> None:
    page = re.sub(r"^ +", "", LOCKS_PAGE.read_text("utf-8"), flags=re.MULTILINE)
    assert key.LIFE.as_text() in (key.__doc__ or "")
    assert key.LIFE.as_text() in page


def test_nothing_but_the_table_moves_a_key() -> None:
    places = [
        f"{path.name}:{function.name}"
        for path in Path(hashring.protocol.locks.__path__[0]).glob("*.py")
        for function in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(function, ast.FunctionDef)
        for node in ast.walk(function)
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Attribute) and target.attr == "state"
    ]
    assert places == ["key.py:__init__", "key.py:enter"]


def test_every_way_of_a_key_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    gone: set[tuple[Any, Any]] = set()
    after = StateTable.after

    def noted(self: StateTable[Any, Any], state: Any, event: Any) -> Any:
        if self is key.LIFE:
            gone.add((state, event))
        return after(self, state, event)

    monkeypatch.setattr(StateTable, "after", noted)
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
    every = {(state, event) for state, event, _ in key.LIFE}
    for seed in range(HISTORIES):
        if gone == every:
            break
        test_lock_histories.History(seed).play()
    assert every - gone == set()
