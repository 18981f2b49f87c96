"""Callbacks of a node, or of a member, that is started again while one of its last run goes on."""

from __future__ import annotations

import pytest

from tests.programs import python

pytestmark = pytest.mark.one_server

# The first call does not return before the second run has begun. A program that waits for ever ends
# with the alarm.
_BEGIN = """
import sys

KINDS, WHAT, WHERE = sys.argv[1].split(), sys.argv[2], sys.argv[3]
if any("patched" in kind for kind in KINDS):
    from gevent import monkey

    monkey.patch_all()

import asyncio, json, signal, time
from hashring import AsyncPartitionGroup, AsyncRingNode, PartitionGroup, RingNode
from hashring.testing import MemoryStore

signal.alarm(60)
begun, at_work, more_at_once = [], [], []
started = may_return = False

def begin(name):
    begun.append(name)
    more_at_once.extend(at_work)
    at_work.append(name)
    return len(begun) == 1

def report():
    print(json.dumps([begun, more_at_once]))
"""

_SYNC = """
if "greenlet" in KINDS:
    from gevent import sleep
else:
    from time import sleep

def wait_until(holds):
    while not holds():
        sleep(0.01)

def start(kind):
    (one.gevent_start if kind.startswith("greenlet") else one.start)()

def work(name):
    first = begin(name)
    if first and WHERE == "inside":
        wait_until(lambda: started)
        again()
    if first:
        wait_until(lambda: may_return)
    at_work.remove(name)

def again():
    one.stop()
    if WHAT == "group":
        wait_until(lambda: not one.running)
    start(KINDS[-1])
    sleep(0.2)  # in which the second run may do wrong

if WHAT == "node":
    one = RingNode(MemoryStore(), "turns", on_change=lambda gained, lost: work(
        "gained" if gained else "lost"))
else:
    one = PartitionGroup(
        MemoryStore(), "turns", 1, max_handoff_time=0.05, rebalance_delay=0.0,
        on_assigned=lambda partition, token: work("gained"),
        on_revoked=lambda partition, deadline: work("ended"),
        on_lost=lambda partition: work("lost"))
start(KINDS[0])
started = True
wait_until(lambda: begun)
if WHERE == "inside":
    sleep(0.1)
else:
    again()
may_return = True
wait_until(lambda: len(begun) == 3 and not at_work)
report()
one.stop()
"""

_ASYNC = """
async def wait_until(holds):
    while not holds():
        await asyncio.sleep(0.01)

async def work(name):
    first = begin(name)
    if first:
        await wait_until(lambda: started)
    if first and (WHERE == "inside" or WHAT == "group"):
        # Called anywhere else, it waits for the callback, and cancels it.
        await one.stop()
    if first and WHERE == "inside":
        await again()
    if first:
        await wait_until(lambda: may_return)
    at_work.remove(name)

async def again():
    if WHAT == "group":
        await wait_until(lambda: not one.running)
    else:
        await one.stop()
    await one.start()
    await asyncio.sleep(0.2)  # in which the second run may do wrong

async def main():
    global started, may_return
    await one.start()
    started = True
    await wait_until(lambda: begun)
    if WHERE == "inside":
        await asyncio.sleep(0.1)
    else:
        await again()
    may_return = True
    await wait_until(lambda: len(begun) == 3 and not at_work)
    report()
    await one.stop()

if WHAT == "node":
    one = AsyncRingNode(MemoryStore(), "turns", on_change=lambda gained, lost: work(
        "gained" if gained else "lost"))
else:
    one = AsyncPartitionGroup(
        MemoryStore(), "turns", 1, max_handoff_time=0.05, rebalance_delay=0.0,
        on_assigned=lambda partition, token: work("gained"),
        on_revoked=lambda partition, deadline: work("ended"),
        on_lost=lambda partition: work("lost"))
asyncio.run(main())
"""

SAME = ["thread", "greenlet", "greenlet-patched", "thread-patched", "asyncio"]
"""Both runs are of this kind."""

OTHER = ["thread greenlet", "greenlet thread"]
"""The kinds of the first run, and of the second."""


@pytest.mark.parametrize("what", ["node", "group"])
@pytest.mark.parametrize(
    ("kinds", "where"),
    [
        *((kind, "inside") for kind in SAME),
        *(pytest.param(kind, "outside", marks=pytest.mark.long) for kind in SAME),
        *((kinds, "outside") for kinds in OTHER),
    ],
)
def test_callbacks_of_a_new_run_wait_for_those_of_the_last(
    kinds: str, what: str, where: str
) -> None:
    program = _BEGIN + (_ASYNC if kinds == "asyncio" else _SYNC)
    done = python("-c", program, kinds, what, where)
    assert done.stdout == '[["gained", "lost", "gained"], []]\n', done.stderr
