"""The server under requests that are costly, unfinished, ambiguous, or too many."""

from __future__ import annotations

import errno
import http.client
import os
import resource
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from types import SimpleNamespace
from typing import Any

import pytest
from redis import Redis
from waitress.adjustments import Adjustments

from hashring.core.hashing import RING_SIZE
from hashring.store.embedded_server import RedisServer
from hashring.web import waitress_server as module
from hashring.web.waitress_server import Server
from tests.conftest import PATIENCE, eventually
from tests.web.conftest import Running, put, serving

pytestmark = pytest.mark.one_server


# --- costly requests ------------------------------------------------------------------------------


@pytest.mark.parametrize("planners", [pytest.param(4, marks=pytest.mark.long), 24])
def test_health_metrics_pages_and_live_updates_answer_while_costly_requests_run(
    client: Redis, running: Running, planners: int
) -> None:
    for number in range(50):
        put(client, f"n{number}", *(number * 7919 + k * RING_SIZE // 16 for k in range(16)))
    names = "".join(f"&join=j{number}" for number in range(100))
    costly = f"/api/plan?ring=ring&placement=balanced&replicas=80{names}"
    answered: list[int] = []
    enough = threading.Event()

    def plan() -> None:
        while not enough.is_set():
            try:
                status, _ = running.ask(costly)
            except TimeoutError:
                continue  # on a busy machine; all the more must others be answered
            answered.append(status)
            if status == 503:
                enough.wait(0.1)

    def between_two_plans(path: str) -> bool:
        before = answered.count(200)
        assert running.ask(path)[0] == 200
        return answered.count(200) == before

    stream = http.client.HTTPConnection("127.0.0.1", running.port, timeout=PATIENCE)
    stream.request("GET", "/ring/feed?name=ring")
    live = stream.getresponse()
    live.readline()
    threads = [threading.Thread(target=plan) for _ in range(planners)]
    for thread in threads:
        thread.start()
    try:
        # A server that does one thing at a time answers a plan first, each time.
        assert sum(between_two_plans("/healthz") for _ in range(20)) >= 5
        assert sum(between_two_plans("/metrics") for _ in range(20)) >= 5
        assert sum(between_two_plans("/ring?name=ring") for _ in range(20)) >= 5
        put(client, f"late-{planners}", planners)
        assert any(f"late-{planners}".encode() in line for line in iter(live.readline, b""))
    finally:
        enough.set()
        for thread in threads:
            thread.join()
        stream.close()
    # Of many that ask at once, those are refused that would keep a thread from the others.
    assert set(answered) == ({200} if planners == 4 else {200, 503})


# --- connections ----------------------------------------------------------------------------------


@contextmanager
def small_server(app: Callable[..., Any]) -> Iterator[Server]:
    server = Server(app, "127.0.0.1", 0)
    server.start()
    try:
        yield server
    finally:
        server.stop(timeout=1.0)


def hello(_: Any, start_response: Any) -> list[bytes]:
    start_response("200 OK", [("Content-Length", "5")])
    return [b"hello"]


def asked(port: int, request: bytes) -> bytes:
    """What a server answers until it closes the connection."""
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as connection:
        answer = b""
        # A server that refuses a request may reset the connection with the rest of it unread.
        with suppress(ConnectionError):
            connection.sendall(request)
            while piece := connection.recv(65_536):
                answer += piece
        return answer


GET = b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"


def test_half_open_requests_make_way_for_whole_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CONNECTIONS", 20)
    # No connection is closed for being slow.
    monkeypatch.setattr(module, "_REQUEST_SECONDS", 3600)
    with small_server(hello) as server, ExitStack() as stack:
        half = []
        for _ in range(60):
            connection = socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE)
            half.append(stack.enter_context(connection))
            connection.sendall(b"GET / HTTP/1.1\r\nHost: local")
            assert asked(server.port, GET).endswith(b"hello")
        # Those that were first made way.
        assert half[0].recv(1) == b""


def test_a_connection_that_answers_does_not_make_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CONNECTIONS", 20)
    told = threading.Event()

    def slow(environ: Any, start_response: Any) -> Iterator[bytes]:
        start_response("200 OK", [])
        yield b"begun"
        if environ["PATH_INFO"] == "/slow":
            told.wait(PATIENCE)
        yield b"ended"

    with small_server(slow) as server, ExitStack() as stack:
        answering = stack.enter_context(socket.create_connection(("127.0.0.1", server.port)))
        answering.settimeout(PATIENCE)
        answering.sendall(b"GET /slow HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        while b"begun" not in answering.recv(65_536):
            pass
        for _ in range(40):
            stack.enter_context(socket.create_connection(("127.0.0.1", server.port)))
        assert b"ended" in asked(server.port, GET)
        told.set()
        assert b"ended" in b"".join(iter(lambda: answering.recv(65_536), b""))


@pytest.mark.parametrize("begun", [b"", b"GET / HTTP/1.1\r\nHost: x", b"\r\n"])
def test_a_request_that_is_not_completed_in_time_is_given_up(
    monkeypatch: pytest.MonkeyPatch, begun: bytes
) -> None:
    monkeypatch.setattr(module, "_REQUEST_SECONDS", 0.1)
    monkeypatch.setattr(module, "_SILENCE", 0.1)
    with small_server(hello) as server:
        assert asked(server.port, begun) == b""


def test_a_request_that_trickles_in_is_given_up_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_REQUEST_SECONDS", 0.1)
    ended = threading.Event()
    with small_server(hello) as server:
        connection = socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE)
        connection.sendall(b"GET / HTTP/1.1\r\n")

        def trickle() -> None:
            while not ended.wait(0.02):
                try:
                    connection.sendall(b"X: y\r\n")
                except OSError:
                    return

        thread = threading.Thread(target=trickle)
        thread.start()
        try:
            assert connection.recv(1) == b""
        except ConnectionResetError:
            pass
        finally:
            ended.set()
            thread.join()
            connection.close()


def test_a_connection_is_given_up_in_time_though_the_wall_clock_is_set_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_REQUEST_SECONDS", 0.1)
    with small_server(hello) as server:
        assert asked(server.port, GET).endswith(b"hello")
        earlier = SimpleNamespace(time=lambda: time.time() - 3600)
        monkeypatch.setattr("waitress.server.time", earlier)
        assert asked(server.port, b"GET / HTTP/1.1\r\nHost: x") == b""


def test_a_stream_s_thread_ends_with_its_connection() -> None:
    ended = threading.Event()

    def endless(environ: Any, start_response: Any) -> Iterator[bytes]:
        start_response("200 OK", [("Content-Type", "text/event-stream; charset=utf-8")])
        try:
            yield b"begun"
            while not environ["waitress.client_disconnected"]():
                ended.wait(0.01)
        finally:
            ended.set()

    with small_server(endless) as server:
        with socket.create_connection(("127.0.0.1", server.port)) as connection:
            connection.sendall(GET)
            assert connection.recv(4)
        eventually(ended.is_set, "the stream ends")


def test_whoever_has_ended_their_own_side_gets_the_answer() -> None:
    half_closed = threading.Event()

    def app(environ: Any, start_response: Any) -> Iterator[bytes]:
        start_response("200 OK", [("Content-Length", "5")])
        yield b"he"
        if environ["PATH_INFO"] == "/slow":
            half_closed.wait(PATIENCE)
        yield b"llo"

    with (
        small_server(app) as server,
        socket.create_connection(("127.0.0.1", server.port), PATIENCE) as connection,
    ):
        connection.sendall(GET.replace(b"/", b"/slow", 1))
        connection.shutdown(socket.SHUT_WR)
        # By the time of this answer the server has looked at all connections.
        assert asked(server.port, GET).endswith(b"hello")
        half_closed.set()
        with connection.makefile("rb") as answer:
            assert answer.read().endswith(b"hello")


def test_stopping_lets_an_answer_end() -> None:
    begun = threading.Event()

    def slow(_: Any, start_response: Any) -> Iterator[bytes]:
        start_response("200 OK", [])
        begun.set()
        yield b"begun "
        yield b"ended"

    with small_server(slow) as server:
        connection = socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE)
        connection.sendall(GET)
        assert begun.wait(PATIENCE)
        server.stop(timeout=PATIENCE)
        answer = b"".join(iter(lambda: connection.recv(65_536), b""))
        connection.close()
    assert answer.endswith(b"0\r\n\r\n")


