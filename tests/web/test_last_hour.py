"""The last hour: samples, counts, and the charts of them."""

from __future__ import annotations

import re
import threading
from typing import Any

import pytest
from redis import Redis

from hashring import PartitionGroup
from hashring.drawing.charts import small_chart
from hashring.errors import ConfigError
from hashring.web.address_checks import check_grafana
from hashring.web.last_hour import SAMPLES, SPAN, LastHour, counted_spans, differences
from tests.conftest import PATIENCE, eventually
from tests.web.conftest import Visit, nodes_on, put

pytestmark = pytest.mark.one_server

NOW = 1_000_000 * SPAN + 7


def test_a_sample_has_the_worst_of_its_time() -> None:
    hour = LastHour(min, max)
    for at, nodes, unserved in ((0, 3, 0), (1, 1, 0), (2, 3, 5), (3, 3, 0)):
        hour.add(NOW + at, nodes, unserved)
    assert [track[-1] for track in hour.tracks(NOW)] == [1, 5]
    assert [track[:-1] for track in hour.tracks(NOW)] == [[None] * (SAMPLES - 1)] * 2


def test_what_was_not_seen_and_what_is_over_is_not_known() -> None:
    hour = LastHour(min)
    for number in range(3 * SAMPLES):
        if number % 2:
            hour.add(NOW + number * SPAN, number)
    [track] = hour.tracks(NOW + (3 * SAMPLES - 1) * SPAN)
    assert track[-4:] == [None, 3 * SAMPLES - 3, None, 3 * SAMPLES - 1]
    assert len(track) == SAMPLES
    # An hour after the last sample there is none.
    assert hour.tracks(NOW + 4 * SAMPLES * SPAN) == [[None] * SAMPLES]
    # A clock that goes back is another Redis.
    hour.add(NOW, 1.0)
    assert hour.tracks(NOW)[0][-2:] == [None, 1.0]


def test_events_are_counted_where_they_are_known() -> None:
    counts = counted_spans([NOW, NOW - 1, NOW - SPAN, NOW - 2 * SAMPLES * SPAN], NOW)
    assert counts[-3:] == [0, 1, 2]
    assert counts[0] == 0
    since = counted_spans([NOW], NOW, since=NOW - SPAN)
    assert since == [None] * (SAMPLES - 2) + [0, 1]
    assert counted_spans([], NOW, since=NOW - 2 * SAMPLES * SPAN) == [0.0] * SAMPLES


def test_a_counter_s_growth() -> None:
    assert differences([None, 5, None, 7, 7, 1, 2]) == [None, None, None, 2, 0, 0, 1]


def paths(svg: str) -> dict[str, str]:
    return dict(re.findall(r'<path class="hr-(\w+)[^"]*"[^>]* d="([^"]*)"', svg))


@pytest.mark.parametrize(
    ("values", "bars", "line"),
    [
        ([0, 2, 2, 2, 1], False, "M0 34H1V2H4V18H5"),
        ([None, 4, None, 4], False, "M1 2H2M3 2H4"),
        ([0, 2, 0, 0, 1], True, "M1 2H2M4 18H5"),
        ([], False, ""),
        ([None, None], False, ""),
    ],
)
def test_a_small_chart_steps_from_value_to_value(values: Any, bars: bool, line: str) -> None:
    assert paths(small_chart("x", values, bars=bars))["line"] == line


def test_a_small_chart_marks_places_and_escapes_its_label() -> None:
    svg = small_chart('<a b="c">', [1, 1, 1], marks=[("bad", [2, 0, 2])])
    assert "aria-label='&lt;a b=\"c\"&gt;'" in svg
    assert paths(svg)["marks"] == "M0.5 35v5M2.5 35v5"


def test_a_ring_s_page_shows_its_last_hour_with_its_changes(redis: Redis, visit: Visit) -> None:
    with nodes_on(redis, "ring", "a", "b"):
        visitor = visit(grafana="https://grafana.example/d/hashring?orgId=1")
        eventually(lambda: "Nodes <b>2</b>" in visitor.page("/ring", name="ring"), "two nodes")
        page = visitor.page("/ring", name="ring")
        assert "Changes <b>2</b>" in page
        assert "Keys unserved <b>0</b>" in page
        assert "https://grafana.example/d/hashring?orgId=1&amp;var-ring=ring" in page
    put(redis, "full", 0, ring="ring", told={"ttl": 900, "unserved": 25})
    eventually(
        lambda: "Keys unserved <b>25</b>" in visitor.page("/ring", name="ring"),
        "and keys that nobody serves",
    )


def test_without_a_dashboard_no_page_links_to_one(redis: Redis, visit: Visit) -> None:
    put(redis, "a", 0)
    assert "Grafana" not in visit(rings=["ring"]).page("/ring", name="ring")


@pytest.mark.parametrize(
    "address", ["grafana", "javascript:alert(1)", "//x/y", "ftp://x/", "http://[::1"]
)
def test_an_address_that_is_no_dashboard_s_is_refused(address: str) -> None:
    with pytest.raises(ConfigError, match="dashboard"):
        check_grafana(address)


def test_waits_for_one_member_are_one_line(redis: Redis, visit: Visit) -> None:
    def stays(*_: Any) -> None:
        done.wait(PATIENCE)

    done = threading.Event()
    settings: Any = {"partitions": 600, "rebalance_delay": 0, "handoffs": 200}
    first = PartitionGroup(
        redis, "g", member="m", on_revoked=stays, max_handoff_time=60, **settings
    )
    with first, PartitionGroup(redis, "g", member="n", max_handoff_time=60, **settings):
        visitor = visit()
        eventually(
            lambda: "to let go of partitions " in visitor.page("/group", name="g"), "it waits"
        )
        page = visitor.page("/group", name="g")
        done.set()
        assert page.count("to let go of") == 1
        # So many partitions are one picture of few elements.
        assert 'class="hr-grid"' in page
        assert "<title>m: 600 partitions</title>" in page
