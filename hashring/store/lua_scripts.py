"""The Lua scripts: ``<protocol>/<action>.lua``, each behind what its protocol's scripts share.

What they share stands in the protocol's folder, or in this one if several protocols share it, in
files whose names begin with ``_``.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from hashlib import sha1
from importlib.resources import files
from typing import Final

_LOG_IN: Final = ("_log_in.lua",)
_BYTE_ORDER: Final = ("_byte_order.lua",)
_RING: Final = (
    _LOG_IN
    + _BYTE_ORDER
    + tuple(
        f"ring/_{part}.lua"
        for part in (
            "head",
            "utf8",
            "members",
            "changes",
            "node_entries",
            "point_index",
            "own_ranges",
            "tell_neighbours",
            "node_orders",
            "sweep",
        )
    )
)
_SERVER: Final = ("_which_server.lua",)
_HOLD_OFF: Final = ("_hold_off.lua",)
_GROUP: Final = (*_SERVER, *_LOG_IN, "group/_head.lua")
_SHARED: Final = {
    "ring": _RING,
    "group": _GROUP,
    "locks": (*_SERVER, *_HOLD_OFF, "locks/_head.lua"),
    "fencing": _BYTE_ORDER,
}
_SHARED_BY_ONE: Final = {
    ("ring", "beat"): (*_SERVER, *_HOLD_OFF, *_RING),
    ("group", "commit"): (*_GROUP, "group/_decision.lua"),
    ("group", "forget"): (*_GROUP, "group/_decision.lua"),
    # What people do to a lock is written into the ring's history.
    ("locks", "take_away"): _RING,
    ("lease_challenge", "begin"): _SERVER,
    ("lease_challenge", "read"): _SERVER,
    ("lease_challenge", "write"): _SERVER,
}


@dataclass(frozen=True)
class Script:
    """A Lua script.

    Attributes:
        protocol: its folder beside this file, where its commands are as well.
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


@cache
def _files() -> dict[str, str]:
    """The texts of all files, by their names from this folder on.

    Read once, and all together. A process that runs on may find another version's files in their
    place, or may open no more files, when it comes to a script that it did not need before.
    """
    folder = files("hashring.store")
    folders = {"": folder, **{f"{each.name}/": each for each in folder.iterdir() if each.is_dir()}}
    return {
        f"{prefix}{file.name}": file.read_text("utf-8")
        for prefix, inside in folders.items()
        for file in inside.iterdir()
        if file.name.endswith(".lua")
    }


def actions() -> list[tuple[str, str]]:
    """Protocol and action of every script."""
    names = [name.removesuffix(".lua").split("/") for name in _files()]
    return sorted((name[0], name[1]) for name in names if not name[-1].startswith("_"))


@cache
def script(protocol: str, action: str) -> Script:
    """The script of that action."""
    shared = _SHARED_BY_ONE.get((protocol, action), _SHARED.get(protocol, ()))
    parts = (*shared, f"{protocol}/{action}.lua")
    text = "".join(map(_files().__getitem__, parts))
    return Script(protocol, action, text, sha1(text.encode()).hexdigest())
