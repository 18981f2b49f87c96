"""A node lives on whatever the user's client connects to, and says what stopped it."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest
import redis
import redis.asyncio
import redis.asyncio.sentinel
import redis_hashring
import trustme
import valkey
import valkey.asyncio
import valkey.sentinel
from redis.backoff import ConstantBackoff
from redis.crc import key_slot
from redis.retry import Retry
from redis.sentinel import Sentinel

from hashring import (
    AsyncPartitionGroup,
    AsyncRingNode,
    ConfigError,
    NodeState,
    OutOfMemory,
    PartitionGroup,
    PermissionDenied,
    ReadOnlyReplica,
    RedisUnavailable,
    RingNode,
    WrongKeyType,
    lease_challenge,
)
from hashring.fencing import AsyncRedisFence
from hashring.running.calls_at_once import CALLS_AT_ONCE
from hashring.store.async_redis_store import AsyncRedisStore
from hashring.store.client_kind import is_async
from hashring.store.derived_clients import derive
from hashring.store.embedded_server import RedisServer
from hashring.store.group.key_names import group_keys
from hashring.store.interface import Answered, Subscribed
from hashring.store.loop_store import LoopStore
from hashring.store.redis_store import RedisStore
from hashring.store.ring.commands import owner
from hashring.store.ring.key_names import ring_keys
from tests.conftest import PATIENCE, eventually, know_their_ranges
from tests.proxy import Proxy
from tests.tls import server_tls, tls_in_front_of

KEYS = [f"key-{number}" for number in range(2000)]
FAST = {"ttl": 2.0, "heartbeat_interval": 0.4}
CALM = {"ttl": 60.0, "heartbeat_interval": 0.4}


def shared(nodes: list[Any]) -> None:
    """Wait until the nodes know their ranges, and each key has exactly one owner among them."""
    assert nodes[0].ring.node_count == len(nodes)
    eventually(lambda: know_their_ranges(nodes), "all nodes know their ranges")
    for key in KEYS:
        assert sum(node.contains(key) for node in nodes) == 1


def all_beat(nodes: list[RingNode]) -> None:
    """Wait for the next heartbeat but one of each node, and for its subscription."""
    beats = [node.status.heartbeats for node in nodes]
    eventually(
        lambda: all(
            node.status.heartbeats > before + 1 and node.status.failing_for is None
            for node, before in zip(nodes, beats, strict=True)
        ),
        "all beat on the new primary",
    )


async def know_each_other(*nodes: AsyncRingNode) -> None:
    """Wait until the nodes have the ranges that Redis gives them."""
    ring = await nodes[0].fetch_ring()
    assert ring.node_count == len(nodes)
    while not all(node.get_ranges() == ring.node_ranges(node.name) for node in nodes):
        await asyncio.sleep(0.01)


def lives(make: Callable[[], Any], **options: Any) -> None:
    """Two nodes over clients that ``make`` gives share the keys."""
    nodes = [RingNode(make(), "clients", **CALM, **options) for _ in range(2)]
    with nodes[0], nodes[1]:
        shared(nodes)
        assert {node.owner("key-1") for node in nodes} <= {node.name for node in nodes}


@pytest.mark.parametrize("decode", [False, True])
@pytest.mark.parametrize("protocol", [2, 3])
def test_redis_py_whatever_it_decodes_and_speaks(
    redis_server: RedisServer, decode: bool, protocol: int
) -> None:
    lives(
        lambda: redis.Redis.from_url(redis_server.url, decode_responses=decode, protocol=protocol)
    )


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16", "ascii"])
def test_a_client_of_another_encoding_gives_names_the_bytes_that_all_give(
    redis_server: RedisServer, encoding: str
) -> None:
    def node(**options: Any) -> RingNode:
        client = redis.Redis(unix_socket_path=str(redis_server.socket), **options)
        return RingNode(client, "clients", name="kö", zone="ä", lock=True, **CALM)

    client = redis.Redis(unix_socket_path=str(redis_server.socket), decode_responses=True)
    with node(encoding=encoding, encoding_errors="ignore") as one, one.hold("key"):
        assert client.hkeys("{clients}:nodes") == ["kö"]
        one.stop(stay=True)
        points = one.ring.node_ranges("kö")
    with node() as two:
        assert two.get_ranges() == points


@pytest.mark.parametrize("decode", [False, True])
def test_valkey_py(redis_server: RedisServer, decode: bool) -> None:
    lives(lambda: valkey.Valkey(unix_socket_path=str(redis_server.socket), decode_responses=decode))


def test_every_server(every_server: RedisServer) -> None:
    lives(lambda: redis.Redis.from_url(every_server.url))


def test_tcp_and_a_pool_that_blocks() -> None:
    with RedisServer(port=0) as server:
        lives(lambda: redis.Redis.from_url(server.url))
        pool = redis.BlockingConnectionPool.from_url(server.url, max_connections=1)
        lives(lambda: redis.Redis(connection_pool=pool))


@pytest.mark.parametrize("package", [redis.asyncio.Redis, valkey.asyncio.Valkey])
def test_asyncio_clients(redis_server: RedisServer, package: Any) -> None:
    async def run() -> None:
        client = package(unix_socket_path=str(redis_server.socket))
        async with (
            AsyncRingNode(client, "clients", **CALM) as one,
            AsyncRingNode(client, "clients", **CALM) as two,
        ):
            await know_each_other(one, two)
            assert all(one.contains(key) + two.contains(key) == 1 for key in KEYS)
        await client.aclose()

    asyncio.run(asyncio.wait_for(run(), 60))


@pytest.mark.parametrize("package", [redis.asyncio.Redis, valkey.asyncio.Valkey])
def test_an_asyncio_connection_that_was_reset_between_two_calls_is_replaced(
    redis_server: RedisServer, package: Any
) -> None:
    async def run(proxy: Proxy) -> None:
        async with package(port=proxy.port) as client:
            store = AsyncRedisStore(client, PATIENCE)
            asked = owner(ring_keys("clients"), 0)
            before = await store.run(asked)
            proxy.reset()
            for _ in range(10):
                await asyncio.sleep(0)  # The loop reads that it was reset.
            assert await store.run(asked) == before
            await store.close()

    with Proxy(redis_server.socket) as proxy:
        asyncio.run(asyncio.wait_for(run(proxy), PATIENCE))


@pytest.mark.parametrize("package", [redis.asyncio.Redis, valkey.asyncio.Valkey])
def test_a_connection_that_a_task_has_taken_is_not_closed_by_another_one(
    redis_server: RedisServer, package: Any
) -> None:
    """In whatever turn of the event loop it is taken."""

    async def run() -> None:
        asked = owner(ring_keys("clients"), 0)
        client = package(unix_socket_path=str(redis_server.socket))
        for turns in range(10):
            store = AsyncRedisStore(client, PATIENCE)
            before = await store.run(asked)
            closing = asyncio.create_task(store.close())
            for _ in range(turns):
                await asyncio.sleep(0)
            assert await store.run(asked) == before
            await closing
            await store.close()

    asyncio.run(asyncio.wait_for(run(), PATIENCE))


class ClosedByUvloop(redis.asyncio.UnixDomainSocketConnection):
    """It is found closed when a script is to be sent, and says so as uvloop does."""

    async def send_packed_command(self, command: Any, check_health: bool = True) -> None:
        if b"EVAL" in b"".join(command):
            raise RuntimeError("unable to perform operation on <T>; the handler is closed")
        await super().send_packed_command(command, check_health)


def test_a_connection_that_uvloop_has_closed_is_a_failure_of_redis(
    redis_server: RedisServer,
) -> None:
    async def run() -> None:
        pool: Any = redis.asyncio.ConnectionPool(
            connection_class=ClosedByUvloop, path=str(redis_server.socket)
        )
        async with redis.asyncio.Redis.from_pool(pool) as client:
            store = AsyncRedisStore(client, PATIENCE)
            with pytest.raises(RedisUnavailable, match="the handler is closed"):
                await store.run(owner(ring_keys("clients"), 0))
            await store.close()
            with pytest.raises(RedisUnavailable) as failure:
                await AsyncRedisFence(client).write("{a}", 5, ["INCR", "{a}:x"])
            assert "may have been done" not in str(failure.value)

    asyncio.run(asyncio.wait_for(run(), PATIENCE))


# --- TLS --------------------------------------------------------------------------------------


def test_a_tls_url(redis_server: RedisServer, tmp_path: Path) -> None:
    authority, context = server_tls()
    trusted = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(str(trusted))
    with tls_in_front_of(redis_server.socket, context) as port:
        url = f"rediss://127.0.0.1:{port}/0?ssl_ca_certs={trusted}"
        lives(lambda: redis.Redis.from_url(url))
        with pytest.raises(RedisUnavailable, match=r"certificate.*\(ssl_ca_certs\), and a host"):
            RingNode(redis.Redis.from_url(f"rediss://127.0.0.1:{port}"), "r").start()


def start(kind: str, settings: dict[str, Any]) -> None:
    """Start a node, a node of an event loop, or a member of a group."""

    async def start_in_loop() -> None:
        await AsyncRingNode(redis.asyncio.Redis(**settings), "r").start()

    if kind == "asyncio":
        asyncio.run(start_in_loop())
    elif kind == "group":
        PartitionGroup(redis.Redis(**settings), "r", 4).start()
    else:
        RingNode(redis.Redis(**settings), "r").start()


def start_with(kind: str, **settings: Any) -> str:
    """The text with which that fails."""
    with pytest.raises(RedisUnavailable) as caught:
        start(kind, settings)
    return str(caught.value)


@pytest.mark.parametrize("kind", ["node", "asyncio", "group"])
def test_what_tls_may_have_to_do_with_a_server_that_does_not_answer(
    redis_server: RedisServer, kind: str
) -> None:
    with tls_in_front_of(redis_server.socket, server_tls()[1]) as port:
        text = start_with(kind, host="127.0.0.1", port=port)
        assert text.endswith("; if the port is one with TLS, give rediss:// in the URL")
    with RedisServer(port=0) as server:
        settings = {"host": "127.0.0.1", "port": server.port, "socket_connect_timeout": 0.2}
        text = start_with(kind, ssl=True, **settings)
        assert text.endswith("; if the port is one without TLS, give redis:// in the URL")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and nothing listens there
        # Refused at once, however late a busy machine is to say so.
        settings |= {"port": taken.getsockname()[1], "socket_connect_timeout": PATIENCE}
        assert "TLS" not in start_with(kind, **settings)
        assert "TLS" not in start_with(kind, ssl=True, **settings)


@pytest.mark.parametrize("kind", ["node", "asyncio", "group"])
def test_a_certificate_that_is_of_no_use_is_named_as_the_cause(
    redis_server: RedisServer, tmp_path: Path, kind: str
) -> None:
    authority, context = server_tls()
    authority.configure_trust(context)
    context.verify_mode = ssl.CERT_REQUIRED
    # Later versions check a client's certificate after the handshake, and its write may fail first.
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    trusted = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(str(trusted))
    files = []
    for issuer in (authority, trustme.CA()):
        mine = issuer.issue_cert("client.example")
        files.append((tmp_path / f"{len(files)}.pem", tmp_path / f"{len(files)}.key"))
        mine.cert_chain_pems[0].write_to_path(str(files[-1][0]))
        mine.private_key_pem.write_to_path(str(files[-1][1]))
    (mine, key), (foreign, other_key) = files
    with tls_in_front_of(redis_server.socket, context) as port:

        def told(authorities: Path, certificate: Path, key: Path) -> str:
            return start_with(
                kind,
                host="127.0.0.1",
                port=port,
                ssl=True,
                ssl_ca_certs=str(authorities),
                ssl_certfile=str(certificate),
                ssl_keyfile=str(key),
            )

        assert told(trusted, foreign, other_key).endswith(
            "the server does not accept your certificate (ssl_certfile): check its authority and "
            "its dates"
        )
        for unusable in (
            (trusted, mine, other_key),  # not its key
            (trusted, mine, mine),  # no key
            (key, mine, key),  # no authority
        ):
            assert told(*unusable).endswith(
                "; check what is in the files for TLS: ssl_ca_certs has certificates of "
                "authorities, ssl_certfile your certificate, ssl_keyfile its key"
            )


def test_a_server_that_has_answered_speaks_as_the_client_does(redis_server: RedisServer) -> None:
    with (
        Proxy(redis_server.socket) as proxy,
        closing(RedisStore(redis.Redis.from_url(proxy.url), PATIENCE)) as store,
    ):
        assert not store.answered
        store.call("PING")
        proxy.refuse()
        with pytest.raises(RedisUnavailable) as caught:
            store.call("PING")
        assert "TLS" not in str(caught.value)


# --- Sentinel and Cluster ---------------------------------------------------------------------


def test_a_failover_under_sentinel_is_survived() -> None:
    with ExitStack() as stack:
        primary = stack.enter_context(RedisServer(port=0))
        replica = stack.enter_context(
            RedisServer(port=0, config=[f"replicaof 127.0.0.1 {primary.port}"])
        )
        sentinels = [
            stack.enter_context(
                RedisServer(
                    port=0,
                    config=[
                        f"sentinel monitor ours 127.0.0.1 {primary.port} 2",
                        "sentinel down-after-milliseconds ours 500",
                        "sentinel failover-timeout ours 2000",
                    ],
                )
            )
            for _ in range(3)
        ]
        with redis.Redis.from_url(replica.url) as client:
            eventually(
                lambda: client.info("replication")["master_link_status"] == "up", "it replicates"
            )
        with redis.Redis.from_url(sentinels[0].url) as client:
            eventually(
                lambda: (
                    client.sentinel_master("ours")["num-other-sentinels"] == 2
                    and client.sentinel_master("ours")["num-slaves"] == 1
                ),
                "the sentinels know each other and the replica",
            )
        addresses = [("127.0.0.1", sentinel.port) for sentinel in sentinels]
        finder = Sentinel(addresses, socket_timeout=1)
        nodes = [
            RingNode(finder.master_for("ours"), "failover", ttl=20, heartbeat_interval=0.5)
            for _ in range(2)
        ]
        with nodes[0], nodes[1]:
            shared(nodes)
            primary.kill()
            # It drops its clients when it becomes the primary.
            retry = Retry(ConstantBackoff(0.1), 20)
            with redis.Redis.from_url(replica.url, retry=retry) as client:
                eventually(lambda: client.info("replication")["role"] == "master", "it takes over")
                all_beat(nodes)
                assert client.zcard("failover") == 32
            shared(nodes)


def test_the_log_has_the_newest_reason_for_which_a_node_owns_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A server that hangs, and comes back as another one's replica: first it times out."""
    with (
        RedisServer(port=0) as server,
        Proxy(("127.0.0.1", int(server.port or 0))) as proxy,
        redis.Redis.from_url(server.url) as admin,
        redis.Redis(port=proxy.port, socket_timeout=0.2) as client,
        RingNode(client, "ring", ttl=6, heartbeat_interval=0.5) as node,
    ):
        proxy.deafen()
        eventually(lambda: "did not answer in time" in caplog.text, "a heartbeat failed")
        admin.replicaof("127.0.0.1", 1)
        proxy.heal()
        eventually(lambda: "owns nothing" in caplog.text, "it is fenced")
        texts = [record.getMessage() for record in caplog.records]
        [text] = [text for text in texts if "owns nothing" in text]
        assert "; the newest failure: beat of ring 'ring': READONLY " in text
        assert not node.contains("key")
        admin.replicaof("NO", "ONE")


