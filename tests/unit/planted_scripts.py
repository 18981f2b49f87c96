"""Faults that are planted in the scripts, as edits of the Lua that ships."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from hashlib import sha1

import pytest

from hashring.store.lua_scripts import Script, actions, script
from hashring.store.memory_lua import LuaRunner


def plant(monkeypatch: pytest.MonkeyPatch, *edits: tuple[str, str]) -> None:
    """Have servers in memory run edited scripts.

    Args:
        edits: a piece of Lua that stands once in each script that has it, and what stands there
            instead.
    """
    for piece, _ in edits:
        counts = {script(*action).text.count(piece) for action in actions()}
        assert counts in ({1}, {0, 1}), f"{piece!r} stands {counts} times"
    run = LuaRunner.run

    @cache
    def edited(shipped: Script) -> Script:
        text = shipped.text
        for piece, instead in edits:
            text = text.replace(piece, instead)
        return replace(shipped, text=text, sha=sha1(text.encode()).hexdigest())

    monkeypatch.setattr(
        LuaRunner,
        "run",
        lambda self, commands, shipped, *rest: run(self, commands, edited(shipped), *rest),
    )


def plant_at_the_beginning(monkeypatch: pytest.MonkeyPatch, function: str, instead: str) -> None:
    """Have a function do something else first, such as ``return``.

    Args:
        function: its name and parameters, as after ``local function``.
    """
    head = f"local function {function}\n"
    plant(monkeypatch, (head, f"{head}do {instead} end\n"))
