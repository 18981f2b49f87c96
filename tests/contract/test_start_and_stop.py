"""Starts and stops that meet each other, or the end of what they run on."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import suppress
from typing import Any, cast

import gevent
import pytest
import redis
import redis.asyncio

from hashring import (
    AsyncPartitionGroup,
    AsyncRingNode,
    NodeState,
    NodeStateError,
    PartitionGroup,
    RingNode,
    async_lease_challenge,
    lease_challenge,
)
from hashring.node.node_runner import Runner
from hashring.protocol.node.own_ranges_machine import OwnRangesMachine
from hashring.running.native_threads import ThreadBackend
from hashring.store.embedded_server import RedisServer
from hashring.store.ring.commands import Scoring
from hashring.store.ring.key_names import ring_keys
from hashring.store.ring.snapshot import snapshot
from hashring.testing import MemoryStore
from tests.conftest import PATIENCE, eventually


def test_a_start_between_two_lines_of_a_stop_is_of_a_node_that_runs() -> None:
    node = RingNode(MemoryStore(), "meeting")
    about, started = threading.Event(), threading.Event()

    def pause(frame: Any, event: str, argument: Any) -> Any:
        if frame.f_code.co_name == "_forget_runner" and event == "line":
            about.set()
            started.wait(0.5)
        return pause

    def stop() -> None:
        sys.settrace(pause)
        node.stop()

    node.start()
    stopping = threading.Thread(target=stop)
    stopping.start()
    about.wait()
    node.start()
    started.set()
    stopping.join()
    with pytest.raises(NodeStateError, match="runs already"):
        node.start()
    node.stop()


def test_a_start_whose_node_was_stopped_and_started_again_meanwhile_raises() -> None:
    node = RingNode(MemoryStore(), "meeting")
    about, again = threading.Event(), threading.Event()
    errors = []

    def pause(frame: Any, event: str, argument: Any) -> Any:
        runner = frame.f_locals.get("runner") if frame.f_code.co_name == "start" else None
        if runner is not None and runner.settled.is_set():
            about.set()
            again.wait(PATIENCE)
        return pause

    def start() -> None:
        sys.settrace(pause)
        try:
            node.start()
        except NodeStateError as error:
            errors.append(str(error))

    starting = threading.Thread(target=start)
    starting.start()
    assert about.wait(PATIENCE)
    node.stop()
    node.start()
    again.set()
    starting.join()
    assert errors == [f"node {node.name!r} was stopped while it started"]
    assert node.state is NodeState.LIVE
    node.stop()


_NO_THREAD = RuntimeError("can't start new thread")


@pytest.mark.parametrize(
    ("start", "broken", "error"),
    [
        (RingNode.start, (ThreadBackend, "spawn"), _NO_THREAD),
        (RingNode.start, (ThreadBackend, "spawn"), KeyboardInterrupt()),
        (RingNode.poll, (Runner, "run"), KeyboardInterrupt()),
    ],
    ids=["no thread", "Ctrl-C in start", "Ctrl-C in poll"],
)
@pytest.mark.parametrize("call", ["stop", "heartbeat"])
def test_a_loop_that_never_begins_keeps_nobody_waiting(
    monkeypatch: pytest.MonkeyPatch,
    start: Callable[[RingNode], None],
    broken: tuple[type, str],
    error: BaseException,
    call: str,
) -> None:
    waits = "wait" if call == "stop" else "ask"
    node, begun, launched = RingNode(MemoryStore(), "meeting"), threading.Event(), threading.Event()
    wait = getattr(Runner, waits)

    def begin_to_wait(runner: Runner, *arguments: Any) -> Any:
        begun.set()
        return wait(runner, *arguments)

    def begin_loop(*_: object) -> None:
        launched.set()
        assert begun.wait(PATIENCE)
        raise error

    def ask() -> None:
        assert launched.wait(PATIENCE)
        with suppress(NodeStateError):
            getattr(node, call)()

    monkeypatch.setattr(Runner, waits, begin_to_wait)
    monkeypatch.setattr(*broken, begin_loop)
    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    with pytest.raises(type(error)):
        start(node)
    asking.join(PATIENCE)
    assert not asking.is_alive()
    assert node.state is NodeState.STOPPED


class _Garbling(MemoryStore):
    """A store whose answers to heartbeats no node can read, until it is mended."""

    mended = False

    def run(self, command: Any) -> Any:
        reply = super().run(command)
        return None if command.script.name == "beat" and not self.mended else reply


def _in_greenlets(node: RingNode) -> None:
    # A greenlet waits, not the hub's own: it has to go on meanwhile.
    gevent.spawn(node.gevent_start).get()


@pytest.mark.parametrize("follow", [False, True])
@pytest.mark.parametrize("start", [RingNode.start, _in_greenlets])
def test_a_start_raises_a_fault_of_this_package_and_leaves_nothing_behind(
    start: Callable[[RingNode], None], follow: bool
) -> None:
    store = _Garbling()
    node = RingNode(store, "meeting", follow=follow)
    with pytest.raises(AttributeError, match="'NoneType' object has no attribute 'status'"):
        start(node)
    assert node.state is NodeState.FAILED
    assert not store.run(snapshot(ring_keys("meeting"), scoring=Scoring.expiry(60.0))).replicas
    store.mended = True
    start(node)
    assert node.state is NodeState.LIVE
    node.stop()


def test_an_asyncio_start_raises_a_fault_of_this_package_and_leaves_nothing_behind() -> None:
    async def main() -> None:
        store = _Garbling()
        node = AsyncRingNode(store, "meeting")
        with pytest.raises(AttributeError, match="'NoneType' object has no attribute 'status'"):
            await node.start()
        look = snapshot(ring_keys("meeting"), scoring=Scoring.expiry(60.0))
        assert not store.run(look).replicas
        store.mended = True
        async with node:
            assert node.state is NodeState.LIVE

    here(main())


@pytest.mark.parametrize("kind", [RingNode, AsyncRingNode])
def test_a_stop_ends_whatever_fault_of_this_package_it_meets(
    monkeypatch: pytest.MonkeyPatch, kind: type[RingNode] | type[AsyncRingNode]
) -> None:
    def broken(*_: object) -> None:
        raise LookupError("as nobody expected")

    monkeypatch.setattr(OwnRangesMachine, "leave_step", broken)
    node = kind(MemoryStore(), "meeting", ttl=1.0, heartbeat_interval=0.5)
    if isinstance(node, AsyncRingNode):
        here(_start_and_stop(node))
        return
    node.start()

    def stop() -> None:
        with pytest.raises(LookupError, match="as nobody expected"):
            node.stop()

    stopping = threading.Thread(target=stop, daemon=True)
    stopping.start()
    stopping.join(PATIENCE)
    assert not stopping.is_alive()


async def _start_and_stop(node: AsyncRingNode) -> None:
    await node.start()
    await node.stop()


def test_a_heartbeat_raises_a_fault_of_this_package() -> None:
    store = _Garbling()
    store.mended = True
    with RingNode(store, "meeting") as node:
        store.mended = False
        with pytest.raises(AttributeError, match="'NoneType' object has no attribute 'status'"):
            node.heartbeat()
        store.mended = True


# A process of its own: asyncio warns of the tasks of a loop that was closed under them.
_PROGRAM = """
import asyncio, sys
import redis.asyncio
from hashring import AsyncPartitionGroup, AsyncRingNode

