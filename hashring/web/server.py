"""Serving the application on gevent's WSGI server."""

from __future__ import annotations

import logging
from typing import Any, Final

from gevent import pywsgi
from gevent.pool import Pool

from hashring.web.service import Service

STOPPING: Final = 0.5
"""Seconds that open requests have to end when the server stops."""

_CONNECTIONS: Final = 4000  # at once; further ones wait to be accepted
_SILENCE: Final = 60.0  # seconds that a connection may neither send nor take anything
_LONGEST_LINE: Final = 1 << 16  # bytes of a request line: a key of 16 kB, escaped

log = logging.getLogger("hashring.web")

pywsgi.MAX_REQUEST_LINE = _LONGEST_LINE


class _Handler(pywsgi.WSGIHandler):  # type: ignore[misc]
    """Neither waits for ever, nor logs every request."""

    def handle(self) -> None:
        self.socket.settimeout(_SILENCE)
        super().handle()

    def log_request(self) -> None:
        log.debug("%s", self.format_request())

    def handle_error(self, kind: Any, value: Any, trace: Any) -> None:
        # A visitor that went away is nobody's error.
        if isinstance(value, OSError):
            self.close_connection = True
            return
        super().handle_error(kind, value, trace)


def make_server(service: Service, host: str, port: int) -> Any:
    """A server for the service; it listens once its ``start()`` is called.

    Args:
        port: 0 for any free one; then ``server_port`` says which.
    """
    return pywsgi.WSGIServer(
        (host, port),
        service.app,
        spawn=Pool(_CONNECTIONS),
        handler_class=_Handler,
        log=None,
        error_log=log,
        # A body ends where it ends, a chunked one too, so it can be read without its length.
        environ={"SERVER_SOFTWARE": "hashring", "wsgi.input_terminated": True},
    )
