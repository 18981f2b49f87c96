"""Whole programs with a member of a partition group: alone in their process, and at their end."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from redis import Redis

from hashring.store.embedded_server import RedisServer
from hashring.store.group.key_names import group_keys
from tests.conftest import LONG, PATIENCE, ROOT
from tests.programs import printed

# How a program ends is a matter of its threads, greenlets and tasks, whatever server it asks.
pytestmark = pytest.mark.one_server

HEAD = """
import sys, time
from hashring import PartitionGroup
from redis import Redis

group = PartitionGroup(Redis.from_url(sys.argv[1]), "orders", 4, rebalance_delay=0)
"""

ASYNC_HEAD = """
import asyncio, sys
from hashring import AsyncPartitionGroup
from redis.asyncio import Redis

group = AsyncPartitionGroup(Redis.from_url(sys.argv[1]), "orders", 4, rebalance_delay=0)
"""

PATCHED = "from gevent import monkey\nmonkey.patch_all()\n"

WAITS = """
group.start()
while len(group.held) < 4:
    time.sleep(0.01)
print("held", flush=True)
"""

# gevent must not find that there is nothing to wait for: no other greenlet runs.
GEVENT = """
group.gevent_start()
import gevent
while len(group.held) < 4:
    gevent.sleep(0.01)
print("held", flush=True)
"""

ASYNC = """
async def main():
    await group.start()
    while len(group.held) < 4:
        await asyncio.sleep(0.01)
    print("held", flush=True)
    {end}

asyncio.run(main())
"""

PROGRAMS = {
    "thread": HEAD + WAITS + "group.stop()",
    "greenlet": HEAD + GEVENT + "group.stop()",
    "greenlet-patched": PATCHED + HEAD + GEVENT + "group.stop()",
    "thread-patched": PATCHED + HEAD + WAITS + "group.stop()",
    "asyncio": ASYNC_HEAD + ASYNC.format(end="await group.stop()"),
    "thread, never stopped": HEAD + WAITS,
    "thread-patched, never stopped": PATCHED + HEAD + WAITS,
    "asyncio, never stopped": ASYNC_HEAD + ASYNC.format(end=""),
}


@contextmanager
def running(program: str, server: RedisServer) -> Iterator[subprocess.Popen[str]]:
    """The program, which is killed at the end, and when it does not come to an end: its reader then
    finds the end of its output."""
    with subprocess.Popen(
        [sys.executable, "-c", program, server.url],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    ) as process:
        end = threading.Timer(2 * PATIENCE, process.kill)
        end.start()
        try:
            yield process
        finally:
            end.cancel()
            process.kill()


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_ends_by_itself_and_says_nothing_wrong(
    redis_server: RedisServer, name: str
) -> None:
    with running(PROGRAMS[name], redis_server) as process:
        assert process.communicate(timeout=PATIENCE) == ("held\n", "")


# gevent never frees what it has left suspended in a thread that is over.
STARTS_AGAIN = """
import gc
import gevent

def hubs():
    gc.collect()
    return sum(isinstance(each, gevent.hub.Hub) for each in gc.get_objects())

for _ in range(3):
    group.start()
    group.stop()
# The program's own, and one of an error that the last stay still has.
while hubs() > 2:
    time.sleep(0.01)
print("all freed")
"""


def test_a_member_of_a_patched_program_leaves_no_hub_behind(redis_server: RedisServer) -> None:
    with running(PATCHED + HEAD + STARTS_AGAIN, redis_server) as process:
        assert process.communicate(timeout=PATIENCE) == ("all freed\n", "")


# The signal may come while the program itself still prints: print() is not for handlers.
STOPS_ON_SIGTERM = """
import os, signal
signal.signal(signal.SIGTERM, lambda *_: (group.stop(), os.write(1, b"left\\n"), sys.exit()))
"""

# The loop is nearly always inside a call that the renewer shares a lock with.
BUSY = """
while True:
    group.release(0)
    group.lag(0, 1.0)
