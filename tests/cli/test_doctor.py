"""hashring doctor: each thing it looks for is found, and only when it is there."""

from __future__ import annotations

import json
import random
import re
import shlex
import time
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
from redis import Redis

from hashring import RING_SIZE, PartitionGroup, RingNode
from hashring.cli.doctor.findings import Level
from hashring.cli.doctor.group_checks import group_members, member_drains
from hashring.cli.doctor.rights import LOCK_RIGHTS, RIGHTS
from hashring.cli.doctor.ring_checks import ring_checks
from hashring.core.groups.group_status import GroupStatus
from hashring.core.groups.state import GroupPhase
from hashring.core.point_placement import random_points
from hashring.core.readable_numbers import counted
from hashring.core.ring import Ring
from hashring.core.ring_change_message import ChangeKind, RingChange, Stamp
from hashring.errors import PermissionDenied
from hashring.store.embedded_server import RedisServer
from hashring.store.lua_scripts import script
from hashring.store.ring.commands import Scoring
from hashring.store.ring.key_names import ring_keys
from hashring.store.ring.node_entries import AWAY
from hashring.store.ring.ring_events import RingEvent
from hashring.store.ring.snapshot import snapshot
from tests.cli.conftest import SESSION, Done, Run, nodes_on, put, until

Finding = dict[str, Any]

# No heartbeat comes by itself while a test looks.
CALM = {"ttl": 600.0, "heartbeat_interval": 200.0}


def finding(done: Done, check: str) -> Finding:
    """The finding of that check."""
    (found,) = (found for found in done.json["findings"] if found["check"] == check)
    return dict(found)


def problems(done: Done) -> list[str]:
    """The checks that found a problem."""
    return [found["check"] for found in done.json["findings"] if found["level"] == "problem"]


def test_a_healthy_ring_has_no_problem(client: Redis, run: Run) -> None:
    client.config_set("appendonly", "yes")
    with nodes_on(client, "alder", "birch", "cedar", placement="balanced") as nodes:
        for node in nodes:
            node.heartbeat()
        text = run("doctor")
        done = run("doctor", "--json")
    assert {found["level"] for found in done.json["findings"]} <= {"ok", "note"}
    assert {found["check"] for found in done.json["findings"] if found["level"] == "note"} <= {
        "shares"
    }
    assert done.json["problems"] == 0
    assert text.lines[-1] == "no problems found"
    assert len(text.lines) >= len(done.json["findings"])


def test_an_empty_ring_on_a_good_server_is_fine(run: Run) -> None:
    done = run("doctor", "--json")
    assert problems(done) == []
    assert finding(done, "nodes")["text"] == "there is no node on this ring"
    assert finding(done, "channel")["text"].startswith("a message arrived after ")


def test_of_a_ring_that_is_not_there_it_says_which_there_are(client: Redis, run: Run) -> None:
    client.set("{accounts}:epoch", "1 ab")
    remedy = "-> start one, or check the ring's name"
    assert f"{remedy}; rings here: accounts" in run("doctor").out
    client.set("{ring}:epoch", "1 ab")
    assert run("doctor").out.count(f"{remedy}\n") == 1


def test_it_changes_nothing(client: Redis, run: Run) -> None:
    put(client, "gone", 7, expires_in=-100)
    client.zadd("ring", {"abc": 1e12})
    client.hset("{ring}:nodes", "stray", SESSION + "{}")
    with nodes_on(client, "alder", **CALM):
        before = {key: client.dump(key) for key in client.keys("*")}
        run("doctor", status=1)
        assert {key: client.dump(key) for key in client.keys("*")} == before


def test_nodes_take_no_notice_of_its_message(client: Redis, run: Run) -> None:
    with nodes_on(client, "alder", "birch", **CALM) as nodes:
        before = [(n.status.bad_messages, n.status.gaps, n.status.fetches) for n in nodes]
        run("doctor")
        for node in nodes:
            node.heartbeat()
        assert [(n.status.bad_messages, n.status.gaps, n.status.fetches) for n in nodes] == before


# --- the server ---------------------------------------------------------------------------------


def test_it_names_every_server_and_finds_nothing_wrong_with_it(
    every_server: RedisServer, run: Run
) -> None:
    done = run("doctor", "--json", url=every_server.url)
    assert problems(done) == []
    with Redis(unix_socket_path=str(every_server.socket)) as client:
        info = client.info("server")
    version = info.get("valkey_version") or info["redis_version"]
    assert finding(done, "version")["text"].endswith(f" {version}")


