"""What is there for users' tests: a clock, rings written down, a store without Redis."""

from __future__ import annotations

import gc
import subprocess
import sys
import textwrap
import weakref

import pytest

import hashring.testing
from hashring import ConfigError, Ring, RingNode
from hashring.store.ring.commands import Scoring
from hashring.store.ring.key_names import ring_keys
from hashring.store.ring.snapshot import snapshot
from hashring.testing import ManualClock, MemoryServer, MemoryStore, ring_of
from tests.conftest import eventually


def test_a_manual_clock_shows_what_it_was_told() -> None:
    clock = ManualClock(100.0)
    assert clock() == 100.0
    clock.advance(2.5)
    assert clock() == 102.5
    clock.now = 7.0
    assert clock() == 7.0


def test_time_does_not_go_back_by_advancing() -> None:
    with pytest.raises(ConfigError, match=r"seconds=-1: time goes forward only"):
        ManualClock().advance(-1)


def test_a_ring_is_written_down_a_node_a_line() -> None:
    ring = ring_of(
        """
        # the seed's example
        first: 1e9
        host:80: 2_000_000_000 3000000000  # a name with a colon
        """
    )
    assert ring == Ring({"first": [10**9], "host:80": [2 * 10**9, 3 * 10**9]})


def test_a_name_that_is_written_down_may_hold_a_separator_of_lines() -> None:
    assert ring_of("a\u2028b: 1") == Ring({"a\u2028b": [1]})


def test_a_ring_that_is_written_down_hashes_as_it_is_told() -> None:
    assert ring_of("a: 1", "crc-32c").hash_algorithm.name == "crc-32c"


def test_an_empty_text_is_an_empty_ring() -> None:
    assert ring_of("\n  # nothing\n") == Ring()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a", r"text='a': is not a line such as 'name: 10 20'"),
        ("a:", r"text='a:': is not a line such as 'name: 10 20'"),
        ("a: b", r"text='a: b': has 'b', which is no point"),
        ("a: 1.5", r"text='a: 1.5': has '1.5', which is no point"),
        ("a: 15e-1", r"text='a: 15e-1': has '15e-1', which is no point"),
        ("a: 1e999", r"text='a: 1e999': has '1e999', which is no point"),
        ("a: 1\na: 2", r"text='a: 2': names node 'a' again"),
        (": 1", r"name='': a node's name is a non-empty str"),
        ("a: 4294967296", r"point=4294967296: of node 'a' is outside the ring"),
    ],
)
def test_what_is_no_ring_is_named(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=f"^{message}"):
        ring_of(text)


def test_nodes_run_on_a_store_in_memory() -> None:
    store = MemoryStore()
    with (
        RingNode(store, "accounts", name="a") as one,
        RingNode(store, "accounts", name="b") as two,
    ):
        for key in ("hello", "world", "ä"):
            assert one.owner(key) in ("a", "b")
        assert two.get_node_count() == 2


def test_the_example_of_a_test_never_fails() -> None:
    example = textwrap.dedent(hashring.testing.__doc__.partition("::\n")[2].partition("\n\nIt ")[0])
    for _ in range(100):
        exec(example, {})


def test_a_server_in_memory_is_freed_with_its_last_user() -> None:
    server = MemoryServer()
    with RingNode(MemoryStore(server), "accounts", name="a") as node:
        assert node.contains("hello")
    there = weakref.ref(server)
    del server, node

    def is_freed() -> bool:
        gc.collect()
        return there() is None

    eventually(is_freed, "the thread of the node has ended, and the server is freed")


def test_on_a_server_with_a_manual_clock_nothing_expires_by_itself() -> None:
    clock = ManualClock(1_700_000_000.0)
    server = MemoryServer(clock)
    keys = ring_keys("accounts")
    server.zadd(keys.ring, b"5:a:x", clock() + 1.0)
    server.hset(keys.ring, "a", b"{}")
    look = snapshot(keys, scoring=Scoring.expiry(1.0))
    assert not server.run(look).replicas[0].expired
    clock.advance(1.5)
    assert server.run(look).replicas[0].expired


def test_the_simulator_is_not_loaded_with_the_rest() -> None:
    code = "import sys, hashring.testing; print([m for m in sys.modules if 'simulator' in m])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
