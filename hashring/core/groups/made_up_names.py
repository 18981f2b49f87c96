"""Names of members that were given none; a process that starts again has another one."""

from __future__ import annotations

import re
from typing import Final

_MADE_UP: Final = re.compile(r".+:[0-9]+:[0-9a-f]{6}", re.DOTALL)


def made_up_name(host: str, process: int, digits: str) -> str:
    """A name that nobody had before.

    Args:
        process: the process id.
        digits: six random hexadecimal digits.
    """
    return f"{host}:{process}:{digits}"


def is_made_up(name: str) -> bool:
    """Whether a name has the form of one that was made up. Reports do not have more about it."""
    return _MADE_UP.fullmatch(name) is not None
