"""Streams of server-sent events."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from flask import Response, abort

MOST_STREAMS: Final = 1000
"""How many streams one process serves at once."""


class Streams:
    """Counts the streams there are."""

    def __init__(self) -> None:
        self.open = 0

    def response(self, chunks: Iterator[bytes]) -> Response:
        """A stream of server-sent events."""
        if self.open >= MOST_STREAMS:
            abort(503, f"there are {MOST_STREAMS} streams already, as many as this process serves")
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        return Response(self._counted(chunks), mimetype="text/event-stream", headers=headers)

    def _counted(self, chunks: Iterator[bytes]) -> Iterator[bytes]:
        self.open += 1
        try:
            yield from chunks
        finally:
            self.open -= 1
