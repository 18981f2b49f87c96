"""Orders about a ring's nodes: to drain one, or to give it another weight.

They stand in Redis until they are lifted.

An order names a node, not a process, so it outlasts restarts of a node with a name of its own. One
about a made-up name counts for the process that has it now. The node obeys with its next heartbeat,
and a message makes it beat at once. Of two orders about a node the later one counts; the history of
the ring has both. Orders are lost when Redis loses the ring.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, TypeVar

from hashring.core.order_checks import checked_lasting, checked_ordered_weight
from hashring.errors import ConfigError, UnknownNodeError
from hashring.store.command import Command, pairs, text
from hashring.store.lua_scripts import script
from hashring.store.ring.key_names import RingKeys
from hashring.store.ring.ring_events import EVENTS_KEPT

T = TypeVar("T")

ORDERED: Final = b"order"
"""The message on a node's own channel that an order about it has changed."""

_ID_DIGITS: Final = 20


@dataclass(frozen=True)
class DrainOrder:
    """An order to drain a node, as it stands in Redis.

    Attributes:
        by: who gave it.
        since: Redis time of the order, in seconds since 1970.
        until: Redis time at which it ends by itself; ``None`` for never.
        session: the process that it is about, where the node's name is a made-up one; else empty.
    """

    by: str
    since: float
    until: float | None = None
    session: str = ""

    def stands(self, now: float) -> bool:
        """Whether it has not ended by itself.

        Args:
            now: Redis time in seconds since 1970.
        """
        return self.until is None or self.until > now

    def as_dict(self) -> dict[str, Any]:
        """The same as JSON types, for people."""
        return {"by": self.by, "since": self.since, "until": self.until}


@dataclass(frozen=True)
class WeightOrder:
    """An order that a node has another weight than its own, as it stands in Redis.

    Attributes:
        weight: above 0; a node of weight 1 is an ordinary one.
        by: who gave it.
        id: Redis time of the order in microseconds, as text; another order has another.
        session: the process that it is about, where the node's name is a made-up one; else empty.
    """

    weight: float
    by: str
    id: str
    session: str = ""

    @property
    def since(self) -> float:
        """Redis time of the order, in seconds since 1970."""
        return int(self.id) / 1e6

    def as_dict(self) -> dict[str, Any]:
        """The same as JSON types, for people."""
        return {"weight": self.weight, "by": self.by, "since": self.since}


@dataclass(frozen=True)
class WeighReply:
    """What came of orders about weights.

    Attributes:
        unknown: the first node that does not exist; then nothing was ordered.
        changed: the nodes about which another order stands than before.
    """

    unknown: str | None
    changed: tuple[str, ...]


class OrderStatus(str, Enum):
    """What came of an order."""

    OK = "ok"
    UNKNOWN = "unknown"
    """There is no such node, and none of that name was there within a day."""
    LAST = "last"
    """No other node is left; nothing was ordered."""
    NONE = "none"
    """There is no order to lift."""


def drain(
    keys: RingKeys,
    *,
    node: str,
    by: str,
    seconds: float | None = None,
    force: bool = False,
    lag: float = 0.0,
) -> Command[OrderStatus]:
    """Order a node to drain: it beats on, and has no part of the ring.

    Args:
        by: who orders it, for the history.
        seconds: after which the order ends by itself; ``None`` for never.
        force: order it although no other node is left to take over.
        lag: see :class:`hashring.store.ring.commands.Scoring`.

    Raises:
        ConfigError: the time is none.
    """
    seconds = checked_lasting(seconds)
    arguments = (
        node,
        by,
        "" if seconds is None else f"{seconds:.6f}".rstrip("0").rstrip("."),
        "1" if force else "",
        lag,
        EVENTS_KEPT,
    )
    return Command(script("ring", "drain"), keys.script_keys(), arguments, _read)


def undrain(keys: RingKeys, *, node: str, by: str) -> Command[OrderStatus]:
    """Lift the order to drain a node.

    Args:
        by: who lifts it, for the history.
    """
    arguments = (node, by, EVENTS_KEPT)
    return Command(script("ring", "undrain"), keys.script_keys(), arguments, _read)


def weigh(
    keys: RingKeys,
    *,
    weights: Mapping[str, float | None],
    by: str,
    reason: str = "",
) -> Command[WeighReply]:
    """Order other weights for nodes: for all of them, or for none.

    Args:
        weights: by node; ``None`` gives a node its own weight back.
        by: who orders it, for the history.
        reason: why, for the history.

    Raises:
        ConfigError: a weight is none.
    """
    arguments: list[str | int] = [by, reason, EVENTS_KEPT]
    for node, weight in weights.items():
        arguments += [node, "" if weight is None else _decimal(checked_ordered_weight(weight))]

    def read(raw: Any) -> WeighReply:
        status, *nodes = (text(part) for part in raw)
        return WeighReply(*((nodes[0], ()) if status == "unknown" else (None, tuple(nodes))))

    return Command(script("ring", "weigh"), keys.script_keys(), tuple(arguments), read)


def order_took_effect(status: OrderStatus, node: str, ring: str, nodes: Iterable[str] = ()) -> bool:
    """Whether an order changed anything.

    Args:
        nodes: the nodes of the ring, of which those with names near this one are suggested.

    Raises:
        UnknownNodeError: there is no such node.
        ConfigError: no other node is left.
    """
    if status is OrderStatus.UNKNOWN:
        raise UnknownNodeError(node, ring, nodes)
    if status is OrderStatus.LAST:
        raise ConfigError(
            "drain",
            node,
            "no other node is left to take over: every key of the ring would be unserved; start "
            "another node first, or force it",
        )
    return status is OrderStatus.OK


def read_drains(entries: list[bytes]) -> Mapping[str, DrainOrder]:
    """The orders to drain in the ring's hash of orders; what was not written here is left out."""
    return _read_orders(entries, "drain", _read_drain)


def read_weights(entries: list[bytes]) -> Mapping[str, WeightOrder]:
    """The orders about weights in the ring's hash of orders; others are left out."""
    return _read_orders(entries, "weight", read_weight)


def _read_orders(entries: list[bytes], kind: str, read: Callable[[Any], T | None]) -> dict[str, T]:
    found: dict[str, T] = {}
    for name, value in pairs(entries):
        try:
            order = read(json.loads(value)[kind])
            if order is not None:
                found[name.decode()] = order
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError, OverflowError):
            continue
    return found


def _read_drain(told: Any) -> DrainOrder:
    ends = told.get("ends")
    return DrainOrder(
        by=str(told["by"]),
        since=int(told["since"]) / 1e6,
        until=None if ends is None else int(ends) / 1e6,
        session=str(told.get("session", "")),
    )


def read_weight(told: Any) -> WeightOrder | None:
    """The order about a weight that stands in Redis; ``None`` for what was not written here."""
    try:
        weight = checked_ordered_weight(float(told["weight"]))
        id_ = str(told["since"])
        order = WeightOrder(weight, str(told["by"]), id_, str(told.get("session", "")))
        # A longer number is no time, and may be none that can be computed with.
        return order if id_.isascii() and id_.isdigit() and len(id_) <= _ID_DIGITS else None
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError):
        return None


def read_weight_text(raw: bytes) -> WeightOrder | None:
    """The order about a weight, from its JSON; ``None`` for no text, or for another one."""
    try:
        return read_weight(json.loads(raw)) if raw else None
    except ValueError:
        return None


def _decimal(weight: float) -> str:
    return repr(weight).removesuffix(".0")


def _read(raw: Any) -> OrderStatus:
    return OrderStatus(text(raw))
