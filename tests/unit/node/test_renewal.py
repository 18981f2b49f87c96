"""Which locks a renewal may put back after Redis has lost some."""

from __future__ import annotations

from hashring.protocol.locks.key_states import Key, KeyState
from hashring.protocol.locks.renewal import Renewal


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
