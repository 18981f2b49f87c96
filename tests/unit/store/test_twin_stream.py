"""The ids of a stream of the memory twin."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from hashring.store.twin_stream import Stream

TIMES = st.lists(st.sampled_from([5.0, 5.0004, 5.001, 7.0]), max_size=40)


def ids(times: list[float], keep: int) -> list[tuple[int, ...]]:
    """The ids of all entries, in the order in which they were added."""
    stream, found = Stream(), []
    for now in times:
        stream.add(now, {}, keep)
        found.append(tuple(int(part) for part in stream.entries[-1][0].split(b"-")))
    return found


@given(TIMES, st.integers(1, 5))
def test_they_only_grow_whatever_is_cut_off_and_whatever_the_clock_does(
    times: list[float], keep: int
) -> None:
    found = ids(times, keep)
    assert all(before < after for before, after in pairwise(found))


@given(TIMES, st.integers(0, 5))
def test_the_newest_entries_stay(times: list[float], keep: int) -> None:
    stream = Stream()
    for number, now in enumerate(times):
        stream.add(now, {b"number": b"%d" % number}, keep)
    kept = [int(fields[b"number"]) for _, fields in stream.entries]
    assert kept == list(range(len(times)))[max(0, len(times) - keep) :]


def test_they_are_those_that_redis_would_give() -> None:
    assert ids([5.0, 5.0, 5.001, 4.0], 9) == [(5000, 0), (5000, 1), (5001, 0), (5001, 1)]
