"""One ring for all nodes of a process that read the same.

A program is one node, as a rule. Where it is hundreds, in one event loop, each of them would make
a ring of its own from the same answer: when they all ask at once, as after a fault that all had,
that takes longer than they may wait for an answer, and none of them comes to its end.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from weakref import WeakValueDictionary

from hashring.core.hashing import HashAlgorithm
from hashring.core.ring import Ring
from hashring.store.ring.commands import read_members

# By the hash algorithm, and by how many members there were and a digest of them: they come in the
# order in which they expire, which every heartbeat changes. Rings are frozen, so whoever looks in
# here sees the same.
_rings: Final[WeakValueDictionary[tuple[HashAlgorithm, int, int], Ring]] = WeakValueDictionary()


def ring_of(members: Sequence[bytes], algorithm: HashAlgorithm) -> tuple[Ring, int]:
    """The ring of a ZSET's members, and how many of those are garbage.

    Kept only as long as somebody else keeps it.
    """
    key = (algorithm, len(members), sum(map(hash, members)))
    ring = _rings.get(key)
    if ring is not None:
        return ring, 0
    points, garbage = read_members(members)
    ring = Ring(points, algorithm)
    if not garbage:
        _rings[key] = ring
    return ring, garbage
