"""What is asked before something is done, with what would move."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from flask import abort
from werkzeug.datastructures import MultiDict
from werkzeug.exceptions import NotFound

from hashring.core.groups import orders
from hashring.core.groups.foresight import Foresight
from hashring.core.groups.kernel import StepOutcome
from hashring.core.groups.state import GroupState
from hashring.core.planning import RingPlan, ring_plan
from hashring.errors import ConfigError, UnknownMemberError, UnknownNodeError
from hashring.store.ring.commands import Snapshot, snapshot
from hashring.store.ring.nodes import known_nodes, undrained_ring, weighed_ring
from hashring.store.ring.orders import checked_weight
from hashring.web.formatting import shown
from hashring.web.live_pages import Templates
from hashring.web.parameters import group_of, ring_of
from hashring.web.plans import group_ordered
from hashring.web.ring_view import RingView
from hashring.web.service import Service

Given = MultiDict[str, str]

_PLANNING: Final = "plan"  # who gives the orders that are only planned


@dataclass(frozen=True)
class Question:
    """What is asked before something is done.

    Attributes:
        title: the question.
        text: what comes of it.
        fields: what the form sends, besides what it asks for.
        back: where the visitor goes after, whatever the answer.
        events: the page with the history that the deed is in.
        plan: computes what would move, which is costly; ``None`` when there is nothing to foresee.
            Raises ConfigError when it cannot be computed.
        unforeseen: why there is no plan, where one is expected.
        lasting: whether it is asked how long the order stands.
        force: what the visitor must accept; empty for nothing.
        weight: the weight that it is about, as typed, empty for a member's own; ``None`` when it
            is about none.
        ready: whether it can be answered; otherwise a weight must be given first.
    """

    title: str
    text: str
    fields: dict[str, str]
    back: str
    events: str
    plan: Callable[[], RingPlan | Foresight] | None = None
    unforeseen: str = ""
    lasting: bool = False
    force: str = ""
    weight: str | None = None
    ready: bool = True


class Questions:
    """Asks about everything that can be done.

    Args:
        service: what it would be done to.
        templates: where pages are.
    """

    def __init__(self, service: Service, templates: Templates) -> None:
        self._service = service
        self._link = templates.link
        self._asked: dict[str, Callable[[Given], Question]] = {
            "remove": self._remove,
            "forget": self._forget,
            "release": self._release,
            "rebalance": self._rebalance,
            "drain": self._drain,
            "undrain": self._undrain,
            "weight": self._weight,
            "group-drain": self._group_drain,
            "group-undrain": self._group_undrain,
            "group-weight": self._group_weight,
        }

    def ask(self, what: str, given: Given) -> Question:
        """The question before something is done.

        Raises:
            NotFound: nothing of that name can be done, or to that ring or group.
            HTTPException, HashringError: what is given cannot be.
        """
        if what not in self._asked:
            raise NotFound("nothing of that name can be done")
        return self._asked[what](given)

    # --- rings --------------------------------------------------------------------------------

    def _about_node(self, given: Given, title: str, text: str) -> Question:
        ring, node = _of(given, "ring"), _of(given, "node")
        back = self._link("/ring", name=ring)
        return Question(title, text, {"ring": ring, "node": node}, back, back)

    def _looked(self, given: Given) -> tuple[str, str, RingView, Snapshot]:
        """The ring, the node, the ring as shown, and what Redis has about the node now.

        Raises:
            UnknownNodeError: there is no such node, and none of that name was there within a day.
        """
        ring, node = _of(given, "ring"), _of(given, "node")
        watcher, view = ring_of(self._service, ring)
        look = snapshot(watcher.keys, scoring=self._service.scoring, remembered=node)
        seen = self._service.store.run(look)
        if not seen.remembered:
            _check_known(view, node)
        return ring, node, view, seen

    def _remove(self, given: Given) -> Question:
        ring, node = _of(given, "ring"), _of(given, "node")
        _, view = ring_of(self._service, ring)
        known = view.by_name.get(node)
        text = "The others take over at once."
        if known is not None and not known.facts.expired:
            text += " It has not expired: if its process lives, it comes back by itself."
        return self._about_node(given, f"Take {shown(node)} off the ring {shown(ring)}?", text)

    def _drain(self, given: Given) -> Question:
        ring, node = _of(given, "ring"), _of(given, "node")
        _, view = ring_of(self._service, ring)
        _check_known(view, node)
        found = self._about_node(
            given,
            f"Drain {shown(node)} of the ring {shown(ring)}?",
            "It runs on and owns nothing. Its keys go to the other nodes at once; with locks, each "
            "key once its holder has let go of it.",
        )
        force = ""
        if not set(view.ring.nodes) - {node}:
            force = "No other node is left: every key of the ring would be unserved."

        def plan() -> RingPlan:
            return ring_plan(view.ring, view.ring.without_nodes(node))

        return replace(found, plan=plan, lasting=True, force=force)

    def _undrain(self, given: Given) -> Question:
        ring, node, view, seen = self._looked(given)
        found = self._about_node(
            given,
            f"Let {shown(node)} own keys of the ring {shown(ring)} again?",
            "It joins with its next heartbeat.",
        )
        if node not in seen.drained:
            why = "It does not run, so nothing moves until it joins."
            if node not in seen.drains:
                why = "No order to drain it stands, so nothing moves."
            return replace(found, unforeseen=why)

        def plan() -> RingPlan:
            return ring_plan(view.ring, undrained_ring(seen, view.ring, node))

        return replace(found, plan=plan)

    def _weight(self, given: Given) -> Question:
        ring, node, view, seen = self._looked(given)
        text = given.get("weight")
        asked = f"Give {shown(node)} of the ring {shown(ring)} "
        if text is None:
            found = self._about_node(given, f"{asked}another weight?", "")
            return replace(found, weight="", ready=False)
        weight = weight_of(text)
        if weight is not None:
            checked_weight(weight)

        def plan() -> RingPlan:
            return ring_plan(view.ring, weighed_ring(seen, view.ring, {node: weight}))

        comes = "It adds points to its own, or gives some of them up, with its next heartbeat."
        found = self._about_node(given, f"{asked}{_in_words(weight)}?", comes)
        return replace(found, plan=plan, weight=text)

    def _forget(self, given: Given) -> Question:
        ring = _of(given, "ring")
        ring_of(self._service, ring)
        text = (
            "Do so if it was stopped for good: no service shows it any more and no alert fires for "
            "it, until a node joins it. Its history stays in Redis."
        )
        title, events = f"Forget the ring {shown(ring)}?", self._link("/ring", name=ring)
        return Question(title, text, {"ring": ring}, self._link("/"), events)

    def _release(self, given: Given) -> Question:
        ring, key, token = _of(given, "ring"), _of(given, "key"), _of(given, "token")
        text = (
            "If its process lives, it loses the lease at its next heartbeat, and may write until "
            "then: only writes that carry the fencing token are safe from it."
        )
        back = self._link("/ring", name=ring, key=key)
        fields = {"ring": ring, "key": key, "token": token}
        title = f"Take the lock of {shown(key)} away from its holder?"
        return Question(title, text, fields, back, self._link("/ring", name=ring))

    # --- groups -------------------------------------------------------------------------------

    def _rebalance(self, given: Given) -> Question:
        group = _of(given, "group")
        title = f"Let {shown(group)} move partitions now?"
        back = self._link("/group", name=group)
        text = "It does not wait for the rest of its rebalance delay."
        return Question(title, text, {"group": group}, back, back)

    def _about_member(
        self,
        given: Given,
        title: str,
        text: str,
        order: Callable[[GroupState, float], StepOutcome] | None,
    ) -> Question:
        group, member = _of(given, "group"), _of(given, "member")
        _, view = group_of(self._service, group)
        back = self._link("/group", name=group)
        found = Question(title, text, {"group": group, "member": member}, back, back)
        if order is None:
            if member not in view.state.roster:
                raise UnknownMemberError(member, view.state.roster)
            return found
        after = order(view.state, view.now).state
        return replace(found, plan=lambda: group_ordered(view, after))

    def _group_drain(self, given: Given) -> Question:
        member = _of(given, "member")

        def order(state: GroupState, now: float) -> StepOutcome:
            return orders.drain(state, member, now, _PLANNING, force=True)

        found = self._about_member(
            given,
            f"Drain {shown(member)} of the group {shown(_of(given, 'group'))}?",
            "It runs on, hands over what it has within the group's budget of handoffs, and gets "
            "nothing new.",
            order,
        )
        _, view = group_of(self._service, _of(given, "group"))
        force = ""
        try:
            orders.drain(view.state, member, view.now, _PLANNING)
        except ConfigError:
            force = "No other member is left: its partitions stay with it until one joins."
        return replace(found, lasting=True, force=force)

    def _group_undrain(self, given: Given) -> Question:
        member = _of(given, "member")
        return self._about_member(
            given,
            f"Let {shown(member)} have partitions of the group {shown(_of(given, 'group'))} again?",
            "",
            lambda state, now: orders.undrain(state, member, now, _PLANNING),
        )

    def _group_weight(self, given: Given) -> Question:
        member, text = _of(given, "member"), given.get("weight")
        weight = weight_of(text or "")

        def order(state: GroupState, now: float) -> StepOutcome:
            return orders.weigh(state, member, weight, now, _PLANNING)

        asked = f"Give {shown(member)} of the group {shown(_of(given, 'group'))} "
        if text is None:
            found = self._about_member(given, asked + "another weight?", "", None)
            return replace(found, weight="", ready=False)
        return replace(
            self._about_member(given, f"{asked}{_in_words(weight)}?", "", order), weight=text
        )


def weight_of(text: str) -> float | None:
    """The weight that a form has; ``None`` when it is empty.

    Raises:
        ConfigError: it is none.
    """
    if not text:
        return None
    try:
        return float(text)
    except ValueError:
        raise ConfigError("weight", shown(text), "give a number above 0") from None


def _in_words(weight: float | None) -> str:
    return "its own weight again" if weight is None else f"the weight {weight:g}"


def _check_known(view: RingView, node: str) -> None:
    known = known_nodes(view.snapshot)
    if node not in known:
        raise UnknownNodeError(node, view.name, known)


def _of(given: Given, name: str) -> str:
    value = given.get(name)
    if not value:
        abort(400, f"say which {name}: {name}=…")
    return value
