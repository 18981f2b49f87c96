"""What reads bytes from Redis, files or channels, fed with what it should not get.

A decoder may give an answer or raise its own error, and nothing else. Inputs are valid ones that
were damaged: a value in the JSON exchanged, bytes changed, pieces cut, doubled, spliced. The
first input that shows a fault is kept, as short as it was found.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any

from hashring import RingNode
from hashring.core.assignors import as_assignor
from hashring.core.groups import json_codec
from hashring.core.groups.next_state import step
from hashring.core.groups.state import (
    EventKind,
    Facts,
    GroupEvent,
    GroupState,
    MemberFacts,
    Terms,
)
from hashring.core.groups.view_changes import ViewChange
from hashring.core.replica import parse_replica
from hashring.core.ring import Ring
from hashring.core.ring_change_message import parse_change
from hashring.core.ring_json import RingFile, dump_ring, load_ring
from hashring.errors import (
    ConfigError,
    GroupFormatError,
    MessageFormatError,
    ReplicaFormatError,
    RingFileError,
)
from hashring.store.faithful_challenge import commands as faithful_commands
from hashring.store.group.decision_history import read_decision
from hashring.store.locks import commands as lock_commands
from hashring.store.memory_store import MemoryServer, MemoryStore
from hashring.store.ring import commands
from hashring.store.ring import ring_events as events
from hashring.store.ring.node_entries import holder_of, told_of

_VALUES = (
    *(None, True, False, 0, -1, 1, 2**32, 2**32 - 1, 2**63, 10**30, -(10**30), 0.5, -0.0),
    *(float("inf"), float("-inf"), float("nan"), 1e308),
    *("", "x", "*", "1", "-1", "a:b", "\ud800", "\x00", "9" * 5000, "é", "٣"),
    *([], {}, [[]], [None], {"": None}, ["x"], [1, 2], {"1": 2}),
)
_PIECES = (
    *(b"", b"\x00", b"\xff\xfe", b":", b"::", b"\n", b'"', b"{", b"}", b"[", b"]", b",", b"\\u"),
    *(b"null", b"NaN", b"Infinity", b"1e999", b"-1", b"99999999999", b"[" * 3000, b'{"":' * 2000),
)


def mutants(seeds: list[bytes], rng: Random) -> Iterator[bytes]:
    """Damaged copies of the seeds, for ever."""
    while True:
        data = rng.choice(seeds)
        for _ in range(rng.choice((1, 1, 1, 2, 3, 8))):
            data = _exchanged(data, rng) if rng.random() < 0.5 else _damaged(data, seeds, rng)
        yield data


def _exchanged(data: bytes, rng: Random) -> bytes:
    """One value of the JSON replaced, dropped, renamed or doubled."""
    try:
        body = json.loads(data)
    except (ValueError, RecursionError):
        return data
    places: list[tuple[Any, Any]] = []

    def walk(inside: Any) -> None:
        if isinstance(inside, dict | list):
            for key in inside if isinstance(inside, dict) else range(len(inside)):
                places.append((inside, key))
                walk(inside[key])

    try:
        walk(body)
        if not places:
            return json.dumps(rng.choice(_VALUES)).encode()
        inside, key = rng.choice(places)
        deed = rng.randrange(8)
        if deed == 0:
            del inside[key]
        elif deed == 1 and isinstance(inside, dict):
            inside[str(rng.choice(_VALUES))] = inside[key]
        elif deed == 2 and isinstance(inside, list):
            inside.insert(key, inside[key])
        elif deed == 3:
            inside[key] = [inside[key]]
        else:
            inside[key] = rng.choice(_VALUES)
        return json.dumps(body).encode("utf-8", "surrogatepass")
    except RecursionError:
        return data


def _damaged(data: bytes, seeds: list[bytes], rng: Random) -> bytes:
    """Bytes changed, a piece cut, doubled or put in, or the end of another seed."""
    at = rng.randrange(len(data) + 1)
    to = min(len(data), at + rng.choice((1, 1, 2, 4, 16, 64)))
    deed = rng.randrange(6)
    if deed == 0:
        return data[:at] + bytes(rng.randrange(256) for _ in range(to - at)) + data[to:]
    if deed == 1:
        return data[:at] + data[to:]
    if deed == 2:
        return data[:to] + data[at:]
    if deed == 3:
        return data[:at] + rng.choice(_PIECES) + data[at:]
    if deed == 4:
        return data[:at]
    other = rng.choice(seeds)
    return data[:at] + other[rng.randrange(len(other) + 1) :]


@dataclass
class Target:
    """One reader.

    Attributes:
        seeds: valid inputs.
        read: reads; returns after its own error, and lets everything else through.
    """

    name: str
    seeds: list[bytes]
    read: Callable[[bytes], object]


@dataclass
class Fuzzed:
    """What a target showed.

    Attributes:
        findings: by kind and place of the exception, the shortest input that raised it.
    """

    name: str
    inputs: int = 0
    accepted: int = 0
    seconds: float = 0.0
    findings: dict[str, bytes] = field(default_factory=dict)


def fuzz(target: Target, inputs: int, seed: int) -> Fuzzed:
    """Feed it that many damaged inputs."""
    done = Fuzzed(target.name)
    begun = time.monotonic()
    for data in mutants(target.seeds, Random(f"{seed} {target.name}")):
        if done.inputs >= inputs:
            break
        done.inputs += 1
        try:
            done.accepted += target.read(data) is not None
        except Exception as error:  # noqa: BLE001 - that is what we look for
            kind = where(error)
            if kind not in done.findings or len(data) < len(done.findings[kind]):
                done.findings[kind] = data
    done.seconds = time.monotonic() - begun
    return done


def where(error: BaseException) -> str:
    """The kind of an exception, and the line that raised it."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    place = f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}" if trace else ""
    return f"{type(error).__name__} at {place.rpartition('/hashring/')[2]}"


