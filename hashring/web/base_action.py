"""What every action is made of: the question before it, and the deed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final, Generic, Protocol, TypeVar

from hashring.core.groups.group_foresight import GroupForesight
from hashring.core.order_checks import checked_by
from hashring.core.ring_plan import RingPlan
from hashring.errors import RedisUnavailable
from hashring.web import api_types as api
from hashring.web.api_queries import MemberQuery, NodeQuery
from hashring.web.page_templates import shown
from hashring.web.parameter_kinds import Given, read_query
from hashring.web.service import Service

A = TypeVar("A", bound=api.ActionAsked)
Q = TypeVar("Q", bound=NodeQuery | MemberQuery)

NO_DRAIN: Final = "No order to drain it stands, so nothing moves."
"""Why lifting an order would move nothing."""
_ANOTHER: Final = "another weight?"
"""What the question ends with that asks for a weight."""


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
        weight: the weight that it is about, as the form sends it, empty for a node's or member's
            own; ``None`` when it is about none.
        ready: whether it can be answered; otherwise a weight must be given first.
    """

    title: str
    text: str
    fields: dict[str, str]
    back: str
    events: str
    plan: Callable[[], RingPlan | GroupForesight] | None = None
    unforeseen: str = ""
    lasting: bool = False
    force: str = ""
    weight: str | None = None
    ready: bool = True


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


class Action(ABC, Generic[A]):
    """Something that can be done to a ring or a group.

    Attributes:
        asked: what must be given to do it.
        about: what it does, for the API's description.
        words: what the visitor wants, from what is given; the question says the same.

    Args:
        service: what it is done to.
        link: the address of a page from its path and its query.
    """

    asked: type[A]
    about: str
    words: str

    def __init__(self, service: Service, link: Callable[..., str]) -> None:
        self._service = service
        self._link = link

    @abstractmethod
    def question(self, given: Given) -> Question:
        """What is asked before it is done.

        Raises:
            HTTPException, HashringError: what is given cannot be.
        """

    def _ask(self, fields: dict[str, str], text: str, title: str = "") -> Question:
        """A question.

        Args:
            fields: what the form sends. The first names the ring or the group.
            title: asks instead of the action's words.
        """
        kind, name = next(iter(fields.items()))
        page = self._link(f"/{kind}", name=name)
        words = self.words.format(**{field: shown(value) for field, value in fields.items()})
        return Question(title or f"{words[0].upper()}{words[1:]}?", text, fields, page, page)

    def do(self, asked: A, address: str) -> Deed:
        """Do it, and say what was done.

        Args:
            address: where the request came from, for the history.

        Raises:
            RedisUnavailable: nobody knows whether it was done; or it was not tried, because Redis
                has not responded for some time.
            HashringError: it was not done.
        """
        by = f"{checked_by(asked.by)} (hashring serve, from {address})"
        self._service.check_responds()
        try:
            return self._do(asked, by)
        except RedisUnavailable as error:
            raise RedisUnavailable(
                f"{error}. It may have been done all the same: look at the history before you do "
                "it again"
            ) from error

    @abstractmethod
    def _do(self, asked: A, by: str) -> Deed:
        """Do it; the history shows by whom."""


class ForeseenOrder(Protocol):
    """An order about a node or a member, not given yet."""

    @property
    def plan(self) -> Callable[[], RingPlan | GroupForesight] | None:
        """What it would do; see :class:`Question`."""

    @property
    def note(self) -> str:
        """Why nothing moves, or what must be accepted; else empty."""


class PlannedAction(Action[A], Generic[A, Q]):
    """An order about a node or a member, whose plan can be shown.

    Attributes:
        planned: what must be given to plan it.
        plan_about: what the plan shows, for the API's description.
        comes: what comes of it, for the question.
        lasting: whether it is asked how long the order stands, and to accept what is noted.
    """

    planned: type[Q]
    plan_about: str
    comes: str = ""
    lasting: bool = False

    @abstractmethod
    def order(self, asked: Q) -> ForeseenOrder:
        """The order, not given yet.

        Raises:
            HTTPException, HashringError: what is wrong with it, as giving it does.
        """

    def question(self, given: Given) -> Question:
        """Ask, with what would move; for a weight first, if it is about one."""
        wanted = read_query(self.planned, given)
        order = self.order(wanted)
        fields: dict[str, Any] = {**vars(wanted)}
        weighs, weight = "weight" in fields, fields.pop("weight", None)
        found = self._ask(fields, self.comes)
        if weighs and "weight" not in given:
            return replace(found, text="", weight="", ready=False)
        if weighs:
            again = " again" if weight is None else ""
            title = f"{found.title.removesuffix(_ANOTHER)}{weight_in_words(weight)}{again}?"
            # What was typed may be a number to Python alone, as +2.
            typed = "" if weight is None else repr(weight).removesuffix(".0")
            found = replace(found, title=title, weight=typed)
        note, accepted = order.note, ""
        if self.lasting and order.plan is not None:
            note, accepted = "", order.note
        return replace(
            found, plan=order.plan, unforeseen=note, lasting=self.lasting, force=accepted
        )


def weight_in_words(weight: float | None) -> str:
    """A weight that an order gives; ``None`` for its own."""
    return "its own weight" if weight is None else f"the weight {weight:g}"
