"""What every store must do for the faithful challenge: on each server, and in memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from hashring.store.faithful_challenge.commands import (
    FaithfulKeys,
    begin,
    end,
    faithful_keys,
    look,
    open_again,
    race,
    signal,
    told_partition,
)
from hashring.store.interface import Store
from tests.contract.places import Channels


@pytest.fixture
def keys() -> FaithfulKeys:
    return faithful_keys("work")


@pytest.fixture
def channels(store: Store, keys: FaithfulKeys) -> Iterator[Channels]:
    with closing(Channels(store, keys.grabs, keys.allocated)) as found:
        yield found


def test_the_first_of_a_race_wins_and_the_others_learn_who_works(
    store: Store, keys: FaithfulKeys
) -> None:
    assert store.run(race(keys, 1, "a")) == (True, "")
    assert store.run(race(keys, 1, "b")) == (False, "")
    assert store.run(begin(keys, 1, "a"))
    assert store.run(race(keys, 1, "a")) == (True, "a")
    assert store.run(race(keys, 1, "b")) == (False, "a")
    assert store.run(look(keys)) == ({1: "a"}, {1: "a"})


def test_only_the_winner_may_begin(store: Store, keys: FaithfulKeys) -> None:
    assert not store.run(begin(keys, 1, "a"))
    store.run(race(keys, 1, "a"))
    assert not store.run(begin(keys, 1, "b"))
    assert store.run(look(keys)) == ({}, {1: "a"})


def test_only_the_winner_opens_the_race_again(store: Store, keys: FaithfulKeys) -> None:
    store.run(race(keys, 1, "a"))
    assert not store.run(open_again(keys, 1, "b"))
    assert not store.run(open_again(keys, 0, "a"))
    assert store.run(open_again(keys, 1, "a"))
    assert store.run(race(keys, 1, "b")) == (True, "")


def test_a_signal_names_the_partition_and_clears_it_when_asked(
    store: Store, keys: FaithfulKeys, channels: Channels
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
    store: Store, keys: FaithfulKeys, channels: Channels
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
