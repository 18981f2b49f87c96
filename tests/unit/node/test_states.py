"""The states of a node are data: code, table and the text that shows it say the same."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import hashring.node
from hashring.node import machine
from hashring.node.machine import MOVES, NodeEvent, NodeMachine, NodeState
from hashring.protocol.states import Moves
from hashring.testing.simulator import RingSimulator, random_history

HISTORIES = 250

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
