"""What a node that knows only its own ranges promises, whatever runs it."""

from __future__ import annotations

import signal
from typing import Any

import pytest
from redis import Redis

from hashring.core.hashing import RING_SIZE
from hashring.core.ring import Ring
from hashring.store.ring.commands import read_members
from tests.conftest import eventually
from tests.contract.test_runners import CALM, KEYS, LONG, SHORT, fails, split
from tests.hosted import RING, Make
from tests.hosts import Host, HostedNode
from tests.proxy import Proxy

OWN = {"follow": False}


def ring_in(client: Redis) -> Ring:
    return Ring(read_members(client.zrange(RING, 0, -1))[0])


def right(client: Redis, *nodes: HostedNode) -> bool:
    """Whether each node has the ranges that the ring in Redis gives it."""
    ring = ring_in(client)
    return all(
        node.ranges == [tuple(each) for each in ring.node_ranges(node.name)] for node in nodes
    )


def test_a_join_and_a_leave_are_seen_by_a_message_not_by_a_timer(make: Make, client: Redis) -> None:
    nodes = [make(**OWN, **LONG).start() for _ in range(3)]
    eventually(lambda: right(client, *nodes), "all have heard of each other")
    assert split(nodes)
    nodes.pop().stop()
    eventually(lambda: right(client, *nodes), "the others have its ranges")
    assert split(nodes)


def test_it_shares_a_ring_with_nodes_that_follow(make: Make, client: Redis) -> None:
    nodes = [make(follow=number % 2 == 0, **LONG).start() for number in range(4)]
    eventually(lambda: right(client, *nodes), "all have heard of each other")
    assert split(nodes)


def test_who_owns_a_key_is_asked_of_redis(make: Make, client: Redis) -> None:
    nodes = [make(**OWN, **CALM).start() for _ in range(2)]
    ring = ring_in(client)
    for node in nodes:
        assert [node.call("owner", key) for key in KEYS[:5]] == [ring.owner(k) for k in KEYS[:5]]
    eventually(lambda: nodes[0].call("get_node_count") == 2, "it has counted the nodes")


def test_who_owns_a_key_is_an_error_while_redis_is_away(make: Make, proxy: Proxy) -> None:
    node = make(url=proxy.url, **OWN, **SHORT).start()
    proxy.refuse()
    assert fails(lambda: node.call("owner", "k")).kinds[0] == "RedisUnavailable"


def test_on_change_tells_what_a_neighbour_took_and_gave_back(make: Make) -> None:
    first = make(**OWN, **LONG).start()
    second = make(**OWN, **LONG).start()
    taken = second.ranges
    eventually(lambda: len(first.do("changes")) == 2, "it heard of the join")
    second.stop()
    eventually(lambda: len(first.do("changes")) == 3, "it heard of the leave")
    (gained, _), (_, lost), (back, _) = first.do("changes")
    assert gained == [[0, RING_SIZE]]
    assert [tuple(each) for each in lost] == taken
    assert [tuple(each) for each in back] == taken


def test_the_keys_of_a_killed_process_are_owned_again(
    make: Make, another: Host, client: Redis
) -> None:
    nodes = [make(**OWN, **SHORT).start() for _ in range(2)]
    make(another, **OWN, **SHORT).start()
    eventually(lambda: right(client, *nodes), "they share the ring")
    another.signal(signal.SIGKILL)
    eventually(lambda: split(nodes), "the others have its keys")


def test_nodes_come_back_when_redis_was_emptied(make: Make, client: Redis) -> None:
    nodes = [make(**OWN, **SHORT).start() for _ in range(3)]
    client.flushall()
    eventually(
        lambda: client.zcard(RING) == 48 and right(client, *nodes) and split(nodes),
        "everyone is right again",
    )


def test_what_somebody_writes_by_hand_is_put_right(make: Make, client: Redis) -> None:
    nodes = [make(**OWN, **SHORT).start() for _ in range(2)]
    expiry = client.time()[0] + 3600
    client.zadd(RING, {"7:phantom:x": expiry, f"9:{nodes[0].name}:x": expiry, "garbage": expiry})
    client.zremrangebyrank("{accounts}:points", 0, 9)
    eventually(lambda: client.zcard("{accounts}:points") == 33, "the index has every member")
    eventually(lambda: right(client, *nodes) and split(nodes), "everyone is right")
    assert client.zcard(RING) == 33