def test_once_stopped_python_switches_threads_as_before() -> None:
    before = sys.getswitchinterval()
    with small_server(hello):
        assert sys.getswitchinterval() < before
    assert sys.getswitchinterval() == before


class Noticed(threading.Event):
    """All that look see at once that it is set, before the one that set it goes on."""

    def set(self) -> None:
        super().set()
        others = [each for each in threading.enumerate() if each.name == "hashring-serve"]
        for other in others:
            if other is not threading.current_thread():
                other.join()


def test_a_loop_that_ends_as_soon_as_it_may_is_stopped_like_any_other() -> None:
    with small_server(hello) as server:
        server._ending = Noticed()


def test_a_loop_that_an_answer_woke_just_before_it_was_stopped_is_stopped_like_any_other() -> None:
    with small_server(hello) as server:
        pull = server.trigger._physical_pull

        def pull_after_another() -> None:
            pull()
            if server._ending.is_set():
                server._loop.join()
            pull()

        server.trigger._physical_pull = pull_after_another


def test_a_thread_that_wakes_the_loop_when_it_has_ended_writes_to_no_file_of_others() -> None:
    with small_server(hello) as server:
        number = server.trigger.trigger
    with tempfile.TemporaryFile() as file:
        # The number is that of another file by now.
        os.dup2(file.fileno(), number)
        server.pull_trigger()
        os.close(number)
        assert file.seek(0, os.SEEK_END) == 0


