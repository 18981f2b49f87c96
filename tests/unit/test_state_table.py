"""Tables of states: code goes by them, and the texts that show them are drawn from them."""

from __future__ import annotations

from enum import Enum
from itertools import product
from types import ModuleType
from typing import Any

import pytest

import hashring
import hashring.core
from hashring.core.assignors import BalancedAssignor
from hashring.core.groups import next_state
from hashring.core.groups.state import PHASES, GroupPhase
from hashring.core.state_table import StateTable, with_tables
from hashring.errors import RedisUnavailable
from hashring.protocol import listening, silent_subscription
from hashring.protocol.group import base_member_machine, group_decider, lease_challenge_machine
from hashring.protocol.group.group_decider import Decider
from hashring.protocol.listening import Listening
from hashring.protocol.machine_steps import Finished, Run, Subscribe
from hashring.protocol.silent_subscription import Silence, Silent, SubscriptionState
from hashring.store.group.key_names import group_keys
from hashring.testing.simulator import (
    ChallengeSimulator,
    GroupSimulator,
    RingSimulator,
    own_ranges,
    random_challenge_history,
    random_group_history,
    random_history,
    with_returns,
)
from tests.unit.state_assignments import places_that_pass, places_that_set


class Lamp(Enum):
    OFF = "off"
    ON = "on"
    BROKEN = "broken"


class Hand(Enum):
    PRESS = "press"
    DROP = "drop"


TESTED_WITH_NODES = ("key_states.py", "name_claim.py", "node_machine.py", "ring_sight.py")
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
    (
        lease_challenge_machine,
        lease_challenge_machine.TABLE_SIGHT,
        lease_challenge_machine.TableSight,
    ),
    (listening, listening.LISTENING, listening.ListeningState),
    (
        silent_subscription,
        silent_subscription.SUBSCRIPTION_LIFE,
        silent_subscription.SubscriptionState,
    ),
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


def test_a_text_has_its_tables_where_their_names_stand() -> None:
    shown = with_tables("A lamp:\n\n{LAMP}\n{other}", LAMP=LAMP)
    assert shown == f"A lamp:\n\n{LAMP.as_text()}\n{{other}}"


def test_nothing_but_its_table_moves_a_member_or_a_decider() -> None:
    assert places_that_set("stage", hashring) == [
        "base_member_machine.py:__init__",
        "base_member_machine.py:_turn",
        "group_decider.py:__init__",
        "group_decider.py:_turn",
    ]


def test_nothing_but_its_table_moves_a_subscription_or_what_is_known_of_a_lease_table() -> None:
    assert places_that_set("sight", hashring.protocol.group) == [
        "lease_challenge_machine.py:__init__",
        "lease_challenge_machine.py:_see",
    ]
    places = [
        place
        for place in places_that_set("state", hashring.protocol)
        if not place.startswith(TESTED_WITH_NODES)
    ]
    assert places == [
        "listening.py:__init__",
        "listening.py:_turn",
        "silent_subscription.py:__init__",
        "silent_subscription.py:_turn",
    ]


def test_nothing_but_its_table_moves_a_group() -> None:
    # A step begins with the phase of the state that it changes.
    assert places_that_set("phase", hashring.core) == [
        "next_state.py:__init__",
        "next_state.py:_turn",
    ]
    # What is built anew has the phase of the table, or of what it was read from.
    assert places_that_pass("phase", hashring.core) == [
        "group_orders.py:resize",
        "group_orders.py:migrate",
        "group_orders.py:forget",
        "json_codec.py:load_state",
        "next_state.py:_outcome",
        "view_changes.py:changed_view",
    ]


