"""Anybody's text in a drawing."""

from __future__ import annotations

from typing import Final
from xml.sax.saxutils import escape

from hashring.core.safe_text import printable

_LONGEST_NAME: Final = 80


def short(text: str, longest: int = _LONGEST_NAME) -> str:
    """Anybody's text as it may be shown: printable, and cut to ``longest`` characters."""
    # Cut before escaping, so that a name of a megabyte costs nothing.
    cut = printable(text[: longest + 1])
    return cut if len(text) <= longest and len(cut) <= longest else cut[: longest - 1] + "…"


def shown(text: str) -> str:
    """The text as XML has it, which cannot hold every character."""
    return escape(printable(text))
