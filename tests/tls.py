"""A server with TLS, in front of one without."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import trustme


def server_tls() -> tuple[trustme.CA, ssl.SSLContext]:
    """An authority, and what a server of its own speaks TLS with."""
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    return authority, context


@contextmanager
def tls_in_front_of(path: Path, context: ssl.SSLContext) -> Iterator[int]:
    """A port where TLS ends, and what is in it goes on to the unix socket."""
    listener = socket.create_server(("127.0.0.1", 0))
    sockets: list[socket.socket] = [listener]
    threads: list[threading.Thread] = []

    def pump(source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                target.sendall(data)
        for end in (source, target):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def serve() -> None:
        while True:
            try:
                raw, _ = listener.accept()
            except OSError:
                return
            try:
                outside = context.wrap_socket(raw, server_side=True)
            except OSError:
                raw.close()
                continue
            inside = socket.socket(socket.AF_UNIX)
            inside.connect(str(path))
            sockets.extend((outside, inside))
            for pair in ((outside, inside), (inside, outside)):
                threads.append(threading.Thread(target=pump, args=pair))
                threads[-1].start()

    threads.append(threading.Thread(target=serve))
    threads[0].start()
    try:
        yield listener.getsockname()[1]
    finally:
        for each in sockets:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        for thread in threads:
            thread.join()