def test_a_replica_is_a_problem(run: Run) -> None:
    with RedisServer(port=0, config=("replicaof 127.0.0.1 1",)) as server:
        done = run("doctor", "--json", url=server.url, status=1)
    assert finding(done, "role")["text"] == (
        "this is a replica of 127.0.0.1:1: no node can beat here"
    )
    assert finding(done, "rights")["level"] == "ok"


@pytest.mark.parametrize(
    ("policy", "level"),
    [
        ("noeviction", "ok"),
        ("volatile-lru", "note"),
        ("allkeys-lru", "problem"),
        ("allkeys-random", "problem"),
    ],
)
def test_eviction_is_judged_by_whether_the_ring_can_go(run: Run, policy: str, level: str) -> None:
    with RedisServer(config=("maxmemory 100mb", f"maxmemory-policy {policy}")) as server:
        done = run("doctor", "--json", url=server.url, status=int(level == "problem"))
        assert finding(done, "eviction")["level"] == level
    with RedisServer(config=(f"maxmemory-policy {policy}",)) as server:
        assert problems(run("doctor", "--json", url=server.url)) == []


def test_an_eviction_that_can_take_locks_away_is_a_problem_where_there_are_locks(run: Run) -> None:
    with (
        RedisServer(config=("maxmemory 100mb", "maxmemory-policy volatile-lru")) as server,
        Redis.from_url(server.url) as client,
        nodes_on(client, "alder", lock=True),
    ):
        done = run("doctor", "--json", url=server.url, status=1)
    assert problems(done) == ["eviction"]


def test_memory_that_is_nearly_used_up_is_a_problem(run: Run) -> None:
    with RedisServer(config=("maxmemory 1mb",)) as server:
        done = run("doctor", "--json", url=server.url, status=1)
    assert finding(done, "memory")["level"] == "problem"
    assert finding(done, "memory")["remedy"] == "raise maxmemory, or free memory"


def test_a_save_that_failed_is_a_problem(run: Run, tmp_path: Any) -> None:
    with RedisServer(directory=tmp_path) as server:
        with Redis(unix_socket_path=str(server.socket)) as client:
            # A directory in the way of the file is in the way of root, too.
            (tmp_path / "dump.rdb").mkdir()
            client.bgsave()
            while client.info("persistence")["rdb_bgsave_in_progress"]:
                time.sleep(0.01)
        done = run("doctor", "--json", url=server.url, status=1)
    assert finding(done, "persistence")["text"].startswith("the last save failed (rdb_")


def test_a_server_that_may_lose_orders_is_noted(run: Run, tmp_path: Any) -> None:
    with RedisServer(directory=tmp_path) as server:
        without = finding(run("doctor", "--json", url=server.url), "persistence")
        with Redis(unix_socket_path=str(server.socket)) as client:
            client.config_set("appendonly", "yes")
        with_file = finding(run("doctor", "--json", url=server.url), "persistence")
    assert without["level"] == "note"
    assert "drains, weights and other orders" in without["text"]
    assert "set appendonly to yes" in without["remedy"]
    assert with_file["level"] == "ok"


def limited(client: Redis, *rules: str) -> str:
    client.execute_command("ACL", "SETUSER", "limited", "reset", "on", ">x", *rules)
    return f"unix://limited:x@{client.connection_pool.connection_kwargs['path']}"


@pytest.mark.parametrize("command", ["ping", "time", "subscribe", "publish"])
def test_a_command_that_the_server_lacks_is_named_and_ends_no_look(run: Run, command: str) -> None:
    with RedisServer(config=[f"rename-command {command} HIDDEN"]) as server:
        done = run("doctor", "--json", url=server.url, status=command != "ping")
    assert {found["about"] for found in done.json["findings"]} == {"server", "ring", "groups"}
    if command in ("subscribe", "publish"):
        assert problems(done) == ["channel"]
        assert "rename-command" in finding(done, "channel")["text"]
    elif command == "time":
        assert finding(done, "clock")["level"] == "unknown"
        assert finding(done, "rights")["text"].endswith(": time (the server has no such command)")


ALL = ("~*", "&*", "+@all")


