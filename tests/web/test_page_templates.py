"""How times and decisions are written on a page."""

from __future__ import annotations

from hashring.core.groups.state import EventKind, GroupEvent
from hashring.store.group.commands import Decision
from hashring.web.decision_effects import happenings
from hashring.web.page_templates import clock, shown

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


def test_a_name_of_spaces_alone_can_be_seen_and_clicked() -> None:
    assert shown("  ") == "'  '"
    assert shown(" a ") == " a "
    assert shown("") == ""
