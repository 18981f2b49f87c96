"""A request to Redis as data: a script, its keys and arguments, and how to read the answer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from hashring.store.lua_scripts import Script

T = TypeVar("T")

Argument = bytes | str | int | float


@dataclass(frozen=True)
class Command(Generic[T]):
    """Something to ask of Redis.

    Attributes:
        script: the script to run.
        keys, arguments: its KEYS and ARGV.
        read: makes the typed answer of Redis' raw one.
    """

    script: Script
    keys: tuple[bytes, ...]
    arguments: tuple[Argument, ...]
    read: Callable[[Any], T]


def pairs(answer: Any) -> Iterator[tuple[Any, Any]]:
    """What an answer states in pairs, as of a hash; in RESP 2 it is a flat list."""
    if isinstance(answer, dict):
        return iter(answer.items())
    return zip(answer[::2], answer[1::2], strict=True)


def text(value: bytes | str) -> str:
    """A text of an answer; what is not UTF-8 in it is replaced."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
