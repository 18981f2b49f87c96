"""What runs commands on Redis over an asyncio client.

It turns every failure of the client or the server into a :class:`hashring.errors.StoreError`. What
a signal handler raises into a call comes out as it is.
"""

from __future__ import annotations

import os
from collections.abc import Coroutine
from typing import Any, Final, TypeVar

from hashring.asyncio_cancellation import outcome
from hashring.errors import ReadOnlyReplica
from hashring.store.client_errors import is_of_call
from hashring.store.command import Command
from hashring.store.derived_clients import aclose, derive, derive_subscriber, remind, servers_of
from hashring.store.first_contact import FirstContact
from hashring.store.interface import Notice
from hashring.store.redis_answers import (
    described,
    is_unknown_script,
    notice_of,
    read_answer,
    subscribing,
)

T = TypeVar("T")

# A client keeps to its timeouts, but a call may have many: of each sentinel, each node of a
# cluster, each step of a handshake. After this many timeouts, a call of an asyncio client
# is given up.
_GIVE_UP: Final = 10


class _AsyncRedisSubscription:
    def __init__(
        self, client: Any, channels: tuple[bytes, ...], patience: float, contact: FirstContact
    ) -> None:
        self._doing = subscribing(channels)
        self._contact = contact
        self._channels = channels
        self._client = client
        self._patience = patience
        self._own: Any = None
        self._pubsub: Any = None

    async def open(self) -> None:
        try:
            await outcome(self._open(), self._patience)
        except BaseException as error:
            await self.close()
            if not isinstance(error, Exception):
                raise
            raise self._contact.failure(error, self._doing) from error

    async def _open(self) -> None:
        subscriber = await derive_subscriber(self._client, self._channels[0])
        self._own = subscriber if subscriber is not self._client else None
        self._pubsub = subscriber.pubsub()
        await self._pubsub.subscribe(*self._channels)

    async def wait(self, timeout: float) -> Notice | None:
        try:
            message = self._pubsub.get_message(timeout=timeout)
            notice = notice_of(await outcome(message, timeout + self._patience))
        except Exception as error:
            raise self._contact.failure(error, self._doing) from error
        if notice is not None:
            self._contact.answered = True
        return notice

    async def ask(self) -> None:
        try:
            await outcome(self._pubsub.ping(), self._patience)
        except Exception as error:
            raise self._contact.failure(error, self._doing) from error

    async def close(self) -> None:
        await _closed(self._close(), self._patience)

    async def _close(self) -> None:
        if self._pubsub is not None:
            await self._pubsub.aclose()
        if self._own is not None:
            await aclose(self._own)


class AsyncRedisStore:
    """Runs commands over an asyncio client of redis-py or valkey-py.

    A call may be cancelled at any moment: see :func:`hashring.asyncio_cancellation.over`.

    Args:
        client: where Redis is; the store makes connections of its own.
        timeout: seconds that Redis may take to answer.
    """

    def __init__(self, client: Any, timeout: float) -> None:
        self._client = derive(client, timeout)
        self._contact = FirstContact(client)
        self._servers = servers_of(self._client)
        self._patience = _GIVE_UP * timeout
        self._process = os.getpid()

    async def run(self, command: Command[T]) -> T:
        """Run a command; see :meth:`AsyncStore.run`."""
        try:
            self._refuse_if_forked()
            raw = await outcome(self._evaluate(command), self._patience)
        except Exception as error:
            if not is_of_call(error):
                raise
            remind(self._client, self._servers)
            failure = self._contact.failure(error, described(command))
            if isinstance(failure, ReadOnlyReplica):
                await self.close()  # see RedisStore.run
            raise failure from error
        self._contact.answered = True
        return read_answer(raw, command)

    async def _evaluate(self, command: Command[Any]) -> Any:
        script = command.script
        rest = (len(command.keys), *command.keys, *command.arguments)
        try:
            return await self._client.execute_command("EVALSHA", script.sha, *rest)
        except Exception as error:
            if not is_unknown_script(error):
                raise
        return await self._client.execute_command("EVAL", script.text, *rest)

    def _refuse_if_forked(self) -> None:
        """Refuse what a task of the parent asks while a child leaves the parent's event loop."""
        if self._process != os.getpid():
            raise ConnectionResetError("the connection belongs to the parent process")

    async def subscribe(self, *channels: bytes) -> _AsyncRedisSubscription:
        """Begin a subscription; see :meth:`AsyncStore.subscribe`."""
        subscription = _AsyncRedisSubscription(
            self._client, channels, self._patience, self._contact
        )
        await subscription.open()
        return subscription

    async def close(self) -> None:
        """Close all connections; the next call makes new ones."""
        await _closed(aclose(self._client), self._patience)


async def _closed(closing: Coroutine[Any, Any, None], patience: float) -> None:
    try:
        await outcome(closing, patience)
    except Exception:  # noqa: BLE001
        # What cannot be closed is closed already.
        return
