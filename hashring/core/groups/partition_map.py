"""An immutable mapping from some of the partitions, of which a change costs what it changes.

A member may hold thousands of partitions, and a decision changes a few. A :class:`PartitionMap`
is a dict of buckets of neighbours. One that was made from another shares the buckets that did not
change. So two of one origin are compared by looking at the buckets that differ.
"""

from __future__ import annotations

from collections.abc import ItemsView, Iterable, Iterator, Mapping
from itertools import chain
from typing import Any, Final, TypeVar

V = TypeVar("V")

BUCKET: Final = 64
"""Neighbours in a bucket, at most."""


class PartitionMap(Mapping[int, V]):
    """One value for each of some partitions. Equal to a dict of the same values.

    Args:
        values: by partition.
    """

    __slots__ = ("_buckets", "_size")

    def __init__(self, values: Mapping[int, V] | Iterable[tuple[int, V]] = ()) -> None:
        self._buckets: dict[int, dict[int, V]] = {}
        for partition, value in dict(values).items():
            self._buckets.setdefault(partition // BUCKET, {})[partition] = value
        self._size = sum(map(len, self._buckets.values()))

    @classmethod
    def of(cls, values: Mapping[int, V]) -> PartitionMap[V]:
        """These values; the very same object if it is a map of partitions."""
        return values if isinstance(values, PartitionMap) else cls(values)

    def __getitem__(self, partition: int) -> V:
        return self._buckets[partition // BUCKET][partition]

    def __iter__(self) -> Iterator[int]:
        return chain.from_iterable(self._buckets.values())

    def __len__(self) -> int:
        return self._size

    def __repr__(self) -> str:
        return f"PartitionMap({dict(self.items())!r})"

    def items(self) -> ItemsView[int, V]:
        """The partitions with their values."""
        return _Items(self)

    def changed(self, values: Mapping[int, V], without: Iterable[int] = ()) -> PartitionMap[V]:
        """This map with other values for some partitions, and without others.

        Args:
            values: the new values.
            without: partitions to leave out, unless they have a new value. Those that have no
                value are passed over.
        """
        edited: dict[int, dict[int, V]] = {}

        def bucket(partition: int) -> dict[int, V]:
            number = partition // BUCKET
            if number not in edited:
                edited[number] = dict(self._buckets.get(number, ()))
            return edited[number]

        for partition in without:
            bucket(partition).pop(partition, None)
        for partition, value in values.items():
            bucket(partition)[partition] = value
        if not edited:
            return self
        after: PartitionMap[V] = PartitionMap()
        after._buckets = self._buckets | edited
        after._size = self._size
        for number, new in edited.items():
            after._size += len(new) - len(self._buckets.get(number, ()))
            if not new:
                del after._buckets[number]
        return after

    def differing(self, other: PartitionMap[Any]) -> list[int]:
        """The partitions that have different values, or one in only one of the two maps."""
        mine, theirs = self._buckets, other._buckets
        if mine is theirs:
            return []
        found: set[int] = set()
        for number in mine.keys() | theirs.keys():
            one, another = mine.get(number, {}), theirs.get(number, {})
            if one is not another:
                found.update(partition for partition, _ in one.items() ^ another.items())
        return sorted(found)


class _Items(ItemsView[int, V]):
    """Without a look-up for each partition."""

    _mapping: PartitionMap[V]

    def __iter__(self) -> Iterator[tuple[int, V]]:
        return chain.from_iterable(bucket.items() for bucket in self._mapping._buckets.values())
