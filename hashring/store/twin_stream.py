"""A stream of the memory twin: what ``XADD key MAXLEN n *`` leaves behind."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Stream:
    """Entries, oldest first, under ids that only grow: milliseconds, then a count within them.

    As in Redis, an id is never given twice, not when older entries are gone, nor when the clock
    went back.
    """

    entries: list[tuple[bytes, dict[bytes, bytes]]] = field(default_factory=list)
    last: tuple[int, int] = (0, 0)

    def add(self, now: float, fields: dict[bytes, bytes], keep: int) -> None:
        """Append an entry, and keep the newest ones.

        Args:
            now: the server's time in seconds since 1970.
            keep: how many entries stay.
        """
        milliseconds, count = self.last
        at = int(now * 1000)
        self.last = (at, 0) if at > milliseconds else (milliseconds, count + 1)
        self.entries.append((b"%d-%d" % self.last, fields))
        del self.entries[: max(0, len(self.entries) - keep)]