async def run(one):
    async with one:
        pass

kept = []

async def start(one):
    await one.start()
    if sys.argv[2] == "node with a lease":
        kept.append(one.hold(f"key-{len(kept)}"))
        lease = await kept[-1].__aenter__()
        kept.append(asyncio.create_task(lease.lost.wait()))
        await asyncio.sleep(0)

client = redis.asyncio.Redis.from_url(sys.argv[1])
if sys.argv[2] != "group":
    one = AsyncRingNode(client, "meeting", name="a", lock=True)
else:
    one = AsyncPartitionGroup(client, "meeting", partitions=4, member="a")
for end in (one.stop(), run(one)):
    if sys.argv[3] == "with its tasks":
        asyncio.run(start(one))
    else:
        loop = asyncio.new_event_loop()
        loop.run_until_complete(start(one))
        loop.close()
    asyncio.run(asyncio.wait_for(end, 60))
    assert not (one.held if sys.argv[2] == "group" else one.get_ranges())
print("all ended")
"""


@pytest.mark.parametrize("closed", ["with its tasks", "under its tasks"])
@pytest.mark.parametrize("kind", ["node", "node with a lease", "group"])
def test_one_whose_event_loop_was_closed_is_stopped_and_started_in_another(
    redis_server: RedisServer, kind: str, closed: str
) -> None:
    program = [sys.executable, "-c", _PROGRAM, redis_server.url, kind, closed]
    done = subprocess.run(program, capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout == "all ended\n", done.stderr


@pytest.fixture
def elsewhere() -> Iterator[asyncio.AbstractEventLoop]:
    """An event loop that runs in another thread."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    yield loop
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


def done(work: Coroutine[Any, Any, Any], loop: asyncio.AbstractEventLoop) -> Any:
    """What a coroutine returns that an event loop of another thread runs."""
    return asyncio.run_coroutine_threadsafe(work, loop).result(PATIENCE)


