"""The faithful challenge, live: the lease challenge as the author of the article wrote it.

It is here to be looked at and measured. Its author withdrew it, because under load partitions jump
between members, and it has no fencing. Use :func:`hashring.lease_challenge` instead.
"""

from __future__ import annotations

from typing import Any

from hashring.core.groups.faithful_challenge import LeaseRaceSpans
from hashring.errors import ConfigError
from hashring.groups.async_member import AsyncMember
from hashring.groups.base_challenge import BaseChallenge, chance, new_suffix
from hashring.groups.base_member import Callbacks, OnAssigned, OnPartition, OnRevoked
from hashring.groups.sync_member import SyncMember
from hashring.protocol.faithful_challenge_machine import FaithfulChallengeMachine
from hashring.store.faithful_challenge.commands import faithful_keys

__all__ = ["LeaseRaceSpans", "async_faithful_challenge", "faithful_challenge"]


def faithful_challenge(
    redis: Any,
    name: str | bytes,
    partitions: int,
    *,
    member: str | None = None,
    spans: LeaseRaceSpans | None = None,
    on_assigned: OnAssigned | None = None,
    on_revoked: OnRevoked | None = None,
    on_lost: OnPartition | None = None,
) -> SyncMember:
    """A member of a faithful challenge; start it with ``start()`` or ``with``.

    Args:
        redis: a sync client of redis-py or valkey-py; in tests, a
            :class:`hashring.testing.MemoryStore`.
        name: the challenge's name.
        partitions: how many; the same for all members.
        member: its name; made up unless given.
        spans: the article's five time spans.
        on_assigned, on_revoked, on_lost: as for :class:`hashring.PartitionGroup`.

    Raises:
        ConfigError: an argument cannot work.
    """
    callbacks = Callbacks(on_assigned, on_revoked, on_lost)
    return _SyncFaithful(redis, name, partitions, member=member, callbacks=callbacks, spans=spans)


def async_faithful_challenge(
    redis: Any,
    name: str | bytes,
    partitions: int,
    *,
    member: str | None = None,
    spans: LeaseRaceSpans | None = None,
    on_assigned: OnAssigned | None = None,
    on_revoked: OnRevoked | None = None,
    on_lost: OnPartition | None = None,
) -> AsyncMember:
    """A member of a faithful challenge, for asyncio: ``async with``, or ``await`` its ``start()``.

    Arguments and errors are those of :func:`faithful_challenge`, with an asyncio client; callbacks
    may be coroutine functions.
    """
    callbacks = Callbacks(on_assigned, on_revoked, on_lost)
    return _AsyncFaithful(redis, name, partitions, member=member, callbacks=callbacks, spans=spans)


class FaithfulChallenge(BaseChallenge):
    """A member of a faithful challenge, whatever runs it."""

    _twins = ("faithful_challenge", "async_faithful_challenge")

    def __init__(
        self,
        redis: Any,
        name: str | bytes,
        partitions: int,
        *,
        member: str | None,
        callbacks: Callbacks,
        spans: LeaseRaceSpans | None,
    ) -> None:
        if spans is not None and not isinstance(spans, LeaseRaceSpans):
            raise ConfigError("spans", spans, "give LeaseRaceSpans(...), or leave it out")
        self._spans = spans = spans or LeaseRaceSpans()
        self._keys = faithful_keys(name)
        super().__init__(
            redis,
            name,
            partitions,
            member=member,
            callbacks=callbacks,
            ttl=spans.max_lease,
            interval=min(1.0, spans.max_lease / 3),
        )

    def _new_machine(self) -> FaithfulChallengeMachine:
        return FaithfulChallengeMachine(
            self._keys,
            self.member,
            partitions=self._partitions,
            spans=self._spans,
            new_suffix=new_suffix,
            chance=chance,
        )


class _SyncFaithful(FaithfulChallenge, SyncMember):
    pass


class _AsyncFaithful(FaithfulChallenge, AsyncMember):
    pass
