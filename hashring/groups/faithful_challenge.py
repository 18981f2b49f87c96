"""The faithful challenge, live: the lease challenge as the author of the article wrote it.

It is here to be looked at and measured. Its author withdrew it, because under load partitions jump
between members, and it has no fencing. Use :func:`hashring.lease_challenge` instead.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from hashring.core.groups.faithful_challenge import FaithfulChallengeSpans
from hashring.errors import ConfigError
from hashring.groups.async_member import AsyncMember
from hashring.groups.base_challenge import AsyncChallenge, SyncChallenge
from hashring.groups.callbacks import Callbacks, OnAssigned, OnPartition, OnRevoked
from hashring.groups.sync_member import SyncMember
from hashring.protocol.group.faithful_challenge_machine import FaithfulChallengeMachine
from hashring.store.faithful_challenge.commands import faithful_keys

__all__ = ["FaithfulChallengeSpans", "async_faithful_challenge", "faithful_challenge"]


def faithful_challenge(
    redis: Any,
    name: str | bytes,
    partitions: int,
    *,
    member: str | None = None,
    spans: FaithfulChallengeSpans | None = None,
    on_assigned: OnAssigned | None = None,
    on_revoked: OnRevoked | None = None,
    on_lost: OnPartition | None = None,
) -> SyncMember:
    """A member of a faithful challenge; start it with ``start()`` or ``with``.

    Arguments and errors are those of :func:`hashring.lease_challenge`, but for ``spans``, the
    article's five time spans.
    """
    callbacks = Callbacks(on_assigned, on_revoked, on_lost)
    protocol = _protocol(name, spans)
    return SyncChallenge(redis, name, partitions, member=member, callbacks=callbacks, **protocol)


def async_faithful_challenge(
    redis: Any,
    name: str | bytes,
    partitions: int,
    *,
    member: str | None = None,
    spans: FaithfulChallengeSpans | None = None,
    on_assigned: OnAssigned | None = None,
    on_revoked: OnRevoked | None = None,
    on_lost: OnPartition | None = None,
) -> AsyncMember:
    """A member of a faithful challenge, for asyncio: ``async with``, or ``await`` its ``start()``.

    Arguments and errors are those of :func:`faithful_challenge`, with an asyncio client; callbacks
    may be coroutine functions.
    """
    callbacks = Callbacks(on_assigned, on_revoked, on_lost)
    protocol = _protocol(name, spans)
    return AsyncChallenge(redis, name, partitions, member=member, callbacks=callbacks, **protocol)


def _protocol(name: str | bytes, spans: FaithfulChallengeSpans | None) -> dict[str, Any]:
    """What makes a :class:`.BaseChallenge` a faithful challenge."""
    if spans is not None and not isinstance(spans, FaithfulChallengeSpans):
        raise ConfigError("spans", spans, "give FaithfulChallengeSpans(...), or leave it out")
    keys, spans = faithful_keys(name), spans or FaithfulChallengeSpans()
    return {
        "twins": ("faithful_challenge", "async_faithful_challenge"),
        "ttl": spans.max_lease,
        "interval": min(1.0, spans.max_lease / 3),
        "new_machine": partial(FaithfulChallengeMachine, keys, spans=spans),
    }
