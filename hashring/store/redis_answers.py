"""What a client of redis-py or valkey-py brings from Redis: answers, messages and failures.

It is the same for a sync client and an asyncio one.
"""

from __future__ import annotations

from typing import Any, TypeVar

from hashring.errors import GroupFormatError, HashringError, RedisRefused
from hashring.store.client_errors import is_of_call, translate
from hashring.store.command import Command
from hashring.store.interface import Answered, Message, Notice, Subscribed, Unsubscribed

T = TypeVar("T")


def notice_of(message: dict[str, Any] | None) -> Notice | None:
    """What a subscription received; ``None`` for nothing, or for what it need not report."""
    kind = message["type"] if message else None
    if kind == "subscribe":
        return Subscribed()
    if kind == "unsubscribe":
        return Unsubscribed()
    if kind == "pong":
        return Answered()
    if message is None or kind != "message":
        return None
    return Message(_bytes(message["channel"]), _bytes(message["data"]))


def _bytes(value: Any) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode()


def subscribing(channels: tuple[bytes, ...]) -> str:
    """What a subscription was doing, for the text of an error."""
    return f"subscription to {channels[0].decode('utf-8', 'replace')!r}"


def is_unknown_script(error: Exception) -> bool:
    """Whether Redis has no script of the hash that it was called by."""
    return type(error).__name__ == "NoScriptError" or str(error).startswith("NOSCRIPT")


def read_answer(raw: Any, command: Command[T]) -> T:
    """The result of a command, read from what the client returned.

    Raises:
        GroupFormatError: another version of this package wrote what the command read.
        RedisRefused: it cannot be understood.
    """
    try:
        return command.read(raw)
    except GroupFormatError:
        raise  # the clearer error: another version wrote what stands in Redis
    except Exception as error:
        if not is_of_call(error):
            raise
        shown = repr(raw)
        shown = shown if len(shown) <= 80 else shown[:80] + "..."
        raise RedisRefused(
            f"{described(command)}: the answer {shown} cannot be understood: "
            f"is this a Redis or Valkey server, with nothing in between that changes answers?"
        ) from error


def described(command: Command[Any]) -> str:
    """What a command was doing, for the text of an error."""
    key = command.keys[0].decode("utf-8", "replace")
    # A ring's ZSET has the ring's name; for other scripts, their first key in Redis is named.
    return f"{command.script.name} of {'key' if key.startswith('{') else 'ring'} {key!r}"


def told_failure(error: BaseException, command: Command[Any]) -> HashringError:
    """What a protocol is told when a call of its loop failed, for whatever reason.

    Nobody calls a loop of the library's: an exception that no store translates, such as a fault of
    a client's, is a failed call like any other, and the loop goes on.
    """
    if isinstance(error, HashringError):
        return error
    failure = translate(error, described(command))
    failure.__cause__ = error
    return failure