# --- what all connections hold together -----------------------------------------------------------


def much(_: Any, start_response: Any) -> list[bytes]:
    # More than the buffers of the sockets take.
    start_response("200 OK", [("Content-Length", str(16 << 20))])
    return [bytes(16 << 20)]


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(b"GET / HTTP/1.1\r\nX: " + b"x" * 100_000, id="heads"),
        pytest.param(
            b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3000000\r\n\r\n" + b"x" * 2_900_000,
            id="bodies",
        ),
        pytest.param(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", id="answers"),
    ],
)
def test_what_connections_hold_has_a_limit_for_all_together(
    monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    monkeypatch.setattr(module, "HELD", 40 << 20 if b"Host" in sent else 1 << 20)
    with small_server(much) as server, ExitStack() as stack:
        files = len(os.listdir("/proc/self/fd"))
        held = []
        for _ in range(30):
            connection = socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE)
            held.append(stack.enter_context(connection))
            with suppress(ConnectionError):
                connection.sendall(sent)
        eventually(
            lambda: (
                0 < len(server._channels()) < 30
                and sum(channel.held for channel in server._channels()) <= module.HELD
            ),
            "some connections have been closed, and not all of them",
        )
        # Two ends of each connection, and nothing on a disk.
        assert len(os.listdir("/proc/self/fd")) - files <= 60


def test_what_comes_while_a_connection_has_a_stream_is_not_kept() -> None:
    going_on = threading.Event()

    def stream(environ: Any, start_response: Any) -> Iterator[bytes]:
        start_response("200 OK", [("Content-Type", "text/event-stream")])
        yield b"begun"
        going_on.wait(PATIENCE)
        yield b"ended"

    body = bytes(3_900_000)
    post = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body)
    get_with_body = post.replace(b"POST", b"GET")
    with (
        small_server(stream) as server,
        socket.create_connection(("127.0.0.1", server.port), PATIENCE) as connection,
    ):
        connection.sendall(get_with_body + body)
        answer = b""
        while b"begun" not in answer:
            answer += connection.recv(65_536)
        [channel] = server._channels()
        assert len(channel.requests[0].body_rcv.getbuf()) == 0
        # All of it is read, because the stream's end is noticed by reading.
        connection.sendall(post + body)
        connection.shutdown(socket.SHUT_WR)
        eventually(lambda: not server._channels(), "all of it has been read")
        assert (channel.request, len(channel.requests)) == (None, 1)
        going_on.set()


