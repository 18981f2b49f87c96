"""The lease challenge, live: partitions shared without any common assignment.

``mode="fixed"`` is for use, ``mode="faithful"`` is the article's algorithm, to be looked at: its
author withdrew it, because under load partitions jump between members, and it has no fencing.
"""

from __future__ import annotations

import secrets
from typing import Any, Final

from hashring.core.groups.lease_race import LeaseRaceSpans
from hashring.core.groups.lease_table import LeaseTableRules
from hashring.core.groups.state import check_partitions
from hashring.errors import ConfigError
from hashring.groups.async_member import AsyncMember
from hashring.groups.base_member import (
    BaseMember,
    Callbacks,
    OnAssigned,
    OnPartition,
    OnRevoked,
)
from hashring.groups.sync_member import SyncMember
from hashring.protocol.lease_race_machine import FaithfulMachine
from hashring.protocol.lease_table_machine import FixedMachine
from hashring.store.lease_challenge.commands import challenge_keys


def lease_challenge(
    redis: Any,
    name: str | bytes,
    partitions: int,
    *,
    mode: str = "fixed",
    member: str | None = None,
    rules: LeaseTableRules | None = None,
    spans: LeaseRaceSpans | None = None,
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
        mode: ``"fixed"``, or ``"faithful"`` for the article's own algorithm.
        rules: the time spans of the fixed mode; ``ttl`` is the same for all members, and another
            one raises :class:`hashring.GroupMismatch` when the member starts.
        spans: the article's five time spans, for the faithful one.
        on_assigned, on_revoked, on_lost: as for :class:`hashring.PartitionGroup`.

    Raises:
        ConfigError: an argument cannot work.
    """
    partitions, made = _settings(partitions, mode, rules, spans)
    kind = _Fixed if "rules" in made else _Faithful
    made["callbacks"] = Callbacks(on_assigned, on_revoked, on_lost)
    return kind(redis, name, partitions, member=member, **made)


def async_lease_challenge(
    redis: Any,
    name: str | bytes,
    partitions: int,
    *,
    mode: str = "fixed",
    member: str | None = None,
    rules: LeaseTableRules | None = None,
    spans: LeaseRaceSpans | None = None,
    on_assigned: OnAssigned | None = None,
    on_revoked: OnRevoked | None = None,
    on_lost: OnPartition | None = None,
) -> AsyncMember:
    """A member of a lease challenge, for asyncio: ``async with``, or ``await`` its ``start()``.

    Arguments and errors are those of :func:`lease_challenge`, with an asyncio client; callbacks may
    be coroutine functions.
    """
    partitions, made = _settings(partitions, mode, rules, spans)
    kind = _AsyncFixed if "rules" in made else _AsyncFaithful
    made["callbacks"] = Callbacks(on_assigned, on_revoked, on_lost)
    return kind(redis, name, partitions, member=member, **made)


def _settings(
    partitions: int, mode: str, rules: LeaseTableRules | None, spans: LeaseRaceSpans | None
) -> tuple[int, dict[str, Any]]:
    """The count, and what only members of the mode are given, when everything fits it."""
    count = check_partitions(partitions)
    if mode not in ("fixed", "faithful"):
        raise ConfigError("mode", mode, "choose fixed or faithful")
    if mode == "fixed" and spans is not None:
        raise ConfigError("spans", spans, "are for mode='faithful'; give rules")
    if mode == "faithful" and rules is not None:
        raise ConfigError("rules", rules, "are for mode='fixed'; give spans")
    if rules is not None and not isinstance(rules, LeaseTableRules):
        raise ConfigError("rules", rules, "give hashring.LeaseTableRules(...), or leave it out")
    if spans is not None and not isinstance(spans, LeaseRaceSpans):
        raise ConfigError("spans", spans, "give hashring.LeaseRaceSpans(...), or leave it out")
    if mode == "fixed":
        return count, {"rules": rules or LeaseTableRules()}
    return count, {"spans": spans or LeaseRaceSpans()}


_RANDOM: Final = secrets.SystemRandom()


class _Challenge(BaseMember):
    """What both modes have."""

    _kind = "challenge"
    _twins = ("lease_challenge", "async_lease_challenge")

    def __init__(self, redis: Any, name: str | bytes, partitions: int, **options: Any) -> None:
        self._keys = challenge_keys(name)
        self._partitions = partitions
        super().__init__(redis, name, progress_timeout=None, **options)

    @property
    def partitions(self) -> int:
        """How many partitions there are."""
        return self._partitions

    @property
    def _made_as(self) -> str:
        return self._twins[self._asynchronous]


class FixedChallenge(_Challenge):
    """The fixed mode: see :class:`hashring.protocol.lease_table_machine.FixedMachine`."""

    def __init__(
        self,
        redis: Any,
        name: str | bytes,
        partitions: int,
        *,
        member: str | None,
        callbacks: Callbacks,
        rules: LeaseTableRules,
    ) -> None:
        self._rules = rules
        super().__init__(
            redis,
            name,
            partitions,
            member=member,
            callbacks=callbacks,
            ttl=rules.ttl,
            interval=rules.interval,
        )

    def _new_machine(self) -> FixedMachine:
        return FixedMachine(
            self.name,
            self._keys,
            self.member,
            partitions=self._partitions,
            rules=self._rules,
            new_suffix=_new_suffix,
            chance=_RANDOM.random,
        )


class FaithfulChallenge(_Challenge):
    """The article's algorithm.

    See :class:`hashring.protocol.lease_race_machine.FaithfulMachine`.
    """

    def __init__(
        self,
        redis: Any,
        name: str | bytes,
        partitions: int,
        *,
        member: str | None,
        callbacks: Callbacks,
        spans: LeaseRaceSpans,
    ) -> None:
        self._spans = spans
        super().__init__(
            redis,
            name,
            partitions,
            member=member,
            callbacks=callbacks,
            ttl=spans.max_lease,
            interval=min(1.0, spans.max_lease / 3),
        )

    def _new_machine(self) -> FaithfulMachine:
        return FaithfulMachine(
            self._keys,
            self.member,
            partitions=self._partitions,
            spans=self._spans,
            new_suffix=_new_suffix,
            chance=_RANDOM.random,
        )


def _new_suffix() -> str:
    return secrets.token_hex(4)


class _Fixed(FixedChallenge, SyncMember):
    pass


class _Faithful(FaithfulChallenge, SyncMember):
    pass


class _AsyncFixed(FixedChallenge, AsyncMember):
    pass


class _AsyncFaithful(FaithfulChallenge, AsyncMember):
    pass
