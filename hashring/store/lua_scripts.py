"""The Lua scripts: ``<protocol>/<action>.lua``, each behind its protocol's ``_head.lua``."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from hashlib import sha1
from importlib.resources import files
from typing import Final

HEAD: Final = "_head.lua"

# What people do to a lock is written into the ring's history, which needs the ring's head.
_OTHER_HEADS: Final = {("locks", "take_away"): "ring"}


@dataclass(frozen=True)
class Script:
    """A Lua script.

    Attributes:
        protocol: its folder beside this file, where its commands and its twin are as well.
        action: the file's name without its ending.
        text: what Redis runs.
        sha: the SHA-1 that EVALSHA names it by, in hex.
    """

    protocol: str
    action: str
    text: str
    sha: str

    @property
    def name(self) -> str:
        """Its name in messages: ``beat`` for the ring, else with its protocol: ``group_beat``."""
        return self.action if self.protocol == "ring" else f"{self.protocol}_{self.action}"


def actions() -> list[tuple[str, str]]:
    """Protocol and action of every script."""
    folders = [folder for folder in files("hashring.store").iterdir() if folder.is_dir()]
    return sorted(
        (folder.name, file.name.removesuffix(".lua"))
        for folder in folders
        for file in folder.iterdir()
        if file.name.endswith(".lua") and file.name != HEAD
    )


@cache
def script(protocol: str, action: str) -> Script:
    """The script of that action."""
    folder = files("hashring.store")
    head = folder / _OTHER_HEADS.get((protocol, action), protocol) / HEAD
    text = head.read_text("utf-8") if head.is_file() else ""
    text += (folder / protocol / f"{action}.lua").read_text("utf-8")
    return Script(protocol, action, text, sha1(text.encode()).hexdigest())