# --- threads --------------------------------------------------------------------------------------


def get(path: bytes) -> bytes:
    return GET.replace(b"/", path, 1)


def asking(stack: ExitStack, server: Server, number: int, request: bytes) -> list[socket.socket]:
    """So many connections on which this was asked."""
    connections = []
    for _ in range(number):
        connection = socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE)
        connections.append(stack.enter_context(connection))
        connection.sendall(request)
    return connections


def check_answers(connections: list[socket.socket]) -> None:
    for connection in connections:
        with connection.makefile("rb") as answer:
            assert answer.read().endswith(b"hello")


def test_health_is_answered_while_all_threads_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "REQUESTS", 3)
    free = threading.Event()

    def app(environ: Any, start_response: Any) -> list[bytes]:
        if environ["PATH_INFO"] == "/slow":
            free.wait(PATIENCE)
        return hello(environ, start_response)

    with small_server(app) as server, ExitStack() as stack:
        slow = asking(stack, server, 10, get(b"/slow"))
        eventually(lambda: len(server.task_dispatcher.queue) == 7, "the others wait")
        for path in (b"/healthz", b"/readyz", b"/base/healthz"):
            assert asked(server.port, get(path)).endswith(b"hello")
        assert len(server.task_dispatcher.threads) == 3
        free.set()
        check_answers(slow)


def test_scrapes_of_metrics_take_no_other_request_s_thread() -> None:
    free = threading.Event()

    def app(environ: Any, start_response: Any) -> list[bytes]:
        if environ["PATH_INFO"].endswith("/metrics"):
            free.wait(PATIENCE)
        return hello(environ, start_response)

    with small_server(app) as server, ExitStack() as stack:
        scrapes = asking(stack, server, 10, get(b"/metrics"))
        scrapes += asking(stack, server, 10, get(b"/base/metrics"))
        eventually(lambda: len(server._metrics.queue) == 18, "two are made, and the others wait")
        for path in (b"/", b"/healthz"):
            assert asked(server.port, get(path)).endswith(b"hello")
        free.set()
        check_answers(scrapes)


def test_streams_take_no_other_request_s_thread_and_theirs_end_with_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "REQUESTS", 2)

    def app(environ: Any, start_response: Any) -> Iterator[bytes]:
        stream = environ["PATH_INFO"] == "/stream"
        start_response(
            "200 OK", [("Content-Type", "text/event-stream" if stream else "text/plain")]
        )
        yield b"hello"
        while stream and not environ["waitress.client_disconnected"]():
            time.sleep(0.01)

    with small_server(app) as server:
        with ExitStack() as stack:
            for stream in asking(stack, server, 10, get(b"/stream")):
                assert stream.recv(1)
            assert b"hello" in asked(server.port, GET)
        threads = server.task_dispatcher.threads
        eventually(lambda: len(threads) <= 2, "the threads of the streams have ended")
        assert b"hello" in asked(server.port, GET)


