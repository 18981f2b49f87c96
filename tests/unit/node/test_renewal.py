"""Which locks a renewal may put back after Redis has lost some."""

from __future__ import annotations

from hashring.protocol.locks.key_states import Key, KeyState
from hashring.protocol.locks.renewal import Renewal
from hashring.store.locks.commands import Renewed


def held(name: bytes, deadline: float) -> Key:
    key = Key(name, 0)
    key.state, key.deadline = KeyState.HELD, deadline
    return key


def test_only_what_redis_may_have_lost_and_has_not_ended_is_put_back() -> None:
    sound, lost, ended = held(b"sound", 60.0), held(b"lost", 60.0), held(b"ended", 40.0)
    renewal = Renewal(10.0)
    renewal.may_be_lost([lost, ended])
    renewal.all([sound, lost, ended], 50.0)
    batch = renewal.next(50.0)
    assert batch is not None
    assert [batch.keys[number] for number in batch.put_back] == [lost]


def test_what_was_renewed_is_not_put_back_again() -> None:
    lost = held(b"lost", 60.0)
    renewal = Renewal(10.0)
    renewal.may_be_lost([lost])
    renewal.all([lost], 50.0)
    first = renewal.next(50.0)
    assert first is not None
    renewal.done(first, Renewed((), {}), 50.0, 50.0)
    renewal.all([lost], 55.0)
    again = renewal.next(55.0)
    assert again is not None
    assert (again.keys, again.put_back) == ([lost], [])