@pytest.mark.parametrize("follow", [True, False])
def test_a_node_that_stops_to_stay_is_back_where_it_was(
    make: Make, client: Redis, follow: bool
) -> None:
    nodes = [make(name=name, follow=follow, **CALM).start() for name in ("a", "b")]
    eventually(lambda: right(client, *nodes), "they share the ring")
    before = (nodes[0].ranges, client.get("{accounts}:epoch"), ring_in(client).fingerprint)
    nodes[0].stop(stay=True)
    assert nodes[0].owned(KEYS) == set()
    again = make(name="a", follow=follow, **CALM).start()
    assert (again.ranges, client.get("{accounts}:epoch"), ring_in(client).fingerprint) == before
    assert split([again, nodes[1]])


def test_a_node_that_stops_to_stay_and_does_not_come_back_expires(
    make: Make, client: Redis
) -> None:
    nodes = [make(name=name, **OWN, **SHORT).start() for name in ("a", "b")]
    nodes[0].stop(stay=True)
    eventually(lambda: split(nodes[1:]), "the other has all keys")


@pytest.mark.parametrize("follow", [True, False])
def test_a_node_whose_name_was_deleted_stays_no_longer_than_it_was_renewed(
    make: Make, client: Redis, follow: bool
) -> None:
    nodes = [make(name=name, follow=follow, **LONG).start() for name in ("a", "b")]
    eventually(lambda: right(client, *nodes), "they share the ring")
    before, ranges = client.zrange(RING, 0, -1, withscores=True), nodes[0].ranges
    client.delete("{accounts}:nodes")
    nodes[0].stop(stay=True)
    assert client.zrange(RING, 0, -1, withscores=True) == before
    again = make(name="a", follow=follow, **LONG).start()
    assert again.ranges == ranges


@pytest.mark.parametrize("follow", [True, False])
def test_a_node_that_could_not_leave_is_on_the_ring_once_when_it_is_started_again(
    make: Make, client: Redis, proxy: Proxy, follow: bool
) -> None:
    node = make(url=proxy.url, follow=follow, **CALM).start()
    proxy.refuse()
    node.stop()
    proxy.heal()
    node.start()
    assert client.hkeys("{accounts}:nodes") == [node.name.encode()]
    assert split([node])


def test_a_node_with_a_made_up_name_does_not_stay(make: Make) -> None:
    node = make(**OWN, **CALM).start()
    error = fails(lambda: node.stop(stay=True))
    assert str(error) == (
        "stay=True: a made-up name does not come back: give the node a name= of its own"
    )


@pytest.mark.parametrize("follow", [True, False])
def test_a_key_lock_moves_to_the_node_that_joined(make: Make, follow: bool) -> None:
    first = make(lock=True, **OWN, **SHORT).start()
    eventually(lambda: first.owned(KEYS) == set(KEYS), "it holds all keys")
    second = make(lock=True, follow=follow, **SHORT).start()

    def shared() -> bool:
        owned: list[Any] = [*first.owned(KEYS), *second.owned(KEYS)]
        return sorted(owned) == sorted(KEYS) and bool(second.owned(KEYS))

    eventually(shared, "each holds its own")


def test_what_a_full_node_refuses_goes_to_the_next_with_room(make: Make) -> None:
    full = make(lock=True, limit=5, **OWN, **SHORT).start()
    other = make(lock=True, **OWN, **SHORT).start()
    eventually(
        lambda: sorted([*full.owned(KEYS), *other.owned(KEYS)]) == sorted(KEYS),
        "every key is held",
    )
    assert len(full.owned(KEYS)) <= 5


def test_a_shared_ring_of_redis_hashring_must_be_followed(make: Make) -> None:
    error = fails(lambda: make(wire="redis-hashring", **OWN))
    assert "a ring that is shared with redis-hashring has no index" in str(error)
