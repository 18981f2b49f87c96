"""Assignors by name: what is given as one, and what a group's settings in Redis name."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, cast

from hashring.core.assignors.balanced import BalancedAssignor
from hashring.core.assignors.contiguous import ContiguousAssignor
from hashring.core.assignors.learner import LearnerAssignor
from hashring.core.assignors.load import LoadAssignor
from hashring.core.assignors.ring import RingAssignor
from hashring.core.assignors.target_assignment import AssignFunction, Assignor, FunctionAssignor
from hashring.errors import ConfigError

ASSIGNORS: Final[dict[str, Callable[[], Assignor]]] = {
    "balanced": BalancedAssignor,
    "contiguous": ContiguousAssignor,
    "learner": LearnerAssignor,
    "load": LoadAssignor,
    "ring": RingAssignor,
}
"""The assignors that can be named; each with its default settings."""


def as_assignor(given: str | Assignor | AssignFunction) -> Assignor:
    """The assignor of that name, the assignor itself, or a function made one.

    Raises:
        ConfigError: it is none of these, or has the name of another.
    """
    if isinstance(given, str):
        if given in ASSIGNORS:
            return ASSIGNORS[given]()
    elif isinstance(given, type):
        raise ConfigError("assignor", given, f"is a class: pass one of it, {given.__name__}()")
    elif hasattr(given, "assign") and isinstance(getattr(given, "name", None), str):
        return _under_its_own_name(cast("Assignor", given), given)
    elif callable(given):
        return _under_its_own_name(FunctionAssignor(given), given)
    raise ConfigError(
        "assignor",
        given,
        f"choose one of {', '.join(sorted(ASSIGNORS))}, or pass an object with a name and "
        f"assign(situation), or a function from a situation to the partitions of each member",
    )


def _under_its_own_name(assignor: Assignor, given: object) -> Assignor:
    """The assignor itself, unless it has the name of another rule, one of this project's.

    Raises:
        ConfigError: it has. Members of both would undo each other's decisions, and plans would be
            the other rule's.
    """
    try:
        known = assignor_named(assignor.name)
    except ConfigError:
        return assignor
    if type(assignor) is type(known):
        return assignor
    raise ConfigError(
        "assignor",
        given,
        f"has the name {assignor.name!r} of an assignor of this package: give it another",
    )


_CALL: Final = re.compile(r"(\w+)\(([^()]*)\)")


def assignor_named(name: str) -> Assignor:
    """The assignor whose ``name`` this is, settings included: ``learner(warmups=4, ...)``.

    Raises:
        ConfigError: it is none of this project's.
    """
    if name in ASSIGNORS:
        return ASSIGNORS[name]()
    call = _CALL.fullmatch(name)
    try:
        if call and call[1] == "ring":
            return RingAssignor(int(call[2]))
        if call and call[1] == "load":
            settings = dict(part.split("=") for part in call[2].split(", "))
            return LoadAssignor(float(settings["factor"]), int(settings["moves"]))
        if call and call[1] == "learner":
            settings = dict(part.split("=") for part in call[2].split(", "))
            return LearnerAssignor(
                float(settings["balancing_factor"]),
                int(settings["warmups"]),
                int(settings["standbys"]),
                float(settings["acceptable_lag"]),
            )
    except (ValueError, KeyError):
        pass
    raise ConfigError(
        "assignor",
        name,
        "is an assignor of your own: plan with hashring group plan --assignor MODULE:NAME, or with "
        "PartitionGroup.plan() in a program that has it",
    )