"""


@pytest.mark.parametrize("head", [HEAD, PATCHED + HEAD], ids=["thread", "thread-patched"])
def test_stop_in_a_signal_handler_leaves_whatever_it_interrupts(
    redis_server: RedisServer, head: str
) -> None:
    with running(head + STOPS_ON_SIGTERM + WAITS + BUSY, redis_server) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        process.send_signal(signal.SIGTERM)
        out, error = process.communicate(timeout=PATIENCE)
    assert (out, error, process.returncode) == ("left\n", "", 0)


# Before the first line that start() runs in this thread, then before the second, and so on.
INTERRUPTS = """
import hashring, linecache, os, threading

PACKAGE = os.path.dirname(hashring.__file__)

class Interrupt(KeyboardInterrupt):
    pass

def interrupter(left):
    def trace(frame, event, argument):
        nonlocal left
        path = frame.f_code.co_filename
        if not path.startswith(PACKAGE) or path.startswith(PACKAGE + "/core"):
            return None
        # Python looks for no signal between `try:` and what it guards, nor at the end of `with`.
        text = linecache.getline(path, frame.f_lineno).strip()
        if event == "line" and not text.startswith(("try:", "with ")):
            left -= 1
            if left == 0:
                sys.settrace(None)
                act()
        return trace
    return trace

times = 0
while True:
    group = PartitionGroup(
        Redis.from_url(sys.argv[1]), f"orders-{times}", 4, rebalance_delay=0, max_handoff_time=0
    )
    acted = False
    sys.settrace(interrupter(times + 1))
    try:
        group.start()
    except (Interrupt, hashring.NodeStateError) as error:
        assert type(error).__name__ == ended_by
    finally:
        sys.settrace(None)
    # An object that was stopped may be started again, and can be stopped.
    group.stop()
    group.start()
    group.stop()
    if not acted:
        break
    times += step
while left := [t.name for t in threading.enumerate() if t.name.startswith("hashring")]:
    time.sleep(0.01)
print(times > 50)
"""
# Every fifth line; see tests/interruptions.py.
RAISES = f"""
step = {1 if LONG else 5}
ended_by = "Interrupt"

def act():
    global acted
    acted = True
    raise Interrupt
"""
STOPS = f"""
step = {4 if LONG else 6}
ended_by = "NodeStateError"

def act():
    global acted
    acted = True
    group.stop()
"""


@pytest.mark.parametrize("act", [RAISES, STOPS], ids=["raise", "stop"])
def test_a_start_may_be_interrupted_at_any_line(redis_server: RedisServer, act: str) -> None:
    with running(HEAD + act + INTERRUPTS, redis_server) as process:
        assert process.communicate(timeout=2 * PATIENCE) == ("True\n", "")


@pytest.mark.parametrize(
    ("runner", "call", "action"),
    [
        ("thread", "stop", "raise"),
        pytest.param("thread", "changes", "raise", marks=pytest.mark.long),
        ("thread", "release", "raise"),
        ("thread", "status", "stop"),
        pytest.param("greenlet", "start", "raise", marks=pytest.mark.long),
        ("greenlet", "stop", "raise"),
    ],
)
def test_a_call_may_be_interrupted_before_any_line(
    redis_server: RedisServer, runner: str, call: str, action: str
) -> None:
    """The member leaves, nothing goes on running, and it can be started again."""
    times = int(printed("-m", "tests.interrupted_member", redis_server.url, runner, call, action))
    # Otherwise it interrupted something else than that call.
    assert times > 20


# Its heartbeat is short: it finds with its next renewal that nobody is left.
ENDS_ITS_THREAD = """
import threading
import gevent

group = PartitionGroup(
    Redis.from_url(sys.argv[1]), "orders", 4, ttl=3, rebalance_delay=0, on_assigned=lambda *_: None
)

def work():
    group.gevent_start()
    while len(group.held) < 4:
        gevent.sleep(0.01)
    {end}

thread = threading.Thread(target=work)
thread.start()
thread.join()
while group.running:
    time.sleep(0.01)
print("left", group.held)
group.stop()
"""


@pytest.mark.parametrize(
    "end", ["pass", "gevent.get_hub().destroy(destroy_loop=True)"], ids=["ended", "destroyed"]
)
def test_a_member_leaves_when_the_thread_of_its_greenlets_is_over(
    redis_server: RedisServer, end: str
) -> None:
    """Nobody is left who could work, and be told to end."""
    with running(HEAD + ENDS_ITS_THREAD.format(end=end) + WAITS, redis_server) as process:
        assert process.communicate(timeout=2 * PATIENCE) == ("left {}\nheld\n", "")


# The child goes on as if it were the parent: it has nothing to be told of.
FORKS = """
import os