CLIENTS: list[Any] = [
    redis.Redis,
    partial(redis.Redis, protocol=3),
    partial(redis.Redis, decode_responses=True),
    valkey.Valkey,
    partial(valkey.Valkey, protocol=3),
    redis.asyncio.Redis,
    partial(redis.asyncio.Redis, protocol=3),
    valkey.asyncio.Valkey,
]
CLUSTER_CLIENTS: list[Any] = [
    redis.RedisCluster,
    valkey.ValkeyCluster,
    redis.asyncio.RedisCluster,
    valkey.asyncio.ValkeyCluster,
]


def answers_when_asked(client: Any) -> None:
    """A subscription over the client answers, and goes on."""
    kind = LoopStore if is_async(client) else RedisStore
    with (
        closing(kind(client, PATIENCE)) as store,
        closing(store.subscribe(b"{ring}:news")) as subscription,
    ):
        assert subscription.wait(PATIENCE) == Subscribed()
        for _ in range(2):
            subscription.ask()
            assert subscription.wait(PATIENCE) == Answered()


@pytest.mark.parametrize("make", CLIENTS)
def test_a_subscription_answers_when_asked(redis_server: RedisServer, make: Any) -> None:
    answers_when_asked(make(unix_socket_path=str(redis_server.socket)))


