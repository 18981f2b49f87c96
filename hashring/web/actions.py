"""What can be done to rings and groups. Each deed leaves an event."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from werkzeug.exceptions import NotFound

from hashring.core.groups import member_orders, next_decision
from hashring.core.groups.state import GroupState
from hashring.core.hashing import key_bytes
from hashring.core.order_terms import checked_by
from hashring.errors import UnknownNodeError
from hashring.protocol.flow import run_flow
from hashring.protocol.group_flows import change
from hashring.store.command import Command
from hashring.store.group.commands import group_keys
from hashring.store.locks.commands import check_locked_key, look, take_away
from hashring.store.ring.commands import FORGET, LeaveStatus, forget, leave
from hashring.store.ring.node_orders import OrderStatus, check_order, drain, undrain, weigh
from hashring.store.ring.ring_after_orders import known_nodes
from hashring.store.ring.ring_events import newest
from hashring.web import api_types as api
from hashring.web.page_templates import day, shown
from hashring.web.request_parameters import group_of, ring_of
from hashring.web.service import Service
from hashring.web.watchers import RingWatcher

_ASKED: Final[Mapping[str, type[api.Answer]]] = {
    "remove": api.RemoveAsked,
    "forget": api.ForgetAsked,
    "release": api.ReleaseAsked,
    "rebalance": api.RebalanceAsked,
    "drain": api.DrainAsked,
    "undrain": api.UndrainAsked,
    "weight": api.WeightAsked,
    "group-drain": api.GroupDrainAsked,
    "group-undrain": api.GroupUndrainAsked,
    "group-weight": api.GroupWeightAsked,
}
ACTIONS: Final = tuple(_ASKED)
"""The names of what can be done, in addresses."""

_RECENT: Final = 100  # events among which that of a deed is looked for


@dataclass(frozen=True)
class Deed:
    """What was done.

    Attributes:
        text: in words.
        event: the id of the history's entry about it; empty when there is none. A group's
            decisions have numbers.
    """

    text: str
    event: str = ""


class Actions:
    """Does what was asked, and says what was done.

    Args:
        service: what it is done to.
    """

    def __init__(self, service: Service) -> None:
        self._service = service
        self._do: dict[type[api.Answer], Callable[[Any, str], Deed]] = {
            api.RemoveAsked: self._remove,
            api.ForgetAsked: self._forget,
            api.ReleaseAsked: self._release,
            api.RebalanceAsked: self._rebalance,
            api.DrainAsked: self._drain,
            api.UndrainAsked: self._undrain,
            api.WeightAsked: self._weight,
            api.GroupDrainAsked: self._group_drain,
            api.GroupUndrainAsked: self._group_undrain,
            api.GroupWeightAsked: self._group_weight,
        }

    def asked(self, what: str) -> type[api.Answer]:
        """What must be given to do what has this name.

        Raises:
            NotFound: nothing has.
        """
        if what not in _ASKED:
            raise NotFound(f"nothing of the name {shown(what)!r} can be done")
        return _ASKED[what]

    def do(self, asked: Any, address: str) -> Deed:
        """Do it, and say what was done.

        Args:
            asked: one of the types of :meth:`asked`.
            address: where the request came from, for the history.

        Raises:
            HashringError: it was not done.
        """
        who = f"{checked_by(asked.by)} (hashring serve, from {address})"
        return self._do[type(asked)](asked, who)

    def _remove(self, asked: api.RemoveAsked, by: str) -> Deed:
        ring, node = asked.ring, asked.node
        watcher, _ = ring_of(self._service, ring)
        view = watcher.look()
        replicas = view.snapshot.replicas_of(node)
        if not replicas and node not in view.snapshot.nodes:
            raise UnknownNodeError(node, ring, sorted(view.by_name))
        status = self._service.store.run(
            leave(watcher.keys, node=node, replicas=replicas, reason="removed", by=by)
        )
        if status is LeaveStatus.OK or not replicas:
            text = f"{shown(node)} was taken off the ring {shown(ring)}."
            return Deed(text, self._event(watcher, "leave", by))
        return Deed(f"{shown(node)} was gone from the ring {shown(ring)} already.")

    def _forget(self, asked: api.ForgetAsked, by: str) -> Deed:
        watcher, _ = ring_of(self._service, asked.ring)
        command = forget(watcher.keys, scoring=self._service.scoring, by=by)
        if self._service.store.run(command):
            text = f"The ring {shown(asked.ring)} was forgotten. It is back once a node joins it."
            return Deed(text, self._event(watcher, FORGET, by))
        return Deed(f"The ring {shown(asked.ring)} was not forgotten: it has nodes.")

    def _drain(self, asked: api.DrainAsked, by: str) -> Deed:
        ring, node = asked.ring, asked.node
        watcher, _ = ring_of(self._service, ring)
        command = drain(
            watcher.keys,
            node=node,
            by=by,
            seconds=asked.seconds,
            force=asked.force,
            lag=self._service.scoring.lag,
        )
        self._ordered(watcher, node, command)
        order = watcher.look().drains.get(node)
        until = "" if order is None or order.until is None else f" until {day(order.until)} UTC"
        text = f"{shown(node)} of the ring {shown(ring)} is to drain{until}."
        return Deed(text, self._event(watcher, "drain", by))

    def _undrain(self, asked: api.UndrainAsked, by: str) -> Deed:
        ring, node = asked.ring, asked.node
        watcher, _ = ring_of(self._service, ring)
        if not self._ordered(watcher, node, undrain(watcher.keys, node=node, by=by)):
            return Deed(f"{shown(node)} of the ring {shown(ring)} was not drained.")
        text = f"{shown(node)} is to be on the ring {shown(ring)} again."
        return Deed(text, self._event(watcher, "undrain", by))

    def _weight(self, asked: api.WeightAsked, by: str) -> Deed:
        ring, node, weight = asked.ring, asked.node, asked.weight
        watcher, _ = ring_of(self._service, ring)
        reply = self._service.store.run(weigh(watcher.keys, weights={node: weight}, by=by))
        if reply.unknown is not None:
            raise UnknownNodeError(node, ring, known_nodes(watcher.look().snapshot))
        what = "its own weight" if weight is None else f"the weight {weight:g}"
        if not reply.changed:
            return Deed(f"{shown(node)} of the ring {shown(ring)} has {what} already.")
        text = f"{shown(node)} of the ring {shown(ring)} is to have {what}."
        return Deed(text, self._event(watcher, "weight", by))

    def _ordered(self, watcher: RingWatcher, node: str, command: Command[OrderStatus]) -> bool:
        status = self._service.store.run(command)
        names = known_nodes(watcher.look().snapshot) if status is OrderStatus.UNKNOWN else ()
        return check_order(status, node, watcher.name, names)

    def _event(self, watcher: RingWatcher, kind: str, by: str) -> str:
        events = newest(self._service.store, watcher.keys.events, _RECENT)
        return next((e.id for e in reversed(events) if (e.kind, e.by) == (kind, by)), "")

    def _release(self, asked: api.ReleaseAsked, by: str) -> Deed:
        key, token = asked.key, int(asked.token)
        watcher, _ = ring_of(self._service, asked.ring)
        data = check_locked_key(key_bytes(key))
        released = self._service.store.run(take_away(watcher.keys, key=data, by=by, token=token))
        if released:
            text = f"The lock of {shown(key)} was released."
            return Deed(text, self._event(watcher, "release", by))
        held = self._service.store.run(look(watcher.keys, locked=[data])).get(data)
        now = "nobody holds it now" if held is None else f"{shown(held.node)} holds it now"
        return Deed(f"The lock of {shown(key)} was not released: the token was not {token}; {now}.")

    def _rebalance(self, asked: api.RebalanceAsked, by: str) -> Deed:
        state, _ = self._decided(
            asked.group, by, lambda state, now: next_decision.hasten(state, now, by)
        )
        return Deed(f"{shown(asked.group)} was asked to rebalance.", str(state.generation))

    def _group_drain(self, asked: api.GroupDrainAsked, by: str) -> Deed:
        member = asked.member

        def order(state: GroupState, now: float) -> next_decision.StepOutcome:
            return member_orders.drain(
                state, member, now, by, seconds=asked.seconds, force=asked.force
            )

        state, _ = self._decided(asked.group, by, order)
        found = state.orders[member]
        until = "" if found.until is None else f" until {day(found.until)} UTC"
        text = f"{shown(member)} is to hand over what it has{until}."
        return Deed(text, str(state.generation))

    def _group_undrain(self, asked: api.GroupUndrainAsked, by: str) -> Deed:
        member = asked.member
        state, done = self._decided(
            asked.group, by, lambda state, now: member_orders.undrain(state, member, now, by)
        )
        if not done:
            return Deed(f"{shown(member)} was not drained.")
        return Deed(f"{shown(member)} is to have partitions again.", str(state.generation))

    def _group_weight(self, asked: api.GroupWeightAsked, by: str) -> Deed:
        member, weight = asked.member, asked.weight
        state, done = self._decided(
            asked.group, by, lambda state, now: member_orders.weigh(state, member, weight, now, by)
        )
        what = "its own weight" if weight is None else f"the weight {weight:g}"
        if not done:
            return Deed(f"{shown(member)} has {what} already.")
        return Deed(f"{shown(member)} is to have {what}.", str(state.generation))

    def _decided(
        self, group: str, by: str, decide: Callable[[GroupState, float], next_decision.StepOutcome]
    ) -> tuple[GroupState, bool]:
        """What stands after a decision about a group, and whether it changed anything."""
        group_of(self._service, group)
        changed = False

        def noted(state: GroupState, now: float) -> next_decision.StepOutcome:
            nonlocal changed
            outcome = decide(state, now)
            changed = outcome.state is not state
            return outcome

        state = run_flow(self._service.store.run, change(group, group_keys(group), by, noted))
        return state, changed