def here(work: Coroutine[Any, Any, Any]) -> Any:
    """What a coroutine returns that an event loop of this thread runs."""
    return asyncio.run(asyncio.wait_for(work, PATIENCE))


@pytest.fixture
def node(
    redis_server: RedisServer, elsewhere: asyncio.AbstractEventLoop
) -> Iterator[AsyncRingNode]:
    """A node with locks in that event loop; only what is asked of it makes it beat."""
    client = redis.asyncio.Redis.from_url(redis_server.url)
    made = AsyncRingNode(client, "meeting", lock=True, ttl=120.0, heartbeat_interval=50.0)
    done(made.start(), elsewhere)
    yield made
    done(made.stop(), elsewhere)


def test_a_member_whose_event_loop_runs_in_another_thread_is_stopped_from_this_one(
    elsewhere: asyncio.AbstractEventLoop,
) -> None:
    member = AsyncPartitionGroup(MemoryStore(), "meeting", 4, on_assigned=lambda *_: None)
    done(member.start(), elsewhere)
    here(member.stop())
    assert not member.running


def test_a_node_whose_event_loop_runs_in_another_thread_is_stopped_from_this_one(
    redis_server: RedisServer, node: AsyncRingNode
) -> None:
    here(node.stop())
    assert node.state is NodeState.STOPPED
    with redis.Redis.from_url(redis_server.url) as client:
        assert client.zcard("meeting") == 0


def test_of_two_event_loops_that_start_a_node_at_the_same_moment_one_does(
    elsewhere: asyncio.AbstractEventLoop,
) -> None:
    both = threading.Barrier(2)

    class Meeting(AsyncRingNode):
        """A node whose starts wait for each other, if both may come so far."""

        def _make_store(self) -> Any:
            with suppress(threading.BrokenBarrierError):
                both.wait(0.2)
            return super()._make_store()

    one = Meeting(MemoryStore(), "meeting", name="a")
    second = asyncio.run_coroutine_threadsafe(one.start(), elsewhere)

    async def first() -> list[BaseException | None]:
        return await asyncio.gather(
            one.start(), asyncio.wrap_future(second), return_exceptions=True
        )

    errors = [error for error in here(first()) if error is not None]
    assert [type(error) for error in errors] == [NodeStateError]
    done(one.stop(), elsewhere)


def test_a_start_that_was_stopped_does_not_report_what_became_of_the_next_one() -> None:
    one = AsyncRingNode(MemoryStore(), "meeting", name="a")
    first_home = asyncio.new_event_loop()
    stopped, started = threading.Event(), threading.Event()
    errors: list[BaseException | None] = []

    def busy() -> None:
        stopped.wait(PATIENCE)
        # The loop ends the run in its next turn, and tells start() one turn later.
        first_home.call_soon(first_home.call_soon, started.wait, PATIENCE)

    async def first() -> None:
        starting = asyncio.create_task(one.start())
        first_home.call_soon(busy)
        errors.extend(await asyncio.gather(starting, return_exceptions=True))

    async def second() -> None:
        while one._run is None:
            await asyncio.sleep(0)
        stopping = asyncio.create_task(one.stop())
        await asyncio.sleep(0)
        stopped.set()
        await stopping
        await one.start()
        started.set()

    thread = threading.Thread(target=first_home.run_until_complete, args=(first(),))
    thread.start()
    here(second())
    thread.join(PATIENCE)
    assert [type(error) for error in errors] == [NodeStateError]


def test_a_node_whose_event_loop_does_not_run_leaves_when_it_does(
    redis_server: RedisServer,
) -> None:
    loop = asyncio.new_event_loop()
    one = AsyncRingNode(redis.asyncio.Redis.from_url(redis_server.url), "meeting")
    loop.run_until_complete(one.start())
    here(one.stop())
    assert not one.get_ranges()
    loop.run_until_complete(one.stop())
    assert one.state is NodeState.STOPPED
    loop.close()


def test_a_thread_beside_the_event_loop_asks_for_locked_keys(node: AsyncRingNode) -> None:
    eventually(lambda: node.contains("key"), "its lock is taken by the event loop")


def test_a_weight_that_a_thread_assigns_is_taken_up_at_once(
    redis_server: RedisServer, node: AsyncRingNode
) -> None:
    node.weight = 2.0
    with redis.Redis.from_url(redis_server.url) as client:
        eventually(lambda: client.zcard("meeting") == 2 * node.n_replicas, "it has more points")


@pytest.mark.parametrize(
    "ask",
    [
        lambda node: node.select(["key"]),
        lambda node: node.hold("key").__aenter__(),
        lambda node: node.drain(force=True),
        lambda node: node.undrain(),
    ],
    ids=["select", "hold", "drain", "undrain"],
)
def test_what_only_the_nodes_own_event_loop_can_do_is_refused_in_another(
    node: AsyncRingNode, ask: Callable[[AsyncRingNode], Coroutine[Any, Any, Any]]
) -> None:
    with pytest.raises(NodeStateError, match="runs in another event loop: make this call there"):
        here(ask(node))


