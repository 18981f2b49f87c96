"""The checks of ``hashring doctor`` that look at the Redis server."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping
from typing import Any, Final

from hashring.cli.connection import Connection
from hashring.cli.doctor.channel_check import channel_check
from hashring.cli.doctor.findings import Finding, Level, note, ok, problem
from hashring.cli.doctor.rights import Rights, is_of_no_command
from hashring.cli.output import seconds
from hashring.errors import RedisRefused

TESTED: Final = "6.2, 7, 8 and Valkey 8"
_OLDEST: Final = (6, 2)
_PINGS: Final = 20
_SLOW: Final = 0.1  # seconds of a median round trip from which heartbeats are in danger
_CLOCK_OFF: Final = 1.0  # seconds
_NEARLY_FULL: Final = 0.9


def server_checks(connection: Connection, *, mixed: bool, locking: bool) -> Iterator[Finding]:
    """Look at the server.

    Args:
        mixed: nodes of redis-hashring are on the ring, which use their own clocks.
        locking: nodes of the ring lock keys.

    Raises:
        RedisUnavailable: it cannot be reached.
        PermissionDenied: user or password are wrong, or missing.
    """
    try:
        connection.call("PING")
    except RedisRefused as error:
        if not (_lacks_a_right(error) or is_of_no_command(error)):
            raise  # a wrong password, or no Redis: there is nothing to look at
    try:
        info: Mapping[str, Any] = connection.call("INFO")
    except RedisRefused as error:
        info = {}
        yield Finding("info", Level.UNKNOWN, f"version, memory and role are not known: {error}")
    if info:
        yield _version(info)
        yield _role(info)
        yield from _memory(info, locking=locking)
        yield _persistence(info)
    yield _latency(connection)
    yield _clock(connection, mixed=mixed)
    rights = Rights(connection)
    yield rights.ring()
    yield rights.locks(locking=locking)
    yield rights.groups()
    yield channel_check(connection, rights)


def _lacks_a_right(error: RedisRefused) -> bool:
    return type(error.__cause__).__name__ == "NoPermissionError"


def _version(info: Mapping[str, Any]) -> Finding:
    server = "Valkey" if info.get("server_name") == "valkey" else "Redis"
    text = str(info.get("valkey_version") or info.get("redis_version") or "?")
    shown = f"{server} {text}"
    numbers = tuple(int(part) for part in text.split(".")[:2] if part.isdigit())
    if server == "Redis" and numbers and numbers < _OLDEST:
        return problem("version", f"{shown} is too old", f"use one of those tested: {TESTED}")
    return ok("version", shown)


def _role(info: Mapping[str, Any]) -> Finding:
    if info.get("role") not in ("slave", "replica"):
        return ok("role", "primary")
    host, port = info.get("master_host"), info.get("master_port")
    return problem(
        "role",
        f"this is a replica of {host}:{port}: no node can beat here",
        "give the nodes the address of the primary, or a Sentinel client",
    )


def _memory(info: Mapping[str, Any], *, locking: bool) -> Iterator[Finding]:
    limit = int(info.get("maxmemory") or 0)
    used = int(info.get("used_memory") or 0)
    policy = str(info.get("maxmemory_policy", "noeviction"))
    if not limit:
        yield ok("memory", f"{used / 1e6:.1f} MB used, no limit")
        yield ok("eviction", f"{policy}, and no limit: nothing is evicted")
        return
    text = f"{used / 1e6:.1f} of {limit / 1e6:.1f} MB used"
    if used > limit * _NEARLY_FULL:
        yield problem(
            "memory",
            f"{text}: once it is full, no node can join, and no new lock can be taken",
            "raise maxmemory, or free memory",
        )
    else:
        yield ok("memory", text)
    if policy == "noeviction":
        yield ok("eviction", policy)
    elif policy.startswith("allkeys"):
        yield problem(
            "eviction",
            f"{policy} may throw the whole ring away when memory is short",
            "CONFIG SET maxmemory-policy noeviction, or give the ring a Redis of its own",
        )
    else:
        yield (problem if locking else note)(
            "eviction",
            f"{policy} may throw locks and remembered points away when memory is short, "
            "but not the ring",
            "CONFIG SET maxmemory-policy noeviction, where locks are used",
        )


def _persistence(info: Mapping[str, Any]) -> Finding:
    failed = [
        name
        for name in ("rdb_last_bgsave_status", "aof_last_write_status", "aof_last_bgrewrite_status")
        if info.get(name, "ok") != "ok"
    ]
    if failed:
        return problem(
            "persistence",
            f"the last save failed ({', '.join(failed)}), and Redis may refuse to write",
            "look at the server's log and at its disk",
        )
    back = "after a restart nodes put themselves back within a heartbeat"
    if int(info.get("aof_enabled") or 0):
        return ok("persistence", f"append-only file: {back}")
    return note(
        "persistence",
        f"no append-only file: {back}, but drains, weights and other orders since the last "
        "snapshot are lost",
        "set appendonly to yes, or keep a list of the orders to give them again",
    )


def _latency(connection: Connection) -> Finding:
    trips = []
    for _ in range(_PINGS):
        before = time.perf_counter()
        with contextlib.suppress(RedisRefused):  # "no" travels as far as "yes"
            connection.call("PING")
        trips.append(time.perf_counter() - before)
    trips.sort()
    median = trips[_PINGS // 2]
    text = f"median {seconds(median)}, worst {seconds(trips[-1])} of {_PINGS} round trips"
    if median > _SLOW:
        return problem(
            "latency",
            text,
            "look at the network and at SLOWLOG GET; a heartbeat takes one round trip, and fails "
            "after a third of the ttl",
        )
    return ok("latency", text)


def _clock(connection: Connection, *, mixed: bool) -> Finding:
    before = time.time()
    try:
        parts = connection.call("TIME")
    except RedisRefused as error:
        return Finding("clock", Level.UNKNOWN, str(error))
    middle = (before + time.time()) / 2
    offset = int(parts[0]) + int(parts[1]) / 1e6 - middle
    text = f"Redis is {seconds(abs(offset))} {'ahead of' if offset > 0 else 'behind'} this machine"
    if abs(offset) < _CLOCK_OFF:
        return ok("clock", text)
    if mixed:
        return problem(
            "clock",
            f"{text}: nodes of redis-hashring go by their machines' clocks",
            "synchronise the clocks of all machines (NTP)",
        )
    return note(
        "clock", f"{text}; the ring goes by Redis' clock alone, only times in logs look odd"
    )
