"""What every store must do for the lease challenge: its scripts on each server, and in memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from redis import Redis

from hashring.core.groups.lease_challenge import (
    LeaseChallengeRules,
    LeaseTable,
    PartitionLease,
    beat,
)
from hashring.store.embedded_server import RedisServer
from hashring.store.interface import Store
from hashring.store.lease_challenge.commands import (
    ChallengeKeys,
    begin_table,
    challenge_keys,
    read_table,
    write_table,
)
from hashring.store.redis_store import RedisStore
from tests.conftest import PATIENCE, servers
from tests.contract.places import Channels, Place

EMPTY = LeaseTable(2)
HELD = LeaseTable(2, {0: PartitionLease("a", 3, 7.5, 1.25)}, {"a": 9.0}, token=3)


@pytest.fixture
def keys() -> ChallengeKeys:
    return challenge_keys("work")


@pytest.fixture
def channels(store: Store, keys: ChallengeKeys) -> Iterator[Channels]:
    with closing(Channels(store, keys.told)) as found:
        yield found


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


def test_a_table_that_was_begun_has_a_tag_and_no_members(store: Store, keys: ChallengeKeys) -> None:
    store.run(begin_table(keys))
    begun = store.run(read_table(keys))
    assert begun.tag
    assert (begun.table, begun.elsewhere) == (None, False)
    assert store.run(write_table(keys, begun, HELD, ()))
    written = store.run(read_table(keys))
    store.run(begin_table(keys))
    assert store.run(read_table(keys)).tag == written.tag
    assert written.table == HELD


def test_a_table_that_was_begun_again_after_a_loss_is_no_base_for_an_older_write(
    place: Place, keys: ChallengeKeys
) -> None:
    store = place.store
    store.run(begin_table(keys))
    reading = store.run(read_table(keys))
    place.wipe()
    assert not store.run(write_table(keys, reading, HELD, ()))
    store.run(begin_table(keys))
    assert not store.run(write_table(keys, reading, HELD, ()))
    assert store.run(read_table(keys)).table is None


def test_a_table_that_is_begun_once_more_is_no_base_for_an_older_write(
    store: Store, keys: ChallengeKeys
) -> None:
    assert store.run(begin_table(keys))
    reading = store.run(read_table(keys))
    assert store.run(begin_table(keys))
    assert not store.run(write_table(keys, reading, HELD, ()))
    assert store.run(write_table(keys, store.run(read_table(keys)), HELD, ()))
    assert not store.run(begin_table(keys))


def test_a_table_was_begun_at_one_time_whatever_is_written(
    store: Store, keys: ChallengeKeys
) -> None:
    before = store.run(read_table(keys))
    assert before.begun is None
    store.run(begin_table(keys))
    begun = store.run(read_table(keys)).begun
    assert begun is not None
    assert before.now <= begun
    store.run(begin_table(keys))
    assert store.run(write_table(keys, store.run(read_table(keys)), HELD, ()))
    written = store.run(read_table(keys))
    assert (written.begun, written.elsewhere) == (begun, False)
    assert begun <= written.now


def test_a_table_of_before_the_clock_was_set_back_is_read_in_the_time_of_now(
    store: Store, keys: ChallengeKeys
) -> None:
    first = store.run(read_table(keys))
    ahead = first.now + 3600
    rules = LeaseChallengeRules(ttl=60)
    assert store.run(write_table(keys, first, beat(EMPTY, "a", ahead, rules), ()))
    second = store.run(read_table(keys))
    assert second.table is not None
    assert second.table.members["a"] == pytest.approx(second.now + 60, abs=1e-5)


@pytest.mark.parametrize("program", servers().values(), ids=servers().keys())
def test_a_server_that_is_full_renews_the_leases_that_stand(
    keys: ChallengeKeys, program: Path
) -> None:
    with (
        RedisServer(program) as server,
        Redis(unix_socket_path=str(server.socket)) as client,
        closing(RedisStore(client, PATIENCE)) as found,
    ):
        assert found.run(write_table(keys, found.run(read_table(keys)), HELD, ()))
        client.config_set("maxmemory", 1)
        renewed = replace(HELD, members={"a": 19.0})
        assert found.run(write_table(keys, found.run(read_table(keys)), renewed, ()))
        assert found.run(read_table(keys)).table == renewed