def test_members_answer_in_several_event_loops(
    redis_server: RedisServer, elsewhere: asyncio.AbstractEventLoop
) -> None:
    client = redis.asyncio.Redis.from_url(redis_server.url)
    member = AsyncPartitionGroup(client, "meeting", 4, member="a")
    done(member.start(), elsewhere)
    told = [done(member.status(), elsewhere), here(member.status()), here(member.status())]
    assert [[each.name for each in status.members] for status in told] == 3 * [["a"]]
    here(member.stop())


def test_a_question_in_another_event_loop_leaves_no_connection(
    redis_server: RedisServer, elsewhere: asyncio.AbstractEventLoop
) -> None:
    async def main() -> None:
        asked = redis.asyncio.Redis.from_url(redis_server.url, client_name="asked")
        member = AsyncPartitionGroup(asked, "meeting", 4)
        async with member:
            await asyncio.to_thread(eventually, listens, "it has all its own connections")
            before = connected()
            # The first question of all.
            await asyncio.to_thread(done, member.status(), elsewhere)
            await asyncio.to_thread(eventually, lambda: connected() == before, "it is closed")

    def listens() -> bool:
        with redis.Redis.from_url(redis_server.url) as client:
            return bool(client.pubsub_channels())

    def connected() -> int:
        with redis.Redis.from_url(redis_server.url) as client:
            return sum(each["name"] == "asked" for each in client.client_list())

    here(main())


def test_an_asyncio_start_that_was_given_up_is_tried_again() -> None:
    async def main() -> None:
        for one in (AsyncPartitionGroup, AsyncRingNode, async_lease_challenge):
            made = one(MemoryStore(), "meeting", *([] if one is AsyncRingNode else [4]))
            for _ in range(3):
                given_up = asyncio.create_task(made.start())
                await asyncio.sleep(0)
                given_up.cancel()
                await asyncio.wait([given_up])
                assert given_up.cancelled()
            await made.start()
            await made.stop()

    here(main())


class _Held(MemoryStore):
    """A store that answers only while ``answers`` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.answers = threading.Event()

    def run(self, command: Any) -> Any:
        assert self.answers.wait(PATIENCE)
        return super().run(command)


@pytest.mark.parametrize("make", [PartitionGroup, RingNode, lease_challenge])
def test_a_greenlet_start_that_was_given_up_is_tried_again(make: Callable[..., Any]) -> None:
    store = _Held()
    made = make(store, "meeting", *([] if make is RingNode else [4]))
    for _ in range(3):
        store.answers.clear()
        given_up = gevent.spawn(made.gevent_start)
        gevent.sleep(0)
        given_up.kill(block=False)
        gevent.sleep(0)
        # The next start meets what is left of this one, at whatever point it is.
        store.answers.set()
        given_up.join()
        assert isinstance(given_up.value, gevent.GreenletExit)
    made.gevent_start()
    made.stop()


def test_a_member_that_runs_is_not_started_again() -> None:
    with (
        PartitionGroup(MemoryStore(), "meeting", 4) as member,
        pytest.raises(NodeStateError, match=r"call stop\(\) before starting it again"),
    ):
        member.start()


def test_an_asyncio_node_that_cannot_be_made_ready_has_not_started(
    redis_server: RedisServer,
) -> None:
    client = redis.asyncio.Redis.from_url(redis_server.url, socket_timeout="soon")
    one = AsyncRingNode(client, "meeting")
    with pytest.raises(ValueError, match="soon"):
        here(one.start())
    assert one.state is NodeState.NEW


def test_a_question_that_outlasts_the_stop_leaves_no_connection(redis_server: RedisServer) -> None:
    class Store:
        """One that answers a question once ``answers`` is set."""

        def __init__(self) -> None:
            self.asked, self.answers, self.closed = asyncio.Event(), asyncio.Event(), 0

        async def run(self, command: object) -> None:
            self.asked.set()
            await self.answers.wait()

        async def close(self) -> None:
            self.closed += 1

    async def main() -> None:
        member = AsyncPartitionGroup(redis.asyncio.Redis.from_url(redis_server.url), "meeting", 4)
        store: Any = Store()
        member._asking = asyncio.get_running_loop(), store
        asking = asyncio.create_task(member._ask_redis(cast(Any, None)))
        await store.asked.wait()
        await member._close_asking()
        store.answers.set()
        await asking
        assert store.closed == 2

    asyncio.run(main())
