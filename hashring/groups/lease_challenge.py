"""The lease challenge, live: partitions shared without any common assignment."""

from __future__ import annotations

from functools import partial
from typing import Any

from hashring.core.groups.lease_challenge import LeaseChallengeRules
from hashring.errors import ConfigError
from hashring.groups.async_member import AsyncMember
from hashring.groups.base_challenge import AsyncChallenge, SyncChallenge
from hashring.groups.callbacks import Callbacks, OnAssigned, OnPartition, OnRevoked
from hashring.groups.sync_member import SyncMember
from hashring.protocol.group.lease_challenge_machine import LeaseChallengeMachine
from hashring.store.lease_challenge.commands import challenge_keys
from hashring.store.ring_and_group_names import name_bytes


def lease_challenge(
    redis: Any,
    name: str | bytes,
    partitions: int,
    *,
    member: str | None = None,
    rules: LeaseChallengeRules | None = None,
    on_assigned: OnAssigned | None = None,
    on_revoked: OnRevoked | None = None,
    on_lost: OnPartition | None = None,
) -> SyncMember:
    """A member of a lease challenge; start it with ``start()`` or ``with``.

    Args:
        redis: a sync client of redis-py or valkey-py; in tests, a
            :class:`hashring.testing.MemoryStore`.
        name: the challenge's name.
        partitions: how many; the same for all members.
        member: its name; made up unless given. Two of one name are two members.
        rules: its time spans; ``ttl`` is the same for all members, and another one raises
            :class:`hashring.GroupMismatch` when the member starts.
        on_assigned, on_revoked, on_lost: as for :class:`hashring.PartitionGroup`.

    Raises:
        ConfigError: an argument cannot work.
    """
    callbacks = Callbacks(on_assigned, on_revoked, on_lost)
    protocol = _protocol(name, rules)
    return SyncChallenge(redis, name, partitions, member=member, callbacks=callbacks, **protocol)


def async_lease_challenge(
    redis: Any,
    name: str | bytes,
    partitions: int,
    *,
    member: str | None = None,
    rules: LeaseChallengeRules | None = None,
    on_assigned: OnAssigned | None = None,
    on_revoked: OnRevoked | None = None,
    on_lost: OnPartition | None = None,
) -> AsyncMember:
    """A member of a lease challenge, for asyncio: ``async with``, or ``await`` its ``start()``.

    Arguments and errors are those of :func:`lease_challenge`, with an asyncio client; callbacks may
    be coroutine functions.
    """
    callbacks = Callbacks(on_assigned, on_revoked, on_lost)
    protocol = _protocol(name, rules)
    return AsyncChallenge(redis, name, partitions, member=member, callbacks=callbacks, **protocol)


def _protocol(name: str | bytes, rules: LeaseChallengeRules | None) -> dict[str, Any]:
    """What makes a :class:`.BaseChallenge` a lease challenge."""
    if rules is not None and not isinstance(rules, LeaseChallengeRules):
        raise ConfigError("rules", rules, "give hashring.LeaseChallengeRules(...), or leave it out")
    keys, rules = challenge_keys(name), rules or LeaseChallengeRules()
    group = name_bytes("challenge", name).decode()
    return {
        "twins": ("lease_challenge", "async_lease_challenge"),
        "ttl": rules.ttl,
        "interval": rules.interval,
        "new_machine": partial(LeaseChallengeMachine, group, keys, rules=rules),
    }
