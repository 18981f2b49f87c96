"""The grid of many partitions."""

from __future__ import annotations

import re
from xml.etree import ElementTree as ET

from hypothesis import given
from hypothesis import strategies as st

from hashring.drawing.partition_grid import COLUMNS, partition_grid

SVG = "{http://www.w3.org/2000/svg}"
COLORS = {"a": 0, "b": 1, "c": 2}


def drawn(owners: dict[int, str | None], **options: object) -> ET.Element:
    text = partition_grid(owners, COLORS, **options)  # type: ignore[arg-type]
    return ET.fromstring(text.replace("<svg", f'<svg xmlns="{SVG[1:-1]}"'))


def cells(path: str) -> set[int]:
    """The partitions that strokes cover, from their places alone."""
    found: set[int] = set()
    for x, y, length in re.findall(r"M(\d+) (\d+)h(\d+)", path):
        first = (int(x) - 52) // 10 + int(y) // 10 * COLUMNS
        found |= set(range(first, first + (int(length) + 1) // 10))
    return found


@given(
    st.dictionaries(st.integers(0, 500), st.sampled_from(["a", "b", "c"]), min_size=1, max_size=500)
)
def test_every_partition_is_drawn_once_in_its_owner_s_colour(owners: dict[int, str | None]) -> None:
    picture = drawn(owners)
    by_color = {
        path.get("class", ""): cells(path.get("d", "")) for path in picture.iter(f"{SVG}path")
    }
    for name, color in COLORS.items():
        own = {number for number, owner in owners.items() if owner == name}
        assert by_color.get(f"hr-c{color}", set()) == own


def test_what_is_under_way_is_drawn_over_the_owner_and_told() -> None:
    picture = drawn(
        dict.fromkeys(range(1000), "a") | {7: None},
        moving={1: "b", 2: "b", 3: "c"},
        draining=[999],
    )
    told = [title.text for title in picture.iter(f"{SVG}title")]
    assert told == [
        "a: 999 partitions", "nobody: 1 partition", "to b: 2 partitions", "to c: 1 partition",
    ]  # fmt: skip
    kinds = {path.get("class") for path in picture.iter(f"{SVG}path")}
    assert kinds == {"hr-c0", None, "hr-going", "hr-dot hr-c1", "hr-dot hr-c2", "hr-drain"}
    labels = [text.text for text in picture.iter(f"{SVG}text")]
    assert labels == ["0", "500"]


def test_ten_thousand_partitions_in_turn_are_a_small_text() -> None:
    assert len(partition_grid({n: "abc"[n % 3] for n in range(10_000)}, COLORS)) < 130_000


def test_a_name_is_text_and_nothing_else() -> None:
    name = "\"><script>alert('&')</script>"
    text = partition_grid({0: name}, {name: 3}, moving={0: name}, label=name)
    assert "<script>" not in text
    assert ET.fromstring(text).get("aria-label") == name
