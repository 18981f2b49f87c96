"""What a member of a lease challenge asks of Redis; without I/O.

What it has seen of the table, by which it knows that Redis has lost it:

{TABLE_SIGHT}

After ``start()`` that is what it was at the last stop: Redis may lose the table in between, while
others still hold partitions. A member also remembers when the table was begun. So it notices a loss
after which others have begun another one.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Final

from hashring.core.groups import lease_challenge
from hashring.core.groups.lease_challenge import LeaseChallengeRules, LeaseTable, PartitionLease
from hashring.core.groups.state import GroupPhase, MemberView
from hashring.core.state_table import StateTable, with_tables
from hashring.errors import GroupMismatch, StoreError, WriteConflict
from hashring.protocol.flow import Flow, committed
from hashring.protocol.group.base_member_machine import BaseMemberMachine
from hashring.store.lease_challenge.commands import (
    ChallengeKeys,
    TableReading,
    begin_table,
    read_table,
    write_table,
)

_ONE_FOR_ALL: Final = "give all members the same; to change it, stop all of them first"


class TableSight(str, Enum):
    """What a member has seen of the table."""

    NONE = "none"
    SEEN = "seen"
    INSIDE = "inside"


class TableEvent(str, Enum):
    """What changes what a member has seen of the table."""

    ENTERS = "enters"
    FOUND = "table read"
    WRITTEN = "renewed"


_S, _E = TableSight, TableEvent

TABLE_SIGHT: Final = StateTable(
    {
        _S.NONE: "has never read a table",
        _S.SEEN: "there was a table",
        _S.INSIDE: "there was one with this member in it",
    },
    {
        _S.NONE: {_E.ENTERS: _S.NONE, _E.FOUND: _S.SEEN, _E.WRITTEN: _S.INSIDE},
        _S.SEEN: {_E.ENTERS: _S.SEEN, _E.FOUND: _S.SEEN, _E.WRITTEN: _S.INSIDE},
        _S.INSIDE: {_E.ENTERS: _S.SEEN, _E.FOUND: _S.INSIDE, _E.WRITTEN: _S.INSIDE},
    },
)

__doc__ = with_tables(__doc__, TABLE_SIGHT=TABLE_SIGHT)


class LeaseChallengeMachine(BaseMemberMachine):
    """A member of a lease challenge: see :mod:`hashring.core.groups.lease_challenge`.

    Args:
        group, keys: the challenge's name, and its keys.
        member: the member's name.
        partitions: how many; the same for all members.
        rules: the time spans; ``ttl`` is the same for all members.
        new_suffix: tells this process from others of its name; a different text each time.
        chance: a number ``0 <= x < 1``, another one each time.

    Attributes:
        sight: what it has seen of the table.
    """

    def __init__(
        self,
        group: str,
        keys: ChallengeKeys,
        member: str,
        *,
        partitions: int,
        rules: LeaseChallengeRules,
        new_suffix: Callable[[], str],
        chance: Callable[[], float],
    ) -> None:
        super().__init__(
            member,
            channels=(keys.told,),
            ttl=rules.ttl,
            interval=rules.interval,
            grace=rules.max_handoff_time,
        )
        self.partitions = partitions
        self._group = group
        self._keys = keys
        self._rules = rules
        self._new_suffix = new_suffix
        self._chance = chance
        self._what = f"lease challenge {group!r}"
        self._me = ""
        self.sight = TableSight.NONE
        self._begun: float | None = None
        self._may_have_written = False

    def enter(self) -> Flow[None]:
        """Renew for the first time."""
        # Two processes of one name are two members: each holds its own leases.
        self._me = f"{self.member}#{self._new_suffix()}"
        self._see(TableEvent.ENTERS)
        self._may_have_written = False
        try:
            yield from self.renew()
        except StoreError:
            if self._may_have_written:
                with contextlib.suppress(StoreError):
                    yield from self.depart()
            raise

    def renew(self) -> Flow[float]:
        """Renew, let go, take and ask, in one step of the table."""
        now, asked_at, after = yield from committed(self._what, self._renewal)
        self._see(TableEvent.WRITTEN)
        held = after.held(self._me, now)
        revoked = {p: x.expires for p, x in held.items() if x.wanted_by is not None}
        view = MemberView(
            1, GroupPhase.READY, {p: x.token for p, x in held.items()}, revoked, seated=True
        )
        self.heard(view, asked_at, now)
        return self.interval

    def _see(self, event: TableEvent) -> None:
        self.sight = TABLE_SIGHT.after(self.sight, event)

    def _renewal(self) -> Flow[tuple[float, float, LeaseTable] | None]:
        """Redis time of the reading, before it was sent, and the table as it was written."""
        # Before the reading is sent: leases count from its Redis time.
        claims = self.holdings.held(self.now)
        reading = yield read_table(self._keys)
        if not reading.tag:
            # A write that is based on nothing could still be done after the next loss.
            yield begin_table(self._keys)
            return None
        asked_at = self.sent
        table = self._table(reading)
        lost_by = self._lost_by(reading)
        if reading.elsewhere:
            table = LeaseTable(self.partitions, token=table.token, ttl=table.ttl)
        if lost_by is not None:
            table = lease_challenge.recover(
                table,
                self._me,
                reading.now,
                self._rules,
                claims,
                newest=self.holdings.newest_token,
                lost_by=lost_by,
            )
        if reading.table is not None:
            if self.sight is TableSight.NONE:
                self._begun = reading.begun
            self._see(TableEvent.FOUND)
        released = [
            p
            for p, token in self.holdings.words().released.items()
            if (lease := table.leases.get(p)) is not None and lease.token == token
        ]
        after = lease_challenge.beat(table, self._me, reading.now, self._rules, released)
        names = self._concerned(reading.table, after)
        # It may be done though no answer comes, and later than that is noticed.
        self._may_have_written = True
        self._may_have_written = yield write_table(self._keys, reading, after, names)
        if not self._may_have_written:
            return None
        # Not before: a loss counts until this member has written what it knows of it.
        self._begun = reading.begun
        return reading.now, asked_at, after

    def _lost_by(self, reading: TableReading) -> float | None:
        """Redis time by which data was lost, as far as this member knows; ``None`` for no loss."""
        # A restarted Redis, or another server in its place, may lack the last writes: then members
        # say what they hold, as if the table was lost.
        if reading.elsewhere:
            return reading.now
        if self.sight is TableSight.NONE:
            return None
        if reading.table is None:
            return reading.now
        if reading.begun != self._begun:
            begun, before = reading.begun, self._begun
            if begun is None or (before is not None and begun < before):
                return reading.now
            # All leases in the lost table were granted before this one was begun.
            return min(begun, reading.now)
        # A member whose own lease has ended was dropped without any loss.
        dropped = self.now >= self.holdings.holding.lease_until
        if self.sight is not TableSight.INSIDE or self._me in reading.table.members or dropped:
            return None
        # Members that are there have noticed the loss, and wait for its leases to end.
        return -math.inf if reading.table.members else reading.now

    def again_after(self, error: Exception) -> float:
        """Seconds after which a renewal that failed is tried again."""
        pause = super().again_after(error)
        # Members that stood in each other's way are not to meet again.
        return pause * self._chance() if isinstance(error, WriteConflict) else pause

    def _table(self, reading: TableReading) -> LeaseTable:
        found, ttl = reading.table, self._rules.ttl
        if found is None:
            return LeaseTable(self.partitions)
        if (other := found.other_count(self.partitions, reading.now)) is not None:
            raise GroupMismatch(
                self._group, "partitions", self.partitions, other, remedy=_ONE_FOR_ALL
            )
        if (other_ttl := found.other_ttl(ttl, reading.now)) is not None:
            raise GroupMismatch(self._group, "ttl", ttl, other_ttl, remedy=_ONE_FOR_ALL)
        return found.counting(self.partitions)

    def _concerned(self, before: LeaseTable | None, after: LeaseTable) -> set[str]:
        """Whom a change of the table is about, but for this member."""
        old: Mapping[int, PartitionLease] = {} if before is None else before.leases
        names: set[str | None] = set()
        for partition, lease in after.leases.items():
            was = old.get(partition)
            if was is None or (was.owner, was.wanted_by) != (lease.owner, lease.wanted_by):
                names |= {lease.wanted_by, lease.owner, None if was is None else was.owner}
        return {name for name in names if name is not None and name != self._me}

    def depart(self) -> Flow[None]:
        """Take this member out of the table."""
        yield from committed(self._what, self._departure)

    def _departure(self) -> Flow[bool | None]:
        reading = yield read_table(self._keys)
        if not reading.tag:
            return True
        # A new tag in any case: then a write still on its way comes too late.
        if reading.table is None or reading.elsewhere:
            # An older table is left for the others, who have to see that it is one.
            return (yield begin_table(self._keys)) or None
        after = lease_challenge.leave(reading.table, self._me, reading.now)
        names = after.members if self._me in reading.table.members else ()
        return (yield write_table(self._keys, reading, after, names)) or None

    def concerns(self, channel: bytes, payload: bytes) -> bool:
        """Whether a change of the table is about this member."""
        return self._me in payload.decode("utf-8", "replace").split("\n")
