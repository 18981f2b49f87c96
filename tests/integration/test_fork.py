"""A forked child: another node than its parent's, or an error that says so. The parent goes on."""

from __future__ import annotations

import socket
import textwrap
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from redis import Redis

from hashring.store.embedded_server import RedisServer
from tests.programs import python
from tests.tls import server_tls

pytestmark = pytest.mark.one_server

ROOT = Path(__file__).parents[2]

HEAD = """
import sys
PATCHED = {patched!r}
if PATCHED:
    from gevent import monkey
    monkey.patch_all()
import multiprocessing, os, random, threading, time
from redis import Redis
if not {told}:
    os.register_at_fork = lambda **handlers: None
from hashring import NodeForked, PartitionGroup, RingNode
if {gevent!r} and not PATCHED:
    import gevent, gevent.os
    fork, sleep, waitpid = gevent.os.fork, gevent.sleep, gevent.os.waitpid
else:
    fork, sleep, waitpid = os.fork, time.sleep, os.waitpid
if {gevent!r}:
    # gevent's fork watches the child, and gevent's waitpid says what came of it; but on a busy
    # machine a bare gevent never hears of one child in a thousand. So the system is asked as well.
    from gevent.monkey import get_original
    heard, ask = waitpid, get_original("os", "waitpid")
    def waitpid(pid, options):
        try:
            return ask(pid, options)
        except ChildProcessError:
            return heard(pid, options)
redis = Redis.from_url({url!r})
START = "gevent_start" if {gevent!r} else "start"
def node(**settings):
    return RingNode(redis, "ring", ttl=3, heartbeat_interval=0.3, **settings)
def begin(node):
    getattr(node, START)()
def eventually(holds):
    end = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < end, "not within 30 s"
        sleep(0.01)
def in_child(run):
    pid = fork()
    if pid:
        return pid
    code = 1
    try:
        run()
        code = 0
    except BaseException:
        import traceback
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)
def wait(pid):
    status = []
    def ended():
        if not status:
            done, code = waitpid(pid, os.WNOHANG)
            if done:
                status.append(code)
        return status
    eventually(ended)
    assert status[0] == 0, status
"""

RUNNERS = ("thread", "greenlet", "greenlet-patched")


