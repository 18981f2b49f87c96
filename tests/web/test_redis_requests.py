"""Requests that ask Redis itself, while it hangs."""

from __future__ import annotations

import os
import signal
import threading

import pytest
from redis import Redis

from hashring.errors import StoreError
from hashring.store.redis_store import RedisStore
from hashring.web.redis_requests import AT_ONCE, RedisIsSlow, RedisRequests
from tests.conftest import PATIENCE, eventually

pytestmark = pytest.mark.one_server


def test_while_redis_hangs_only_some_requests_wait_for_it(redis: Redis) -> None:
    asking = RedisRequests(RedisStore(redis, PATIENCE))
    assert asking.call("ECHO", "x") == b"x"
    answers: list[bytes] = []
    process = redis.info()["process_id"]
    os.kill(process, signal.SIGSTOP)
    try:
        waiting = [
            threading.Thread(target=lambda: answers.append(asking.call("ECHO", "x")), daemon=True)
            for _ in range(AT_ONCE)
        ]
        for each in waiting:
            each.start()
        eventually(lambda: not asking._turns._value, "all turns are taken")
        with pytest.raises(RedisIsSlow, match="8 requests wait for Redis already") as refused:
            asking.call("ECHO", "x")
        assert isinstance(refused.value, StoreError)
        # The threads are the same for all servers of a service.
        with pytest.raises(RedisIsSlow):
            RedisRequests(RedisStore(redis, PATIENCE)).call("ECHO", "x")
    finally:
        os.kill(process, signal.SIGCONT)
    for each in waiting:
        each.join(PATIENCE)
    assert answers == [b"x"] * AT_ONCE
    assert asking.call("ECHO", "x") == b"x"
