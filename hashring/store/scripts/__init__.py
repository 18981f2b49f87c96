"""The Lua scripts, each a file of its own behind a shared head.

The head is ``_locks.lua`` for scripts about locks, ``_group.lua`` for those about partition
groups, none for fenced writes and the lease challenge, and ``_common.lua`` for all others.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from hashlib import sha1
from importlib.resources import files
from typing import Final

_HEADS: Final[dict[str, tuple[str, ...]]] = {
    "locks": ("_locks.lua",),
    "group": ("_group.lua",),
    "fencing": (),
    "challenge": (),
}


@dataclass(frozen=True)
class Script:
    """A Lua script.

    Attributes:
        name: the file's name without its ending.
        text: what Redis runs.
        sha: the SHA-1 that EVALSHA names it by, in hex.
    """

    name: str
    text: str
    sha: str


@cache
def script(name: str) -> Script:
    """The script of that name."""
    folder = files(__package__)
    head = _HEADS.get(name.partition("_")[0], ("_common.lua",))
    text = "".join(folder.joinpath(file).read_text("utf-8") for file in (*head, f"{name}.lua"))
    return Script(name, text, sha1(text.encode()).hexdigest())
