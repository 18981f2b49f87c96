"""``hashring weight``: a node has another weight while it runs."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from redis import Redis

from hashring import RingNode
from tests.cli.conftest import Run, nodes_on, put, until

pytestmark = pytest.mark.one_server


@pytest.fixture
def pair(client: Redis) -> Iterator[list[RingNode]]:
    with nodes_on(client, "alder", "birch") as nodes:
        yield nodes


def has(run: Run, node: str, points: int) -> None:
    def count() -> int:
        told = run("nodes", "--json").json["nodes"]
        return next(each["replicas"] for each in told if each["name"] == node)

    until(lambda: count() == points, f"{node} has {points} points")


def test_a_node_has_the_weight_that_was_ordered_until_its_own_counts_again(
    run: Run, pair: list[RingNode]
) -> None:
    done = run("weight", "alder", "2", "--by", "alice")
    assert done.out == "ring: alder is to have weight 2\n"
    has(run, "alder", 32)
    assert pair[0].weight == 2.0
    assert run("weight", "alder", "2").out == "ring: alder has weight 2\n"
    assert run("weight", "alder", "own").out == "ring: alder is to have its own weight\n"
    has(run, "alder", 16)
    assert run("weight", "alder", "own", "--json").json == {
        "ring": "ring",
        "node": "alder",
        "weight": None,
    }


def test_an_order_is_shown_with_the_nodes_and_in_the_history(
    run: Run, pair: list[RingNode]
) -> None:
    order = run("weight", "alder", "0.5", "--by", "alice", "--json").json["weight"]
    assert (order["weight"], order["by"]) == (0.5, "alice")
    has(run, "alder", 8)
    last = run("nodes").lines[-1]
    assert last.startswith("alder: weight 0.5 since 20")
    assert last.endswith(" by alice")
    assert run("nodes", "--json").json["weights"]["alder"]["weight"] == 0.5
    events = [line.partition("  ")[2].split(", epoch")[0] for line in run("events").lines[2:]]
    assert events == ["weight  alder 0.5 by alice", "join    alder (weight, 8 points"]


@pytest.mark.parametrize("digits", [400, 5000])
def test_an_order_of_a_time_that_cannot_be_hides_no_node(
    client: Redis, run: Run, digits: int
) -> None:
    put(client, "alder", 5)
    written = {"weight": 2, "since": "9" * digits, "by": "nobody"}
    client.hset("{ring}:orders", "alder", json.dumps({"weight": written}))
    assert run("nodes").lines[1].endswith("  alder")
    assert run("nodes", "--json").json["weights"] == {}


def test_a_plan_is_exact_for_a_node_that_gives_points_up(run: Run, pair: list[RingNode]) -> None:
    told = run("weight", "alder", "0.5", "--plan", "--json").json
    assert run("nodes", "--json").json["weights"] == {}
    assert {(flow["from"], flow["to"]) for flow in told["flows"]} == {("alder", "birch")}
    then = {node["name"]: node["after"] for node in told["nodes"]}
    run("weight", "alder", "0.5")
    has(run, "alder", 8)
    until(
        lambda: pair[0].status.share == pytest.approx(then["alder"]), "the share is as was planned"
    )
    assert run("weight", "alder", "0.5", "--plan").out == "nothing moves\n"
    grows = run("weight", "alder", "own", "--plan", "--json").json
    assert {(flow["from"], flow["to"]) for flow in grows["flows"]} == {("birch", "alder")}


def test_an_unknown_node_is_refused_with_names_near_it(run: Run, pair: list[RingNode]) -> None:
    for plan in ((), ("--plan",)):
        assert "did you mean 'alder'" in run("weight", "alter", "2", *plan, status=1).err


@pytest.mark.parametrize("weight", ["0", "-1", "-0.5", "nan", "-inf", "heavy", "1001"])
def test_a_weight_that_is_none_is_refused(run: Run, pair: list[RingNode], weight: str) -> None:
    for plan in ((), ("--plan",)):
        error = run("weight", "alder", weight, *plan, status=2).err
        assert f"weight={weight!r}" in error or f"weight={float(weight)!r}" in error
        assert "give a number above 0" in error
