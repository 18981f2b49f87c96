"""Tables of states: code goes by them, and the texts that show them are drawn from them."""

from __future__ import annotations

import re
from enum import Enum
from types import ModuleType
from typing import Any

import pytest

import hashring
import hashring.core
from hashring.core.groups import next_state
from hashring.core.groups.state import PHASES, GroupPhase
from hashring.core.state_table import StateTable
from hashring.protocol import base_member_machine, group_decider
from hashring.testing.simulator import GroupSimulator, random_group_history
from tests.conftest import ROOT
from tests.unit.state_assignments import places_that_pass, places_that_set

PAGE = ROOT / "docs" / "explanation" / "groups.rst"


class Lamp(Enum):
    OFF = "off"
    ON = "on"
    BROKEN = "broken"


class Hand(Enum):
    PRESS = "press"
    DROP = "drop"


LAMP = StateTable(
    {Lamp.OFF: "dark", Lamp.ON: "lit", Lamp.BROKEN: "for the bin"},
    {
        Lamp.OFF: {Hand.PRESS: Lamp.ON, Hand.DROP: Lamp.BROKEN},
        Lamp.ON: {Hand.PRESS: Lamp.OFF, Hand.DROP: Lamp.BROKEN},
    },
)


def test_a_table_says_what_follows_and_refuses_what_cannot_happen() -> None:
    assert LAMP.after(Lamp.OFF, Hand.PRESS) is Lamp.ON
    assert LAMP.may(Lamp.ON, Hand.DROP)
    assert not LAMP.may(Lamp.BROKEN, Hand.PRESS)
    assert LAMP.final(Lamp.BROKEN)
    assert not LAMP.final(Lamp.OFF)
    with pytest.raises(LookupError, match="'press' cannot happen while 'broken'"):
        LAMP.after(Lamp.BROKEN, Hand.PRESS)


def test_a_table_is_drawn_with_its_meanings_and_transitions() -> None:
    assert LAMP.as_text().splitlines() == [
        "==========  ===========  ===================",
        "state       meaning      event -> next state",
        "==========  ===========  ===================",
        "``off``     dark         press -> on",
        r"\                        drop -> broken",
        "``on``      lit          press -> off",
        r"\                        drop -> broken",
        "``broken``  for the bin  the end",
        "==========  ===========  ===================",
    ]


TABLES: list[tuple[ModuleType, StateTable[Any, Any], type[Enum]]] = [
    (base_member_machine, base_member_machine.MEMBER_LIFE, base_member_machine.Stage),
    (group_decider, group_decider.DECIDER_LIFE, group_decider.DeciderStage),
    (next_state, PHASES, GroupPhase),
]


@pytest.mark.parametrize(("module", "table", "states"), TABLES)
def test_every_state_has_a_meaning_and_can_be_reached(
    module: ModuleType, table: StateTable[Any, Any], states: type[Enum]
) -> None:
    assert list(table.meanings) == list(states)
    reached = {next(iter(states)), *(after for _, _, after in table)}
    assert reached == set(states)


@pytest.mark.parametrize(("module", "table", "states"), TABLES)
def test_a_modules_text_shows_its_table(
    module: ModuleType, table: StateTable[Any, Any], states: type[Enum]
) -> None:
    assert table.as_text() in (module.__doc__ or "")


@pytest.mark.parametrize("table", [base_member_machine.MEMBER_LIFE, PHASES])
def test_the_page_about_groups_shows_its_tables(table: StateTable[Any, Any]) -> None:
    page = re.sub(r"^ +", "", PAGE.read_text(), flags=re.MULTILINE)
    assert table.as_text() in page


def test_nothing_but_its_table_moves_a_member_or_a_decider() -> None:
    assert places_that_set("stage", hashring) == [
        "base_member_machine.py:__init__",
        "base_member_machine.py:_turn",
        "group_decider.py:__init__",
        "group_decider.py:_turn",
    ]


def test_nothing_but_its_table_moves_a_group() -> None:
    # A step begins with the phase of the state that it changes.
    assert places_that_set("phase", hashring.core) == [
        "next_state.py:__init__",
        "next_state.py:_turn",
    ]
    # What is built anew has the phase of the table, or of what it was read from.
    assert places_that_pass("phase", hashring.core) == [
        "json_codec.py:load_state",
        "next_state.py:resize",
        "next_state.py:migrate",
        "next_state.py:_outcome",
        "view_changes.py:changed_view",
    ]


SEEDS = (40, 178, 4, 30, 135, 180, 69, 370)
"""Histories that went every way when they were chosen; they only save time."""


@pytest.mark.parametrize(
    "table", [base_member_machine.MEMBER_LIFE, group_decider.DECIDER_LIFE, PHASES]
)
def test_histories_of_faults_go_every_way_that_a_table_has(
    table: StateTable[Any, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What never happens has no business in a table."""
    gone: set[tuple[Any, Any]] = set()
    after = StateTable.after

    def noted(self: StateTable[Any, Any], state: Any, event: Any) -> Any:
        if self is table:
            gone.add((state, event))
        return after(self, state, event)

    monkeypatch.setattr(StateTable, "after", noted)
    every = {(state, event) for state, event, _ in table}
    simulator = GroupSimulator()
    for seed in (*SEEDS, *range(400)):
        simulator.play(random_group_history(seed))
        if gone == every:
            return
    assert gone == every
