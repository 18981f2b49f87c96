"""The documentation draws the ways through the code that a key and a change go, and all rooms."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from types import FrameType

import pytest

import hashring
from hashring import RingNode
from hashring.store.memory_store import MemoryStore
from tests.conftest import ROOT, eventually
from tests.unit.script_modules import of_scripts

PACKAGE = Path(hashring.__file__).parent
IN_MEMORY = {
    "monkey_patching.py",
    "store/memory_commands.py",
    "store/memory_lua.py",
    "store/memory_store.py",
    "store/memory_subscription.py",
}
READ_ONCE = ("store/lua_scripts.py",)
JOINS = 10
QUIET = 0.1  # seconds


PICTURES = of_scripts("pictures")


class Passed:
    """Notes the file of each call of a function of the package."""

    def __init__(self) -> None:
        self.in_turn: list[str] = []

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        path = Path(frame.f_code.co_filename)
        if event == "call" and path.is_relative_to(PACKAGE):
            self.in_turn.append(path.relative_to(PACKAGE).as_posix())

    @property
    def files(self) -> set[str]:
        """Each of them once."""
        return set(self.in_turn[:])

    def goes(self, way: Iterable[str]) -> bool:
        """Whether one file of a way was passed after the other, with others between them."""
        left = iter(self.in_turn[:])
        return all(file in left for file in way if file != "store/redis_store.py")


def _drawn(way: Iterable[str], beside: Iterable[str]) -> set[str]:
    """What is passed where a server in memory is in the place of Redis."""
    return {*way, *beside} - {"store/redis_store.py"}


def test_the_first_question_about_a_locked_key_passes_the_files_that_are_drawn() -> None:
    node = RingNode(MemoryStore(), "accounts", lock=True)
    node.heartbeat()
    passed = Passed()
    sys.setprofile(passed)
    try:
        held = node.contains("k")
    finally:
        sys.setprofile(None)
    assert held
    drawn = _drawn(PICTURES.CONTAINS_WAY, PICTURES.CONTAINS_BESIDE)
    assert passed.files - {*IN_MEMORY, *READ_ONCE} == drawn
    assert passed.goes(PICTURES.CONTAINS_WAY)
    assert len(PICTURES.CONTAINS_WAY) <= 6
    node.stop()


@pytest.mark.parametrize("way", ["contains", "change", "handoff"])
def test_who_cannot_see_a_picture_of_a_way_reads_the_names_of_its_files(way: str) -> None:
    page = (ROOT / "docs" / "explanation" / "architecture.rst").read_text()
    _, _, said = page.partition(f"/_pictures/{way}_way.svg\n   :alt: ")
    files = said.partition("\n")[0].partition(": ")[2].split(", ")
    assert files == [Path(file).stem for file in getattr(PICTURES, f"{way.upper()}_WAY")]


def test_a_message_of_a_change_passes_the_files_that_are_drawn() -> None:
    store, passed = MemoryStore(), Passed()
    node = RingNode(store, "accounts")
    threading.setprofile(passed)
    try:
        node.start()
    finally:
        threading.setprofile(None)  # type: ignore[arg-type]
    drawn = _drawn(PICTURES.CHANGE_WAY, PICTURES.CHANGE_BESIDE)
    for _ in range(JOINS):
        # Beside the message may be what belongs to the start, or a heartbeat: another one then.
        passed.in_turn.clear()
        RingNode(store, "accounts").heartbeat()
        eventually(lambda: drawn <= passed.files, "it is passed on")
        _await_rest(passed)
        files = passed.files - IN_MEMORY
        if files == drawn:
            break
    node.stop()
    assert files == drawn
    assert passed.goes(PICTURES.CHANGE_WAY)
    assert len(PICTURES.CHANGE_WAY) <= 8


def _await_rest(passed: Passed) -> None:
    """Until no function was called for a while: what follows the message is noted then."""
    before = -1
    while before != len(passed.in_turn):
        before = len(passed.in_turn)
        time.sleep(QUIET)


# --- rooms ----------------------------------------------------------------------------------------


def test_every_room_that_is_drawn_has_a_text_and_every_text_a_room() -> None:
    rooms = [room for layer in PICTURES.layers() for room in layer]
    assert sorted(rooms) == sorted(PICTURES.ABOUT)
    drawn = PICTURES.rooms()
    for room, about in PICTURES.ABOUT.items():
        assert f">{room}</text>" in drawn
        assert f">{about}</text>" in drawn