def test_where_no_further_thread_can_be_started_those_that_are_there_answer(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    start = module._Threads.start_new_thread

    def start_one(self: Any, target: Any, number: int) -> None:
        if self.threads:
            raise RuntimeError("can't start new thread")
        start(self, target, number)

    monkeypatch.setattr(module._Threads, "start_new_thread", start_one)
    free = threading.Event()

    def app(environ: Any, start_response: Any) -> list[bytes]:
        free.wait(PATIENCE)
        return hello(environ, start_response)

    with small_server(app) as server, ExitStack() as stack:
        connections = asking(stack, server, 3, GET)
        eventually(lambda: "no further thread" in caplog.text, "the log says so")
        free.set()
        check_answers(connections)


# --- slow readers ---------------------------------------------------------------------------------


PLAIN = GET.replace(b"Connection: close\r\n", b"")


@pytest.mark.parametrize("path", [b"/", b"/healthz"])
@pytest.mark.parametrize("pieces", [1, 16])
def test_connections_that_do_not_read_their_answers_take_no_thread(
    monkeypatch: pytest.MonkeyPatch, path: bytes, pieces: int
) -> None:
    monkeypatch.setattr(module, "REQUESTS", 2)
    asked_for: list[bytes] = []

    def app(environ: Any, start_response: Any) -> Iterator[bytes]:
        asked_for.append(environ["PATH_INFO"])
        # More than the buffers of the sockets take, and more than a stream's reader may leave.
        size = 16 << 20 if environ["QUERY_STRING"] else 5
        start_response("200 OK", [("Content-Length", str(size))])
        for _ in range(pieces):
            yield bytes(size // pieces)
        yield bytes(size % pieces)

    requests = PLAIN.replace(b"/", path + b"?much", 1) * 100
    with small_server(app) as server, ExitStack() as stack:
        asking(stack, server, 3, requests)
        eventually(lambda: len(asked_for) >= 3, "all three are in work")
        assert asked(server.port, get(path)).endswith(bytes(5))


def test_a_packet_yields_one_request_and_its_sender_is_told_that_no_other_is_answered() -> None:
    with small_server(hello) as server:
        answer = asked(server.port, PLAIN * 100)
    assert answer.count(b"HTTP/1.1 200 OK") == 1
    assert b"\r\nConnection: close\r\n" in answer


def test_requests_that_come_one_after_another_share_a_connection() -> None:
    with (
        small_server(hello) as server,
        socket.create_connection(("127.0.0.1", server.port), PATIENCE) as connection,
        connection.makefile("rb") as answers,
    ):
        # An empty line before a request is nothing.
        for request in (PLAIN, b"\r\n\r\n" + PLAIN, b"\r\n" + GET):
            connection.sendall(request)
            head = b"".join(iter(answers.readline, b"\r\n"))
            assert head.startswith(b"HTTP/1.1 200 OK")
            assert answers.read(5) == b"hello"


def endless(environ: Any, start_response: Any) -> Iterator[bytes]:
    start_response("200 OK", [("Content-Type", "text/event-stream")])
    while not environ["waitress.client_disconnected"]():
        yield bytes(1 << 16)


def test_a_reader_that_never_catches_up_with_its_stream_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_SILENCE", 1.0)
    with (
        small_server(endless) as server,
        socket.create_connection(("127.0.0.1", server.port), PATIENCE) as connection,
    ):
        connection.sendall(GET)
        # It always reads, and there is always more.
        with suppress(ConnectionError):
            deadline = time.monotonic() + PATIENCE
            while connection.recv(1 << 16):
                assert time.monotonic() < deadline


def test_a_reader_that_has_caught_up_has_its_time_again(monkeypatch: pytest.MonkeyPatch) -> None:
    channel = object.__new__(module._Channel)
    channel.requests, channel.kept_up_at = [object()], 0.0
    found = []
    for now, unread in [(59.0, 1), (60.0, 0), (70.0, 1), (120.0, 1), (121.0, 1)]:
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda now=now: now))
        channel.total_outbufs_len = unread
        found.append(channel.overdue())
    assert found == [False, False, False, False, True]


# --- what two readers could read differently ------------------------------------------------------


