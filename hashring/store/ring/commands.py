"""What can be asked of the ring in Redis, and what it answers.

Two wire forms exist. In the ring's own form a member's score is its **expiry** in Redis time. In
the form of redis-hashring 0.7 it is the time of the last **heartbeat**, and a reader adds the
timeout. :class:`Scoring` holds the difference.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Any, Final

from hashring.core.own_ranges import Reach, read_reaches
from hashring.core.replica import Replica, parse_parts, parse_replica
from hashring.core.replica_ranges import stretch_ranges
from hashring.core.ring_change_message import Stamp
from hashring.core.value_checks import check_wire, checked_point
from hashring.errors import ReplicaFormatError
from hashring.store.command import Argument, Command, text
from hashring.store.lua_scripts import script
from hashring.store.ring.key_names import RingKeys
from hashring.store.ring.node_entries import ANCHOR, PLACED, NodeRecord, read_node
from hashring.store.ring.node_orders import WeightOrder, read_weight_text
from hashring.store.ring.ring_events import EVENTS_KEPT

_REDIS_HASHRING_TTL: Final = 60.0
"""Seconds after which nodes of redis-hashring 0.7 take another one for gone."""


@dataclass(frozen=True)
class Scoring:
    """What the scores in the ZSET mean.

    Attributes:
        lead: seconds; a heartbeat writes the score ``now + lead``.
        lag: seconds; a member is dead when its score is below ``now - lag``.
    """

    lead: float
    lag: float

    @classmethod
    def expiry(cls, ttl: float) -> Scoring:
        """The ring's own form: the score is when the member expires."""
        return cls(lead=ttl, lag=0.0)

    @classmethod
    def last_heartbeat(cls, ttl: float) -> Scoring:
        """The form of redis-hashring 0.7: the score is when the member was last refreshed."""
        return cls(lead=0.0, lag=ttl)

    @classmethod
    def of_wire(cls, wire: str | None) -> Scoring:
        """For a reader of a ring in this wire format. Its lead is never used: a reader never beats.

        Raises:
            ConfigError: it is neither ``None`` nor ``"redis-hashring"``.
        """
        if wire is None:
            return cls.expiry(0.0)
        check_wire(wire)
        return cls.last_heartbeat(_REDIS_HASHRING_TTL)


class BeatStatus(str, Enum):
    """How a heartbeat went."""

    OK = "ok"
    TAKEN = "taken"
    """The name is in use by another session than the one it may be taken from."""
    SUPERSEDED = "superseded"
    """Another session has taken this node's name, or a later heartbeat was here before this one."""
    DRAINED = "drained"
    """As ``OK``, but by order the node has no member on the ring."""
    MOVED = "moved"
    """The ring is not the one that was expected, or the name's holder stopped to come back."""
    ABSENT = "absent"
    """Nothing was left on the ring to come back to."""


@dataclass(frozen=True)
class BeatReply:
    """What a heartbeat learnt.

    Attributes:
        status: only ``OK`` and ``DRAINED`` wrote anything of the node.
        stamp: where the ring stands after the call.
        before: the tag before the node's own change, if it made one; else equal to the stamp's.
        soonest: seconds until the next member expires; ``None`` on an empty ring, and for a node
            that drains.
        swept: how many members this call took away.
        members: the ring's ZSET, when it was asked for.
        full: the nodes that hold as many keys as they may, when it was asked for.
        history: names the history that the stamp is part of: another one means that Redis lost
            the ring meanwhile. Empty when nobody wrote it there.
        held_off: seconds for which no lock may be taken, since Redis lost the locks.
        nodes: how many nodes tell of themselves, and are not drained.
        all_full: whether every node holds as many keys as it may.
        ranges: how far the node's ranges go, when that was asked for; ``None`` when they are those
            of the digest.
        ordered: the weight that was ordered for the node, and stands.
        stayed: the replicas with which it is back, when it was to come back; else empty.
    """

    status: BeatStatus
    stamp: Stamp
    before: str
    soonest: float | None
    swept: int
    members: tuple[bytes, ...] | None
    full: frozenset[str] = frozenset()
    history: str = ""
    held_off: float = 0.0
    nodes: int = 0
    all_full: bool = False
    ranges: tuple[Reach, ...] | None = None
    ordered: WeightOrder | None = None
    stayed: tuple[Replica, ...] = ()


