"""The twin of the lease challenge's scripts: a method for each, with the script's ARGV."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hashring.store.twin import Twin


@dataclass
class TableData:
    """The table of a challenge in its fixed mode, and the tag of its last write."""

    tag: bytes = b""
    table: bytes = b""


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
