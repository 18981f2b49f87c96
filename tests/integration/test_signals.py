"""Signals: what a handler may do to a node, and what Ctrl-C leaves behind.

Real processes, and the worst moments: :mod:`tests.interrupted` goes through a call line by line.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from redis import Redis

from hashring.store.embedded_server import RedisServer
from tests.conftest import PATIENCE, eventually
from tests.programs import printed

pytestmark = pytest.mark.one_server

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("runner", "call", "action"),
    [
        *(("thread", call, "stop") for call in ("start", "stop", "hold")),
        *(
            ("thread", call, "raise")
            for call in ("start", "stop", "poll", "select", "hold", "heartbeat")
        ),
        *(("thread", call, "raise-own") for call in ("start", "heartbeat")),
        *(
            pytest.param("thread", call, "raise-own", marks=pytest.mark.long)
            for call in ("poll", "select")
        ),
        ("greenlet", "select", "stop"),
        ("greenlet", "stop", "raise"),
        ("greenlet-patched", "stop", "stop"),
        ("greenlet-patched", "start", "raise"),
        ("thread-patched", "start", "stop"),
        *(
            pytest.param(runner, call, action, marks=pytest.mark.long)
            for runner, call, action in (
                ("thread", "poll", "stop"),
                ("thread", "select", "stop"),
                ("greenlet", "start", "stop"),
                ("greenlet", "stop", "stop"),
                ("greenlet", "start", "raise"),
                ("greenlet-patched", "start", "stop"),
                ("greenlet-patched", "stop", "raise"),
                ("thread-patched", "poll", "stop"),
                ("thread-patched", "start", "raise"),
                ("thread-patched", "poll", "raise"),
            )
        ),
    ],
)
def test_a_call_may_be_interrupted_before_any_line(
    redis_server: RedisServer, runner: str, call: str, action: str
) -> None:
    """The node leaves the ring, nothing goes on running, and it can be started again."""
    times = int(printed("-m", "tests.interrupted", redis_server.url, runner, call, action))
    # Otherwise it interrupted something else than that call.
    assert times > 20


def program(url: str, text: str) -> subprocess.Popen[str]:
    """A program with ``redis`` and ``node``; it prints a line when it is ready for signals."""
    head = f"""
        import signal, sys, threading
        from redis import Redis
        from hashring import RingNode
        redis = Redis.from_url({url!r})
        node = RingNode(redis, "ring", ttl=60, heartbeat_interval=10)
        """
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(head) + textwrap.dedent(text)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ready(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    selectable, _, _ = select.select([process.stdout], [], [], PATIENCE)
    assert selectable, "it does not get ready"
    assert process.stdout.readline() == "ready\n"


def end(process: subprocess.Popen[str], number: int) -> tuple[int, str]:
    process.send_signal(number)
    _, errors = process.communicate(timeout=PATIENCE)
    return process.returncode, errors


def test_ctrl_c_in_poll_takes_the_node_off_the_ring(
    redis_server: RedisServer, client: Redis
) -> None:
    # The program has no thread but the node's: the ring says when it is ready.
    process = program(redis_server.url, "node.poll()")
    eventually(lambda: client.zcard("ring") == 16, "it is on the ring")
    _, errors = end(process, signal.SIGINT)
    assert errors.rstrip().endswith("KeyboardInterrupt"), errors
    assert client.zcard("ring") == 0


@pytest.mark.parametrize("start", ["start", "gevent_start"])
def test_ctrl_c_in_a_loop_takes_the_node_off_the_ring(
    redis_server: RedisServer, client: Redis, start: str
) -> None:
    process = program(
        redis_server.url,
        f"""
        import gevent, time
        sleep = gevent.sleep if {start!r} == "gevent_start" else time.sleep
        node.{start}()
        try:
            print("ready", flush=True)
            while True:
                assert [key for key in ("a", "b") if node.contains(key)] == ["a", "b"]
                sleep(0.001)
        except KeyboardInterrupt:
            pass
        node.stop()
        """,
    )
    ready(process)
    code, errors = end(process, signal.SIGINT)
    assert code == 0, errors
    assert "Traceback" not in errors
    assert client.zcard("ring") == 0


@pytest.mark.parametrize("start", ["start", "gevent_start"])
def test_sigterm_in_a_busy_loop_takes_the_node_off_the_ring(
    redis_server: RedisServer, client: Redis, start: str
) -> None:
    process = program(
        redis_server.url,
        f"""
        going = True
        def handler(number, frame):
            global going
            going = False
            node.stop()
        signal.signal(signal.SIGTERM, handler)
        import gevent
        node.{start}()
        print("ready", flush=True)
        while going:
            node.contains("key")
            if {start!r} == "gevent_start":
                gevent.sleep(0)
        node.stop()
        """,
    )
    ready(process)
    code, errors = end(process, signal.SIGTERM)
    assert (code, errors) == (0, "")
    assert client.zcard("ring") == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_start_waits_for_a_silent_redis_ends_it(
    redis_server: RedisServer, number: int
) -> None:
    process = program(
        redis_server.url,
        """
        def handler(number, frame):
            node.stop()
            sys.exit(3)
        signal.signal(signal.SIGTERM, handler)
        print("ready", flush=True)
        node.start()
        """,
    )
    os.kill(redis_server.pid, signal.SIGSTOP)
    try:
        ready(process)
        eventually(lambda: threads_of(process.pid) > 1, "the node's loop has begun")
        code, errors = end(process, number)
    finally:
        os.kill(redis_server.pid, signal.SIGCONT)
    assert code == 3 or errors.rstrip().endswith("KeyboardInterrupt")


def threads_of(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/task").iterdir()))


def test_a_node_whose_hub_is_in_another_thread_is_stopped_from_this_one(
    redis_server: RedisServer, client: Redis
) -> None:
    process = program(
        redis_server.url,
        """
        import gevent
        started = threading.Event()
        stopped = False
        def run():
            node.gevent_start()
            started.set()
            while not stopped:
                gevent.sleep(0.01)
        thread = threading.Thread(target=run)
        thread.start()
        started.wait()
        node.heartbeat()
        node.update()
        def handler(number, frame):
            global stopped
            node.stop()
            stopped = True
        signal.signal(signal.SIGTERM, handler)
        print("ready", flush=True)
        thread.join()
        """,
    )
    ready(process)
    code, errors = end(process, signal.SIGTERM)
    assert (code, errors) == (0, "")
    assert client.zcard("ring") == 0
