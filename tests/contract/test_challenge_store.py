"""What every store must do for the lease challenge: its scripts on each server, and in memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from hashring.core.groups.lease_table import LeaseTable, PartitionLease
from hashring.store.interface import Message, Store, Subscribed, Subscription
from hashring.store.lease_challenge.commands import (
    ChallengeKeys,
    begin,
    challenge_keys,
    end,
    look,
    open_again,
    race,
    read_table,
    signal,
    told_partition,
    write_table,
)
from tests.conftest import PATIENCE
from tests.contract.places import Place

EMPTY = LeaseTable(2)
HELD = LeaseTable(2, {0: PartitionLease("a", 3, 7.5, 1.25)}, {"a": 9.0}, token=3)


@pytest.fixture
def keys() -> ChallengeKeys:
    return challenge_keys("work")


class Channels:
    """A subscription to all channels of a challenge."""

    def __init__(self, store: Store, keys: ChallengeKeys) -> None:
        channels = (keys.told, keys.grabs, keys.allocated)
        self._subscription: Subscription = store.subscribe(*channels)
        for _ in channels:
            assert self._subscription.wait(PATIENCE) == Subscribed()

    def next(self) -> tuple[bytes, bytes]:
        notice = self._subscription.wait(PATIENCE)
        assert isinstance(notice, Message)
        return notice.channel, notice.payload

    def close(self) -> None:
        self._subscription.close()


@pytest.fixture
def channels(store: Store, keys: ChallengeKeys) -> Iterator[Channels]:
    with closing(Channels(store, keys)) as found:
        yield found


# --- the fixed mode -------------------------------------------------------------------------------


def test_a_table_is_read_as_it_was_written(store: Store, keys: ChallengeKeys) -> None:
    first = store.run(read_table(keys))
    assert (first.tag, first.table) == ("", None)
    assert store.run(write_table(keys, first, HELD, ()))
    second = store.run(read_table(keys))
    assert second.table == HELD
    assert second.now >= first.now


def test_a_table_is_read_at_the_time_of_redis(place: Place, keys: ChallengeKeys) -> None:
    before = place.now()
    reading = place.store.run(read_table(keys))
    assert before - 1e-6 <= reading.now <= place.now() + 1e-6


def test_of_two_writes_after_one_reading_the_first_counts(
    store: Store, keys: ChallengeKeys
) -> None:
    reading = store.run(read_table(keys))
    assert store.run(write_table(keys, reading, HELD, ()))
    assert not store.run(write_table(keys, reading, EMPTY, ()))
    assert store.run(read_table(keys)).table == HELD


def test_every_write_has_a_tag_of_its_own(store: Store, keys: ChallengeKeys) -> None:
    tags = []
    for number in range(1, 12):
        reading = store.run(read_table(keys))
        assert store.run(write_table(keys, reading, HELD, ()))
        tags.append(store.run(read_table(keys)).tag)
        assert tags[-1].endswith(f":{number}")
    assert len(set(tags)) == len(tags)


def test_a_write_names_the_members_concerned(
    store: Store, keys: ChallengeKeys, channels: Channels
) -> None:
    assert store.run(write_table(keys, store.run(read_table(keys)), EMPTY, ()))
    assert store.run(write_table(keys, store.run(read_table(keys)), HELD, ("a", "b")))
    assert channels.next() == (keys.told, b"a\nb")


# --- the faithful mode ----------------------------------------------------------------------------


def test_the_first_of_a_race_wins_and_the_others_learn_who_works(
    store: Store, keys: ChallengeKeys
) -> None:
    assert store.run(race(keys, 1, "a")) == (True, "")
    assert store.run(race(keys, 1, "b")) == (False, "")
    assert store.run(begin(keys, 1, "a"))
    assert store.run(race(keys, 1, "a")) == (True, "a")
    assert store.run(race(keys, 1, "b")) == (False, "a")
    assert store.run(look(keys)) == ({1: "a"}, {1: "a"})


def test_only_the_winner_may_begin(store: Store, keys: ChallengeKeys) -> None:
    assert not store.run(begin(keys, 1, "a"))
    store.run(race(keys, 1, "a"))
    assert not store.run(begin(keys, 1, "b"))
    assert store.run(look(keys)) == ({}, {1: "a"})


def test_only_the_winner_opens_the_race_again(store: Store, keys: ChallengeKeys) -> None:
    store.run(race(keys, 1, "a"))
    assert not store.run(open_again(keys, 1, "b"))
    assert not store.run(open_again(keys, 0, "a"))
    assert store.run(open_again(keys, 1, "a"))
    assert store.run(race(keys, 1, "b")) == (True, "")


def test_a_signal_names_the_partition_and_clears_it_when_asked(
    store: Store, keys: ChallengeKeys, channels: Channels
) -> None:
    for partition in (0, 1):
        store.run(race(keys, partition, "a"))
        store.run(begin(keys, partition, "a"))
    store.run(signal(keys, 1, clear=False))
    assert channels.next() == (keys.grabs, b"1")
    assert store.run(look(keys)) == ({0: "a", 1: "a"}, {0: "a", 1: "a"})
    store.run(signal(keys, 1, clear=True))
    assert channels.next() == (keys.grabs, b"1")
    assert store.run(look(keys)) == ({0: "a"}, {0: "a"})


def test_the_end_of_work_is_told_and_takes_away_the_workers_own_alone(
    store: Store, keys: ChallengeKeys, channels: Channels
) -> None:
    store.run(race(keys, 1, "a"))
    store.run(begin(keys, 1, "a"))
    store.run(end(keys, 1, "b"))
    assert channels.next() == (keys.allocated, b"1")
    assert store.run(look(keys)) == ({1: "a"}, {1: "a"})
    store.run(end(keys, 1, "a"))
    assert channels.next() == (keys.allocated, b"1")
    assert store.run(look(keys)) == ({}, {1: "a"})


def test_a_message_names_a_partition_of_the_challenge_or_none() -> None:
    found = [told_partition(payload, 12) for payload in (b"11", b"12", b"x", b"", b"9" * 5000)]
    assert found == [11, None, None, None, None]
