"""The plot of a ring's balance."""

from __future__ import annotations

import re
from random import Random
from xml.etree import ElementTree as ET

import pytest

from hashring.core.hashing import RING_SIZE
from hashring.core.ring import Ring
from hashring.drawing.balance_plot import balance_plot

SVG = "{http://www.w3.org/2000/svg}"


def ring_of(nodes: int) -> Ring:
    random = Random(nodes)
    return Ring({f"n{i}": [random.randrange(RING_SIZE) for _ in range(16)] for i in range(nodes)})


def dots(picture: ET.Element) -> list[tuple[float, float, str]]:
    found = []
    for path in picture.iter(f"{SVG}path"):
        if "hr-dot" in path.get("class", ""):
            x, y = re.findall(r"[\d.]+", path.get("d", ""))[:2]
            found.append((float(x), float(y), path[0].text or ""))
    return found


@pytest.mark.parametrize("nodes", [1, 2, 10, 200])
def test_a_dot_a_node_rising_from_left_to_right_within_the_picture(nodes: int) -> None:
    picture = ET.fromstring(balance_plot(ring_of(nodes)))
    _, _, width, height = map(float, (picture.get("viewBox") or "").split())
    found = dots(picture)
    assert len(found) == nodes
    assert [x for x, _, _ in found] == sorted(x for x, _, _ in found)
    assert [y for _, y, _ in found] == sorted((y for _, y, _ in found), reverse=True)
    assert all(0 < x < width and 0 < y < height for x, y, _ in found)


def test_it_says_what_it_shows_to_those_who_cannot_see_it() -> None:
    picture = ET.fromstring(balance_plot(Ring({"b": [0], "a": [3 * 2**30]}), title="accounts"))
    assert picture.get("role") == "img"
    assert picture[0].text == "Balance of ring accounts"
    assert picture[1].text == (
        "2 nodes, 2 virtual nodes: peak 1.50 times the mean, variation 50%. Dashed: as many random "
        "points on average (peak 1.50, variation 58%). Band: nine of ten random rings."
    )
    assert dots(picture)[0][2].startswith("a: 0.50 times its fair share; expected 0.50, nine of ")


def test_a_ring_without_nodes_says_so() -> None:
    assert "no nodes" in [text.text for text in ET.fromstring(balance_plot(Ring())).iter()]


@pytest.mark.parametrize("name", ["<script>x</script>", '" onload="x', "a\0b\x1b", "x" * 10_000])
def test_a_name_is_text_and_nothing_else(name: str) -> None:
    text = balance_plot(Ring({name: [1], "b": [2**31]}), title=name)
    tags = {element.tag.removeprefix(SVG) for element in ET.fromstring(text).iter()}
    assert tags == {"svg", "title", "desc", "style", "g", "text", "path"}
    assert len(text) < 10_000
