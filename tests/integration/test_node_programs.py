"""Whole programs with a node: how they end when nobody has stopped it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest
from redis import Redis

from hashring.store.embedded_server import RedisServer
from tests.conftest import PATIENCE, ROOT

pytestmark = pytest.mark.one_server

PATCHED = "from gevent import monkey\nmonkey.patch_all()\n"

HEAD = """
import sys
from hashring import PartitionGroup, RingNode
from redis import Redis

client = Redis.from_url(sys.argv[1])
node = RingNode(client, "ends", lock=True)
group = PartitionGroup(client, "ends", 4)

def service(one, start):
    start()
    try:
        yield
    finally:
        one.stop()

class Service:
    def __init__(self, one, start):
        self.one = one
        start()

    def __del__(self):
        self.one.stop()
"""

RUN = """
assert node.contains("key")
print("ends", flush=True)
"""

STOP_WITHOUT_FILES = """
import resource
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
node.stop()
resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
print("ends", flush=True)
"""

ENDS = {
    "never stopped": "node.{start}()",
    "stopped by a generator": "kept = service(node, node.{start})\nnext(kept)",
    "stopped by __del__": "kept = Service(node, node.{start})",
}

RUNNERS = {
    "thread": ("", "start"),
    "greenlet": ("", "gevent_start"),
    "greenlet-patched": (PATCHED, "gevent_start"),
    "thread-patched": (PATCHED, "start"),
}


def begun(program: str, server: RedisServer) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", program, server.url],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )


def ended(program: str, server: RedisServer) -> subprocess.CompletedProcess[str]:
    with begun(program, server) as process:
        try:
            told = process.communicate(timeout=PATIENCE)
        finally:
            process.kill()
    return subprocess.CompletedProcess(process.args, process.returncode, *told)


@pytest.mark.parametrize("runner", RUNNERS)
@pytest.mark.parametrize("end", ENDS)
def test_a_node_leaves_the_ring_when_its_program_ends(
    redis_server: RedisServer, client: Redis, end: str, runner: str
) -> None:
    head, start = RUNNERS[runner]
    process = ended(head + HEAD + ENDS[end].format(start=start) + RUN, redis_server)
    assert (process.stdout, process.stderr, process.returncode) == ("ends\n", "", 0)
    assert client.zcard("ends") == 0
    assert client.keys("*:lock:*") == []


@pytest.mark.parametrize("runner", RUNNERS)
def test_a_node_leaves_its_open_hold_behind_when_its_program_ends(
    redis_server: RedisServer, client: Redis, runner: str
) -> None:
    head, start = RUNNERS[runner]
    program = f"node.{start}()\nheld = node.hold('key')\nheld.__enter__()\n"
    process = ended(head + HEAD + program + RUN, redis_server)
    assert (process.stdout, process.stderr) == ("ends\n", "")
    assert client.zcard("ends") == 0
    assert len(client.keys("*:lock:*")) == 1


@pytest.mark.parametrize("runner", RUNNERS)
def test_a_node_leaves_the_ring_though_its_program_may_open_no_more_files(
    redis_server: RedisServer, client: Redis, runner: str
) -> None:
    head, start = RUNNERS[runner]
    program = f"node.{start}()\nassert node.contains('key')\n"
    process = ended(head + HEAD + program + STOP_WITHOUT_FILES, redis_server)
    assert (process.stdout, process.stderr) == ("ends\n", "")
    assert client.zcard("ends") == 0
    assert client.keys("*:lock:*") == []


def test_a_node_by_hand_stays_on_the_ring_when_its_program_ends(
    redis_server: RedisServer, client: Redis
) -> None:
    process = ended(HEAD + "node.heartbeat()" + RUN, redis_server)
    assert (process.stdout, process.stderr) == ("ends\n", "")
    assert client.zcard("ends") == 16


@pytest.mark.parametrize("one", ["node", "group"])
@pytest.mark.parametrize("start", ["start", "gevent_start"])
def test_a_program_ends_though_redis_does_not_answer(
    redis_server: RedisServer, one: str, start: str
) -> None:
    program = f"kept = Service({one}, {one}.{start})\nprint('begun', flush=True)\ninput()\n"
    with begun(HEAD + program, redis_server) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        os.kill(redis_server.pid, signal.SIGSTOP)
        try:
            _, error = process.communicate("\n", timeout=PATIENCE)
        finally:
            os.kill(redis_server.pid, signal.SIGCONT)
            process.kill()
    assert process.returncode == 0
    assert "Traceback" not in error


OUTLIVES_ITS_HUB = """
import threading
import gevent

def work():
    node.gevent_start()
    while not node.contains("key"):
        gevent.sleep(0.01)
    {end}

{run}
{act}
print(node.state.value, client.zcard("ends"), client.keys("*:lock:*"))
"""

THREAD = "thread = threading.Thread(target=work)\nthread.start()\nthread.join()"

# A patched thread is a greenlet of the main thread's hub; this one has a hub of its own.
NATIVE_THREAD = """
over = monkey.get_original("_thread", "allocate_lock")()
over.acquire()

def work_natively():
    try:
        work()
    finally:
        over.release()

