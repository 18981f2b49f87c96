"""Bars, flows and lines."""

from __future__ import annotations

import re
from xml.etree import ElementTree as ET

import pytest

from hashring.drawing.charts import bar_chart, flow_chart, line_chart
from hashring.drawing.node_colors import PALETTE, node_colors

HOSTILE = "\"><script>alert('&')</script>"
BARS = [("a", 0.5, 0.25), (HOSTILE, 0.25, None), ("c", 0.0, 0.25)]
FLOWS = [("a", "b", 30.0), ("a", HOSTILE, 10.0), ("b", HOSTILE, 20.0)]
LINES = [
    ("random", [(16.0, 1.4, 1.8), (64.0, 1.2, 1.3)]),
    (HOSTILE, [(16.0, 1.1, 1.1), (64.0, 1.1, 1.2)]),
]
CHARTS = {
    "bars": bar_chart(HOSTILE, BARS),
    "flows": flow_chart(HOSTILE, FLOWS, ["a", "b", HOSTILE]),
    "lines": line_chart(HOSTILE, LINES, "replicas", "peak"),
}


def sizes(svg: str, tag: str, name: str) -> list[float]:
    return [float(each.get(name, "nan")) for each in ET.fromstring(svg).iter(tag)]


@pytest.mark.parametrize("svg", CHARTS.values(), ids=CHARTS)
def test_it_is_one_element_with_a_label_and_names_are_text(svg: str) -> None:
    chart = ET.fromstring(svg)
    assert (chart.tag, chart.get("role"), chart.get("aria-label")) == ("svg", "img", HOSTILE)
    assert list(chart.iter("script")) == []
    assert "<script>" in "".join(chart.itertext())


@pytest.mark.parametrize("svg", CHARTS.values(), ids=CHARTS)
def test_what_is_shown_has_the_colours_of_the_palette(svg: str) -> None:
    filled = set(re.findall(r'fill[=:]"?(#[0-9a-f]{6})', svg))
    assert filled
    assert filled <= set(PALETTE)


def test_bars_are_as_long_as_their_values() -> None:
    first, second, third = sizes(CHARTS["bars"], "rect", "width")
    assert (second / first, third) == (pytest.approx(0.5, abs=0.01), 0)


def test_what_leaves_the_left_column_arrives_in_the_right_one() -> None:
    heights = sizes(CHARTS["flows"], "rect", "height")
    assert heights[0] / heights[1] == pytest.approx(40 / 20, rel=0.01)  # from a, from b
    assert sum(heights[:2]) == pytest.approx(sum(heights[2:]), rel=0.05)


def test_a_node_s_flows_have_its_colour_in_a_picture_of_the_ring() -> None:
    colors = node_colors(["a", "b", HOSTILE])
    ribbons = [each.get("fill") for each in ET.fromstring(CHARTS["flows"]).iter("path")]
    assert ribbons == [PALETTE[colors[name]] for name in ("a", "a", "b")]
