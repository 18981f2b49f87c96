"""Serving the application on waitress.

waitress parses requests strictly and holds unfinished ones in one thread, whatever their number; a
request that is complete gets a thread, so a costly one delays the others by its share of the
processor and no more. A stream keeps its thread as long as it is open; no other thread waits for
the reader of an answer.

This module adds what a service without a proxy in front needs: threads are started as they are
wanted, and health and metrics have their own; a request must be complete in time; when all
connections are taken, the one that has been without a request the longest makes way for a new one;
and what connections hold in memory, requests and answers, has a limit for all of them together.
"""

from __future__ import annotations

import errno
import logging
import re
import resource
import socket
import sys
import threading
import time
from itertools import count
from typing import TYPE_CHECKING, Any, Final

from waitress.channel import HTTPChannel
from waitress.parser import HTTPRequestParser, ParsingError
from waitress.server import TcpWSGIServer
from waitress.task import ThreadedTaskDispatcher, WSGITask
from waitress.utilities import BadRequest

from hashring.core.readable_numbers import counted
from hashring.web.request_checks import MAX_BODY

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIApplication

CONNECTIONS: Final = 4000
"""Connections at once."""
OTHER_FILES: Final = 1200
"""Files that each Redis server needs besides: two for each of 500 rings and groups, and some."""
REQUESTS: Final = 16
"""Requests in work at once, besides streams; further ones wait."""
HELD: Final = 64 << 20
"""Bytes of requests and answers that all connections together hold in memory."""

_HEALTH: Final = ("/healthz", "/readyz")  # with any base path before them
_HEALTH_THREADS: Final = 2
_METRICS: Final = "/metrics"  # of many nodes, which take seconds
_METRICS_THREADS: Final = 2
_ACCEPTED: Final = 100  # connections in a row
_NO_FILES: Final = 1.0  # seconds without accepting, after no file could be opened
_SWITCH: Final = 0.0005  # seconds
_HELD_LOOKS: Final = 0.05  # seconds between two looks at what connections hold
_OVERDUE_LOOKS: Final = 1.0  # seconds between two looks for connections whose time is over

_MAX_HEAD: Final = 1 << 17  # bytes of a request's head: a key of 16 kB, escaped, fits twice
_MAX_LINE: Final = 1 << 13  # bytes of the line before a chunk of a body, or after the last one
_REQUEST_SECONDS: Final = 15.0  # from a request's first byte to its last
_SILENCE: Final = 60.0  # seconds that a connection may be without a request, or behind with reading
_BUFFERED: Final = 1 << 18  # bytes that wait for a slow reader before its stream waits too

# Of what waitress' own patterns take, a first line; but in one pass, also when it is refused.
_FIRST_LINE: Final = re.compile(rb"[^ ]+ [^ ]+(?: HTTP/[0-9]\.[0-9])?")
_PADDING: Final = re.compile(rb"(\n[^:\n]*:)[ \t]+")  # before a field's value

log = logging.getLogger("hashring.web")


class _Parser(HTTPRequestParser):  # type: ignore[misc]
    """Reads one request, and refuses what two readers could read differently (RFC 9112, 6.1)."""

    path = ""  # of a request that cannot be read; the log names it when its sender is gone
    completed = False

    def received(self, data: bytes) -> int:
        used = int(super().received(data))
        if self.chunked and not self.completed:
            # Until its end comes, waitress reads it from its beginning with each packet.
            unended = len(self.body_rcv.control_line) + len(self.body_rcv.trailer)
            if unended > _MAX_LINE:
                self.error = BadRequest("A line of the body is too long")
                self.completed = True
        if self.completed:
            # Nothing more is to come: its sender is answered, and not told to go on.
            self.expect_continue = False
        if not self.completed or self.empty or used == len(data):
            return used
        # One packet could hold hundreds of further requests. Their sender has to ask again.
        self.headers["CONNECTION"] = "close"
        return len(data)

    def parse_header(self, header_plus: bytes) -> None:
        # The patterns of waitress try each way to read a line. Some lines of 100 kB have so many
        # that the process would do nothing else for an hour.
        if not _FIRST_LINE.fullmatch(header_plus.partition(b"\r\n")[0].rstrip()):
            raise ParsingError("Start line is invalid")
        if b"\n " in header_plus or b"\n\t" in header_plus:
            raise ParsingError("A header goes on in a second line")
        try:
            super().parse_header(_PADDING.sub(rb"\1", header_plus))
        except ValueError:
            raise ParsingError("Bad URI or Content-Length") from None
        encoded = self.chunked or "TRANSFER_ENCODING" in self.headers
        if encoded and ("CONTENT_LENGTH" in self.headers or self.version != "1.1"):
            raise ParsingError("Transfer-Encoding with Content-Length, or with HTTP/1.0")


