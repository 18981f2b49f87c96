"""The picture of a ring: its shapes, its colours, and names that are anything but names."""

from __future__ import annotations

import re
from itertools import combinations, pairwise
from math import atan2, hypot, pi
from random import Random
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hashring.core.hashing import RING_SIZE
from hashring.core.ring import Ring
from hashring.drawing.node_colors import (
    DARK_PALETTE,
    PALETTE,
    node_colors,
)
from hashring.drawing.ring_picture import PICTURE_CSS, Mark, ring_colors, ring_picture
from hashring.web.state_signs import SIGN_COLORS
from tests.conftest import ROOT

SVG = "{http://www.w3.org/2000/svg}"
HOSTILE = [
    '<script>alert(1)</script>"',
    "' onload='alert(1)",
    "]]><!-- &amp; &#0;",
    "nul\0 bell\a escape\x1b[2J",
    "right-to-left \u202e override",
    "no character \ufffe",
    "../../etc/passwd",
    "x" * 10_000,
]

random_points = st.lists(st.integers(0, RING_SIZE - 1), min_size=1, max_size=6)
rings = st.dictionaries(
    st.text(st.characters(codec="utf-8"), min_size=1), random_points, max_size=8
)


def ring_of(nodes: int, replicas: int = 16) -> Ring:
    random = Random(nodes)
    return Ring(
        {f"node-{i}": [random.randrange(RING_SIZE) for _ in range(replicas)] for i in range(nodes)}
    )


def drawn(ring: Ring, **options: object) -> ET.Element:
    return ET.fromstring(ring_picture(ring, **options))  # type: ignore[arg-type]


def arcs(picture: ET.Element, kind: str) -> list[tuple[float, float]]:
    """Radius and part of the circle of each arc of a band, from its path alone."""
    return [(radius, length) for radius, _, length in placed(picture, kind)]


def placed(picture: ET.Element, kind: str) -> list[tuple[float, float, float]]:
    """The same with where each begins, in parts of the circle, in between."""
    found = []
    for path in picture.iter(f"{SVG}path"):
        if path.get("class") == kind:
            for piece in path.get("d", "").split("M")[1:]:
                stops = [
                    (float(x), float(y))
                    for x, y in re.findall(r"(-?\d+\.\d+) (-?\d+\.\d+)(?=[AL]|$)", piece)
                ]
                angles = [atan2(x, -y) / (2 * pi) for x, y in stops]
                length = sum((b - a) % 1 for a, b in pairwise(angles))
                found.append((hypot(*stops[0]), angles[0] % 1, length))
    return found


def titles(picture: ET.Element) -> list[str]:
    return [title.text or "" for title in picture.iter(f"{SVG}title")]


# --- shapes -------------------------------------------------------------------------------------


@pytest.mark.parametrize("nodes", [1, 2, 10, 37, 38, 62])
def test_the_arcs_of_each_band_make_the_circle(nodes: int) -> None:
    picture = drawn(ring_of(nodes))
    for kind, radius, gap in (("hr-arc", 273, 1.2), ("hr-share", 215, 1.2)):
        found = arcs(picture, kind)
        assert all(at == pytest.approx(radius, abs=0.1) for at, _ in found)
        total = sum(length for _, length in found)
        # Neighbours that are long enough leave a gap between them; coordinates have two digits.
        least = 1 - len(found) * gap / (2 * pi * radius)
        assert least - 0.01 <= total <= 1.01
    assert len(arcs(picture, "hr-arc")) == nodes * 16
    assert len(arcs(picture, "hr-share")) == nodes


@pytest.mark.parametrize(("nodes", "replicas"), [(63, 16), (200, 128), (1001, 4)])
def test_bands_of_more_than_a_thousand_arcs_have_slices_that_make_the_circle(
    nodes: int, replicas: int
) -> None:
    picture = drawn(ring_of(nodes, replicas))
    found = arcs(picture, "hr-arc")
    assert nodes / 4 < len(found) <= 480
    gaps = len(found) * 1.2 / (2 * pi * 273)
    assert 1 - gaps - 0.01 <= sum(length for _, length in found) <= 1.01
    assert len(arcs(picture, "hr-share")) <= max(nodes, 480)


def test_a_slice_has_the_colour_of_the_node_that_has_most_of_it() -> None:
    # "few" has two of three points of each slice but one, and next to nothing of the ring.
    slice_ = RING_SIZE // 480
    few = [n * slice_ + offset for n in range(1, 480) for offset in (9, 11)]
    ring = Ring({"few": few, "most": [n * slice_ + 13 for n in range(480)], "b": [7]})
    picture = drawn(ring)
    assert {node: bool(count) for node, count in slices_of(picture).items()} == {
        "b": False, "few": False, "most": True,
    }  # fmt: skip


