"""The frozen ring: who owns what.

A replica at point ``p`` owns the range ``[p, q)`` where ``q`` is the next point on the ring, and
the last replica's range wraps around to the first. So the owner of a key is the replica at the
greatest point that is not above the key's point, or the last replica when there is none.

Replicas of several nodes on one point are ordered by node name, compared as UTF-8 bytes. Each
still owns the range up to the next replica, so all but the last own an empty range there and the
greatest name owns the point. Every reader sorts the same way, so every reader agrees.

The ring is immutable. A change makes a new one, which shares what it can with the old, so a
reader in another thread keeps a whole and consistent picture however long it looks.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Set
from functools import cached_property
from hashlib import blake2b
from itertools import chain, islice
from types import MappingProxyType
from typing import Final, Protocol, TypeGuard

from hashring.core.hashing import RING_SIZE, HashAlgorithm, hash_algorithm
from hashring.core.ranges import PointRange, RangeMove
from hashring.core.value_checks import plain_whole
from hashring.errors import ConfigError, EmptyRingError, UnknownNodeError

# The type code of a C unsigned int of at least 32 bits.
_UINT32: Final = "I"
_FINGERPRINT_MASK: Final = 2**64 - 1
_ORDER_BITS: Final = 32
_ORDER_MASK: Final = 2**_ORDER_BITS - 1


def _node_fingerprint(node: str, points: Iterable[int]) -> int:
    # One hash a node, over its sorted points. Summed over the nodes, the result does not depend
    # on any order, and a change of one node updates it without looking at the others.
    digest = blake2b(node.encode(), digest_size=8)
    digest.update(b"\0")
    digest.update(b",".join(b"%d" % point for point in points))
    return int.from_bytes(digest.digest(), "big")


class SupportsPath(Protocol):
    """A path, such as ``pathlib.Path``."""

    def __fspath__(self) -> str:
        """As a string."""
        ...


class SupportsRead(Protocol):
    """An open file."""

    def read(self) -> str | bytes:
        """All that is left of it."""
        ...


class SupportsWrite(Protocol):
    """An open file of text."""

    def write(self, text: str, /) -> object:
        """Append to it."""
        ...


def _is_path(file: object) -> TypeGuard[str | SupportsPath]:
    return isinstance(file, str) or hasattr(file, "__fspath__")


class Ring:
    """An immutable consistent hash ring.

    Args:
        points: for each node its points, any order, duplicates dropped.
        hash_algorithm: the name of the function from key to point.

    A node without points is not on the ring.

    Raises:
        ConfigError: a point that is no int in ``[0, 2**32)``, a node whose name is no text that
            UTF-8 encodes, or an unknown algorithm.
    """

    __slots__ = (
        "__dict__",
        "__weakref__",
        "_by_node",
        "_fingerprint",
        "_owners",
        "_points",
        "hash_algorithm",
    )

    _by_node: dict[str, array[int]]
    _points: array[int]
    _owners: list[str]
    _fingerprint: int
    hash_algorithm: HashAlgorithm

    def __init__(
        self,
        points: Mapping[str, Iterable[int]] | None = None,
        hash_algorithm: str | HashAlgorithm = "crc-32",
    ) -> None:
        by_node: dict[str, array[int]] = {}
        if points is not None and not isinstance(points, Mapping):
            raise ConfigError("points", points, "give a mapping from node to points")
        for node, values in (points or {}).items():
            own = sorted_points(node, values)
            if own:
                by_node[_plain(node)] = own
        # A replica is one integer here, its point and which of the nodes it belongs to: integers
        # are sorted in a fraction of the time that tuples take.
        names = sorted(by_node, key=str.encode)
        replicas = sorted(
            point << _ORDER_BITS | order
            for order, node in enumerate(names)
            for point in by_node[node]
        )
        self._assemble(
            by_node,
            array(_UINT32, [replica >> _ORDER_BITS for replica in replicas]),
            [names[replica & _ORDER_MASK] for replica in replicas],
            sum(_node_fingerprint(node, own) for node, own in by_node.items()),
            _algorithm(hash_algorithm),
        )

    def _assemble(
        self,
        by_node: dict[str, array[int]],
        points: array[int],
        owners: list[str],
        fingerprint: int,
        algorithm: HashAlgorithm,
    ) -> None:
        self._by_node = by_node
        self._points = points
        self._owners = owners
        self._fingerprint = fingerprint & _FINGERPRINT_MASK
        self.hash_algorithm = algorithm

    @classmethod
    def load(cls, file: str | SupportsPath | SupportsRead) -> Ring:
        """The ring of a ring file, as ``hashring export`` writes it::

            ring = Ring.load("ring.json")

        :func:`hashring.ring_files.read_ring` also returns where the ring was taken from.

        Args:
            file: a path, of JSON or Parquet, whatever its name; or an open file of JSON: anything
                with a ``read()`` that returns ``str`` or ``bytes``.

        Raises:
            NoDataError: no file is at the path, or it cannot be read.
            RingFileError: what is read is cut short, changed, of a newer version, or no ring file.
            MissingDependencyError: the ring's hash algorithm needs a package that is missing, or
                the file is Parquet, and pyarrow is missing.
            ConfigError: ``file`` is neither a path nor an open file.
        """
        from hashring.core.ring_json import load_ring  # noqa: PLC0415 - it builds on this module

        if _is_path(file):
            from hashring.ring_files import read_ring  # noqa: PLC0415 - reads files, if asked to

            return read_ring(file).ring
        if not hasattr(file, "read"):
            raise ConfigError("file", file, "give a path or an open file")
        return load_ring(file.read(), str(getattr(file, "name", "the text"))).ring

    def save(self, file: str | SupportsPath | SupportsWrite) -> None:
        """Write a ring file, for :meth:`load`::

            ring.save("ring.json")

        Args:
            file: a path, to which the file is written whole or not at all: Parquet if it ends in
                ``.parquet``, else JSON. Directories that are missing are made. Or an open file,
                which gets JSON: anything with a ``write()`` that takes ``str``.

        Raises:
            OutputExists: the path is there already.
            OutputRefused: the path cannot be written.
            MissingDependencyError: Parquet, and pyarrow is missing.
            ConfigError: ``file`` is neither a path nor an open file, or the hash algorithm is a
                function of your own: a file has its name alone.
        """
        from hashring.core.ring_json import RingFile, dump_ring  # noqa: PLC0415 - it builds on this module

        if _is_path(file):
            from hashring.ring_files import write_ring  # noqa: PLC0415 - writes files, if asked to

            write_ring(self, file)
            return
        if not hasattr(file, "write"):
            raise ConfigError("file", file, "give a path or an open file")
        file.write(dump_ring(RingFile(self)))

    # --- who owns what ------------------------------------------------------------------------

    def owner(self, key: str | bytes) -> str:
        """The node that owns the key.

        Raises:
            EmptyRingError: the ring has no nodes.
            KeyTypeError, KeyValueError: the key has no point.
        """
        # Asked for very many keys, so nothing is called that a plain key does not need.
        if key.__class__ is str and key.isascii() and key:
            point = self.hash_algorithm.point_of_bytes(key.encode())
        else:
            point = self.hash_algorithm.point(key)
        points = self._points
        if not points:
            raise EmptyRingError
        if not 0 <= point < RING_SIZE:
            _check_point(point)
        return self._owners[bisect_right(points, point) - 1]

    def owner_of_point(self, point: int) -> str:
        """The node that owns the point.

        Raises:
            EmptyRingError: the ring has no nodes.
            ConfigError: the point is no int in ``[0, 2**32)``.
        """
        points = self._points
        if not points:
            raise EmptyRingError
        _check_point(point)
        # The last replica at a point <= ours; index -1, the last of all, when there is none.
        return self._owners[bisect_right(points, point) - 1]

    def successors(self, point: int) -> Iterator[str]:
        """Each node once, in the order in which they would own the point.

        The owner comes first; the second would own the point if the owner left, the third if
        both did, and so on: the walk of a look-up, gone on past the owner. Nothing on an empty
        ring.

        Raises:
            ConfigError: the point is no int in ``[0, 2**32)``.
        """
        _check_point(point)
        return self._walk_from(point)

    def _walk_from(self, point: int) -> Iterator[str]:
        owners = self._owners
        seen: set[str] = set()
        last = bisect_right(self._points, point) - 1
        for step in range(len(owners)):
            # Below zero it goes on at the top of the ring, as Python's indices do.
            node = owners[last - step]
            if node not in seen:
                seen.add(node)
                yield node
                if len(seen) == len(self._by_node):
                    return

    def owners(
        self,
        key: str | bytes,
        n: int,
        *,
        zones: Mapping[str, str] | None = None,
    ) -> tuple[str, ...]:
        """The owner of the key and the nodes to read it from after that one, best first.

        Without zones: the first ``n`` of :meth:`successors`. With zones, no zone is named a
        second time before every zone has been named, nor a third time before every zone that
        has two nodes has been named twice, and so on; within that, the order of
        :meth:`successors` stays. The answer for ``n`` begins with the answer for ``n - 1``. A
        node that leaves changes nothing before its own place.

        Args:
            n: how many nodes, at least 1. Fewer come back if the ring has fewer.
            zones: the zone of each node. Nodes that it leaves out count as one more zone
                together, since nothing says that they are in different places.

        Returns:
            Node names, each once; the first is :meth:`owner`.

        Raises:
            EmptyRingError: the ring has no nodes.
            ConfigError: ``n`` is not a number of nodes, or ``zones`` no mapping.
            KeyTypeError, KeyValueError: the key has no point.
        """
        count = plain_whole(n)
        if count is None or count < 1:
            raise ConfigError("n", n, "give a number of nodes, at least 1")
        if zones is not None and not isinstance(zones, Mapping):
            raise ConfigError("zones", zones, "give a mapping from node to zone")
        # Python cannot count to some ints.
        count = min(count, self.node_count)
        walk = self.successors(self.hash_algorithm.point(key))
        if not self._by_node:
            raise EmptyRingError
        if zones is None:
            return tuple(islice(walk, count))
        # The nodes that are the first of their zone on the walk, the second ones, and so on.
        rounds: list[list[str]] = []
        named: dict[str | None, int] = {}
        for node in walk:
            zone = zones.get(node)
            place = named.get(zone, 0)
            named[zone] = place + 1
            if place == len(rounds):
                rounds.append([])
            rounds[place].append(node)
            if len(rounds[0]) == count:
                break
        return tuple(islice(chain.from_iterable(rounds), count))

    def nearer(self, point: int, node: str, other: str) -> bool:
        """Whether a node comes before another one among the point's successors.

        Raises:
            ConfigError: the point is no int in ``[0, 2**32)``.
        """
        return next((each for each in self.successors(point) if each in (node, other)), "") == node

    def ranges(self) -> Iterator[tuple[PointRange, str]]:
        """Every range with its owner, by rising start, without gaps, from point 0 to 2**32.

        Neighbours of one owner are merged. Nothing when the ring is empty.
        """
        if not self._points:
            return
        points, owners = self._points, self._owners
        start = 0
        owner = owners[-1]
        for index, (point, node) in enumerate(zip(points, owners, strict=True), 1):
            if node == owner or (index < len(points) and points[index] == point):
                # Of several replicas on one point only the last has a range.
                continue
            if point > start:
                yield PointRange(start, point), owner
            start, owner = point, node
        yield PointRange(start, RING_SIZE), owner

    def node_ranges(self, node: str) -> tuple[PointRange, ...]:
        """The ranges of one node, by rising start, neighbours merged; empty if it has none.

        Cost: two binary searches for each of the node's own points, whatever the size of the
        ring.
        """
        own = self._by_node.get(node)
        if own is None:
            return ()
        points, owners = self._points, self._owners
        size = len(points)
        found: list[PointRange] = []
        wrapped = 0
        for start in own:
            after = bisect_right(points, start)
            if owners[after - 1] != node:
                continue
            if after == size:
                end = RING_SIZE
                # The last range goes on from zero up to the first point of the ring.
                wrapped = points[0]
            else:
                end = points[after]
            if found and found[-1].end == start:
                found[-1] = PointRange(found[-1].start, end)
            else:
                found.append(PointRange(start, end))
        if wrapped:
            if found[0].start == wrapped:
                found[0] = PointRange(0, found[0].end)
            else:
                found.insert(0, PointRange(0, wrapped))
        return tuple(found)

    # --- what is on the ring ------------------------------------------------------------------

    @property
    def nodes(self) -> tuple[str, ...]:
        """The nodes, in order of their UTF-8 names."""
        return tuple(sorted(self._by_node, key=str.encode))

    @property
    def node_count(self) -> int:
        """How many nodes are on the ring."""
        return len(self._by_node)

    def __len__(self) -> int:
        """How many replicas are on the ring."""
        return len(self._points)

    def __contains__(self, node: object) -> bool:
        return node in self._by_node

    def points_of(self, node: str) -> tuple[int, ...]:
        """The points of a node, rising.

        Raises:
            UnknownNodeError: the node is not on the ring.
        """
        own = self._by_node.get(node)
        if own is None:
            raise UnknownNodeError(node)
        return tuple(own)

    def replicas(self) -> Iterator[tuple[int, str]]:
        """Every ``(point, node)``, by rising point; on a shared point the owner comes last."""
        return zip(self._points, self._owners, strict=True)

    @property
    def duplicate_points(self) -> tuple[int, ...]:
        """The points that more than one node has, rising. All but one of those own nothing."""
        points = self._points
        return tuple(
            sorted({points[i] for i in range(1, len(points)) if points[i] == points[i - 1]})
        )

    @property
    def shares(self) -> Mapping[str, int]:
        """The number of points each node owns; the sum is 2**32 unless the ring is empty."""
        return MappingProxyType(self._shares)

    @cached_property
    def _shares(self) -> dict[str, int]:
        # What a ring keeps can be pickled, which a read-only view of it cannot.
        owned = dict.fromkeys(self.nodes, 0)
        for (start, end), node in self.ranges():
            owned[node] += end - start
        return owned

    def share(self, node: str) -> float:
        """The part of the ring that a node owns, from 0 to 1.

        Raises:
            UnknownNodeError: the node is not on the ring.
        """
        try:
            return self.shares[node] / RING_SIZE
        except KeyError:
            raise UnknownNodeError(node) from None

    @property
    def fingerprint(self) -> str:
        """16 hex digits that are equal for equal rings, whatever the order of building them.

        It covers nodes, points and the hash algorithm. It tells apart rings that differ by
        accident; it is no defence against somebody who looks for a collision.
        """
        algorithm = _node_fingerprint(self.hash_algorithm.name, ())
        return f"{(self._fingerprint + algorithm) & _FINGERPRINT_MASK:016x}"

    # --- other rings --------------------------------------------------------------------------

    def with_node(self, node: str, points: Iterable[int]) -> Ring:
        """This ring with the node at these points, instead of any it had.

        Linear in the size of the ring, at the speed of copying memory.
        """
        new = sorted_points(node, points)
        node = _plain(node)
        base = self.without_nodes(node)
        if not new:
            return base
        name = node.encode()
        merged = array(_UINT32)
        owners: list[str] = []
        done = 0
        for point in new:
            index = bisect_left(base._points, point, done)
            # After the replicas on the same point whose nodes come first in order.
            while (
                index < len(base._points)
                and base._points[index] == point
                and base._owners[index].encode() < name
            ):
                index += 1
            merged.extend(base._points[done:index])
            owners.extend(base._owners[done:index])
            merged.append(point)
            owners.append(node)
            done = index
        merged.extend(base._points[done:])
        owners.extend(base._owners[done:])
        by_node = dict(base._by_node)
        by_node[node] = new
        return self._derived(
            by_node, merged, owners, base._fingerprint + _node_fingerprint(node, new)
        )

    def without_nodes(self, *nodes: str) -> Ring:
        """This ring without these nodes; a name that is not on it changes nothing."""
        gone = self._by_node.keys() & set(nodes)
        return self._without(gone) if gone else self

    def _without(self, gone: Set[str]) -> Ring:
        by_node = dict(self._by_node)
        taken = {node: by_node.pop(node) for node in gone}
        places = sorted(
            self._owners.index(node, bisect_left(self._points, point))
            for node, own in taken.items()
            for point in own
        )
        points = array(_UINT32)
        owners: list[str] = []
        done = 0
        for place in places:
            points.extend(self._points[done:place])
            owners.extend(self._owners[done:place])
            done = place + 1
        points.extend(self._points[done:])
        owners.extend(self._owners[done:])
        prints = sum(_node_fingerprint(node, own) for node, own in taken.items())
        return self._derived(by_node, points, owners, self._fingerprint - prints)

    def _derived(
        self,
        by_node: dict[str, array[int]],
        points: array[int],
        owners: list[str],
        fingerprint: int,
    ) -> Ring:
        ring = object.__new__(Ring)
        ring._assemble(by_node, points, owners, fingerprint, self.hash_algorithm)
        return ring

    def moves(self, after: Ring) -> tuple[RangeMove, ...]:
        """What changes hands from this ring to another: each range whose owner differs.

        By rising start; neighbours differ in one of the owners at least. Rings with different
        hash algorithms place every key anew, so comparing their ranges would say nothing.

        Raises:
            ConfigError: the rings hash keys differently, or ``after`` is no ring.
        """
        if not isinstance(after, Ring):
            raise ConfigError("after", after, "give a Ring, as Ring.load() makes one")
        if after.hash_algorithm.name != self.hash_algorithm.name:
            raise ConfigError(
                "hash_algorithm",
                after.hash_algorithm.name,
                f"the other ring uses {self.hash_algorithm.name}; compare rings of one algorithm",
            )
        old: list[tuple[PointRange, str | None]] = list(self.ranges()) or [
            (PointRange(0, RING_SIZE), None)
        ]
        new: list[tuple[PointRange, str | None]] = list(after.ranges()) or [
            (PointRange(0, RING_SIZE), None)
        ]
        found: list[RangeMove] = []
        i = j = start = 0
        while start < RING_SIZE:
            (_, old_end), was = old[i]
            (_, new_end), becomes = new[j]
            end = min(old_end, new_end)
            if was != becomes:
                # Neighbours differ, since one of the two owners changes at every boundary.
                found.append(RangeMove(start, end, was, becomes))
            i += old_end == end
            j += new_end == end
            start = end
        return tuple(found)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Ring):
            return NotImplemented
        return (
            self.hash_algorithm.name == other.hash_algorithm.name
            and self._by_node == other._by_node
        )

    def __hash__(self) -> int:
        return hash((self._fingerprint, self.hash_algorithm.name))

    def __repr__(self) -> str:
        return (
            f"<Ring of {self.node_count} nodes, {len(self)} replicas, "
            f"{self.hash_algorithm.name}, fingerprint {self.fingerprint}>"
        )


def _check_point(point: int) -> None:
    if point.__class__ is not int and plain_whole(point) is None:
        raise ConfigError("point", point, f"give an int in [0, {RING_SIZE})")
    if not 0 <= point < RING_SIZE:
        raise ConfigError("point", point, f"outside the ring [0, {RING_SIZE})")


def sorted_points(node: str, points: Iterable[int]) -> array[int]:
    """The points of a node, rising, each once.

    Raises:
        ConfigError: one is no int, or outside the ring; or the name is no text, or none in UTF-8.
    """
    if not isinstance(node, str) or not node:
        raise ConfigError("node", node, "a node's name is a non-empty str")
    try:
        node.encode()
    except UnicodeEncodeError:
        raise ConfigError("node", node, "cannot be encoded as UTF-8") from None
    try:
        values = sorted(set(points))
        for point in values[:1] + values[-1:]:
            if not 0 <= point < RING_SIZE:
                raise ConfigError(
                    "point", point, f"of node {node!r} is outside the ring [0, {RING_SIZE})"
                )
        return array(_UINT32, values)
    except TypeError as error:
        raise ConfigError(
            "points", points, f"of node {node!r} must be ints in [0, {RING_SIZE})"
        ) from error


def _plain(name: str) -> str:
    # A subclass, such as an enum of texts, may have another text where it is shown.
    return str.__str__(name)


# The constructor's parameter has the function's name, which is the word users know.
_algorithm = hash_algorithm
