"""The Lua scripts, each a file of its own behind the shared head ``_common.lua``."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from hashlib import sha1
from importlib.resources import files


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
    text = folder.joinpath("_common.lua").read_text("utf-8") + folder.joinpath(
        f"{name}.lua"
    ).read_text("utf-8")
    return Script(name, text, sha1(text.encode()).hexdigest())
