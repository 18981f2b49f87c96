"""The colours of everything that is drawn, and the style sheet that lets a page change them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import blake2b
from math import ceil
from typing import Final

PALETTE: Final = (
    "#2ab4c1", "#8f0b16", "#5c21bc", "#f6621c", "#9f79f4", "#b2527e", "#842e82", "#b7b688",
    "#228ab9", "#cb2307", "#b98681", "#06764a", "#eb90fc", "#1a504a", "#fc982c", "#7052ef",
)  # fmt: skip
"""The colours of nodes. Any two differ by 0.08 or more in OKLab, to protanopes, deuteranopes and
tritanopes (after Machado, Oliveira and Fernandes, 2009) as to others; all are visible on white and
on black."""

PICTURE_CSS: Final = (
    ".hr-ring{color:#1b1f24;font-family:system-ui,sans-serif}"
    "@media(prefers-color-scheme:dark){.hr-ring{color:#e6e8eb}}"
    + "".join(f".hr-c{i}{{stroke:var(--hr-c{i},{color})}}" for i, color in enumerate(PALETTE))
    + ".hr-node{transition:opacity .15s}"
    ".hr-ring:has(.hr-node:hover) .hr-node:not(:hover),.hr-dim{opacity:.18}"
    ".hr-node:focus-visible{outline:2px solid currentColor}"
    "@media(prefers-reduced-motion:reduce){.hr-node{transition:none}}"
)
"""What the picture's classes look like. A page that has pictures without a style of their own
takes this into its style sheet, and may override it after: ``color`` of ``.hr-ring`` for text and
lines, the variables ``--hr-c0`` to ``--hr-c15`` for the colours of nodes."""

GROUND_CSS: Final = (
    ".hr-ring{background:#fff}@media(prefers-color-scheme:dark){.hr-ring{background:#15181c}}"
)


def node_colors(nodes: Iterable[str], keep: Mapping[str, int] | None = None) -> dict[str, int]:
    """A colour for each node: its place in :data:`PALETTE`.

    Up to 16 nodes have different colours; of more, no colour has more than its part. The colours
    depend on nothing but the names, so every picture of a ring has the same. When a node joins or
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
