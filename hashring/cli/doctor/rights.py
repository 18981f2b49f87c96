"""What Redis refuses this user on the ring, and the ``ACL SETUSER`` line that grants it."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable
from contextlib import closing
from enum import Enum
from functools import cached_property
from typing import Any, Final

from hashring.cli.connection import Connection
from hashring.cli.doctor.findings import Finding, note, ok, problem
from hashring.errors import PermissionDenied, ReadOnlyReplica, RedisRefused, StoreError
from hashring.store.command import pairs
from hashring.store.interface import Subscribed
from hashring.store.ring.key_names import RingKeys

Probe = Callable[[RingKeys], tuple[Any, ...]]

# For each command that the ring's scripts use, a call that Redis judges by its rights and then
# refuses, or that changes nothing: no member, field, node or locked key has an empty name. SADD has
# no such call; a user who may SREM is taken to be allowed both.
RIGHTS: Final[tuple[tuple[str, Probe | None], ...]] = (
    ("get", lambda keys: (keys.epoch,)),
    ("set", lambda keys: (keys.epoch, "", "NX", "XX")),
    ("zadd", lambda keys: (keys.ring, "NX", "XX", 0, "")),
    ("zrem", lambda keys: (keys.ring, "")),
    ("zcard", lambda keys: (keys.ring,)),
    ("zscore", lambda keys: (keys.ring, "")),
    ("zrange", lambda keys: (keys.ring, 0, 0)),
    ("zrangebyscore", lambda keys: (keys.ring, 1, 0)),
    ("zrevrangebyscore", lambda keys: (keys.points, 0, 1)),
    ("zmscore", lambda keys: (keys.points, "")),
    ("zcount", lambda keys: (keys.points, 1, 0)),
    ("hget", lambda keys: (keys.nodes, "")),
    ("hgetall", lambda keys: (keys.left,)),
    ("hkeys", lambda keys: (keys.left,)),
    ("hlen", lambda keys: (keys.left,)),
    ("hset", lambda keys: (keys.nodes, "", "", "")),
    ("hdel", lambda keys: (keys.nodes, "")),
    ("expire", lambda keys: (keys.left, "never")),
    ("xadd", lambda keys: (keys.events, "0-0", "", "")),
    ("xlen", lambda keys: (keys.events,)),
    ("sadd", None),
    ("srem", lambda keys: (keys.full, "")),
    ("scard", lambda keys: (keys.full,)),
    ("sismember", lambda keys: (keys.full, "")),
    ("smembers", lambda keys: (keys.full,)),
    ("del", lambda keys: (keys.lock(b""),)),
    ("time", lambda _: ()),
)

# The same for what nodes with locks use besides.
LOCK_RIGHTS: Final[tuple[tuple[str, Probe], ...]] = (
    ("pexpire", lambda keys: (keys.lock(b""), "never")),
    ("pttl", lambda keys: (keys.lock(b""),)),
    ("info", lambda _: ("replication",)),
)

# The same for what members of groups use besides.
GROUP_RIGHTS: Final[tuple[tuple[str, Probe], ...]] = (("info", lambda _: ("server",)),)

_OUTSIDE_SCRIPTS: Final = ("publish", "eval", "evalsha", "subscribe", "unsubscribe", "ping")
_PATIENCE: Final = 10.0  # seconds for a subscription to stand
_EVERYTHING: Final = frozenset((b"*", b"~*", b"&*"))


class Coverage(Enum):
    """Whether the user's patterns cover what a node needs, as far as it shows."""

    COVERED = "covered"
    LACKING = "lacking"
    UNKNOWN = "unknown"
    """The user may not run the commands that would show it."""


