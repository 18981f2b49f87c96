"""The twin of the ring's scripts: a method for each, with the script's ARGV."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from hashring.core.own_ranges import reaches_text
from hashring.core.replica import parse_replica
from hashring.core.value_checks import is_number
from hashring.store.ring.node_entries import AWAY, SESSION_LENGTH, holder_of, told_of
from hashring.store.ring.twin_point_index import Index, node_of, point_of
from hashring.store.twin_keyspace import Twin
from hashring.store.twin_stream import Stream

_FORGET_AFTER: Final = 86_400
_FORGET_ABOVE: Final = 256
_FORGET_EVERY: Final = 3600
_LAST_EPOCH: Final = 999_999_999_999
_END_KEPT: Final = 3600
_OVER: Final = "its time was up"


# The epoch key as the scripts write it; they go by the same form.
_EPOCH: Final = re.compile(rb"([0-9]{1,12}) ([0-9A-Fa-f]+)(?: ([0-9]+) ([0-9]+))?")

# The keys of a ring, by their names in RingKeys, and which fields of the data are in each.
_IN_KEY: Final = {
    "ring": ("members",),
    "epoch": ("epoch", "tag", "began", "till"),
    "nodes": ("nodes",),
    "events": ("events",),
    "left": ("left",),
    "full": ("full",),
    "points": ("index",),
    "places": ("places",),
    "orders": ("orders",),
    "drained": ("drained",),
    "ended": ("ended",),
}


@dataclass
class RingData:
    """What Redis would hold of one ring."""

    members: dict[bytes, float] = field(default_factory=dict)
    epoch: int = 0
    tag: str = ""
    began: str = ""
    till: int = 0
    nodes: dict[bytes, bytes] = field(default_factory=dict)
    events: Stream = field(default_factory=Stream)
    left: dict[bytes, bytes] = field(default_factory=dict)
    full: set[bytes] = field(default_factory=set)
    index: Index = field(default_factory=Index)
    places: dict[bytes, bytes] = field(default_factory=dict)
    orders: dict[bytes, bytes] = field(default_factory=dict)
    drained: dict[bytes, float] = field(default_factory=dict)
    ended: dict[str, float] = field(default_factory=dict)

    def set_epoch(self, value: bytes) -> None:
        """Take over what somebody wrote to the epoch key; anything else counts as nothing."""
        written = _EPOCH.fullmatch(value)
        self.epoch = int(written[1]) if written else 0
        self.tag = written[2].decode() if written else ""
        self.began = written[3].decode() if written and written[3] else ""
        self.till = int(written[4]) if written and written[4] else 0

    def delete(self, key: str) -> None:
        """Forget what is in a key.

        Args:
            key: the name of a field of :class:`hashring.store.ring.key_names.RingKeys`.
        """
        fresh = RingData()
        for name in _IN_KEY[key]:
            setattr(self, name, getattr(fresh, name))


class _Left(NamedTuple):
    """What a node left on the ring when it stopped to come back.

    Attributes:
        members: the node's.
        tag: the ring's tag when the node last received its ranges.
        ranges: the node's ranges at that tag.
    """

    members: tuple[bytes, ...] = ()
    tag: Any = None
    ranges: str = ""


class RingTwin(Twin):
    """The ring's scripts."""

    def __init__(self, *run: Any) -> None:
        super().__init__(*run)
        self.ring = self.keyspace.of(RingData, self.keys[1])

    # --- the scripts --------------------------------------------------------------------------

    def beat(  # noqa: PLR0917 - ARGV of the script, in its order
        self,
        node: str,
        session: str,
        flags: str,
        take_from: str,
        lead: float,
        lag: float,
        expect: str,
        told: str,
        history: int,
        known: str,
        lock_ttl: float,
        digest: str,
        lift: str,
        dropping: int,
        *members: bytes,
    ) -> list[Any]:
        ring, name = self.ring, node.encode()
        indexed = lag == 0
        swept = self._sweep(self.now - lag, node, history)
        swept += self._reconcile(node, history) if indexed else 0
        before = ring.tag
        joining, full = "j" in flags, "f" in flags
        away, own = members[:dropping], members[dropping:]
        entry, left = ring.nodes.get(name), None
        if "b" in flags:
            left = self._left_there(name)
            own = left.members
            told = self._told_back(told, own)
        other = holder_of(entry or b"") not in ("", session)
        status = "absent"
        if left is None or left.members or self._has_ended(name, session):
            status = self._status(node, session, take_from if joining else None, told, history)
        stayed = joining and take_from and (entry or b"").startswith(AWAY)
        if status == "ok" and (stayed or expect not in ("", f"={before}")):
            status = "moved"
        if "o" in flags and status in ("ok", "drained"):
            self._take_own_weight(node, session, told, lift, history)
        if status in ("ok", "drained") and indexed and left is None:
            away += self._others(name, session, told, away, own)
        if status == "ok":
            added, lost = self._replace(away, own, lead)
            self._note_told(name, session, told, history, joining=joining)
            changed = bool(added or lost or other or not before)
            if changed:
                change = {
                    "kind": "join",
                    "nodes": [node],
                    "points": [point_of(member) for member in own],
                    "session": session,
                    "reason": self._reason_to_join(name, flags, entry, other=other),
                }
                self._announce(change, added - lost, node, history)
                if indexed:
                    ring.index.take_off(away)
                    ring.index.put(own, full=full)
                    self._tell_neighbours(
                        map(point_of, (*away, *own)), change, node, [node] if other else []
                    )
            self._note_places(name, own, changed=changed)
            if indexed:
                ring.index.settle(own if "r" in flags else own[:1], own, full=full)
            self._settle_full(node, own, history, full=full, indexed=indexed)
        elif status == "drained":
            self._note_told(name, session, told, history, joining=joining)
            self._take_off(node, (*away, *own), own, history, other=other)
            ring.drained[name] = round(self.now + lead, 6)
        accepted = status in ("ok", "drained")
        if accepted:
            self._hold_off(known, lock_ttl)
        asked = status == "ok" and "r" in flags
        ranges, soonest = left.ranges if asked and left else "", self._soonest(status)
        if asked and (not ranges or left is None or left.tag != ring.tag):
            ranges, soonest = self._own_ranges(own, node)
        reply: list[Any] = [
            status.encode(),
            ring.epoch,
            ring.tag.encode(),
            before.encode(),
            len(ring.members),
            self.at(),
            b"" if soonest is None else b"%.6f" % (soonest + lag - self.now),
            swept,
            ring.began.encode(),
            b"%.6f" % (max(0, ring.till - int(self.at())) / 1e6),
            max(0, len(ring.nodes) - len(ring.drained)),
            int(indexed and not ring.index.room.counted and bool(ring.members)),
            b"=" if ranges and _sha1(ranges) == digest else ranges.encode(),
            self._order_text(node, session if accepted else None),
        ]
        return reply + self._more(flags, own, accepted=accepted)

    def _more(self, flags: str, own: Iterable[bytes], *, accepted: bool) -> list[Any]:
        """What a heartbeat's answer has besides, when it was asked for."""
        ring = self.ring
        more: list[Any] = []
        if "s" in flags:
            by_score = sorted(ring.members, key=lambda member: (ring.members[member], member))
            more += (_texts(by_score), sorted(ring.full))
        if "b" in flags and accepted:
            more.append(_texts(own))
        return more

    def _told_back(self, told: str, own: tuple[bytes, ...]) -> str:
        """What a node tells of itself that is back, with what it cannot know before."""
        if not own:
            return told
        anchor = json.dumps(own[0].decode())
        return f'{{"anchor":{anchor},"started":{self.now:.6f},{told[1:]}'

    def _left_there(self, name: bytes) -> _Left:
        """What the node left there when it stopped to come back."""
        entry = self.ring.nodes.get(name, b"")
        stays = told_of(entry).get("stays") if entry.startswith(AWAY) else None
        if not isinstance(stays, dict) or not isinstance(left := stays.get("members"), list):
            return _Left()
        if not all(isinstance(member, str) for member in left):
            return _Left()
        members = tuple(member.encode("utf-8", "surrogatepass") for member in left)
        if stays.get("sum") != _sum_of(name, members):
            return _Left()
        tag, ranges = stays.get("tag"), stays.get("ranges")
        return _Left(members, tag, ranges if isinstance(ranges, str) else "")

    def _status(
        self, node: str, session: str, take_from: str | None, told: str, history: int
    ) -> str:
        """How a heartbeat goes, whatever ring it expects; ``take_from`` is given by a join."""
        holder = holder_of(self.ring.nodes.get(node.encode(), b""))
        if self._has_ended(node.encode(), session):
            return "superseded"
        if holder not in ("", session, take_from):
            return "superseded" if take_from is None else "taken"
        if _placed(told.encode()) < self._placed_before(node.encode(), session):
            return "superseded"
        return "drained" if self._is_to_drain(node, session, history) else "ok"

    def _end_session(self, session: str) -> None:
        """A session has ended: a heartbeat of it that was long on its way does nothing."""
        ended = self.ring.ended
        for old in [each for each, until in ended.items() if until <= self.now][:100]:
            del ended[old]
        ended[session] = self.now + _END_KEPT

    def _has_ended(self, name: bytes, session: str) -> bool:
        """Whether a session ended, and does not hold the name."""
        holds = holder_of(self.ring.nodes.get(name, b"")) == session
        return not holds and self.ring.ended.get(session, self.now) > self.now

    def _replace(self, away: Iterable[bytes], own: Iterable[bytes], lead: float) -> tuple[int, int]:
        """Drop members and refresh others; how many of these are new, and how many were dropped."""
        members = self.ring.members
        lost = sum(members.pop(member, None) is not None for member in away)
        before = len(members)
        members.update(dict.fromkeys(own, round(self.now + lead, 6)))
        return len(members) - before, lost

    def _placed_before(self, name: bytes, session: str) -> int:
        """Which set of points the session's heartbeats before this one had; -1 for no session's."""
        entry = self.ring.nodes.get(name, b"")
        return _placed(entry) if holder_of(entry) == session else -1

    def _others(
        self,
        name: bytes,
        session: str,
        told: str,
        away: tuple[bytes, ...],
        own: tuple[bytes, ...],
    ) -> tuple[bytes, ...]:
        """What the node has besides, when this is its first heartbeat with these points."""
        places = self.ring.places.get(name)
        known = self._placed_before(name, session)
        if places in (None, _places_of(own)) or _placed(told.encode()) == known:
            return ()
        here = (m for point in _numbers(places) for m in self.ring.index.at(point))
        others = (m for m in here if node_of(m) == name and m not in (*away, *own))
        return tuple(dict.fromkeys(others))

    def _reason_to_join(self, name: bytes, flags: str, entry: bytes | None, *, other: bool) -> str:
        if self.ring.drained.pop(name, None) is not None:
            return "undrained"
        if other:
            return "restart"
        if "w" in flags:
            return "weight"
        if "j" in flags:
            return "start" if entry is None else "resize"
        return "return"

    def _take_off(
        self,
        node: str,
        members: tuple[bytes, ...],
        own: tuple[bytes, ...],
        history: int,
        *,
        other: bool,
    ) -> None:
        """The node drains: it beats, and has no member."""
        ring, name = self.ring, node.encode()
        ring.full.discard(name)
        removed = sum(ring.members.pop(member, None) is not None for member in members)
        ring.index.take_off(members)
        ring.places.pop(name, None)
        if not removed:
            return
        if told_of(ring.nodes[name]).get("named") is True:
            self._remember(name, [point_of(member) for member in own])
        change = {"kind": "leave", "nodes": [node], "reason": "drained"}
        self._announce(change, -removed, node, history)
        self._tell_neighbours(map(point_of, members), change, node, [node] if other else [])

    def _note_told(
        self, name: bytes, session: str, told: str, history: int, *, joining: bool
    ) -> None:
        """What the node tells of itself, and in the history what is new in it."""
        ring = self.ring
        entry = ring.nodes.get(name, b"")
        if (holder := holder_of(entry)) not in ("", session):
            self._end_session(holder)
        ring.nodes[name] = session.encode() + told.encode()
        if joining and entry.startswith(AWAY):
            ring.events.add(self.now, {b"kind": b"back", b"by": name}, history)
        unserved, before = _unserved(told), _unserved(entry[SESSION_LENGTH:])
        if (unserved > 0) != (before > 0):
            event = {b"kind": b"unserved", b"by": name, b"keys": b"%d" % unserved}
            ring.events.add(self.now, event, history)

    def _take_own_weight(self, node: str, session: str, told: str, lift: str, history: int) -> None:
        """Its own code gave the node its weight: the order that it knew does not count any more."""
        name, weight = node.encode(), json.loads(told).get("weight")
        ordered = self._weight_of(name, session)
        lifted = ordered is not None and ordered.get("since") == lift
        if lifted:
            self._write_order(name, "weight", None)
        if lifted or told_of(self.ring.nodes.get(name, b"")).get("weight") != weight:
            self._log_weight(name, node, f"{weight:g}", history)

    def _log_weight(self, name: bytes, by: str, reason: str, history: int) -> None:
        event = {b"kind": b"weight", b"by": by.encode(), b"node": name, b"reason": reason.encode()}
        self.ring.events.add(self.now, event, history)

    def _order_text(self, node: str, session: str | None) -> bytes:
        ordered = None if session is None else self._weight_of(node.encode(), session)
        return b"" if ordered is None else json.dumps(ordered).encode()

    def _note_places(self, name: bytes, own: Iterable[bytes], *, changed: bool) -> None:
        """Where the node is; what it was before is of no use any more."""
        ring = self.ring
        if changed or len(ring.places) < len(ring.nodes) - len(ring.drained):
            ring.places[name] = _places_of(own)
        if changed:
            ring.left.pop(name, None)

    def _settle_full(
        self, node: str, own: tuple[bytes, ...], history: int, *, full: bool, indexed: bool
    ) -> None:
        """Whether the node is full is as it says."""
        ring, name = self.ring, node.encode()
        if full == (name in ring.full):
            return
        (ring.full.add if full else ring.full.discard)(name)
        change = {"kind": "full" if full else "room", "nodes": [node]}
        self._announce(change, 0, node, history)
        if indexed:
            ring.index.put(own, full=full)
            self._tell_neighbours(map(point_of, own), change, node, [])

    def _hold_off(self, known: str, lock_ttl: float) -> None:
        """No lock may be taken for a while, if the node knew an earlier history."""
        ring = self.ring
        if known not in ("", ring.began) and ring.began and lock_ttl > 0:
            lost_at = int(ring.began if int(ring.began) > int(known) else self.at())
            ring.till = max(ring.till, lost_at + int(lock_ttl * 1e6))

    def leave(
        self, node: str, session: str, reason: str, by: str, history: int, *members: bytes
    ) -> bytes:
        ring, name = self.ring, node.encode()
        entry = ring.nodes.get(name)
        if session and reason == "stop":
            self._end_session(session)
        if session and holder_of(entry or b"") not in ("", session):
            return b"superseded"
        removed = sum(ring.members.pop(member, None) is not None for member in members)
        ring.index.take_off(members)
        if members and told_of(entry or b"").get("named") is True:
            self._remember(name, [parse_replica(member).point for member in members])
        ring.nodes.pop(name, None)
        ring.places.pop(name, None)
        ring.full.discard(name)
        ring.drained.pop(name, None)
        if reason == "stop" and told_of(entry or b"").get("named") is not True:
            ring.orders.pop(name, None)
        if not removed:
            return b"absent"
        change = {"kind": "leave", "nodes": [node], "reason": reason}
        self._announce(change, -removed, by, history)
        self._tell_neighbours(map(point_of, members), change, node, [node])
        return b"ok"

    def park(  # noqa: PLR0917 - ARGV of the script, in its order
        self,
        node: str,
        session: str,
        lead: float,
        lag: float,
        history: int,
        tag: str,
        ranges: str,
        *members: bytes,
    ) -> bytes:
        ring, name = self.ring, node.encode()
        entry = ring.nodes.get(name, b"")
        holder = holder_of(entry)
        self._end_session(session)
        if holder != session:
            return b"superseded" if holder else b"absent"
        there = [member for member in members if member in ring.members]
        if not there:
            return b"absent"
        for member in there:
            ring.members[member] = round(self.now + lead, 6)
        kept = [member.decode() for member in there]
        left = {"members": kept, "sum": _sum_of(name, there), "tag": tag, "ranges": ranges}
        stays = json.dumps(left)
        ring.nodes[name] = AWAY + f'{{"stays":{stays},'.encode() + entry[SESSION_LENGTH + 1 :]
        ring.events.add(self.now, {b"kind": b"stay", b"by": name}, history)
        self._settle_full(node, tuple(there), history, full=False, indexed=lag == 0)
        return b"ok"

    def forget(self, lag: float, by: str, history: int) -> int:
        ring = self.ring
        self._sweep(self.now - lag, by, history)
        left = len(ring.members) + len(ring.drained)
        if not left:
            ring.events.add(self.now, {b"kind": b"forget", b"by": by.encode()}, history)
        return left

    def sweep(self, lag: float, by: str, history: int) -> list[int]:
        ring = self.ring
        swept = self._sweep(self.now - lag, by, history)
        if lag == 0:
            swept += self._reconcile(by, history)
        present = {node_of(member) for member in ring.members} | ring.drained.keys()
        stray = [name for name in ring.nodes if name not in present]
        for name in stray:
            del ring.nodes[name]
        ring.places = {name: place for name, place in ring.places.items() if name in present}
        return [swept, len(stray)]

    def snapshot(self, remembered: str, index: str) -> list[Any]:
        ring = self.ring
        memory = ring.left.get(remembered.encode())
        members = sorted(ring.members, key=lambda member: (ring.members[member], member))
        return [
            ring.epoch,
            ring.tag.encode(),
            self.at(),
            [part for member in members for part in (member, b"%.6f" % ring.members[member])],
            [part for item in ring.nodes.items() for part in item],
            memory or b"",
            len(ring.index),
            [part for item in ring.orders.items() for part in item],
            [
                part
                for name in sorted(ring.drained, key=lambda name: (ring.drained[name], name))
                for part in (name, b"%.6f" % ring.drained[name])
            ],
            *(
                [part for member, at in each.items() for part in (member, b"%d" % at)]
                for each in ((ring.index.room, ring.index.full) if index == "1" else ())
            ),
        ]

    def look(self, node: str, whole: int, count: int, *points: int) -> list[Any]:
        ring, name = self.ring, node.encode()
        entry, place, memory = (part.get(name) for part in (ring.nodes, ring.places, ring.left))
        own, taken = ring.index.members_of(name, _numbers(place), ring.members)
        if not own:
            own, more = ring.index.members_of(name, _numbers(memory), ring.members)
            taken += more
        if entry is not None and place is None and name not in ring.drained:
            own = [member for member in ring.members if node_of(member) == name]
        reply: list[Any] = [
            ring.epoch,
            ring.tag.encode(),
            self.at(),
            len(ring.members),
            entry or b"",
            memory or b"",
            own,
            taken,
            ring.index.room.counted + ring.index.full.counted,
            self._order_text(node, holder_of(entry or b"")),
        ]
        if whole:
            reply += ring.index.stretches(whole, count, points)
        return reply

    def drain(  # noqa: PLR0917 - ARGV of the script, in its order
        self, node: str, by: str, seconds: str, force: str, lag: float, history: int
    ) -> bytes:
        ring, name = self.ring, node.encode()
        self._sweep(self.now - lag, by, history)
        entry = ring.nodes.get(name)
        if entry is None and name not in ring.left and not self._orders_of(name):
            return b"unknown"
        others = len(ring.nodes) - (entry is not None)
        for other in list(ring.orders):
            held = ring.nodes.get(other)
            stands, stale = self._drain_of(other, holder_of(held or b""))
            if other != name and held is not None and stands is not None:
                others -= 1
            elif other != name and held is None and stale == _OVER:
                self._write_order(other, "drain", None)
        if others <= 0 and lag > 0:
            nodes = {node_of(member) for member in ring.members} - {None, name}
            others = int(any(other not in ring.nodes for other in nodes))
        stands, _ = self._drain_of(name, holder_of(entry or b""))
        if others <= 0 and force != "1" and stands is None:
            return b"last"
        drain = {"by": by, "since": self.at().decode()}
        if seconds:
            drain["ends"] = str(int(self.at()) + round(float(seconds) * 1e6))
        drain |= _made_up_for(entry or b"")
        self._write_order(name, "drain", drain)
        reason = f"for {seconds} s" if seconds else ""
        event = {b"kind": b"drain", b"by": by.encode(), b"node": name, b"reason": reason.encode()}
        ring.events.add(self.now, event, history)
        self._call_node(name)
        return b"ok"

    def undrain(self, node: str, by: str, history: int) -> bytes:
        ring, name = self.ring, node.encode()
        if not self._orders_of(name).get("drain"):
            return b"none" if name in ring.nodes or name in ring.left else b"unknown"
        self._write_order(name, "drain", None)
        event = {b"kind": b"undrain", b"by": by.encode(), b"node": name}
        ring.events.add(self.now, event, history)
        self._call_node(name)
        return b"ok"

    def weigh(self, by: str, why: str, history: int, *pairs: str) -> list[bytes]:
        ring = self.ring
        weights = dict(zip(pairs[::2], pairs[1::2], strict=True))
        for name in (node.encode() for node in weights):
            if name not in ring.nodes and name not in ring.left and not self._orders_of(name):
                return [b"unknown", name]
        for name in list(ring.orders):
            old = self._orders_of(name).get("weight")
            if not isinstance(old, dict) or not old.get("session") or name in ring.nodes:
                continue
            if not _number(old.get("since")) / 1e6 >= self.now - _FORGET_AFTER:
                self._write_order(name, "weight", None)
        changed = []
        for node, weight in weights.items():
            name = node.encode()
            entry = ring.nodes.get(name)
            standing = self._weight_of(name, holder_of(entry or b"")) or {}
            if weight == standing.get("weight", ""):
                continue
            order = {"weight": weight, "by": by, "since": self.at().decode()}
            order |= _made_up_for(entry or b"")
            self._write_order(name, "weight", order if weight else None)
            self._log_weight(name, by, ", ".join(filter(None, (weight or "its own", why))), history)
            self._call_node(name)
            changed.append(name)
        return [b"ok", *changed]

    def owner(self, point: int) -> bytes:
        return self.ring.index.owner(point, self.ring.members).encode()

    # --- what the scripts share ---------------------------------------------------------------

    def _announce(self, body: dict[str, Any], growth: int, by: str, history: int) -> None:
        ring = self.ring
        prev = ring.tag
        ring.epoch = ring.epoch % _LAST_EPOCH + 1
        body |= {
            "v": 1,
            "epoch": ring.epoch,
            "prev": prev,
            "at": self.at().decode(),
            "members": len(ring.members),
            "was": len(ring.members) - growth,
        }
        digest = hashlib.sha1(prev.encode() + json.dumps(body).encode())
        ring.tag = body["tag"] = digest.hexdigest()[:16]
        ring.began = ring.began or self.at().decode()
        message = json.dumps(body).encode()
        self.publish(self.keys[0], message)
        ring.events.add(
            self.now,
            {
                b"kind": body["kind"].encode(),
                b"epoch": b"%d" % ring.epoch,
                b"by": by.encode(),
                b"data": message,
            },
            history,
        )

    def _remember(self, name: bytes, points: list[int]) -> None:
        left = self.ring.left
        left[name] = json.dumps({"points": points, "at": str(int(self.now))}).encode()
        looked = _seconds(left.get(b"", b""))
        if len(left) <= _FORGET_ABOVE or looked <= self.now < looked + _FORGET_EVERY:
            return
        oldest = int(self.now) - _FORGET_AFTER
        for old in [name for name, memory in left.items() if not _left_at(memory) >= oldest]:
            del left[old]
        left[b""] = b"%d" % self.now

    def _orders_of(self, name: bytes) -> dict[str, Any]:
        try:
            orders = json.loads(self.ring.orders.get(name, b""))
        except (ValueError, RecursionError):
            return {}
        return orders if isinstance(orders, dict) else {}

    def _drain_of(self, name: bytes, session: str) -> tuple[dict[str, Any] | None, str]:
        drain = self._orders_of(name).get("drain")
        if not isinstance(drain, dict):
            return None, ""
        if (ends := drain.get("ends")) is not None and not _number(ends) > int(self.at()):
            return None, _OVER
        if drain.get("session", session) != session:
            return None, "another process has the name"
        return drain, ""

    def _weight_of(self, name: bytes, session: str) -> dict[str, Any] | None:
        weight = self._orders_of(name).get("weight")
        if not isinstance(weight, dict) or weight.get("session", session) != session:
            return None
        told = [weight.get(field) for field in ("weight", "by", "since")]
        return (
            weight
            if all(isinstance(value, str) for value in told) and str(told[2]).isdigit()
            else None
        )

    def _write_order(self, name: bytes, kind: str, order: dict[str, Any] | None) -> None:
        orders = {**self._orders_of(name), kind: order}
        if order is None:
            del orders[kind]
        if orders:
            self.ring.orders[name] = json.dumps(orders).encode()
        else:
            self.ring.orders.pop(name, None)

    def _is_to_drain(self, node: str, session: str, history: int) -> bool:
        name = node.encode()
        drain, stale = self._drain_of(name, session)
        if stale:
            self._write_order(name, "drain", None)
            event = {b"kind": b"undrain", b"by": name, b"node": name, b"reason": stale.encode()}
            self.ring.events.add(self.now, event, history)
        return drain is not None

    def _call_node(self, name: bytes) -> None:
        self.publish(self.keys[6].removesuffix(b"points") + b"to:" + name, b"order")

    def _sweep_drained(self, horizon: float) -> None:
        ring = self.ring
        for name in [name for name, score in ring.drained.items() if score < horizon]:
            del ring.drained[name]
            anchor = told_of(ring.nodes.get(name, b"")).get("anchor")
            if not (isinstance(anchor, str) and anchor.encode() in ring.members):
                ring.nodes.pop(name, None)

    def _sweep(self, horizon: float, by: str, history: int) -> int:
        ring = self.ring
        self._sweep_drained(horizon)
        expired = sorted(
            (member for member, score in ring.members.items() if score < horizon),
            key=lambda member: (ring.members[member], member),
        )
        if not expired:
            return 0
        points: dict[bytes, list[int]] = {}
        since = None
        ends = []
        for member in expired:
            node = node_of(member)
            if node is not None:
                points.setdefault(node, []).append(point_of(member))
                ends.append(point_of(member))
                since = since or f"{ring.members[member]:.6f}"
            del ring.members[member]
        ring.index.take_off(expired)
        gone = []
        for node, own in points.items():
            told = told_of(ring.nodes.get(node, b""))
            anchor = told.get("anchor")
            if isinstance(anchor, str) and anchor.encode() in ring.members:
                continue
            gone.append(node)
            if told.get("named") is True:
                self._remember(node, own)
            ring.nodes.pop(node, None)
            ring.places.pop(node, None)
            ring.full.discard(node)
        body: dict[str, Any] = {"kind": "expire", "reason": "expired", "since": since}
        if gone:
            body["nodes"] = [node.decode() for node in gone]
        self._announce(body, -len(expired), by, history)
        self._tell_neighbours(ends, body, by, body.get("nodes", []))
        return len(expired)

    def _reconcile(self, by: str, history: int) -> int:
        ring = self.ring
        away = ring.index.reconcile(ring.members, ring.nodes, ring.full)
        if not away:
            return 0
        for member in away:
            del ring.members[member]
        body: dict[str, Any] = {"kind": "expire", "reason": "unvouched"}
        nodes = dict.fromkeys(node_of(member) for member in away)
        if gone := [node.decode() for node in nodes if node and node not in ring.nodes]:
            body["nodes"] = gone
        self._announce(body, -len(away), by, history)
        return len(away)

    def _tell_neighbours(
        self, points: Iterable[int], change: dict[str, Any], own: str, gone: list[str]
    ) -> None:
        ring = self.ring
        near = ring.index.neighbours(points, own)
        concerned = {
            node: ends
            for node, ends in near.items()
            if b'"ranges":' in ring.nodes.get(node.encode(), b"")
        }
        told = {name: value for name, value in change.items() if name != "points"}
        # A node's own channel is named like the ring's keys.
        channel = self.keys[6].removesuffix(b"points") + b"to:"
        for node in (*concerned, *(each for each in gone if each not in concerned)):
            reaches = [
                ring.index.reach(point, node, is_full=node.encode() in ring.full)[0]
                for point in sorted(concerned.get(node, ()))
            ]
            body = json.dumps({**told, "ranges": reaches_text(reaches)}).encode()
            self.publish(channel + node.encode(), b"ranges\n" + body)

    def _soonest(self, status: str) -> float | None:
        return None if status == "drained" else min(self.ring.members.values(), default=None)

    def _own_ranges(self, own: tuple[bytes, ...], node: str) -> tuple[str, float | None]:
        ring = self.ring
        is_full = node.encode() in ring.full
        reaches, ends = ring.index.own_ranges(own, node, ring.members, is_full=is_full)
        soonest = min(map(ring.members.__getitem__, ends), default=None)
        return reaches_text(reaches), soonest