def decide_with_bad_luck() -> None:
    """In each stage a decider learns, before its loop comes to it, that its member has left."""
    for last, asked, begun in product((True, False), range(4), (True, False)):
        decider = Decider(
            "orders",
            group_keys("orders"),
            "m",
            BalancedAssignor(),
            report=lambda decided: None,
            tell=lambda own: None,
        )
        for number in range(asked):
            decider.ask(number)
            if begun:
                decider.next(0.0)
        decider.end(last=last)
        while isinstance(step := decider.next(0.0), Run):
            step.failed(RedisUnavailable("no answer"), 0.0)
        assert isinstance(step, Finished)


SEEDS = (40, 178, 4, 30, 135, 180, 69, 370, 5, 32)
"""Histories that went every way when they were chosen; they only save time."""


@pytest.fixture
def gone(monkeypatch: pytest.MonkeyPatch) -> set[tuple[int, Any, Any]]:
    """The ways that are gone from now on: the table's id, a state and an event."""
    found: set[tuple[int, Any, Any]] = set()
    after = StateTable.after

    def noted(self: StateTable[Any, Any], state: Any, event: Any) -> Any:
        found.add((id(self), state, event))
        return after(self, state, event)

    monkeypatch.setattr(StateTable, "after", noted)
    return found


def ways(table: StateTable[Any, Any]) -> set[tuple[int, Any, Any]]:
    return {(id(table), state, event) for state, event, _ in table}


@pytest.mark.parametrize(
    "table", [base_member_machine.MEMBER_LIFE, group_decider.DECIDER_LIFE, PHASES]
)
def test_histories_of_faults_go_every_way_that_a_table_has(
    table: StateTable[Any, Any], gone: set[tuple[int, Any, Any]]
) -> None:
    """What never happens has no business in a table."""
    decide_with_bad_luck()
    simulator = GroupSimulator()
    for seed in (*SEEDS, *range(400)):
        simulator.play(random_group_history(seed))
        if ways(table) <= gone:
            return
    assert ways(table) <= gone


def test_histories_go_every_way_of_what_a_machine_subscribes_to(
    gone: set[tuple[int, Any, Any]],
) -> None:
    # What loops never do: they report how each subscription ends.
    listening_twice = Listening()
    for now in (0.0, 1.0):
        listening_twice.ask(1.0, 1.0, now + 1.0)
    for seed in range(100):
        RingSimulator().play(random_history(seed))
        RingSimulator().play(own_ranges(with_returns(random_history(seed))))
        if ways(listening.LISTENING) <= gone:
            return
    assert ways(listening.LISTENING) <= gone


def test_histories_go_every_way_of_what_is_known_of_a_lease_table(
    gone: set[tuple[int, Any, Any]],
) -> None:
    table = lease_challenge_machine.TABLE_SIGHT
    for seed in range(100):
        ChallengeSimulator().play(with_returns(random_challenge_history(seed, faithful=False)))
        if ways(table) <= gone:
            return
    assert ways(table) <= gone


@pytest.mark.parametrize(
    ("confirmed", "waits"), [(False, 0), (False, 1), (True, 0), (True, 1), (True, 2)]
)
def test_a_subscription_that_hears_something_stands(confirmed: bool, waits: int) -> None:
    silence = Silence(Subscribe(1, ask_after=10.0, patience=2.0), 0.0)
    if confirmed:
        silence.heard(0.0)
    for now in range(1, waits + 1):
        assert silence.nothing(now * 100.0) is not Silent.LOST
    silence.heard(waits * 100.0)
    assert silence.state is SubscriptionState.STANDING


@pytest.mark.parametrize("confirmed", [False, True])
def test_a_subscription_that_was_given_up_is_at_its_end(confirmed: bool) -> None:
    silence = Silence(Subscribe(1, ask_after=10.0, patience=2.0), 0.0)
    if confirmed:
        silence.heard(0.0)
    now = 0.0
    while silence.nothing(now) is not Silent.LOST:
        now += 100.0
    assert silence.state is (SubscriptionState.LOST if confirmed else SubscriptionState.UNCONFIRMED)
    assert silent_subscription.SUBSCRIPTION_LIFE.final(silence.state)
