"""Histories of rings: nodes, with locks or without, and what happens to them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from hashring.protocol.locks.lock_config import LockConfig
from hashring.testing.simulator.history import History

TTL: Final = 3.0
HEARTBEAT: Final = 1.0


@dataclass(frozen=True)
class ProcessSpec:
    """A process with one node.

    Attributes:
        label: what the story calls the process.
        name: the node's name; processes may share one.
        named: whether the name was chosen by the user.
        placement, points: as in :class:`hashring.protocol.node.node_machine.NodeConfig`.
        asynchronous: run as under asyncio, where messages are heard while a call is under way;
            else as in a thread, where they wait.
        strict: whether the start fails at the first error.
        monotonic: what its monotonic clock shows at the beginning, in seconds.
        rate: how many seconds that clock goes on in a second.
        limit: how many keys its node may hold, in a history with locks.
        follow: whether its node follows the whole ring, or knows only its own ranges.
    """

    label: str
    name: str
    named: bool
    placement: str
    points: int
    asynchronous: bool
    strict: bool
    monotonic: float
    limit: int | None = None
    follow: bool = True
    rate: float = 1.0


@dataclass(frozen=True)
class LockTerms:
    """How all nodes of a history lock.

    Attributes:
        keys: the keys that every process asks for.
        ttl, idle, max_handoff_time: as in :class:`hashring.protocol.locks.lock_config.LockConfig`.
    """

    keys: tuple[bytes, ...]
    ttl: float
    idle: float
    max_handoff_time: float


@dataclass(frozen=True)
class NodeHistory(History):
    """A history of nodes.

    Attributes:
        locks: how the nodes lock; ``None`` when they do not.
    """

    locks: LockTerms | None = None

    def lock_config(self, spec: ProcessSpec) -> LockConfig | None:
        """How a process' node locks."""
        terms = self.locks
        if terms is None:
            return None
        return LockConfig(True, spec.limit, terms.ttl, terms.idle, terms.max_handoff_time)