def beat(
    keys: RingKeys,
    *,
    node: str,
    session: str,
    scoring: Scoring,
    replicas: Iterable[Replica],
    told: Mapping[str, Any],
    joining: bool = False,
    back: bool = False,
    take_from: str = "",
    fetch: bool = False,
    full: bool = False,
    expect: str | None = None,
    drop: Iterable[Replica] = (),
    history: str = "",
    lock_ttl: float = 0.0,
    locking: bool = False,
    digest: str | None = None,
    resizes: bool = False,
    own_weight: str | None = None,
    placed: int = 0,
) -> Command[BeatReply]:
    """Join or refresh, sweep what expired, and learn where the ring stands: one atomic step.

    Args:
        told: what the node tells of itself; ``named`` true when its name is not made up.
        joining: a first beat, which may take a free name; a later one only keeps what it has.
        back: with ``joining``, take the replicas that the last process of this name left on the
            ring when it stopped to come back; ``replicas`` is empty then. For nodes that know only
            their own ranges.
        take_from: with ``joining``, the session that was seen to hold the name and may lose it
            to this one; empty when nobody was seen. Naming it keeps a join that was long on its
            way from taking the name back from the session that has it by then.
        fetch: answer with the ring's members, and who is full, as well.
        full: the node holds as many keys as it may.
        expect: the tag the ring must have, or the call does nothing; empty for a ring without
            history, ``None`` for any.
        drop: members to take away in the same step (points that the name had before).
        history: the history that the node knows; empty when it knows none. When Redis has another
            by now, it lost the ring, and no lock may be taken for a while.
        lock_ttl: for how many seconds no lock may be taken then: as long as one lasts unless
            renewed.
        locking: the node locks keys: if Redis restarted since the last heartbeat of such a node,
            or another server took over, its data may lack the newest locks, and no lock may be
            taken for ``lock_ttl`` seconds, either.
        digest: answer with the node's own ranges, unless this is a digest of them (see
            :mod:`hashring.core.own_ranges`), and with the soonest expiry at their ends; ``None``
            for a node that follows the whole ring.
        resizes: the node has other points than before, for it has another weight.
        own_weight: the node's own code gave it its weight: the order with this id is lifted, if it
            stands. Empty for none, ``None`` when its code gave it none since it last said so.
        placed: how many times the node has had other points since its session began. A call that
            Redis executes after one with a greater number, of the same session, does nothing.
            The first call with a number removes the node's other replicas, also those not in
            ``drop``, as far as Redis noted where they are.
    """
    members = tuple(replica.member for replica in replicas)
    if members:
        # By which a sweep sees whether this heartbeat still holds.
        told = {**told, ANCHOR: members[0].decode()}
    if placed:
        told = {**told, PLACED: placed}
    flags = "".join(
        letter
        for letter, wanted in (
            ("j", joining),
            ("s", fetch),
            ("f", full),
            ("r", digest is not None),
            ("w", resizes),
            ("o", own_weight is not None),
            ("b", back),
        )
        if wanted
    )
    dropped = [replica.member for replica in drop]
    arguments: tuple[Argument, ...] = (
        node,
        session,
        flags,
        take_from,
        scoring.lead,
        scoring.lag,
        "" if expect is None else f"={expect}",
        json.dumps(told, sort_keys=True),
        EVENTS_KEPT,
        history,
        lock_ttl,
        digest or "",
        own_weight or "",
        len(dropped),
        *dropped,
        *members,
    )
    names = keys.script_keys()
    if locking:
        names += (keys.lock_server, keys.token)
    return Command(script("ring", "beat"), names, arguments, partial(_read_beat, back=back))