@pytest.mark.parametrize("make", [redis.Redis, valkey.Valkey])
def test_a_subscription_that_is_closed_is_ended_without_a_new_connection(
    redis_server: RedisServer, make: Any
) -> None:
    client = make(unix_socket_path=str(redis_server.socket))
    with closing(RedisStore(client, PATIENCE)) as store:
        subscription = store.subscribe(b"{ring}:news")
        subscription.close()
        connected = client.info("stats")["total_connections_received"]
        subscription.end()
        assert client.info("stats")["total_connections_received"] == connected


@pytest.mark.parametrize(("package", "make"), [(redis, redis.Redis), (valkey, valkey.Valkey)])
def test_a_subscription_that_is_closed_while_it_is_ended_leaves_its_connection_at_once(
    redis_server: RedisServer, package: Any, make: Any
) -> None:
    reached, goes_on = Event(), Event()

    class Slow(package.UnixDomainSocketConnection):  # type: ignore[misc]
        def send_command(self, *command: Any, **options: Any) -> None:
            if command[0] == "UNSUBSCRIBE":
                reached.set()
                assert goes_on.wait(PATIENCE)
            super().send_command(*command, **options)

    path = str(redis_server.socket)
    slow = make(connection_pool=package.ConnectionPool(connection_class=Slow, path=path))
    client = make(unix_socket_path=path)
    with closing(RedisStore(slow, PATIENCE)) as store:
        subscription = store.subscribe(b"{ring}:news")
        connected = client.info("stats")["total_connections_received"]
        ends, closes = Thread(target=subscription.end), Thread(target=subscription.close)
        ends.start()
        assert reached.wait(PATIENCE)
        closes.start()
        closes.join(0.2)
        goes_on.set()
        ends.join(PATIENCE)
        closes.join(PATIENCE)
        assert client.info("stats")["total_connections_received"] == connected


