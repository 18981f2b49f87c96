"""What a server refuses is the same error, in the same words, whichever server it is.

Each is provoked for real: servers word their refusals differently, and inside scripts again.
"""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest
import redis.sentinel
import valkey.sentinel
from redis import Redis

from hashring import PartitionGroup, RingNode
from hashring.errors import (
    OutOfMemory,
    PermissionDenied,
    ReadOnlyReplica,
    RedisRefused,
    RedisUnavailable,
    StoreError,
    WritesPaused,
    WrongKeyType,
)
from hashring.fencing import RedisFence
from hashring.store.embedded_server import RedisServer
from hashring.store.group.key_names import group_keys
from hashring.store.group.reading import read
from hashring.store.redis_store import RedisStore
from hashring.store.ring.commands import owner
from hashring.store.ring.key_names import ring_keys
from tests.conftest import eventually, servers

Start = Callable[..., RedisServer]

ALLOW = (
    "give the user the rights of a node, of a reader or of an operator "
    "(documentation: reference/redis-layout)"
)


@pytest.fixture(params=servers().values(), ids=servers().keys())
def start(request: pytest.FixtureRequest) -> Iterator[Start]:
    """Starts a server of each kind, with lines of redis.conf."""
    with ExitStack() as stack:
        yield lambda *config, **more: stack.enter_context(
            RedisServer(request.param, port=0, config=config, **more)
        )


def user(server: RedisServer, *rules: str) -> dict[str, Any]:
    """What a client of a user with these rights is made with."""
    with Redis(port=server.port) as admin:
        admin.execute_command("ACL", "SETUSER", "user", "reset", "on", ">x", *rules)
    return {"port": server.port, "username": "user", "password": "x"}


def refusals(kind: type[StoreError], work: Callable[[Any], object], **settings: Any) -> set[str]:
    """The texts with which clients of both packages fail."""
    texts = set()
    for package in (redis.Redis, valkey.Valkey):
        client = package(**settings)
        with pytest.raises(kind) as caught:
            work(client)
        client.close()
        assert type(caught.value) is kind
        texts.add(str(caught.value))
    assert not re.search(r"user_script|[0-9a-f]{40}", "".join(texts))
    return texts


def refused(kind: type[StoreError], work: Callable[[Any], object], **settings: Any) -> str:
    """The one text with which both fail."""
    [text] = refusals(kind, work, **settings)
    return text


def node(client: Any) -> None:
    """Start a node of the ring ``ring``. Its name is in the name of its channel."""
    RingNode(client, "ring", name="node").start()


def test_a_key_of_another_type(start: Start) -> None:
    server = start()
    with Redis(port=server.port) as admin:
        for key in ("ring", "{g}:group:state", "fenced"):
            admin.set(key, "text")
    remedy = "choose another name, or remove the key that is in the way"
    wrong = f"WRONGTYPE Operation against a key holding the wrong kind of value; {remedy}"

    def group(client: Any) -> None:
        RedisStore(client, 5).run(read(group_keys("g")))

    def write(client: Any) -> None:
        RedisFence(client).write("fence", 1, ["HSET", "fenced", "field", "value"])

    for work, doing in (
        (node, "beat of ring 'ring'"),
        (group, "group_read of key '{g}:group:state'"),
        (write, "fenced write to 'fence'"),
    ):
        assert refused(WrongKeyType, work, port=server.port) == f"{doing}: {wrong}"


@pytest.mark.parametrize(
    ("config", "why"),
    [
        ((), "DB index is out of range"),
        (("cluster-enabled yes",), "SELECT is not allowed in cluster mode"),
    ],
    ids=["too many", "cluster"],
)
def test_a_database_that_is_not_there(start: Start, config: tuple[str, ...], why: str) -> None:
    remedy = "name a database that the server has: 0, if it is one of a Redis Cluster"
    text = refused(RedisRefused, node, port=start(*config).port, db=99)
    assert text.endswith(f": {why}; {remedy}")


