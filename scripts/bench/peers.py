"""redis-hashring's node and ours, side by side on the same ranges, without Redis."""

from __future__ import annotations

from typing import Any

import redis_hashring

from hashring import RingNode
from hashring.store.memory import MemoryServer, MemoryStore


def plain_node(ranges: int, others: int = 3, **options: Any) -> RingNode:
    """A live node of ours with that many replicas, among others with as many."""
    store = MemoryStore(MemoryServer())
    for number in range(others):
        RingNode(store, "bench", n_replicas=ranges, name=f"other-{number}").heartbeat()
    node = RingNode(store, "bench", n_replicas=ranges, name="node", ttl=600, **options)
    node.heartbeat()
    return node


def their_node(node: RingNode, algorithm: redis_hashring.HashAlgorithm) -> redis_hashring.RingNode:
    """redis-hashring's node with the ranges of one of ours."""
    theirs = redis_hashring.RingNode(None, "bench", hash_algorithm=algorithm)
    theirs._state = redis_hashring._RingState(
        ranges=tuple(map(tuple, node.get_ranges())), node_count=node.get_node_count()
    )
    return theirs
