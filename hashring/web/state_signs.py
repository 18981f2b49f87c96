"""The sign of a state: in a page's title, and as its icon."""

from __future__ import annotations

from typing import Final

from flask import Response, abort

from hashring.health import State

_MARKS: Final = {
    State.CHANGING: "◐ changing · ",
    State.DEGRADED: "▲ degraded · ",
    State.UNKNOWN: "◇ unknown · ",
    State.DOWN: "■ down · ",
}
SIGN_COLORS: Final = {
    "bad": "#dc2626",
    "late": "#d97706",
    "well": "#1a7f43",
    "busy": "#2563eb",
    "shy": "#6b7280",
}
"""The colours of signs whose ground may be light or dark, as that of a browser's tab. Each has a
contrast of 3:1 or more to both."""

_SIGNS: Final = {
    "none": ("shy", '<circle cx="8" cy="8" r="4.5" fill="none" stroke-width="3"/>'),
    "healthy": ("well", '<circle cx="8" cy="8" r="6"/>'),
    "stopped": ("shy", '<circle cx="8" cy="8" r="5" fill="none" stroke-width="2.5"/>'),
    "changing": ("busy", '<path d="M8 2a6 6 0 0 1 0 12Z"/><path d="M8 3a5 5 0 0 0 0 10"/>'),
    "degraded": ("late", '<path d="M8 1L15.5 15H.5Z"/>'),
    "unknown": ("shy", '<path d="M8 1L15 8L8 15L1 8Z" fill="none" stroke-width="2.5"/>'),
    "down": ("bad", '<path d="M1 1H15V15H1Z"/>'),
}
_ICONS: Final = {
    state: f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16" fill="{color}" '
    f'stroke="{color}" stroke-width="0">{sign}</svg>'
    for state, (name, sign) in _SIGNS.items()
    for color in [SIGN_COLORS[name]]
}


def sign(state: State) -> str:
    """What a page's title begins with in this state; nothing when all is well."""
    return _MARKS.get(state, "")


def icon(state: str) -> Response:
    """Answer with the icon of a state; ``none`` is that of pages without one."""
    if state not in _ICONS:
        abort(404)
    return Response(
        _ICONS[state], mimetype="image/svg+xml", headers={"Cache-Control": "max-age=3600"}
    )
