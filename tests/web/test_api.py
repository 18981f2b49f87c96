"""The API answers what is asked, and says what is wrong with what cannot be."""

from __future__ import annotations

import json
from typing import Any

import pytest
from redis import Redis

from hashring import PartitionGroup
from hashring.core.hashing import RING_SIZE, HashAlgorithm, hash_algorithm
from hashring.core.readable_numbers import spans
from hashring.core.ring import Ring
from hashring.store.locks.commands import acquire
from hashring.store.ring.commands import Scoring
from hashring.store.ring.key_names import ring_keys
from hashring.store.ring.node_entries import AWAY
from hashring.web import Service, create_app
from tests.conftest import eventually
from tests.web.conftest import SESSION, Visit, Visitor, nodes_on, put

HALF = RING_SIZE // 2


def test_rings_and_groups_are_found_without_being_named(redis: Redis, visit: Visit) -> None:
    with nodes_on(redis, "accounts", "a"), nodes_on(redis, "{team}:feeds", "b"):
        visitor = visit()
        eventually(lambda: visitor.service.searched, "it has looked for rings")
        eventually(lambda: len(visitor.json("/api/rings")["rings"]) == 2, "both are found")
        names = [ring["ring"] for ring in visitor.json("/api/rings")["rings"]]
    assert names == ["accounts", "{team}:feeds"]


def test_a_named_ring_is_listed_before_it_has_nodes(visit: Visit) -> None:
    visitor = visit(rings=["later"])
    assert [ring["ring"] for ring in visitor.json("/api/rings")["rings"]] == ["later"]
    assert "no node has joined yet" in visitor.page("/ring", name="later")


def test_rings_and_nodes_come_in_pages(redis: Redis, visit: Visit) -> None:
    names = ["a", "b", "c", "é", "\U0001f600"]
    for point, name in enumerate(names):
        put(redis, name, point)
    visitor = visit(rings=names)

    def pages(of: str, key: str, **more: str) -> list[list[str]]:
        found, after = [], ""
        while True:
            answer = visitor.json(
                f"/api/{of}", count=2, **more, **({"after": after} if after else {})
            )
            found.append([each[key] for each in answer[of]])
            if answer["next"] is None:
                return found
            after = answer["next"]

    assert pages("nodes", "name", ring="ring") == [names[:2], names[2:4], names[4:]]
    assert pages("rings", "ring") == [["a", "b"], ["c", "ring"], names[3:]]


def test_a_ring_that_was_not_found_yet_is_looked_for(redis: Redis, visit: Visit) -> None:
    visitor = visit()
    visitor.json("/api/ring", 404, ring="new")
    with nodes_on(redis, "new", "a"):
        assert visitor.json("/api/ring", ring="new")["nodes"] == 1


def test_a_ring_tells_its_evenness_and_what_is_wrong(redis: Redis, visit: Visit) -> None:
    put(redis, "a", 0)
    put(redis, "b", HALF, 7)
    put(redis, "c", 7)
    put(redis, "gone", 99, expires_in=-5)
    redis.zadd("ring", {"garbage": 1})
    told = visit(rings=["ring"]).json("/api/ring", ring="ring")
    assert told["nodes"] == 3
    assert told["replicas"] == 4
    assert told["expired"] == ["gone"]
    assert told["garbage"] == 1
    assert told["duplicate_points"] == [{"point": 7, "nodes": ["b", "c"]}]
    assert told["balance"]["peak_to_mean"] > 1
    assert told["fingerprint"] == Ring({"a": [0], "b": [HALF, 7], "c": [7]}).fingerprint


