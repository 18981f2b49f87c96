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


@pytest.mark.parametrize("runner", RUNNERS)
@pytest.mark.parametrize("end", ENDS)
def test_a_node_leaves_the_ring_when_its_program_ends(
    redis_server: RedisServer, client: Redis, end: str, runner: str
) -> None:
    head, start = RUNNERS[runner]
    with begun(head + HEAD + ENDS[end].format(start=start) + RUN, redis_server) as process:
        try:
            assert process.communicate(timeout=PATIENCE) == ("ends\n", "")
        finally:
            process.kill()
    assert process.returncode == 0
    assert client.zcard("ends") == 0
    assert client.keys("*:lock:*") == []


@pytest.mark.parametrize("runner", RUNNERS)
def test_a_node_leaves_its_open_hold_behind_when_its_program_ends(
    redis_server: RedisServer, client: Redis, runner: str
) -> None:
    head, start = RUNNERS[runner]
    program = f"node.{start}()\nheld = node.hold('key')\nheld.__enter__()\n"
    with begun(head + HEAD + program + RUN, redis_server) as process:
        try:
            assert process.communicate(timeout=PATIENCE) == ("ends\n", "")
        finally:
            process.kill()
    assert client.zcard("ends") == 0
    assert len(client.keys("*:lock:*")) == 1


def test_a_node_by_hand_stays_on_the_ring_when_its_program_ends(
    redis_server: RedisServer, client: Redis
) -> None:
    with begun(HEAD + "node.heartbeat()" + RUN, redis_server) as process:
        assert process.communicate(timeout=PATIENCE) == ("ends\n", "")
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