def test_a_server_that_is_no_redis() -> None:
    with socket.create_server(("127.0.0.1", 0)) as web:

        def answer() -> None:
            for _ in range(2):
                connection, _ = web.accept()
                with connection:
                    connection.recv(1)
                    connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
                    # What it sent must not be lost with what it did not read.
                    connection.shutdown(socket.SHUT_WR)
                    while connection.recv(4096):
                        continue

        thread = threading.Thread(target=answer)
        thread.start()
        text = refused(RedisRefused, node, port=web.getsockname()[1])
        thread.join()
    assert "Protocol Error" in text
    assert text.endswith("; check host and port: no Redis or Valkey server answers there")


@pytest.mark.parametrize(
    "rules",
    [
        ("~*", "&*", "+@all", "-zadd"),
        ("~*", "&*", "+@all", "-evalsha", "-eval"),
        ("~other", "&*", "+@all"),
        ("~ring", "&*", "+@all"),
        ("~*", "resetchannels", "+@all"),
    ],
    ids=["command", "scripts", "key", "second key", "channel"],
)
def test_a_right_that_is_missing(start: Start, rules: tuple[str, ...]) -> None:
    text = refused(PermissionDenied, node, **user(start(), *rules))
    assert f"; {ALLOW}" in text


def test_a_member_that_may_not_listen_goes_on_and_says_so_once(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    client = Redis(**user(start(), "~*", "&*", "+@all", "-subscribe"))
    with client, PartitionGroup(client, "orders", 4, member="a", rebalance_delay=0.0) as group:
        eventually(lambda: len(group.held) == 4, "it has everything")
        stay = group._stay
        assert stay is not None
        assert stay.loop is not None
        loop = stay.loop
        eventually(lambda: loop._listening > 2, "it has tried again")
    [warning] = [record for record in caplog.records if record.name == "hashring.groups"]
    text = warning.getMessage()
    assert text.startswith(
        "hashring group orders: a hears of changes only when it renews its lease, every 2.5 s: "
    )
    assert text.endswith(f"; {ALLOW}")


def test_a_right_that_the_commands_of_a_fenced_write_are_missing(start: Start) -> None:
    def write(client: Any) -> None:
        RedisFence(client).write("fenced", 1, ["INCR", "fenced"])

    assert refused(PermissionDenied, write, **user(start(), "~*", "+@all", "-incr"))


def test_a_password_that_is_missing_and_one_that_is_wrong(start: Start) -> None:
    server = start("requirepass right")
    # The two log in by different commands, which have different answers.
    for text in refusals(PermissionDenied, node, port=server.port):
        assert text.endswith("; give the password in the URL: redis://user:password@host")
    for text in refusals(PermissionDenied, node, port=server.port, password="wrong"):
        assert text.endswith("; check the user and the password in the URL")


def test_a_password_that_is_missing_for_a_long_command(start: Start) -> None:
    """Servers refuse it before they read it: a node's heartbeat, after a password was set."""

    def read_ring(client: Any) -> None:
        RedisStore(client, 5).run(owner(ring_keys("ring"), 0))

    server = start("requirepass right")
    text = refused(PermissionDenied, read_ring, port=server.port, protocol=2)
    assert text.endswith("; give the password in the URL: redis://user:password@host")


def test_a_read_only_replica(start: Start) -> None:
    server = start("replicaof 127.0.0.1 1")
    assert refused(ReadOnlyReplica, node, port=server.port) == (
        "beat of ring 'ring': READONLY You can't write against a read only replica; "
        "connect to the primary (or through Sentinel)"
    )


def test_a_replica_that_lost_its_primary(start: Start) -> None:
    server = start("replicaof 127.0.0.1 1", "replica-serve-stale-data no")
    text = refused(RedisUnavailable, node, port=server.port)
    assert text.endswith("; the replica lost its primary: wait, or look at it")


def test_memory_that_is_used_up(start: Start) -> None:
    server = start("maxmemory 1")
    assert refused(OutOfMemory, node, port=server.port) == (
        "beat of ring 'ring': OOM command not allowed when used memory > 'maxmemory'; "
        "raise maxmemory, or free memory"
    )


def test_too_few_replicas(start: Start) -> None:
    server = start("min-replicas-to-write 1")
    assert refused(WritesPaused, node, port=server.port) == (
        "beat of ring 'ring': NOREPLICAS Not enough good replicas to write; "
        "min-replicas-to-write is not met: look at the replicas"
    )


def test_a_snapshot_that_cannot_be_saved(start: Start, tmp_path: Path) -> None:
    server = start("save 3600 1000", directory=tmp_path)
    (tmp_path / "dump.rdb").mkdir()
    with Redis(port=server.port) as admin:
        admin.bgsave()
        eventually(
            lambda: admin.info("persistence")["rdb_last_bgsave_status"] == "err", "the save failed"
        )
    text = refused(WritesPaused, node, port=server.port)
    assert text.startswith("beat of ring 'ring': MISCONF ")
    assert text.endswith("; Redis cannot write its snapshot: look at the server's log")


def test_a_command_that_is_renamed(start: Start) -> None:
    server = start("rename-command ZADD HIDDEN")
    text = refused(RedisRefused, node, port=server.port)
    assert re.search(r"Unknown (Redis )?command called from ", text)
    assert text.endswith(
        "; restore the command (rename-command); hashring doctor names those missing"
    )


def test_a_sentinel_in_place_of_a_primary(start: Start) -> None:
    server = start("sentinel monitor ours 127.0.0.1 1 1")

    def read_ring(client: Any) -> None:
        RedisStore(client, 5).run(owner(ring_keys("ring"), 0))

    text = refused(RedisRefused, read_ring, port=server.port)
    assert re.search(r": unknown command [`']EVALSHA[`']; if this is the port of a Sentinel,", text)


@pytest.mark.parametrize("known", [False, True], ids=["no Sentinel", "no such primary"])
def test_sentinels_that_do_not_lead_to_a_primary(start: Start, known: bool) -> None:
    sentinels = [("127.0.0.1", port) for port in (1, 2, 3)]
    if known:
        sentinels[0] = "127.0.0.1", int(start("sentinel monitor ours 127.0.0.1 1 1").port or 0)
    for package in (redis.sentinel, valkey.sentinel):
        client = package.Sentinel(sentinels, socket_timeout=5).master_for("other")
        with pytest.raises(RedisUnavailable) as caught:
            node(client)
        assert str(caught.value).endswith(
            ": No master found for 'other'; no Sentinel answers that knows it: check the "
            "addresses of the Sentinels, and the name"
        )


def test_too_many_clients(start: Start) -> None:
    server = start("maxclients 1")

    def write(client: Any) -> None:
        RedisFence(client).write("fenced", 1, ["INCR", "fenced"])

    with Redis(port=server.port) as admin:
        admin.ping()
        # Nothing was sent, so no text says that something may have been done.
        for work in (node, write):
            text = refused(RedisUnavailable, work, port=server.port)
            assert text.endswith(
                ": max number of clients reached; raise maxclients, or use fewer clients"
            )


def test_a_script_that_blocks_everybody(start: Start) -> None:
    server = start("lua-time-limit 1")

    def block() -> None:
        with Redis(port=server.port) as own, suppress(redis.ResponseError):
            own.eval("while true do end", 0)

    blocking = threading.Thread(target=block)
    with Redis(port=server.port) as admin:
        blocking.start()

        def blocked() -> bool:
            try:
                admin.ping()
            except redis.ResponseError as error:
                return str(error).startswith("BUSY")
            return False

        eventually(blocked, "the script blocks")
        text = refused(RedisUnavailable, node, port=server.port)
        assert text.endswith("; another script blocks Redis: SCRIPT KILL ends it")
        admin.script_kill()
    blocking.join()


def test_a_cluster_without_all_slots(start: Start) -> None:
    server = start("cluster-enabled yes")
    text = refused(RedisUnavailable, node, port=server.port)
    assert text.endswith("; the cluster does not cover all slots: look at its nodes")


def test_a_host_named_like_a_refusal() -> None:
    """The name of a host stands in the text of its failure, and says nothing about a server."""
    for host in ("OOM.invalid", "maxmemory.invalid", "READONLY.invalid"):
        text = refused(RedisUnavailable, node, host=host)
        assert text.endswith("; check host, port and that Redis runs")