def test_nodes_tell_what_they_tell_of_themselves(redis: Redis, visit: Visit) -> None:
    put(redis, "a", 0, told={"host": "h", "pid": 5, "ttl": 90, "held": 3, "limit": 3})
    put(redis, "b", HALF, expires_in=60, told={"ttl": 600})
    put(redis, "c", 99, expires_in=-1)
    nodes = visit(rings=["ring"]).json("/api/nodes", ring="ring")["nodes"]
    assert [(node["name"], node["state"]) for node in nodes] == [
        ("a", "full"),
        ("b", "late"),
        ("c", "expired"),
    ]
    assert (nodes[0]["host"], nodes[0]["pid"], nodes[0]["held"]) == ("h", "5", 3)
    assert (nodes[0]["share"], nodes[0]["fair_share"]) == (0.5, 0.5)


def test_a_node_that_stopped_to_come_back_is_away_and_not_late(redis: Redis, visit: Visit) -> None:
    put(redis, "a", 0, expires_in=60, told={"ttl": 600})
    redis.hset("{ring}:nodes", "a", AWAY + json.dumps({"ttl": 600}).encode())
    visitor = visit(rings=["ring"])
    (node,) = visitor.json("/api/nodes", ring="ring")["nodes"]
    assert (node["state"], node["away"]) == ("away", True)
    assert visitor.json("/api/ring", ring="ring")["status"]["state"] == "changing"
    page = visitor.page("/ring", name="ring")
    assert '<span class="state away">away</span>' in page
    assert "+ 1 away" in page


def test_the_owner_of_a_key_comes_with_who_would_be_next_and_the_lock(
    redis: Redis, visit: Visit
) -> None:
    put(redis, "a", 0)
    put(redis, "b", HALF)
    keys = ring_keys("ring")
    command = acquire(keys, node="b", session=SESSION, ttl=60, locked=[b"hello"], most=1, awaited=0)
    redis.eval(command.script.text, len(command.keys), *command.keys, *command.arguments)
    told = visit(rings=["ring"]).json("/api/owner", ring="ring", key="hello")
    assert (told["point"], told["owner"], told["next"]) == (907060870, "a", ["b"])
    assert told["lock"]["node"] == "b"
    assert int(told["lock"]["token"]) > 0


def test_owners_of_many_keys_are_those_of_each(redis: Redis, visit: Visit) -> None:
    put(redis, "a", 0)
    put(redis, "b", HALF)
    visitor = visit(rings=["ring"])
    keys = [f"key-{number}" for number in range(1000)]
    answer = visitor.client.post("/api/owners", json={"ring": "ring", "keys": keys})
    ring = Ring({"a": [0], "b": [HALF]})
    assert answer.json["owners"] == [ring.owner(key) for key in keys]


def test_no_owner_is_told_where_nobody_here_knows_how_the_nodes_hash_keys(
    redis: Redis, visit: Visit
) -> None:
    with nodes_on(redis, "ring", "a", "b", hash_algorithm=HashAlgorithm("by-length", len)):
        visitor = visit(rings=["ring"])
        eventually(
            lambda: visitor.json("/api/ring", ring="ring")["hash_algorithms"] == ["by-length"],
            "the nodes report it",
        )
        refused = visitor.client.post("/api/owners", json={"ring": "ring", "keys": ["hello"]})
        page = visitor.page("/ring", name="ring", key="hello")
        error = visitor.json("/api/owner", 503, ring="ring", key="hello")["error"]
    assert "cannot hash keys as the nodes of ring 'ring' do" in error
    assert "by-length" in error
    assert (refused.status_code, refused.json["error"]) == (503, error)
    assert "cannot hash keys" in page
    assert "<dt>Owner</dt>" not in page


def test_keys_of_a_ring_of_redis_hashring_are_hashed_as_its_nodes_do(redis: Redis) -> None:
    for node, point in (("a", 0), ("b", HALF)):
        put(redis, node, point, ring="old", expires_in=0)
    service = Service(redis, rings=["old"], scoring=Scoring.of_wire("redis-hashring"))
    visitor = Visitor(service, create_app(service))
    service.start()
    try:
        told = visitor.json("/api/owner", ring="old", key="hello")
    finally:
        service.stop()
    xxhash = hash_algorithm("xxh32")
    assert (told["hash_algorithm"], told["point"]) == ("xxh32", xxhash.point("hello"))


