"""A view that a signal handler has raised into while readers and the lock book were shown it."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

import pytest

from hashring import RingNode
from hashring.testing import MemoryStore

SHOWING = {"view", "_show_book", "alone", "see", "_publish", "_show"}
KEYS = [f"key-{number}" for number in range(12)]


class Interrupt(BaseException):
    """What the signal handler raises."""


class Raiser:
    """Raises before one line of what shows a view, counted over all its frames."""

    def __init__(self, line: int) -> None:
        self.left = line
        self.where = ""

    def __call__(self, frame: FrameType, event: str, argument: Any) -> Any:
        if frame.f_code.co_name not in SHOWING or "hashring" not in frame.f_code.co_filename:
            return None
        if event == "line" and not self.where:
            self.left -= 1
            if self.left == 0:
                self.where = f"{frame.f_code.co_filename}:{frame.f_lineno}"
                sys.settrace(None)
                raise Interrupt
        return self


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
        raiser = Raiser(line)
        sys.settrace(raiser)
        try:
            node.update()
        except Interrupt:
            pass
        finally:
            sys.settrace(None)
        if not raiser.where:
            break
        node.heartbeat()
        ring = other.ring
        assert node.get_ranges() == ring.node_ranges(node.name), raiser.where
        moved = {key for key in KEYS if ring.owner(key) != node.name}
        revoked = {key for key, lease in leases.items() if lease.revoked.is_set()}
        assert revoked == moved, raiser.where
        assert all(node.contains(key) for key in KEYS if key not in moved), raiser.where
    assert line > 20
