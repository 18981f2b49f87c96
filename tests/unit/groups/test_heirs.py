"""Who takes the place of a member that is gone."""

from __future__ import annotations

from hashring.core.groups.heirs import Place, heirs


def test_places_and_members_meet_in_the_order_of_joining() -> None:
    vacant = [Place(4, "d", 1.0), Place(1, "b", 1.0)]
    idle = [Place(9, "y", 1.0), Place(7, "x", 1.0)]
    assert heirs(vacant, idle) == {"b": "x", "d": "y"}
    assert heirs(reversed(vacant), reversed(idle)) == {"b": "x", "d": "y"}


def test_a_place_without_a_member_stays_vacant_and_a_member_without_a_place_idle() -> None:
    assert heirs([Place(0, "a", 1.0), Place(1, "b", 1.0)], [Place(2, "x", 1.0)]) == {"a": "x"}
    assert heirs([Place(0, "a", 1.0)], [Place(2, "x", 1.0), Place(3, "y", 1.0)]) == {"a": "x"}


def test_only_a_member_of_the_same_weight_takes_a_place() -> None:
    vacant = [Place(0, "a", 2.0), Place(1, "b", 1.0)]
    assert heirs(vacant, [Place(2, "x", 1.0)]) == {"b": "x"}