@pytest.mark.parametrize("make", CLUSTER_CLIENTS)
def test_a_subscription_on_a_cluster_answers_when_asked(
    cluster: list[RedisServer], make: Any
) -> None:
    answers_when_asked(make(host="127.0.0.1", port=cluster[0].port))


@contextmanager
def moving(key: bytes, cluster: list[RedisServer]) -> Iterator[None]:
    """While the slot of that key moves from one server of the cluster to another."""
    slot = key_slot(key)
    origin = slot // 5462
    with (
        redis.Redis.from_url(cluster[origin].url) as here,
        redis.Redis.from_url(cluster[origin - 1].url) as there,
    ):
        there.execute_command("CLUSTER SETSLOT", slot, "IMPORTING", here.cluster("MYID"))
        here.execute_command("CLUSTER SETSLOT", slot, "MIGRATING", there.cluster("MYID"))
        try:
            yield
        finally:
            here.execute_command("CLUSTER SETSLOT", slot, "STABLE")
            there.execute_command("CLUSTER SETSLOT", slot, "STABLE")


@pytest.mark.parametrize("make", CLUSTER_CLIENTS)
def test_a_slot_of_a_cluster_that_is_moving_is_named(cluster: list[RedisServer], make: Any) -> None:
    client = make(host="127.0.0.1", port=cluster[0].port)
    with closing((LoopStore if is_async(client) else RedisStore)(client, PATIENCE)) as store:
        with (
            moving(b"moving", cluster),
            pytest.raises(RedisUnavailable, match="slots are moving: wait"),
        ):
            store.run(owner(ring_keys("moving"), 0))
        assert store.run(owner(ring_keys("moving"), 0)) is None


@pytest.mark.parametrize("ring", ["accounts", "b", "c", "{team}:accounts"])
@pytest.mark.parametrize("package", [redis.RedisCluster, valkey.ValkeyCluster])
def test_redis_cluster(cluster: list[RedisServer], ring: str, package: Any) -> None:
    client = package(host="127.0.0.1", port=cluster[0].port)
    nodes = [RingNode(client, ring, **CALM) for _ in range(2)]
    with nodes[0], nodes[1]:
        shared(nodes)
        nodes[1].stop()
        shared(nodes[:1])
    client.close()


def test_locks_on_redis_cluster(cluster: list[RedisServer]) -> None:
    client = redis.RedisCluster(host="127.0.0.1", port=cluster[0].port)
    with RingNode(client, "locked", lock=True, **CALM) as node:
        assert node.select(KEYS) == KEYS
        with node.hold(KEYS[0]) as lease:
            lease.check()
    assert client.keys("{locked}:lock:*") == []
    client.close()


