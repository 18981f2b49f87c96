"""What can be done to a ring, its nodes and its locks: the question, the plan and the deed."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from hashring.core.hashing import key_bytes
from hashring.core.order_checks import checked_ordered_weight
from hashring.core.ring import Ring
from hashring.core.ring_plan import RingPlan, ring_plan
from hashring.errors import RingNotEmpty, StoreError, UnknownNodeError
from hashring.store.command import Command
from hashring.store.locks.commands import check_locked_key, look, take_away
from hashring.store.ring.commands import FORGET, LeaveStatus, forget, leave
from hashring.store.ring.node_orders import (
    OrderStatus,
    drain,
    order_took_effect,
    undrain,
    weigh,
)
from hashring.store.ring.ring_after_orders import (
    drained_ring,
    known_nodes,
    undrained_ring,
    weighed_ring,
)
from hashring.store.ring.ring_events import newest
from hashring.store.ring.snapshot import Snapshot, snapshot
from hashring.web import api_types as api
from hashring.web.api_queries import NodeQuery, NodeWeightQuery
from hashring.web.base_action import (
    NO_DRAIN,
    A,
    Action,
    Deed,
    PlannedAction,
    Question,
    weight_in_words,
)
from hashring.web.page_templates import day, shown
from hashring.web.parameter_kinds import Given
from hashring.web.request_checks import ring_of, text_of
from hashring.web.ring_view import RingView
from hashring.web.ring_watcher import RingWatcher

_RECENT: Final = 100  # events among which that of a deed is looked for
_LAST: Final = "No other node is left: every key of the ring would be unserved."
_NOT_ON_RING: Final = "It is not on the ring, so nothing moves until it joins."
_NOT_RUNNING: Final = "It does not run, so nothing moves until it joins."
_NOT_OBEYED: Final = "It has not obeyed the order to drain yet, so nothing moves."

Q = TypeVar("Q", bound=NodeQuery)


class RingAction(Action[A]):
    """Something that can be done to a ring."""

    def _read(self, watcher: RingWatcher) -> Snapshot:
        """The ring as it is in Redis now. The watcher's own reading is its thread's alone."""
        return self._service.store.run(snapshot(watcher.keys, scoring=watcher.scoring))

    def _seen(self, ring: str, node: str) -> tuple[RingWatcher, RingView]:
        """A ring as Redis has it now, with what it remembers of a node.

        What was asked is compared with this before it is done: the watcher's view may be older.
        """
        watcher, view = ring_of(self._service, ring)
        command = snapshot(watcher.keys, scoring=watcher.scoring, remembered=node)
        seen = self._service.store.run(command)
        return watcher, RingView(ring, seen, view.events, watcher.scoring, view)

    def _event(self, watcher: RingWatcher, kind: str, by: str) -> str:
        """The id of the event about what was done; empty if it cannot be found."""
        try:
            events = newest(self._service.store, watcher.keys, _RECENT)
        except StoreError:
            return ""  # what was done stays done
        return next((e.id for e in reversed(events) if (e.kind, e.by) == (kind, by)), "")


class RemoveNode(RingAction[api.RemoveAsked]):
    """Take a node off a ring."""

    asked = api.RemoveAsked
    about = "Take a node off a ring."
    words = "take {node} off the ring {ring}"

    def question(self, given: Given) -> Question:
        """Ask, with a warning if the node has not expired."""
        ring, node = text_of(given, "ring"), text_of(given, "node")
        _, view = self._seen(ring, node)
        _check_known(view, node)
        known = view.by_name.get(node)
        text = "The others take over at once."
        if known is not None and not known.facts.expired:
            text += " It has not expired: if its process lives, it comes back by itself."
        return self._ask({"ring": ring, "node": node}, text)

    def _do(self, asked: api.RemoveAsked, by: str) -> Deed:
        ring, node = asked.ring, asked.node
        watcher, _ = ring_of(self._service, ring)
        seen = self._read(watcher)
        replicas = seen.replicas_of(node)
        if not replicas and node not in seen.nodes:
            raise UnknownNodeError(
                node, ring, sorted({r.replica.node for r in seen.replicas} | set(seen.nodes))
            )
        status = self._service.store.run(
            leave(watcher.keys, node=node, replicas=replicas, reason="removed", by=by)
        )
        if status is LeaveStatus.OK or not replicas:
            text = f"{shown(node)} was taken off the ring {shown(ring)}."
            return Deed(text, self._event(watcher, "leave", by))
        return Deed(f"{shown(node)} was gone from the ring {shown(ring)} already.")


class ForgetRing(RingAction[api.ForgetAsked]):
    """Show a ring without nodes no more."""

    asked = api.ForgetAsked
    about = (
        "Note that a ring without nodes was stopped for good: it is not shown any more, until a "
        "node joins it."
    )
    words = "forget the ring {ring}"

    def question(self, given: Given) -> Question:
        """Ask, if there is such a ring."""
        ring = text_of(given, "ring")
        ring_of(self._service, ring)
        text = (
            "Do so if it was stopped for good: no service shows it any more and no alert fires for "
            "it, until a node joins it. Its history stays in Redis."
        )
        return replace(self._ask({"ring": ring}, text), back=self._link("/"))

    def _do(self, asked: api.ForgetAsked, by: str) -> Deed:
        watcher, _ = ring_of(self._service, asked.ring)
        command = forget(watcher.keys, scoring=watcher.scoring, by=by)
        if not self._service.store.run(command):
            raise RingNotEmpty(asked.ring, self._read(watcher).live_nodes)
        text = f"The ring {shown(asked.ring)} was forgotten. It is back once a node joins it."
        return Deed(text, self._event(watcher, FORGET, by))


class ReleaseLock(RingAction[api.ReleaseAsked]):
    """Take a lock away from its holder."""

    asked = api.ReleaseAsked
    about = "Take a lock away from its holder."
    words = "release the lock of {key}"

    def question(self, given: Given) -> Question:
        """Ask, with what its holder may still do."""
        ring, key, token = text_of(given, "ring"), text_of(given, "key"), text_of(given, "token")
        text = (
            "If its process lives, it loses the lease at its next heartbeat, and may write until "
            "then: only writes that carry the fencing token are safe from it."
        )
        fields = {"ring": ring, "key": key, "token": token}
        found = self._ask(fields, text, f"Take the lock of {shown(key)} away from its holder?")
        return replace(found, back=self._link("/ring", name=ring, key=key))

    def _do(self, asked: api.ReleaseAsked, by: str) -> Deed:
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


# --- orders about nodes -----------------------------------------------------------------------


@dataclass(frozen=True)
class RingOrder:
    """An order about a node, not given yet.

    Attributes:
        watcher, view: the ring.
        after: computes the ring once the order is obeyed, which is costly, and whether all its
            points are known; ``None`` when nothing moves.
        note: why nothing moves, or what must be accepted; else empty.
    """

    watcher: RingWatcher
    view: RingView
    after: Callable[[], tuple[Ring, bool | None]] | None
    note: str = ""

    @property
    def plan(self) -> Callable[[], RingPlan] | None:
        """Computes what it would do; see :class:`hashring.web.base_action.Question`."""
        return self._plan if self.after else None

    def _plan(self) -> RingPlan:
        after, exact = self.ring_after()
        return ring_plan(self.view.ring, after, exact=exact)

    def ring_after(self) -> tuple[Ring, bool | None]:
        """The ring then; see ``after``. ``None`` when the points themselves show it."""
        return self.after() if self.after else (self.view.ring, None)


class PlannedRingAction(RingAction[A], PlannedAction[A, Q]):
    """An order about a node, whose plan can be shown."""

    @abstractmethod
    def order(self, asked: Q) -> RingOrder:
        """The order, not given yet."""

    def _looked(self, ring: str, node: str) -> tuple[RingWatcher, RingView]:
        """The ring as Redis has it now.

        Raises:
            UnknownNodeError: there is no such node, and none of that name was there within a day.
        """
        watcher, view = self._seen(ring, node)
        if not view.snapshot.remembered:
            _check_known(view, node)
        return watcher, view

    def _obeyed(self, watcher: RingWatcher, node: str, command: Command[OrderStatus]) -> bool:
        status = self._service.store.run(command)
        names = known_nodes(self._read(watcher)) if status is OrderStatus.UNKNOWN else ()
        return order_took_effect(status, node, watcher.name, names)


class DrainNode(PlannedRingAction[api.DrainAsked, NodeQuery]):
    """Let a node run on and own nothing."""

    asked = api.DrainAsked
    planned = NodeQuery
    about = "Order a node to run on and own nothing."
    plan_about = "What would move if a node were drained. What nobody would own moves to null."
    words = "drain {node} of the ring {ring}"
    comes = (
        "It runs on and owns nothing. Its keys go to the other nodes at once; with locks, each "
        "key once its holder has let go of it."
    )
    lasting = True

    def order(self, asked: NodeQuery) -> RingOrder:
        """To drain a node."""
        ring, node = asked.ring, asked.node
        watcher, view = self._looked(ring, node)
        after = drained_ring(view.snapshot, view.ring, node)
        if after.node_count and node not in view.ring:
            return RingOrder(watcher, view, None, _NOT_ON_RING)
        return RingOrder(watcher, view, lambda: (after, None), "" if after.node_count else _LAST)

    def _do(self, asked: api.DrainAsked, by: str) -> Deed:
        ring, node = asked.ring, asked.node
        watcher, _ = ring_of(self._service, ring)
        command = drain(
            watcher.keys,
            node=node,
            by=by,
            seconds=asked.seconds,
            force=asked.force,
            lag=watcher.scoring.lag,
        )
        self._obeyed(watcher, node, command)
        text = f"{shown(node)} of the ring {shown(ring)} is to drain{self._until(watcher, node)}."
        return Deed(text, self._event(watcher, "drain", by))

    def _until(self, watcher: RingWatcher, node: str) -> str:
        """Until when the order that was given stands, in words; empty if that is not known."""
        try:
            order = self._read(watcher).standing_drains.get(node)
        except StoreError:
            return ""  # what was done stays done
        return "" if order is None or order.until is None else f" until {day(order.until)} UTC"


class UndrainNode(PlannedRingAction[api.UndrainAsked, NodeQuery]):
    """Let a drained node own keys again."""

    asked = api.UndrainAsked
    planned = NodeQuery
    about = "Let a drained node own keys again."
    plan_about = "What would move if a drained node were to own keys again."
    words = "let {node} own keys of the ring {ring} again"
    comes = "It joins with its next heartbeat."

    def order(self, asked: NodeQuery) -> RingOrder:
        """To drain a node no more."""
        ring, node = asked.ring, asked.node
        watcher, view = self._looked(ring, node)
        seen = view.snapshot
        if node not in seen.drained:
            note = NO_DRAIN
            if node in seen.drains:
                live = any(r.replica.node == node and not r.expired for r in seen.replicas)
                note = _NOT_OBEYED if live else _NOT_RUNNING
            return RingOrder(watcher, view, None, note)
        return RingOrder(watcher, view, lambda: undrained_ring(seen, view.ring, node))

    def _do(self, asked: api.UndrainAsked, by: str) -> Deed:
        ring, node = asked.ring, asked.node
        watcher, _ = ring_of(self._service, ring)
        if not self._obeyed(watcher, node, undrain(watcher.keys, node=node, by=by)):
            return Deed(f"{shown(node)} of the ring {shown(ring)} was not drained.")
        text = f"{shown(node)} is to be on the ring {shown(ring)} again."
        return Deed(text, self._event(watcher, "undrain", by))


class WeighNode(PlannedRingAction[api.WeightAsked, NodeWeightQuery]):
    """Give a node another weight."""

    asked = api.WeightAsked
    planned = NodeWeightQuery
    about = "Give a node another weight."
    plan_about = "What would move if a node had another weight."
    words = "give {node} of the ring {ring} another weight"
    comes = "It adds points to its own, or gives some of them up, with its next heartbeat."

    def order(self, asked: NodeWeightQuery) -> RingOrder:
        """To give a node another weight; its own, if none is given."""
        ring, node, weight = asked.ring, asked.node, asked.weight
        if weight is not None:
            checked_ordered_weight(weight)
        watcher, view = self._looked(ring, node)
        if node not in view.ring:
            return RingOrder(watcher, view, None, _NOT_ON_RING)
        weights = {node: weight}
        return RingOrder(
            watcher, view, lambda: (weighed_ring(view.snapshot, view.ring, weights), None)
        )

    def _do(self, asked: api.WeightAsked, by: str) -> Deed:
        ring, node, weight = asked.ring, asked.node, asked.weight
        watcher, _ = ring_of(self._service, ring)
        reply = self._service.store.run(weigh(watcher.keys, weights={node: weight}, by=by))
        if reply.unknown is not None:
            raise UnknownNodeError(node, ring, known_nodes(self._read(watcher)))
        what = weight_in_words(weight)
        if not reply.changed:
            return Deed(f"{shown(node)} of the ring {shown(ring)} has {what} already.")
        text = f"{shown(node)} of the ring {shown(ring)} is to have {what}."
        return Deed(text, self._event(watcher, "weight", by))


def _check_known(view: RingView, node: str) -> None:
    known = known_nodes(view.snapshot)
    if node not in known:
        raise UnknownNodeError(node, view.name, known)
