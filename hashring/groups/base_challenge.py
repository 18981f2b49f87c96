"""What members of a lease challenge have, and those of a faithful one."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Any, Final

from hashring.core.groups.state import check_partitions
from hashring.groups.async_member import AsyncMember
from hashring.groups.base_member import BaseMember
from hashring.groups.sync_member import SyncMember
from hashring.protocol.group.base_member_machine import BaseMemberMachine

chance: Final[Callable[[], float]] = secrets.SystemRandom().random
"""A number ``0 <= x < 1``, another one each time."""


class BaseChallenge(BaseMember):
    """A member that shares partitions without any common assignment.

    Args:
        twins: the functions that make such members: of a sync client, and of an asyncio one.
        new_machine: its protocol, from the arguments that the protocols have in common.
        options: as for :class:`.BaseMember`.
    """

    _kind = "challenge"

    def __init__(
        self,
        redis: Any,
        name: str | bytes,
        partitions: int,
        *,
        twins: tuple[str, str],
        new_machine: Callable[..., BaseMemberMachine],
        **options: Any,
    ) -> None:
        self._twins = twins
        self._make_machine = new_machine
        self._partitions = check_partitions(partitions)
        super().__init__(redis, name, progress_timeout=None, **options)

    def _new_machine(self) -> BaseMemberMachine:
        return self._make_machine(
            member=self.member,
            partitions=self._partitions,
            new_suffix=new_suffix,
            chance=chance,
        )

    @property
    def partitions(self) -> int:
        """How many partitions there are."""
        return self._partitions

    @property
    def _made_as(self) -> str:
        return self._twins[self._asynchronous]


class SyncChallenge(BaseChallenge, SyncMember):
    """The same for threads and greenlets."""


class AsyncChallenge(BaseChallenge, AsyncMember):
    """The same for asyncio."""


def new_suffix() -> str:
    """A text that tells a process from others of its name."""
    return secrets.token_hex(4)
