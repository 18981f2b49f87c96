"""Pages that change, and those who watch: one sender, any number of readers.

A sender publishes what a page is made of; a reader gets what changed since it last looked. What
is sent is made once, whoever reads it, and nothing is queued for a reader: one that was away for
longer than is kept gets everything.
"""

from __future__ import annotations

import json
import secrets
import threading
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any, Final

KEEPALIVE: Final = 15.0
"""Seconds after which a reader is sent a comment, so that it is found out when it is gone."""

_KEPT: Final = 64
_RETRY: Final = b"retry: 1000\n\n"

# Tells a version of this process from one of a process before it.
_BORN: Final = secrets.token_hex(4)


class Feed:
    """The parts of a page, in versions.

    Attributes:
        readers: how many there are.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._number = 0
        self._parts: dict[str, str] = {}
        self._rows: dict[str, tuple[Any, str]] = {}
        self._sent: deque[tuple[int, bytes]] = deque(maxlen=_KEPT)
        self._closed = False
        self.readers = 0

    @property
    def version(self) -> str:
        """What :meth:`follow` is to be asked from, for a page made now."""
        return f"{_BORN}.{self._number}"

    def publish(self, at: float, parts: Mapping[str, str], rows: Mapping[str, Any]) -> None:
        """Tell the readers what is new.

        Args:
            at: Redis time, by which the readers count ages.
            parts: HTML by the id of the element it belongs into.
            rows: for each row of the table, by its id, what it shows and its HTML: a pair. A row
                is sent when what it shows is new, whatever its HTML.
        """
        news = {name: html for name, html in parts.items() if self._parts.get(name) != html}
        if list(rows) != list(self._rows):
            news["rows"] = "".join(html for _, html in rows.values())
        else:
            for name, (shown, html) in rows.items():
                if self._rows[name][0] != shown:
                    news[name] = html
        with self._changed:
            self._parts = dict(parts)
            self._rows = dict(rows)
            if news:
                self._number += 1
                self._sent.append((self._number, self._message(at, news)))
                self._changed.notify_all()

    def close(self) -> None:
        """End all readers."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def follow(self, since: str, at: float) -> Iterator[bytes]:
        """What changes, as server-sent events; ends when the feed is closed.

        Args:
            since: the version that the reader has; anything else gets it everything.
            at: Redis time, should everything have to be sent now.
        """
        self.readers += 1
        try:
            yield from self._follow(since, at)
        finally:
            self.readers -= 1

    def _follow(self, since: str, at: float) -> Iterator[bytes]:
        yield _RETRY
        born, _, number = since.partition(".")
        known = int(number) if born == _BORN and number.isdecimal() else -1
        while True:
            with self._changed:
                if known == self._number and not self._closed:
                    self._changed.wait(KEEPALIVE)
                if self._closed:
                    return
                messages = self._since(known, at)
                known = self._number
            yield b"".join(messages) or b":\n\n"

    def _since(self, known: int, at: float) -> list[bytes]:
        missed = self._number - known
        if 0 <= missed <= len(self._sent):
            return [message for number, message in self._sent if number > known]
        whole = {**self._parts, "rows": "".join(html for _, html in self._rows.values())}
        return [self._message(at, whole)]

    def _message(self, at: float, parts: Mapping[str, str]) -> bytes:
        return event_bytes(f"{_BORN}.{self._number}", {"at": at, "parts": parts})


def event_bytes(id_: str, data: Any) -> bytes:
    """A server-sent event."""
    # JSON has no line feed of its own, so the data is one line.
    return f"id: {id_}\ndata: {json.dumps(data)}\n\n".encode()