class _Task(WSGITask):  # type: ignore[misc]
    """Answers a request, and notes in its channel whether the answer is a stream."""

    def build_response_header(self) -> bytes:
        if any(
            name.lower() == "content-type" and value.startswith("text/event-stream")
            for name, value in self.response_headers
        ):
            self.channel.begin_stream()
        head = bytes(super().build_response_header())
        if self.request.command == "HEAD":
            # waitress would send the end of a body, though there is none.
            self.chunked_response = False
        return head


class _Channel(HTTPChannel):  # type: ignore[misc]
    """A connection. It has one request at a time.

    Attributes:
        streams: whether the answer in work is a stream.
        in_work: whether a thread answers a request.
        waits_since: when it became without a complete request.
        kept_up_at: when its reader was last seen to have taken all that was answered.
    """

    parser_class = _Parser
    task_class = _Task
    streams = False
    in_work = False

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        self.waits_since = self.kept_up_at = time.monotonic()
        super().__init__(*arguments, **settings)

    def readable(self) -> bool:
        # A stream ends with its connection, and not at its next message. Whoever asked for
        # anything else may have ended their own side, and still gets the answer.
        return bool(super().readable()) and (self.streams or not self.requests)

    def begin_stream(self) -> None:
        """Note that the answer in work is a stream, which takes no other request's thread."""
        self.streams = True
        # The application has read the body, and the stream may last for days.
        self.requests[0].close()
        self.server.task_dispatcher.stream_began()

    def service(self) -> None:
        self.in_work = True
        try:
            super().service()
        finally:
            self.in_work = False
            if self.streams:
                self.streams = False
                self.server.task_dispatcher.stream_ended()
            self.waits_since = time.monotonic()

    def asks_for(self, *ends: str) -> bool:
        """Whether the path of the next request ends so."""
        return str(self.requests[0].path).endswith(ends)

    @property
    def held(self) -> int:
        """Bytes of its requests and answers that are in memory."""
        return self.total_outbufs_len + sum(  # type: ignore[no-any-return]
            request.header_bytes_received + request.body_bytes_received
            for request in self._waiting()
        )

    def drop(self) -> None:
        """Close it, and let go of what it holds, though its request may wait for a thread."""
        for request in self._waiting():
            request.close()
        self.handle_close()

    def _waiting(self) -> list[_Parser]:
        """Its request, unless the application has it: that is soon over, or a stream's."""
        found = [] if self.in_work else [self.request, *self.requests]
        return [request for request in found if request is not None]

    def overdue(self) -> bool:
        """Whether its request should be complete by now, or its answer read. Asked every second."""
        now = time.monotonic()
        if not self.total_outbufs_len:
            self.kept_up_at = now
        elif now - self.kept_up_at > _SILENCE:
            return True
        if self.requests:
            return False
        patience = _SILENCE if self.request is None else _REQUEST_SECONDS
        return now - self.waits_since > patience

    def received(self, data: bytes) -> bool:
        if self.requests:
            # Only a stream is read from meanwhile, to notice its end. No other answer follows it.
            return False
        if self.request is None:
            # The first bytes of a request: its time begins.
            self.waits_since = time.monotonic()
        return bool(super().received(data))

    def _flush_outbufs_below_high_watermark(self) -> None:
        # Waits for the reader. Other threads than a stream's are for all connections: their answers
        # wait in memory, see HELD.
        if self.streams:
            super()._flush_outbufs_below_high_watermark()