def clustered(stack: ExitStack) -> tuple[RedisServer, redis.Redis]:
    """A server of a cluster, which knows of no other yet."""
    config = ["cluster-enabled yes", "repl-diskless-sync-delay 0"]
    server = stack.enter_context(RedisServer(port=0, config=config))
    return server, stack.enter_context(redis.Redis.from_url(server.url))


def primary_of_all_slots(stack: ExitStack) -> tuple[RedisServer, redis.Redis]:
    server, primary = clustered(stack)
    primary.execute_command("CLUSTER ADDSLOTS", *range(16384))
    is_up(primary)
    return server, primary


def is_up(client: redis.Redis) -> None:
    eventually(
        lambda: client.execute_command("CLUSTER INFO")["cluster_state"] == "ok", "the cluster is up"
    )


def replica_of(
    stack: ExitStack, server: RedisServer, primary: redis.Redis
) -> tuple[RedisServer, redis.Redis]:
    """A replica in the primary's cluster, of which clients are told."""
    other, replica = clustered(stack)
    replica.execute_command("CLUSTER MEET", "127.0.0.1", server.port)
    name = primary.execute_command("CLUSTER MYID").decode()
    eventually(lambda: name in str(replica.execute_command("CLUSTER NODES")), "they have met")
    replica.execute_command("CLUSTER REPLICATE", name)
    eventually(
        lambda: replica.info("replication").get("master_link_status") == "up", "it replicates"
    )
    told = "CLUSTER SLOTS"
    eventually(lambda: str(other.port) in str(primary.execute_command(told)), "clients hear of it")
    is_up(primary)
    is_up(replica)
    return other, replica


def takes_over(replica: redis.Redis, server: RedisServer, primary: redis.Redis) -> None:
    """Kill the primary, and let its replica, which has all of it, be the primary."""
    assert primary.wait(1, PATIENCE * 1000) == 1
    server.kill()
    replica.execute_command("CLUSTER FAILOVER", "TAKEOVER")


@pytest.mark.parametrize("package", [redis.RedisCluster, valkey.ValkeyCluster])
def test_locks_are_kept_when_a_replica_of_a_cluster_takes_over(package: Any) -> None:
    with ExitStack() as stack:
        server, primary = primary_of_all_slots(stack)
        _, replica = replica_of(stack, server, primary)
        client = package(host="127.0.0.1", port=server.port)
        nodes = [RingNode(client, "locked", lock=True, **CALM) for _ in range(2)]
        with nodes[0], nodes[1]:
            eventually(
                lambda: sum(len(node.select(KEYS)) for node in nodes) == len(KEYS), "all are held"
            )
            held = [node.select(KEYS) for node in nodes]
            with nodes[0].hold(held[0][0]) as lease:
                takes_over(replica, server, primary)
                all_beat(nodes)
                lease.check()
            assert [node.select(KEYS) for node in nodes] == held
            assert [node.status.losses for node in nodes] == [0, 0]
        assert replica.keys("{locked}:lock:*") == []
        client.close()


@pytest.mark.parametrize("package", [redis.RedisCluster, valkey.ValkeyCluster])
def test_partitions_are_kept_when_a_replica_of_a_cluster_takes_over(package: Any) -> None:
    leases = group_keys("orders").leases
    with ExitStack() as stack:
        server, primary = primary_of_all_slots(stack)
        _, replica = replica_of(stack, server, primary)
        client = package(host="127.0.0.1", port=server.port)
        a, b = (PartitionGroup(client, "orders", 8, member=name, **CALM) for name in "ab")
        with a, b:
            eventually(lambda: len(a.held) == len(b.held) == 4, "four each")
            held = [a.held, b.held]
            takes_over(replica, server, primary)
            renewed = dict(replica.zrange(leases, 0, -1, withscores=True))
            eventually(
                lambda: all(
                    until > renewed[name]
                    for name, until in replica.zrange(leases, 0, -1, withscores=True)
                ),
                "both renew on the new primary",
            )
            assert [a.held, b.held] == held
        client.close()


@pytest.mark.parametrize("package", [redis, valkey])
def test_a_name_that_leads_to_a_cluster_is_asked_again_when_all_known_servers_are_gone(
    package: Any,
) -> None:
    """As behind the name of a service whose servers were replaced one by one."""
    with ExitStack() as stack:
        server, primary = primary_of_all_slots(stack)
        named = stack.enter_context(Proxy(("127.0.0.1", server.port)))
        kind = package.RedisCluster if package is redis else package.ValkeyCluster
        begin = package.cluster.ClusterNode("127.0.0.1", named.port)
        client = kind(startup_nodes=[begin], dynamic_startup_nodes=False)
        with RingNode(client, "named", **CALM) as node:
            other, replica = replica_of(stack, server, primary)
            named.upstream = ("127.0.0.1", other.port)
            takes_over(replica, server, primary)
            all_beat([node])
        client.close()


def test_asyncio_on_redis_cluster(cluster: list[RedisServer]) -> None:
    async def run() -> None:
        client = redis.asyncio.RedisCluster(host="127.0.0.1", port=cluster[0].port)
        async with (
            AsyncRingNode(client, "async", **CALM) as one,
            AsyncRingNode(client, "async", **CALM) as two,
        ):
            await know_each_other(one, two)
            assert all(one.contains(key) + two.contains(key) == 1 for key in KEYS)
        await client.aclose()

    asyncio.run(asyncio.wait_for(run(), 60))


