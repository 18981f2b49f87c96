"""``hashring plan``: what would move, and nothing does."""

from __future__ import annotations

import pytest
from redis import Redis

from hashring.core.hashing import RING_SIZE
from tests.cli.conftest import SESSION, Run, put

QUARTER = RING_SIZE // 4


@pytest.fixture(autouse=True)
def four_nodes(client: Redis) -> None:
    for number, name in enumerate("abcd"):
        put(client, name, number * QUARTER, told={"weight": 1.0})


def test_a_plan_says_what_moves_from_whom_to_whom_and_how_even_it_is_then(run: Run) -> None:
    assert run("plan", "--leave", "b", "--leave", "d").lines == [
        "50.00% of the ring moves; with exactly fair shares it would be 50.00%",
        "busiest node: 1.00 times its fair share now, 1.00 times then",
        "",
        " Moves  From      To",
        "25.00%     b  ->  a",
        "25.00%     d  ->  c",
        "",
        "   Now    Then    Fair  Node",
        "25.00%  50.00%  50.00%  a",
        "25.00%   0.00%   0.00%  b",
        "25.00%  50.00%  50.00%  c",
        "25.00%   0.00%   0.00%  d",
    ]


def test_a_plan_as_json_has_everything(run: Run) -> None:
    told = run("plan", "--leave", "b", "--json").json
    assert told["ring"] == "ring"
    assert told["moved"] == 0.25
    assert told["flows"] == [{"from": "b", "to": "a", "part": 0.25}]
    assert {node["name"]: node["after"] for node in told["nodes"]} == {"a": 0.5, "b": 0.0}
    assert told["before"]["peak_to_mean"] == 1.0
    assert told["after"]["peak_to_mean"] == pytest.approx(1.5)


def test_a_plan_changes_nothing(client: Redis, run: Run) -> None:
    before = client.zrange("ring", 0, -1, withscores=True)
    run("plan", "--leave", "a", "--join", "e")
    assert client.zrange("ring", 0, -1, withscores=True) == before
    assert set(client.keys()) == {b"{ring}:nodes", b"ring"}


@pytest.mark.parametrize("joiner", ["e:2", "e=2"])
def test_a_joiner_of_weight_two_has_twice_the_points_of_the_others(run: Run, joiner: str) -> None:
    told = run("plan", "--join", joiner, "--json").json
    (found,) = (node for node in told["nodes"] if node["name"] == "e")
    assert found["fair"] == pytest.approx(2 / 6)
    assert run("plan", "--join", joiner, "--json").json == told


def test_a_greater_weight_takes_from_the_others(run: Run) -> None:
    told = run("plan", "--weight", "a=3", "--json").json
    assert {flow["to"] for flow in told["flows"]} == {"a"}


