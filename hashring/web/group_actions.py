"""What can be done to a group and its members: the question, the plan and the deed."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar

from hashring.core.groups import group_orders, member_orders
from hashring.core.groups.group_foresight import GroupForesight
from hashring.core.groups.next_state import StepOutcome
from hashring.core.groups.state import GroupState
from hashring.protocol.flow import run_flow
from hashring.protocol.group.group_flows import change, forget
from hashring.store.group.key_names import group_keys
from hashring.store.group.reading import read
from hashring.web import api_types as api
from hashring.web.api_queries import MemberQuery, MemberWeightQuery
from hashring.web.base_action import (
    NO_DRAIN,
    A,
    Action,
    Deed,
    PlannedAction,
    Question,
    weight_in_words,
)
from hashring.web.change_plans import PLANNING, group_ordered
from hashring.web.group_view import GroupView
from hashring.web.group_watcher import GroupWatcher
from hashring.web.page_templates import day, shown
from hashring.web.parameter_kinds import Given
from hashring.web.request_checks import group_of, text_of

Q = TypeVar("Q", bound=MemberQuery)


class GroupAction(Action[A]):
    """Something that can be done to a group."""

    def _decided(
        self, group: str, by: str, decide: Callable[[GroupState, float], StepOutcome]
    ) -> StepOutcome:
        """Decide something about a group; what was decided, and stands."""
        group_of(self._service, group)
        return run_flow(self._service.store.run, change(group, group_keys(group), by, decide))


class RebalanceGroup(GroupAction[api.RebalanceAsked]):
    """Let a group move partitions without the rest of its delay."""

    asked = api.RebalanceAsked
    about = "Let a group move partitions without the rest of its rebalance delay."
    words = "let {group} move partitions now"

    def question(self, given: Given) -> Question:
        """Ask, with what it does not wait for."""
        group = text_of(given, "group")
        return self._ask({"group": group}, "It does not wait for the rest of its rebalance delay.")

    def _do(self, asked: api.RebalanceAsked, by: str) -> Deed:
        state = self._decided(
            asked.group, by, lambda state, now: group_orders.hasten(state, now, by)
        ).state
        return Deed(f"{shown(asked.group)} was asked to rebalance.", str(state.generation))


class ForgetGroup(GroupAction[api.GroupForgetAsked]):
    """Show a group without members no more."""

    asked = api.GroupForgetAsked
    about = (
        "Note that a group without members was stopped for good: it is not shown any more, until "
        "a member joins it."
    )
    words = "forget the group {group}"

    def question(self, given: Given) -> Question:
        """Ask, if there is such a group."""
        group = text_of(given, "group")
        group_of(self._service, group)
        text = (
            "Do so if it was stopped for good: no service shows it any more and no alert fires for "
            "it, until a member joins it. Its history, settings and fencing tokens stay in Redis."
        )
        return replace(self._ask({"group": group}, text), back=self._link("/"))

    def _do(self, asked: api.GroupForgetAsked, by: str) -> Deed:
        group = asked.group
        group_of(self._service, group)
        state = run_flow(self._service.store.run, forget(group, group_keys(group), by))
        text = f"The group {shown(group)} was forgotten. It is back once a member joins it."
        return Deed(text, str(state.generation))


# --- orders about members ---------------------------------------------------------------------


@dataclass(frozen=True)
class GroupOrder:
    """An order about a member, not given yet.

    Attributes:
        watcher, view: the group.
        state: the group's, with the order.
        note: as in :class:`hashring.web.ring_actions.RingOrder`.
    """

    watcher: GroupWatcher
    view: GroupView
    state: GroupState
    note: str = ""

    def plan(self) -> GroupForesight:
        """What it would do; see :func:`hashring.web.change_plans.group_ordered`."""
        return group_ordered(self.view, self.state)


class PlannedGroupAction(GroupAction[A], PlannedAction[A, Q]):
    """An order about a member, whose plan can be shown."""

    @abstractmethod
    def order(self, asked: Q) -> GroupOrder:
        """The order, not given yet."""

    def _ordered(self, group: str, order: Callable[[GroupState, float], StepOutcome]) -> GroupOrder:
        watcher, view = group_of(self._service, group)
        # As Redis has it now: what was asked is compared with this before it is done.
        reading = self._service.store.run(read(watcher.keys))
        state = reading.standing()
        if state is not None:
            view = GroupView(group, reading, state, view.decisions)
        return GroupOrder(watcher, view, order(view.state, view.now).state)


class DrainMember(PlannedGroupAction[api.GroupDrainAsked, MemberQuery]):
    """Let a member hand over what it has, and give it nothing new."""

    asked = api.GroupDrainAsked
    planned = MemberQuery
    about = "Order a member to hand over what it has, and give it nothing new."
    plan_about = "What would move if a member were drained."
    words = "drain {member} of the group {group}"
    comes = (
        "It runs on, hands over what it has within the group's budget of handoffs, and gets "
        "nothing new."
    )
    lasting = True

    def order(self, asked: MemberQuery) -> GroupOrder:
        """To drain a member."""
        group, member = asked.group, asked.member
        found = self._ordered(
            group,
            lambda state, now: member_orders.drain(state, member, now, PLANNING, force=True),
        )
        if member_orders.is_last(found.view.state, member, found.view.now):
            note = "No other member is left: drained ones keep the partitions until one joins."
            return replace(found, note=note)
        return found

    def _do(self, asked: api.GroupDrainAsked, by: str) -> Deed:
        member = asked.member

        def ordered(state: GroupState, now: float) -> StepOutcome:
            return member_orders.drain(
                state, member, now, by, seconds=asked.seconds, force=asked.force
            )

        state = self._decided(asked.group, by, ordered).state
        found = state.orders[member]
        until = "" if found.until is None else f" until {day(found.until)} UTC"
        text = f"{shown(member)} is to hand over what it has{until}."
        return Deed(text, str(state.generation))


class UndrainMember(PlannedGroupAction[api.GroupUndrainAsked, MemberQuery]):
    """Let a drained member have partitions again."""

    asked = api.GroupUndrainAsked
    planned = MemberQuery
    about = "Let a drained member have partitions again."
    plan_about = "What would move if a drained member were to have partitions again."
    words = "let {member} have partitions of the group {group} again"

    def order(self, asked: MemberQuery) -> GroupOrder:
        """To drain a member no more."""
        group, member = asked.group, asked.member
        found = self._ordered(
            group, lambda state, now: member_orders.undrain(state, member, now, PLANNING)
        )
        if found.state is found.view.state:
            return replace(found, note=NO_DRAIN)
        return found

    def _do(self, asked: api.GroupUndrainAsked, by: str) -> Deed:
        member = asked.member
        outcome = self._decided(
            asked.group, by, lambda state, now: member_orders.undrain(state, member, now, by)
        )
        if not outcome.events:
            return Deed(f"{shown(member)} was not drained.")
        return Deed(f"{shown(member)} is to have partitions again.", str(outcome.state.generation))


class WeighMember(PlannedGroupAction[api.GroupWeightAsked, MemberWeightQuery]):
    """Give a member another weight."""

    asked = api.GroupWeightAsked
    planned = MemberWeightQuery
    about = "Give a member another weight."
    plan_about = "What would move if a member had another weight."
    words = "give {member} of the group {group} another weight"

    def order(self, asked: MemberWeightQuery) -> GroupOrder:
        """To give a member another weight; its own, if none is given."""
        group, member, weight = asked.group, asked.member, asked.weight
        return self._ordered(
            group, lambda state, now: member_orders.weigh(state, member, weight, now, PLANNING)
        )

    def _do(self, asked: api.GroupWeightAsked, by: str) -> Deed:
        member, weight = asked.member, asked.weight
        outcome = self._decided(
            asked.group, by, lambda state, now: member_orders.weigh(state, member, weight, now, by)
        )
        what = weight_in_words(weight)
        if not outcome.events:
            return Deed(f"{shown(member)} has {what} already.")
        return Deed(f"{shown(member)} is to have {what}.", str(outcome.state.generation))
