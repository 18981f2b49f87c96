"""Everything that can be done to rings and groups, by its name. Each deed leaves an event."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from werkzeug.exceptions import NotFound

from hashring.web.base_action import Action
from hashring.web.group_actions import (
    DrainMember,
    ForgetGroup,
    PlannedGroupAction,
    RebalanceGroup,
    UndrainMember,
    WeighMember,
)
from hashring.web.page_templates import Templates, shown
from hashring.web.ring_actions import (
    DrainNode,
    ForgetRing,
    PlannedRingAction,
    ReleaseLock,
    RemoveNode,
    UndrainNode,
    WeighNode,
)
from hashring.web.service import Service

ACTIONS: Final[Mapping[str, type[Action[Any]]]] = {
    "remove": RemoveNode,
    "drain": DrainNode,
    "undrain": UndrainNode,
    "weight": WeighNode,
    "release": ReleaseLock,
    "forget": ForgetRing,
    "rebalance": RebalanceGroup,
    "group-drain": DrainMember,
    "group-undrain": UndrainMember,
    "group-weight": WeighMember,
    "group-forget": ForgetGroup,
}
"""All actions, by their names in addresses."""


def plan_path(name: str) -> str:
    """Where the API shows what an action would move; empty where it does not."""
    if issubclass(ACTIONS[name], PlannedRingAction):
        return f"/api/plan/{name}"
    if issubclass(ACTIONS[name], PlannedGroupAction):
        return f"/api/group/plan/{name.removeprefix('group-')}"
    return ""


class Actions:
    """The actions on what a service watches."""

    def __init__(self, service: Service, templates: Templates) -> None:
        self._every = {name: kind(service, templates.link) for name, kind in ACTIONS.items()}

    def named(self, what: str) -> Action[Any]:
        """The action of this name.

        Raises:
            NotFound: there is none.
        """
        if what not in self._every:
            raise NotFound(f"nothing of the name {shown(what)!r} can be done")
        return self._every[what]
