"""Maps of partitions: the same as dicts, and a change leaves alone what it does not change."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hashring.core.groups.partition_map import BUCKET, PartitionMap

partitions = st.integers(0, 3 * BUCKET)
maps = st.dictionaries(partitions, st.integers(0, 3), max_size=12)


@given(maps, maps, st.lists(partitions | st.just(0), max_size=6))
def test_a_map_that_was_changed_is_as_a_dict_that_was(
    before: dict[int, int], new: dict[int, int], without: list[int]
) -> None:
    given_ = PartitionMap(before)
    after = given_.changed(new, without=without)
    expected = {p: value for p, value in before.items() if p not in without} | new
    assert after == expected
    assert dict(after.items()) == expected
    assert sorted(after) == sorted(expected)
    assert len(after) == len(expected)
    assert given_ == before


@given(maps, maps, maps)
def test_maps_differ_where_their_values_do(
    one: dict[int, int], other: dict[int, int], new: dict[int, int]
) -> None:
    for first, second in ((one, other), (one, one | new)):
        expected = sorted(p for p in {*first, *second} if first.get(p) != second.get(p))
        assert PartitionMap(first).differing(PartitionMap(second)) == expected
    grown = PartitionMap(one).changed(new)
    assert grown.differing(PartitionMap(one)) == PartitionMap(one | new).differing(
        PartitionMap(one)
    )


def test_what_did_not_change_is_shared() -> None:
    before = PartitionMap(dict.fromkeys(range(3 * BUCKET), 0))
    looked_at: list[int] = []

    class Noted(int):
        def __eq__(self, other: object) -> bool:
            looked_at.append(int(self))
            return int(self) == other

        __hash__ = int.__hash__

    marked = before.changed({p: Noted(p) for p in range(BUCKET)})
    later = marked.changed({2 * BUCKET: 7})
    assert later.differing(marked) == [2 * BUCKET]
    assert not looked_at
    assert before.changed({}) is before
    assert PartitionMap.of(before) is before
