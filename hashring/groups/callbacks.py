"""The application's callbacks of a member, and which of them tells of a change."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from hashring.core.groups.partition_change import PartitionChange, PartitionChangeKind
from hashring.core.value_checks import is_coroutine_function
from hashring.errors import ConfigError

OnAssigned = Callable[[int, int], object]
OnRevoked = Callable[[int, float], object]
OnPartition = Callable[[int], object]
OnActive = Callable[[bool], object]


@dataclass(frozen=True)
class Callbacks:
    """What the application wants to be told; ``None`` for what it does not."""

    on_assigned: OnAssigned | None = None
    on_revoked: OnRevoked | None = None
    on_lost: OnPartition | None = None
    on_warmup: OnPartition | None = None
    on_drain: OnPartition | None = None
    on_active: OnActive | None = None

    def __post_init__(self) -> None:
        for name, callback in vars(self).items():
            if callback is not None and not callable(callback):
                raise ConfigError(name, callback, "give something that can be called")

    @property
    def may_work(self) -> bool:
        """Whether a callback may work on a partition itself, until it returns."""
        working = (self.on_assigned, self.on_drain, self.on_active)
        return any(callback is not None for callback in working)

    def refuse_coroutine_functions(self, use: str) -> None:
        """For a member that awaits nothing: they would never run.

        Args:
            use: what awaits them.

        Raises:
            ConfigError: one of the callbacks is a coroutine function.
        """
        for name, callback in vars(self).items():
            if is_coroutine_function(callback):
                raise ConfigError(name, callback, f"is a coroutine function: use {use}")

    def call_for(self, change: PartitionChange) -> Callable[[], object] | None:
        """What tells the application of a change; ``None`` if it does not want to be told."""
        kinds = PartitionChangeKind
        told: dict[PartitionChangeKind, tuple[Any, ...]] = {
            kinds.ASSIGNED: (self.on_assigned, change.partition, change.token),
            kinds.REVOKED: (self.on_revoked, change.partition, change.deadline),
            kinds.LOST: (self.on_lost, change.partition),
            kinds.WARMUP: (self.on_warmup, change.partition),
            kinds.DRAIN: (self.on_drain, change.partition),
            kinds.ACTIVE: (self.on_active, True),
            kinds.INACTIVE: (self.on_active, False),
            kinds.COOLED: (None,),
        }
        callback, *arguments = told[change.kind]
        return None if callback is None else partial(callback, *arguments)