def _either(*errors: type[Exception]) -> Callable[[Callable[[bytes], Any]], Callable[[bytes], Any]]:
    def wrap(read: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
        def reading(data: bytes) -> Any:
            try:
                return read(data)
            except errors:
                return None

        return reading

    return wrap


# --- the readers ------------------------------------------------------------------------------

_RING = Ring({"a:1": [5, 4000], "b:2": [77, 2**32 - 1], "ü": [0]})

_JOIN = {
    "v": 1,
    "kind": "join",
    "nodes": ["a:1"],
    "points": [5, 4000],
    "epoch": 3,
    "tag": "t3",
    "members": 3,
    "at": "1700000000000000",
    "prev": "t2",
    "session": "0123456789abcdef",
    "reason": "start",
    "was": 1,
}
_LEAVE = {**_JOIN, "kind": "expire", "nodes": ["a:1", "b:2"], "points": [], "reason": "expired"}
_FULL = {**_JOIN, "kind": "full", "nodes": ["b:2"], "points": []}
CHANGES = [json.dumps(change).encode() for change in (_JOIN, _LEAVE, _FULL)]


@_either(MessageFormatError)
def _change(data: bytes) -> object:
    change = parse_change(data)
    change.apply(_RING)
    return change


@_either(ReplicaFormatError)
def _member(data: bytes) -> object:
    replica = parse_replica(data)
    if replica.member != data:
        raise AssertionError(f"{data!r} is read as {replica}")
    return replica


def _members(data: bytes) -> object:
    points, _ = commands.read_members(data.split(b"\n"))
    return Ring(points).fingerprint


def _entry(data: bytes) -> object:
    return told_of(data), holder_of(data), commands.read_memory(data)


def _event(data: bytes) -> object:
    event = events.read_event((b"1700000000000-0", [b"kind", data[:8], b"data", data]))
    return event.change


@_either(RingFileError, ConfigError)
def _ring_file(data: bytes) -> object:
    found = load_ring(data)
    again = dump_ring(found)
    if load_ring(again) != found:
        raise AssertionError("a ring file that is written again is another one")
    return found


@_either(GroupFormatError)
def _state(data: bytes) -> object:
    fields = dict(line.split(b" ", 1) for line in data.split(b"\n") if b" " in line)
    return json_codec.load_state(
        {name.decode("latin-1"): text for name, text in fields.items()}, 1.0
    )


@_either(GroupFormatError)
def _facts(data: bytes) -> object:
    return json_codec.load_facts("a", 1, 2.0, data)


@_either(GroupFormatError)
def _view(data: bytes) -> object:
    return json_codec.load_view_change(data)


@_either(GroupFormatError)
def _group_events(data: bytes) -> object:
    return json_codec.load_events(data)


@_either(GroupFormatError)
def _table(data: bytes) -> object:
    return json_codec.load_table(data)


@_either(GroupFormatError)
def _terms(data: bytes) -> object:
    return json_codec.load_terms(data)


def _grab(data: bytes) -> object:
    found = faithful_commands.told_partition(data, 100)
    if found is not None and not 0 <= found < 100:
        raise AssertionError(f"{data!r} is partition {found}")
    return found


@_either(GroupFormatError)
def _decision(data: bytes) -> object:
    number, _, rest = data.partition(b" ")
    fields = {b"generation": number, b"phase": rest[:9], b"by": rest[:3], b"events": rest}
    return read_decision((b"1-0", fields))


class Handler:
    """A node's handler of messages: after any message, the next heartbeat puts it right."""

    def __init__(self) -> None:
        self._server = MemoryServer()
        self._nodes = [
            RingNode(MemoryStore(self._server), "fuzz", name="a:1", lock=True, follow=True),
            RingNode(MemoryStore(self._server), "fuzz", name="b:2"),
        ]
        for node in (*self._nodes, *self._nodes):
            node.heartbeat()
        self._told = 0

    def told(self, data: bytes) -> object:
        self._told += 1
        machine = self._nodes[self._told // 2 % 2]._machine
        channel = machine.channels[self._told % len(machine.channels)]
        stamp = machine.sight.stamp
        if self._told % 3 and stamp is not None:
            # As if it continued the history that the node knows.
            data = data.replace(b'"t2"', b'"%s"' % stamp.tag.encode())
        machine.told(machine._listening.number, channel, data, time.monotonic())
        if self._told % 200 == 0:
            for node in (*self._nodes, *self._nodes):
                node.heartbeat()
            follower, other = self._nodes
            follower.update()
            # One has a copy of the ring, and the other asks for it.
            if follower.ring != other.ring:
                raise AssertionError("the copy of the ring is another ring")
            for node in self._nodes:
                if node.get_ranges() != other.ring.node_ranges(node.name):
                    raise AssertionError(f"{node.name} has other ranges than the ring gives it")
        return None


def _group_targets() -> list[Target]:
    members = [MemberFacts(name, f"s-{name}", n, 50.0) for n, name in enumerate(("a", "ü", "c"))]
    assignor = as_assignor("balanced")
    state = GroupState.new(Terms(6, rebalance_delay=1.0))
    states = []
    for now, count in ((1.0, 1), (3.0, 1), (4.0, 3), (6.0, 3), (7.0, 2)):
        outcome = step(state, Facts(now, tuple(members[:count])), assignor)
        state = outcome.state.stamped(now)
        fields = json_codec.dump_state(state).items()
        states.append("\n".join(f"{name} {text}" for name, text in fields).encode())
    facts = MemberFacts("a", "s", 1, 2.0, 1.5, 7, 3.0, True, {1: 5}, {2: 6}, {3: 0.5}, {4: 7})
    view = ViewChange({1: 5, 2: 6}, (3,), {1: 9.0}, (3,), (4,), (5,), (5,), (4,))
    events = (GroupEvent(EventKind.GRANTED, "a", 3, "b", "why"), GroupEvent(EventKind.READY))
    table = (
        b'{"partitions":4,"leases":{"0":["a",7,9.5,1.0,"b",11.0],"1":[null,0,0.0,0.0,null,null]},'
        b'"members":{"a":9.5},"token":7,"quiet_until":0.0,"ttl":3.0}'
    )
    return [
        Target("group states", states, _state),
        Target("members' reports", [json_codec.dump_facts(facts).encode()], _facts),
        Target("members' views", [json_codec.dump_view_change(view).encode()], _view),
        Target("group events", [json_codec.dump_events(events).encode()], _group_events),
        Target("lease tables", [table], _table),
        Target("terms", [json_codec.dump_terms(Terms(6)).encode()], _terms),
        Target("grabs", [b"7", b"99", b"0"], _grab),
        Target("decisions", [b"3 " + json_codec.dump_events(events).encode()], _decision),
    ]


LOCK_NEWS = [b"freed\nkey", b"wanted:b:2\nkey", b"wanted:\xc3\xbc\n\x00\xff"]


def targets() -> list[Target]:
    handler = Handler()
    ring_file = dump_ring(RingFile(_RING, "r", epoch=3, tag="t", at=17)).encode()
    return [
        Target("ring members", [b"5:a:1:ab", b"4294967295:host:17:cd", "0:ü:ef".encode()], _member),
        Target("rings", [b"5:a:1:ab\n77:b:2:cd\n12:only", b"0:a:1:ab\n0:b:2:ab"], _members),
        Target("changes", CHANGES, _change),
        Target("events", CHANGES, _event),
        Target(
            "nodes' entries",
            [b'0123456789abcdef{"host":"h","pid":7,"weight":1.5}', b'{"points":[5,4000]}'],
            _entry,
        ),
        Target("lock news", LOCK_NEWS, lock_commands.parse_lock_news),
        Target("ring files", [ring_file], _ring_file),
        *_group_targets(),
        Target("messages to a node", [*CHANGES, *LOCK_NEWS], handler.told),
    ]