def _read_beat(raw: Any, *, back: bool) -> BeatReply:
    status, epoch, tag, before, members, at, soonest, swept, history, held_off = raw[:10]
    nodes, all_full, ranges, ordered = raw[10:14]
    stayed = tuple(map(parse_replica, _read_members(raw[14]))) if back and len(raw) > 14 else ()
    try:
        reaches = None if ranges == b"=" else read_reaches(text(ranges))
    except ValueError:
        if not back:
            raise
        # Somebody else wrote them into the entry of the node. The next heartbeat finds it.
        reaches = ()
    return BeatReply(
        BeatStatus(text(status)),
        Stamp(int(epoch), text(tag), int(members), int(at)),
        text(before),
        float(soonest) if soonest else None,
        int(swept),
        _read_members(raw[14]) if len(raw) > 15 else None,
        frozenset(text(node) for node in raw[15]) if len(raw) > 15 else frozenset(),
        text(history),
        float(held_off),
        int(nodes),
        bool(int(all_full)),
        reaches,
        read_weight_text(ordered),
        stayed,
    )


def _read_members(raw: bytes) -> tuple[bytes, ...]:
    # Members may be any bytes, and stand in the JSON as they are. Lua's empty table is `{}`.
    members = json.loads(raw.decode("utf-8", "surrogateescape"))
    return tuple(member.encode("utf-8", "surrogateescape") for member in members)


class LeaveStatus(str, Enum):
    """How a departure went."""

    OK = "ok"
    SUPERSEDED = "superseded"
    """The name belongs to another session, or one stopped to come back; its replicas stay."""
    ABSENT = "absent"
    """None of the members were on the ring."""


def leave(
    keys: RingKeys,
    *,
    node: str,
    replicas: Iterable[Replica],
    drop: Iterable[Replica] = (),
    session: str = "",
    reason: str = "stop",
    by: str = "",
) -> Command[LeaveStatus]:
    """Take a node off the ring.

    Args:
        drop: members of it besides ``replicas``, to which it does not want to come back.
        session: the session that must hold the name; empty for any.
        reason, by: for the history.
    """
    dropped = [replica.member for replica in drop]
    arguments: tuple[Argument, ...] = (
        node,
        session,
        reason,
        by or node,
        EVENTS_KEPT,
        len(dropped),
        *dropped,
        *(replica.member for replica in replicas),
    )
    return Command(
        script("ring", "leave"),
        keys.script_keys(),
        arguments,
        lambda raw: LeaveStatus(text(raw)),
    )


def park(
    keys: RingKeys,
    *,
    node: str,
    session: str,
    scoring: Scoring,
    replicas: Iterable[Replica],
    told: tuple[str, str] = ("", ""),
) -> Command[LeaveStatus]:
    """Give up a node's name, and leave its replicas where they are until they expire.

    The next process that joins with these replicas changes nothing.

    Args:
        session: the session that must hold the name.
        told: a ring's tag, and the text that states the node's ranges at that tag (see
            :mod:`hashring.core.own_ranges`): while the ring has it they need not be looked up.
            Both empty when the node was not told.
    """
    arguments: tuple[Argument, ...] = (
        node,
        session,
        scoring.lead,
        scoring.lag,
        EVENTS_KEPT,
        *told,
        *(replica.member for replica in replicas),
    )
    return Command(
        script("ring", "park"), keys.script_keys(), arguments, lambda raw: LeaveStatus(text(raw))
    )


@dataclass(frozen=True)
class SweepReply:
    """What a sweep took away.

    Attributes:
        members: members whose time was up, garbage included.
        stray: entries about nodes that have no replica on the ring.
    """

    members: int
    stray: int


def sweep(keys: RingKeys, *, scoring: Scoring, by: str) -> Command[SweepReply]:
    """Take away what expired, and entries about nodes that are not on the ring."""
    return Command(
        script("ring", "sweep"),
        keys.script_keys(),
        (scoring.lag, by, EVENTS_KEPT),
        lambda raw: SweepReply(int(raw[0]), int(raw[1])),
    )


FORGET: Final = "forget"
"""The kind of the event that tells that a ring was stopped for good."""


