"""A view that a signal handler has raised into while readers and the lock book were shown it."""

from __future__ import annotations

from types import CodeType

import pytest

from hashring import RingNode
from hashring.testing import MemoryStore
from tests.unit.node.raised_into import raised_into

SHOWING = {"view", "_show_book", "alone", "see", "_publish", "_show"}
KEYS = [f"key-{number}" for number in range(12)]


def concerns(code: CodeType) -> bool:
    return code.co_name in SHOWING and "hashring" in code.co_filename


@pytest.mark.parametrize("follow", [False, True])
def test_what_a_handler_kept_from_being_shown_is_shown_with_the_next_heartbeat(
    follow: bool,
) -> None:
    """Readers know the ranges, and every lease on a key that has moved is revoked."""
    line = 0
    while True:
        line += 1
        store = MemoryStore()
        node = RingNode(store, "accounts", lock=True, follow=follow)
        node.heartbeat()
        holds = {key: node.hold(key) for key in KEYS}
        leases = {key: hold.__enter__() for key, hold in holds.items()}
        other = RingNode(store, "accounts", lock=True)
        other.heartbeat()
        where = raised_into(line, concerns, node.update)
        if not where:
            break
        node.heartbeat()
        ring = other.ring
        assert node.get_ranges() == ring.node_ranges(node.name), where
        moved = {key for key in KEYS if ring.owner(key) != node.name}
        revoked = {key for key, lease in leases.items() if lease.revoked.is_set()}
        assert revoked == moved, where
        assert all(node.contains(key) for key in KEYS if key not in moved), where
    assert line > 20
