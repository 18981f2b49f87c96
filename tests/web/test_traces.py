"""The service's traces, as OpenTelemetry's own program and variables make them."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from hashring.store.embedded_server import RedisServer
from tests.conftest import eventually
from tests.web.conftest import serving

pytestmark = pytest.mark.one_server

OPENTELEMETRY = Path(sys.prefix) / "opentelemetry"
"""Where scripts/setup puts its packages, apart from those of every other test."""


@contextmanager
def collector() -> Iterator[tuple[str, list[tuple[str, bytes]]]]:
    """An address that takes OTLP by HTTP, and the paths and bodies of what came."""
    came: list[tuple[str, bytes]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            came.append((self.path, body))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", came
        finally:
            server.shutdown()
            thread.join()


def test_requests_and_commands_are_spans_by_the_standard_variables(
    redis_server: RedisServer,
) -> None:
    with (
        collector() as (address, came),
        serving(
            redis_server.url,
            "--ring",
            "ring",
            under=[str(OPENTELEMETRY / "bin" / "opentelemetry-instrument")],
            PYTHONPATH=str(OPENTELEMETRY),
            OTEL_SERVICE_NAME="watch-the-rings",
            OTEL_EXPORTER_OTLP_ENDPOINT=address,
            OTEL_EXPORTER_OTLP_PROTOCOL="http/protobuf",
            OTEL_METRICS_EXPORTER="none",
            OTEL_LOGS_EXPORTER="none",
            OTEL_BSP_SCHEDULE_DELAY="100",
            OTEL_PYTHON_FLASK_EXCLUDED_URLS="feed,live,healthz,readyz,metrics",
        ) as running,
    ):
        assert running.ask("/ring?name=ring")[0] == 200
        assert running.ask("/healthz")[0] == 200
        for name in (b"GET /ring", b"EVALSHA", b"watch-the-rings"):
            eventually(
                lambda name=name: any(path == "/v1/traces" and name in body for path, body in came),  # type: ignore[misc]
                f"a span has {name!r}",
            )
        assert not any(b"healthz" in body for _, body in came)
        running.process.terminate()
        assert running.process.wait() == 0