@pytest.mark.parametrize(
    "head",
    [
        b"Content-Length: 1_0\r\n",
        b"Content-Length: +1\r\n",
        b"Content-Length: 1\r\nContent-Length: 2\r\n",
        b"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n",
        b"Transfer-Encoding: chunked\r\nContent-Length: 1\r\n",
        b"Transfer-Encoding : chunked\r\n",
        b"Transfer-Encoding: \x0bchunked\r\n",
        b"Transfer-Encoding: gzip, chunked\r\n",
        b"A\nB: c\r\n",
        b"no colon\r\n",
        b"X: " + b"x" * 200_000 + b"\r\n",
    ],
)
def test_an_ambiguous_request_is_refused_and_writes_no_traceback(
    capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture, head: bytes
) -> None:
    request = b"POST / HTTP/1.1\r\nHost: localhost\r\n" + head + b"\r\n0\r\n\r\n" + GET
    with small_server(hello) as server:
        answer = asked(server.port, request)
    if answer:
        assert int(answer.split(b" ", 2)[1]) in (400, 431, 501)
    # The connection ends: what follows belongs to nobody knows which request.
    assert answer.count(b"\r\nDate: ") <= 1
    assert "Traceback" not in caplog.text + "".join(capfd.readouterr())


@pytest.mark.parametrize(
    ("first", "head"),
    [
        pytest.param(b"GET http://[/ HTTP/1.1", b"", id="address"),
        pytest.param(b"GET / HTTP/1.1", b"Content-Length: " + b"9" * 5000 + b"\r\n", id="number"),
        pytest.param(b"GET / HTTP/1.1", b"X: y\r\n z\r\n", id="folded"),
    ],
)
def test_a_head_that_cannot_be_read_is_refused_in_words(
    caplog: pytest.LogCaptureFixture, first: bytes, head: bytes
) -> None:
    request = first + b"\r\nHost: localhost\r\nConnection: close\r\n" + head + b"\r\n"
    with small_server(hello) as server:
        assert asked(server.port, request).split(b" ", 2)[1] == b"400"
    assert "uncaptured" not in caplog.text


@pytest.mark.parametrize(
    ("head", "status"), [(b"", b"200"), (b"Content-Length: +1\r\n", b"400")], ids=["get", "wrong"]
)
def test_a_request_of_which_nothing_is_to_come_is_answered_though_its_sender_would_wait(
    head: bytes, status: bytes
) -> None:
    request = GET.replace(b"\r\n\r\n", b"\r\nExpect: 100-continue\r\n" + head + b"\r\n")
    with small_server(hello) as server:
        assert asked(server.port, request).split(b" ", 2)[1] == status


@pytest.mark.parametrize("begun", [b"1;", b"0\r\n"], ids=["chunk", "trailer"])
def test_a_line_of_a_body_that_does_not_end_is_refused(begun: bytes) -> None:
    head = GET.replace(b"GET", b"POST")[:-2] + b"Transfer-Encoding: chunked\r\n\r\n"
    with small_server(hello) as server:
        answer = asked(server.port, head + begun + b"x" * 20_000)
    assert answer.split(b" ", 2)[1] == b"400"


def test_no_line_of_a_head_keeps_the_service_from_others(module_redis: RedisServer) -> None:
    """Each can be read in many ways, and a pattern that tries all of them takes an hour."""
    rest = b" HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
    with serving(module_redis.url) as own:
        for head, status in (
            (b"GET a://" + b"1" * 100_000 + b" x" + rest, b"400"),
            (b"GET /healthz" + rest + b"X:" + b" " * 100_000 + b"y\r\n", b"200"),
            (b"GET /healthz" + rest + b"X:\r\n" + b" " * 100_000 + b"y\r\n", b"400"),
        ):
            assert asked(own.port, head + b"\r\n").split(b" ", 2)[1] == status


def test_a_request_that_cannot_be_read_has_what_the_log_names_it_by() -> None:
    # Its sender may be gone before it is answered; waitress logs that with the request's path.
    request = Server.channel_class.parser_class(Adjustments())
    request.received(b"GET\r\n\r\n")
    assert request.error is not None
    assert request.path == ""


def test_many_headers_are_no_error(running: Running) -> None:
    assert running.ask("/healthz", **{f"X-{n}": "y" for n in range(500)})[0] == 200


