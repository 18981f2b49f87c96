"""Server-sent events: what changed on a page, for its readers, and the API's changes of a ring.

A sender publishes the parts of a page; a reader receives what changed since its version. A message
is made once for all readers, and nothing is queued for one of them: a reader that was away for
longer than messages are kept receives the whole page.
"""

from __future__ import annotations

import json
import secrets
import threading
import time
import zlib
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import Any, Final

from flask import Response, abort, request
from werkzeug.exceptions import BadRequest

from hashring.store.ring.ring_events import RingEvent, event_json
from hashring.web.ring_watcher import RingWatcher

KEEPALIVE: Final = 15.0
"""Seconds after which a reader is sent a sign of life: each finds out when the other is gone."""

MOST_STREAMS: Final = 1000
"""How many streams one process serves at once."""

_KEPT: Final = 64  # messages of a page
_KEPT_BYTES: Final = 4 << 20  # of them together; of a page of thousands of nodes each may be huge
_RETRY: Final = b"retry: 1000\n\n"
_RETRY_AFTER: Final = 15  # seconds, for programs; a page tries again by itself
_SIGN_OF_LIFE: Final = b":\n\n"
_GZIP: Final = b"\x1f\x8b\x08\0\0\0\0\0\0\xff"  # how a gzip stream begins


class Chunk:
    """A piece of a stream, compressed once for all who want it so."""

    def __init__(self, raw: bytes) -> None:
        self.raw = raw
        self._compressing = threading.Lock()

    @property
    def deflated(self) -> bytes:
        """Compressed so that it can follow any other such piece.

        It ends on a byte, without ending the stream, and refers to nothing before itself.
        """
        # All readers of a stream want it at the same moment.
        with self._compressing:
            return self._deflated

    @cached_property
    def _deflated(self) -> bytes:
        compressor = zlib.compressobj(5, zlib.DEFLATED, -zlib.MAX_WBITS)
        return compressor.compress(self.raw) + compressor.flush(zlib.Z_FULL_FLUSH)


# An event: a page cannot see comments.
_ALIVE: Final = Chunk(b"event: alive\ndata: 0\n\n")


class Row:
    """A row of a page's table.

    Attributes:
        shown: what it shows. A row is sent when this is new, whatever its HTML.

    Args:
        make: makes the HTML, once, when it is first wanted: most rows of a look are the same as
            before, and nobody wants theirs.
    """

    def __init__(self, shown: Any, make: Callable[[], str]) -> None:
        self.shown = shown
        self._make = make

    @cached_property
    def html(self) -> str:
        """The row."""
        return self._make()