monkey.get_original("_thread", "start_new_thread")(work_natively, ())
over.acquire()
"""

DESTROY = "gevent.get_hub().destroy(destroy_loop=True)"

HUBS = {
    "ended": ("", THREAD, "pass"),
    "destroyed": ("", THREAD, DESTROY),
    "destroyed-here": ("", "work()", DESTROY),
    "destroyed-patched": (PATCHED, NATIVE_THREAD, DESTROY),
}


NEXT_NODE = """
node = RingNode(client, "ends", lock=True)
"""


def outlived(hub: str, server: RedisServer, *acts: str) -> tuple[str, str]:
    """What a program prints whose nodes, one for each act, have lost their hubs; and its errors."""
    head, run, end = HUBS[hub]
    parts = [OUTLIVES_ITS_HUB.format(run=run, end=end, act=act) for act in acts]
    process = ended(head + HEAD + NEXT_NODE.join(parts), server)
    out, error = process.stdout, process.stderr
    assert process.returncode == 0, error
    # gevent itself says so of the call that waited in a thread of its pool.
    said = [line for line in error.splitlines() if "Error" in line and "worker thread" not in line]
    return out, "\n".join(said)


@pytest.mark.parametrize("hub", HUBS)
def test_stop_leaves_in_place_of_greenlets_whose_hub_is_gone(
    redis_server: RedisServer, client: Redis, hub: str
) -> None:
    """Nobody is left who could be told to."""
    assert outlived(hub, redis_server, "node.stop()\nnode.stop()") == ("stopped 0 []\n", "")
    assert client.pubsub_channels("*ends*") == []


@pytest.mark.parametrize("hub", HUBS)
def test_a_node_whose_hub_is_gone_may_be_started_again(
    redis_server: RedisServer, client: Redis, hub: str
) -> None:
    acts = [
        f"{begin}\nassert node.contains('key')\nnode.stop()"
        for begin in ("node.start()", "node.gevent_start()", "node.stop()\nnode.heartbeat()")
    ]
    assert outlived(hub, redis_server, *acts) == ("stopped 0 []\n" * 3, "")


@pytest.mark.parametrize("hub", HUBS)
def test_a_node_whose_hub_is_gone_leaves_when_its_program_ends(
    redis_server: RedisServer, client: Redis, hub: str
) -> None:
    out, said = outlived(hub, redis_server, "")
    assert (out.split()[:2], said) == (["live", "16"], "")
    assert client.zcard("ends") == 0
    assert client.keys("*:lock:*") == []


@pytest.mark.parametrize("hub", HUBS)
def test_what_asks_a_loop_whose_hub_is_gone_says_so(redis_server: RedisServer, hub: str) -> None:
    act = """
node.weight = 2
try:
    node.heartbeat()
except Exception as error:
    print(error)
node.stop()
"""
    out, said = outlived(hub, redis_server, act)
    assert "runs no more: the thread of its greenlets has ended, or their hub was destroyed" in out
    assert (out.splitlines()[-1], said) == ("stopped 0 []", "")


@pytest.mark.parametrize("hub", HUBS)
def test_a_child_inherits_nothing_of_a_node_whose_hub_is_gone(
    redis_server: RedisServer, hub: str
) -> None:
    act = """
import os
if (child := os.fork()) == 0:
    os.write(1, b"inherited" if node.inherited else b"not inherited")
    os._exit(0)
os.waitpid(child, 0)
node.stop()
print()
"""
    expected = ("inherited\nstopped 0 []\n", "")
    assert outlived(hub, redis_server, act) == expected


ENDS_MEANWHILE = """
import threading, time
import gevent

begun = threading.Event()

def work():
    node.gevent_start()
    assert node.contains("key")
    begun.set()
    # The hub no longer runs, so the loop does not learn of the stop.
    while node.contains("key"):
        time.sleep(0.01)
    {end}

threading.Thread(target=work).start()
begun.wait()
node.stop()
print(node.state.value, client.zcard("ends"), client.keys("*:lock:*"))
"""


@pytest.mark.parametrize("end", ["pass", DESTROY], ids=["ended", "destroyed"])
def test_stop_does_not_wait_for_a_hub_that_goes_meanwhile(
    redis_server: RedisServer, end: str
) -> None:
    process = ended(HEAD + ENDS_MEANWHILE.format(end=end), redis_server)
    assert (process.stdout, process.returncode) == ("stopped 0 []\n", 0), process.stderr


STARTS_IN_TURN = """
import threading
import gevent

def work():
    node.gevent_start()
    while not node.contains("key"):
        gevent.sleep(0.01)

# The system gives a thread the number of one that has ended.
for each in (work, work, node.stop):
    thread = threading.Thread(target=each)
    thread.start()
    thread.join()
print(node.state.value, client.zcard("ends"), client.keys("*:lock:*"))
"""


def test_one_thread_after_the_other_may_start_a_node_with_greenlets_of_its_own(
    redis_server: RedisServer,
) -> None:
    process = ended(HEAD + STARTS_IN_TURN, redis_server)
    assert (process.stdout, process.stderr) == ("stopped 0 []\n", "")


ASKS_AT_ITS_END = """
import atexit

def ask():
    # Its greenlets still run, since the program lets them.
    assert node.contains("another key")
    node.heartbeat()
    node.stop()
    print(node.state.value, flush=True)

# Before the node's own.
atexit.register(ask)
node.gevent_start()
"""


def test_greenlets_of_the_main_thread_are_there_until_the_program_has_ended(
    redis_server: RedisServer,
) -> None:
    process = ended(HEAD + ASKS_AT_ITS_END, redis_server)
    assert (process.stdout, process.stderr) == ("stopped\n", "")
