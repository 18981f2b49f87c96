"""Keys from a file: one key a line, read as they are needed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import BinaryIO, Final

MAX_KEY_BYTES: Final = 65_536
"""A longer line is no key: the file is of another kind, and is not read into memory."""

_SHOWN: Final = 3


def read_keys(
    source: BinaryIO, bad_line: Callable[[int, str], None] | None = None
) -> Iterator[str]:
    """The keys of a file, one at a time.

    A line ends with a line feed, or with a carriage return and a line feed; a byte order mark at
    the beginning is not part of the first key.

    Args:
        bad_line: called with the number of a line that holds no key, from 1, and why: it is
            empty, not UTF-8, or longer than :data:`MAX_KEY_BYTES`. It is skipped.
    """
    number = 0
    # A key of the greatest length and its end of line, and one byte more to tell a longer one.
    while line := source.readline(MAX_KEY_BYTES + 3):
        number += 1
        rest = line
        while len(rest) >= MAX_KEY_BYTES and not rest.endswith(b"\n"):
            rest = source.readline(MAX_KEY_BYTES + 3)
        if number == 1:
            line = line.removeprefix(b"\xef\xbb\xbf")
        data = line[:-2] if line.endswith(b"\r\n") else line.removesuffix(b"\n")
        try:
            key = data.decode()
        except UnicodeDecodeError:
            why = "is not UTF-8"
        else:
            why = "" if key else "is empty"
        if len(data) > MAX_KEY_BYTES:
            why = f"is longer than {MAX_KEY_BYTES} bytes"
        if not why:
            yield key
        elif bad_line is not None:
            bad_line(number, why)


class BadLines:
    """Counts the lines that hold no key, and reports them without flooding the terminal.

    Args:
        name: of the file, for the report.
        say: called with each line of the report.
    """

    def __init__(self, name: str, say: Callable[[str], None]) -> None:
        self.count = 0
        self._name = name
        self._say = say

    def __call__(self, number: int, why: str) -> None:
        """Report a line."""
        self.count += 1
        if self.count <= _SHOWN:
            self._say(f"{self._name}: line {number} {why}: skipped")

    def finish(self) -> None:
        """Report how many there were, when not all were shown."""
        if self.count > _SHOWN:
            self._say(f"{self._name}: {self.count:,} lines skipped in all")
