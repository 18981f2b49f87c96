"""What commands write: aligned columns, durations, JSON."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Sequence
from typing import Any, Final

import click

from hashring.atomic_writes import replace_text
from hashring.core.readable_numbers import duration

_NO_CONTROLS: Final = ("dumb", "unknown")  # terminals by TERM; they print control sequences


def has_controls() -> bool:
    """Whether the terminal, if there is one, obeys control sequences."""
    return os.environ.get("TERM", "").lower() not in _NO_CONTROLS


def can_redraw() -> bool:
    """Whether standard output is a terminal on which what was written can be replaced."""
    return sys.stdout.isatty() and has_controls()


def columns(header: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """A table as lines: all columns to the right, except the last, which may be of any width."""
    widths = [max(len(row[i]) for row in (header, *rows)) for i in range(len(header) - 1)]
    for row in (header, *rows):
        cells = [cell.rjust(width) for cell, width in zip(row, widths, strict=False)]
        yield "  ".join([*cells, row[-1]]).rstrip()


def blocks(length: int) -> str:
    """A bar of so many blocks, or of number signs where standard output can write no block."""
    try:
        "█".encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        return "#" * length
    return "█" * length


def seconds(value: float) -> str:
    """A duration for people: ``0.4 s``, ``12 s``, ``5 min``, ``3 h``, ``2 d``."""
    size = abs(value)
    if size < 0.0995:
        return f"{value * 1000:.0f} ms" if size >= 0.001 else f"{value * 1000:.2f} ms"
    return duration(value)


def document(value: Any) -> None:
    """Write one JSON document."""
    click.echo(json.dumps(value, indent=2))


def json_line(value: Any) -> None:
    """Write one line of JSON, at once."""
    click.echo(json.dumps(value))


def write_text(option: str, file: str, text: str) -> None:
    """Write a file whole, over one that is there, or standard output for ``-``.

    Args:
        option: the option that named the file, for the error's message.

    Raises:
        click.BadParameter: it cannot be written.
    """
    if file == "-":
        # As bytes: whatever the terminal's encoding, what is written is what a file would hold.
        click.echo(text.encode(), nl=False)
        return
    try:
        replace_text(file, text)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise click.BadParameter(f"{file}: {why}", param_hint=option) from None
