"""The range of each replica: from its point to that of the next replica, any node's.

A node's ranges on the ring are longer: they run on over its own replicas (:meth:`Ring.node_ranges
<hashring.core.ring.Ring.node_ranges>`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from hashring.core.hashing import RING_SIZE
from hashring.core.ring import Ring


def replica_ranges(ring: Ring) -> Iterator[tuple[int, str, int]]:
    """Point, owner and length of the range that begins at each point of a ring."""
    # On a shared point the owner comes last.
    owners = dict(ring.replicas())
    starts = list(owners)
    for start, end in zip(starts, [*starts[1:], *(s + RING_SIZE for s in starts[:1])], strict=True):
        yield start, owners[start], end - start


def duplicate_holders(ring: Ring) -> dict[int, list[str]]:
    """The nodes that have each point of several nodes, the owner last; by rising points."""
    found: dict[int, list[str]] = {point: [] for point in ring.duplicate_points}
    for point, node in ring.replicas() if found else ():
        if point in found:
            found[point].append(node)
    return found


def replica_lengths(ring: Ring, node: str) -> dict[int, int]:
    """How much each of a node's points owns: up to the next replica of any node.

    A point that another node owns has 0. Empty for a node that is not on the ring.
    """
    if node not in ring:
        return {}
    lengths = dict.fromkeys(ring.points_of(node), 0)
    lengths.update({point: length for point, name, length in replica_ranges(ring) if name == node})
    return lengths


def stretch_ranges(
    stretches: Iterable[Sequence[tuple[int, str]]], *, closed: bool = False
) -> Mapping[str, tuple[tuple[int, int], ...]]:
    """The ranges in stretches of a ring, by owner: start and length of each, rising.

    Args:
        stretches: point and node of each replica, in their order around the ring. The last one of
            a stretch is where the last range ends.
        closed: the last one is followed by the first one: a stretch is the whole ring.
    """
    found: dict[str, set[tuple[int, int]]] = {}
    for stretch in stretches:
        owners: dict[int, str] = {}
        for point, node in stretch:
            owners[point] = max(owners.get(point, ""), node, key=str.encode)
        starts = list(owners)
        for start, end in zip(starts, starts[1:] + starts[:1] * closed, strict=False):
            length = (end - start) % RING_SIZE or RING_SIZE
            found.setdefault(owners[start], set()).add((start, length))
    return {node: tuple(sorted(ranges)) for node, ranges in found.items()}
