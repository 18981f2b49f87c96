"""The twin of the lease challenge's scripts: a method for each, with the script's ARGV."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hashring.store.twin_keyspace import Twin


@dataclass
class TableData:
    """The table of a challenge in its fixed mode, and the tag of its last write."""

    tag: bytes = b""
    table: bytes = b""


@dataclass
class HashData:
    """A hash of the article: the node of each partition."""

    nodes: dict[int, bytes] = field(default_factory=dict)


class ChallengeTwin(Twin):
    """The scripts of a lease challenge."""

    def read(self) -> list[Any]:
        found = self.keyspace.of(TableData, self.keys[0])
        return [self.at(), found.tag, found.table]

    def write(self, base: str, table: str, message: str) -> int:
        found = self.keyspace.of(TableData, self.keys[0])
        if found.tag != base.encode():
            return 0
        count = int(found.tag.rpartition(b":")[2] or 0) + 1
        found.tag, found.table = b"%b:%d" % (self.at(), count), table.encode()
        if message:
            self.publish(self.keys[1], message.encode())
        return 1

    # --- the faithful mode ------------------------------------------------------------------------

    def look(self) -> list[Any]:
        return [
            [part for number, node in self._hash(key).items() for part in (b"%d" % number, node)]
            for key in self.keys
        ]

    def signal(self, partition: int, clear: int) -> int:
        allocation, grab, channel = self.keys
        if clear:
            self._hash(allocation).pop(partition, None)
            self._hash(grab).pop(partition, None)
        self.publish(channel, b"%d" % partition)
        return 0

    def race(self, partition: int, node: str) -> list[Any]:
        allocation, grab = map(self._hash, self.keys)
        won = grab.setdefault(partition, node.encode()) == node.encode()
        return [int(won), allocation.get(partition, b"")]

    def begin(self, partition: int, node: str) -> int:
        allocation, grab = map(self._hash, self.keys)
        if grab.get(partition) != node.encode():
            return 0
        allocation[partition] = node.encode()
        return 1

    def open(self, partition: int, node: str) -> int:
        (grab,) = map(self._hash, self.keys)
        if grab.get(partition) != node.encode():
            return 0
        del grab[partition]
        return 1

    def end(self, partition: int, node: str) -> int:
        allocation, channel = self.keys
        if self._hash(allocation).get(partition) == node.encode():
            del self._hash(allocation)[partition]
        self.publish(channel, b"%d" % partition)
        return 0

    def _hash(self, key: bytes) -> dict[int, bytes]:
        return self.keyspace.of(HashData, key).nodes
