"""Tests of a program that uses a ring: no Redis, no waiting."""

from hashring import RingNode
from hashring.testing import MemoryStore, ring_of


def work(node: RingNode, accounts: list[str]) -> list[str]:
    return [account for account in accounts if node.contains(account)]


def test_two_nodes_split_the_accounts() -> None:
    store = MemoryStore()  # in place of a Redis client
    accounts = [f"account-{number}" for number in range(100)]
    with RingNode(store, "accounts", name="a") as a, RingNode(store, "accounts", name="b") as b:
        b.update()
        a.update()
        assert sorted(work(a, accounts) + work(b, accounts)) == sorted(accounts)


def test_a_ring_as_a_value_needs_no_node() -> None:
    ring = ring_of("""
        a: 0
        b: 2_147_483_648
    """)
    assert ring.owner("hello") == "a"