def begin(partition, token):
    if partition == 0:
        children.append(os.fork())

children = []
group._callbacks = type(group._callbacks)(on_assigned=begin)
"""


def test_a_child_that_a_callback_has_forked_ends_with_the_callback(
    redis_server: RedisServer,
) -> None:
    ends = """
while not children:
    time.sleep(0.01)
os.waitpid(children[0], 0)
print(len(group.held))
group.stop()
"""
    with running(HEAD + FORKS + WAITS + ends, redis_server) as process:
        assert process.communicate(timeout=PATIENCE) == ("held\n4\n", "")


@pytest.mark.parametrize("end", ["await stop()", "async with other: await stop()"])
def test_ctrl_c_in_an_event_loop_takes_its_members_along(
    redis_server: RedisServer, end: str
) -> None:
    """Before Python 3.11 it cancels all tasks at once, also those that members run in."""
    # No wait here is for ever: Python notices a signal that comes just before an event loop waits
    # only when the wait ends.
    program = """
other = AsyncPartitionGroup(Redis.from_url(sys.argv[1]), "other", 4)

async def stop():
    print("inside", flush=True)
    while True:
        await asyncio.sleep(0.1)
"""
    with running(ASYNC_HEAD + program + ASYNC.format(end=end), redis_server) as process:
        assert process.stdout is not None
        assert [process.stdout.readline() for _ in range(2)] == ["held\n", "inside\n"]
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=PATIENCE)
    assert error.rstrip().endswith("KeyboardInterrupt")
    assert "hashring" not in error
    with Redis(unix_socket_path=str(redis_server.socket)) as client:
        for group in ("orders", "other"):
            assert client.zcard(group_keys(group).leases) == 0


# A lock of gevent's for which a thread waits in vain: here for as long as nothing ends the wait.
ENDED_FROM_ANOTHER_THREAD = """
from hashring.errors import RedisUnavailable
from hashring.running.native_threads import native_latch, start_native_thread
from hashring.store.redis_store import RedisStore

ready, made = native_latch(), []

def listen():
    subscription = RedisStore(Redis.from_url(sys.argv[1]), 60.0).subscribe(b"orders")
    subscription.wait(60.0)
    with subscription._pubsub._lock:
        made.append(subscription)
        ready.set()
        try:
            print("heard", subscription.wait(30.0))
        except RedisUnavailable:
            print("ended")
    subscription.close()

listener = start_native_thread(listen, "listener")
ready.wait()
made[0].end()
listener.wait()
"""


def test_who_ends_the_subscription_of_another_thread_waits_for_no_lock_of_gevents(
    redis_server: RedisServer,
) -> None:
    with running(PATCHED + HEAD + ENDED_FROM_ANOTHER_THREAD, redis_server) as process:
        assert process.communicate(timeout=PATIENCE)[0].splitlines() == ["ended"]


# No loop: nothing is ever told to the event loop. Python complains of the task at the end.
CLOSES = """
import os

async def main():
    await group.start()
    {loop}
    while len(group.held) < 4:
        await asyncio.sleep(0.01)

loop = asyncio.new_event_loop()
loop.run_until_complete(main())
loop.close()
while group.running:
    time.sleep(0.01)
print(group.held, flush=True)
os._exit(0)
"""


@pytest.mark.parametrize("loop", ["", "changes = asyncio.ensure_future(anext(group.changes()))"])
def test_a_member_leaves_when_its_event_loop_is_closed_with_its_tasks_still_there(
    redis_server: RedisServer, loop: str
) -> None:
    program = "import time\n" + ASYNC_HEAD.replace("delay=0", "delay=0, heartbeat_interval=0.2")
    with running(program + CLOSES.format(loop=loop), redis_server) as process:
        out, error = process.communicate(timeout=PATIENCE)
    assert out == "{}\n", error
    assert "thread" not in error
    with Redis(unix_socket_path=str(redis_server.socket)) as client:
        assert client.zcard(group_keys("orders").leases) == 0