@pytest.mark.parametrize("package", [redis.RedisCluster, valkey.ValkeyCluster])
def test_how_many_connections_a_client_of_a_cluster_may_have_is_no_limit_for_nodes(
    cluster: list[RedisServer], package: Any
) -> None:
    client = package(host="127.0.0.1", port=cluster[0].port, max_connections=1)
    with RingNode(client, "limited", **CALM) as node:
        node.heartbeat()
    client.close()


@pytest.mark.parametrize("package", [redis.asyncio.RedisCluster, valkey.asyncio.ValkeyCluster])
def test_how_many_connections_an_asyncio_client_of_a_cluster_may_have_is_no_limit_for_nodes(
    cluster: list[RedisServer], package: Any
) -> None:
    async def run() -> None:
        client = package(host="127.0.0.1", port=cluster[0].port, max_connections=1)
        # As many at once as a node asks: of more, some wait, which may take too long.
        keys = KEYS[:CALLS_AT_ONCE]
        async with AsyncRingNode(client, "limited", lock=True, **CALM) as node:
            asked = [node.select([key]) for key in keys]
            assert await asyncio.gather(*asked) == [[key] for key in keys]
        await client.aclose()

    asyncio.run(asyncio.wait_for(run(), PATIENCE))


@pytest.mark.parametrize("package", [redis.sentinel, redis.asyncio.sentinel, valkey.sentinel])
def test_a_node_has_as_many_connections_as_it_wants_under_sentinel(package: Any) -> None:
    client = package.Sentinel([("localhost", 26379)]).master_for("primary", max_connections=1)
    assert derive(client, 1.0).connection_pool.max_connections > 1_000_000


@pytest.mark.parametrize(
    "kind",
    [
        redis.RedisCluster,
        pytest.param(valkey.ValkeyCluster, marks=pytest.mark.long),
        pytest.param(redis.asyncio.RedisCluster, marks=pytest.mark.long),
        valkey.asyncio.ValkeyCluster,
    ],
    ids=lambda kind: f"{kind.__module__}",
)
def test_a_restart_of_a_whole_cluster_is_survived(kind: Any) -> None:
    """Clients strike out servers that they cannot reach, until none is left to begin at."""

    async def run(server: RedisServer) -> None:
        client = kind(host="127.0.0.1", port=server.port)
        asynchronous = "asyncio" in kind.__module__
        node = (AsyncRingNode if asynchronous else RingNode)(client, "restarted", **FAST)

        async def done(result: Any) -> None:
            if asynchronous:
                await result

        async def until(holds: Callable[[], bool]) -> None:
            deadline = asyncio.get_running_loop().time() + PATIENCE
            while not holds():
                assert asyncio.get_running_loop().time() < deadline, "never"
                await asyncio.sleep(0.01)

        await done(node.start())
        server.kill()
        await until(lambda: node.state is NodeState.FENCED)
        server.start()
        await until(lambda: node.contains("key") and node.status.failing_for is None)
        await done(node.stop())
        await done(client.aclose() if asynchronous else client.close())

    with ExitStack() as stack:
        server, _ = primary_of_all_slots(stack)
        asyncio.run(run(server))


# --- together with redis-hashring -------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (redis_hashring.HashAlgorithm.XXHASH, None),
        (redis_hashring.HashAlgorithm.CRC32, "crc-32"),
    ],
)
def test_old_and_new_nodes_on_one_ring_agree_on_every_key(
    redis_server: RedisServer, old: redis_hashring.HashAlgorithm, new: str | None
) -> None:
    client = redis.Redis.from_url(redis_server.url)
    theirs = [redis_hashring.RingNode(client, "mixed", hash_algorithm=old) for _ in range(2)]
    # Names of their own: the old nodes of this process are all called after host and pid.
    ours = [
        RingNode(client, "mixed", wire="redis-hashring", hash_algorithm=new, name=f"new:{n}")
        for n in range(2)
    ]
    nodes: list[Any] = [theirs[0], ours[0], theirs[1], ours[1]]

    def agree(running: list[Any]) -> bool:
        return all(sum(node.contains(key) for node in running) == 1 for key in KEYS)

    try:
        for count in range(1, 5):
            nodes[count - 1].start()
            eventually(lambda: agree(nodes[:count]), f"{count} nodes agree")  # noqa: B023
        for left in range(3):
            nodes[left].stop()
            eventually(lambda: agree(nodes[left + 1 :]), f"after {left + 1} left")  # noqa: B023
        assert theirs[1]._polling_thread is None
    finally:
        for node in nodes:
            node.stop()


def test_a_name_that_would_end_old_nodes_is_refused(redis_server: RedisServer) -> None:
    client = redis.Redis.from_url(redis_server.url)
    with pytest.raises(ConfigError, match="host:pid, with one colon"):
        RingNode(client, "mixed", wire="redis-hashring", name="worker-1")


# --- what stops a start -----------------------------------------------------------------------


def test_an_unreachable_host_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(RedisUnavailable, match=f"localhost:{port}.*check host, port"):
        RingNode(redis.Redis(port=port), "r").start()


class TokenServiceDown(Exception):
    """As of a library that no part of this package knows."""


TokenServiceDown.__module__ = "botocore.exceptions"


class Provider(redis.CredentialProvider):
    """Asks a service that may be down."""

    down = False

    def __init__(self, failure: BaseException | None = None) -> None:
        self.failure = failure or TokenServiceDown("it does not answer")

    def get_credentials(self) -> tuple[str, str]:
        if self.down:
            raise self.failure
        return "default", "right"

    async def get_credentials_async(self) -> tuple[str, str]:
        return self.get_credentials()


