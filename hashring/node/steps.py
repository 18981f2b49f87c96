"""What a node's protocol asks its runner to do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hashring.errors import StoreError
from hashring.store.commands import Command


@dataclass(frozen=True)
class Wait:
    """Wait for something to be told, until then at most (monotonic seconds)."""

    until: float


@dataclass(frozen=True)
class Run:
    """Run the command, then call ``done(reply, sent, now)`` or ``failed(error, now)``."""

    command: Command[Any]
    done: Callable[[Any, float, float], None]
    failed: Callable[[StoreError, float], None]


@dataclass(frozen=True)
class Subscribe:
    """Drop any subscription and make a new one, with this number in all that is told of it."""

    number: int


@dataclass(frozen=True)
class Finished:
    """Nothing more to do, ever."""


Step = Wait | Run | Subscribe | Finished
