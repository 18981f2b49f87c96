"""The colours of nodes and members, the same in every picture."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import blake2b
from math import ceil
from typing import Final

PALETTE: Final = (
    "#a379a9", "#4f1b0a", "#1202ca", "#fc3f18", "#8b3b5b", "#8f5dfa", "#311371", "#7a54a0",
    "#a75d63", "#5c4100", "#229be4", "#0b14fc", "#ca8076", "#720c41", "#598f02", "#541d96",
)  # fmt: skip
"""The colours of nodes on white. Any two differ by 0.08 or more in OKLab, to protanopes,
deuteranopes and tritanopes (after Machado, Oliveira and Fernandes, 2009) as to others. Each has a
contrast of 3:1 or more to white, and differs by 0.09 or more from the colours of
states in the service's style sheet."""

DARK_PALETTE: Final = (
    "#79636e", "#8bd002", "#2385ec", "#7ead04", "#ae7a6d", "#b11dad", "#1550f5", "#de8cba",
    "#dab8a1", "#07740e", "#6dd6fb", "#1ba8ff", "#d8ed1d", "#d80821", "#aceed4", "#e046b6",
)  # fmt: skip
"""The same on a dark ground."""

COLORS_CSS: Final = (
    ":root{"
    + "".join(f"--hr-c{i}:{color};" for i, color in enumerate(PALETTE))
    + "}@media(prefers-color-scheme:dark){:root{"
    + "".join(f"--hr-c{i}:{color};" for i, color in enumerate(DARK_PALETTE))
    + "}}"
    + "".join(
        f".hr-c{i}{{stroke:var(--hr-c{i})}}.hr-f{i}{{fill:var(--hr-c{i})}}"
        for i in range(len(PALETTE))
    )
)
"""The colours of nodes as variables that a page may change, and the classes that draw with them."""


def node_colors(nodes: Iterable[str], keep: Mapping[str, int] | None = None) -> dict[str, int]:
    """A colour for each node: its place in :data:`PALETTE`.

    Up to 16 nodes have different colours; of more, no colour has more than its part. The colours
    depend on the names alone, so every picture of a ring has the same. When a node joins or
    leaves, few others change theirs, and none whose colour is in ``keep``.

    Each node has a liking for each colour, by a hash of its name. The strongest liking of all is
    granted first, then the next whose node and colour are still to be had: the stable marriage
    of nodes and colours, which one more or one less disturbs little.

    Args:
        keep: what an earlier call answered, for a picture that is drawn again and again.
    """
    names = sorted(set(nodes), key=name_order)
    colors = len(PALETTE)
    room = [ceil(len(names) / colors)] * colors
    found: dict[str, int] = {}
    for name in names:
        kept = (keep or {}).get(name)
        if kept is not None and 0 <= kept < colors:
            found[name] = kept
            room[kept] -= 1
    likings: list[tuple[int, str, int]] = []
    for name in names:
        if name not in found:
            digest = blake2b(name_order(name), digest_size=2 * colors).digest()
            likings.extend(
                (int.from_bytes(digest[2 * color : 2 * color + 2], "big"), name, color)
                for color in range(colors)
            )
    likings.sort(reverse=True)
    for _, name, color in likings:
        if name not in found and room[color] > 0:
            found[name] = color
            room[color] -= 1
    return {name: found[name] for name in names}


def name_order(name: str) -> bytes:
    """By what names are sorted: their bytes, whatever they hold."""
    return name.encode("utf-8", "surrogatepass")
