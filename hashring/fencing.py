"""Refuse the writes of a holder that lost its key.

A lease protects nothing by itself. Its holder may be paused (by the scheduler, a garbage
collector, SIGSTOP, a live migration) between the check and the write, for longer than the lease
lasts; it wakes up, believes in the lease, and writes over the work of the next holder. Only the
resource that is written can prevent that: it remembers the newest fencing token it has seen, and
refuses older ones. Tokens grow with every hold of a key, so the next holder's first write closes
the door.

For Redis, :class:`RedisFence` does so. For SQL, put the token into the row and into the ``WHERE``
(see docs/howto/fencing.rst for the whole example)::

    UPDATE accounts SET state = :state, token = :token WHERE id = :id AND token <= :token

and treat "no row changed" as :class:`hashring.StaleToken`. For anything else that can compare and
set, :class:`Fence` is the rule in one method.

The method is described by M. Kleppmann, "How to do distributed locking" (2016).
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable, Iterable, Sequence
from typing import Any, Final

from hashring.asyncio_cancellation import over, result_of
from hashring.core.hashing import key_bytes
from hashring.core.value_checks import is_whole
from hashring.errors import ConfigError, HashringError, RedisUnavailable, StaleToken
from hashring.monkey_patching import native_mutex
from hashring.store.client_errors import in_doubt, is_of_call, may_have_been_done, translate
from hashring.store.client_kind import is_async
from hashring.store.command import Argument
from hashring.store.lua_scripts import script
from hashring.store.sent_once import SentOnce

_WORDS: Final = 7_997
"""As many as a command may have: Lua gives a function 8,000 values, and ``unpack`` has three."""


def _checked(token: int) -> int:
    if not is_whole(token) or not 0 < token < 10**20:
        raise ConfigError("token", token, "give the lease's token, a positive integer")
    return token


class Fence:
    """Remembers the newest token of each resource, in this process.

    For resources that live in this process, or as a model of what a remote one has to do. Safe
    to use from several threads.
    """

    def __init__(self) -> None:
        self._newest: dict[Hashable, int] = {}
        self._lock = native_mutex()

    def admit(self, resource: Hashable, token: int) -> None:
        """Let a write pass, or refuse it.

        The write itself must be ordered with this call, for example under a lock around both.

        Raises:
            StaleToken: a newer token has been seen for the resource.
            ConfigError: the token is no token.
        """
        with self._lock:
            newest = self._newest.get(resource, 0)
            if _checked(token) < newest:
                raise StaleToken(resource, token, newest)
            self._newest[resource] = token


class RedisFence:
    """Runs Redis commands for a holder, unless its key has gone to another one.

    ::

        fence = RedisFence(redis)
        with node.hold("account-7") as lease:
            fence.write("{account-7}", lease.token, ["HSET", "{account-7}:state", "page", "12"])

    Check and commands are one atomic step, which is sent once: a write whose answer is lost is not
    repeated, although the client may repeat its other commands. The newest token is kept in
    ``<resource>:fence``. On Redis Cluster the resource and the keys of the commands need one hash
    slot, which a common hash tag gives them.

    Args:
        redis: a sync client of redis-py or valkey-py; writes use its connections.
        forget_after: seconds after the last write at which the newest token is forgotten, so that
            resources that come and go do not fill Redis; ``None`` keeps it for ever. A holder
            that is paused for longer than this is not refused any more.

    Raises:
        ConfigError: ``redis`` is no such client, or is a pipeline, or ``forget_after`` is not a
            positive whole number of seconds.
    """

    def __init__(self, redis: Any, *, forget_after: int | None = None) -> None:
        self._redis = _checked_client(redis, asynchronous=False)
        self._forget_after = _checked_forget_after(forget_after)

    def write(
        self,
        resource: str | bytes,
        token: int,
        *commands: Sequence[Argument],
        keys: Iterable[str | bytes] | None = None,
    ) -> list[Any]:
        """Run the commands, and return their answers, decoded as the client decodes.

        Args:
            resource: what is protected: the same text for all who write it, as ``str`` or as its
                UTF-8 ``bytes``, such as ``lease.key``.
            token: the lease's.
            commands: each a sequence of words, the command's name first.
            keys: the keys that the commands touch; the second word of each unless given.

        Raises:
            StaleToken: a newer token has been seen for the resource; nothing was done.
            ConfigError: the token is no token, or a command has no words, or more than 7,997, or
                a word of a type that the client does not send; or ``keys`` is one text, or no
                sequence.
            KeyTypeError, KeyValueError: the resource is neither, or is empty.
            RedisUnavailable: Redis did not answer. The write was not done, or its outcome is
                unknown. Write again only if the commands may run twice, as ``SET`` may and
                ``INCRBY`` may not. Holding the key again does not keep the lost write out: the
                token may be the same. See docs/howto/fencing.rst for writes that count once.
            StoreError: Redis refused. If it refused a command, those before it are done, as in any
                Redis transaction. If ``<resource>:fence`` is no token, nothing is done.
            Exception: what the client's own credential provider raised; nothing was sent.
        """
        arguments = _arguments(resource, token, commands, keys, self._forget_after)
        try:
            answer = self._redis.run(_newest_key(resource), "EVAL", *arguments)
        except Exception as error:
            if not is_of_call(error):
                raise
            raise _failure(error, resource, commands, keys) from error
        return _admitted(resource, token, answer)


class AsyncRedisFence:
    """:class:`RedisFence` for asyncio: over an asyncio client, and ``write`` is awaited."""

    def __init__(self, redis: Any, *, forget_after: int | None = None) -> None:
        self._redis = _checked_client(redis, asynchronous=True)
        self._forget_after = _checked_forget_after(forget_after)

    async def write(
        self,
        resource: str | bytes,
        token: int,
        *commands: Sequence[Argument],
        keys: Iterable[str | bytes] | None = None,
    ) -> list[Any]:
        """Run the commands, as :meth:`RedisFence.write`.

        Cancelled, it may have been done or not. No cancel is lost, although redis-py swallows some
        before Python 3.12.

        Raises:
            StaleToken, ConfigError, KeyTypeError, KeyValueError, RedisUnavailable, StoreError: as
                there.
        """
        arguments = _arguments(resource, token, commands, keys, self._forget_after)
        try:
            sent = self._redis.run_async(_newest_key(resource), "EVAL", *arguments)
            writing = asyncio.ensure_future(sent)
            await over(writing)
            answer = result_of(writing)
        except Exception as error:
            if not is_of_call(error):
                raise
            raise _failure(error, resource, commands, keys) from error
        return _admitted(resource, token, answer)


def _checked_client(redis: Any, *, asynchronous: bool) -> SentOnce:
    if is_async(redis) is not asynchronous:
        kind, use = ("not an", "RedisFence") if asynchronous else ("an", "AsyncRedisFence")
        raise ConfigError("redis", type(redis), f"is {kind} asyncio client: use {use}")
    return SentOnce(redis)


def _checked_forget_after(seconds: int | None) -> int:
    if seconds is None:
        return 0
    if not is_whole(seconds) or seconds < 1:
        raise ConfigError("forget_after", seconds, "give whole seconds, or None")
    return seconds


def _newest_key(resource: str | bytes) -> bytes:
    return key_bytes(resource) + b":fence"


def _arguments(
    resource: str | bytes,
    token: int,
    commands: Sequence[Sequence[Argument]],
    keys: Iterable[str | bytes] | None,
    forget_after: int,
) -> tuple[Argument, ...]:
    for command in commands:
        if isinstance(command, bytes | str) or not isinstance(command, Sequence) or not command:
            raise ConfigError("command", command, "give a sequence of words: ['SET', 'k', 'v']")
        if len(command) > _WORDS:
            raise ConfigError(
                "command",
                f"{command[0]!r} and {len(command) - 1} more words",
                f"a command has at most {_WORDS} words: make several of it",
            )
    if isinstance(keys, bytes | str) or not isinstance(keys, Iterable | None):
        raise ConfigError("keys", keys, "give a sequence of keys: ['k']")
    named: Iterable[Argument] = (c[1] for c in commands if len(c) > 1)
    touched = list(named if keys is None else keys)
    words = [word for command in commands for word in (len(command), *command)]
    return (
        # As bytes: all who write must mean the same key, whatever their clients' encodings.
        script("fencing", "write").text.encode(),
        1 + len(touched),
        _newest_key(resource),
        *touched,
        b"%d" % _checked(token),
        forget_after,
        *words,
    )


def _failure(
    error: Exception,
    resource: str | bytes,
    commands: Sequence[Sequence[Argument]],
    keys: Iterable[str | bytes] | None,
) -> HashringError:
    if type(error).__name__ == "DataError":
        # Of the client's own: it knows what it can send, and sent nothing.
        setting, value = (
            ("commands", commands) if keys is None else ("commands, keys", (commands, keys))
        )
        return ConfigError(setting, value, str(error))
    failure = translate(error, f"fenced write to {resource!r}")
    if isinstance(failure, RedisUnavailable) and may_have_been_done(error):
        return in_doubt(failure)
    return failure


def _admitted(resource: str | bytes, token: int, answer: list[Any]) -> list[Any]:
    if int(answer[0]) == 0:
        raise StaleToken(resource, token, int(answer[1]))
    return list(answer[1:])
