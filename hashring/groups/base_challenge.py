"""What members of a lease challenge have, and those of a faithful one."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Any, Final

from hashring.core.groups.state import check_partitions
from hashring.groups.base_member import BaseMember

chance: Final[Callable[[], float]] = secrets.SystemRandom().random
"""A number ``0 <= x < 1``, another one each time."""


class BaseChallenge(BaseMember):
    """A member that shares partitions without any common assignment."""

    _kind = "challenge"

    def __init__(self, redis: Any, name: str | bytes, partitions: int, **options: Any) -> None:
        self._partitions = check_partitions(partitions)
        super().__init__(redis, name, progress_timeout=None, **options)

    @property
    def partitions(self) -> int:
        """How many partitions there are."""
        return self._partitions

    @property
    def _made_as(self) -> str:
        return self._twins[self._asynchronous]


def new_suffix() -> str:
    """A text that tells a process from others of its name."""
    return secrets.token_hex(4)
