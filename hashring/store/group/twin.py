"""The group's part of the memory twin: a method for each script, with the script's ARGV."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import Any, Final

from hashring.store.twin_keyspace import Twin
from hashring.store.twin_stream import Stream

# Which generation a member acts on and its loads, and its words; see beat.lua.
_QUIET: Final = re.compile(rb'"seen":\d+|"loads":{[^{}]*}')
# See _head.lua and commit.lua.
_KEPT: Final = 512
_ROOM: Final = 2048
_MANY: Final = 256
# See leave.lua.
_ASKED: Final = 4
_PART: Final = re.compile(rb"([0-9a-f]+) (\S+)(.*)", re.DOTALL)
_WORDS: Final = {words: re.compile(b'"%b":{[^{}]*}' % words) for words in (b"released", b"drained")}


def _news(before: bytes, after: bytes) -> bool:
    for words, written in _WORDS.items():
        if (none := b'"%b":{}' % words) in after:
            before = written.sub(none, before)
    return _QUIET.sub(b"", before) != _QUIET.sub(b"", after)


def _slot(tag: bytes) -> int:
    number = tag.partition(b":")[0]
    return int(number) % _KEPT if number.isdigit() else 0


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

    def _send(self, member: bytes, message: bytes) -> int:
        return self.publish(self.keys[-1].removesuffix(b"control") + b"to:" + member, message)

    def _claim(self) -> tuple[float, bytes]:
        claim: tuple[float, bytes] = self.group.fields.get("claimed", (0.0, b""))
        return claim

    def _takes(self, member: bytes, seconds: float, *, fresh: bool) -> bool:
        data = self.group
        before, _ = self._claim()
        if before > self.now:
            return False
        session, last = data.fields.get("decider", ("", b""))
        theirs = fresh and before == 0.0 and last != member and self._ask(last, session)
        data.fields["claimed"] = self.now + seconds, last if theirs else member
        return not theirs

    def _ask(self, member: bytes, session: str | None = None) -> bool:
        record = self.group.members.get(member)
        return (
            record is not None
            and session in (None, record[0])
            and self.group.leases.get(member, 0.0) > self.now
            and self._send(member, b"step") > 0
        )

    def _tag(self) -> bytes:
        return bytes(self.group.fields.get("tag", b""))

    def join(  # noqa: PLR0917 - ARGV of the script, in its order
        self,
        member: str,
        session: str,
        ttl: float,
        report: str,
        terms: str,
        before: str,
        claim: float,
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
        due = self._takes(name, claim, fresh=True)
        return [b"ok", self.at(), data.fields["terms"], int(due)]

    def terms(self) -> Any:
        return self.group.fields.get("terms", b"")

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
        decided: str,
    ) -> Any:
        data, name = self.group, member.encode()
        record = data.members.get(name)
        if record is None or record[0] != session or data.leases.get(name, 0.0) <= self.now:
            return [b"gone"]
        tag = self._tag()
        if int(tag.partition(b":")[0] or 0) < seen:
            return [b"gone"]
        data.leases[name] = self.now + ttl
        told = _news(record[2], report.encode())
        if record[2] != report.encode():
            data.members[name] = (session, record[1], report.encode())
        if told:
            self._changed()
        looked = data.fields.get("looked", -math.inf)
        due = (
            self._claim()[0] <= self.now
            and (
                data.fields.get("due", math.inf) <= self.now
                or any(looked < at <= self.now for at in data.leases.values())
            )
            and self._takes(name, claim, fresh=told)
        )
        turn = 1 if due else 2 if told else 0
        last, news = self._news_of(name, session, known.encode())
        phase = data.fields.get("phase", b"Ready")
        names = self._changed_since(decided.encode()) if due and decided else None
        reading = None if names is None else self._reading(names)
        wait = self._wait(claim, watchers)
        return [b"ok", self.at(), tag, phase, turn, last, news, wait, reading]

    def _part(self, name: bytes) -> tuple[bytes, bytes, bytes]:
        found = _PART.fullmatch(self.group.views.get(name, b""))
        return (found[1], found[2], found[3]) if found else (b"", b"?", b"")

    def _news_of(self, name: bytes, session: str, known: bytes) -> tuple[bytes, bytes | None]:
        whose, since, changes = self._part(name)
        if whose != session.encode():
            return b"-", b""
        last = changes.rpartition(b"\n")[2].partition(b" ")[0] or since
        if since == known:
            return last, changes
        line = changes.find(b"\n%b " % known)
        if line < 0:
            return last, None
        after = changes.find(b"\n", line + 1)
        return last, b"" if after < 0 else changes[after:]

    def _write_part(self, name: bytes, session: bytes, fresh: int, change: bytes) -> None:
        whose, since, changes = self._part(name)
        if fresh or whose != session:
            since, changes = b"-" if fresh else b"?", b""
        while len(changes) > _ROOM:
            first, newline, rest = changes[1:].partition(b"\n")
            since, changes = first.partition(b" ")[0], newline + rest
        self.group.views[name] = b"%b %b%b\n%b" % (session, since, changes, change)

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

    def leave(self, member: str, session: str, claim: float) -> int:
        data, name = self.group, member.encode()
        record = data.members.get(name)
        if record is None or session not in ("", record[0]):
            return 0
        del data.members[name]
        data.leases.pop(name, None)
        data.views.pop(name, None)
        self._changed()
        return 1 if self._others_take_it(name, claim) else 2

    def _others_take_it(self, name: bytes, seconds: float) -> bool:
        data = self.group
        till, claimant = self._claim()
        if till > self.now and claimant != name:
            return True
        session, last = data.fields.get("decider", ("", b""))
        newest = sorted(data.leases, key=lambda other: (data.leases[other], other), reverse=True)
        asked = [(last, session), *((other, None) for other in newest[:_ASKED])]
        for other, whose in asked:
            if other != claimant and self._ask(other, whose):
                data.fields["claimed"] = self.now + seconds, other
                return True
        data.fields.pop("claimed", None)
        return False

    def read(self, known: str) -> Any:
        return self._reading(self._changed_since(known.encode()) if known else None)

    def _reading(self, names: list[bytes] | None) -> Any:
        data = self.group
        state: dict[bytes, bytes] = data.fields.get("state", {})
        written = state if names is None else names
        reports = [
            part
            for name, (session, joined, report) in data.members.items()
            for part in (name, b"%b %d %b" % (session.encode(), joined, report))
        ]
        leases = [part for name, at in data.leases.items() for part in (name, b"%.6f" % at)]
        return [
            self.at(),
            self._tag(),
            int(names is None),
            [part for name in written for part in (b"=" + name, state.get(name, b""))],
            b"%d" % data.fields.get("changes", 0),
            data.fields.get("terms", b""),
            reports,
            leases,
            data.fields.get("server", b""),
            self.server,
        ]

    def _changed_since(self, wanted: bytes) -> list[bytes] | None:
        decisions: dict[int, tuple[bytes, bytes, list[bytes] | None]]
        decisions = self.group.fields.get("decisions", {})
        found: dict[bytes, None] = {}
        at = self._tag()
        for _ in range(_KEPT):
            if at == wanted:
                return [*found]
            this, before, names = decisions.get(_slot(at), (b"", b"", None))
            if this != at or names is None:
                return None
            found |= dict.fromkeys(names)
            at = before
        return None

    def commit(  # noqa: PLR0917 - ARGV of the script, in its order
        self,
        base: str,
        generation: int | str,
        state: int,
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
        *rest: Any,
    ) -> Any:
        data, fields = self.group, self.group.fields
        if self._tag() != base.encode() or self.server != read_from.encode():
            till, member = self._claim()
            return [b"conflict", int(till > self.now and member != by.encode())]
        if generation != "":
            before, tag = self._tag(), b"%d:%b" % (int(generation), self.at())
            fields.update(tag=tag, phase=phase.encode(), server=server.encode())
            if terms:
                fields["terms"] = terms.encode()
            given: list[Any] = [each.encode() if isinstance(each, str) else each for each in rest]
            texts, given = given[: 2 * state], given[2 * state :]
            self._write(before, dict(zip(texts[::2], texts[1::2], strict=True)))
            for i in range(0, 4 * views, 4):
                name, session, fresh, change = given[i : i + 4]
                self._write_part(name, session, fresh, b"%b %b" % (tag, change))
            told = 2 * dismissed
            members = given[4 * views :]
            for i in range(0, len(members), 2):
                self._forget(members[i], members[i + 1].decode(), dismissed=i < told)
            decision = {
                b"generation": b"%d" % int(generation),
                b"phase": phase.encode(),
                b"by": by.encode(),
                b"events": events.encode(),
            }
            data.control.add(self.now, decision, history)
            self.publish(self.keys[-1], tag)
            own = by.encode() if claim else None
            concerned = [name for name in given[: 4 * views : 4] if name != own]
            for name in (*concerned, *members[:told:2], *watchers.encode().split()):
                self._send(name, tag)
        fields["looked"] = float(looked)
        at = self.now if fields.get("changes", 0) != changes else float(due) if due else None
        again = at is not None and at <= self.now
        fields.pop("claimed", None)
        record = data.members.get(by.encode())
        if claim and record is not None:
            fields["decider"] = record[0], by.encode()
        if again and claim:
            fields["claimed"] = self.now + claim, by.encode()
        fields.pop("due", None)
        if at is not None:
            fields["due"] = at
        return [b"ok", self.at(), int(again)]

    def _write(self, before: bytes, texts: dict[bytes, bytes]) -> None:
        """Write fields of the state, and which ones this decision changed."""
        state = self.group.fields.setdefault("state", {})
        for name, text in texts.items():
            if text:
                state[name] = text
            else:
                state.pop(name, None)
        names = None if len(texts) > _MANY else [*texts]
        decisions = self.group.fields.setdefault("decisions", {})
        decisions[_slot(self._tag())] = (self._tag(), before or b"-", names)

    def _forget(self, name: bytes, session: str, *, dismissed: bool) -> None:
        data = self.group
        record = data.members.get(name)
        same = record is not None and record[0] == session
        if same and (dismissed or data.leases.get(name, 0.0) <= self.now):
            del data.members[name]
            data.leases.pop(name, None)
        if record is None or same:
            data.views.pop(name, None)
