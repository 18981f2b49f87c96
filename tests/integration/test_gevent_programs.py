"""Whole programs in which gevent has patched some of what threads use, and threads ask a node."""

from __future__ import annotations

import subprocess

import pytest

from hashring.store.embedded_server import RedisServer
from tests.programs import python

# Threads and greenlets of one program meet in it, whatever server it asks.
pytestmark = pytest.mark.one_server

TIMEOUTS = """
from gevent import monkey
{patch}
import gevent, sys
from hashring import RingNode
from redis import Redis

class SoftLimit(Exception):
    pass

node = RingNode(Redis.from_url(sys.argv[1]), "accounts", lock=True, ttl=600, heartbeat_interval=60)
node.gevent_start()

def hold(key):
    with node.hold(key):
        pass

for kind in (gevent.GreenletExit, gevent.Timeout, SoftLimit):
    error, name = kind(), kind.__name__
    for turns in range(40):
        killed = "%s %d" % (name, turns)
        user = gevent.spawn(hold, killed)
        for _ in range(turns):
            gevent.sleep(0)
        user.kill(error)
        # It has ended with that, unless it was over before.
        assert user.exception in (None, error), user.exception
        assert user.successful() or user.exception is error
        # Nothing need have been found out yet about the one that was killed.
        hold("another " + killed)
        assert node.select(["one more " + killed]), killed
        hold(killed)
    assert node.status.failures == 0, (name, node.status)
node.stop()
print("done")
"""