def _texts(members: Iterable[bytes]) -> bytes:
    """Members as one text, which may be any bytes."""
    texts = [member.decode("utf-8", "surrogateescape") for member in members]
    return json.dumps(texts, ensure_ascii=False).encode("utf-8", "surrogateescape")


def _placed(told: bytes) -> int:
    """Which of the sets of points that its session had a node has."""
    placed = re.search(rb'"placed": ([0-9]+)', told)
    return int(placed[1]) if placed else 0


def _made_up_for(entry: bytes) -> dict[str, str]:
    """The session that an order is about, in the order; nothing when it is about the name."""
    holder = holder_of(entry)
    return {"session": holder} if holder and told_of(entry).get("named") is not True else {}


def _seconds(text: bytes) -> float:
    """A time that was written; long ago for anything else."""
    return float(text) if text.isdigit() else float("-inf")


def _number(value: Any) -> float:
    """A number that may be written as text; NaN for anything else, which is more than nothing."""
    try:
        return float(value)
    except (ValueError, TypeError, OverflowError):
        return float("nan")


def _sum_of(node: bytes, members: Iterable[bytes]) -> str:
    return hashlib.sha1(b" ".join((node, *members))).hexdigest()


def _left_at(memory: bytes) -> float:
    """When a name's points were remembered; 0 for what was not written here."""
    try:
        return float(json.loads(memory)["at"])
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
        return 0.0


def _places_of(members: Iterable[bytes]) -> bytes:
    return b" ".join(member.partition(b":")[0] for member in members)


def _numbers(text: bytes | None) -> list[int]:
    """The numbers in a text, whoever wrote it."""
    return [int(digits) for digits in re.findall(rb"[0-9]+", text or b"") if len(digits) <= 10]


def _sha1(text: str) -> str:
    return hashlib.sha1(text.encode()).hexdigest()


def _unserved(told: str | bytes) -> int:
    try:
        info = json.loads(told)
    except (ValueError, RecursionError):
        return 0
    count = info.get("unserved") if isinstance(info, dict) else None
    return int(count) if is_number(count) and 0 < count < 2**53 else 0
