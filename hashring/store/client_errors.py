"""From a Redis client's exception to this package's.

redis-py and valkey-py have trees of their own with the same names, and a server reports some
refusals only in the text of a ``ResponseError``: so classes are known by name, texts by code.

Not every exception in a call comes from the call. A signal handler raises in whatever it
interrupts, and gevent raises in a greenlet what it is killed with. Such an exception is the
application's, and tells nothing about Redis: see :func:`is_of_call`.
"""

from __future__ import annotations

import asyncio
import re
import sys
from typing import Final, TypeGuard

from hashring.errors import HashringError, RedisRefused, RedisUnavailable, StoreError
from hashring.store.error_remedies import error_and_remedy

# What a server puts around an error inside a script: Redis 6.2 before it, later servers behind it.
_BEFORE: Final = re.compile(r"^Error running script \(call to \w+\): (?:@user_script: ?\d+: )*-?")
_BEHIND: Final = re.compile(r"\.? script: \w+, on @user_script:\d+$")

# Clients take these codes off the text, and make a class of them.
_TAKEN_OFF: Final = {
    "NoPermissionError": "NOPERM",
    "ReadOnlyError": "READONLY",
    "AskError": "ASK",
    "MovedError": "MOVED",
    "OutOfMemoryError": "OOM",
    "BusyLoadingError": "LOADING",
    "MasterDownError": "MASTERDOWN",
    "ClusterDownError": "CLUSTERDOWN",
    "TryAgainError": "TRYAGAIN",
}

# A server that still loads its data refuses with a class of its own, and so does a client that may
# make no more connections.
_REFUSALS: Final = frozenset(
    {"ResponseError", "BusyLoadingError", "AuthenticationError", "MaxConnectionsError"}
)

_NOT_CONNECTED: Final = re.compile(
    r"(Error|Timeout)\b.* connecting to |max number of clients reached|No (master|slave) found for "
    r"|Too many connections|No connection available"
)

# What would fill the screen: the words of a command that a server does not know, and what a client
# of Sentinel says of each Sentinel.
_TOO_MUCH: Final = re.compile(
    r"(unknown command .*?), with args beginning with: .*|(No master found for .*?) : .*",
    re.DOTALL,
)

# uvloop raises a RuntimeError with these words where asyncio's own loop raises a
# ConnectionResetError: the connection was closed before anything was written.
_CLOSED: Final = "the handler is closed"

_CLIENTS: Final = frozenset({"redis", "valkey", "hiredis", "libvalkey"})

# What a client, or what reads an answer, raises for one that it does not understand. In Python 3.10
# the TimeoutError of asyncio is no OSError.
_OF_ANSWERS: Final = (
    HashringError,
    ArithmeticError,
    AssertionError,
    AttributeError,
    EOFError,
    LookupError,
    TypeError,
    ValueError,
    asyncio.TimeoutError,
)


def is_of_libraries(error: BaseException) -> bool:
    """Whether the class of an error is Python's, a Redis client's, or this package's own.

    A bare ``Exception`` is none of these: no library raises it.
    """
    if type(error) in (BaseException, Exception):
        return False
    package = _package(type(error))
    return package in sys.stdlib_module_names or package in _CLIENTS or package == "hashring"


def is_of_call(error: BaseException) -> TypeGuard[Exception]:
    """Whether an error in a call to Redis is about that call.

    Any other was raised into it from outside, and belongs to the caller.
    """
    if isinstance(error, OSError) or any(_package(kind) in _CLIENTS for kind in type(error).mro()):
        return True
    if _is_of_closed_connection(error):
        return True
    return isinstance(error, _OF_ANSWERS) and is_of_libraries(error)


def _is_of_closed_connection(error: BaseException) -> bool:
    return type(error) is RuntimeError and str(error).endswith(_CLOSED)


def _package(kind: type) -> str:
    return kind.__module__.partition(".")[0]


def translate(error: BaseException, doing: str) -> StoreError:
    """This package's error for a client's; raise it ``from`` the client's.

    Its text is the same for an error inside a script and outside.

    Args:
        doing: what was being done, for the text: ``"heartbeat of ring 'accounts'"``.
    """
    names = [base.__name__ for base in type(error).__mro__]
    text = _bare(str(error)) or type(error).__name__
    if names[0] in _TAKEN_OFF:
        text = f"{_TAKEN_OFF[names[0]]} {text}"
    kind, remedy = error_and_remedy(names, text)
    if kind is None:
        return RedisRefused(f"{doing}: {type(error).__name__}: {text}")
    return kind(f"{doing}: {text}; {remedy}")


def may_have_been_done(error: Exception) -> bool:
    """Whether a command may have been done whose call raised this client's error.

    Not if the server refused it, or if there was no connection to send it on.
    """
    if any(base.__name__ in _REFUSALS for base in type(error).__mro__):
        return False
    if _is_of_closed_connection(error):
        return False
    return not _NOT_CONNECTED.match(str(error))


def in_doubt(failure: RedisUnavailable) -> RedisUnavailable:
    """The failure of a command that may have been done, which its text says."""
    return type(failure)(f"{failure}: it may have been done: check before you repeat it")


def _bare(text: str) -> str:
    text = _BEFORE.sub("", text.rstrip(". "))
    text = _TOO_MUCH.sub(r"\1\2", text)
    return _BEHIND.sub("", text).rstrip(". ")