class Feed:
    """The parts of a page, in versions.

    Attributes:
        readers: how many there are.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        # Tells its versions from those of another, also of one that this ring or group had before.
        self._born = secrets.token_hex(4)
        self._number = 0
        self._at = 0.0
        self._parts: dict[str, str] = {}
        self._rows: dict[str, Row] = {}
        self._sent: deque[tuple[int, Chunk]] = deque(maxlen=_KEPT)
        self._whole: tuple[int, Chunk] | None = None
        self._closed = False
        self.readers = 0

    @property
    def version(self) -> str:
        """What :meth:`follow` is to be asked from, for a page made now."""
        return f"{self._born}.{self._number}"

    def publish(self, at: float, parts: Mapping[str, str], rows: Mapping[str, Row]) -> None:
        """Tell the readers what is new.

        Args:
            at: Redis time, by which the readers count ages.
            parts: HTML by the id of the element it belongs into.
            rows: the rows of the table by their ids.
        """
        new = {name: html for name, html in parts.items() if self._parts.get(name) != html}
        rows_new = {
            name: row.html
            for name, row in rows.items()
            if (before := self._rows.get(name)) is not row
            and (before is None or before.shown != row.shown)
        }
        gone = [name for name in self._rows if name not in rows]
        with self._changed:
            self._at = at
            self._parts = dict(parts)
            self._rows = dict(rows)
            if new or rows_new or gone:
                self._number += 1
                message = {"at": at, "parts": new, "rows": rows_new, "gone": gone}
                self._sent.append((self._number, self._chunk(message)))
                while len(self._sent) > 1 and self._kept > _KEPT_BYTES:
                    self._sent.popleft()
                self._changed.notify_all()

    @property
    def _kept(self) -> int:
        """Bytes of the messages that are kept."""
        return sum(len(chunk.raw) for _, chunk in self._sent)

    def wake(self) -> None:
        """Send all readers a sign of life: the thread of one whose connection is closed ends."""
        with self._changed:
            self._changed.notify_all()

    def close(self) -> None:
        """End all readers."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def follow(self, since: str, at: float, *, deflated: bool = False) -> Iterator[bytes]:
        """What changes, as server-sent events; ends when the feed is closed.

        Args:
            since: the version that the reader has; anything else gets it everything.
            at: Redis time now. It follows what the reader missed, whose own times have passed.
            deflated: send a gzip stream. It breaks off at its end.
        """
        with self._changed:
            self.readers += 1
        try:
            if deflated:
                yield _GZIP
            for chunk in self._follow(since, at):
                yield chunk.deflated if deflated else chunk.raw
        finally:
            with self._changed:
                self.readers -= 1

    def _follow(self, since: str, at: float) -> Iterator[Chunk]:
        yield Chunk(_RETRY)
        born, _, number = since.partition(".")
        # Python refuses to read thousands of digits.
        known = (
            int(number) if born == self._born and number.isdecimal() and len(number) < 20 else -1
        )
        with self._changed:
            missed = [] if self._closed else self._since(known, at)
            if missed:
                missed.append(self._chunk({"at": at, "parts": {}, "rows": {}, "gone": []}))
            known = self._number
        yield from missed
        while True:
            with self._changed:
                if known == self._number and not self._closed:
                    self._changed.wait(KEEPALIVE)
                if self._closed:
                    return
                chunks = self._since(known, self._at)
                known = self._number
            yield from chunks or [_ALIVE]

    def _since(self, known: int, at: float) -> list[Chunk]:
        missed = self._number - known
        if 0 <= missed <= len(self._sent):
            return [chunk for number, chunk in self._sent if number > known]
        if self._whole is None or self._whole[0] != self._number:
            rows = {name: row.html for name, row in self._rows.items()}
            message = {"at": at, "parts": self._parts, "rows": rows, "whole": True}
            self._whole = self._number, self._chunk(message)
        return [self._whole[1]]

    def _chunk(self, message: Mapping[str, Any]) -> Chunk:
        return Chunk(_event_bytes(f"{self._born}.{self._number}", message))


def _event_bytes(id_: str, data: Any) -> bytes:
    """A server-sent event."""
    # JSON has no line feed of its own, so the data is one line.
    return f"id: {id_}\ndata: {json.dumps(data)}\n\n".encode()


def live_changes(watcher: RingWatcher, since: str) -> Iterator[bytes]:
    """A ring's changes as they happen, as server-sent events; ends when nobody watches the ring.

    Args:
        since: the id of a change; those after it are sent. If Redis has lost that change, and its
            clock was set back, all are sent. If a failover takes changes back that were sent, those
            that the new primary has instead are sent after them.

    Raises:
        BadRequest: it is no such id.
    """
    _id(since)
    return _live_changes(watcher, since)


def _live_changes(watcher: RingWatcher, since: str) -> Iterator[bytes]:
    yield _RETRY
    looks = -1
    told = time.monotonic()
    while not watcher.stopping:
        looks = watcher.wait_for_look(looks, KEEPALIVE)
        view = watcher.view
        new: tuple[RingEvent, ...] = ()
        if view:
            since = view.standing(since)
            new = changes_after(view.events, since, watcher.latest_time(view))
        for event in new:
            since = event.id
            yield _event_bytes(event.id, event_json(event))
        if new:
            told = time.monotonic()
        elif time.monotonic() - told > KEEPALIVE:
            told = time.monotonic()
            yield _SIGN_OF_LIFE
        else:
            yield b""  # Nothing is sent, but a stream that has lost its place ends here.


