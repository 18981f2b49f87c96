"""A TCP proxy in front of a Redis server that can be told to fail in each way a network does.

It runs an event loop in a thread of its own. Every connection is known as ``"pubsub"`` once the
client has sent SUBSCRIBE on it, as ``"commands"`` until then; what is done to connections can be
done to one kind only.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

CHUNK = 1 << 16


@dataclass
class Faults:
    """What happens to what is sent.

    Attributes:
        delay: seconds that each chunk from the server waits.
        message_delay: seconds that pub/sub messages wait.
        swallow_requests: what the client sends vanishes.
        swallow_answers: what the server sends vanishes.
        swallow_messages: pub/sub messages vanish, everything else passes.
    """

    delay: float = 0.0
    message_delay: float = 0.0
    swallow_requests: bool = False
    swallow_answers: bool = False
    swallow_messages: bool = False


@dataclass(eq=False)
class Connection:
    """One connection of a client, and the one to the server behind it."""

    client: asyncio.StreamWriter
    server: asyncio.StreamWriter
    faults: Faults
    kind: str = "commands"
    tasks: list[asyncio.Task[None]] = field(default_factory=list)


class Proxy:
    """``Proxy(socket_or_address)`` listens on a free port of 127.0.0.1 until :meth:`stop`.

    Args:
        upstream: the server's unix socket, or its ``(host, port)``.
        tls: speak TLS to clients.
    """

    def __init__(
        self, upstream: Path | tuple[str, int], *, tls: ssl.SSLContext | None = None
    ) -> None:
        self.upstream = upstream
        self._tls = tls
        self._connections: list[Connection] = []
        self._new = Faults()
        self._refuse = False
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name="proxy", daemon=True)
        self._thread.start()
        self._ready.wait()

    @property
    def url(self) -> str:
        return f"{'rediss' if self._tls else 'redis'}://127.0.0.1:{self.port}"

    # --- faults -------------------------------------------------------------------------------

    def delay(self, seconds: float, kind: str | None = None) -> None:
        """Make every answer, of new connections too, late by that much."""
        self._change(kind, True, delay=seconds)

    def delay_messages(self, seconds: float) -> None:
        """Make every pub/sub message late by that much, and nothing else."""
        self._change(None, True, message_delay=seconds)

    def black_hole(self, kind: str | None = None, *, new: bool = True) -> None:
        """Let nothing through, in either direction, and close nothing."""
        self._change(kind, new, swallow_requests=True, swallow_answers=True)

    def deafen(self, kind: str | None = None, *, new: bool = False) -> None:
        """Half-open: what the client sends arrives, and nothing ever comes back."""
        self._change(kind, new, swallow_answers=True)

    def lose_messages(self) -> None:
        """Lose every pub/sub message, and nothing else."""
        self._change(None, True, swallow_messages=True)

    def heal(self, *, old: bool = True) -> None:
        """Let everything through again; with ``old`` false on new connections only."""
        self._refuse = False
        if old:
            self._change(None, True, **vars(Faults()))
        else:
            self._new = Faults()

    def refuse(self) -> None:
        """Cut every connection, and each new one at once."""
        self._refuse = True
        self.cut()

    def cut(self, kind: str | None = None) -> int:
        """Cut connections (RST); how many."""

        def abort() -> int:
            found = self._of(kind)
            for connection in found:
                connection.client.transport.abort()
                connection.server.transport.abort()
            return len(found)

        return self._do(abort)

    def reset(self) -> int:
        """Cut every connection such that the client reads no end of it, but an error; how many."""

        def linger() -> None:
            for connection in self._connections:
                at_once = struct.pack("ii", 1, 0)
                sock = connection.client.get_extra_info("socket")
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, at_once)

        self._do(linger)
        return self.cut()

    def count(self, kind: str | None = None) -> int:
        """How many connections are open."""
        return self._do(lambda: len(self._of(kind)))

    # --- inside -------------------------------------------------------------------------------

    def _change(self, kind: str | None, new: bool, **faults: Any) -> None:
        def change() -> None:
            for each in [c.faults for c in self._of(kind)] + ([self._new] if new else []):
                for name, value in faults.items():
                    setattr(each, name, value)

        self._do(change)

    def _of(self, kind: str | None) -> list[Connection]:
        return [c for c in self._connections if kind in (None, c.kind)]

    def _do(self, function: Callable[[], Any]) -> Any:
        async def call() -> Any:
            return function()

        return asyncio.run_coroutine_threadsafe(call(), self._loop).result(30)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)

        async def listen() -> asyncio.Server:
            return await asyncio.start_server(self._accept, "127.0.0.1", 0, ssl=self._tls)

        server = self._loop.run_until_complete(listen())
        self.port: int = server.sockets[0].getsockname()[1]
        self._ready.set()
        self._loop.run_forever()
        server.close()
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        for connection in self._connections:
            connection.client.transport.abort()
            connection.server.transport.abort()
        self._loop.run_until_complete(asyncio.sleep(0))
        self._loop.run_until_complete(asyncio.sleep(0))
        self._loop.close()

    async def _accept(self, reader: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        if self._refuse:
            client.transport.abort()
            return
        try:
            if isinstance(self.upstream, tuple):
                answers, server = await asyncio.open_connection(*self.upstream)
            else:
                answers, server = await asyncio.open_unix_connection(str(self.upstream))
        except OSError:
            client.transport.abort()
            return
        faults = Faults(**vars(self._new))
        connection = Connection(client, server, faults)
        self._connections.append(connection)
        try:
            await asyncio.gather(
                self._pump(connection, reader, server, True),
                self._pump(connection, answers, client, False),
            )
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            self._connections.remove(connection)
            client.transport.abort()
            server.transport.abort()

    async def _pump(
        self,
        connection: Connection,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        request: bool,
    ) -> None:
        faults = connection.faults
        while data := await reader.read(CHUNK):
            if request:
                if b"SUBSCRIBE" in data:
                    connection.kind = "pubsub"
                if faults.swallow_requests:
                    continue
            else:
                message = b"\nmessage\r" in data
                if late := faults.delay + faults.message_delay * message:
                    await asyncio.sleep(late)
                if faults.swallow_answers or (faults.swallow_messages and message):
                    continue
            writer.write(data)
            await writer.drain()
        # One side has closed: close the other, unless the network would swallow that, too.
        if faults.swallow_requests if request else faults.swallow_answers:
            return
        with contextlib.suppress(OSError):
            writer.close()
        raise ConnectionResetError

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def __enter__(self) -> Proxy:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
