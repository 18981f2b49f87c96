"""The Redis that a command talks to."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit, urlunsplit

import click

from hashring.cli.common_options import Settings
from hashring.core.safe_text import printable
from hashring.errors import RedisRefused, RedisUnavailable, WrongServer
from hashring.store.client_errors import in_doubt, may_have_been_done
from hashring.store.command import Command, pairs, text
from hashring.store.discovery import check_slots_served
from hashring.store.interface import Subscription
from hashring.store.redis_store import RedisStore
from hashring.store.redis_url import client_of, without_password
from hashring.store.ring.key_names import RingKeys, ring_keys
from hashring.store.ring.snapshot import Snapshot, snapshot

T = TypeVar("T")

_PATIENCE: Final = 5.0  # seconds that Redis may take to answer
_REDIRECTIONS: Final = 5  # servers of a cluster that may name another one in turn


class Connection:
    """One ring on one Redis. Follows a Redis Cluster to the server that has the ring.

    A command without a key is asked of the server at hand: see :meth:`locate`.

    Attributes:
        url: the URL, with its password.
        keys: the ring's keys.
        started: whether this command has just started the server, which so is empty.

    Args:
        settings: the ring, and how to read it.
        url: where Redis is.

    Raises:
        ConfigError: the ring's name or the URL cannot be.
    """

    def __init__(self, settings: Settings, url: str, *, started: bool = False) -> None:
        self.keys: RingKeys = ring_keys(settings.ring)
        self.ring: str = settings.ring
        self.url = url
        self.started = started
        self._settings = settings
        self._scoring = settings.scoring
        self._store = _store(url)
        self._given = url

    @property
    def shown_url(self) -> str:
        """The URL, without its password."""
        return without_password(self.url)

    def locate(self) -> None:
        """Go to the server of the cluster that has the ring, if it is a cluster.

        Raises:
            RedisUnavailable: Redis cannot be reached.
        """
        with suppress(RedisRefused):  # the next command reports a missing right
            self.call("ZCARD", self.keys.ring)

    def servers(self) -> Iterator[Connection]:
        """This connection; for a Redis Cluster, one to each of its primaries in turn.

        Raises:
            RedisUnavailable: Redis cannot be reached, or the cluster serves no slots.
        """
        places = self._primaries()
        if not places:
            yield self
        for host, port in places:
            with closing(Connection(self._settings, self._url_of(host, port))) as server:
                yield server

    def snapshot(self, *, index: bool = False) -> Snapshot:
        """The ring now.

        Args:
            index: whether to compare the index with the ring member by member, too.

        Raises:
            StoreError: it could not be read.
        """
        return self.run(snapshot(self.keys, scoring=self._scoring, index=index))

    def run(self, command: Command[T]) -> T:
        """Run a command of the ring's.

        Raises:
            StoreError: it was not done, or nobody knows whether it was.
        """
        return self._ask(lambda: self._store.run(command))

    def order(self, command: Command[T]) -> T:
        """Run a command that changes something.

        Raises:
            StoreError: as :meth:`run`; the error says when nobody knows whether it was done.
        """
        try:
            return self._ask(lambda: self._store.run(command), once=True)
        except RedisUnavailable as error:
            if not _may_have_been_done(error):
                raise
            raise in_doubt(error) from error

    def call(self, *arguments: Any) -> Any:
        """A plain command.

        Raises:
            StoreError: it was not done.
        """
        return self._ask(lambda: self._store.call(*arguments))

    def subscribe(self, *channels: bytes) -> Subscription:
        """A subscription to these channels.

        Raises:
            StoreError: it cannot be made.
        """
        return self._store.subscribe(*channels)

    def close(self) -> None:
        """Close all connections."""
        self._store.close()

    def _ask(self, ask: Callable[[], T], *, once: bool = False) -> T:
        """Ask the server that has the ring, or its successor.

        Args:
            once: not again, if what was asked may have been done.
        """
        try:
            return self._ask_cluster(ask)
        except RedisUnavailable as error:
            # The server that has the ring is gone. Its successor, one of those that the user
            # named know it.
            if self.url == self._given or (once and _may_have_been_done(error)):
                raise
            self._go(self._given)
        return self._ask_cluster(ask)

    def _ask_cluster(self, ask: Callable[[], T]) -> T:
        """Ask the server at hand, or the one that it names instead."""
        asked = []
        for _ in range(_REDIRECTIONS):
            try:
                return ask()
            except WrongServer as error:
                asked.append(self.shown_url)
                self._follow(error)
        self._go(self._given)
        raise WrongServer(
            f"ring {self.ring!r}: no server of the Redis Cluster has it. Each named another "
            f"(MOVED): {', '.join(asked)}; redis-cli --cluster check shows what is wrong"
        )

    def _follow(self, error: WrongServer) -> None:
        moved = error.__cause__
        self._go(self._url_of(str(getattr(moved, "host", "")), getattr(moved, "port", None)))

    def _primaries(self) -> list[tuple[str, int]]:
        """Host and port of each primary of the Redis Cluster; none if it is none.

        An empty host is that of the server that was asked.

        Raises:
            RedisUnavailable: Redis cannot be reached, or the cluster serves no slots.
        """
        try:
            about = dict(pairs(self.call("HELLO")))
            if about.get(b"mode", about.get("mode")) not in (b"cluster", "cluster"):
                return []
        except RedisRefused:
            return []
        try:
            slots = self.call("CLUSTER", "SLOTS")
        except RedisRefused as error:
            click.echo(
                f"hashring: only what is on {printable(self.shown_url)}, not on the other servers "
                f"of the Redis Cluster: {error}",
                err=True,
            )
            return []
        if not slots:
            check_slots_served(self)
        return sorted({(text(primary[0] or b""), int(primary[1])) for _, _, primary, *_ in slots})

    def _url_of(self, host: str, port: int | None) -> str:
        parts = urlsplit(self.url)
        user = parts.netloc.rpartition("@")[0]
        host = host or parts.hostname or ""
        host = f"[{host}]" if ":" in host else host
        at = f"{host}:{port or parts.port}"
        return urlunsplit(parts._replace(netloc=f"{user}@{at}" if user else at))

    def _go(self, url: str) -> None:
        self.close()
        self.url = url
        # The servers of a cluster speak as the one does that named the other.
        self._store = _store(url, answered=self._store.answered)


def _may_have_been_done(error: RedisUnavailable) -> bool:
    cause = error.__cause__
    return isinstance(cause, Exception) and may_have_been_done(cause)


def _store(url: str, *, answered: bool = False) -> RedisStore:
    return RedisStore(client_of(url), _PATIENCE, answered=answered)


@contextmanager
def connected(settings: Settings, *, quiet: bool = False) -> Iterator[Connection]:
    """A connection to the Redis that the settings name, or to the shared embedded server.

    Args:
        quiet: do not mention that nobody else uses the embedded server.

    Raises:
        ConfigError: the ring's name or the URL cannot be.
        StoreError: there is no program for the embedded server, or it does not start.
    """
    ring_keys(settings.ring)
    with ExitStack() as stack:
        url, started = settings.url, False
        if url is None:
            from hashring.store.embedded_server import shared_server  # noqa: PLC0415 - as above

            server = stack.enter_context(shared_server())
            url, started = server.url, server.started
        if started and not quiet:
            click.echo(
                "hashring: no --url, and no hashring program of yours runs on this machine: "
                "looking at a new, empty Redis",
                err=True,
            )
        connection = Connection(settings, url, started=started)
        stack.callback(connection.close)
        yield connection
