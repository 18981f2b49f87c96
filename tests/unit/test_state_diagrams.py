"""Every table of states is drawn, and the drawings can be read."""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Iterator
from enum import Enum
from itertools import combinations
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hashring.core.state_table import StateTable
from tests.conftest import ROOT
from tests.unit.script_modules import of_scripts

PICTURES = of_scripts("pictures")
DIAGRAMS = of_scripts("state_diagrams")
DRAWN: tuple[str, ...] = PICTURES.STATE_TABLES
CHARACTER = 5.8
"""Pixels: the usual width of one at this size."""


def _tables() -> Iterator[StateTable[Any, Any]]:
    """All tables of the core, of machines and of nodes."""
    for room in ("core", "protocol", "node"):
        folder = importlib.import_module(f"hashring.{room}")
        for found in pkgutil.walk_packages(folder.__path__, f"{folder.__name__}."):
            module = importlib.import_module(found.name)
            yield from (each for each in vars(module).values() if isinstance(each, StateTable))


def test_every_table_is_drawn_and_on_one_page() -> None:
    drawn = {id(pkgutil.resolve_name(name)) for name in DRAWN}
    assert {id(table) for table in _tables()} == drawn
    pages = "".join(page.read_text("utf-8") for page in (ROOT / "docs").rglob("*.rst"))
    assert sorted(re.findall(r"^\.\. states:: (.*)$", pages, re.MULTILINE)) == sorted(DRAWN)


def test_tables_are_only_in_the_package_where_they_are_looked_for() -> None:
    for file in (ROOT / "hashring").rglob("*.py"):
        if re.search(r"^\w+.* = StateTable\(", file.read_text("utf-8"), re.MULTILINE):
            assert file.relative_to(ROOT / "hashring").parts[0] in ("core", "protocol", "node")


# --- what is drawn --------------------------------------------------------------------------------

Box = tuple[float, float, float, float]


class Drawing:
    """The boxes of words, and the straight lines, of a diagram."""

    def __init__(self, table: StateTable[Any, Any]) -> None:
        self.svg = DIAGRAMS.diagram(table)
        picture = ElementTree.fromstring(self.svg)
        self.width, self.height = (float(picture.attrib[name]) for name in ("width", "height"))
        self.words: list[tuple[str, Box]] = []
        self.lines: list[Box] = []
        self.heads = 0
        for each in picture:
            kind = each.tag.rpartition("}")[2]
            if kind == "text" and each.attrib["class"] == "small":
                self.words.append((each.text or "", _room(each)))
            elif kind == "path" and each.attrib["class"].endswith("way"):
                self.lines += _lines(each.attrib["d"])
            elif kind == "path":
                self.heads += 1

    def faults(self) -> list[str]:
        """Where words cannot be read."""
        found = [
            f"{a!r} over {b!r}" for (a, x), (b, y) in combinations(self.words, 2) if _meet(x, y)
        ]
        found += [f"a line through {a!r}" for a, x in self.words for y in self.lines if _meet(x, y)]
        for words, (left, top, right, bottom) in self.words:
            if left < 0 or top < 0 or right > self.width or bottom > self.height:
                found.append(f"{words!r} outside")
        return found


def _room(text: ElementTree.Element) -> Box:
    x, y = float(text.attrib["x"]), float(text.attrib["y"])
    width = CHARACTER * len(text.text or "")
    left = x if text.attrib["text-anchor"] == "start" else x - width
    return left, y - 9, left + width, y + 2


def _lines(path: str) -> Iterator[Box]:
    """The straight parts of a path; its turns and its loops at a box are small."""
    x = y = 0.0
    for letter, numbers in re.findall(r"([MHVhqal])([-\d., ]*)", path):
        given = [float(number) for number in re.findall(r"-?[\d.]+", numbers)]
        before = x, y
        match letter:
            case "M":
                x, y = given
                continue
            case "H":
                x = given[0]
            case "V":
                y = given[0]
            case "h":
                x += given[0]
            case _:
                x, y = x + given[-2], y + given[-1]
        yield min(x, before[0]), min(y, before[1]), max(x, before[0]), max(y, before[1])


def _meet(a: Box, b: Box) -> bool:
    """Whether two boxes have a part in common; a line is a box without width or height."""
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


@pytest.mark.parametrize("name", DRAWN)
def test_a_diagram_has_every_state_and_every_event(name: str) -> None:
    table: StateTable[Any, Any] = pkgutil.resolve_name(name)
    drawing = Drawing(table)
    for state in table.meanings:
        assert f'class="strong">{state.value}</text>' in drawing.svg
    events = [event for words, _ in drawing.words for event in re.split(", (?!and|to)", words)]
    assert sorted(events) == sorted(event.value for _, event, _ in table)
    assert drawing.heads == len(drawing.words)


@pytest.mark.parametrize("name", DRAWN)
def test_the_words_of_a_diagram_can_be_read(name: str) -> None:
    assert Drawing(pkgutil.resolve_name(name)).faults() == []


STATES = Enum("STATES", {f"S{n}": f"state {n}" for n in range(12)})  # type: ignore[misc]
EVENTS = Enum("EVENTS", {f"E{n}": "e" * (n + 1) for n in range(30)})  # type: ignore[misc]


@given(
    st.dictionaries(
        st.sampled_from(list(STATES)),
        st.dictionaries(st.sampled_from(list(EVENTS)), st.sampled_from(list(STATES)), max_size=12),
    )
)
def test_the_words_of_any_tables_diagram_can_be_read(ways: Any) -> None:
    assert Drawing(StateTable(dict.fromkeys(STATES, ""), ways)).faults() == []


def test_a_line_through_a_word_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DIAGRAMS, "_CHARACTER", 2.0)
    table = pkgutil.resolve_name(DRAWN[0])
    assert any("a line through" in fault for fault in Drawing(table).faults())