@pytest.fixture(params=RUNNERS)
def runner(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def run(runner: str, server: RedisServer, text: str, *, told: bool = True) -> None:
    """Run a program that forks.

    Args:
        told: whether hashring hears of forks. Python always does: a child of which Python has not
            heard may hang, if the parent has other threads.
    """
    head = HEAD.format(
        url=server.url,
        gevent=runner.startswith("greenlet"),
        patched=runner.endswith("-patched"),
        told=told,
    )
    done = python("-c", head + textwrap.dedent(text))
    assert done.returncode == 0, done.stderr
    with Redis.from_url(server.url) as client:
        assert client.zcard("ring") == 0


def test_a_child_of_a_running_node_is_refused_until_it_starts_as_a_node_of_its_own(
    runner: str, redis_server: RedisServer
) -> None:
    run(
        runner,
        redis_server,
        """
        parent = node()
        begin(parent)
        def child():
            name = parent.name
            for ask in (lambda: parent.contains("key"), parent.heartbeat):
                try:
                    ask()
                except NodeForked as error:
                    assert str(os.getppid()) in str(error) and "call start()" in str(error)
                else:
                    raise AssertionError("it answered")
            assert parent.get_ranges() == ()
            assert parent.owner("key") == name  # by the parent's last ring
            begin(parent)
            assert parent.name != name
            eventually(lambda: parent.get_node_count() == 2)
            parent.stop()
        wait(in_child(child))
        beats = parent.status.heartbeats
        eventually(lambda: parent.get_node_count() == 1 and parent.contains("key"))
        eventually(lambda: parent.status.heartbeats > beats)
        assert parent.status.fences == 0
        parent.stop()
        """,
    )


def test_a_lease_of_the_parents_is_lost_in_the_child_and_goes_on_in_the_parent(
    runner: str, redis_server: RedisServer
) -> None:
    run(
        runner,
        redis_server,
        """
        from hashring import LeaseLost
        parent = node(lock=True)
        begin(parent)
        with parent.hold("key") as lease:
            def child():
                assert lease.lost.wait(30)
                try:
                    lease.check()
                except LeaseLost as error:
                    assert "the lease was lost" in str(error), error
                else:
                    raise AssertionError("it lasts")
            wait(in_child(child))
            lease.check()
            assert not lease.lost.is_set()
        parent.stop()
        """,
    )


def test_stop_in_a_child_leaves_the_parents_node_alone(
    runner: str, redis_server: RedisServer
) -> None:
    """A child has its parent's signal handlers, and leaves its parent's ``with`` blocks."""
    run(
        runner,
        redis_server,
        """
        for settings in ({}, {"name": "worker-1"}):
            redis.flushall()
            parent = node(**settings)
            begin(parent)
            members = redis.zrange("ring", 0, -1)
            def child():
                parent.stop()
                parent.stop()
                try:
                    parent.contains("key")
                except NodeForked:
                    pass
                else:
                    raise AssertionError("it answered")
            wait(in_child(child))
            assert redis.zrange("ring", 0, -1) == members
            assert redis.xlen("{ring}:events") == 1
            assert parent.contains("key") and parent.state.value == "live"
            parent.stop()
        """,
    )


def test_a_child_that_goes_on_neither_beats_nor_listens_for_its_parent(
    runner: str, redis_server: RedisServer
) -> None:
    run(
        runner,
        redis_server,
        """
        parent = node()
        begin(parent)
        subscriptions = parent.status.subscriptions
        def child():
            # Longer than a heartbeat, and through joins that only one process may hear of.
            before = parent.status
            for _ in range(20):
                sleep(0.05)
            after = parent.status
            assert after.heartbeats == before.heartbeats
            assert (after.epoch, after.gaps) == (before.epoch, before.gaps)
        pid = in_child(child)
        others = []
        for _ in range(5):
            other = node()
            begin(other)
            others.append(other)
            eventually(lambda: parent.get_node_count() == len(others) + 1)
        wait(pid)
        for other in others:
            other.stop()
        eventually(lambda: parent.contains("key"))
        assert parent.status.bad_messages == 0
        assert parent.status.subscriptions == subscriptions
        parent.stop()
        """,
    )


def test_a_child_of_whose_fork_nobody_told_starts_as_itself(
    redis_server: RedisServer,
) -> None:
    """As a worker of uWSGI, which runs Python's own fork handlers only on request."""
    run(
        "thread",
        redis_server,
        """
        runs, later = node(lock=True), node()
        group = PartitionGroup(redis, "orders", 4, ttl=3, heartbeat_interval=0.3, rebalance_delay=0)
        joined = PartitionGroup(redis, "feeds", 4, ttl=3, heartbeat_interval=0.3, rebalance_delay=0)
        begin(runs)
        joined.start()
        eventually(lambda: all(map(joined.owns, range(4))))
        def child():
            runs.stop()
            joined.stop()
            for refused in (lambda: runs.select(["key"]), lambda: runs.hold("key").__enter__()):
                try:
                    refused()
                except NodeForked:
                    continue
                raise AssertionError("not refused")
            for own in (runs, later):
                begin(own)
                assert f":{os.getpid()}" in own.name, own.name
            group.start()
            assert str(os.getpid()) in group.member
            eventually(lambda: any(map(group.owns, range(4))))
            group.stop()
            for own in (runs, later):
                own.stop()
        for pid in [in_child(child) for _ in range(2)]:
            wait(pid)
        assert runs.status.failing_for is None
        assert all(map(joined.owns, range(4)))
        joined.stop()
        runs.stop()
        """,
        told=False,
    )


FORKED_BEHIND = """
        nodes = [node(lock=True) for _ in range(4)]
        for each in nodes:
            begin(each)
        def is_the_parent_s(each):
            try:
                each.select(["key"])
            except NodeForked:
                return True
            return False
"""


def test_a_child_whose_look_at_what_it_inherits_is_interrupted_looks_again(
    redis_server: RedisServer,
) -> None:
    run(
        "thread",
        redis_server,
        f"""{FORKED_BEHIND}
        def child():
            abandon, interrupts = type(nodes[0])._abandon, iter([KeyboardInterrupt])
            def interrupted(each):
                for interrupt in interrupts:
                    raise interrupt
                abandon(each)
            type(nodes[0])._abandon = interrupted
            try:
                is_the_parent_s(nodes[0])
            except KeyboardInterrupt:
                assert all(map(is_the_parent_s, nodes))
                return
            raise AssertionError("not interrupted")
        wait(in_child(child))
        for each in nodes:
            each.stop()
        """,
        told=False,
    )


def test_a_thread_of_a_child_waits_while_another_looks_at_what_it_inherits(
    redis_server: RedisServer,
) -> None:
    run(
        "thread",
        redis_server,
        f"""{FORKED_BEHIND}
        def child():
            abandon = type(nodes[0])._abandon
            looks, goes_on = threading.Event(), threading.Event()
            def slow(each):
                looks.set()
                goes_on.wait()
                abandon(each)
            type(nodes[0])._abandon = slow
            first = threading.Thread(target=is_the_parent_s, args=(nodes[0],))
            first.start()
            looks.wait()
            found = []
            others = [
                threading.Thread(target=lambda each=each: found.append(is_the_parent_s(each)))
                for each in nodes
            ]
            for other in others:
                other.start()
            others[0].join(0.5)
            goes_on.set()
            for thread in (first, *others):
                thread.join()
            assert found == [True] * len(nodes), found
        wait(in_child(child))
        for each in nodes:
            each.stop()
        """,
        told=False,
    )


@pytest.mark.parametrize("end", ["sys.exit(0)", "await asyncio.sleep(1)"])
def test_a_child_that_leaves_the_event_loop_of_its_parent_by_an_exception_does_no_harm(
    redis_server: RedisServer, end: str
) -> None:
    run(
        "thread",
        redis_server,
        f"""
        import asyncio
        from redis.asyncio import Redis as AsyncRedis
        from hashring import AsyncRingNode
        keys = [str(number) for number in range(20)]
        def locks():
            return redis.mget(["{{ring}}:lock:" + key for key in keys])
        async def main():
            client = AsyncRedis.from_url({redis_server.url!r})
            parent = AsyncRingNode(client, "ring", ttl=3, heartbeat_interval=0.3, lock=True)
            async with parent:
                assert await parent.select(keys) == keys
                held = locks()
                pid = os.fork()
                if not pid:
                    {end}
                # The child's own end of the loop takes this one its self-pipe: it has timers alone.
                while not os.waitpid(pid, os.WNOHANG)[0]:
                    await asyncio.sleep(0.01)
                assert locks() == held
                beats = parent.status.heartbeats
                while parent.status.heartbeats < beats + 3:
                    await asyncio.sleep(0.01)
                assert await parent.select(keys) == keys
                assert locks() == held
                assert redis.xlen("{{ring}}:events") == 1
                status = parent.status
                assert (status.failures, status.subscriptions) == (0, 1), status
        asyncio.run(main())
        """,
    )


@pytest.mark.parametrize(
    "body",
    ["__eq__ = lambda one, other: True; __hash__ = lambda one: 1", "__hash__ = None"],
    ids=["all equal", "no hash"],
)
def test_a_child_knows_every_node_of_its_parent_though_a_subclass_says_which_are_equal(
    redis_server: RedisServer, body: str
) -> None:
    run(
        "thread",
        redis_server,
        f"""
        class Own(RingNode):
            {body}
        parents = [Own(redis, name, ttl=60, heartbeat_interval=10) for name in "ab"]
        for parent in parents:
            begin(parent)
        def child():
            for parent in parents:
                try:
                    parent.contains("key")
                except NodeForked:
                    continue
                raise AssertionError("it is the child's")
        wait(in_child(child))
        for parent in parents:
            parent.stop()
        """,
    )


def test_a_child_does_not_wait_for_a_callback_of_its_parent(
    runner: str, redis_server: RedisServer
) -> None:
    run(
        runner,
        redis_server,
        """
        calls, returns = [], []
        def on_change(gained, lost):
            calls.append(os.getpid())
            if len(calls) == 1:
                eventually(lambda: returns)
        parent = node(on_change=on_change)
        begin(parent)
        eventually(lambda: calls)
        def child():
            begin(parent)
            eventually(lambda: os.getpid() in calls)
            parent.stop()
        wait(in_child(child))
        returns.append(True)
        parent.stop()
        """,
    )


def test_a_child_makes_no_call_that_a_greenlet_of_its_parent_is_making(
    redis_server: RedisServer,
) -> None:
    run(
        "greenlet-patched",
        redis_server,
        f"""
        import gevent, logging, signal
        from hashring.running.calls_at_once import CALLS_AT_ONCE
        said = []
        handler = logging.Handler()
        handler.emit = said.append
        parent = RingNode(redis, "ring", lock=True)
        begin(parent)
        os.kill({redis_server.pid}, signal.SIGSTOP)
        try:
            # One has a connection that stands, others make one, and the last wait for their turn.
            keys = [str(number) for number in range(CALLS_AT_ONCE + 8)]
            asking = [gevent.spawn(parent.contains, key) for key in keys]
            beating = gevent.spawn(parent.heartbeat)
            eventually(lambda: len(parent._calls._calling) == len(keys))
            def child():
                logging.getLogger("hashring").addHandler(handler)
                eventually(lambda: beating.dead and all(each.dead for each in asking))
                assert all(isinstance(each.exception, NodeForked) for each in asking)
                assert not said
            pid = in_child(child)
        finally:
            os.kill({redis_server.pid}, signal.SIGCONT)
        # The hub of the parent stands still until the child has ended.
        assert ask(pid, 0)[1] == 0
        assert all(each.get() for each in asking)
        beating.get()
        assert parent.status.failures == 0
        parent.stop()
        """,
    )


def test_a_child_does_not_take_up_an_answer_that_its_parent_was_about_to_read(
    redis_server: RedisServer,
) -> None:
    run(
        "greenlet-patched",
        redis_server,
        """
        import gevent.os, logging
        said = []
        handler = logging.Handler()
        handler.emit = said.append
        parent = node()
        begin(parent)
        pool = parent._calls.store._client.connection_pool
        reading, writing = os.pipe()
        gevent.os.make_nonblocking(reading)
        def waiting():
            return [each._sock for each in pool._in_use_connections if each._outstanding]
        def child():
            logging.getLogger("hashring").addHandler(handler)
            sleep(0.1)
            assert parent.get_ranges() == ()
            assert not said
        for _ in range(5):
            beating = gevent.spawn(parent.heartbeat)
            eventually(waiting)
            # The hub finds the answer and the byte at once, and goes on here first.
            get_original("select", "select")(waiting(), [], [])
            os.write(writing, b".")
            gevent.os.nb_read(reading, 1)
            assert ask(in_child(child), 0)[1] == 0
            beating.get()
        parent.stop()
        """,
    )


def test_a_child_sends_nothing_on_a_connection_that_its_parent_made(
    redis_server: RedisServer,
) -> None:
    run(
        "thread",
        redis_server,
        """
        from hashring.store.connections_in_step import in_step
        given = redis.connection_pool
        made = in_step(given.connection_class, "redis")(**given.connection_kwargs)
        made.connect()
        def child():
            try:
                made.send_command("PING")
            except ConnectionResetError as error:
                assert "parent process" in str(error)
            else:
                raise AssertionError("it was sent")
        wait(in_child(child))
        made.send_command("PING")
        assert made.read_response() in (b"PONG", "PONG")
        made.disconnect()
        """,
    )


def test_a_child_takes_no_part_in_a_handshake_of_tls_that_its_parent_began(
    redis_server: RedisServer,
) -> None:
    _, context = server_tls()
    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor() as threads:

        def serve() -> None:
            raw, _ = listener.accept()
            with raw:
                # A second connection says that the child has ended.
                listener.accept()[0].close()
                context.wrap_socket(raw, server_side=True).close()

        served = threads.submit(serve)
        run(
            "greenlet-patched",
            redis_server,
            f"""
            import gevent, socket
            from redis import SSLConnection
            from hashring.store.connections_in_step import in_step
            port = {listener.getsockname()[1]}
            made = in_step(SSLConnection, "redis")(
                host="127.0.0.1", port=port, ssl_cert_reqs="none", ssl_check_hostname=False
            )
            node()
            connecting = gevent.spawn(made.connect)
            eventually(lambda: made._shaking)
            pid = in_child(lambda: eventually(lambda: connecting.dead))
            assert ask(pid, 0)[1] == 0
            socket.create_connection(("127.0.0.1", port)).close()
            connecting.join()
            """,
        )
        served.result()


def test_a_child_of_a_named_node_says_that_the_name_is_the_parents(
    runner: str, redis_server: RedisServer
) -> None:
    run(
        runner,
        redis_server,
        """
        parent = node(name="worker-1")
        begin(parent)
        def child():
            try:
                begin(parent)
            except NodeForked as error:
                assert "in this child make another node, with another name" in str(error)
            else:
                raise AssertionError("it started")
        wait(in_child(child))
        assert parent.contains("key") and parent.state.value == "live"
        parent.stop()
        """,
    )


def test_a_node_that_does_not_run_belongs_to_whoever_starts_it(
    runner: str, redis_server: RedisServer
) -> None:
    run(
        runner,
        redis_server,
        """
        for ran_before in (False, True):
            redis.flushall()
            made = node()
            if ran_before:
                begin(made)
                made.stop()
            pid = in_child(lambda: (begin(made), eventually(lambda: made.ring.node_count == 2),
                                    eventually(lambda: redis.exists("seen")), made.stop()))
            begin(made)
            eventually(lambda: made.get_node_count() == 2)
            redis.set("seen", 1)
            wait(pid)
            eventually(lambda: made.contains("key"))
            made.stop()
        """,
    )


def test_multiprocessing_children_are_nodes_of_their_own(redis_server: RedisServer) -> None:
    run(
        "thread",
        redis_server,
        """
        made = node()
        begin(made)
        def work(wanted, seen, ended):
            begin(made)
            eventually(lambda: made.get_node_count() == wanted)
            seen.release()
            ended.wait(30)
            made.stop()
        fork_context = multiprocessing.get_context("fork")
        seen, ended = fork_context.Semaphore(0), fork_context.Event()
        children = [fork_context.Process(target=work, args=(4, seen, ended)) for _ in range(3)]
        for child in children:
            child.start()
        eventually(lambda: made.get_node_count() == 4)
        for _ in children:
            # One that ends before the others have looked leaves three.
            assert seen.acquire(timeout=30)
        ended.set()
        for child in children:
            child.join(30)
            assert child.exitcode == 0
        eventually(lambda: made.contains("key"))
        made.stop()
        """,
    )


def test_a_made_up_name_of_a_member_that_does_not_run_is_of_one_process_alone(
    runner: str, redis_server: RedisServer
) -> None:
    run(
        runner,
        redis_server,
        """
        from hashring import PartitionGroup, lease_challenge
        for ran_before in (False, True):
            redis.flushall()
            made = PartitionGroup(redis, "group", 6, rebalance_delay=0)
            challenge = lease_challenge(redis, "challenge", 6)
            if ran_before:
                begin(made)
                made.stop()
            names = [made.member, challenge.member]
            def member():
                assert not {made.member, challenge.member} & {*names}
                getattr(made, START)(wait=False)
                eventually(lambda: len(made.held) == 2)
                redis.incr("shared")
                eventually(lambda: redis.get("shared") == b"3")
                made.stop()
            children = [in_child(member) for _ in range(2)]
            getattr(made, START)(wait=False)
            assert [made.member, challenge.member] == names
            eventually(lambda: len(made.held) == 2)
            redis.incr("shared")
            for child in children:
                wait(child)
            eventually(lambda: len(made.held) == 6)
            made.stop()
        """,
    )


def test_a_child_abandons_the_others_when_it_cannot_abandon_one(redis_server: RedisServer) -> None:
    program = f"""
        import os
        from redis import Redis
        from hashring import PartitionGroup, RingNode
        class BrokenNode(RingNode):
            def _abandon(self):
                raise RuntimeError("planted in a node")
        class BrokenGroup(PartitionGroup):
            def _abandon(self):
                raise RuntimeError("planted in a group")
        redis = Redis.from_url({redis_server.url!r})
        everybody = [
            BrokenNode(redis, "ring"),
            BrokenGroup(redis, "group", 4),
            node := RingNode(redis, "ring"),
            group := PartitionGroup(redis, "group", 4),
        ]
        names = node.name, group.member
        if child := os.fork():
            assert os.waitpid(child, 0)[1] == 0
        else:
            assert node.name != names[0]
            assert group.member != names[1]
    """
    done = python("-c", textwrap.dedent(program))
    assert done.returncode == 0, done.stderr
    for kind, planted in (("BrokenNode", "in a node"), ("BrokenGroup", "in a group")):
        assert f"a forked child could not abandon its parent's {kind}" in done.stderr
        assert f"RuntimeError: planted {planted}" in done.stderr
