"""How times and decisions are written on a page."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from jinja2 import Environment

from hashring.core.groups.state import EventKind, GroupEvent
from hashring.health import Reason, State
from hashring.store.group.decision_history import Decision
from hashring.web.decision_effects import happenings
from hashring.web.group_view import GroupView
from hashring.web.page_templates import Templates, clock, shown
from tests.unit.groups.desk import Desk

DAY = 86_400.0


def test_a_time_of_another_day_has_its_date() -> None:
    noon = 20_000.5 * DAY
    assert clock(noon - 60, noon) == "11:59:00"
    assert clock(noon - DAY, noon) == "2024-10-03 12:00:00"


def test_a_decision_names_the_partitions_to_which_the_same_happened_together() -> None:
    events = [GroupEvent(EventKind.JOINED, member="b")]
    events += [
        GroupEvent(EventKind.REVOKED, partition=number, member="a", to="b")
        for number in (3, 2, 4, 9)
    ]
    events.append(GroupEvent(EventKind.GRANTED, partition=1, member="b"))
    found = happenings(Decision("1-0", 2, "Rebalancing", "a", tuple(events)))
    assert [(each.kind, each.partitions, each.of, each.member, each.to) for each in found] == [
        ("joined", (), "", "b", None),
        ("revoked", (2, 3, 4, 9), "from", "a", "b"),
        ("granted", (1,), "to", "b", None),
    ]


def test_a_process_compiles_a_page_once_and_each_server_shows_its_own_commands(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Templates("", "redis://first", actions=False).page("message.html", title="", text="")
    monkeypatch.setattr(Environment, "compile", lambda *_: pytest.fail("compiled again"))
    second = Templates("", "redis://second", actions=False)
    assert "<h1>gone</h1>" in second.page("message.html", title="gone", text="")
    reason = Reason(State.DOWN, "it is away", "Look", "hashring doctor").as_dict() | {"link": ""}
    assert "--url redis://second" in second.part("reasons", [reason])


def test_a_time_that_has_passed_is_not_shown_as_time_to_come() -> None:
    templates = Templates("", "", actions=False)
    assert ">12 s<" in templates.part("waits", holding_down(), False)
    late = templates.part("waits", holding_down(late=20), False)
    assert "for the members to come to rest, which is over" in late
    assert "more at most" not in late
    assert "Members wait for that time" not in late


def test_a_group_whose_members_all_left_shows_that_it_is_stopped() -> None:
    templates = Templates("", "", actions=False)
    view = holding_down(members=False)
    assert ">stopped<" in templates.part("group_head", view, False)
    assert not templates.part("waits", view, False)


def holding_down(*, late: float = 0.0, members: bool = True) -> GroupView:
    """A group that was to wait for 12 s, so many seconds after that."""
    desk = Desk(8, rebalance_delay=12.0).join("a").step().join("b").step()
    desk.now += late
    if not members:
        desk.leave("a", "b").step()
    reading: Any = SimpleNamespace(facts=desk.facts)
    return GroupView("g", reading, desk.state, ())


def test_a_name_of_spaces_alone_can_be_seen_and_clicked() -> None:
    assert shown("  ") == "'  '"
    assert shown(" a ") == " a "
    assert shown("") == ""
