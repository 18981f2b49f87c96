"""``stop()`` in a signal handler, whatever line of the main thread the signal interrupts."""

from __future__ import annotations

import pytest

from hashring.store.embedded_server import RedisServer
from tests.programs import python

pytestmark = pytest.mark.one_server

PROGRAM = """
import logging, os, signal, sys, threading, time
import redis.connection
from redis import Redis
from hashring import PartitionGroup, RingNode

url, what, where = sys.argv[1:]
client = Redis.from_url(url)
logging.basicConfig(level=logging.INFO, stream=open(os.devnull, "w"))

if what == "group":
    it = PartitionGroup(client, "orders", 8, member="a")
else:
    it = RingNode(client, "accounts", lock=what == "locks", ttl=20, heartbeat_interval=5)

def running():
    return it.state.value not in ("stopped", "new") if what != "group" else it.running

signals = 0

def stop(*_):
    global signals
    signals += 1
    it.stop()

signal.signal(signal.SIGTERM, stop)

def interrupt():
    if not signals and threading.current_thread() is threading.main_thread() and running():
        os.kill(os.getpid(), signal.SIGTERM)

owns_connection = redis.connection.ConnectionPool.owns_connection

def owns_and_interrupts(pool, connection):
    # The pool calls it with its lock held.
    interrupt()
    return owns_connection(pool, connection)

class Interrupted(logging.Handler):
    def emit(self, record):
        # Called with the handler's lock held.
        interrupt()

it.start()
if where == "pool":
    while not it.get_node_count():
        time.sleep(0.01)
    # Redis has the script from now on: asked twice, it might answer when the node has left.
    it.contains("k") if what == "locks" else it.owner("k")
    redis.connection.ConnectionPool.owns_connection = owns_and_interrupts
    it.contains("j") if what == "locks" else it.owner("j")
else:
    logging.getLogger().addHandler(Interrupted())
    logging.getLogger("application").info("working")
while running():
    time.sleep(0.01)
it.stop()
print(signals, "left")
"""


@pytest.mark.parametrize(
    ("what", "where"),
    [("locks", "pool"), ("node", "pool"), ("node", "log"), ("group", "log")],
)
def test_stop_never_waits_for_a_lock_that_the_interrupted_line_holds(
    redis_server: RedisServer, what: str, where: str
) -> None:
    done = python("-c", PROGRAM, redis_server.url, what, where)
    assert (done.stdout, done.stderr) == ("1 left\n", "")


AT_EACH_LINE = """
import logging, os, signal, sys
from redis import Redis
from hashring import RingNode

url, call = sys.argv[1:]
client = Redis.from_url(url)
logging.basicConfig(level=logging.INFO, stream=open(os.devnull, "w"))

def interrupted(line):
    node = RingNode(client, "accounts", lock=True, ttl=20, heartbeat_interval=5)
    signal.signal(signal.SIGTERM, lambda *_: node.stop())
    left = line

    def trace(frame, event, argument):
        nonlocal left
        left -= event == "line"
        if left == 0:
            sys.settrace(None)
            os.kill(os.getpid(), signal.SIGTERM)
        return trace if left > 0 else None

    if start:
        node.start()
    else:
        node.heartbeat()
    with node.hold("key") as lease:
        sys.settrace(trace)
        exec(code)
        sys.settrace(None)
    node.stop()
    return left <= 0

code = compile(call, "call", "exec")
for start in (True, False):
    line = 1
    while interrupted(line):
        line += 1
print(line > 3, client.zcard("accounts"), client.keys("*:lock:*"))
"""


@pytest.mark.parametrize(
    "call",
    [
        "lease.lost.wait(0.001)",
        "lease.revoked.wait(0.001)",
        # It forgets which levels are written, so the node's loop asks for the one that it writes.
        "logging.getLogger('application').setLevel(logging.INFO + line % 2)",
    ],
)
def test_stop_waits_for_nothing_that_an_interrupted_call_of_the_standard_library_holds(
    redis_server: RedisServer, call: str
) -> None:
    done = python("-c", AT_EACH_LINE, redis_server.url, call)
    assert (done.stdout, done.stderr) == ("True 0 []\n", "")
