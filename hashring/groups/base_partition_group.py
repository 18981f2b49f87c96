"""What a member of a partition group has, whatever runs the application."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from hashring.core.assignors import AssignFunction, Assignor, GroupMember, as_assignor
from hashring.core.groups import (
    group_foresight,
    group_orders,
    group_status,
    member_orders,
    next_state,
)
from hashring.core.groups.group_foresight import GroupForesight
from hashring.core.groups.group_status import GroupStatus
from hashring.core.groups.reported_loads import check_load
from hashring.core.groups.state import NON_EXCLUSIVE, GroupState, Terms
from hashring.core.value_checks import plain_number
from hashring.errors import ConfigError, NodeStateError
from hashring.groups.base_member import BaseMember, checked_partition, logger, monotonic
from hashring.groups.callbacks import Callbacks, OnActive, OnAssigned, OnPartition, OnRevoked
from hashring.groups.member_stay import Stay
from hashring.protocol.flow import Flow
from hashring.protocol.group.base_member_machine import Stage
from hashring.protocol.group.group_decider import Decided, Decider, OwnDecision
from hashring.protocol.group.group_flows import change, standing
from hashring.protocol.group.group_member_machine import GroupMemberMachine
from hashring.protocol.group.partitions_in_time import why_too_many
from hashring.running.machine_loop import Loop
from hashring.running.threads_and_greenlets import Latch
from hashring.store.group.commands import Brought
from hashring.store.group.key_names import group_keys

T = TypeVar("T")


class BasePartitionGroup(BaseMember):
    """The protocol of a partition group; arguments as for :class:`hashring.PartitionGroup`."""

    def __init__(
        self,
        redis: Any,
        name: str | bytes,
        partitions: int | None = None,
        assignor: str | Assignor | AssignFunction = "balanced",
        *,
        member: str | None = None,
        weight: float = 1.0,
        ttl: float = 10.0,
        heartbeat_interval: float | None = None,
        rebalance_delay: float = 5.0,
        max_handoff_time: float = 3.0,
        handoffs: int = 1,
        leave_timeout: float = 30.0,
        progress_timeout: float | None = None,
        migrate: bool = False,
        on_assigned: OnAssigned | None = None,
        on_revoked: OnRevoked | None = None,
        on_lost: OnPartition | None = None,
        on_warmup: OnPartition | None = None,
        on_drain: OnPartition | None = None,
        access: str = NON_EXCLUSIVE,
        on_active: OnActive | None = None,
    ) -> None:
        self._keys = group_keys(name)
        rule = as_assignor(assignor)
        self._mine = Terms(
            1 if partitions is None else partitions,
            rule.name,
            ttl,
            rebalance_delay,
            max_handoff_time,
            handoffs,
            leave_timeout,
            access,
        )
        self._counted = partitions is not None
        if not isinstance(migrate, bool):
            raise ConfigError("migrate", migrate, "say True or False")
        self._migrate = migrate
        self._rule = rule
        # A weight that is none is refused below, once the member has a name to be called by.
        plain = plain_number(weight)
        self._weight = weight if plain is None else plain
        ttl = self._mine.ttl
        super().__init__(
            redis,
            name,
            member=member,
            ttl=ttl,
            interval=ttl / 4 if heartbeat_interval is None else heartbeat_interval,
            progress_timeout=progress_timeout,
            callbacks=Callbacks(on_assigned, on_revoked, on_lost, on_warmup, on_drain, on_active),
        )
        self._weight = GroupMember(self.member, weight=self._weight).weight

    def _new_machine(self) -> GroupMemberMachine:
        self._deciding: tuple[Loop, Latch] | None = None
        machine = self._group = GroupMemberMachine(
            self.name,
            self._keys,
            self.member,
            weight=self._weight,
            terms=self._mine,
            counted=self._counted,
            migrate=self._migrate,
            interval=self._interval,
            progress_timeout=self._progress_timeout,
            decider=self._new_decider(self._rule),
            ask=self._ask_decider,
            new_session=lambda: secrets.token_hex(8),
            warms_up=self._warms_up,
        )
        return machine

    @property
    def weight(self) -> float:
        """The weight it was made with; ``weigh()`` orders another for it."""
        return self._weight

    @property
    def partitions(self) -> int:
        """How many partitions the group has, as far as this member knows."""
        return self._group.offered.partitions

    def partition_of(self, key: str | bytes) -> int:
        """The partition of a key: its CRC-32 modulo the count.

        Raises:
            KeyTypeError, KeyValueError: the key has no point.
            NodeStateError: the count is the group's, and this member has not read it yet.
        """
        if not self._counted and self._group.offered is self._mine:
            raise NodeStateError(
                f"nobody has told this member of group {self.name!r} how many partitions there "
                "are: give partitions=, or start it first"
            )
        return super().partition_of(key)

    @property
    def error(self) -> Exception | None:
        """What is wrong now with Redis, or with an assignor's answer, if anything."""
        return self._group.error or self._group.undecided

    @property
    def assignor(self) -> str:
        """The name of the group's assignor."""
        return self._group.offered.assignor

    # --- what the application says about a partition -----------------------------------------

    def load(self, partition: int, value: float) -> bool:
        """Report how busy a partition is; whether this member holds it.

        The next renewal takes it along. The last value counts until another is given; after the
        partition has gone, for up to a minute, until its new holder reports one. The assignor
        ``load`` evens loads out; others ignore them.

        Args:
            value: in a unit of yours, the same for all partitions and members: requests a
                second, a lag in messages. Report a mean over a minute or so, not a momentary
                value.

        Raises:
            ConfigError: it is no finite number, or below 0; or ``partition`` is not a whole
                number.
        """
        partition, checked = checked_partition(partition), check_load(value)
        self.tick()
        with self._lock:
            return self._group.load(partition, checked)

    def ready(self, partition: int) -> bool:
        """This member is warm for a partition; whether it was to warm up for it.

        Raises:
            ConfigError: ``partition`` is not a whole number.
        """
        return self.lag(partition, 0.0)

    def lag(self, partition: int, behind: float) -> bool:
        """How far this member is behind on a partition; whether it was to warm up for it.

        Raises:
            ConfigError: ``behind`` is no finite number, 0 or more; or ``partition`` is not a whole
                number.
        """
        partition = checked_partition(partition)
        plain = plain_number(behind)
        if plain is None or plain < 0:
            raise ConfigError("behind", behind, "give a finite number, 0 or more")
        return self._report(lambda: self._group.lag(partition, plain))

    def drained(self, partition: int) -> bool:
        """A removed partition is empty; whether this member was to empty it.

        Raises:
            ConfigError: ``partition`` is not a whole number.
        """
        partition = checked_partition(partition)
        return self._report(lambda: self._group.drained(partition, monotonic()))

    def _warms_up(self) -> bool:
        """Whether any part of the application hears of what to warm up for."""
        return self._callbacks.on_warmup is not None or bool(self._iterators)

    # --- looking ------------------------------------------------------------------------------

    def _status(self) -> Flow[GroupStatus]:
        state, reading = yield from standing(self.name, self._keys)
        return group_status.status(state, reading.facts)

    def _foresee(
        self,
        join: Iterable[str | GroupMember],
        leave: Iterable[str],
        partitions: int | None,
        access: str | None,
    ) -> Flow[GroupForesight]:
        state, reading = yield from standing(self.name, self._keys)
        return group_foresight.foresee(
            state,
            reading.facts,
            # Others may have migrated the group since this member decided last.
            self._group.decider.known_assignor(state.terms.assignor),
            join=join,
            leave=leave,
            partitions=partitions,
            access=access,
        )

    def _warn_of_many(self, partitions: int) -> None:
        if why := why_too_many(partitions, self._group.terms.ttl):
            logger.warning("hashring group %s: %s", self.name, why)

    def _resize(self, partitions: int) -> Flow[None]:
        outcome = yield from change(
            self.name,
            self._keys,
            self.member,
            lambda state, now: group_orders.resize(state, partitions),
        )
        self._warn_of_many(partitions)
        with self._lock:
            self._group.offer(outcome.state.terms, outcome.state.generation)
        self._wake()

    def _drain(self, seconds: float | None, force: bool) -> Flow[None]:
        yield from self._order(
            lambda state, now: member_orders.drain(
                state, self.member, now, self.member, seconds=seconds, force=force
            )
        )

    def _undrain(self) -> Flow[None]:
        yield from self._order(
            lambda state, now: member_orders.undrain(state, self.member, now, self.member)
        )

    def _weigh(self, weight: float | None) -> Flow[None]:
        yield from self._order(
            lambda state, now: member_orders.weigh(state, self.member, weight, now, self.member)
        )

    def _order(self, decide: Callable[[GroupState, float], next_state.StepOutcome]) -> Flow[None]:
        self._refuse_in_child()
        yield from change(self.name, self._keys, self.member, decide)
        self._wake()

    # --- the decider --------------------------------------------------------------------------

    def _new_decider(self, assignor: Assignor) -> Decider:
        decider = Decider(
            self.name,
            self._keys,
            self.member,
            assignor,
            report=lambda decided: self._decided(decider, decided),
            tell=self._own_decision,
        )
        return decider

    def _begin(self, stay: Stay) -> None:
        self._warn_of_many(self.partitions)
        self._group.waits_for_name = stay.waits_for_name
        decider = self._group.decider = self._new_decider(self._group.decider.assignor)
        loop = self._loop(stay, decider, "decider")
        self._deciding = loop, self._thread(stay, loop.run, "decider")

    def _end(self, stay: Stay) -> None:
        if self._deciding is not None:
            loop, ended = self._deciding
            decider, last = self._group.decider, self._group.last_step
            loop.tell(lambda now: decider.end(last=last))
            ended.wait(self._machine.grace)

    def _ask_decider(self, number: int, brought: Brought | None) -> None:
        if self._deciding is not None:
            loop, decider = self._deciding[0], self._group.decider
            loop.tell(lambda now: decider.ask(number, brought))

    def _own_decision(self, own: OwnDecision) -> None:
        stay, machine = self._stay, self._group
        if stay is not None and stay.loop is not None:
            stay.loop.tell(lambda now: machine.own_decision(own, now))

    def _decided(self, decider: Decider, decided: Decided) -> None:
        stay, machine = self._stay, self._group
        if decider is not machine.decider:
            # An assignor of an earlier stay answers late: that says nothing about this one.
            return
        if machine.stage is not Stage.JOINED:
            # Else it is raised where start() was called.
            self._log(decided.error, machine.undecided)
        if stay is not None and stay.loop is not None:
            stay.loop.tell(lambda now: machine.decided(decided))