def slices_of(picture: ET.Element) -> dict[str, int]:
    groups = [g for g in picture.iter(f"{SVG}g") if "hr-node" in (g.get("class") or "")]
    return {(g[0].text or "").split(":")[0]: len(arcs(g, "hr-arc")) for g in groups}


@pytest.mark.parametrize("nodes", [200, 1000, 3000])
def test_a_picture_of_many_nodes_is_a_small_text(nodes: int) -> None:
    text = ring_picture(ring_of(nodes), link=lambda node: f"/ring?name=a-ring&node={node}")
    assert len(text) < 90_000


def test_of_very_many_nodes_the_chosen_one_is_drawn_as_it_is_with_its_title() -> None:
    ring = ring_of(300, 4)
    picture = drawn(ring, highlight={"node-7"})
    assert [title.split(":")[0] for title in titles(picture)] == ["Hash ring", "node-7"]
    assert slices_of(picture) == {"node-7": 4}


def test_one_replica_is_the_whole_circle() -> None:
    picture = drawn(Ring({"only": [123]}))
    assert [length for _, length in arcs(picture, "hr-arc")] == [pytest.approx(1, abs=1e-4)]
    assert [length for _, length in arcs(picture, "hr-share")] == [pytest.approx(1, abs=1e-4)]


def test_arcs_are_where_their_points_are() -> None:
    quarter = RING_SIZE // 4
    picture = drawn(Ring({"a": [0], "b": [quarter], "c": [3 * quarter]}))
    found = [(start, length) for _, start, length in placed(picture, "hr-arc")]
    expected = [(0.0, 0.25), (0.25, 0.5), (0.75, 0.25)]
    for arc, (start, length) in zip(found, expected, strict=True):
        assert arc == (pytest.approx(start, abs=0.001), pytest.approx(length, abs=0.001))


def test_shares_follow_each_other_each_as_long_as_the_arcs_of_its_node() -> None:
    ring = ring_of(5, replicas=4)
    before = 0.0
    shares = placed(drawn(ring), "hr-share")
    for (_, start, length), node in zip(shares, ring.nodes, strict=True):
        assert start == pytest.approx(before, abs=0.002)
        assert length == pytest.approx(ring.share(node), abs=0.002)
        before += ring.share(node)


def test_a_ring_whose_replicas_share_one_point_belongs_to_the_last() -> None:
    picture = drawn(Ring({"a": [7], "b": [7]}))
    assert len(arcs(picture, "hr-arc")) == len(arcs(picture, "hr-share")) == 1
    assert "b: 100.00% of the ring, 2.00 times what is fair for its 1 virtual node" in titles(
        picture
    )
    assert "point 7 is shared by a, b; b owns it" in titles(picture)


def test_a_ring_without_nodes_is_drawn_empty() -> None:
    picture = drawn(Ring(), title="accounts", mark=Mark(5, "key"), legend=True)
    assert arcs(picture, "hr-arc") == []
    assert "no nodes" in [text.text for text in picture.iter(f"{SVG}text")]


@given(rings)
def test_any_ring_makes_well_formed_xml_with_an_arc_for_every_range(
    points: dict[str, list[int]],
) -> None:
    ring = Ring(points)
    picture = drawn(ring, title="any", legend=True, style=False)
    places = {point for point, _ in ring.replicas()}
    assert len(arcs(picture, "hr-arc")) == len(places)


def test_equal_rings_make_equal_text() -> None:
    points = {"a": [1, 2], "b": [3]}
    assert ring_picture(Ring(points)) == ring_picture(Ring(dict(reversed(points.items()))))


# --- words --------------------------------------------------------------------------------------


def test_a_picture_says_what_it_is_to_those_who_cannot_see_it() -> None:
    picture = drawn(Ring({"a": [0], "b": [3 * 2**30]}), title="accounts")
    assert picture.get("role") == "img"
    assert picture[0].tag == f"{SVG}title"
    assert picture[0].text == "Hash ring accounts"
    assert picture[1].tag == f"{SVG}desc"
    assert picture[1].text == (
        "A circle of 2 arcs, one for each virtual node, colored by node: 2 nodes. Within it a "
        "circle of the nodes' shares. The greatest load is 1.50 times the mean: a has 75.00% of "
        "the ring."
    )


def test_every_arc_tells_its_node_and_points() -> None:
    told = titles(drawn(Ring({"a": [1000], "b": [2**31]})))
    assert "a: points 1000 to 2147483647, 50.00% of the ring" in told
    assert "b: points 2147483648 to 999, 50.00% of the ring" in told


def test_on_a_large_ring_each_node_tells_of_itself_alone() -> None:
    assert len(titles(drawn(ring_of(200)))) == 1 + 200