@pytest.mark.parametrize("command", [name for name, arguments in RIGHTS if arguments])
def test_each_missing_right_is_found(client: Redis, run: Run, command: str) -> None:
    url = limited(client, *ALL, f"-{command}")
    done = run("doctor", "--json", url=url, status=1)
    assert "rights" in problems(done)
    missing = finding(done, "rights")["text"].partition(": ")[2].split(", ")
    assert command in missing
    assert set(missing) <= {command, "eval", "evalsha"}


@pytest.mark.parametrize("command", [name for name, _ in LOCK_RIGHTS])
def test_a_missing_right_of_locks_is_a_problem_where_there_are_locks(
    client: Redis, run: Run, command: str
) -> None:
    url = limited(client, *ALL, f"-{command}")
    found = finding(run("doctor", "--json", url=url), "lock rights")
    assert found["level"] == "note"
    assert found["text"] == (
        f"refused on the ring's locks, so no node can use lock=True: {command}"
    )
    with nodes_on(client, "alder", lock=True):
        assert problems(run("doctor", "--json", url=url, status=1)) == ["lock rights"]


def test_a_missing_right_of_groups_is_a_note(client: Redis, run: Run) -> None:
    url = limited(client, *ALL, "-info")
    found = finding(run("doctor", "--json", url=url), "group rights")
    assert (found["level"], found["text"]) == (
        "note",
        "refused, so no PartitionGroup can start: info",
    )
    client.execute_command(*shlex.split(found["remedy"]))
    assert finding(run("doctor", "--json", url=url), "group rights")["level"] == "ok"


def test_keys_and_channels_out_of_reach_are_found(client: Redis, run: Run) -> None:
    with nodes_on(client, "alder"):
        pass
    done = run("doctor", "--json", url=limited(client, "~other", "&*", "+@all"), status=1)
    assert {"rights", "reading"} <= set(problems(done))
    done = run("doctor", "--json", url=limited(client, "~*", "resetchannels", "+@all"), status=1)
    assert problems(done) == ["channel"]
    for right in ("-subscribe", "-publish"):
        done = run("doctor", "--json", url=limited(client, *ALL, right), status=1)
        assert problems(done) == ["channel"]


@pytest.mark.parametrize(
    ("rules", "resets"),
    [
        (("+acl|whoami",), "keys and channels"),
        (("~*", "&*", "+acl|whoami"), "keys and channels"),
        (("~*", "&*", "+acl"), ""),
        (("resetchannels", "+acl"), ""),
        (("~other:*", "resetchannels", "&other:*", "+@all", "-@admin", "+acl|whoami"), ""),
        (("~ring", "&*", "+@all", "-@admin", "+acl|whoami", "-zadd"), ""),
        (("~*", "&*", "+@all", "-@admin", "+acl|whoami", "-subscribe"), "channels"),
    ],
)
def test_the_rights_it_recommends_are_those_a_node_needs(
    every_server: RedisServer, run: Run, rules: tuple[str, ...], resets: str
) -> None:
    with Redis.from_url(every_server.url) as admin:
        url = limited(admin, *rules)
        done = run("doctor", "--json", url=url, status=1)
        [found] = [
            each
            for each in done.json["findings"]
            if each["level"] == "problem" and each["check"] in ("rights", "channel")
        ][:1]
        assert found["details"] == [
            f"the line replaces the user's patterns for {kinds}, which cannot be read here"
            for kinds in ([resets] if resets else [])
        ]
        words = shlex.split(found["remedy"])
        assert words[:2] == ["ACL", "SETUSER"]
        admin.execute_command(*words)
        with (
            Redis.from_url(url) as allowed,
            RingNode(allowed, "ring", name="alder", lock=True, limit=2) as node,
        ):
            assert len(node.select(f"key-{number}" for number in range(5))) == 2
            node.heartbeat()
            node.cleanup()
            assert node.status.last_error is None
            assert problems(run("doctor", "--json", url=url)) == []
            if "~other:*" in rules:
                assert allowed.set("other:key", "kept")
        admin.execute_command("ACL", "DELUSER", "limited")


def test_the_rights_it_recommends_are_for_this_ring_alone(client: Redis, run: Run) -> None:
    """A ring's name may hold letters that mean something in a pattern, or to a shell."""
    name = 'a*b [c]\\"d'
    url = limited(client, "resetchannels", "+acl")
    done = run("doctor", "--json", "--ring", name, url=url, status=1)
    client.execute_command(*shlex.split(finding(done, "rights")["remedy"]))
    with Redis.from_url(url) as allowed:
        with RingNode(allowed, name) as node:
            assert node.contains("key")
        with pytest.raises(PermissionDenied):
            RingNode(allowed, 'axb c\\"d').start()


