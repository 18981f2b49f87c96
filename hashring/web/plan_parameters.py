"""The changes that a request asks to plan, checked: of a ring, and of a group."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from flask import abort, request

from hashring.errors import ConfigError
from hashring.web.request_parameters import (
    MOST_JOINING,
    MOST_LEAVING,
    MOST_PARTITIONS,
    MOST_REPLICAS,
    list_of,
    number_of,
)

_LINES: Final = re.compile(r"[\r\n]+")


@dataclass(frozen=True)
class PlannedRingChange:
    """What may be asked about a ring.

    Attributes:
        join, leave: names.
        weights: by name, of nodes that join or stay.
        replicas: points of a node of weight 1 that joins; ``None`` for as many as most have.
        placement: where nodes that join put their points.
    """

    join: Sequence[str] = ()
    leave: Sequence[str] = ()
    weights: Mapping[str, float] = field(default_factory=dict)
    replicas: int | None = None
    placement: str = "random"

    @property
    def empty(self) -> bool:
        """Whether nothing is to change."""
        return not (self.join or self.leave or self.weights)


def ring_change(*, lines: bool = False) -> PlannedRingChange:
    """What the request asks about a ring.

    Args:
        lines: whether its fields may have a name or a weight a line, as a form's have.

    Raises:
        ConfigError: a weight is none.
        HTTPException: there is too much of something.
    """
    join, weights = _many("join", MOST_JOINING, lines), _many("weight", MOST_LEAVING, lines)
    replicas = None
    if request.args.get("replicas") is not None:
        replicas = number_of(request, "replicas", 1, 1, MOST_REPLICAS)
    return PlannedRingChange(
        join,
        list_of(request, "leave", MOST_LEAVING),
        dict(_weight(text, spaced=lines) for text in weights),
        replicas,
        request.args.get("placement", "random"),
    )


@dataclass(frozen=True)
class PlannedGroupChange:
    """What may be asked about a group; ``None`` is as it is."""

    join: Sequence[str] = ()
    leave: Sequence[str] = ()
    partitions: int | None = None
    access: str | None = None

    @property
    def empty(self) -> bool:
        """Whether nothing is to change."""
        return not (self.join or self.leave or self.partitions or self.access)


def group_change(*, lines: bool = False) -> PlannedGroupChange:
    """What the request asks about a group; see :func:`ring_change`."""
    partitions = None
    if request.args.get("partitions"):
        partitions = number_of(request, "partitions", 1, 1, MOST_PARTITIONS)
    return PlannedGroupChange(
        _many("join", MOST_JOINING, lines),
        list_of(request, "leave", MOST_LEAVING),
        partitions,
        request.args.get("access") or None,
    )


def _many(name: str, most: int, lines: bool) -> list[str]:
    values = list_of(request, name, most)
    if lines:
        values = [part.strip() for text in values for part in _LINES.split(text) if part.strip()]
    if len(values) > most:
        abort(422, f"{name}: at most {most} in one plan, and these are {len(values)}")
    return values


def _weight(text: str, *, spaced: bool) -> tuple[str, float]:
    """A node and its weight.

    Args:
        spaced: whether there may be spaces around the equals sign; otherwise they are of the name.
    """
    # A node's name may hold an equals sign.
    name, _, number = text.rpartition("=")
    name = name.strip() if spaced else name
    try:
        weight = float(number)
    except ValueError:
        name = ""
    if not name:
        raise ConfigError("weight", text, "give a node and its weight, such as worker-3=2")
    return name, weight
