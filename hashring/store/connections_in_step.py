"""Connections that are not used again with an answer outstanding.

redis-py and valkey-py return a connection to its pool however a call ended. What is raised into a
call from outside, as by a signal handler, may end it after the command was sent and before its
answer was read. The next call on that connection would read the answer as its own, and might take
for held a lock that another node holds. A connection of this module knows that an answer is
outstanding, and connects again instead.

In a forked child, greenlets of the parent live on, and those that wait for Redis would read the
parent's answers. So there the connections that they wait for are closed. The parent's stay open.
The same holds for tasks of an event loop that the child leaves, which cancels them.
"""

from __future__ import annotations

import asyncio
import functools
import importlib
import os
import socket
import weakref
from typing import TYPE_CHECKING, Any, Final

from hashring.monkey_patching import socket_hub

if TYPE_CHECKING:
    from redis import Connection as _Connection
    from redis.asyncio import Connection as _AsyncConnection
else:
    _Connection = _AsyncConnection = object


def _reads_apart(connection: Any) -> bool:
    """Whether answers are not read one by one, each before the next command."""
    # A client may send several commands of a handshake at once. A subscription, which alone
    # registers callbacks, reads messages too; it disconnects before it returns its connection.
    callbacks = connection._connect_callbacks
    return connection._connecting or any(each() is not None for each in callbacks)


def has_ended(stream: asyncio.StreamReader | None) -> bool:
    """Whether a connection of asyncio's has ended; ``None`` for one that was never made."""
    return stream is not None and (stream.at_eof() or stream.exception() is not None)


class _InStep(_Connection):
    _sock: Any
    _refusal: type[Exception]
    # Set before anything that must not be left in the middle, and cleared after it.
    _outstanding = False
    _connecting = False
    _shaking: int | None = None

    def connect(self) -> None:
        if self._outstanding and not _reads_apart(self):
            self.disconnect()
        if self._sock:
            return
        _connected.add(self)
        self._connecting = True
        try:
            super().connect()  # type: ignore[no-untyped-call]
        except BaseException:
            # The client keeps a connection if an error of another kind than its own ends the
            # handshake. It may have the wrong database.
            self.disconnect()
            raise
        finally:
            self._connecting = False

    def _wrap_socket_with_ssl(self, sock: Any) -> Any:
        # Until the end of TLS' handshake nobody else has the socket.
        self._shaking = sock.fileno()
        try:
            return super()._wrap_socket_with_ssl(sock)  # type: ignore[misc]
        finally:
            self._shaking = None

    def disconnect(self, *args: Any, **options: Any) -> None:
        self._outstanding = True
        super().disconnect(*args, **options)  # type: ignore[no-untyped-call]
        self._outstanding = False

    def send_packed_command(self, command: Any, check_health: bool = True) -> None:
        if self.pid != os.getpid():
            # A greenlet was about to connect when the process forked.
            self.disconnect()
            raise ConnectionResetError("the connection belongs to the parent process")
        if self._outstanding and not _reads_apart(self):
            self.disconnect()
        if not self._sock:
            self.connect()  # Now: the answers of its handshake clear what is set next.
        self._outstanding = True
        super().send_packed_command(command, check_health)  # type: ignore[no-untyped-call]

    def read_response(self, *args: Any, **options: Any) -> Any:
        try:
            answer = super().read_response(*args, **options)
        except self._refusal:
            self._outstanding = False
            raise
        self._outstanding = False
        return answer


# Those that were ever made, while somebody has them.
_connected: Final[weakref.WeakSet[_InStep]] = weakref.WeakSet()


_async_connected: Final[weakref.WeakSet[_AsyncInStep]] = weakref.WeakSet()


def close_inherited() -> None:
    """In a forked child: close the parent's connections that greenlets or tasks may wait for."""
    for asynchronous in list(_async_connected):
        writer = asynchronous._writer
        inherited: Any = None if writer is None else writer.get_extra_info("socket")
        if inherited is not None and inherited.fileno() >= 0:
            # Closed by the child's event loop, it would be watched by the parent's no more: they
            # share what tells them of their file descriptors.
            _end(inherited.fileno())
    if (hub := socket_hub()) is None:
        return  # Of threads, none lives on but the one that forked.
    for connection in list(_connected):
        # Not by disconnect(), whose locks another thread may have held.
        if getattr(connection._sock, "hub", None) is hub:
            connection._sock.close()
        if connection._shaking is not None:
            # The file descriptor must stay: a greenlet waits for it, and is to find an end there.
            _end(connection._shaking)


def _end(descriptor: int) -> None:
    """Put a connection that has ended in the place of one."""
    ended, other = socket.socketpair()
    os.dup2(ended.fileno(), descriptor, inheritable=False)
    ended.close()
    other.close()


class _AsyncInStep(_AsyncConnection):
    _refusal: type[Exception]
    _outstanding = False
    _connecting = False
    _reader: asyncio.StreamReader | None
    _writer: asyncio.StreamWriter | None

    async def _drop_unfit(self) -> None:
        # Of a connection that was reset, the client learns only when it writes.
        unfit = self._outstanding or has_ended(self._reader)
        if unfit and not _reads_apart(self):
            await self.disconnect(nowait=True)

    async def connect(self) -> None:
        await self._drop_unfit()
        if self.is_connected:
            return
        _async_connected.add(self)
        self._connecting = True
        try:
            await super().connect()  # type: ignore[no-untyped-call]
        except BaseException:
            await self.disconnect(nowait=True)  # see _InStep.connect
            raise
        finally:
            self._connecting = False

    async def disconnect(self, *args: Any, **options: Any) -> None:
        self._outstanding = True
        await super().disconnect(*args, **options)
        self._outstanding = False

    async def send_packed_command(self, command: Any, check_health: bool = True) -> None:
        await self._drop_unfit()
        if not self.is_connected:
            await self.connect()
        self._outstanding = True
        await super().send_packed_command(command, check_health)

    async def read_response(self, *args: Any, **options: Any) -> Any:
        try:
            answer = await super().read_response(*args, **options)
        except self._refusal:
            self._outstanding = False
            raise
        self._outstanding = False
        return answer


@functools.cache
def in_step(kind: Any, prefix: str) -> Any:
    """The class of connections like those of ``kind`` that are kept in step.

    Args:
        prefix: the modules of its client: ``"redis"`` or ``"redis.asyncio"``, or valkey's.
    """
    package, _, asynchronous = prefix.partition(".")
    refusal = importlib.import_module(f"{package}.exceptions").ResponseError
    base = _AsyncInStep if asynchronous else _InStep
    return type(kind.__name__, (base, kind), {"_refusal": refusal})