def ran(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A program that has ended."""
    return python("-c", program, *arguments)


@pytest.mark.parametrize("patch", ["", "monkey.patch_all()"], ids=["plain", "patched"])
def test_a_hold_that_is_given_up_at_any_moment_refuses_nobody_else(
    redis_server: RedisServer, patch: str
) -> None:
    """What holds is killed, out of time, or gets an error of the application's own."""
    done = ran(TIMEOUTS.format(patch=patch), redis_server.url)
    assert done.stdout == "done\n", done.stderr


PROGRAM = """
from gevent import monkey
monkey.patch_all(**{patched})
import gevent, sys
from hashring import RingNode
from redis import Redis

pool = gevent.get_hub().threadpool
for start in ("start", "gevent_start"):
    node = RingNode(
        Redis.from_url(sys.argv[1]), "accounts", lock=True, ttl=120, heartbeat_interval=50
    )
    getattr(node, start)()
    for number in range(10):
        # In turns: a connection that one has used is free for the other.
        assert node.contains("a%d" % number)
        assert pool.apply(node.contains, ("b%d" % number,))
        node.heartbeat()
    assert pool.apply(node.owner, ("a",)) == node.name
    assert node.status.failures == 0, (start, node.status)
    node.stop()
    print(start)
"""


@pytest.mark.parametrize(
    "patched",
    [
        {},
        {"thread": False},
        {"thread": False, "queue": False},
        {"socket": False},
        pytest.param({"queue": False}, marks=pytest.mark.long),
        pytest.param({"socket": False, "queue": False}, marks=pytest.mark.long),
    ],
    ids=lambda patched: " and ".join(f"no {each}" for each in patched) or "all",
)
def test_threads_and_greenlets_ask_one_node(
    redis_server: RedisServer, patched: dict[str, bool]
) -> None:
    done = ran(PROGRAM.format(patched=patched), redis_server.url)
    assert (done.stdout, done.stderr) == ("start\ngevent_start\n", "")


AT_ONCE = """
from gevent import monkey
monkey.patch_all(**{patched})
import gevent, sys
from hashring import RingNode
from hashring.fencing import Fence
from redis import Redis

sys.setswitchinterval(1e-5)
keys = ["k%d" % number for number in range(50)]
pool = gevent.get_hub().threadpool

def ask():
    for turn in range(40):
        for key in keys:
            assert node.contains(key)
            assert node.select([key]) == [key]

def admit():
    for turn in range(2000):
        fence.admit("k", 1)

def beat():
    for turn in range(50):
        node.heartbeat()

for start in ("start", "gevent_start"):
    node = RingNode(
        Redis.from_url(sys.argv[1]), "accounts", lock=True, ttl=120, heartbeat_interval=50
    )
    getattr(node, start)()
    assert node.select(keys) == keys
    fence = Fence()
    others = [pool.spawn(each) for each in (ask, ask, ask, admit, admit, beat, beat)]
    for turn in range(40):
        assert node.select(keys) == keys
        gevent.sleep(0)
    for other in others:
        other.get()
    assert node.status.failures == 0, (start, node.status)
    pool.apply(node.stop)
    print(start)
"""


@pytest.mark.parametrize("patched", [{}, {"queue": False}, {"socket": False}], ids=str)
def test_threads_and_greenlets_ask_one_node_at_once(
    redis_server: RedisServer, patched: dict[str, bool]
) -> None:
    done = ran(AT_ONCE.format(patched=patched), redis_server.url)
    assert (done.stdout, done.stderr) == ("start\ngevent_start\n", "")


MANY_ASK = """
from gevent import monkey
monkey.patch_all(**{patched})
import gevent, sys
from hashring import RingNode
from redis import Redis

sys.setswitchinterval(1e-5)
node = RingNode(Redis.from_url(sys.argv[1]), "accounts", lock=True, ttl=120, heartbeat_interval=50)
node.gevent_start()

def ask(user):
    for number in range(300):
        assert node.contains("%d-%d" % (user, number))

gevent.joinall([gevent.spawn(ask, user) for user in range(8)], raise_error=True)
assert node.status.held == 2400
assert node.status.failures == 0, node.status
node.stop()
print("done")
"""


@pytest.mark.parametrize("patched", [{}, {"socket": False}, {"thread": False}], ids=str)
def test_many_greenlets_take_locks_at_once(
    redis_server: RedisServer, patched: dict[str, bool]
) -> None:
    done = ran(MANY_ASK.format(patched=patched), redis_server.url)
    assert (done.stdout, done.stderr) == ("done\n", "")


LOGGING = """
from gevent import monkey
monkey.patch_all()
import gevent, logging, os, sys
from hashring.running.loop_log import LoopLog
from hashring.running.native_threads import start_native_thread

class Written(logging.Handler):
    def emit(self, record):
        text = self.format(record)
        os.write(null, b"x")
        if "thread" in text:
            assert "ValueError" in text, text
            written.append(text)

sys.setswitchinterval(1e-5)
written, ended = [], []
null = os.open(os.devnull, os.O_WRONLY)
logging.getLogger().addHandler(Written())
log = LoopLog("hashring")

def inner():
    for number in range(1000):
        try:
            raise ValueError
        except ValueError:
            log.exception("of a thread")

def outer():
    # As a loop of a member's starts its listener.
    ended.append(start_native_thread(inner, "inner"))
    inner()

ended.append(start_native_thread(outer, "outer"))
while len(written) < 2000:
    logging.warning("of a greenlet")
    gevent.sleep(0)
assert len(ended) == 2 and all(each.wait(30) for each in ended)
print("done")
"""


def test_native_threads_and_greenlets_log_at_once() -> None:
    """A member's loop, which goes on whatever the application does, waits for no log handler."""
    done = ran(LOGGING)
    assert (done.stdout, done.stderr) == ("done\n", "")


LOG_HOMES = """
from gevent import monkey
monkey.patch_all()
import gevent
from hashring.running.loop_log import log_home
from hashring.running.native_threads import start_native_thread

homes, inner = [], []

def note():
    homes.append(log_home())

def outer():
    note()
    inner.append(start_native_thread(note, "inner"))

assert start_native_thread(outer, "outer").wait(30) and inner[0].wait(30)
print([home is gevent.get_hub() for home in homes])
"""


def test_native_threads_log_in_a_hub_that_did_not_run_yet() -> None:
    """Such a hub is false. The threads' own, which end with them, would lose the records."""
    done = ran(LOG_HOMES)
    assert (done.stdout, done.stderr) == ("[True, True]\n", "")


BY_HAND = """
from gevent import monkey
monkey.patch_all(**{patched})
import gevent, sys
from hashring import RingNode
from redis import Redis

sys.setswitchinterval(1e-5)
node = RingNode(Redis.from_url(sys.argv[1]), "accounts", ttl=600, heartbeat_interval=60)
drive, inside, most = node._single_calls.run_now, [], 0

def run_now(node, step):
    global most
    inside.append(step)
    most = max(most, len(inside))
    drive(node, step)
    inside.remove(step)

node._single_calls.run_now = run_now
pool = gevent.get_hub().threadpool
others = [pool.spawn(each) for _ in range(15) for each in (node.heartbeat, node.update)]
greenlets = [gevent.spawn(each) for _ in range(15) for each in (node.heartbeat, node.update)]
greenlets[3].kill(block=False)
for other in others:
    other.get()
gevent.joinall(greenlets, raise_error=True)
assert most == 1, most
pool.apply(node.stop)
print("done")
"""


@pytest.mark.parametrize(
    "patched",
    [{}, {"socket": False}, {"thread": False}, {"queue": False}],
    ids=lambda patched: " and ".join(f"no {each}" for each in patched) or "all",
)
def test_calls_by_hand_of_threads_and_greenlets_are_made_one_at_a_time(
    redis_server: RedisServer, patched: dict[str, bool]
) -> None:
    done = ran(BY_HAND.format(patched=patched), redis_server.url)
    assert (done.stdout, done.stderr) == ("done\n", "")


WHILE_ONE_WAITS = """
from gevent import monkey
monkey.patch_all()
import gevent, os, signal, sys
from hashring import RingNode
from redis import Redis

redis = Redis.from_url(sys.argv[1])
node = RingNode(redis, "accounts", ttl=600, heartbeat_interval=60)
node.heartbeat()
server = int(sys.argv[2])
pool = gevent.get_hub().threadpool
os.kill(server, signal.SIGSTOP)
try:
    first = pool.spawn(node.heartbeat)
    while not node._calls._calling:
        gevent.sleep(0.001)
    second = gevent.spawn(node.heartbeat)
    killed = gevent.spawn(node.heartbeat)
    # The hub turns.
    for _ in range(20):
        gevent.sleep(0.001)
    assert not second.dead and not first.ready()
    killed.kill()
finally:
    os.kill(server, signal.SIGCONT)
first.get()
second.get()
node.stop()
print("done")
"""


def test_the_hub_turns_while_a_call_by_hand_waits_for_another(redis_server: RedisServer) -> None:
    done = ran(WHILE_ONE_WAITS, redis_server.url, str(redis_server.pid))
    assert (done.stdout, done.stderr) == ("done\n", "")


HOLDER_GONE = """
from gevent import monkey
monkey.patch_all()
import gevent
from hashring.monkey_patching import original
from hashring.running.cross_hub_lock import cross_hub_lock

calls = cross_hub_lock()
start, sleep = original("_thread", "start_new_thread"), original("time", "sleep")
held = []

def hold():
    held.append("held")
    gevent.sleep(60)

def thread():
    gevent.spawn(calls.run, hold)
    gevent.sleep(0.01)
    gevent.get_hub().destroy(destroy_loop=True)
    held.append("gone")

start(thread, ())
while not held:
    sleep(0.001)
print(calls.run(lambda: "done"))
"""


def test_a_hub_that_was_destroyed_in_a_call_keeps_nobody_waiting() -> None:
    done = ran(HOLDER_GONE)
    assert (done.stdout, done.stderr) == ("done\n", "")


RAISED_INTO_CALLS = """
from gevent import monkey
monkey.patch_all()
import gevent
from contextlib import suppress
from hashring.running.cross_hub_lock import cross_hub_lock
from tests.unit.node.raised_into import Interrupt, raised_into

FILES = ("cross_hub_lock.py", "callback_turns.py", "threads_and_greenlets.py")

def concerns(code):
    return code.co_filename.endswith(FILES)

for waits in (False, True):
    line, where = 0, "begin"
    while where:
        line += 1
        calls = cross_hub_lock()
        holder = gevent.spawn(calls.run, lambda: gevent.sleep(0.002)) if waits else None
        gevent.sleep(0)
        where = raised_into(line, concerns, lambda: calls.run(lambda: None))
        with gevent.Timeout(20, AssertionError(where)):
            other = gevent.spawn(calls.run, lambda: "other")
            assert other.get() == "other", where
            assert calls.run(lambda: calls.run(lambda: "nested")) == "nested", where
            if waits:
                with suppress(Interrupt):
                    holder.get()
    assert line > 20, line
print("done")
"""


def test_what_is_raised_between_any_two_lines_of_a_call_keeps_nobody_waiting() -> None:
    done = ran(RAISED_INTO_CALLS)
    # What is raised in another greenlet, gevent prints.
    assert done.stdout == "done\n", done.stderr


HANDLER_IN_A_CALL = """
from gevent import monkey
monkey.patch_all()
import gevent, sys
from hashring.running.cross_hub_lock import cross_hub_lock

FILES = ("cross_hub_lock.py", "callback_turns.py", "threads_and_greenlets.py")

def handled_at(line):
    # Calls in a signal handler that comes before one of the lines; whether there are so many.
    calls, left, handled = cross_hub_lock(), line, []
    holder = gevent.spawn(calls.run, lambda: gevent.sleep(0.002))
    gevent.sleep(0)

    def trace(frame, event, argument):
        nonlocal left
        if not frame.f_code.co_filename.endswith(FILES) or gevent.getcurrent() is not caller:
            return None
        left -= event == "line"
        if left == 0:
            left = -1
            sys.settrace(None)
            handled.append(calls.run(lambda: "handled"))
        return trace

    caller = gevent.getcurrent()
    sys.settrace(trace)
    try:
        with gevent.Timeout(20, AssertionError(line)):
            assert calls.run(lambda: "run") == "run"
    finally:
        sys.settrace(None)
    assert calls.run(lambda: "run") == "run"
    return bool(handled)

line = 1
while handled_at(line):
    line += 1
assert line > 20, line
print("done")
"""


def test_a_signal_handler_calls_at_any_line_of_the_call_that_it_interrupts() -> None:
    done = ran(HANDLER_IN_A_CALL)
    assert (done.stdout, done.stderr) == ("done\n", "")


IN_STEP = """
from gevent import monkey
monkey.patch_all()
import sys
from tests.integration.test_raised_into_calls import ERRORS, check_each_line, client_at

for error in ERRORS:
    check_each_line(client_at(sys.argv[1]), error)
print("done")
"""


def test_whatever_line_of_the_client_is_left_the_next_call_gets_its_own_answer(
    redis_server: RedisServer,
) -> None:
    done = ran(IN_STEP, str(redis_server.socket))
    assert (done.stdout, done.stderr) == ("done\n", "")


IN_LOCKS = """
from gevent import monkey
monkey.patch_all()
import gevent, sys, threading
from contextlib import suppress
from redis import Redis
from redis.cluster import RedisCluster
from hashring.store.redis_store import RedisStore
from tests.integration.test_raised_into_calls import echo
from tests.unit.node.raised_into import Interrupt, raised_into

new = {"one": Redis, "cluster": RedisCluster}[sys.argv[1]].from_url

def is_of_a_lock(code):
    return code.co_filename in (threading.__file__, gevent.thread.__file__)

line, where = 0, "begin"
while where:
    line += 1
    store = RedisStore(new(sys.argv[2]), 20)
    store.run(echo("first"))
    other = gevent.spawn(store.run, echo("other"))
    gevent.sleep(0)
    where = raised_into(line, is_of_a_lock, lambda: store.run(echo("left")))
    with gevent.Timeout(5, AssertionError(where)):
        # Also the one that waited for its answer in the meantime gets it.
        assert other.get() == b"other", where
        assert store.run(echo("next")) == b"next", where
print("done")
"""


def test_no_lock_of_the_client_is_left_locked_by_what_is_raised_into_a_call(
    redis_server: RedisServer,
) -> None:
    done = ran(IN_LOCKS, "one", redis_server.url)
    assert (done.stdout, done.stderr) == ("done\n", "")


def test_no_lock_of_a_client_of_a_cluster_is_left_locked(cluster: list[RedisServer]) -> None:
    done = ran(IN_LOCKS, "cluster", cluster[0].url)
    assert (done.stdout, done.stderr) == ("done\n", "")


THREAD_ENDED = """
from gevent import monkey
monkey.patch_all(**{patched})
import gevent, sys
from hashring import RingNode
from hashring.monkey_patching import original
from redis import Redis

node = RingNode(Redis.from_url(sys.argv[1]), "accounts", name="a", ttl=600, heartbeat_interval=60)
start, sleep = original("_thread", "start_new_thread"), original("time", "sleep")
count, started = original("_thread", "_count"), []

def thread():
    started.append(count())
    node.gevent_start()

start(thread, ())
while not started or count() >= started[0]:
    sleep(0.001)
node.stop()
assert node.state.value == "stopped", node.state
node.gevent_start()
assert node.contains("key")
node.stop()
print("done")
"""


@pytest.mark.parametrize("patched", [{}, {"thread": False}], ids=["all", "no thread"])
def test_a_node_leaves_whose_native_thread_has_ended(
    redis_server: RedisServer, patched: dict[str, bool]
) -> None:
    done = ran(THREAD_ENDED.format(patched=patched), redis_server.url)
    assert (done.stdout, done.stderr) == ("done\n", "")


SILENT = """
from gevent import monkey
monkey.patch_all()
import gevent, os, signal, sys
from hashring import RingNode
from redis import Redis

node = RingNode(Redis.from_url(sys.argv[1]), "accounts", lock=True, ttl=6, heartbeat_interval=2)
node.gevent_start()
server = int(sys.argv[2])
os.kill(server, signal.SIGSTOP)
try:
    asking = [gevent.spawn(node.contains, "key %d" % number) for number in range(20)]
    gevent.sleep(0)
    node.stop()
    gevent.joinall(asking, raise_error=True)
finally:
    os.kill(server, signal.SIGCONT)
"""


def test_a_node_that_stops_while_redis_is_silent_says_so_once(redis_server: RedisServer) -> None:
    """However many wait for it."""
    done = ran(SILENT, redis_server.url, str(redis_server.pid))
    assert done.stderr.count("leave of ring") == 1, done.stderr
    assert done.stderr.count("its locks expire by themselves") == 1, done.stderr
    assert len(done.stderr.splitlines()) == 2, done.stderr


STOPPED_IN_THE_HUB = """
from gevent import monkey
monkey.patch_all()
import gevent, os, signal, sys
from hashring import RingNode
from redis import Redis

redis = Redis.from_url(sys.argv[1])
node = RingNode(redis, "accounts", ttl=600, heartbeat_interval=60)
node.heartbeat()
stopped = []

def stop(*_):
    assert gevent.getcurrent() is gevent.get_hub()
    node.stop()
    stopped.append(node.contains("key"))

signal.signal(signal.SIGTERM, stop)
gevent.get_hub().loop.run_callback(os.kill, os.getpid(), signal.SIGTERM)
with gevent.Timeout(30):
    while not stopped or redis.zcard("accounts"):
        gevent.sleep(0.001)
print(stopped)
"""


def test_a_node_by_hand_leaves_when_a_handler_that_interrupts_the_hub_stops_it(
    redis_server: RedisServer,
) -> None:
    done = ran(STOPPED_IN_THE_HUB, redis_server.url)
    assert (done.stdout, done.stderr) == ("[False]\n", "")


SET_ELSEWHERE = """
import gevent, threading
from hashring.running.threads_and_greenlets import GeventBackend

latch, switched = GeventBackend().latch(), []
thread = threading.Thread(target=latch.set)
thread.start()
thread.join()
gevent.spawn(switched.append, "the hub ran")
assert latch.wait()
print(switched)
"""


def test_a_latch_that_is_set_is_not_waited_for() -> None:
    """While gevent tells those who wait for an event, it may forget who begins to wait."""
    done = ran(SET_ELSEWHERE)
    assert done.stdout == "[]\n", done.stderr


FEW_DESCRIPTORS = """
from gevent import monkey
monkey.patch_all()
import gevent, os, resource, sys
from hashring import PartitionGroup
from hashring.errors import RedisUnavailable
from redis import Redis

# Patched, a descriptor is closed later.
close = monkey.get_original("os", "close")

def fill():
    try:
        while True:
            taken.append(os.open(os.devnull, os.O_RDONLY))
    except OSError:
        return

# What is imported late, and the main thread's hub, take descriptors of their own.
with PartitionGroup(Redis.from_url(sys.argv[1]), "orders", 2) as group:
    group.status()
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
taken, failed = [], 0
for free in range(16):
    group = PartitionGroup(Redis.from_url(sys.argv[1]), "orders", 2, member=str(free))
    fill()
    for _ in range(free):
        close(taken.pop())
    try:
        group.start()
    except RedisUnavailable as error:
        failed += 1
        assert "Too many open files" in str(error), error
    gevent.sleep(0.1)
    while taken:
        close(taken.pop())
    group.stop()
assert 0 < failed < 16, failed
with PartitionGroup(Redis.from_url(sys.argv[1]), "orders", 2) as group:
    print("done")
"""


def test_a_member_without_descriptors_for_its_threads_does_not_end_the_program(
    redis_server: RedisServer,
) -> None:
    """gevent aborts the process when there are none for the hub of a thread."""
    done = ran(FEW_DESCRIPTORS, redis_server.url)
    assert done.stdout == "done\n", done.stderr
    assert done.returncode == 0


PATCHED_LATE = """
import sys, time
from gevent import monkey
from hashring.store.redis_store import RedisStore
from hashring.store.ring.commands import owner
from hashring.store.ring.key_names import ring_keys
from redis import Redis

store = RedisStore(Redis.from_url(sys.argv[1]), 5.0)
store.run(owner(ring_keys("accounts"), 0))
monkey.patch_all()
store.run(owner(ring_keys("accounts"), 0))
store.close()
with Redis.from_url(sys.argv[1]) as admin:
    until = time.monotonic() + 5
    while len(admin.client_list()) > 1 and time.monotonic() < until:
        time.sleep(0.01)
    print(len(admin.client_list()))
"""


def test_a_store_that_closes_closes_also_what_it_opened_before_the_program_was_patched(
    redis_server: RedisServer,
) -> None:
    done = ran(PATCHED_LATE, redis_server.url)
    assert done.stdout == "1\n", done.stderr


HUBS_OF_THREADS = """
from gevent import monkey
monkey.patch_all(thread=False)
import os, sys, time
from hashring import PartitionGroup, RingNode
from redis import Redis

client = Redis.from_url(sys.argv[1])

def listening():
    return {{each["id"] for each in client.client_list(_type="pubsub")}}

def opened():
    return len(os.listdir("/proc/self/fd"))

def until(is_so, what):
    deadline = time.monotonic() + 30
    while not is_so():
        assert time.monotonic() < deadline, what()
        time.sleep(0.01)

with {made}:
    counts = []
    for turn in range(8):
        before = listening()
        client.client_kill_filter(_type="pubsub")
        until(lambda: listening() - before, listening)
        counts.append(opened())
    # A thread that has just ended may not have closed everything yet.
    until(lambda: opened() <= counts[0], lambda: (counts, opened()))
print("done")
"""


@pytest.mark.parametrize(
    "made",
    [
        'RingNode(client, "accounts", ttl=600.0, heartbeat_interval=0.1)',
        'PartitionGroup(client, "orders", 2, ttl=600.0, heartbeat_interval=0.1)',
    ],
    ids=["node", "group"],
)
def test_threads_that_are_not_patched_leave_no_descriptor_of_patched_sockets(
    redis_server: RedisServer, made: str
) -> None:
    done = ran(HUBS_OF_THREADS.format(made=made), redis_server.url)
    assert done.stdout == "done\n", done.stderr
