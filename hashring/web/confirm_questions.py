"""What is asked before something is done, with what would move."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from flask import abort
from werkzeug.datastructures import MultiDict
from werkzeug.exceptions import NotFound

from hashring.core.groups.group_plan import Foresight
from hashring.core.ring_plan import RingPlan
from hashring.web.order_plans import OrderPlans, RingOrder, weight_of
from hashring.web.page_templates import Templates, shown
from hashring.web.request_parameters import ring_of
from hashring.web.service import Service

Given = MultiDict[str, str]


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
        self._orders = OrderPlans(service)
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
        order = self._orders.drain(ring, node)
        found = self._about_node(
            given,
            f"Drain {shown(node)} of the ring {shown(ring)}?",
            "It runs on and owns nothing. Its keys go to the other nodes at once; with locks, each "
            "key once its holder has let go of it.",
        )
        if order.after is None:
            return replace(_foreseen(found, order), lasting=True)
        return replace(found, plan=order.plan, lasting=True, force=order.note)

    def _undrain(self, given: Given) -> Question:
        ring, node = _of(given, "ring"), _of(given, "node")
        order = self._orders.undrain(ring, node)
        found = self._about_node(
            given,
            f"Let {shown(node)} own keys of the ring {shown(ring)} again?",
            "It joins with its next heartbeat.",
        )
        return _foreseen(found, order)

    def _weight(self, given: Given) -> Question:
        ring, node, text = _of(given, "ring"), _of(given, "node"), given.get("weight")
        asked = f"Give {shown(node)} of the ring {shown(ring)} "
        if text is None:
            self._orders.weight(ring, node, None)  # there is such a node
            found = self._about_node(given, f"{asked}another weight?", "")
            return replace(found, weight="", ready=False)
        weight = weight_of(text)
        order = self._orders.weight(ring, node, weight)
        comes = "It adds points to its own, or gives some of them up, with its next heartbeat."
        found = self._about_node(given, f"{asked}{_in_words(weight)}?", comes)
        return replace(_foreseen(found, order), weight=text)

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

    def _about_member(self, given: Given, title: str, text: str) -> Question:
        group, member = _of(given, "group"), _of(given, "member")
        back = self._link("/group", name=group)
        return Question(title, text, {"group": group, "member": member}, back, back)

    def _group_drain(self, given: Given) -> Question:
        group, member = _of(given, "group"), _of(given, "member")
        order = self._orders.group_drain(group, member)
        found = self._about_member(
            given,
            f"Drain {shown(member)} of the group {shown(group)}?",
            "It runs on, hands over what it has within the group's budget of handoffs, and gets "
            "nothing new.",
        )
        return replace(found, plan=order.plan, lasting=True, force=order.note)

    def _group_undrain(self, given: Given) -> Question:
        group, member = _of(given, "group"), _of(given, "member")
        order = self._orders.group_undrain(group, member)
        asked = f"Let {shown(member)} have partitions of the group {shown(group)} again?"
        return replace(self._about_member(given, asked, ""), plan=order.plan, unforeseen=order.note)

    def _group_weight(self, given: Given) -> Question:
        group, member, text = _of(given, "group"), _of(given, "member"), given.get("weight")
        weight = weight_of(text or "")
        order = self._orders.group_weight(group, member, weight)
        asked = f"Give {shown(member)} of the group {shown(group)} "
        if text is None:
            found = self._about_member(given, asked + "another weight?", "")
            return replace(found, weight="", ready=False)
        found = self._about_member(given, f"{asked}{_in_words(weight)}?", "")
        return replace(found, plan=order.plan, weight=text)


def _foreseen(question: Question, order: RingOrder) -> Question:
    """The question with what comes of the order, or why nothing does."""
    plan = order.plan if order.after else None
    return replace(question, plan=plan, unforeseen=order.note)


def _in_words(weight: float | None) -> str:
    return "its own weight again" if weight is None else f"the weight {weight:g}"


def _of(given: Given, name: str) -> str:
    value = given.get(name)
    if not value:
        abort(400, f"say which {name}: {name}=…")
    return value