def changes_after(events: tuple[RingEvent, ...], id_: str, now: float) -> tuple[RingEvent, ...]:
    """The events after the one with this id; all of them when it is empty.

    All as well if the id is later than ``now`` and than theirs: then the ring's history has begun
    again since, with smaller ids.

    Args:
        now: Redis time, in seconds since 1970.

    Raises:
        BadRequest: it is no id of a change.
    """
    if not id_:
        return events
    since, first = _id(id_), len(events)
    if since[0] > now * 1000 and (not events or since > _id(events[-1].id)):
        return events
    # Their ids grow. Each stream asks at each look, and most looks bring little.
    while first and _id(events[first - 1].id) > since:
        first -= 1
    return events[first:]


def _id(text: str) -> tuple[int, int]:
    first, _, second = text.partition("-")
    if all(
        part.isascii() and part.isdigit() and len(part) <= 20 for part in (first, second or "0")
    ):
        return int(first), int(second or "0")
    raise BadRequest("after: give the id of a change, such as 1700000000000-0")


class Streams:
    """Counts the open streams, each of which takes a thread, and shares them out.

    When all are in use, the client with the most of them loses its oldest to one that has fewer. A
    fixed limit for each would be wrong: all who come through a proxy may be one client here.

    Attributes:
        open: how many there are.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._of: dict[str, list[_Stream]] = {}  # by client, the oldest first
        self.open = 0

    def response(
        self, chunks: Iterator[bytes], client: str, wake: Callable[[], None] | None = None
    ) -> Response:
        """Answer the request with a stream of server-sent events.

        Args:
            client: who asks; see :func:`hashring.web.proxy_users.current_client`.
            wake: ends the wait for the next chunk, if it may last longer than one look at Redis.

        Raises:
            HTTPException: with status 503, when all are in use, and nobody has many more.
        """
        with self._lock:
            if self.open >= MOST_STREAMS:
                self._end_closed()
            if self.open >= MOST_STREAMS:
                self._make_way(client)
            closed = request.environ.get("waitress.client_disconnected", bool)
            stream = _Stream(chunks, lambda: self._ended(client, stream), closed, wake)
            self._of.setdefault(client, []).append(stream)
            self.open += 1
        return Response(
            stream,
            mimetype="text/event-stream",
            headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
        )

    def _end_closed(self) -> None:
        """Take the places of closed connections away: their threads would notice much later."""
        wakes = set()
        for client, streams in [*self._of.items()]:
            for stream in [each for each in streams if each.closed()]:
                stream.wanted = False
                self._forget(client, stream)
                wakes.add(stream.wake)
        # Otherwise the threads of streams that are opened and closed would pile up.
        for wake in wakes:
            if wake is not None:
                wake()

    def _make_way(self, client: str) -> None:
        busiest = max(self._of, key=lambda each: len(self._of[each]))
        own = len(self._of.get(client, ()))
        if len(self._of[busiest]) <= own + 1:
            abort(
                503,
                f"all {MOST_STREAMS} streams of this process are in use, {own} of them by you: "
                "close pages or try later",
                retry_after=_RETRY_AFTER,
            )
        oldest = self._of[busiest][0]
        oldest.wanted = False
        self._forget(busiest, oldest)

    def _ended(self, client: str, stream: _Stream) -> None:
        with self._lock:
            if stream.wanted:
                self._forget(client, stream)

    def _forget(self, client: str, stream: _Stream) -> None:
        self._of[client].remove(stream)
        if not self._of[client]:
            del self._of[client]
        self.open -= 1


class _Stream(Iterator[bytes]):
    """A stream that reports its end, also when it never began.

    Attributes:
        closed: returns whether its connection is closed.
        wake: see :meth:`Streams.response`.
        wanted: whether it may go on. If not, it ends at its next message or sign of life.
    """

    def __init__(
        self,
        chunks: Iterator[bytes],
        ended: Callable[[], None],
        closed: Callable[[], bool],
        wake: Callable[[], None] | None,
    ) -> None:
        self._chunks = chunks
        self._ended: Callable[[], None] | None = ended
        self.closed = closed
        self.wake = wake
        self.wanted = True

    def __next__(self) -> bytes:
        if not self.wanted:
            raise StopIteration
        return next(self._chunks)

    def close(self) -> None:
        if self._ended is not None:
            self._ended()
            self._ended = None
        close = getattr(self._chunks, "close", None)
        if close is not None:
            close()