class _Threads(ThreadedTaskDispatcher):  # type: ignore[misc]
    """Starts a thread when a request comes and none is free; a stream's ends with the stream.

    Args:
        requests: how many threads there are at most, besides those of streams.
    """

    def __init__(self, requests: int) -> None:
        super().__init__()
        self._most = requests  # and one for each stream

    def add_task(self, task: Any) -> None:
        with self.lock:
            self.queue.append(task)
            self.queue_cv.notify()
            self._start_if_wanted()

    def stream_began(self) -> None:
        """A thread has a stream, so there may be one more."""
        with self.lock:
            self._most += 1
            self._start_if_wanted()

    def stream_ended(self) -> None:
        """There may be a thread less."""
        with self.lock:
            self._most -= 1
            if len(self.threads) - self.stop_count > self._most:
                self.stop_count += 1
                self.queue_cv.notify()

    def _start_if_wanted(self) -> None:
        running = len(self.threads) - self.stop_count
        if len(self.queue) <= running - self.active_count or running >= self._most:
            return
        number = next(each for each in count() if each not in self.threads)
        try:
            self.start_new_thread(self.handler_thread, number)
        except RuntimeError as error:
            # The machine gives no more. With none at all the request would wait for ever.
            log.warning("no further thread can be started: %s", error)
            if not running:
                raise
        else:
            self.threads.add(number)
            self.active_count += 1


