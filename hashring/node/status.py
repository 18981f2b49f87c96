"""What a node says of itself."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from hashring.core.hashing import RING_SIZE
from hashring.protocol.locks.lock_book import LockBook
from hashring.protocol.node.node_machine import NodeMachine, View
from hashring.protocol.node.node_states import NodeState


@dataclass(frozen=True)
class NodeStatus:
    """A node at one moment.

    Attributes:
        state: see the table in :mod:`hashring.protocol.node.node_states`.
        name: the node's name.
        ring: the ring's name.
        owns: whether it owns anything right now.
        share: the part of the ring it owns, from 0 to 1.
        node_count: nodes on the ring, as the node knows it.
        epoch: number of the ring's last change it has seen; ``None`` before the first fetch.
        fingerprint: of the ring it sees; equal on nodes that agree. Empty without
            ``follow=True``.
        expires_in: seconds until it owns nothing unless it renews; ``None`` when it owns nothing.
        last_heartbeat: seconds since a heartbeat was answered; ``None`` before the first.
        heartbeat_took: seconds from sending the heartbeat that was answered last to its answer;
            ``None`` before the first.
        failing_for: seconds since Redis last answered well; ``None`` when it does.
        last_error: the newest failure's text; ``None`` when the last heartbeat went well, and so
            did what was last asked about locks.
        held: keys the node holds; ``None`` without locks and limit.
        limit: how many it may hold; ``None`` for any number.
        full: whether it had to refuse keys for its limit.
        waiting: keys of its own that another node still holds.
        refused: keys of its own that it refused within its last ``idle`` seconds (counted up to
            65,536).
        unserved: of those, the ones that no node holds while every node is full; without locks,
            all of them.
        held_off: seconds for which no node of the ring takes a lock, because Redis lost the locks,
            or may have; 0 as a rule.
        garbage: members of the ring that are no replicas, when it was last fetched.
        heartbeats: how many were answered since the node was made; so are the counts below.
        failures: calls to Redis that failed.
        fetches: readings of the whole ring.
        gaps: times it found that it had missed a change.
        subscriptions: those made, the first and all after it.
        bad_messages: messages on its channels that were none.
        fences: times its lease ended before it was renewed.
        losses: times it found that Redis had lost the ring.
        changes: how many changes of the ring it has heard of, by reason: start,
            restart, return, resize, weight, stop, removed, expired, unvouched, drained,
            undrained, full, room. Those that it missed are in ``gaps``, as far as it knows.
    """

    state: NodeState
    name: str
    ring: str
    owns: bool
    share: float
    node_count: int
    epoch: int | None
    fingerprint: str
    expires_in: float | None
    last_heartbeat: float | None
    heartbeat_took: float | None
    failing_for: float | None
    last_error: str | None
    held: int | None
    limit: int | None
    full: bool
    waiting: int
    refused: int
    unserved: int
    held_off: float
    garbage: int
    heartbeats: int
    failures: int
    fetches: int
    gaps: int
    subscriptions: int
    bad_messages: int
    fences: int
    losses: int
    changes: dict[str, int]

    def as_dict(self) -> dict[str, Any]:
        """The same as JSON types."""
        return {**asdict(self), "state": self.state.value}


def status_of(machine: NodeMachine, view: View, now: float, ring: str) -> NodeStatus:
    """The status of a node whose readers see ``view``."""
    owns = bool(view.ranges) and now < view.deadline
    counters = machine.counters
    book = machine.book
    # Read once: the loop sets it to None when the node ends.
    stamp = machine.sight.stamp
    error = machine.last_error or (book.error if book else None)
    return NodeStatus(
        state=machine.state,
        name=machine.name,
        ring=ring,
        owns=owns,
        share=sum(end - start for start, end in view.ranges) / RING_SIZE if owns else 0.0,
        node_count=view.node_count,
        epoch=stamp.epoch if stamp else None,
        fingerprint=view.ring.fingerprint if machine.config.follow else "",
        expires_in=view.deadline - now if owns else None,
        last_heartbeat=_since(machine.last_beat, now),
        heartbeat_took=machine.beat_took,
        failing_for=_since(machine.failed_since, now),
        last_error=str(error) if error else None,
        held=len(book.held) if book else None,
        limit=book.limit.most if book else None,
        full=book.limit.full if book else False,
        waiting=book.waiting if book else 0,
        refused=book.limit.refused if book else 0,
        unserved=book.limit.unserved if book else 0,
        held_off=_held_off(book, now) if book else 0.0,
        garbage=machine.sight.garbage,
        # A copy made in one step, since the node's own thread counts on.
        **{**vars(counters), "changes": dict(counters.changes)},
    )


def _held_off(book: LockBook, now: float) -> float:
    left = book.held_off_for(now)
    # Until the next heartbeat says for how long, nobody knows.
    return left if math.isfinite(left) else book.config.ttl


def _since(moment: float | None, now: float) -> float | None:
    return None if moment is None else now - moment