def test_every_command_of_the_scripts_is_among_the_rights() -> None:
    used = set()
    for name in ("beat", "leave", "sweep", "snapshot"):
        used |= set(re.findall(r"'([A-Z]{3,})'", script("ring", name).text))
    used -= {"WITHSCORES", "LIMIT", "MAXLEN", "PUBLISH"}
    # Heartbeats of nodes that lock keys ask which server it is, and no others.
    assert used - {"INFO"} == {name.upper() for name, _ in RIGHTS}
    for name in ("acquire", "look", "release", "renew", "take_away"):
        used |= set(re.findall(r"'([A-Z]{3,})'", script("locks", name).text))
    used -= {"WITHSCORES", "LIMIT", "MAXLEN", "PUBLISH", "KEEPTTL"}
    assert used == {name.upper() for name, _ in (*RIGHTS, *LOCK_RIGHTS)}


# --- the ring -----------------------------------------------------------------------------------


def test_a_key_of_another_type_is_a_problem(client: Redis, run: Run) -> None:
    client.set("ring", "text")
    done = run("doctor", "--json", status=1)
    assert problems(done) == ["type"]
    assert "WRONGTYPE" in finding(done, "type")["text"]


def test_garbage_is_shown_with_reasons(client: Redis, run: Run) -> None:
    client.zadd("ring", {"abc": 1e12, "12:only": 1e12, f"{2**32}:n:1": 1e12, b"\xff\xfe": 1e12})
    found = finding(run("doctor", "--json", status=1), "members")
    assert found["text"] == "4 invalid entries in the ring key; nodes ignore them"
    assert sorted(found["details"]) == [
        "ring member b'12:only' names no node; expected start:node:id",
        (
            f"ring member b'{2**32}:n:1' has a point beyond the ring's {2**32} points; "
            "expected start:node:id"
        ),
        "ring member b'\\xff\\xfe' is not UTF-8; expected start:node:id",
        "ring member b'abc' does not begin with a point in plain decimal; expected start:node:id",
    ]


def test_shared_points_are_shown_with_their_nodes(client: Redis, run: Run) -> None:
    put(client, "a", 5, 9)
    put(client, "b", 5, 7)
    found = finding(run("doctor", "--json", status=1), "points")
    assert found["text"] == (
        "shared by several nodes: 1 point; the last by name owns it, the others nothing"
    )
    assert found["details"] == ["5: a, b"]
    found = finding(run("doctor", "--json", "--wire", "redis-hashring", status=1), "points")
    assert found["text"].endswith("with redis-hashring each of them owns it")
    assert found["remedy"].endswith(
        " at once: a node of redis-hashring may claim every key until then"
    )


def test_what_expired_and_was_not_swept(client: Redis, run: Run) -> None:
    put(client, "gone", 5, expires_in=-30)
    done = run("doctor", "--json", status=1)
    assert problems(done) == ["nodes", "expired"]
    assert finding(done, "nodes")["text"] == "every node has expired: no key has an owner"
    assert finding(done, "expired")["text"].endswith("and no live node is left to sweep")
    put(client, "alive", 6)
    found = finding(run("doctor", "--json", status=1), "expired")
    assert re.fullmatch(r"gone: expired \d+ s ago, and no heartbeat has swept it", found["text"])


def test_entries_without_replicas_and_replicas_without_entries(client: Redis, run: Run) -> None:
    put(client, "old:1", 5)
    assert finding(run("doctor", "--json"), "entries")["text"].startswith(
        "old:1: has no description"
    )
    client.hset("{ring}:nodes", "stray", SESSION + "{}")
    found = finding(run("doctor", "--json", status=1), "entries")
    assert found["text"] == "stray: has a description, but no replica on the ring"


def test_nodes_that_hash_differently(client: Redis, run: Run) -> None:
    with (
        nodes_on(client, "alder", hash_algorithm="crc-32"),
        RingNode(client, "ring", name="birch", hash_algorithm="crc-32c"),
    ):
        found = finding(run("doctor", "--json", status=1), "hashing")
    assert found["details"] == ["crc-32: alder", "crc-32c: birch"]