def test_no_owner_is_told_where_the_nodes_hash_keys_differently(redis: Redis, visit: Visit) -> None:
    put(redis, "a", 0, told={"hash_algorithm": "crc-32"})
    put(redis, "b", HALF, told={"hash_algorithm": "crc-32c"})
    told = visit(rings=["ring"]).json("/api/owner", 503, ring="ring", key="hello")
    assert "differently (crc-32, crc-32c)" in told["error"]


def test_a_group_whose_members_expired_has_no_owners(redis: Redis, visit: Visit) -> None:
    told: dict[str, Any] = {}

    def ended() -> bool:
        # It joins anew with its next renewal. After those of its start there is none for long.
        redis.zadd("{orders}:group:leases", {"m": 1})
        told.update(visitor.json("/api/group", group="orders"))
        return not told["members"]

    with PartitionGroup(redis, "orders", 3, member="m", ttl=300) as group:
        eventually(lambda: len(group.held) == 3, "it holds all")
        visitor = visit()
        assert visitor.json("/api/group", group="orders")["owners"] == ["m"] * 3
        eventually(ended, "its lease has ended")
    assert (told["owners"], told["unowned"]) == ([None] * 3, [0, 1, 2])


def test_a_plan_says_what_would_move(redis: Redis, visit: Visit) -> None:
    put(redis, "a", 0)
    put(redis, "b", HALF)
    visitor = visit(rings=["ring"])
    told = visitor.json("/api/plan", ring="ring", leave="b")
    assert told["moved"] == 0.5
    assert told["flows"] == [{"from": "b", "to": "a", "part": 0.5}]
    assert told["after"] == {"a": 1.0}
    balanced = visitor.json("/api/plan", ring="ring", join="c", placement="balanced")
    assert balanced["after"]["c"] > 0
    assert "is not on" in visitor.json("/api/plan", 404, ring="ring", leave="x")["error"]
    assert "already" in visitor.json("/api/plan", 400, ring="ring", join="a")["error"]
    assert "no node" in visitor.json("/api/plan", 409, ring="ring", leave=["a", "b"])["error"]


def test_changes_are_told_from_any_of_them_on(redis: Redis, visit: Visit) -> None:
    with nodes_on(redis, "ring", "a", "b"):
        visitor = visit(rings=["ring"])
        changes = visitor.json("/api/changes", ring="ring")["changes"]
        assert [change["nodes"] for change in changes] == [["a"], ["b"]]
        later = visitor.json("/api/changes", ring="ring", after=changes[0]["id"])["changes"]
        assert later == changes[1:]
        assert visitor.json("/api/changes", ring="ring", count=1)["changes"] == changes[1:]


def test_all_changes_are_told_after_one_of_a_history_that_redis_lost(
    redis: Redis, visit: Visit
) -> None:
    with nodes_on(redis, "ring", "a", "b"):
        visitor = visit(rings=["ring"])
        changes = visitor.json("/api/changes", ring="ring", after="9999999999999-0")["changes"]
        assert [change["nodes"] for change in changes] == [["a"], ["b"]]


def test_a_ring_without_nodes_has_no_owners(visit: Visit) -> None:
    visitor = visit(rings=["ring"])
    assert visitor.json("/api/owner", ring="ring", key="k")["owner"] is None
    answer = visitor.client.post("/api/owners", json={"ring": "ring", "keys": ["k"]})
    assert answer.json["owners"] == [None]


@pytest.mark.parametrize(
    ("numbers", "most", "written"),
    [
        ((), None, "-"),
        ((0, 1, 2, 7, 9, 10), None, "0-2, 7, 9-10"),
        ((0, 1, 2, 7, 9, 10), 2, "0-2, 7 and 2 more"),
        ((0, 2, 4), 3, "0, 2, 4"),
    ],
)
def test_numbers_are_written_as_ranges_of_which_the_first_are_shown(
    numbers: tuple[int, ...], most: int | None, written: str
) -> None:
    assert spans(numbers, most) == written
