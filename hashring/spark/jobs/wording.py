"""How the answers of the jobs name rings, keys and numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from hashring.core.readable_numbers import listed
from hashring.core.ring import Ring
from hashring.spark.lookup.key_points import NATIVE_ALGORITHMS

MOST_NAMES: Final = 10


def ring_facts(ring: Ring) -> list[tuple[str, Any]]:
    """The size of a ring, its fingerprint, and its hash if that is a slow one."""
    facts: list[tuple[str, Any]] = [
        ("nodes", ring.node_count),
        ("replicas", len(ring)),
        ("ring fingerprint", ring.fingerprint),
    ]
    if ring.hash_algorithm.name not in NATIVE_ALGORITHMS:
        facts.append(("hash", f"{ring.hash_algorithm.name}, computed in Python: slower"))
    return facts


def key_name(key: Any) -> str:
    """A key as text: bytes in hexadecimal."""
    return key if isinstance(key, str) else bytes(key).hex(" ")


def names(nodes: Sequence[str]) -> str:
    """The first of many nodes, and how many more there are: thousands may go at once."""
    return listed(nodes, MOST_NAMES)


def decimals(rows: Sequence[Any], name: str) -> list[str | None]:
    """The values of a column with three decimals each, ``None`` where there is none."""
    return [None if r[name] is None else f"{r[name]:.3f}" for r in rows]
