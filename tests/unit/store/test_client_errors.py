"""Which errors in a call to Redis are about the call, and which are the caller's own."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
from typing import Any

import pytest
import redis.exceptions
import valkey.exceptions

from hashring.errors import ConfigError, GroupFormatError, RedisRefused, RedisUnavailable
from hashring.store.client_errors import is_of_call, is_of_libraries, may_have_been_done, translate
from hashring.store.command import Command
from hashring.store.lua_scripts import script
from hashring.store.redis_answers import read_answer


class SoftTimeLimit(Exception):
    pass


class Stop(BaseException):
    pass


class OwnValueError(ValueError):
    pass


class OwnOsError(OSError):
    pass


class OwnRedisError(redis.exceptions.ConnectionError):
    pass


OF_UVLOOP = RuntimeError("unable to perform operation on <TCPTransport>; the handler is closed")
OF_CALL = [
    OF_UVLOOP,
    redis.exceptions.ConnectionError(),
    redis.exceptions.ResponseError("NOPERM"),
    valkey.exceptions.TimeoutError(),
    OwnRedisError(),
    OSError(),
    OwnOsError(),
    TimeoutError(),
    asyncio.TimeoutError(),
    asyncio.IncompleteReadError(b"", 1),
    socket.gaierror(),
    ssl.SSLError(),
    ValueError("invalid literal for int()"),
    UnicodeDecodeError("utf-8", b"", 0, 1, "no"),
    json.JSONDecodeError("no", "", 0),
    KeyError(),
    IndexError(),
    TypeError(),
    AttributeError(),
    ConfigError("redis", None, "no"),
    RedisRefused("no"),
]
OF_OTHERS = [
    SoftTimeLimit(),
    Stop(),
    OwnValueError(),
    Exception(),
    RuntimeError(),
    KeyboardInterrupt(),
    SystemExit(),
    asyncio.CancelledError(),
    GeneratorExit(),
]


@pytest.mark.parametrize("error", OF_CALL, ids=lambda error: type(error).__name__)
def test_what_a_client_a_connection_or_an_answer_raises_is_of_the_call(
    error: BaseException,
) -> None:
    assert is_of_call(error)


@pytest.mark.parametrize("error", OF_OTHERS, ids=lambda error: type(error).__name__)
def test_anything_else_in_a_call_is_the_callers(error: BaseException) -> None:
    assert not is_of_call(error)


@pytest.mark.parametrize(
    ("error", "whether"),
    [
        (RuntimeError(), True),
        (KeyError(), True),
        (RedisRefused("no"), True),
        (redis.exceptions.ConnectionError(), True),
        (SoftTimeLimit(), False),
        (OwnValueError(), False),
        (Exception(), False),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_fault_of_the_library_is_told_from_an_exception_of_the_application(
    error: Exception, whether: bool
) -> None:
    assert is_of_libraries(error) is whether


@pytest.mark.parametrize("error", [SoftTimeLimit(), GroupFormatError("g", b"", "no")])
def test_what_is_raised_while_an_answer_is_read_and_is_not_about_it_comes_out(
    error: Exception,
) -> None:
    def read(raw: Any) -> Any:
        raise error

    with pytest.raises(type(error)):
        read_answer(1, Command(script("locks", "look"), (b"ring",), (), read))


def test_an_answer_that_cannot_be_read_is_refused() -> None:
    with pytest.raises(RedisRefused, match="cannot be understood"):
        read_answer(b"x", Command(script("locks", "look"), (b"ring",), (), int))


def test_a_connection_that_uvloop_has_closed_is_one_that_was_reset_before_the_write() -> None:
    assert type(translate(OF_UVLOOP, "heartbeat")) is RedisUnavailable
    assert not may_have_been_done(OF_UVLOOP)


@pytest.mark.parametrize(
    "text",
    [
        "Error 32 while writing to socket. Broken pipe.",
        "Error UNKNOWN while writing to socket. Connection lost.",
        "Error 104 while writing to socket. Connection reset by peer.",
        "Connection closed by server.",
    ],
)
def test_of_a_server_that_hangs_up_its_greatest_number_of_clients_is_named(text: str) -> None:
    """It says why before it hangs up; a client that writes meanwhile has not read that."""
    failure = translate(redis.exceptions.ConnectionError(text), "heartbeat")
    assert type(failure) is RedisUnavailable
    assert str(failure) == (
        f"heartbeat: {text.rstrip('.')}; the server ended the connection: check that it runs, "
        "and its maxclients"
    )


@pytest.mark.parametrize(
    "error",
    [
        redis.exceptions.MaxConnectionsError(),
        valkey.exceptions.ConnectionError("Too many connections"),
        redis.exceptions.ConnectionError("No connection available."),
    ],
)
def test_a_client_without_a_free_connection_is_named_and_has_sent_nothing(error: Exception) -> None:
    failure = translate(error, "fenced write")
    assert type(failure) is RedisUnavailable
    assert str(failure).endswith(
        "; all connections of your client are in use: raise its max_connections"
    )
    assert not may_have_been_done(error)
