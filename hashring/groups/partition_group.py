"""A member of a partition group, for threads and greenlets."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import TypeVar

from hashring.core.assignors import GroupMember
from hashring.core.groups.group_foresight import GroupForesight
from hashring.core.groups.group_status import GroupStatus
from hashring.groups.base_partition_group import BasePartitionGroup
from hashring.groups.sync_member import SyncMember
from hashring.protocol.flow import Flow, run_flow
from hashring.store.interface import Store

T = TypeVar("T")


class PartitionGroup(BasePartitionGroup, SyncMember):
    """A group of members that share numbered partitions, one owner each.

    ::

        group = PartitionGroup(redis, "orders", partitions=64, on_assigned=begin, on_revoked=end)
        with group:                         # or start(), or gevent_start()
            ...

    Args:
        redis: a sync client of redis-py or valkey-py. The group takes from it where Redis is,
            and makes connections of its own. In tests, a :class:`hashring.testing.MemoryStore`.
        name: the group's name.
        partitions: how many; ``None`` to take what the group has.
        assignor: who should own what: ``"balanced"``, ``"contiguous"``, ``"learner"``,
            ``"load"``, ``"ring"``, or an assignor of your own.
        member: this member's name, unique in the group; made up unless given.
        weight: its share relative to the others', from 0.001 to 1000.
        ttl: seconds its lease lasts without renewal; at least three heartbeats, and 0.1 s.
        heartbeat_interval: seconds between renewals, at least 0.01; a quarter of the ttl unless
            given.
        rebalance_delay: seconds from a change of members until partitions move for it; 0 for at
            once. A restart that takes less moves nothing.
        max_handoff_time: seconds that ``on_revoked`` may take. After them the partition is lost.
        handoffs: how many partitions may be on their way from owner to owner at once.
        leave_timeout: seconds that ``stop(handover=True)`` waits at most for others to take over.
        progress_timeout: seconds without :meth:`tick` after which the member counts as stalled:
            it gets nothing new, and sheds one partition at a time. ``None``: never.
        migrate: change the group's terms to this member's, instead of refusing them.
        on_assigned: called with ``(partition, token)`` when work may begin.
        on_revoked: called with ``(partition, deadline)``, a time of ``time.monotonic()``, when
            work has to end. When it returns, or raises, the partition is let go of. Without it,
            that is at once, or when the callback that runs has returned.
        on_lost: called with ``(partition,)`` when the partition is not held any more and
            ``on_revoked`` was not called or not over: the lease or the deadline has ended. Not for
            one that went before it was the turn of its ``on_assigned``, which is not called then.
        on_warmup: called with ``(partition,)`` when this member should get ready to take over;
            to be answered by :meth:`ready` or :meth:`lag`. A member that has neither this nor a
            loop over :meth:`changes` has nothing to warm up: it is ready at once.
        on_drain: called with ``(partition,)`` when a held partition was removed; to be answered
            by :meth:`drained`.
        access: ``"exclusive"``: one member has all the partitions, and the others stand by;
            ``"non-exclusive"`` unless given.
        on_active: called with ``(True,)`` before the first partition is assigned, and with
            ``(False,)`` when the last is not held any more; see :attr:`active`.

    Callbacks run one at a time in a thread (a greenlet) of their own; what they raise is logged.
    Coroutine functions are for :class:`hashring.AsyncPartitionGroup`.
    After a new ``start()`` they wait for one that has outlasted ``stop()``.

    Raises:
        ConfigError: an argument cannot work.
    """

    _asking: Store | None = None

    def status(self) -> GroupStatus:
        """Where the group stands, for whom it waits, and until when.

        Raises:
            StoreError: it could not be read.
            ConfigError: there is no such group.
        """
        return self._ask(self._status())

    def plan(
        self,
        *,
        join: Iterable[str | GroupMember] = (),
        leave: Iterable[str] = (),
        partitions: int | None = None,
        access: str | None = None,
    ) -> GroupForesight:
        """What would happen if these joined and left and count and access became these.

        It touches nothing.

        Raises:
            StoreError: the group could not be read.
            UnknownMemberError, ConfigError: the plan is none.
            GroupMismatch: the group goes by an assignor that this member does not know.
            AssignorError: the assignor gave a wrong answer.
        """
        return self._ask(self._foresee(join, leave, partitions, access))

    def explain(self) -> GroupForesight:
        """What is happening, and why; touches nothing.

        Raises:
            StoreError: the group could not be read.
        """
        return self.plan()

    def resize(self, partitions: int) -> None:
        """Change the number of partitions of the whole group.

        Raises:
            ConfigError: the count cannot work.
            StoreError: it could not be done.
        """
        self._ask(self._resize(partitions))

    def drain(self, seconds: float | None = None, *, force: bool = False) -> None:
        """Hand over what this member has, and get nothing new until the order is lifted.

        The order stands in the group, and outlasts restarts of a member of this name. Owners
        let go as in any handoff, so no partition has two owners.

        Args:
            seconds: after which the order ends by itself; ``None`` for never.
            force: order it although no other member is left to take anything.

        Raises:
            ConfigError: no other member is left, without ``force``; or the time is none.
            UnknownMemberError: this member is not in the group.
            MemberForked: it has a name of its own, and runs in the parent process.
            StoreError: it could not be done.
        """
        self._ask(self._drain(seconds, force))

    def undrain(self) -> None:
        """Lift the order to drain this member; nothing happens if there is none.

        Raises:
            UnknownMemberError: this member is not in the group, and has no order.
            MemberForked: it has a name of its own, and runs in the parent process.
            StoreError: it could not be done.
        """
        self._ask(self._undrain())

    def weigh(self, weight: float | None) -> None:
        """Give this member another weight than the one it started with.

        It stands in the group until it is changed, and outlasts restarts of a member of this name.

        Args:
            weight: ``None`` for the member's own again.

        Raises:
            ConfigError: it is no number from 0.001 to 1000.
            UnknownMemberError: this member is not in the group, and has no order.
            MemberForked: it has a name of its own, and runs in the parent process.
            StoreError: it could not be done.
        """
        self._ask(self._weigh(weight))

    def _ask(self, flow: Flow[T]) -> T:
        # Another thread, or a signal handler, may close it at any line.
        asking = self._asking
        if asking is None:
            asking = self._asking = self._new_store(self._io_timeout())
        backend = self._backend if self.running else None
        try:
            if backend is None:
                return run_flow(asking.run, flow)
            return run_flow(partial(backend.call_for_user, asking.run), flow)
        finally:
            if backend is None:
                self._close_asking()
            if self._asking is not asking:
                # It was closed meanwhile, but for the connection that was in use.
                asking.close()

    def _close_asking(self) -> None:
        store, self._asking = self._asking, None
        if store is not None:
            store.close()

    def _abandon(self) -> None:
        super()._abandon()
        self._asking = None