class Rights:
    """The rights of this connection's user, found by trying.

    Whether a pattern is missing matters for the remedy: Redis refuses one that comes after ``*``,
    and to reset a user's patterns would take away what it uses them for elsewhere.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._shown: set[Coverage] = set()  # by probes of the ring's own keys
        self._ring_shown: set[Coverage] = set()  # by probes of the ZSET, which has another name

    def ring(self) -> Finding:
        """Whether nodes can run on the ring."""
        missing = list(self._missing)
        try:
            self._connection.snapshot()
        except PermissionDenied:
            missing += ["eval", "evalsha"]
        except RedisRefused:
            pass  # for the ring's own checks
        if not missing:
            return ok("rights", "every command the ring needs is allowed on its keys")
        return self.lacking("rights", f"refused on the ring's keys: {', '.join(missing)}")

    def locks(self, *, locking: bool) -> Finding:
        """Whether nodes can lock keys; a problem if ``locking``, a note otherwise."""
        missing = self._lock_missing
        if not missing:
            return ok("lock rights", "every command that locks need is allowed on theirs")
        return self.lacking(
            "lock rights",
            f"refused on the ring's locks, so no node can use lock=True: {', '.join(missing)}",
            problem if locking else note,
        )

    def groups(self) -> Finding:
        """Whether members of a group of the ring's name can run."""
        missing = self._tried(GROUP_RIGHTS)
        if not missing:
            return ok("group rights", "every command that partition groups need is allowed")
        return self.lacking(
            "group rights",
            f"refused, so no PartitionGroup can start: {', '.join(missing)}",
            note,
        )

    def lacking(self, check: str, text: str, make: Callable[..., Finding] = problem) -> Finding:
        """A finding with the line that grants all that nodes and members of groups need."""
        line, details = self._remedy
        return make(check, text, line, details)

    # --- trying -------------------------------------------------------------------------------

    @cached_property
    def _missing(self) -> list[str]:
        return self._tried(RIGHTS)

    @cached_property
    def _lock_missing(self) -> list[str]:
        return self._tried(LOCK_RIGHTS)

    def _tried(self, rights: Iterable[tuple[str, Probe | None]]) -> list[str]:
        missing = []
        keys = self._connection.keys
        for name, probe in rights:
            if probe is None:
                continue
            arguments = probe(keys)
            shown = self._ring_shown if keys.ring in arguments else self._shown
            try:
                self._connection.call(name.upper(), *arguments)
            except ReadOnlyReplica:
                continue  # the role says so already
            except PermissionDenied as error:
                missing.append(name)
                if _is_about_a_pattern(error):
                    shown.add(Coverage.LACKING)
                continue
            except RedisRefused as error:
                if is_of_no_command(error):
                    missing.append(f"{name} (the server has no such command)")
                    continue
            if arguments:
                shown.add(Coverage.COVERED)
        return missing

    # --- the remedy ---------------------------------------------------------------------------

    @cached_property
    def _remedy(self) -> tuple[str, tuple[str, ...]]:
        connection = self._connection
        own = connection.keys.epoch.removesuffix(b"epoch")
        ring, below = _literal(connection.keys.ring), f"{_literal(own)}*"
        keys = self._rules("~", "keys", self._keys_reach(), (ring, below))
        channels = self._rules("&", "channels", self._channels_reach(), (ring, below))
        tried = (*RIGHTS, *LOCK_RIGHTS, *GROUP_RIGHTS)
        names = dict.fromkeys((*(name for name, _ in tried), *_OUTSIDE_SCRIPTS))
        line = " ".join(
            ("ACL SETUSER", self._user or "<user>", *keys, *channels, *(f"+{n}" for n in names))
        )
        replaced = [kind for kind in ("keys", "channels") if f"reset{kind}" in (*keys, *channels)]
        if not replaced:
            return line, ()
        kinds = " and ".join(replaced)
        return line, (
            f"the line replaces the user's patterns for {kinds}, which cannot be read here",
        )

    def _rules(
        self, sign: str, kind: str, reach: Coverage, patterns: tuple[str, ...]
    ) -> tuple[str, ...]:
        if reach is Coverage.UNKNOWN:
            reach = self._reach_by_acl(kind)
        if reach is Coverage.COVERED:
            return ()
        rules = tuple(_word(sign + pattern) for pattern in patterns)
        return rules if reach is Coverage.LACKING else (f"reset{kind}", *rules)

    def _keys_reach(self) -> Coverage:
        _ = self._missing, self._lock_missing
        if Coverage.LACKING in self._shown | self._ring_shown:
            return Coverage.LACKING
        return Coverage.COVERED if self._shown and self._ring_shown else Coverage.UNKNOWN

    def _channels_reach(self) -> Coverage:
        keys = self._connection.keys
        channels = keys.channel, keys.node_channel("")
        awaited = len(channels)
        deadline = time.monotonic() + _PATIENCE
        try:
            with closing(self._connection.subscribe(*channels)) as subscription:
                while awaited and (left := deadline - time.monotonic()) > 0:
                    awaited -= isinstance(subscription.wait(left), Subscribed)
        except PermissionDenied as error:
            return Coverage.LACKING if _is_about_a_pattern(error) else Coverage.UNKNOWN
        except StoreError:
            return Coverage.UNKNOWN
        return Coverage.UNKNOWN if awaited else Coverage.COVERED

    def _reach_by_acl(self, kind: str) -> Coverage:
        if self._user is None:
            return Coverage.UNKNOWN
        try:
            told = self._connection.call("ACL", "GETUSER", self._user)
        except RedisRefused:
            return Coverage.UNKNOWN
        patterns = dict(pairs(told))[kind.encode()]  # a list up to Redis 6.2, then one text
        words = patterns.split() if isinstance(patterns, bytes) else patterns
        return Coverage.COVERED if _EVERYTHING.intersection(words) else Coverage.LACKING

    @cached_property
    def _user(self) -> str | None:
        try:
            name = self._connection.call("ACL", "WHOAMI")
        except RedisRefused:
            return None
        return name.decode("utf-8", "replace") if isinstance(name, bytes) else str(name)


def is_of_no_command(error: RedisRefused) -> bool:
    """Whether the server has no command of that name. It may have been told to rename it."""
    return "unknown command" in str(error)


def _is_about_a_pattern(error: PermissionDenied) -> bool:
    # "... no permissions to access one of the keys ...", since Valkey "No permissions to access a
    # key"; about a command, "... no permissions to run ...". No name of a user has a space.
    return "permissions to access" in str(error.__cause__)


def _literal(name: bytes) -> str:
    """A pattern for this name; Redis refuses space in a pattern, so any letter matches it."""
    text = re.sub(r"([*?\[\]\\])", r"\\\1", name.decode("utf-8", "replace"))
    return re.sub(r"[\s\0]", "?", text, flags=re.ASCII)


def _word(text: str) -> str:
    """The text as redis-cli reads it as one word."""
    if not re.search(r"[\\\"']", text):
        return text
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
