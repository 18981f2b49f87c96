"""Whatever stands in a key that a script reads: it does all of its work, or it changes nothing.

Redis does not roll back a script that fails midway, so a failure after the first write would leave
half a change, which no message announces. Here each script runs against each of its keys, with
values of every type, and of its own type in shapes that no script of this package writes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from typing import Any, TypeVar

import pytest
from redis import Redis
from redis.exceptions import ResponseError

from hashring.core.assignors import BalancedAssignor
from hashring.core.groups import group_orders, next_state
from hashring.core.groups.state import MemberFacts, Terms
from hashring.core.ring_change_message import Stamp
from hashring.errors import StoreError
from hashring.store.command import Command
from hashring.store.embedded_server import RedisServer
from hashring.store.faithful_challenge import commands as faithful_commands
from hashring.store.group import commands as group_commands
from hashring.store.group.key_names import group_keys
from hashring.store.group.reading import read
from hashring.store.lease_challenge import commands as challenge_commands
from hashring.store.locks import commands as lock_commands
from hashring.store.lua_scripts import actions, script
from hashring.store.redis_store import RedisStore
from hashring.store.ring import node_orders
from hashring.store.ring.commands import (
    Look,
    Scoring,
    beat,
    forget,
    leave,
    look,
    owner,
    park,
    sweep,
)
from hashring.store.ring.key_names import ring_keys
from hashring.store.ring.snapshot import snapshot
from tests.conftest import LONG, PATIENCE, oldest_and_newest, servers
from tests.contract.places import TTL, MemoryPlace, Place, RealPlace, replicas

KEYS = ring_keys("accounts")
GROUP = group_keys("orders")
LEFT_BEHIND = group_keys("bills")
CHALLENGE = challenge_commands.challenge_keys("orders")
FAITHFUL = faithful_commands.faithful_keys("orders")
SCORING = Scoring.expiry(TTL)
A, B, C = "a" * 16, "b" * 16, "c" * 16
TERMS = Terms(4, ttl=TTL, rebalance_delay=0.0)
NAMES_REMEMBERED = 256
RESOURCE = b"{resource}:token"

_Value = TypeVar("_Value")

LAST_ID = "18446744073709551615-18446744073709551615"
VALUES: tuple[bytes, ...] = (
    b"",
    b" ",
    b"abc",
    b"\xff\xfe\n",
    b"-1",
    b"5",
    b"1e400",
    b"nan",
    b"9" * 30,
    b"9223372036854775807",
    b"999999999999 ab",
    b"5 zz",
    b"null",
    b"[]",
    b"{}",
    b"[" * 2000,
    b'"text"',
    b'{"at": null, "points": 5}',
    b'{"at": {}, "points": [[], "x", -1]}',
    b'{"points": [1]}',
    b'{"drain": 5}',
    b'{"drain": {"since": [], "ends": {}, "session": 5}}',
    A.encode() + b"7",
    b"-" * 16 + b"{}",
    A.encode() + b"{}",
    A.encode() + b'{"anchor": 5, "named": 1, "unserved": {}}',
    A.encode() + b'{"anchor": [], "named": true, "unserved": 1e999}',
    A.encode() + b" 1 {}",
    b"1 " + A.encode() + b" node",
    b"1:1",
    b"1:" + b"9" * 400,
)


def some_of(values: Sequence[_Value], turn: int) -> Sequence[_Value]:
    """These values, or every eighth of them unless all tests run; each turn has others."""
    return values if LONG else values[turn % 8 :: 8]


def facts(name: str, session: str) -> MemberFacts:
    return MemberFacts(name, session, 0, 0.0)


def _locks(keys: tuple[bytes, ...] = (b"k0", b"k1", b"k2")) -> list[Command[Any]]:
    return [
        lock_commands.acquire(
            KEYS, node="live", session=A, ttl=TTL, locked=keys, most=9, awaited=len(keys)
        ),
        lock_commands.renew(
            KEYS, session=A, ttl=TTL, locked=[(key, 7) for key in keys], lasting={1: 5.0}
        ),
        lock_commands.release(KEYS, session=A, locked=[(key, 7) for key in keys]),
        lock_commands.look(KEYS, locked=keys),
        lock_commands.take_away(KEYS, key=b"k1", by="somebody"),
    ]


def _ring() -> list[Command[Any]]:
    told = {"named": True}
    return [
        beat(KEYS, node="live", session=A, scoring=SCORING, replicas=replicas("live", 10), told={}),
        beat(
            KEYS,
            node="live",
            session=A,
            scoring=SCORING,
            replicas=replicas("live", 11),
            told={"unserved": 3},
            full=True,
            fetch=True,
            drop=replicas("live", 10),
        ),
        beat(
            KEYS,
            node="fresh",
            session=C,
            scoring=SCORING,
            replicas=replicas("fresh", 30),
            told=told,
            joining=True,
            fetch=True,
        ),
        leave(KEYS, node="live", session=A, replicas=replicas("live", 10)),
        sweep(KEYS, scoring=SCORING, by="somebody"),
        forget(KEYS, scoring=SCORING, by="somebody"),
        snapshot(KEYS, scoring=SCORING, remembered="gone"),
        owner(KEYS, 15),
        node_orders.drain(KEYS, node="live", by="somebody"),
        node_orders.drain(KEYS, node="gone", by="somebody", seconds=5, force=True),
        node_orders.undrain(KEYS, node="leaving", by="somebody"),
        node_orders.weigh(KEYS, weights={"live": 2.0, "gone": None}, by="somebody"),
        beat(
            KEYS,
            node="leaving",
            session=C,
            scoring=SCORING,
            replicas=replicas("leaving", 40),
            told=told,
        ),
        park(KEYS, node="live", session=A, scoring=SCORING, replicas=replicas("live", 10)),
        beat(
            KEYS,
            node="live",
            session=B,
            scoring=SCORING,
            replicas=(),
            told=told,
            joining=True,
            back=True,
            digest="",
        ),
        look(KEYS, node="gone", whole=5),
        look(KEYS, node="live", whole=1, count=2, starts=(15, 3)),
        beat(
            KEYS,
            node="live",
            session=A,
            scoring=SCORING,
            replicas=replicas("live", 10),
            told={"ranges": ""},
            digest="",
        ),
    ]


def _group(store: RedisStore) -> list[Command[Any]]:
    reading = store.run(read(GROUP))
    standing = reading.standing()
    assert standing is not None
    outcome = next_state.step(standing, reading.facts, BalancedAssignor())
    return [
        group_commands.join(GROUP, facts("c", C), TERMS),
        group_commands.join(GROUP, facts("a", C), TERMS, before=A),
        group_commands.beat(GROUP, facts("a", A), TTL),
        group_commands.agreed(GROUP),
        group_commands.leave(GROUP, "a"),
        read(GROUP),
        group_commands.commit(GROUP, reading, outcome, "a"),
        _forget(store),
    ]


def _forget(store: RedisStore) -> Command[Any]:
    reading = store.run(read(LEFT_BEHIND))
    standing = reading.standing()
    assert standing is not None
    outcome = group_orders.forget(standing, reading.facts)
    return group_commands.forget(LEFT_BEHIND, reading, outcome, "somebody")


def _others() -> list[Command[Any]]:
    keys = CHALLENGE
    written = Command(
        script("lease_challenge", "write"),
        (keys.table, keys.told),
        ("1:1", "table", "message"),
        int,
    )
    fenced = Command(
        script("fencing", "write"),
        (RESOURCE, b"{resource}"),
        ("7", 60, 3, "SET", "{resource}", "v"),
        list,
    )
    return [
        fenced,
        written,
        challenge_commands.begin_table(keys),
        challenge_commands.read_table(keys),
        faithful_commands.look(FAITHFUL),
        faithful_commands.signal(FAITHFUL, 1, clear=True),
        faithful_commands.race(FAITHFUL, 1, "n"),
        faithful_commands.begin(FAITHFUL, 1, "n"),
        faithful_commands.open_again(FAITHFUL, 1, "n"),
        faithful_commands.end(FAITHFUL, 1, "n"),
    ]


STATE = """
local names, parts = redis.call('KEYS', '*'), {}
table.sort(names)
for _, name in ipairs(names) do
  local expires = redis.call('PTTL', name) > 0 and 1 or 0
  parts[#parts + 1] = cjson.encode({name, expires, redis.sha1hex(redis.call('DUMP', name))})
end
local members = redis.pcall('ZRANGE', KEYS[1], 0, -1)
return {table.concat(parts), members.err and {} or members, redis.call('DUMP', KEYS[2])}
"""
AGAIN = """
redis.call('FLUSHALL')
for i = 1, #ARGV, 2 do
  redis.call('RESTORE', KEYS[(i + 1) / 2], ARGV[i], ARGV[i + 1])
end
"""


class Saved:
    """All keys of a server, to be put back as often as wanted."""

    def __init__(self, client: Redis) -> None:
        self._again = client.register_script(AGAIN)
        self._names = client.keys()
        self._values: list[int | bytes] = []
        for name in self._names:
            self._values.append(10**6 if client.pttl(name) > 0 else 0)
            self._values.append(client.dump(name))

    def put_back(self) -> None:
        """Everything as it was."""
        self._again(keys=self._names, args=self._values)

    def put_back_one(self, client: Redis, name: bytes) -> None:
        """One key as it was, where it is the only one that somebody changed."""
        if name not in self._names:
            client.delete(name)
            return
        at = 2 * self._names.index(name)
        client.restore(name, *self._values[at : at + 2], replace=True)


class Scene:
    """A ring, locks, a group and a lease challenge on one server, as often as wanted."""

    def __init__(self, server: RedisServer) -> None:
        self.client = Redis(unix_socket_path=str(server.socket))
        self.store = RedisStore(self.client, PATIENCE)
        self.client.flushall()
        place = RealPlace(KEYS, self.client, self.store)
        place.join("live", A, 10)
        place.join("gone", B, 20, 21, told={"named": True})
        place.age("gone")
        place.join("leaving", C, 40, told={"named": True})
        self.store.run(node_orders.drain(KEYS, node="leaving", by="somebody"))
        for number in range(NAMES_REMEMBERED):
            memory = b'{"points": [%d], "at": "1700000000"}' % number
            self.client.hset(KEYS.left, f"name-{number}", memory)
        for key, session in ((b"k0", A), (b"k1", B)):
            self.client.set(KEYS.lock(key), f"7 {session} node\nwaiter", px=10**6)
        self.client.set(KEYS.token, 7)
        self.client.sadd(KEYS.full, "live")
        for name, session in (("a", A), ("b", B)):
            self.store.run(group_commands.join(GROUP, facts(name, session), TERMS))
        self.client.xadd(GROUP.control, {"generation": "0"})
        self.store.run(group_commands.join(LEFT_BEHIND, facts("a", A), TERMS))
        self.store.run(group_commands.beat(LEFT_BEHIND, facts("a", A), 1e-6))
        self.client.hset(LEFT_BEHIND.views, "a", f"{A} -")
        self.client.xadd(LEFT_BEHIND.control, {"generation": "0"})
        self.client.hset(CHALLENGE.table, mapping={"tag": "1:1", "table": "{}"})
        self.client.hset(FAITHFUL.allocation, "1", "n")
        self.client.hset(FAITHFUL.grab, "1", "n")
        self.client.set(RESOURCE, 3)
        self.client.set("{resource}", "old")
        self.commands = [*_ring(), *_locks(), *_group(self.store), *_others()]
        self._state = self.client.register_script(STATE)
        self.saved = Saved(self.client)
        # Redis sends what was published while a subscription stands with the answers to pings.
        self._pubsub = self.client.pubsub()
        self._pubsub.psubscribe("*")
        self.messages()

    def state(self) -> tuple[bytes, frozenset[bytes], bytes | None]:
        """A text for all keys, their values and whether they expire; the ring's members, none when
        its key is none of a ring; and its epoch."""
        everything, members, epoch = self._state(keys=[KEYS.ring, KEYS.epoch])
        return everything, frozenset(members), epoch

    def messages(self) -> int:
        """How many messages came since the last call."""
        self._pubsub.ping()
        count = 0
        while (message := self._pubsub.get_message(timeout=PATIENCE)) is not None:
            if message["type"] == "pong":
                return count
            count += message["type"] == "pmessage"
        raise AssertionError("no answer to a ping")

    def close(self) -> None:
        self._pubsub.close()
        self.store.close()
        self.client.close()


def _of_another_type(client: Redis, key: bytes, turn: int) -> Iterator[Callable[[], Any]]:
    kind = client.type(key)
    makers: dict[bytes, Callable[[], Any]] = {
        b"string": lambda: client.set(key, "abc"),
        b"list": lambda: client.rpush(key, "abc"),
        b"hash": lambda: client.hset(key, "abc", "abc"),
        b"set": lambda: client.sadd(key, "abc"),
        b"zset": lambda: client.zadd(key, {"abc": 1}),
        b"stream": lambda: client.xadd(key, {"abc": "abc"}),
    }
    for name, make in makers.items():
        if name != kind:
            yield lambda make=make: (client.delete(key), make())


def _of_its_type(client: Redis, key: bytes, turn: int) -> Iterator[Callable[[], Any]]:
    match client.type(key):
        case b"string":
            for value in some_of(VALUES, turn):
                yield lambda value=value: client.set(key, value)
        case b"hash":
            fields = client.hkeys(key)
            for value in some_of(VALUES, turn):
                yield lambda value=value: client.hset(
                    key, mapping=dict.fromkeys((*fields, b"more", value), value)
                )
        case b"zset":
            scores = (float("-inf"), 0.0, 1e300, float("inf"))
            for member, score in some_of(list(product(VALUES, scores)), turn):
                yield lambda member=member, score=score: client.zadd(
                    key, dict.fromkeys((member, b"1:" + member + b":x"), score)
                )
        case b"set":
            yield lambda: client.sadd(key, *VALUES)
        case b"stream":
            yield lambda: client.xadd(key, {"kind": "join", "data": "abc"})
            yield lambda: client.xadd(key, {"abc": "abc"}, id=LAST_ID)
            yield lambda: (client.xadd(key, {"abc": "abc"}, id=LAST_ID), client.xdel(key, LAST_ID))


@dataclass(frozen=True)
class Outcome:
    """What came of a script: its error, and what it changed."""

    error: ResponseError | None
    wrote: bool
    messages: int
    moved: bool
    """Whether it changed the ring."""
    numbered: bool
    """Whether it numbered a change of the ring."""


def _run(scene: Scene, command: Command[Any]) -> Outcome:
    before, members, epoch = scene.state()
    error = None
    try:
        reply = scene.client.eval(
            command.script.text, len(command.keys), *command.keys, *command.arguments
        )
    except ResponseError as refused:
        error = refused
    else:
        read = ("locks_", "beat", "forget", "leave", "sweep", "snapshot")
        if command.script.name.startswith(read):
            command.read(reply)
    after, members_after, epoch_after = scene.state()
    return Outcome(
        error,
        after != before,
        scene.messages(),
        members_after != members,
        epoch_after != epoch,
    )


@pytest.fixture(
    scope="module",
    params=[servers()[name] for name in oldest_and_newest()],
    ids=oldest_and_newest(),
)
def scene(request: pytest.FixtureRequest) -> Iterator[Scene]:
    with RedisServer(request.param) as server:
        found = Scene(server)
        yield found
        found.close()


SCRIPTS = sorted(script(protocol, action).name for protocol, action in actions())


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_does_all_or_nothing_whatever_stands_in_its_keys(scene: Scene, name: str) -> None:
    commands = [command for command in scene.commands if command.script.name == name]
    assert commands, "a script that no command here runs"
    # Of two commands of one script, a key gets other values with the second.
    for first, command in enumerate(commands):
        for turn, key in enumerate(command.keys, first):
            for kinds in (_of_another_type, _of_its_type):
                scene.saved.put_back()
                for number, plant in enumerate(list(kinds(scene.client, key, turn))):
                    plant()
                    outcome = _run(scene, command)
                    if outcome.wrote:
                        scene.saved.put_back()
                    else:
                        scene.saved.put_back_one(scene.client, key)
                    where = f"{key!r}, garbage {number} {kinds.__name__}: {outcome}"
                    if outcome.error is not None:
                        assert (outcome.wrote, outcome.messages) == (False, 0), where
                    assert outcome.numbered or not outcome.moved, where


# --- in memory --------------------------------------------------------------------------------


PLANTS: dict[str, Callable[[Place, bytes], Any]] = {
    "what a live node tells": lambda place, value: place.hset("live", value),
    "what an expired node told": lambda place, value: place.hset("gone", value),
    "where a node was": lambda place, value: place.remember(value, "gone"),
    "where a node is": lambda place, value: place.place(value, "live"),
    "where very many nodes were": lambda place, value: place.remember(
        value, *(f"name-{number}" for number in range(NAMES_REMEMBERED))
    ),
    "the epoch": lambda place, value: place.set_epoch(value),
    "a member": lambda place, value: place.zadd(value, 0.0),
    "a member of that name": lambda place, value: place.zadd(b"1:" + value + b":x", 0.0),
}


_ANY_STAMP = Stamp(0, "", 0, 0)


def _begin(place: Place) -> None:
    """One node lives, and one has expired."""
    place.wipe()
    place.join("live", A, 10)
    place.join("gone", B, 20, 21, told={"named": True})
    place.age("gone")


def _seen_after(place: Place, command: Command[Any], plant: str, value: bytes) -> dict[str, Any]:
    """All that can be seen of a ring on which garbage is planted, and then the command run."""
    PLANTS[plant](place, value)
    before = len(place.raw_events())
    try:
        reply = place.store.run(command)
    except StoreError as error:
        pytest.fail(f"{value!r}: {error!r}")
    seen = place.look("gone")
    if isinstance(reply, Look):
        reply = replace(reply, stamp=_ANY_STAMP)
    return {
        "status": getattr(reply, "status", reply),
        "swept": getattr(reply, "swept", None),
        "epoch": seen.stamp.epoch,
        "members": [record.replica.member for record in seen.replicas],
        "garbage": sorted(seen.garbage),
        "nodes": {name: (record.session, str(record.told)) for name, record in seen.nodes.items()},
        "where it was": seen.remembered,
        "remembered": place.remembered(),
        "history": [
            (event.kind, event.by, event.keys, event.change and event.change.nodes)
            for event in place.events()[before:]
        ],
    }


@cache
def _beginning_in_memory(plant: str) -> tuple[MemoryPlace, object]:
    # One for each plant: of one for all, nodes would expire on a machine that is very busy.
    place = MemoryPlace(KEYS)
    _begin(place)
    return place, place.server.copy()


@cache
def _seen_in_memory(number: int, plant: str, value: bytes) -> dict[str, Any]:
    """What :func:`_seen_after` sees there; it is the same whatever server it is compared with."""
    place, beginning = _beginning_in_memory(plant)
    place.server.restore(beginning, same_run=True)
    return _seen_after(place, _ring()[number], plant, value)


@pytest.mark.parametrize("plant", PLANTS)
def test_garbage_has_in_memory_the_effect_that_it_has_in_redis(scene: Scene, plant: str) -> None:
    real = RealPlace(KEYS, scene.client, scene.store)
    _begin(real)
    beginning = Saved(scene.client)
    for number, command in enumerate(_ring()):
        if command.script.name == "snapshot":
            continue
        for value in some_of(VALUES, number):
            here = _seen_in_memory(number, plant, value)
            beginning.put_back()
            there = _seen_after(real, command, plant, value)
            assert here == there, f"{command.script.name}, {value!r}"
