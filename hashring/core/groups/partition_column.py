"""An immutable sequence of one value for each partition, of which a change costs what it changes.

A group may have a million partitions, and a decision changes a few. A :class:`Column` is a tuple
of buckets of :data:`BUCKET` values. One that was made from another shares the buckets that did
not change. So two columns of one origin are compared by looking at the buckets that differ.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, compress, count
from operator import is_not, ne
from typing import Any, Final, TypeVar, overload

T = TypeVar("T")

BUCKET: Final = 64
"""Values in a bucket; the last one may have fewer."""


class Column(Sequence[T]):
    """One value for each partition. Equal to a tuple of the same values.

    Args:
        values: of the partitions 0, 1, 2, ...
    """

    __slots__ = ("_size", "buckets")

    def __init__(self, values: Iterable[T] = ()) -> None:
        whole = tuple(values)
        self.buckets = tuple(whole[at : at + BUCKET] for at in range(0, len(whole), BUCKET))
        self._size = len(whole)

    @classmethod
    def of(cls, buckets: Iterable[tuple[T, ...]]) -> Column[T]:
        """The column of these buckets.

        Raises:
            ValueError: one is empty or too large, or one but the last is not full.
        """
        column = cls()
        column.buckets = tuple(buckets)
        sizes = [*map(len, column.buckets)]
        if sizes and (set(sizes[:-1]) - {BUCKET} or not 1 <= sizes[-1] <= BUCKET):
            raise ValueError("buckets of other sizes")
        column._size = sum(sizes)
        return column

    def __len__(self) -> int:
        return self._size

    @overload
    def __getitem__(self, at: int) -> T: ...
    @overload
    def __getitem__(self, at: slice) -> tuple[T, ...]: ...
    def __getitem__(self, at: int | slice) -> T | tuple[T, ...]:
        if isinstance(at, slice):
            return tuple(self)[at]
        if not 0 <= at < self._size:
            if not -self._size <= at < 0:
                raise IndexError(at)
            at += self._size
        return self.buckets[at // BUCKET][at % BUCKET]

    def __iter__(self) -> Iterator[T]:
        return chain.from_iterable(self.buckets)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Column):
            return self.buckets is other.buckets or self.buckets == other.buckets
        return tuple(self) == other if isinstance(other, tuple) else NotImplemented

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return f"Column({tuple(self)!r})"

    def with_(self, values: Mapping[int, T]) -> Column[T]:
        """This column with other values for some partitions.

        Raises:
            IndexError: there is no such partition.
        """
        if not values:
            return self
        edited: dict[int, list[T]] = {}
        for at, value in values.items():
            if not 0 <= at < self._size:
                raise IndexError(at)
            number = at // BUCKET
            if number not in edited:
                edited[number] = list(self.buckets[number])
            edited[number][at % BUCKET] = value
        buckets = list(self.buckets)
        for number, bucket in edited.items():
            buckets[number] = tuple(bucket)
        return self._shared(buckets, self._size)

    def sized(self, size: int, value: T) -> Column[T]:
        """The first of these values, or all of them and that value for the rest."""
        if size == self._size:
            return self
        whole = min(size, self._size) // BUCKET
        buckets = list(self.buckets[:whole])
        rest = self.buckets[whole][: size - whole * BUCKET] if whole < len(self.buckets) else ()
        tail = (*rest, *[value] * (size - whole * BUCKET - len(rest)))
        buckets += [tail[at : at + BUCKET] for at in range(0, len(tail), BUCKET)]
        return self._shared(buckets, size)

    def _shared(self, buckets: list[tuple[T, ...]], size: int) -> Column[T]:
        column: Column[T] = Column()
        column.buckets, column._size = tuple(buckets), size
        return column

    def other_buckets(self, other: Column[Any]) -> list[int]:
        """The numbers of the buckets that are not the very same as in another column.

        Those that only one of the two has are among them.
        """
        if self.buckets is other.buckets:
            return []
        pairs = map(is_not, self.buckets, other.buckets)
        shared, most = sorted((len(self.buckets), len(other.buckets)))
        return [*compress(count(), pairs), *range(shared, most)]

    def differing(self, other: Column[Any]) -> list[int]:
        """The partitions that have different values, or one in only one of the two columns."""
        if self.buckets is other.buckets:
            return []
        found: list[int] = []
        for number in self.other_buckets(other):
            one = self.buckets[number] if number < len(self.buckets) else ()
            another = other.buckets[number] if number < len(other.buckets) else ()
            start = number * BUCKET
            found += compress(count(start), map(ne, one, another))
            shared, most = sorted((len(one), len(another)))
            found += range(start + shared, start + most)
        return found


class Draft(Sequence[T]):
    """A column that is being edited.

    Attributes:
        changes: the partitions that were set, with their values.
    """

    def __init__(self, column: Column[T]) -> None:
        self._column = column
        self.changes: dict[int, T] = {}

    def __len__(self) -> int:
        return len(self._column)

    @overload
    def __getitem__(self, at: int) -> T: ...
    @overload
    def __getitem__(self, at: slice) -> tuple[T, ...]: ...
    def __getitem__(self, at: int | slice) -> T | tuple[T, ...]:
        if isinstance(at, int) and at in self.changes:
            return self.changes[at]
        return self.column[at] if isinstance(at, slice) else self._column[at]

    def __setitem__(self, at: int, value: T) -> None:
        self.changes[at] = value

    def __iter__(self) -> Iterator[T]:
        return iter(self.column)

    @property
    def column(self) -> Column[T]:
        """The column as it is now."""
        different = {at: new for at, new in self.changes.items() if new != self._column[at]}
        return self._column.with_(different)