@pytest.mark.parametrize("name", HOSTILE)
def test_a_name_is_text_and_nothing_else(name: str) -> None:
    ring = Ring({name: [5, 2**31], "b": [5, 77]})
    text = ring_picture(
        ring, title=name, expired={name: [9]}, mark=Mark(9, name), link=lambda _: name, legend=True
    )
    picture = ET.fromstring(text)
    tags = {element.tag.removeprefix(SVG) for element in picture.iter()}
    assert tags <= {"svg", "title", "desc", "style", "g", "a", "path", "circle", "text"}
    names = {attribute for element in picture.iter() for attribute in element.attrib}
    assert not {attribute for attribute in names if attribute.startswith("on")}
    shown = [title for title in titles(picture) if title]
    assert all(c.isprintable() for title in shown for c in title)
    # The address is the caller's, whole; all else is cut.
    assert len(text.replace("x" * 9_000, "")) < 20_000


def test_a_long_name_is_cut_in_the_legend_and_longer_in_its_title() -> None:
    picture = drawn(Ring({"n" * 100: [1]}), legend=True)
    texts = [text.text for text in picture.iter(f"{SVG}text")]
    assert "n" * 23 + "…" in texts
    assert "n" * 79 + "…" in titles(picture)


# --- facts --------------------------------------------------------------------------------------


def test_a_highlighted_node_stays_and_the_others_fade() -> None:
    picture = drawn(ring_of(4), highlight={"node-2"})
    groups = [g for g in picture.iter(f"{SVG}g") if "hr-node" in (g.get("class") or "")]
    bright = [g for g in groups if g.get("opacity") is None]
    assert len(groups) == 4
    assert [(g[0].text or "").split(":")[0] for g in bright] == ["node-2"]


def test_a_mark_says_who_owns_its_point() -> None:
    assert "hello: point 907060870, owned by a" in titles(
        drawn(Ring({"a": [1]}), mark=Mark(907060870, "hello"))
    )


def test_an_expired_node_is_dashes_that_say_so() -> None:
    picture = drawn(ring_of(2), expired={"gone": [1, 2]})
    assert "gone: expired, owns nothing" in titles(picture)


def test_links_are_out_of_the_way_of_the_keyboard() -> None:
    picture = drawn(ring_of(3), link=lambda node: f"/nodes/{node}?a=1&b=2")
    links = list(picture.iter(f"{SVG}a"))
    assert [link.get("href") for link in links] == [f"/nodes/node-{i}?a=1&b=2" for i in range(3)]
    assert {link.get("tabindex") for link in links} == {"-1"}


def test_without_a_style_of_its_own_it_is_for_the_page_to_style() -> None:
    assert "<style>" not in ring_picture(ring_of(2), style=False)
    assert f"<style>{PICTURE_CSS}" in ring_picture(ring_of(2))


# --- colours ------------------------------------------------------------------------------------


@pytest.mark.parametrize("nodes", range(1, 17))
def test_up_to_sixteen_nodes_differ_in_colour(nodes: int) -> None:
    colors = node_colors(f"web-{i}:{4000 + i}" for i in range(nodes))
    assert len(set(colors.values())) == nodes


def test_of_many_nodes_no_colour_has_more_than_its_part() -> None:
    colors = list(node_colors(f"n{i}" for i in range(200)).values())
    assert max(colors.count(color) for color in range(16)) <= 13


def test_colours_depend_on_nothing_but_the_names() -> None:
    names = [f"n{i}" for i in range(12)]
    assert node_colors(names) == node_colors(reversed(names))


def test_a_node_that_joins_or_leaves_changes_few_other_colours() -> None:
    names = [f"web-{i}" for i in range(11)]
    changed = 0
    for gone in names:
        with_it = node_colors(names)
        without = node_colors(name for name in names if name != gone)
        changed += sum(with_it[name] != color for name, color in without.items())
    assert changed <= len(names)  # one of the ten others a change, at most, on average


def test_kept_colours_stay_whoever_joins() -> None:
    kept = node_colors(f"n{i}" for i in range(10))
    after = node_colors([f"n{i}" for i in range(30)], kept)
    assert {name: after[name] for name in kept} == kept
    assert node_colors([f"n{i}" for i in range(2, 40)], after)["n29"] == after["n29"]


def test_a_kept_colour_that_is_none_is_chosen_anew() -> None:
    assert node_colors(["a"], {"a": 99}) == node_colors(["a"])


