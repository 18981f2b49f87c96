"""The check of ``hashring doctor`` that sends a message over the ring's channel."""

from __future__ import annotations

import time
from typing import Final

from hashring.cli.connection import Connection
from hashring.cli.doctor.findings import Finding, Level, note, ok, problem
from hashring.cli.doctor.rights import Rights
from hashring.cli.output import seconds
from hashring.errors import PermissionDenied, RedisRefused
from hashring.store.interface import Message, Subscribed
from hashring.store.ring.ring_events import read_event

_PATIENCE: Final = 10.0  # seconds for a message to come back
_EVENTS: Final = 50  # how many of the last events are searched for a change


def channel_check(connection: Connection, rights: Rights) -> Finding:
    """Whether a message comes back: the last change, told once more.

    Nodes know a change by its tag and take no notice of one they have.
    """
    try:
        payload = _last_change(connection)
    except RedisRefused as error:
        return Finding("channel", Level.UNKNOWN, f"nothing to try it with: {error}")
    try:
        subscription = connection.subscribe(connection.keys.channel)
    except RedisRefused as error:
        return _refused(rights, error)
    try:
        deadline = time.monotonic() + _PATIENCE
        sent = 0.0
        while (left := deadline - time.monotonic()) > 0:
            notice = subscription.wait(left)
            if isinstance(notice, Subscribed):
                if payload is None:
                    return note("channel", "not tried: its nodes never told of themselves")
                sent = time.perf_counter()
                connection.call("PUBLISH", connection.keys.channel, payload)
            elif isinstance(notice, Message) and sent and notice.payload == payload:
                took = time.perf_counter() - sent
                return ok("channel", f"a message arrived after {seconds(took)}")
    except RedisRefused as error:
        return _refused(rights, error)
    finally:
        subscription.close()
    return problem(
        "channel",
        f"no message arrived within {seconds(_PATIENCE)}: "
        "nodes learn of changes only at their heartbeats",
        "look at proxies between here and Redis: they must pass SUBSCRIBE and PUBLISH",
    )


def _refused(rights: Rights, error: RedisRefused) -> Finding:
    if isinstance(error, PermissionDenied):
        return rights.lacking("channel", str(error))
    return problem("channel", str(error), "until then no node can start")


def _last_change(connection: Connection) -> bytes | None:
    newest = connection.call("XREVRANGE", connection.keys.events, "+", "-", "COUNT", _EVENTS)
    for entry in newest:
        if read_event(entry).change is not None:
            data = entry[1][b"data"]
            return bytes(data)
    # On an empty ring nobody listens whom anything else would disturb.
    return None if connection.call("ZCARD", connection.keys.ring) else b"{}"
