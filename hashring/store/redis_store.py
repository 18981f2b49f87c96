"""What runs commands on Redis over a sync client.

It turns every failure of the client or the server into a :class:`hashring.errors.StoreError`. What
is raised into a call from outside comes out as it is: by a signal handler, or where a greenlet is
killed.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from hashring.errors import ReadOnlyReplica
from hashring.monkey_patching import (
    connections_home,
    native_lock,
    original,
    socket_hub,
    threads_are_greenlets,
)
from hashring.store.client_errors import is_of_call
from hashring.store.command import Command
from hashring.store.derived_clients import close, derive, known_servers, remind, servers_of
from hashring.store.first_contact import FirstContact
from hashring.store.interface import Notice, Subscription
from hashring.store.redis_answers import (
    described,
    is_unknown_script,
    notice_of,
    read_answer,
    subscribing,
)

T = TypeVar("T")


class _RedisSubscription:
    def __init__(self, client: Any, channels: tuple[bytes, ...], contact: FirstContact) -> None:
        self._doing = subscribing(channels)
        self._contact = contact
        self._pubsub = client.pubsub()
        self._closed = False
        # Another thread ends it than the one that closes it, and then its connection is another
        # caller's. Among greenlets nothing comes between the look and the sending.
        home = connections_home()
        self._ending: Any = native_lock() if home is None else nullcontext()
        try:
            self._pubsub.subscribe(*channels)
        except Exception as error:
            self.close()
            raise self._contact.failure(error, self._doing) from error
        # For ever: without retries, a connection that is gone is never replaced.
        self._socket: Any = getattr(self._pubsub.connection, "_sock", None)

    def wait(self, timeout: float) -> Notice | None:
        try:
            notice = notice_of(self._pubsub.get_message(timeout=timeout))
        except Exception as error:
            raise self._contact.failure(error, self._doing) from error
        if notice is not None:
            self._contact.answered = True
        return notice

    def ask(self) -> None:
        try:
            self._pubsub.ping()
        except Exception as error:
            raise self._contact.failure(error, self._doing) from error

    def end(self) -> None:
        with self._ending:
            # Once closed, the client would connect anew, to unsubscribe.
            if not self._closed:
                self._end()

    def _end(self) -> None:
        try:
            if (shutdown := _below_gevent(self._socket)) is not None:
                # Of what gevent has patched, nothing may be shared with another thread: the client
                # has a lock inside, and whom that lets go on is said to a hub that may never run.
                # So the connection is ended below gevent; its thread finds the end of the stream.
                shutdown(socket.SHUT_RDWR)
            else:
                self._pubsub.unsubscribe()
        except Exception:  # noqa: BLE001
            # The connection is gone; the waiting thread gets an error of its own.
            return

    def close(self) -> None:
        with self._ending:
            self._closed = True
        try:
            self._pubsub.close()
        except Exception:  # noqa: BLE001
            # What cannot be closed is closed already.
            return


def _below_gevent(connected: Any) -> Callable[[int], None] | None:
    """What shuts down a connection that another thread reads; ``None`` if the client may end it."""
    hub = getattr(connected, "hub", None)
    if hub is not None:
        return None if hub is socket_hub() else connected._sock.shutdown
    if connected is None or not threads_are_greenlets():
        return None
    # Not that of TLS itself, under which the thread reads on.
    return partial(original("_socket", "socket").shutdown, connected)


@dataclass(frozen=True)
class _Derived:
    """Connections of a store's own.

    Attributes:
        client: a client that makes them.
        servers: where a client of a cluster begins.
    """

    client: Any
    servers: dict[str, Any]


class RedisStore:
    """Runs commands over a sync client of redis-py or valkey-py.

    Safe to use from several threads at once.

    Args:
        client: where Redis is; the store makes connections of its own.
        timeout: seconds that Redis may take to answer.
        answered: whether a server has answered a store of the same settings.
    """

    def __init__(self, client: Any, timeout: float, *, answered: bool = False) -> None:
        self._given = client
        self._timeout = timeout
        self._contact = FirstContact(client, answered=answered)
        self._derived: _Derived | None = None
        # With gevent's sockets or locks: each thread's own, and the hub that they were made in.
        self._of_thread = original("_thread", "_local")()
        # Reentrant: a signal handler may stop the node in the middle of its first call.
        self._deriving = threading.RLock()

    @property
    def answered(self) -> bool:
        """Whether a server has answered."""
        return self._contact.answered

    @property
    def _known(self) -> _Derived | None:
        """The caller's connections; ``None`` before its first call."""
        home = connections_home()
        if home is None:
            return self._derived
        made_in, derived = getattr(self._of_thread, "known", (None, None))
        return derived if made_in is home else None

    @property
    def _client(self) -> Any:
        # Made at the first call and not before: the client of a cluster asks for its nodes.
        home = connections_home()
        if home is not None:
            if (known := self._known) is None:
                known = self._derive()
                self._of_thread.known = home, known
            return known.client
        with self._deriving:
            if self._derived is None:
                self._derived = self._derive()
            return self._derived.client

    def _derive(self) -> _Derived:
        client = derive(self._given, self._timeout)
        # Among the given ones may be a name that leads to whichever servers there are then.
        return _Derived(client, {**known_servers(self._given), **servers_of(client)})

    def run(self, command: Command[T]) -> T:
        """Run a command; see :meth:`Store.run`."""
        script = command.script
        rest = (len(command.keys), *command.keys, *command.arguments)
        try:
            client = self._client
            try:
                raw = client.execute_command("EVALSHA", script.sha, *rest)
            except Exception as error:
                if not is_unknown_script(error):
                    raise
                raw = client.execute_command("EVAL", script.text, *rest)
        except BaseException as error:
            if not is_of_call(error):
                raise
            if (known := self._known) is not None:
                remind(known.client, known.servers)
            failure = self._contact.failure(error, described(command))
            if isinstance(failure, ReadOnlyReplica):
                # The primary has become a replica: what finds the primary (a name,
                # Sentinel) is asked again only by a new connection.
                self.close()
            raise failure from error
        self._contact.answered = True
        return read_answer(raw, command)

    def subscribe(self, *channels: bytes) -> Subscription:
        """Begin a subscription; see :meth:`Store.subscribe`."""
        try:
            client = self._client
        except Exception as error:
            raise self._contact.failure(error, subscribing(channels)) from error
        return _RedisSubscription(client, channels, self._contact)

    def call(self, *arguments: Any) -> Any:
        """A plain Redis command, for tools that look around.

        Raises:
            StoreError: it was not done.
        """
        try:
            answer = self._client.execute_command(*arguments)
        except BaseException as error:
            if not is_of_call(error):
                raise
            raise self._contact.failure(error, str(arguments[0])) from error
        self._contact.answered = True
        return answer

    def close(self) -> None:
        """Close all connections that the caller may use; the next call makes new ones."""
        if (known := self._known) is not None:
            close(known.client)
        if connections_home() is not None and self._derived is not None:
            # Of before gevent patched the program: since then nobody takes them.
            close(self._derived.client)
