"""A store in memory in the place of an asyncio client."""

from __future__ import annotations

import asyncio

from hashring import AsyncRingNode, RingNode
from hashring.store.async_memory_store import AsyncMemoryStore
from hashring.store.interface import Answered, Message, Subscribed
from hashring.testing import MemoryServer, MemoryStore
from tests.conftest import PATIENCE

KEYS = [f"account-{number}" for number in range(100)]


async def until(found: asyncio.Event) -> None:
    await asyncio.wait_for(found.wait(), PATIENCE)


def test_nodes_share_the_keys_and_hear_of_each_other() -> None:
    async def main() -> None:
        store, lost = MemoryStore(), asyncio.Event()
        async with AsyncRingNode(
            store, "accounts", name="a", on_change=lambda gained, gone: gone and lost.set()
        ) as a:
            assert all(map(a.contains, KEYS))
            async with AsyncRingNode(store, "accounts", name="b") as b:
                await until(lost)
                mine = [key for key in KEYS if a.contains(key)]
                assert sorted(mine + [key for key in KEYS if b.contains(key)]) == sorted(KEYS)
                assert await a.fetch_owner(mine[0]) == "a"
                assert (await b.fetch_ring()).node_count == 2

    asyncio.run(main())


def test_it_hears_a_node_of_a_thread() -> None:
    async def main() -> None:
        store, lost = MemoryStore(), asyncio.Event()
        async with AsyncRingNode(
            store, "accounts", on_change=lambda gained, gone: gone and lost.set()
        ):
            thread = RingNode(store, "accounts", name="thread")
            await asyncio.to_thread(thread.start)
            await until(lost)
            await asyncio.to_thread(thread.stop)

    asyncio.run(main())


def test_a_locked_key_is_held_and_handed_over() -> None:
    async def main() -> None:
        store = MemoryStore()
        async with AsyncRingNode(store, "accounts", name="a", lock=True) as a:
            assert await a.select(KEYS) == KEYS
            async with a.hold(KEYS[0]) as lease:
                assert lease.token
        async with AsyncRingNode(store, "accounts", name="b", lock=True) as b:
            assert await b.select(KEYS) == KEYS

    asyncio.run(main())


def test_a_subscription_hears_and_is_silent_and_is_closed() -> None:
    async def main() -> None:
        server = MemoryServer()
        subscription = await AsyncMemoryStore(MemoryStore(server)).subscribe(b"changes")
        assert isinstance(await subscription.wait(PATIENCE), Subscribed)
        assert await subscription.wait(0) is None
        await asyncio.to_thread(server.publish, b"changes", b"a change")
        assert await subscription.wait(PATIENCE) == Message(b"changes", b"a change")
        await subscription.ask()
        assert isinstance(await subscription.wait(PATIENCE), Answered)
        await subscription.close()
        assert server.publish(b"changes", b"another") == 0

    asyncio.run(main())


def test_a_message_to_an_event_loop_that_was_closed_harms_nobody() -> None:
    server = MemoryServer()
    subscribing = AsyncMemoryStore(MemoryStore(server)).subscribe(b"changes")
    asyncio.run(subscribing)
    assert server.publish(b"changes", b"a change") == 1
