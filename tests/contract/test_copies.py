"""What belongs to one process can be neither copied nor pickled, and says what to do instead."""

from __future__ import annotations

import copy
import multiprocessing
import pickle
from collections.abc import Callable
from typing import Any

import pytest

from hashring import (
    AsyncPartitionGroup,
    AsyncRingNode,
    PartitionGroup,
    RingNode,
    async_lease_challenge,
    lease_challenge,
)
from hashring.groups.faithful_challenge import async_faithful_challenge, faithful_challenge
from hashring.testing import MemoryStore

KINDS: dict[str, Callable[[Any], Any]] = {
    "RingNode": lambda store: RingNode(store, "accounts"),
    "AsyncRingNode": lambda store: AsyncRingNode(store, "accounts", lock=True),
    "PartitionGroup": lambda store: PartitionGroup(store, "accounts", 4),
    "AsyncPartitionGroup": lambda store: AsyncPartitionGroup(store, "accounts", 4),
    "lease_challenge": lambda store: lease_challenge(store, "accounts", 4),
    "async_lease_challenge": lambda store: async_lease_challenge(store, "accounts", 4),
    "faithful_challenge": lambda store: faithful_challenge(store, "accounts", 4),
    "async_faithful_challenge": lambda store: async_faithful_challenge(store, "accounts", 4),
}
WAYS: dict[str, Callable[[Any], Any]] = {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "pickle": pickle.dumps,
    "oldest pickle": lambda made: pickle.dumps(made, 0),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", KINDS)
def test_nobody_copies_a_node_or_a_member(kind: str, way: str) -> None:
    made = KINDS[kind](MemoryStore())
    with pytest.raises(TypeError, match=rf"cannot copy or pickle {kind}: .* Make another {kind} "):
        WAYS[way](made)


def test_a_node_is_not_passed_to_a_spawned_process() -> None:
    node = RingNode(MemoryStore(), "accounts")
    child = multiprocessing.get_context("spawn").Process(target=print, args=(node,))
    with pytest.raises(TypeError, match="pass the arguments there, and make it there"):
        child.start()


class Recipe(RingNode):
    """A node of a user's that knows how to be made again."""

    def __reduce__(self) -> tuple[Any, ...]:
        return Recipe, (MemoryStore(), "accounts")


def test_a_subclass_may_say_how_to_make_another() -> None:
    node = Recipe(MemoryStore(), "accounts")
    assert copy.copy(node).name != node.name