def forget(keys: RingKeys, *, scoring: Scoring, by: str) -> Command[bool]:
    """Note in the history that a ring was stopped for good, unless a node is on it.

    What expired is taken away first. The answer is whether it was noted. The next join ends it.
    """
    return Command(
        script("ring", "forget"),
        keys.script_keys(),
        (scoring.lag, by, EVENTS_KEPT),
        lambda raw: int(raw) == 0,
    )


@dataclass(frozen=True)
class Look:
    """What a node must know of the ring before it joins, without reading all of it.

    Attributes:
        stamp: where the ring stood.
        record: what holds the node's name; ``None`` when nothing does.
        replicas: those under the node's name, by rising point, expired ones included.
        remembered: points that the name had when it went; empty when unknown.
        taken: those of the points of either that other nodes have.
        points: how many replicas are on the ring.
        ranges: own ranges of other nodes, by name, as far as they lie in the stretches that were
            read: point and length of each, neighbours not merged.
        ordered: the weight that was ordered for the node.
    """

    stamp: Stamp
    record: NodeRecord | None
    replicas: tuple[Replica, ...]
    remembered: tuple[int, ...]
    taken: frozenset[int]
    points: int
    ranges: Mapping[str, tuple[tuple[int, int], ...]]
    ordered: WeightOrder | None = None


def look(
    keys: RingKeys, *, node: str, whole: int = 0, count: int = 0, starts: Iterable[int] = ()
) -> Command[Look]:
    """Read what a node must know before it joins, at one instant, and write nothing.

    What it costs depends on the node's own points, and on what is wanted of others; not on the
    ring's size. Not for a ring in the form of redis-hashring, which has no index.

    Args:
        whole: up to this many replicas, the ranges of all are wanted; 0 for none.
        count, starts: on a larger ring, the ranges of this many replicas are wanted, from
            each of these points on.
    """

    def read(raw: Any) -> Look:
        epoch, tag, at, members, entry, memory, own, taken, points, ordered = raw[:10]
        record = read_node(entry) if entry else None
        stretches = [_read_stretch(stretch) for stretch in raw[10:]]
        # A replica more, for the end of the last range.
        closed = int(points) <= max(whole, count)
        ranges = dict(stretch_ranges(stretches, closed=closed))
        ranges.pop(node, None)
        return Look(
            Stamp(int(epoch), text(tag), int(members), int(at)),
            record,
            tuple(sorted({parse_replica(member) for member in own})),
            read_memory(memory),
            frozenset(map(int, taken)),
            int(points),
            ranges,
            read_weight_text(ordered),
        )

    arguments: tuple[Argument, ...] = (node, whole, count + 1, *starts)
    return Command(script("ring", "look"), keys.script_keys(), arguments, read)


def _read_stretch(members: Iterable[bytes]) -> list[tuple[int, str]]:
    """Point and node of each replica."""
    found = []
    for member in members:
        try:
            point, node, _ = parse_parts(member)
        except ReplicaFormatError:
            continue  # Somebody else put it on the index.
        found.append((point, node))
    return found


def owner(keys: RingKeys, point: int) -> Command[str | None]:
    """The node that owns a point; ``None`` on a ring without live nodes.

    Not for a ring in the form of redis-hashring, which has no index.
    """
    return Command(
        script("ring", "owner"), keys.script_keys(), (point,), lambda raw: text(raw) or None
    )


def read_memory(memory: bytes) -> tuple[int, ...]:
    """The points that a node had when it went, rising; none if one of them is no point."""
    try:
        points = json.loads(memory)["points"] if memory else []
        return tuple(sorted(set(map(checked_point, points))))
    except (ValueError, KeyError, TypeError, RecursionError):
        return ()


def read_members(members: Iterable[bytes]) -> tuple[dict[str, list[int]], int]:
    """The points of each node in a ring's members, and how many members are garbage."""
    points: dict[str, list[int]] = {}
    garbage = 0
    for member in members:
        try:
            point, node, _ = parse_parts(member)
        except ReplicaFormatError:
            garbage += 1
        else:
            points.setdefault(node, []).append(point)
    return points, garbage