@pytest.mark.parametrize("path", [b"/", b"/healthz", b"/api/rings"])
def test_a_request_without_a_host_is_refused(running: Running, path: bytes) -> None:
    answer = asked(running.port, b"GET " + path + b" HTTP/1.1\r\nConnection: close\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"no Host header" in answer


def test_http_1_0_knows_no_host(running: Running) -> None:
    assert asked(running.port, b"GET /healthz HTTP/1.0\r\n\r\n").split(b" ", 2)[1] == b"200"


def test_the_head_of_a_stream_has_no_body(client: Redis, running: Running) -> None:
    put(client, "a", 0, ring="heads")
    assert running.ask("/ring?name=heads")[0] == 200
    answer = asked(running.port, get(b"/ring/feed?name=heads").replace(b"GET", b"HEAD"))
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"text/event-stream" in head
    assert body == b""


@pytest.mark.parametrize("host", ["localhost:80@evil.example", "localhost, evil.example"])
def test_a_host_that_is_none_is_refused(running: Running, host: str) -> None:
    assert running.ask("/healthz", Host=host)[0] == 421


# --- files ----------------------------------------------------------------------------------------


def limits(monkeypatch: pytest.MonkeyPatch, soft: int, hard: int) -> list[tuple[int, int]]:
    raised: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, hard))
    monkeypatch.setattr(resource, "setrlimit", lambda _, both: raised.append(both))
    return raised


def test_the_limit_of_open_files_is_raised_as_far_as_is_needed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    raised = limits(monkeypatch, 1024, 1 << 20)
    assert module.connections_possible() == module.CONNECTIONS
    assert raised == [(module.CONNECTIONS + module.OTHER_FILES, 1 << 20)]


def test_where_it_cannot_be_raised_fewer_connections_are_served(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assert limits(monkeypatch, 1024, 2048) == []
    assert module.connections_possible() == 2048 - module.OTHER_FILES
    assert f"raise the limit to {module.CONNECTIONS + module.OTHER_FILES}" in caplog.text


def test_each_redis_server_has_its_share_of_the_files(monkeypatch: pytest.MonkeyPatch) -> None:
    raised = limits(monkeypatch, 1024, 1 << 20)
    assert module.connections_possible(servers=3) == module.CONNECTIONS
    assert raised == [(module.CONNECTIONS + 3 * module.OTHER_FILES, 1 << 20)]
    limits(monkeypatch, 8192, 8192)
    assert module.connections_possible(servers=6) == 8192 - 6 * module.OTHER_FILES


def test_while_no_file_is_left_nothing_is_accepted_and_then_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    accept, full = module.TcpWSGIServer.accept, threading.Event()
    refused: list[bool] = []

    def limited(server: Server) -> Any:
        if full.is_set():
            refused.append(True)
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return accept(server)

    monkeypatch.setattr(module, "_NO_FILES", 3600.0)
    with (
        small_server(hello) as server,
        socket.create_connection(("127.0.0.1", server.port), PATIENCE) as connection,
        connection.makefile("rb") as answers,
        ExitStack() as stack,
    ):
        monkeypatch.setattr(module.TcpWSGIServer, "accept", limited)
        eventually(server._channels, "it is accepted")
        full.set()
        late = asking(stack, server, 1, GET)
        eventually(lambda: refused, "it cannot be accepted")
        for _ in range(3):
            # The loop turns for each of them.
            connection.sendall(PLAIN)
            assert b"".join(iter(answers.readline, b"\r\n")).startswith(b"HTTP/1.1 200 OK")
            assert answers.read(5) == b"hello"
        assert refused == [True]
        [warning] = [each for each in caplog.records if each.name == "hashring.web"]
        assert "no connection is accepted" in warning.message
        assert "LimitNOFILE" in warning.message
        full.clear()
        server._accepts_from = 0.0
        check_answers(late)
    assert "Traceback" not in caplog.text
