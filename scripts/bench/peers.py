"""redis-hashring's node and ours, side by side on one ring, without Redis."""

from __future__ import annotations

from random import Random
from typing import Any

import redis_hashring

from hashring import RingNode
from hashring.store.memory_store import MemoryServer, MemoryStore


def plain_node(ranges: int, others: int = 3, **options: Any) -> RingNode:
    """A live node of ours with that many replicas, among others with as many."""
    store = MemoryStore(MemoryServer())
    names = [*(f"other-{number}" for number in range(others)), "node"]
    for name in names:
        more = options if name == "node" else {}
        node = RingNode(store, "bench", n_replicas=ranges, name=name, ttl=600, **more)
        # The same points in every run: what a search takes depends on them.
        node._machine.rng = Random(f"{name} {ranges}")
        node.heartbeat()
    return node


def their_node(node: RingNode, algorithm: redis_hashring.HashAlgorithm) -> redis_hashring.RingNode:
    """redis-hashring's node, as it is when it has the replicas of one of ours."""
    theirs = redis_hashring.RingNode(None, "bench", hash_algorithm=algorithm)
    ring = [(point, f"{owner}:1:{at}") for at, (point, owner) in enumerate(node.ring.replicas())]
    theirs._replicas = [each for each in ring if each[1].startswith(f"{node.name}:")]
    theirs._state = theirs._compute_state(ring)
    return theirs
