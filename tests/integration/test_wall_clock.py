"""No decision depends on the machine's wall clock, which may be set at any time."""

from __future__ import annotations

import ast

import pytest

from hashring.store.embedded_server import RedisServer
from tests.conftest import ROOT
from tests.programs import python

READERS = {
    "time": {
        "time", "time_ns", "localtime", "gmtime", "ctime", "asctime", "strftime", "clock_gettime",
    },
    "datetime": {"now", "utcnow", "today"},
    "date": {"today"},
}  # fmt: skip

ALLOWED = {
    "hashring/cli/doctor/server_checks.py": "shows how far the machine's clock is off Redis'",
    "hashring/store/embedded_keeper.py": "keeps its files young, as file systems count their ages",
    "hashring/store/memory_store.py": "the clock of a server in memory, for tests",
    "hashring/web/watcher_threads.py": "shows since when Redis does not answer",
}


def readers_of_the_wall_clock(source: str) -> list[str]:
    """What in a module reads the wall clock."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute):
            owner = node.value.attr if isinstance(node.value, ast.Attribute) else None
            owner = node.value.id if isinstance(node.value, ast.Name) else owner
            if node.attr in READERS.get(owner or "", ()):
                found.append(f"{owner}.{node.attr}")
        elif isinstance(node, ast.ImportFrom) and node.module == "time":
            found += [f"time.{each.name}" for each in node.names if each.name in READERS["time"]]
    return found


def test_the_wall_clock_is_read_in_named_places_only() -> None:
    places = {
        str(path.relative_to(ROOT)): found
        for path in sorted((ROOT / "hashring").rglob("*.py"))
        if (found := readers_of_the_wall_clock(path.read_text()))
    }
    assert places.keys() == ALLOWED.keys(), places


@pytest.mark.parametrize(
    "line",
    [
        "import time; time.time()",
        "import time; clock = time.time",
        "from time import time",
        "from datetime import datetime; datetime.now()",
        "import datetime; datetime.datetime.now(None)",
        "from datetime import date; date.today()",
    ],
)
def test_a_planted_reader_is_found(line: str) -> None:
    assert readers_of_the_wall_clock(line)


PROGRAM = """
import sys, time
real, jump = time.time, [0.0]
time.time = lambda: real() + jump[0]
from redis import Redis
from hashring import PartitionGroup, RingNode

client = Redis(unix_socket_path=sys.argv[1])
node = RingNode(client, "accounts", lock=True, ttl=60.0, heartbeat_interval=0.05)
group = PartitionGroup(client, "orders", partitions=4, ttl=60.0, heartbeat_interval=0.05)

def until(check):
    while not check():
        time.sleep(0.01)

with node, group:
    node.select(["a", "b"])
    until(lambda: len(group.held) == 4)
    with node.hold("a") as lease:
        tokens = lease.token, group.held
        for jump[0] in (-3600.0, 3600.0, 0.0):
            beats = node.status.heartbeats
            until(lambda: node.status.heartbeats >= beats + 5)
            lease.check()
            assert node.select(["b"]) == ["b"] and not lease.lost.is_set()
            assert (lease.token, group.held) == tokens
print(node.status.fences, "kept")
"""


def test_a_wall_clock_that_jumps_an_hour_back_and_forth_changes_nothing(
    redis_server: RedisServer,
) -> None:
    done = python("-c", PROGRAM, redis_server.socket)  # fmt: skip
    assert (done.stdout, done.stderr) == ("0 kept\n", "")
