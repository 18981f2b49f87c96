"""Nodes of one process that read the same ring have one ring."""

from __future__ import annotations

import gc
import weakref

from hashring.core.hashing import hash_algorithm
from hashring.core.ring import Ring
from hashring.protocol.node.shared_rings import ring_of

CRC32, CRC32C = hash_algorithm("crc-32"), hash_algorithm("crc-32c")
MEMBERS = (b"1:a:x", b"2:b:y", b"3:a:z")


def test_who_reads_the_same_has_the_same_ring_whatever_expires_first() -> None:
    ring, garbage = ring_of(MEMBERS, CRC32)
    assert (ring, garbage) == (Ring({"a": [1, 3], "b": [2]}), 0)
    assert ring_of(MEMBERS[::-1], CRC32)[0] is ring


def test_who_reads_something_else_has_another_ring() -> None:
    ring, _ = ring_of(MEMBERS, CRC32)
    assert ring_of((*MEMBERS[:2], b"4:a:z"), CRC32)[0] == Ring({"a": [1, 4], "b": [2]})
    assert ring_of(MEMBERS[:2], CRC32)[0] == Ring({"a": [1], "b": [2]})
    assert ring_of(MEMBERS, CRC32C)[0] == Ring({"a": [1, 3], "b": [2]}, "crc-32c") != ring


def test_garbage_is_counted_each_time() -> None:
    for _ in range(2):
        assert ring_of((*MEMBERS, b"garbage"), CRC32) == (Ring({"a": [1, 3], "b": [2]}), 1)


def test_a_ring_that_nobody_has_any_more_is_not_kept() -> None:
    seen = weakref.ref(ring_of((b"5:only:here",), CRC32)[0])
    gc.collect()
    assert seen() is None
