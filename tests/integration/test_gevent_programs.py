"""Whole programs in which gevent has patched some of what threads use, and threads ask a node."""

from __future__ import annotations

import subprocess
import sys

import pytest

from hashring.store.embedded_server import RedisServer
from tests.conftest import PATIENCE, ROOT

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
error = {error}

def hold(key):
    with node.hold(key):
        pass

for turns in range(40):
    user = gevent.spawn(hold, "killed %d" % turns)
    for _ in range(turns):
        gevent.sleep(0)
    user.kill(error)
    # It has ended with that, unless it was over before.
    assert user.exception in (None, error), user.exception
    assert user.successful() or user.exception is error
    # Nothing need have been found out yet about the one that was killed.
    hold("another %d" % turns)
    assert node.select(["one more %d" % turns]), turns
    hold("killed %d" % turns)
assert node.status.failures == 0, node.status
node.stop()
print("done")
"""


def ran(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A program that has ended."""
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=PATIENCE,
        check=False,
    )


@pytest.mark.parametrize("patch", ["", "monkey.patch_all()"], ids=["plain", "patched"])
@pytest.mark.parametrize(
    "error",
    ["gevent.GreenletExit()", "gevent.Timeout()", "SoftLimit()"],
    ids=["killed", "timeout", "own"],
)
def test_a_hold_that_is_given_up_at_any_moment_refuses_nobody_else(
    redis_server: RedisServer, patch: str, error: str
) -> None:
    program = TIMEOUTS.format(patch=patch, error=error)
    done = ran(program, redis_server.url)
    assert done.stdout == "done\n", done.stderr


PROGRAM = """
from gevent import monkey
monkey.patch_all(**{patched})
import gevent, sys
from hashring import RingNode
from redis import Redis

node = RingNode(Redis.from_url(sys.argv[1]), "accounts", lock=True, ttl=120, heartbeat_interval=50)
node.{start}()
pool = gevent.get_hub().threadpool
for number in range(10):
    # In turns: a connection that one has used is free for the other.
    assert node.contains("a%d" % number)
    assert pool.apply(node.contains, ("b%d" % number,))
    node.heartbeat()
assert pool.apply(node.owner, ("a",)) == node.name
assert node.status.failures == 0, node.status
node.stop()
print("done")
"""


@pytest.mark.parametrize("start", ["start", "gevent_start"])
@pytest.mark.parametrize(
    "patched",
    [
        {},
        {"thread": False},
        {"thread": False, "queue": False},
        {"socket": False},
        {"queue": False},
        {"socket": False, "queue": False},
    ],
    ids=lambda patched: " and ".join(f"no {each}" for each in patched) or "all",
)
def test_threads_and_greenlets_ask_one_node(
    redis_server: RedisServer, patched: dict[str, bool], start: str
) -> None:
    program = PROGRAM.format(patched=patched, start=start)
    done = ran(program, redis_server.url)
    assert (done.stdout, done.stderr) == ("done\n", "")


AT_ONCE = """
from gevent import monkey
monkey.patch_all(**{patched})
import gevent, sys
from hashring import RingNode
from hashring.fencing import Fence
from redis import Redis

sys.setswitchinterval(1e-5)
node = RingNode(Redis.from_url(sys.argv[1]), "accounts", lock=True, ttl=120, heartbeat_interval=50)
node.{start}()
keys = ["k%d" % number for number in range(50)]
assert node.select(keys) == keys
fence = Fence()
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

others = [pool.spawn(each) for each in (ask, ask, ask, admit, admit, beat, beat)]
for turn in range(40):
    assert node.select(keys) == keys
    gevent.sleep(0)
for other in others:
    other.get()
assert node.status.failures == 0, node.status
pool.apply(node.stop)
print("done")
"""


@pytest.mark.parametrize("start", ["start", "gevent_start"])
@pytest.mark.parametrize("patched", [{}, {"queue": False}, {"socket": False}], ids=str)
def test_threads_and_greenlets_ask_one_node_at_once(
    redis_server: RedisServer, patched: dict[str, bool], start: str
) -> None:
    program = AT_ONCE.format(patched=patched, start=start)
    done = ran(program, redis_server.url)
    assert (done.stdout, done.stderr) == ("done\n", "")


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
from hashring.running.threads_and_greenlets import start_native_thread

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


@pytest.mark.one_server
def test_native_threads_and_greenlets_log_at_once() -> None:
    """A member's loop, which goes on whatever the application does, waits for no log handler."""
    done = ran(LOGGING)
    assert (done.stdout, done.stderr) == ("done\n", "")


LOG_HOMES = """
from gevent import monkey
monkey.patch_all()
import gevent
from hashring.running.loop_log import log_home
from hashring.running.threads_and_greenlets import start_native_thread

homes, inner = [], []

def note():
    homes.append(log_home())

def outer():
    note()
    inner.append(start_native_thread(note, "inner"))

assert start_native_thread(outer, "outer").wait(30) and inner[0].wait(30)
print([home is gevent.get_hub() for home in homes])
"""


@pytest.mark.one_server
def test_native_threads_log_in_a_hub_that_did_not_run_yet() -> None:
    """Such a hub is false. The threads' own, which end with them, would lose the records."""
    done = ran(LOG_HOMES)
    assert (done.stdout, done.stderr) == ("[True, True]\n", "")
