"""The twin of the ring's scripts: a method for each, with the script's ARGV."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from typing import Any, Final

from hashring.core.replica import parse_replica
from hashring.errors import ReplicaFormatError
from hashring.store.memory_stream import Stream
from hashring.store.ring.commands import SESSION_LENGTH, holder_of, told_of
from hashring.store.twin import Twin

_FORGET_AFTER: Final = 86_400
_FORGET_ABOVE: Final = 256
_LAST_EPOCH: Final = 999_999_999_999


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
        dropping: int,
        *members: bytes,
    ) -> list[Any]:
        ring, name = self.ring, node.encode()
        swept = self._sweep(self.now - lag, node, history)
        before = ring.tag
        joining = "j" in flags
        entry = ring.nodes.get(name)
        holder = holder_of(entry or b"")
        other = holder not in ("", session)
        status = "ok"
        if other and not joining:
            status = "superseded"
        elif other and holder != take_from:
            status = "taken"
        elif expect not in ("", f"={before}"):
            status = "moved"
        if status == "ok":
            dropped = [ring.members.pop(member, None) for member in members[:dropping]]
            own = members[dropping:]
            before_own = len(ring.members)
            for member in own:
                ring.members[member] = round(self.now + lead, 6)
            added = len(ring.members) - before_own
            lost = sum(score is not None for score in dropped)
            unserved = _unserved(told)
            before_unserved = _unserved(entry[SESSION_LENGTH:]) if entry else 0
            if (unserved > 0) != (before_unserved > 0):
                ring.events.add(
                    self.now,
                    {b"kind": b"unserved", b"by": name, b"keys": b"%d" % unserved},
                    history,
                )
            ring.nodes[name] = session.encode() + told.encode()
            if added or lost or other or not before:
                reason = "return"
                if other:
                    reason = "restart"
                elif joining:
                    reason = "resize" if entry is not None else "start"
                self._announce(
                    {
                        "kind": "join",
                        "nodes": [node],
                        "points": [parse_replica(member).point for member in own],
                        "session": session,
                        "reason": reason,
                    },
                    added - lost,
                    node,
                    history,
                )
                ring.left.pop(name, None)
            full = "f" in flags
            if full != (name in ring.full):
                (ring.full.add if full else ring.full.discard)(name)
                kind = "full" if full else "room"
                self._announce({"kind": kind, "nodes": [node]}, 0, node, history)
            self._hold_off(known, lock_ttl)
        soonest = min(ring.members.values(), default=None)
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
        ]
        if "s" in flags:
            by_score = sorted(ring.members, key=lambda member: (ring.members[member], member))
            texts = [member.decode("utf-8", "surrogateescape") for member in by_score]
            written = json.dumps(texts, ensure_ascii=False)
            reply.append(written.encode("utf-8", "surrogateescape"))
            reply.append(sorted(ring.full))
        return reply

    def _hold_off(self, known: str, lock_ttl: float) -> None:
        """No lock may be taken for a while, if the node knew an earlier history."""
        ring = self.ring
        if known not in ("", ring.began) and ring.began and lock_ttl > 0:
            lost_at = int(ring.began if int(ring.began) > int(known) else self.at())
            ring.till = max(ring.till, lost_at + int(lock_ttl * 1e6))

    def leave(
        self, node: str, session: str, reason: str, by: str, history: int, *members: bytes
    ) -> list[Any]:
        ring, name = self.ring, node.encode()
        entry = ring.nodes.get(name)
        if session and holder_of(entry or b"") not in ("", session):
            return [b"superseded", 0]
        removed = sum(ring.members.pop(member, None) is not None for member in members)
        if members and told_of(entry or b"").get("named") is True:
            self._remember(name, [parse_replica(member).point for member in members])
        ring.nodes.pop(name, None)
        ring.full.discard(name)
        if not removed:
            return [b"absent", 0]
        self._announce({"kind": "leave", "nodes": [node], "reason": reason}, -removed, by, history)
        return [b"ok", removed]

    def forget(self, lag: float, by: str, history: int) -> int:
        ring = self.ring
        self._sweep(self.now - lag, by, history)
        if not ring.members:
            ring.events.add(self.now, {b"kind": b"forget", b"by": by.encode()}, history)
        return len(ring.members)

    def sweep(self, lag: float, by: str, history: int) -> list[int]:
        ring = self.ring
        swept = self._sweep(self.now - lag, by, history)
        present = {_node_of(member) for member in ring.members}
        stray = [name for name in ring.nodes if name not in present]
        for name in stray:
            del ring.nodes[name]
        return [swept, len(stray)]

    def snapshot(self, remembered: str) -> list[Any]:
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
        ]

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
        if len(left) > _FORGET_ABOVE:
            oldest = int(self.now) - _FORGET_AFTER
            for old in [name for name, memory in left.items() if not _left_at(memory) >= oldest]:
                del left[old]

    def _sweep(self, horizon: float, by: str, history: int) -> int:
        ring = self.ring
        expired = sorted(
            (member for member, score in ring.members.items() if score < horizon),
            key=lambda member: (ring.members[member], member),
        )
        if not expired:
            return 0
        points: dict[bytes, list[int]] = {}
        since = None
        for member in expired:
            node = _node_of(member)
            if node is not None:
                points.setdefault(node, []).append(int(member.partition(b":")[0]))
                since = since or f"{ring.members[member]:.6f}"
            del ring.members[member]
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
            ring.full.discard(node)
        body: dict[str, Any] = {"kind": "expire", "reason": "expired", "since": since}
        if gone:
            body["nodes"] = [node.decode() for node in gone]
        self._announce(body, -len(expired), by, history)
        return len(expired)


def _node_of(member: bytes) -> bytes | None:
    try:
        return parse_replica(member).node.encode()
    except ReplicaFormatError:
        return None


def _left_at(memory: bytes) -> float:
    """When a name's points were remembered; 0 for what was not written here."""
    try:
        return float(json.loads(memory)["at"])
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
        return 0.0


def _unserved(told: str | bytes) -> int:
    try:
        info = json.loads(told)
    except (ValueError, RecursionError):
        return 0
    count = info.get("unserved") if isinstance(info, dict) else None
    if isinstance(count, bool) or not isinstance(count, int | float):
        return 0
    return int(count) if 0 < count < 2**53 else 0
