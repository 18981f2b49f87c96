"""The way through the code that the documentation draws is the one that a handoff goes."""

from __future__ import annotations

import threading
from typing import Any

from hashring import PartitionGroup
from hashring.testing import MemoryStore
from tests.conftest import eventually
from tests.unit.node.test_ways import IN_MEMORY, PICTURES, Passed

SETTINGS: dict[str, Any] = {"partitions": 2, "rebalance_delay": 0.0}


def test_a_handoff_passes_the_files_that_are_drawn() -> None:
    store, passed = MemoryStore(), Passed()
    revoked: list[int] = []
    threading.setprofile(passed)
    try:
        owner = PartitionGroup(
            store,
            "orders",
            member="a",
            on_revoked=lambda partition, *_: revoked.append(partition),
            **SETTINGS,
        )
        owner.start()
        eventually(lambda: len(owner.held) == 2, "a has both")
        passed.in_turn.clear()
        other = PartitionGroup(store, "orders", member="b", **SETTINGS)
        other.start()
        eventually(lambda: len(other.held) == 1, "b has one")
        files = passed.files - IN_MEMORY
    finally:
        threading.setprofile(None)  # type: ignore[arg-type]
    other.stop()
    owner.stop()
    assert revoked
    way = set(PICTURES.HANDOFF_WAY) - {"store/redis_store.py"}
    assert way <= files <= way | set(PICTURES.HANDOFF_BESIDE)
    assert passed.goes(PICTURES.HANDOFF_WAY)
    assert len(PICTURES.HANDOFF_WAY) <= 10
