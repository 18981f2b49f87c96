"""Commands of the faithful challenge, on the article's two hashes and two channels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hashring.store.command import Command, pairs
from hashring.store.lua_scripts import script
from hashring.store.ring_and_group_names import tagged


@dataclass(frozen=True)
class FaithfulKeys:
    """The names of one faithful challenge, as bytes; all in one hash slot.

    Attributes:
        allocation, grab: the article's hashes.
        grabs, allocated: the article's channels.
    """

    allocation: bytes
    grab: bytes
    grabs: bytes
    allocated: bytes


def faithful_keys(name: str | bytes) -> FaithfulKeys:
    """The names of the faithful challenge of that name.

    Raises:
        ConfigError: the name cannot be one: see :func:`hashring.store.ring_and_group_names.tagged`.
    """
    base = tagged("challenge", name) + b":challenge:"
    return FaithfulKeys(*(base + p for p in (b"allocation", b"grab", b"grabs", b"allocated")))


def look(keys: FaithfulKeys) -> Command[tuple[dict[int, str], dict[int, str]]]:
    """Who works on each partition, and who has won each race."""

    def read(raw: Any) -> tuple[dict[int, str], dict[int, str]]:
        allocation, grab = ({int(p): node.decode() for p, node in pairs(found)} for found in raw)
        return allocation, grab

    return Command(script("faithful_challenge", "look"), (keys.allocation, keys.grab), (), read)


def signal(keys: FaithfulKeys, partition: int, *, clear: bool) -> Command[None]:
    """Challenge a partition.

    Args:
        clear: take it from its owner and from the winner of its last race first.
    """
    names = (keys.allocation, keys.grab, keys.grabs)
    return Command(script("faithful_challenge", "signal"), names, (partition, int(clear)), _nothing)


def told_partition(payload: bytes, partitions: int) -> int | None:
    """The partition that a message on one of its channels names; ``None`` for none."""
    # The length first: int() of a very long text raises.
    if not payload.isdigit() or len(payload) > len(str(partitions)):
        return None
    number = int(payload)
    return number if number < partitions else None


def race(keys: FaithfulKeys, partition: int, node: str) -> Command[tuple[bool, str]]:
    """Try to set the grab; whether the node has it, and who works on the partition."""
    names = (keys.allocation, keys.grab)
    return Command(
        script("faithful_challenge", "race"),
        names,
        (partition, node),
        lambda raw: (bool(raw[0]), raw[1].decode()),
    )


def begin(keys: FaithfulKeys, partition: int, node: str) -> Command[bool]:
    """Say that the node works on the partition; false when the grab is another's."""
    names = (keys.allocation, keys.grab)
    return Command(script("faithful_challenge", "begin"), names, (partition, node), bool)


def open_again(keys: FaithfulKeys, partition: int, node: str) -> Command[bool]:
    """Let the partition be challenged again; false when the node has not won it."""
    return Command(script("faithful_challenge", "open"), (keys.grab,), (partition, node), bool)


def end(keys: FaithfulKeys, partition: int, node: str) -> Command[None]:
    """Say that the node's work on the partition has ended."""
    names = (keys.allocation, keys.allocated)
    return Command(script("faithful_challenge", "end"), names, (partition, node), _nothing)


def _nothing(raw: Any) -> None:
    """Ignore the answer."""