def test_a_node_that_knows_the_last_change_and_sees_another_ring(client: Redis, run: Run) -> None:
    with nodes_on(client, "alder", follow=True, **CALM) as (alder,):
        alder.heartbeat()
        # It tells nobody, and its one point has its fair share: some gap is wide enough for that.
        points = sorted(int(member.partition(b":")[0]) for member in client.zrange("ring", 0, -1))
        fair = RING_SIZE // (len(points) + 1)
        around = zip([points[-1] - RING_SIZE, *points], points, strict=False)
        end = next(point for before, point in around if point - before > fair)
        put(client, "by-hand", (end - fair) % RING_SIZE)
        found = finding(run("doctor", "--json", status=1), "agreement")
        assert found["text"] == "alder: knows the last change, and yet sees another ring"
        alder.heartbeat()  # finds that the number of members is not what it was
        alder.heartbeat()
        assert finding(run("doctor", "--json"), "agreement")["level"] == "note"


def test_a_node_to_which_redis_refuses_locks(client: Redis, run: Run) -> None:
    with nodes_on(client, "alder", lock=True) as (alder,):
        assert alder.select(["held"]) == ["held"]
        client.config_set("maxmemory", "1")
        try:
            assert alder.select(["held", "new"]) == ["held"]
            alder.heartbeat()  # tells it
            found = finding(run("doctor", "--json", status=1), "locks")
            assert found["text"] == ("Redis refuses new locks to 1 node")
            (detail,) = found["details"]
            assert detail.startswith("alder: ")
            assert "raise maxmemory" in detail
            status = run("status", status=1)
            assert f"Redis refuses new locks to {detail}" in " ".join(status.out.split())
        finally:
            client.config_set("maxmemory", "0")
        assert alder.select(["held", "new"]) == ["held", "new"]
        alder.heartbeat()
        assert finding(run("doctor", "--json"), "locks")["text"] == "every node locks keys"


def test_keys_that_no_node_has_room_for(client: Redis, run: Run) -> None:
    keys = [f"key-{number}" for number in range(40)]
    with nodes_on(client, "alder", "birch", lock=True, limit=3) as nodes:
        assert finding(run("doctor", "--json"), "limits")["text"] == (
            "no key is left for want of room; with a limit: 2 of 2 nodes"
        )

        def unserved() -> int:
            for node in nodes:
                node.select(keys)
                node.heartbeat()
            return sum(node.status.unserved for node in nodes)

        until(lambda: unserved() == 34, "all that nobody holds is counted")
        for node in nodes:
            node.heartbeat()  # tells it
        found = finding(run("doctor", "--json", status=1), "limits")
        assert found["level"] == "problem"
        assert found["text"] == "no node has room for 34 keys, so nobody serves them"
        assert found["remedy"] == "raise the limit of some nodes, or start more"
        first, second = (node.status.unserved for node in nodes)
        assert set(found["details"]) == {
            f"alder: {counted(first, 'key')}, at its limit of 3",
            f"birch: {counted(second, 'key')}, at its limit of 3",
        }
        told = {node["name"]: node for node in run("nodes", "--json").json["nodes"]}
        assert told["alder"]["unserved"] == first
        assert (told["alder"]["held"], told["alder"]["limit"]) == (3, 3)
        events = [event for event in run("events", "--json").json_lines if event["keys"]]
        assert [event["kind"] for event in events] == ["unserved", "unserved"]
        assert {event["by"] for event in events} == {"alder", "birch"}
        lines = [line.split("  ", 1)[1] for line in run("events").lines if "unserved" in line]
        assert lines == [f"unserved  {e['keys']} keys by {e['by']}" for e in events]
        with nodes_on(client, "cedar", lock=True) as (cedar,):
            nodes.append(cedar)
            until(lambda: unserved() == 0, "a third has room")
            for node in nodes:
                node.heartbeat()
            assert finding(run("doctor", "--json"), "limits")["text"] == (
                "no key is left for want of room; with a limit: 2 of 3 nodes"
            )
            assert "no keys any more by " in run("events").out


def test_nodes_without_locks_beside_nodes_with_locks_are_a_problem(client: Redis, run: Run) -> None:
    with nodes_on(client, "alder", lock=True, **CALM):
        assert finding(run("doctor", "--json"), "locks")["text"] == "every node locks keys"
        with nodes_on(client, "birch", limit=5, **CALM):
            done = run("doctor", "--json", status=1)
            assert problems(done) == ["locks"]
            assert finding(done, "locks")["text"] == (
                "birch: without lock=True, so it works on keys that others have locked"
            )
    with nodes_on(client, "birch", **CALM):
        assert finding(run("doctor", "--json"), "locks")["text"] == "no node locks keys"


