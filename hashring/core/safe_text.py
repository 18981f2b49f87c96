"""Text of anybody's that is safe to show."""

from __future__ import annotations

from unicodedata import category


def printable(text: str) -> str:
    """The text with an escape for each character that would move a terminal's cursor or worse.

    A name on the ring may be anybody's: it must not write into the reader's terminal.
    """
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() or category(c) == "Zs" else c.encode("unicode_escape").decode()
        for c in text
    )
