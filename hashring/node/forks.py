"""Names of nodes in one process, and what a forked child does with the nodes that it inherits."""

from __future__ import annotations

import os
import weakref
from typing import Final

from hashring.monkey_patching import native_mutex
from hashring.running.forked import Forking, abandon_in_children
from hashring.running.host_name import host_name

# By identity: a subclass may define when its nodes are equal, or have no hash.
_nodes: Final[weakref.WeakValueDictionary[int, Forking]] = weakref.WeakValueDictionary()
_names: Final[weakref.WeakValueDictionary[tuple[bytes, str], Forking]] = (
    weakref.WeakValueDictionary()
)
_names_lock = native_mutex()


def own_name(ring: bytes, node: Forking) -> str:
    """``host:pid``, with a number after it for further nodes of one process on one ring."""
    base = f"{host_name()}:{os.getpid()}"
    with _names_lock:
        name, number = base, 1
        while (ring, name) in _names:
            number += 1
            name = f"{base}.{number}"
        _names[ring, name] = node
    return name


def remember(node: Forking) -> None:
    """Have the node abandoned in forked children."""
    _nodes[id(node)] = node


def remembered() -> list[Forking]:
    """The nodes of this process."""
    return list(_nodes.values())


def _inherited() -> list[Forking]:
    global _names_lock  # noqa: PLW0603 - another thread may have held it when the process forked
    _names_lock = native_mutex()
    return remembered()


abandon_in_children(_inherited)
