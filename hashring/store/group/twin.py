"""The group's part of the memory twin: a method for each script, with the script's ARGV."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import Any, Final

from hashring.store.memory_stream import Stream
from hashring.store.twin import Twin

# Which generation a member acts on and its loads, and its words; see beat.lua.
_QUIET: Final = re.compile(rb'"seen":\d+|"loads":{[^{}]*}')
_WORDS: Final = {words: re.compile(b'"%b":{[^{}]*}' % words) for words in (b"released", b"drained")}


def _news(before: bytes, after: bytes) -> bool:
    for words, written in _WORDS.items():
        if (none := b'"%b":{}' % words) in after:
            before = written.sub(none, before)
    return _QUIET.sub(b"", before) != _QUIET.sub(b"", after)


@dataclass
class GroupData:
    """What Redis would hold of one group."""

    fields: dict[str, Any] = field(default_factory=dict)
    members: dict[bytes, tuple[str, int, bytes]] = field(default_factory=dict)
    leases: dict[bytes, float] = field(default_factory=dict)
    views: dict[bytes, bytes] = field(default_factory=dict)
    control: Stream = field(default_factory=Stream)


class GroupTwin(Twin):
    """The scripts of a group."""

    def __init__(self, *run: Any) -> None:
        super().__init__(*run)
        self.group = self.keyspace.of(GroupData, self.keys[-1])
        self.server = b"%x" % self.keyspace.run

    def _changed(self) -> None:
        fields = self.group.fields
        fields["changes"] = fields.get("changes", 0) + 1
        fields["due"] = self.now

    def _tag(self) -> bytes:
        return bytes(self.group.fields.get("tag", b""))

    def join(  # noqa: PLR0917 - ARGV of the script, in its order
        self, member: str, session: str, ttl: float, report: str, terms: str, before: str
    ) -> Any:
        data, name = self.group, member.encode()
        known, lease = data.members.get(name), data.leases.get(name, 0.0)
        if known is not None and known[0] not in (session, before) and lease > self.now:
            return [b"taken", b"%.6f" % (lease - self.now)]
        data.fields.setdefault("terms", terms.encode())
        data.fields.setdefault("server", self.server)
        data.fields["joins"] = joined = data.fields.get("joins", 0) + 1
        data.members[name] = (session, joined, report.encode())
        data.leases[name] = self.now + ttl
        data.views.pop(name, None)
        self._changed()
        return [b"ok", self.at(), data.fields["terms"]]

    def beat(  # noqa: PLR0917 - ARGV of the script, in its order
        self,
        member: str,
        session: str,
        ttl: float,
        report: str,
        seen: int,
        known: str,
        claim: float,
        watchers: int,
    ) -> Any:
        data, name = self.group, member.encode()
        record = data.members.get(name)
        if record is None or record[0] != session or data.leases.get(name, 0.0) <= self.now:
            return [b"gone"]
        tag = self._tag()
        if int(tag.partition(b":")[0] or 0) < seen:
            return [b"gone"]
        data.leases[name] = self.now + ttl
        if record[2] != report.encode():
            data.members[name] = (session, record[1], report.encode())
            if _news(record[2], report.encode()):
                self._changed()
        looked = data.fields.get("looked", -math.inf)
        due = data.fields.get("claimed", 0.0) <= self.now and (
            data.fields.get("due", math.inf) <= self.now
            or any(looked < at <= self.now for at in data.leases.values())
        )
        if due:
            data.fields["claimed"] = self.now + claim
        whose, _, own = data.views.get(name, b"").partition(b" ")
        view = own if tag != known.encode() and whose == session.encode() else b""
        phase = data.fields.get("phase", b"Ready")
        return [b"ok", self.at(), tag, phase, int(due), view, self._wait(claim, watchers)]

    def _wait(self, soon: float, watchers: int) -> bytes:
        fields = self.group.fields
        due = fields.get("due", math.inf)
        if not self.now < due < math.inf:
            return b""
        which, count = fields.get("watched", (due, 0))
        count = count if which == due else 0
        if count >= watchers and due - self.now >= soon:
            return b""
        fields["watched"] = (due, count + 1)
        return b"%.6f" % (due - self.now)

    def leave(self, member: str, session: str) -> int:
        data, name = self.group, member.encode()
        record = data.members.get(name)
        if record is None or session not in ("", record[0]):
            return 0
        del data.members[name]
        data.leases.pop(name, None)
        data.views.pop(name, None)
        self._changed()
        return 1

    def read(self, known: str) -> Any:
        data = self.group
        reports = [
            part
            for name, (session, joined, report) in data.members.items()
            for part in (name, b"%b %d %b" % (session.encode(), joined, report))
        ]
        leases = [part for name, at in data.leases.items() for part in (name, b"%.6f" % at)]
        return [
            self.at(),
            self._tag(),
            data.fields.get("state", b"") if self._tag() != known.encode() else b"",
            b"%d" % data.fields.get("changes", 0),
            data.fields.get("terms", b""),
            reports,
            leases,
            data.fields.get("server", b""),
            self.server,
        ]

    def commit(  # noqa: PLR0917 - ARGV of the script, in its order
        self,
        base: str,
        generation: int | str,
        state: str,
        phase: str,
        due: str,
        changes: int,
        events: str,
        by: str,
        history: int,
        terms: str,
        claim: float,
        looked: str,
        read_from: str,
        server: str,
        views: int,
        dismissed: int,
        watchers: str,
        *rest: str,
    ) -> Any:
        data, fields = self.group, self.group.fields
        if self._tag() != base.encode() or self.server != read_from.encode():
            return [b"conflict"]
        if generation != "":
            tag = b"%d:%b" % (int(generation), self.at())
            fields.update(tag=tag, state=state.encode(), phase=phase.encode())
            fields["server"] = server.encode()
            if terms:
                fields["terms"] = terms.encode()
            for i in range(0, 2 * views, 2):
                data.views[rest[i].encode()] = rest[i + 1].encode()
            told = 2 * (views + dismissed)
            for i in range(2 * views, len(rest), 2):
                self._forget(rest[i].encode(), rest[i + 1], dismissed=i < told)
            decision = {
                b"generation": b"%d" % int(generation),
                b"phase": phase.encode(),
                b"by": by.encode(),
                b"events": events.encode(),
            }
            data.control.add(self.now, decision, history)
            concerned = [*rest[:told:2], *watchers.split("\n")]
            self.publish(
                self.keys[-1], b"\n".join([tag, *(name.encode() for name in concerned if name)])
            )
        fields["looked"] = float(looked)
        at = self.now if fields.get("changes", 0) != changes else float(due) if due else None
        again = at is not None and at <= self.now
        fields.pop("claimed", None)
        if again and claim:
            fields["claimed"] = self.now + claim
        fields.pop("due", None)
        if at is not None:
            fields["due"] = at
        return [b"ok", self.at(), int(again)]

    def _forget(self, name: bytes, session: str, *, dismissed: bool) -> None:
        data = self.group
        record = data.members.get(name)
        same = record is not None and record[0] == session
        if same and (dismissed or data.leases.get(name, 0.0) <= self.now):
            del data.members[name]
            data.leases.pop(name, None)
        if record is None or same:
            data.views.pop(name, None)