def touching(picture: ET.Element) -> list[tuple[str, str]]:
    """The colours on both sides of each place where two nodes' arcs touch."""
    found = []
    for kind in ("hr-arc", "hr-share"):
        pieces = [
            (start, length, g.get("class", "").split("hr-c")[1].split()[0], id(g))
            for g in picture.iter(f"{SVG}g")
            if "hr-c" in (g.get("class") or "")
            for _, start, length in placed(g, kind)
        ]
        pieces.sort()
        pairs = zip(pieces, [*pieces[1:], *pieces[:1]], strict=True)
        found += [(a[2], b[2]) for a, b in pairs if a[3] != b[3]]
    return found


@pytest.mark.parametrize(
    ("nodes", "replicas"), [(17, 16), (40, 16), (62, 16), (200, 16), (200, 128)]
)
def test_nodes_that_touch_differ_in_colour(nodes: int, replicas: int) -> None:
    pairs = touching(drawn(ring_of(nodes, replicas)))
    assert len(pairs) > nodes
    assert [pair for pair in pairs if pair[0] == pair[1]] == []


def test_where_more_nodes_touch_than_there_are_colours_a_line_parts_them() -> None:
    # Each of 17 nodes touches each other one.
    picture = drawn(ring_of(17, 58))
    alike = [pair for pair in touching(picture) if pair[0] == pair[1]]
    [seams] = [path for path in picture.iter(f"{SVG}path") if path.get("class") == "hr-seam"]
    assert seams.get("d", "").count("M") == len(alike) > 0


def test_colours_of_a_ring_are_kept_but_where_a_new_neighbour_has_the_same() -> None:
    ring = ring_of(60)
    kept = ring_colors(ring)
    joined = ring.with_node("new", [5, 2**31])
    after = ring_colors(joined, kept)
    assert {node: after[node] for node in kept} == kept


# What each kind of colour-blind eye sees, in linear RGB: Machado, Oliveira and Fernandes (2009),
# severity 1.
EYES = {
    "full colour": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protanopia": (
        (0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216),
        (-0.003882, -0.048116, 1.051998),
    ),
    "deuteranopia": (
        (0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413),
        (-0.011820, 0.042940, 0.968881),
    ),
    "tritanopia": (
        (1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602),
        (0.004733, 0.691367, 0.303900),
    ),
}  # fmt: skip


def linear(color: str) -> list[float]:
    values = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    return [v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in values]


def times(matrix: tuple[tuple[float, ...], ...], vector: list[float]) -> list[float]:
    return [sum(a * b for a, b in zip(row, vector, strict=True)) for row in matrix]


def oklab(rgb: list[float]) -> list[float]:
    to_lms = (
        (0.4122214708, 0.5363325363, 0.0514459929), (0.2119034982, 0.6806995451, 0.1073969566),
        (0.0883024619, 0.2817188376, 0.6299787005),
    )  # fmt: skip
    to_lab = (
        (0.2104542553, 0.7936177850, -0.0040720468), (1.9779984951, -2.4285922050, 0.4505937099),
        (0.0259040371, 0.7827717662, -0.8086757660),
    )  # fmt: skip
    return times(to_lab, [max(v, 0) ** (1 / 3) for v in times(to_lms, rgb)])


GROUNDS = {"light": ("#ffffff", PALETTE), "dark": ("#111418", DARK_PALETTE)}


def seen_by(eye: str, color: str) -> list[float]:
    return oklab([min(1, max(0, v)) for v in times(EYES[eye], linear(color))])


def apart(eye: str, one: str, other: str) -> float:
    pairs = zip(seen_by(eye, one), seen_by(eye, other), strict=True)
    return float(sum((x - y) ** 2 for x, y in pairs) ** 0.5)


@pytest.mark.parametrize("scheme", GROUNDS)
@pytest.mark.parametrize("eye", EYES)
def test_any_two_colours_differ_to_any_eye(eye: str, scheme: str) -> None:
    assert min(apart(eye, a, b) for a, b in combinations(GROUNDS[scheme][1], 2)) > 0.08


def contrast(color: str, ground: str) -> float:
    low, high = sorted(
        sum(w * v for w, v in zip((0.2126, 0.7152, 0.0722), linear(each), strict=True))
        for each in (color, ground)
    )
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("scheme", GROUNDS)
def test_every_colour_has_a_contrast_of_three_to_one(scheme: str) -> None:
    ground, palette = GROUNDS[scheme]
    for color in (*palette, *SIGN_COLORS.values()):
        assert contrast(color, ground) >= 3, color


@pytest.mark.parametrize(("place", "scheme"), [(0, "light"), (1, "dark")])
def test_no_node_has_the_colour_of_a_state(place: int, scheme: str) -> None:
    css = (ROOT / "hashring" / "web" / "static" / "page.css").read_text()
    for name in ("bad", "warn", "good"):
        state = re.findall(rf"--{name}: (#[0-9a-f]{{6}});", css)[place]
        assert min(apart("full colour", state, color) for color in GROUNDS[scheme][1]) > 0.09