@pytest.mark.parametrize("told", [{"limit": "x"}, {"limit": 5, "unserved": float("nan")}, {}])
def test_what_a_node_tells_of_its_limit_may_be_anything(
    client: Redis, run: Run, told: dict[str, Any]
) -> None:
    put(client, "odd:1", 5, told=told)
    assert finding(run("doctor", "--json"), "limits")["level"] == "ok"


# --- the ring at moments that a test cannot wait for: the same checks on a ring made up ----------


NOW = 1_700_000_000  # Redis time, in seconds


def written(
    node: str,
    *points: int,
    expires_in: float = 60.0,
    told: dict[str, Any] | None = None,
    session: str = SESSION,
) -> tuple[list[Any], list[bytes]]:
    """A node's members with their scores, and its entry, as Redis has them."""
    members: list[Any] = []
    for number, point in enumerate(points):
        members += [f"{point}:{node}:{number}".encode(), repr(NOW + expires_in).encode()]
    entry = [] if told is None else [node.encode(), (session + json.dumps(told)).encode()]
    return members, entry


def look(
    nodes: Iterable[tuple[list[Any], list[bytes]]],
    events: Iterable[RingEvent] = (),
    ordered: list[bytes] | None = None,
    drained: list[bytes] | None = None,
) -> dict[str, tuple[str, str]]:
    """What the checks find on a ring of these nodes, at the tag ``now``."""
    scoring = Scoring.expiry(0)
    members: list[Any] = []
    entries: list[bytes] = []
    for some, entry in nodes:
        members += some
        entries += entry
    stamp = (b"7", b"now", b"%d" % (NOW * 10**6))
    raw = (*stamp, members, entries, b"", len(members) // 2, ordered or [], drained or [])
    read = snapshot(ring_keys("ring"), scoring=scoring).read(raw)
    return {
        found.check: (found.level.value, found.text)
        for found in ring_checks(read, list(events), scoring)
    }


def event(seconds_ago: int, node: str, reason: str) -> RingEvent:
    at = (NOW - seconds_ago) * 1000
    stamp = Stamp(epoch=1, tag="t", members=1, at=at * 1000)
    change = RingChange(ChangeKind.JOIN, (node,), (5,), "p", stamp, "s", reason)
    return RingEvent(f"{at}-0", "join", node, change)


def told(tag: str) -> dict[str, Any]:
    return {"ttl": 60, "hash_algorithm": "crc-32", "sees": {"tag": tag, "fingerprint": "f"}}


def test_a_member_that_nobody_vouches_for_is_a_problem_and_the_next_heartbeat_removes_it(
    client: Redis, run: Run
) -> None:
    with nodes_on(client, "alder", **CALM) as (node,):
        client.zadd("ring", {"7:phantom:x": 1e12})
        found = finding(run("doctor", "--json", status=1), "index")
        assert (found["level"], found["details"]) == ("problem", ["7:phantom:x"])
        assert "no node vouches for 1 member" in found["text"]
        node.heartbeat()
        assert finding(run("doctor", "--json"), "index")["level"] == "ok"


def test_an_index_that_lost_a_member_is_a_note(client: Redis, run: Run) -> None:
    with nodes_on(client, "alder", **CALM):
        member = client.zrange("{ring}:points", 0, 0)[0]
        client.zrem("{ring}:points", member)
        found = finding(run("doctor", "--json"), "index")
        assert found["level"] == "note"
        assert "differs from the ring by 1" in found["text"]


def test_an_index_with_as_many_members_but_others_is_a_note(client: Redis, run: Run) -> None:
    with nodes_on(client, "alder", **CALM):
        member = client.zrange("{ring}:points", 0, 0)[0]
        client.zrem("{ring}:points", member)
        client.zadd("{ring}:points", {"7:phantom:x": 7})
        found = finding(run("doctor", "--json"), "index")
        assert found["level"] == "note"
        assert "has 1 member that the ring does not have" in found["text"]


@pytest.mark.parametrize(
    ("hours", "found"),
    [(2, ("note", "1 node drained by order")), (25, ("problem", "b: drained for more than a day"))],
)
def test_a_drain_that_was_forgotten_is_a_problem(hours: int, found: tuple[str, str]) -> None:
    order = {"drain": {"by": "alice", "since": str((NOW - hours * 3600) * 10**6)}}
    nodes = [written("a", 6, told={"ttl": 60}), written("b", told={"ttl": 60})]
    ordered, drained = [b"b", json.dumps(order).encode()], [b"b", b"%d" % (NOW + 50)]
    checks = look(nodes, ordered=ordered, drained=drained)
    assert checks["drains"][0] == found[0]
    assert checks["drains"][1].startswith(found[1])
    assert checks["nodes"][1] == "1 node with 1 replica"
    assert checks["entries"][0] == "ok"


@pytest.mark.parametrize(
    ("session", "live", "level"),
    [("", True, "problem"), (SESSION[::-1], True, "note"), ("", False, "note")],
    ids=["named", "a process that crashed", "no live node"],
)
def test_an_old_drain_that_keeps_no_node_from_working_is_a_note(
    session: str, live: bool, level: str
) -> None:
    order = {"by": "alice", "since": str((NOW - 25 * 3600) * 10**6)}
    drain = {"drain": order | ({"session": session} if session else {})}
    nodes = [written("a", 6, told={"ttl": 60})] if live else []
    assert look(nodes, ordered=[b"b", json.dumps(drain).encode()])["drains"][0] == level


def test_a_drain_of_a_member_that_was_forgotten_is_a_problem_with_the_command_that_lifts_it() -> (
    None
):
    found = member_drains({"calm": [], "orders": ["a", "b"], "my group": ["$c", "-d"]})
    assert (found.level, found.text) == (
        Level.PROBLEM,
        "4 members drained for more than a day, without an end",
    )
    assert found.details == (
        "hashring group undrain orders a",
        "hashring group undrain orders b",
        "hashring group undrain 'my group' '$c'",
        "hashring group undrain -- 'my group' -d",
    )
    assert member_drains({"calm": []}).level is Level.OK


def test_groups_that_no_member_is_left_in_and_where_some_expired_are_a_problem() -> None:
    empty = GroupStatus(GroupPhase.READY, 7, 4, None, (), (), (), ())
    found = group_members(
        {
            "orders": replace(empty, expired=("a", "b")),
            "sales": replace(empty, expired=("c",)),
            "stopped": empty,
            # A member whose report cannot be read keeps its partitions.
            "frozen": replace(empty, expired=("d",), unreadable=("e",)),
        }
    )
    assert (found.level, found.text) == (
        Level.PROBLEM,
        "no member is left in 2 groups after some expired: no partition of them has an owner",
    )
    assert found.details == ("orders: a expired", "orders: b expired", "sales: c expired")
    assert group_members({"stopped": empty}).level is Level.OK


def test_it_looks_at_the_drains_of_all_groups(client: Redis, run: Run) -> None:
    with PartitionGroup(client, "orders", partitions=4, member="a", rebalance_delay=0) as group:
        until(lambda: group.status().members, "the member is there")
        group.drain(force=True)
        found = finding(run("doctor", "--json"), "member drains")
    assert found["text"] == "no drain of a member was forgotten (1 group)"


def test_what_has_just_expired_is_only_a_note() -> None:
    nodes = [written("alive", 6, told={}), written("gone", 5, expires_in=-0.9)]
    assert look(nodes)["expired"] == ("note", "gone: just expired; the next heartbeat sweeps it")
    nodes[1] = written("gone", 5, expires_in=-1.1)
    assert look(nodes)["expired"][0] == "problem"


def test_a_node_that_beat_long_after_the_change_and_does_not_know_it() -> None:
    deaf = written("deaf", 5, expires_in=60 - 28, told=told("old"))  # it beat 28 s ago
    assert look([deaf], [event(30, "x", "start")])["agreement"] == (
        "problem",
        "deaf: missed the message of the last change, 30 s ago",
    )


@pytest.mark.parametrize("beat", [29.5, 40])
def test_a_node_that_has_not_beaten_since_the_change_is_not_blamed(beat: float) -> None:
    calm = written("calm", 5, expires_in=60 - beat, told=told("old"))
    assert look([calm], [event(30, "x", "start")])["agreement"] == (
        "note",
        "calm: has sent no heartbeat since the last change",
    )


def test_a_name_that_changes_hands_again_and_again() -> None:
    restarts = [event(ago, "worker", "restart") for ago in (30, 20, 10)]
    assert look([], restarts[:2])["names"][0] == "ok"
    assert look([], restarts)["names"] == (
        "problem",
        "worker: taken over again and again: several processes run under one name",
    )


def test_restarts_of_long_ago_do_not_count() -> None:
    restarts = [event(ago, "worker", "restart") for ago in (900, 800, 700)]
    assert look([], restarts)["names"][0] == "ok"


def test_containers_with_one_host_name_and_pid() -> None:
    place = {"host": "app", "pid": 1}
    nodes = [written("app:1", 5, told=place), written("app:1.2", 6, told=place)]
    assert look(nodes)["names"][0] == "ok"  # the second is the second node of one process
    nodes.append(written("app:1.3f9a", 7, told=place))
    level, text = look(nodes)["names"]
    assert level == "note"
    assert text == "app:1, app:1.3f9a: different processes with the same host name and pid"


def test_a_node_that_is_lost_and_back_often() -> None:
    returns = [event(ago, "starved", "return") for ago in (30, 20, 10)]
    level, text = look([], returns)["heartbeats"]
    assert level == "problem"
    assert text.startswith("starved: expired or was removed, and came back, at least 3 times")


def test_shares_that_no_chance_explains() -> None:
    nodes = [
        written("crowded", *range(0, 1600, 100)),
        written("alone", 2**31, *range(2**31 + 1000, 2**31 + 2500, 100)),
    ]
    assert look(nodes)["shares"][0] == "ok"  # each has half
    nodes.append(written("third", *range(2**31 + 5000, 2**31 + 6600, 100)))
    level, text = look(nodes)["shares"]
    assert level == "problem"
    assert text.startswith("from 0.00 (alone) to 1.50 (")


@pytest.mark.parametrize("seed", range(20))
def test_shares_of_random_points_are_no_problem(seed: int) -> None:
    rng, ring = random.Random(seed), Ring()
    for name in "abcdefghij":
        ring = ring.with_node(name, random_points(ring, name, 16, rng))
    nodes = [written(name, *ring.points_of(name)) for name in ring.nodes]
    level, text = look(nodes)["shares"]
    assert level in ("ok", "note")
    assert text.endswith(" (random points: up to 1.42 on average)")


def random_nodes(count: int, points: int, *, start: int = 0) -> list[tuple[list[Any], list[bytes]]]:
    """Nodes whose points are random, none of them below the start."""
    rng = random.Random(count + points)
    return [
        written(f"n{order}", *(rng.randrange(start, RING_SIZE) for _ in range(points)))
        for order in range(count)
    ]


@pytest.mark.parametrize(
    ("count", "points"), [(1000, 1), (1000, 2), pytest.param(1000, 16, marks=pytest.mark.slow)]
)
def test_random_points_of_many_nodes_are_no_problem(count: int, points: int) -> None:
    # The more nodes there are, the further from its mean is the most unusual of their shares.
    assert look(random_nodes(count, points))["shares"][0] in ("ok", "note")


@pytest.mark.parametrize("count", [10, 200])
def test_one_uneven_node_among_many_is_found(count: int) -> None:
    close = written("a", *range(0, 1600, 100))
    level, text = look([*random_nodes(count, 16, start=RING_SIZE // 4), close])["shares"]
    assert level == "problem"
    assert " (a) times what their points should have (random points: up to " in text
    level, text = look([*random_nodes(count, 16), close])["shares"]
    assert level == "problem"
    assert re.match(r"from 0\.\d\d \(a\) to ", text)


def test_the_text_is_the_json_for_people(client: Redis, run: Run) -> None:
    client.zadd("ring", {"abc": 1e12})
    done = run("doctor", status=1)
    found = json.loads(run("doctor", "--json", status=1).out)["findings"]
    for item in found:
        assert f"{item['level']:8} {item['check']}" in done.out
        assert all(detail in done.out for detail in item["details"])
        assert not item["remedy"] or f"-> {item['remedy']}" in done.out
    assert done.lines[-1] == "1 problem found"


def test_what_a_node_that_is_away_told_of_its_locks_is_no_problem_any_more() -> None:
    was = {"ttl": 60, "lock": True, "limit": 5, "unserved": 3, "refusal": "out of memory"}
    checks = look([written("a", 6, told=was)])
    assert (checks["limits"][0], checks["locks"][0]) == ("problem", "problem")
    checks = look([written("a", 6, told=was, session=AWAY.decode())])
    assert checks["away"][0] == "note"
    assert (checks["limits"][0], checks["locks"][0]) == ("ok", "ok")