def test_a_node_survives_that_its_credential_provider_fails() -> None:
    provider = Provider()
    with RedisServer(config=["requirepass right"]) as server:
        client = redis.Redis(unix_socket_path=str(server.socket), credential_provider=provider)
        with RingNode(client, "r", lock=True, ttl=3.0, heartbeat_interval=0.2) as node:
            assert node.contains("key")
            polled = RingNode(client, "r", name="polled", ttl=3.0, heartbeat_interval=0.2)
            thread = Thread(target=polled.poll, daemon=True)
            thread.start()
            eventually(lambda: polled.state.value == "live", "it is on the ring")
            provider.down = True
            server.kill()
            server.start()
            told = "the credential provider failed: TokenServiceDown: it does not answer; look at"
            with pytest.raises(RedisUnavailable, match=told):
                RingNode(client, "r", name="late").start()
            assert node.select(["other"]) == []
            provider.down = False
            eventually(lambda: polled.state.value == "live" and thread.is_alive(), "it is back")
            eventually(
                lambda: node.contains("key") or polled.contains("key"), "the key has an owner"
            )
            polled.stop()
            thread.join(PATIENCE)


# Callers of a provider may all wait for one answer, which one of them is cancelled with.
@pytest.mark.parametrize("failure", [None, asyncio.CancelledError()], ids=["down", "cancelled"])
def test_an_asyncio_node_survives_that_its_credential_provider_fails(
    failure: BaseException | None,
) -> None:
    asyncio.run(_an_asyncio_node_survives(Provider(failure)))


async def _an_asyncio_node_survives(provider: Provider) -> None:
    with RedisServer(config=["requirepass right"]) as server:
        client = redis.asyncio.Redis(
            unix_socket_path=str(server.socket), credential_provider=provider
        )
        async with AsyncRingNode(client, "r", lock=True, ttl=3.0, heartbeat_interval=0.2) as node:
            assert await node.select(["key"]) == ["key"]
            provider.down = True
            server.kill()
            server.start()
            assert await node.select(["other"]) == []
            provider.down = False
            deadline = asyncio.get_running_loop().time() + PATIENCE
            while await node.select(["key"]) != ["key"]:
                assert asyncio.get_running_loop().time() < deadline
                await asyncio.sleep(0.1)
        await client.aclose()


def test_a_member_and_a_fenced_write_of_a_task_survive_what_cancels_a_credential_provider() -> None:
    provider = Provider(asyncio.CancelledError())

    async def live() -> None:
        with RedisServer(config=["requirepass right"]) as server:
            client = redis.asyncio.Redis(
                unix_socket_path=str(server.socket), credential_provider=provider
            )
            group = AsyncPartitionGroup(client, "g", partitions=1, ttl=3.0, heartbeat_interval=0.2)
            async with group:
                provider.down = True
                server.kill()
                server.start()
                with pytest.raises(RedisUnavailable, match="not by its caller; look at what"):
                    await AsyncRedisFence(client).write("{a}", 1, ["SET", "{a}:x", "1"])
                while group.error is None:
                    await asyncio.sleep(0.01)
                provider.down = False
                while group.error is not None or not group.held:
                    await asyncio.sleep(0.01)
            await client.aclose()

    asyncio.run(asyncio.wait_for(live(), PATIENCE))


def fails(connection: Any) -> None:
    raise TokenServiceDown("it does not answer")


async def fails_later(connection: Any) -> None:
    raise TokenServiceDown("it does not answer")


@pytest.mark.parametrize(
    ("package", "function"),
    [(redis, fails), (valkey, fails), (redis.asyncio, fails_later), (valkey.asyncio, fails)],
    ids=["redis", "valkey", "redis.asyncio", "valkey.asyncio"],
)
def test_what_a_client_calls_once_connected_fails_as_its_connection(
    redis_server: RedisServer, package: Any, function: Any
) -> None:
    name = package.__name__.partition(".")[0]
    client = getattr(package, name.capitalize())(
        unix_socket_path=str(redis_server.socket), **{f"{name}_connect_func": function}
    )
    asynchronous = is_async(client)
    store: Any = (LoopStore if asynchronous else RedisStore)(client, PATIENCE)
    told = f"{name}_connect_func failed: TokenServiceDown: it does not answer; look at what"
    with pytest.raises(RedisUnavailable, match=told):
        store.run(owner(ring_keys("clients"), 0))
    store.close()


def test_what_the_server_refuses_once_a_client_is_connected_is_told_as_its_refusal(
    redis_server: RedisServer,
) -> None:
    def wrong_password(connection: Any) -> None:
        connection.on_connect()
        connection.send_command("AUTH", "nobody", "wrong")
        connection.read_response()

    client = redis.Redis(
        unix_socket_path=str(redis_server.socket), redis_connect_func=wrong_password
    )
    with pytest.raises(PermissionDenied, match="password"):
        RedisStore(client, PATIENCE).run(owner(ring_keys("clients"), 0))


def test_a_wrong_password_is_told_from_a_missing_one() -> None:
    with RedisServer(port=0, config=["requirepass right"]) as server:
        for password in (None, "wrong"):
            client = redis.Redis(port=server.port, password=password)
            with pytest.raises(PermissionDenied, match="password"):
                RingNode(client, "r").start()
        with RingNode(redis.Redis(port=server.port, password="right"), "r") as node:
            assert node.contains("key")


