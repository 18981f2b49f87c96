"""What ``hashring doctor`` finds."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any


class Level(str, Enum):
    """How bad it is."""

    OK = "ok"
    NOTE = "note"
    """Worth knowing; nothing has to be done."""
    UNKNOWN = "unknown"
    """Could not be looked at."""
    PROBLEM = "problem"
    """Something has to be done."""


@dataclass(frozen=True)
class Finding:
    """The outcome of one check.

    Attributes:
        check: the check's name.
        level: how bad it is.
        text: what was found.
        remedy: what to do; empty when nothing.
        details: one line each for what the text sums up.
    """

    check: str
    level: Level
    text: str
    remedy: str = ""
    details: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """The same as JSON types."""
        return {**vars(self), "level": self.level.value, "details": list(self.details)}


def ok(check: str, text: str) -> Finding:
    """All is well."""
    return Finding(check, Level.OK, text)


def note(check: str, text: str, remedy: str = "", details: tuple[str, ...] = ()) -> Finding:
    """Worth knowing."""
    return Finding(check, Level.NOTE, text, remedy, details)


def problem(check: str, text: str, remedy: str, details: tuple[str, ...] = ()) -> Finding:
    """Something has to be done."""
    return Finding(check, Level.PROBLEM, text, remedy, details)
