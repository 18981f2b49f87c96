"""What a type checker tells the people who use the package."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.programs import python

PROGRAM = """
import asyncio

import hashring


class Sync(hashring.RingNode):
    def mine(self) -> int:
        return 1


class Async(hashring.AsyncRingNode):
    def mine(self) -> int:
        return 1


def work(lease: hashring.KeyLease) -> bool:
    return lease.lost.wait(timeout=5) or lease.revoked.wait(5.0) or lease.lost.is_set()


async def work_async(lease: hashring.KeyLease[asyncio.Event]) -> bool:
    await asyncio.wait_for(lease.revoked.wait(), 5)
    return await lease.lost.wait()


def threads(redis: object) -> int:
    with Sync(redis, "ring", lock=True) as node:
        with node.hold("key") as lease:
            assert work(lease)
        return node.mine()


async def tasks(redis: object) -> int:
    async with Async(redis, "ring", lock=True) as node:
        async with node.hold("key") as lease:
            assert await work_async(lease)
        return node.mine()


def change(group: hashring.PartitionGroup) -> hashring.PartitionChangeKind:
    return next(group.changes()).kind


hashring.PartitionGroup(None, b"orders")
"""


@pytest.mark.slow
def test_what_the_documentation_shows_has_types(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    found = python("-m", "mypy", "--strict", "--no-error-summary", program)
    assert (found.stdout, found.stderr, found.returncode) == ("", "", 0)