class Server(TcpWSGIServer):  # type: ignore[misc]
    """Answers requests from :meth:`start` to :meth:`stop`.

    Args:
        app: what answers.
        host: the address to listen on.
        port: 0 for any free one; then :attr:`port` says which.
        servers: how many Redis servers the application watches.

    Raises:
        OSError: it cannot listen there.
    """

    channel_class = _Channel

    def __init__(self, app: WSGIApplication, host: str, port: int, *, servers: int = 1) -> None:
        # waitress warns when a request finds no free thread, which is how threads start here.
        logging.getLogger("waitress.queue").setLevel(logging.ERROR)
        [(family, kind, protocol, _, address), *_] = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        self._most = connections_possible(servers)
        self._accepts_from = 0.0
        super().__init__(
            app,
            dispatcher=_Threads(REQUESTS),
            sockinfo=(family, kind, protocol, address),
            _start=False,
            ident="hashring",
            threads=1,
            asyncore_use_poll=True,
            # Above what _make_way lets in: waitress would stop to accept.
            connection_limit=2 * CONNECTIONS + OTHER_FILES,
            channel_request_lookahead=1,  # a stream is read from, see _Channel.readable
            max_request_header_size=_MAX_HEAD,
            # Longer ones are cut off; those between are read and refused in words.
            max_request_body_size=4 * MAX_BODY,
            # Nothing goes to temporary files, which would fill a disk: see HELD.
            inbuf_overflow=1 << 30,
            outbuf_overflow=1 << 30,
            outbuf_high_watermark=_BUFFERED,
            clear_untrusted_proxy_headers=False,
        )
        self.accept_connections()
        self._health = _Threads(_HEALTH_THREADS)
        self._metrics = _Threads(_METRICS_THREADS)
        self._held_looked = self._overdue_looked = 0.0
        self._ending = threading.Event()
        self._waking = threading.Lock()
        self._wakes = True
        self._loop = threading.Thread(target=self._answer, name="hashring-serve", daemon=True)

    @property
    def host(self) -> str:
        """The address it listens on."""
        return str(self.effective_host)

    @property
    def port(self) -> int:
        """The port it listens on."""
        return int(self.effective_port)

    def start(self) -> None:
        """Begin to answer, in a thread."""
        # After each call to the system the loop waits for its turn among the threads that compute.
        # With Python's own 5 ms, a request for health would wait for seconds to be accepted.
        self._switch_before = sys.getswitchinterval()
        sys.setswitchinterval(_SWITCH)
        self._loop.start()

    def stop(self, timeout: float) -> None:
        """Accept nothing more, let what is being answered end, and close.

        Args:
            timeout: seconds that open requests have to end.
        """
        if self._ending.is_set():
            return
        self.accepting = False
        deadline = time.monotonic() + timeout
        while self._busy() and time.monotonic() < deadline:
            self.pull_trigger()
            time.sleep(0.01)
        self._ending.set()
        self.pull_trigger()
        self._loop.join()
        with self._waking:
            self._wakes = False
            self.trigger.close()
        for threads in (self.task_dispatcher, self._health, self._metrics):
            threads.shutdown(timeout=max(0.1, deadline - time.monotonic()))
        sys.setswitchinterval(self._switch_before)

    def pull_trigger(self) -> None:
        """Wake the loop, from any thread; when it has ended, do nothing."""
        with self._waking:
            # The pipe is closed then, and its number may be that of a file of somebody else.
            if self._wakes:
                super().pull_trigger()

    def add_task(self, task: _Channel) -> None:
        """Let a thread answer the next request of a connection."""
        if task.asks_for(*_HEALTH):
            self._health.add_task(task)
        elif task.asks_for(_METRICS):
            self._metrics.add_task(task)
        else:
            self.task_dispatcher.add_task(task)

    def _answer(self) -> None:
        while not self._ending.is_set():
            self.asyncore.loop(timeout=1.0, map=self._map, use_poll=True, count=1)
            if time.monotonic() - self._held_looked > _HELD_LOOKS:
                self._let_go()
                self._held_looked = time.monotonic()
            if time.monotonic() - self._overdue_looked > _OVERDUE_LOOKS:
                self._give_up()
                self._overdue_looked = time.monotonic()
        for channel in self._channels():
            channel.handle_close()
        # What wakes the loop is closed when nobody does so any more.
        self.asyncore.dispatcher.close(self)

    def _busy(self) -> bool:
        return any(channel.requests or channel.total_outbufs_len for channel in self._channels())

    def _channels(self) -> list[_Channel]:
        # The loop's thread adds and removes meanwhile.
        while True:
            try:
                return list(self.active_channels.values())
            except RuntimeError:
                continue

    def handle_accept(self) -> None:
        """Accept the connections that wait; another makes way when there are too many."""
        for _ in range(_ACCEPTED):
            before = len(self.active_channels)
            super().handle_accept()
            if len(self.active_channels) == before:
                return
            if before >= self._most:
                self._make_way()

    def accept(self) -> Any:
        """Accept a connection, if a file can be opened for it; else none for some time."""
        try:
            accepted = super().accept()
        except OSError as error:
            if error.errno not in (errno.EMFILE, errno.ENFILE):
                raise
            if not self._accepts_from:
                log.warning(
                    "no connection is accepted while no file can be opened (%s): raise the limit "
                    "of open files (ulimit -n, LimitNOFILE)",
                    error.strerror,
                )
            # Those that wait would be tried again at once, without end.
            self._accepts_from = time.monotonic() + _NO_FILES
            return None
        if accepted is not None:
            self._accepts_from = 0.0
        return accepted

    def readable(self) -> bool:
        """Whether connections are accepted now."""
        return bool(super().readable()) and time.monotonic() >= self._accepts_from

    def _make_way(self) -> None:
        idle = (channel for channel in self.active_channels.values() if not channel.requests)
        oldest = min(idle, key=lambda channel: channel.waits_since, default=None)
        if oldest is not None:
            oldest.handle_close()

    def _let_go(self) -> None:
        """Close connections when all hold too much: first what is still for the longest."""
        holding = [(channel.held, channel) for channel in self._channels()]
        much = sum(held for held, _ in holding) - HELD
        if much <= 0:
            return
        holding.sort(key=lambda each: each[1].last_activity)
        dropped = 0
        for held, channel in holding:
            if much > 0 and held:
                channel.drop()
                much, dropped = much - held, dropped + 1
        log.warning(
            "%s closed: requests and unread answers held more than %d MiB",
            counted(dropped, "connection"),
            HELD >> 20,
        )

    def _give_up(self) -> None:
        """Close the connections whose time is over."""
        for channel in self._channels():
            if channel.overdue():
                channel.will_close = True

    def maintenance(self, now: float) -> None:
        """Do nothing: waitress calls this by the wall clock, which somebody may set back."""


def connections_possible(servers: int = 1) -> int:
    """How many connections the limit of open files allows, after raising it as far as it goes.

    Args:
        servers: how many Redis servers the process watches.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    others = servers * OTHER_FILES
    files = wanted = CONNECTIONS + others
    if hard != resource.RLIM_INFINITY:
        files = min(files, hard)
    if soft != resource.RLIM_INFINITY and soft < files:
        resource.setrlimit(resource.RLIMIT_NOFILE, (files, hard))
    if files == wanted:
        return CONNECTIONS
    possible = max(64, files - others)
    log.warning(
        "at most %d files may be open, so at most %d connections are served at once: raise the "
        "limit to %d",
        files,
        possible,
        wanted,
    )
    return possible