def test_a_user_without_rights_is_told_so(redis_server: RedisServer) -> None:
    admin = redis.Redis.from_url(redis_server.url)
    admin.execute_command("ACL SETUSER", "poor", "on", ">x", "~*", "+@all", "-evalsha", "-eval")
    client = redis.Redis(unix_socket_path=str(redis_server.socket), username="poor", password="x")
    with pytest.raises(PermissionDenied, match=r"documentation: reference/redis-layout"):
        RingNode(client, "r").start()
    admin.execute_command("ACL DELUSER", "poor")


def test_the_documented_rights_are_enough(redis_server: RedisServer) -> None:
    text = (Path(__file__).parents[2] / "docs" / "reference" / "redis-layout.rst").read_text()
    rights = next(line for line in text.splitlines() if "ACL SETUSER hashring" in line)
    admin = redis.Redis.from_url(redis_server.url)
    admin.execute_command(*rights.split())
    client = redis.Redis(
        unix_socket_path=str(redis_server.socket), username="hashring", password="secret"
    )
    with RingNode(client, "accounts", lock=True) as node:
        assert node.select(KEYS) == KEYS
    with pytest.raises(PermissionDenied):
        RingNode(client, "other").start()
    with PartitionGroup(client, "accounts", 4, rebalance_delay=0) as group:
        eventually(lambda: len(group.held) == 4, "the member has the partitions")
    assert group.error is None
    with lease_challenge(client, "accounts", 4) as member:
        eventually(lambda: len(member.held) == 4, "the only member has the partitions")
    admin.execute_command("ACL SETUSER", "hashring", "-info")
    for refused in (
        RingNode(client, "accounts", lock=True),
        PartitionGroup(client, "accounts", 4, rebalance_delay=0),
    ):
        with pytest.raises(PermissionDenied, match=r"documentation: reference/redis-layout"):
            refused.start()
    with RingNode(client, "accounts") as node:
        assert node.select(KEYS) == KEYS
    admin.execute_command("ACL DELUSER", "hashring")


@pytest.mark.parametrize("make", CLUSTER_CLIENTS)
def test_the_documented_rights_are_enough_on_a_cluster(
    cluster: list[RedisServer], make: Any
) -> None:
    text = (Path(__file__).parents[2] / "docs" / "reference" / "redis-layout.rst").read_text()
    lines = [line.split() for line in text.splitlines() if "ACL SETUSER hashring" in line]
    with ExitStack() as stack:
        admins = [stack.enter_context(redis.Redis.from_url(server.url)) for server in cluster]
        for admin in admins:
            stack.callback(admin.execute_command, "ACL DELUSER", "hashring")
            for line in lines:
                admin.execute_command(*line)
        client = make(
            host="127.0.0.1", port=cluster[0].port, username="hashring", password="secret"
        )
        kind = LoopStore if is_async(client) else RedisStore
        store = stack.enter_context(closing(kind(client, PATIENCE)))
        # The ring has no keys, so the server sends the client on to the next, which it has to ask.
        with (
            moving(b"accounts", cluster),
            pytest.raises(RedisUnavailable, match="slots are moving: wait"),
        ):
            store.run(owner(ring_keys("accounts"), 0))
        assert store.run(owner(ring_keys("accounts"), 0)) is None


def test_a_read_only_replica_is_named() -> None:
    with (
        RedisServer(port=0) as primary,
        RedisServer(port=0, config=[f"replicaof 127.0.0.1 {primary.port}"]) as replica,
    ):
        client = redis.Redis(port=replica.port)
        eventually(lambda: client.info("replication")["master_link_status"] == "up", "replicates")
        with pytest.raises(ReadOnlyReplica, match="connect to the primary"):
            RingNode(client, "r").start()


def test_a_full_redis_is_named_and_nothing_is_left(redis_server: RedisServer) -> None:
    client = redis.Redis.from_url(redis_server.url)
    client.config_set("maxmemory", "1")
    try:
        with pytest.raises(OutOfMemory, match="raise maxmemory"):
            RingNode(client, "r").start()
    finally:
        client.config_set("maxmemory", "0")
    # For an hour Redis knows that this session has ended.
    assert client.keys() == [b"{r}:ended"]
    assert client.ttl("{r}:ended") > 0


@pytest.mark.parametrize("lock", [False, True])
def test_a_redis_that_fills_up_takes_no_key_from_the_nodes_that_run(
    every_server: RedisServer, lock: bool
) -> None:
    client = redis.Redis.from_url(every_server.url)
    with RingNode(client, "r", ttl=60, heartbeat_interval=0.1, lock=lock) as node:
        assert node.select(KEYS) == KEYS
        client.config_set("maxmemory", "1")
        try:
            before = node.status.heartbeats
            eventually(lambda: node.status.heartbeats > before + 5, "heartbeats go on")
            assert node.status.last_error is None
            assert node.select(KEYS) == KEYS
        finally:
            client.config_set("maxmemory", "0")


@pytest.mark.parametrize("key", ["r", "{r}:epoch", "{r}:nodes", "{r}:events"])
def test_a_key_of_the_wrong_type_is_named_and_left_alone(
    redis_server: RedisServer, key: str
) -> None:
    client = redis.Redis.from_url(redis_server.url)
    client.rpush(key, "somebody's")
    with pytest.raises(WrongKeyType, match="choose another name"):
        RingNode(client, "r").start()
    assert client.keys() == [key.encode()]
