"""What waits for a callback of changes that does not return."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hashring.core.ranges import PointRange
from hashring.node.on_change_calls import RangeChanges

Ranges = tuple[PointRange, ...]


def ranges(number: int) -> Ranges:
    return (PointRange(number, number + 2),)


def told(changes: RangeChanges) -> list[tuple[Ranges, Ranges]]:
    found = []
    while (change := changes.next()) is not None:
        found.append(change)
        changes.told()
    return found


def points(found: Ranges) -> set[int]:
    return {point for one in found for point in range(one.start, one.end)}


@given(st.lists(st.integers(0, 200), max_size=400))
def test_what_is_told_leads_to_what_the_node_has(numbers: list[int]) -> None:
    changes, has = RangeChanges(()), set[int]()
    for number in numbers:
        changes.note(ranges(number))
    for gained, lost in told(changes):
        assert not points(gained) & has
        has = (has - points(lost)) | points(gained)
    assert has == (points(ranges(numbers[-1])) if numbers else set())


def test_no_more_than_64_changes_wait() -> None:
    changes = RangeChanges(())
    for number in range(1_000):
        changes.note(ranges(3 * number))
    waiting = told(changes)
    assert len(waiting) == 64
    assert waiting[0] == (ranges(0), ())
    assert waiting[-1] == (ranges(3 * 999), ranges(3 * 62))