@pytest.mark.parametrize("weight", ["1", "2", "0.5"])
def test_a_plan_of_a_weight_is_what_the_order_about_it_shows(
    client: Redis, run: Run, weight: str
) -> None:
    told = {"weight": 1.0, "n_replicas": 64}
    put(client, "fat", *range(RING_SIZE // 128, RING_SIZE, RING_SIZE // 64), told=told)
    planned = run("plan", "--weight", f"fat={weight}", "--json").json
    assert planned == run("weight", "fat", weight, "--plan", "--json").json
    assert bool(planned["moved"]) == (weight != "1")


def drained(client: Redis, node: str) -> None:
    """Write a node by hand that obeys an order to drain."""
    client.zadd("{ring}:drained", {node: client.time()[0] + 60})
    client.hset("{ring}:nodes", node, SESSION + "{}")


@pytest.mark.parametrize("option", [("--leave", "idle"), ("--weight", "idle=2")])
@pytest.mark.parametrize("how", ["expired", "drained"])
def test_nothing_moves_with_a_node_that_owns_nothing(
    client: Redis, run: Run, how: str, option: tuple[str, str]
) -> None:
    if how == "drained":
        drained(client, "idle")
    else:
        put(client, "idle", 1, 2, expires_in=-5)
    assert "idle" in run("nodes").out
    assert run("plan", *option).out == "nothing moves: idle owns nothing now\n"
    assert run("plan", *option, "--json").json["flows"] == []
    first, *plan = run("plan", *option, "--leave", "b").lines
    assert first == "idle owns nothing now"
    assert plan == run("plan", "--leave", "b").lines


@pytest.mark.parametrize("option", [("--join", "idle"), ("--weight", "idle=2")])
def test_a_node_that_owns_nothing_has_one_change_in_a_plan(
    client: Redis, run: Run, option: tuple[str, str]
) -> None:
    put(client, "idle", 1, expires_in=-5)
    done = run("plan", "--leave", "idle", *option, status=2)
    assert "leave='idle': cannot join or get a weight in the same plan" in done.err


def test_a_drained_node_gets_no_weight_that_it_may_not_have(client: Redis, run: Run) -> None:
    drained(client, "idle")
    done = run("plan", "--weight", "idle=1001", status=2)
    assert "weight=1001.0: give a number above 0, 1000 at most" in done.err


def test_several_nodes_that_own_nothing_may_leave_a_ring_without_owners(
    client: Redis, run: Run
) -> None:
    client.delete("ring", "{ring}:nodes")
    drained(client, "evil\x1b")
    put(client, "gone", 1, expires_in=-5)
    lines = run("plan", "--leave", "gone", "--leave", "evil\x1b").lines
    assert lines == ["nothing moves: evil\\x1b, gone own nothing now"]


def test_a_node_that_joins_an_empty_ring_has_no_busiest_node_before_it(
    client: Redis, run: Run
) -> None:
    client.delete("ring", "{ring}:nodes")
    assert run("plan", "--join", "x").lines[1] == "busiest node: 1.00 times its fair share then"


@pytest.mark.parametrize(
    ("options", "status", "message"),
    [
        ((), 2, "say what changes: --join, --leave or --weight"),
        (("--leave", "z"), 1, "node 'z' is not on this ring; list its nodes"),
        (("--leave", "aa"), 1, "node 'aa' is not on this ring; did you mean 'a'?"),
        (("--leave", "a", "--leave", "b", "--leave", "c", "--leave", "d"), 1, "no node would be"),
        (("--join", "host:4711"), 2, "may be a name that ends in 4711, or a weight: give host:4"),
        (("--join", "e:2", "--join", "e"), 2, "names a node twice"),
        (("--join", "a"), 2, "join='a': is on the ring already: give it another name"),
        (("--weight", "a"), 2, "weight='a': give NODE=WEIGHT, such as worker-3=2"),
        (("--weight", "5"), 2, "weight='5': give NODE=WEIGHT, such as worker-3=2"),
        (("--weight", "=5"), 2, "weight='=5': give NODE=WEIGHT, such as worker-3=2"),
        (("--join", "x="), 2, "join='x=': give NAME=WEIGHT, such as worker-9=2"),
        (("--join", "=2"), 2, "join='=2': give NAME=WEIGHT, such as worker-9=2"),
        (
            ("--join", "x=-1"),
            2,
            "of node 'x' is no weight: give a number above 0 and below 1000000; 1 is an ordinary",
        ),
        (
            ("--weight", "a=0"),
            2,
            "weights=0.0: of node 'a' is no weight: give a number above 0, 1000 at most; 1 is an",
        ),
        (("--weight", "a=100000"), 2, "of node 'a' is too much: 1000 at most"),
        (("--weight", "a=nan"), 2, "weights=nan: of node 'a' is no weight"),
        (("--leave", "a", "--n-replicas", "4"), 2, "--n-replicas: it is for nodes that get points"),
        (("--leave", "a", "--placement", "random"), 2, "--placement: it is for nodes that get"),
        (
            ("--weight", "a=2", "--n-replicas", "4"),
            2,
            "--n-replicas: it is for nodes that get points",
        ),
        (
            ("--weight", "a=2", "--placement", "balanced"),
            2,
            "--placement: it is for nodes that get",
        ),
        (("--weight", "a=1", "--weight", "a=2"), 2, "weight=('a=1', 'a=2'): names a node twice"),
    ],
)
def test_a_mistake_is_reported_in_one_line(
    run: Run, options: tuple[str, ...], status: int, message: str
) -> None:
    assert message in run("plan", *options, status=status).err
