"""Which locks are renewed before others, and which are put back after Redis has lost some."""

from __future__ import annotations

from threading import Event

from hashring.protocol.locks.key_lease import KeyLease
from hashring.protocol.locks.key_states import Key, KeyState
from hashring.protocol.locks.renewal import Renewal
from hashring.store.locks.commands import RENEWED_A_CALL, Renewed


def held(name: bytes, deadline: float) -> Key:
    key = Key(name, 0)
    key.state, key.deadline = KeyState.HELD, deadline
    return key


def test_only_what_redis_may_have_lost_and_has_not_ended_is_put_back() -> None:
    sound, lost, ended = held(b"sound", 60.0), held(b"lost", 60.0), held(b"ended", 40.0)
    renewal = Renewal(10.0)
    renewal.may_be_lost([lost, ended])
    renewal.renew_all([sound, lost, ended], 50.0)
    batch = renewal.next(50.0)
    assert batch is not None
    assert [batch.keys[number] for number in batch.put_back] == [lost]


def test_what_was_renewed_is_not_put_back_again() -> None:
    lost = held(b"lost", 60.0)
    renewal = Renewal(10.0)
    renewal.may_be_lost([lost])
    renewal.renew_all([lost], 50.0)
    first = renewal.next(50.0)
    assert first is not None
    renewal.done(first, Renewed((), {}), 50.0, 50.0)
    renewal.renew_all([lost], 55.0)
    again = renewal.next(55.0)
    assert again is not None
    assert (again.keys, again.put_back) == ([lost], [])


def renewed(renewal: Renewal, now: float) -> list[Key]:
    """What the next call renews."""
    batch = renewal.next(now)
    assert batch is not None
    renewal.done(batch, Renewed((), {}), now, now)
    return batch.keys


def test_a_lock_that_is_lost_or_unknown_has_no_more_time_than_before() -> None:
    lost, unknown, renewed_one = held(b"lost", 60.0), held(b"unknown", 60.0), held(b"sound", 60.0)
    renewal = Renewal(10.0)
    renewal.renew_all([lost, unknown, renewed_one], 55.0)
    batch = renewal.next(55.0)
    assert batch is not None
    numbers = {key: number for number, key in enumerate(batch.keys)}
    reply = Renewed((numbers[lost],), {}, unknown=(numbers[unknown],))
    assert renewal.done(batch, reply, 55.0, 55.5) == [lost]
    assert (lost.deadline, unknown.deadline, renewed_one.deadline) == (60.0, 60.0, 65.0)


def test_locks_that_end_first_are_renewed_first() -> None:
    soon = [held(b"soon %d" % number, 51.0) for number in range(RENEWED_A_CALL)]
    late = [held(b"late %d" % number, 59.0) for number in range(RENEWED_A_CALL)]
    for keys in ((*soon, *late), (*late, *soon)):
        renewal = Renewal(10.0)
        renewal.renew_all(keys, 50.0)
        first = renewal.next(50.0)
        assert first is not None
        assert set(first.keys) == set(soon)


def test_a_round_that_outlasts_heartbeats_leaves_no_lock_out() -> None:
    keys = [held(b"%d" % number, 60.0 + number / 1e6) for number in range(5 * RENEWED_A_CALL)]
    renewal = Renewal(10.0)
    turns: list[Key] = []
    for beat in range(10):  # Time for one call until the next heartbeat.
        now = 50.0 + beat
        renewal.renew_all(keys, now)
        turns += renewed(renewal, now)
        # More are taken meanwhile; their locks are new.
        keys += [held(b"%d %d" % (beat, number), now + 10.0) for number in range(100)]
    assert turns[: 5 * RENEWED_A_CALL] == keys[: 5 * RENEWED_A_CALL]
    assert len(set(turns)) > 5 * RENEWED_A_CALL


def test_a_lock_to_be_renewed_soon_does_not_wait_for_the_round() -> None:
    keys = [held(b"%d" % number, 51.0) for number in range(2 * RENEWED_A_CALL)]
    last = held(b"last", 59.0)
    renewal = Renewal(10.0)
    renewal.renew_all([*keys, last], 50.0)
    renewal.renew_soon(last, 50.0)
    assert last in renewed(renewal, 50.0)


def test_leases_that_end_for_good_do_not_keep_others_from_being_renewed() -> None:
    ending = [held(b"ending %d" % number, 55.0) for number in range(2 * RENEWED_A_CALL)]
    for key in ending:
        key.lease = KeyLease(key, lambda: 50.0, Event(), Event())
        key.lease.last = 55.0
    keys = [held(b"%d" % number, 59.0) for number in range(RENEWED_A_CALL)]
    renewal = Renewal(10.0)
    turns: set[Key] = set()
    for beat in range(3):
        renewal.renew_all([*ending, *keys], 50.0 + beat)
        turns.update(renewed(renewal, 50.0 + beat))
    assert turns == {*ending, *keys}


def test_a_lease_that_its_key_does_not_have_promises_no_time() -> None:
    key = held(b"key", 60.0)
    lease = KeyLease(key, lambda: 50.0, Event(), Event())
    assert lease.deadline < 50.0
    key.lease = lease
    assert lease.deadline == 60.0
