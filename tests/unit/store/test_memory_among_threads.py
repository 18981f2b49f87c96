"""Servers in memory among threads, and in the children of a process that has some."""

from __future__ import annotations

import os

import pytest

from tests.conftest import PATIENCE
from tests.programs import printed

FORKS = f"""
import os, signal, threading
from hashring import RingNode
from hashring.testing import MemoryServer, MemoryStore

inside = threading.Event()

def clock():
    # Held up in the middle of a script's run, where another thread forks.
    if threading.current_thread() is runner:
        inside.set()
        threading.Event().wait(0.3)
    return 1_700_000_000.0

store = MemoryStore(MemoryServer(clock))
node = RingNode(store, "accounts", name="parent")
runner = threading.Thread(target=node.heartbeat)
runner.start()
inside.wait()
if (child := os.fork()) == 0:
    signal.alarm({PATIENCE})
    with RingNode(store, "accounts", name="child") as inherited:
        inherited.contains("hello")
    os._exit(0)
print("child ended with", os.waitpid(child, 0)[1])
"""

FIRST = """
import sys, threading
from hashring import RingNode
from hashring.testing import MemoryStore

def use():
    together.wait()
    RingNode(MemoryStore(), "accounts", name="a").heartbeat()
    done.append(True)

sys.setswitchinterval(1e-6)
done = []
together = threading.Barrier(8)
threads = [threading.Thread(target=use) for _ in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(len(done), "done")
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_child_that_was_forked_while_a_script_ran_has_the_server_whole() -> None:
    assert printed("-c", FORKS) == "child ended with 0"


def test_threads_that_make_the_first_servers_at_once_share_one_lua() -> None:
    assert printed("-c", FIRST) == "8 done"
