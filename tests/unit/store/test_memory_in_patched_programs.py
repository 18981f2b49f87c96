"""A server in memory between native threads and the greenlets of a monkey-patched program."""

from __future__ import annotations

from tests.conftest import PATIENCE
from tests.programs import printed

HANDOFFS = """
from gevent import monkey
monkey.patch_all()
import gevent
from hashring import PartitionGroup
from hashring.testing import MemoryStore

store = MemoryStore()
for turn in range(5):
    first, second = (
        PartitionGroup(store, "orders", 16, member=member, rebalance_delay=0) for member in "ab"
    )
    first.start()
    second.start()
    while len(second.held) < 8:
        gevent.sleep(0.005)
    second.stop()
    while len(first.held) < 16:
        gevent.sleep(0.005)
    first.stop()
print("handed over")
"""

HEARS = """
from gevent import monkey
monkey.patch_all()
import gevent
from hashring.running.native_threads import start_native_thread
from hashring.store.interface import Message
from hashring.testing import MemoryServer, MemoryStore

server = MemoryServer()
subscription = MemoryStore(server).subscribe(b"changes")
subscription.wait(0)
others = []
gevent.spawn(others.append, "ran")
waiting = gevent.spawn(subscription.wait, {patience})
gevent.sleep(0.1)
start_native_thread(lambda: server.publish(b"changes", b"a change"), "publisher")
assert waiting.get() == Message(b"changes", b"a change")
assert others == ["ran"]
print("heard")
"""


def test_members_hand_over() -> None:
    assert printed("-c", HANDOFFS) == "handed over"


def test_a_greenlet_hears_what_a_native_thread_publishes() -> None:
    assert printed("-c", HEARS.format(patience=PATIENCE)) == "heard"
