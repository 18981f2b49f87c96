"""``hashring drain`` and ``undrain``: a node runs and owns nothing, until somebody lifts it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from redis import Redis

from hashring import RingNode
from hashring.cli.common_options import Settings
from hashring.cli.connection import connected
from hashring.errors import RedisUnavailable
from hashring.protocol.node.node_states import NodeState
from hashring.store.embedded_server import RedisServer
from hashring.store.ring.node_orders import drain
from tests.cli.conftest import Run, nodes_on, put, until
from tests.proxy import Proxy

pytestmark = pytest.mark.one_server


@pytest.fixture
def pair(client: Redis) -> Iterator[list[RingNode]]:
    with nodes_on(client, "alder", "birch", lock=True) as nodes:
        yield nodes


def drained(node: RingNode) -> None:
    until(lambda: node.state is NodeState.DRAINED, "the node is drained")


def test_a_drained_node_owns_nothing_until_the_order_is_lifted(
    run: Run, pair: list[RingNode]
) -> None:
    alder, birch = pair
    done = run("drain", "alder", "--by", "alice")
    assert done.out == "ring: alder is to drain\n"
    drained(alder)
    until(lambda: birch.ring.nodes == ("birch",), "the other node has everything")
    assert run("undrain", "alder").out == "ring: alder is to be on the ring again\n"
    until(lambda: alder.state is NodeState.LIVE, "the node is back")
    assert run("undrain", "alder").out == "ring: alder was not drained\n"


def test_a_drain_is_shown_wherever_nodes_are(run: Run, pair: list[RingNode]) -> None:
    run("drain", "alder", "--by", "alice", "--for", "2h")
    drained(pair[0])
    lines = run("nodes").lines
    assert [line.split()[0] for line in lines[1:3]] == ["100.00%", "drained"]
    assert lines[-1].startswith("alder: drained since 20")
    assert " by alice, until 20" in lines[-1]
    told = run("nodes", "--json").json
    assert [(node["name"], node["drained"]) for node in told["nodes"]] == [
        ("birch", False),
        ("alder", True),
    ]
    assert told["drains"]["alder"]["by"] == "alice"
    assert told["drains"]["alder"]["until"] - told["drains"]["alder"]["since"] == 7200
    checks = {found["check"]: found for found in run("doctor", "--json").json["findings"]}
    assert checks["drains"]["text"] == "1 node drained by order"
    assert checks["entries"]["level"] == "ok"
    assert "drained for more than a day" not in run("status", "--ring", "ring").out


def test_the_history_has_the_orders_and_what_followed(run: Run, pair: list[RingNode]) -> None:
    run("drain", "alder", "--by", "alice", "--for", "90s")
    drained(pair[0])
    run("undrain", "alder", "--by", "bob")
    until(lambda: pair[0].state is NodeState.LIVE, "the node is back")
    events = [line.partition("  ")[2].split(", epoch")[0] for line in run("events").lines[2:]]
    assert events == [
        "drain   alder for 90 s by alice",
        "leave   alder (drained",
        "undrain  alder by bob",
        "join    alder (undrained, 16 points",
    ]
    told = run("events", "--json").json_lines[2]
    assert (told["kind"], told["nodes"], told["by"]) == ("drain", ["alder"], "alice")
    assert told["reason"] == "for 90 s"


def test_a_plan_shows_what_would_move_and_orders_nothing(run: Run, pair: list[RingNode]) -> None:
    share = pair[0].status.share
    told = run("drain", "alder", "--plan", "--json").json
    assert told["flows"] == [{"from": "alder", "to": "birch", "part": pytest.approx(share)}]
    assert run("nodes", "--json").json["drains"] == {}
    run("drain", "alder")
    drained(pair[0])
    told = run("undrain", "alder", "--plan", "--json").json
    assert told["flows"] == [{"from": "birch", "to": "alder", "part": pytest.approx(share)}]
    assert run("drain", "alder", "--plan").out == "nothing moves: alder is not on the ring\n"
    assert run("undrain", "birch", "--plan").out == "nothing moves: birch is not drained\n"
    assert run("drain", "birch", "--plan").out == (
        "nobody would own anything: no node but birch is left\n"
    )


def test_a_plan_gives_nothing_to_a_node_that_stopped_to_come_back(run: Run, client: Redis) -> None:
    with RingNode(client, "ring", name="alder"):
        birch = RingNode(client, "ring", name="birch")
        birch.start()
        birch.stop(stay=True)
        assert run("drain", "alder", "--plan").out == (
            "nobody would own anything: no node but alder is left\n"
        )
        told = run("drain", "alder", "--plan", "--json").json
        assert {flow["to"] for flow in told["flows"]} == {None}
        assert "no other node is left" in run("drain", "alder", status=2).err
        # Beside one that runs it keeps its keys: it may be back before they expire.
        with RingNode(client, "ring", name="cedar"):
            assert {
                flow["to"] for flow in run("drain", "alder", "--plan", "--json").json["flows"]
            } <= {"birch", "cedar"}
            assert "alder is to drain" in run("drain", "alder").out


def test_a_plan_says_whether_the_points_that_come_back_are_known(
    run: Run, pair: list[RingNode], client: Redis
) -> None:
    run("drain", "alder")
    drained(pair[0])
    assert run("undrain", "alder", "--plan", "--json").json["exact"]
    example = "\nan example: Redis does not know the points that nodes will add\n"
    assert not run("undrain", "alder", "--plan").out.endswith(example)
    # It places points for the new weight when it is back.
    run("weight", "alder", "2")
    assert run("undrain", "alder", "--plan").out.endswith(example)
    # The points of a made-up name are known to its process alone.
    with RingNode(client, "ring") as node:
        until(lambda: node.name in run("nodes").out, "the node is on the ring")
        run("drain", node.name)
        drained(node)
        assert not run("undrain", node.name, "--plan", "--json").json["exact"]


def test_the_last_node_is_drained_only_by_force(run: Run, pair: list[RingNode]) -> None:
    run("drain", "alder", "--json")
    done = run("drain", "birch", status=2)
    assert "every key of the ring would be unserved" in done.err
    told = run("drain", "birch", "--force", "--json").json
    assert (told["ring"], told["node"], told["drain"]["until"]) == ("ring", "birch", None)
    for node in pair:
        drained(node)
    assert "every node is drained (2): no key has an owner" in run("status", status=2).out
    assert "every node is drained" in run("doctor", status=1).out


@pytest.mark.parametrize("command", ["drain", "undrain"])
@pytest.mark.parametrize("plan", [(), ("--plan",)], ids=["", "plan"])
def test_an_unknown_node_is_refused_with_names_near_it(
    run: Run, pair: list[RingNode], command: str, plan: tuple[str, ...]
) -> None:
    done = run(command, "alter", *plan, status=1)
    assert "did you mean 'alder'" in done.err


@pytest.mark.parametrize("time", ["soon", "-3s", "0s"])
def test_a_time_that_is_none_is_refused(run: Run, pair: list[RingNode], time: str) -> None:
    assert "give a" in run("drain", "alder", "--for", time, status=2).err
    assert "give a" in run("drain", "alder", "--for", time, "--plan", status=2).err


def test_the_plan_of_an_undrain_does_not_take_a_node_that_has_not_obeyed_for_one_that_does_not_run(
    run: Run, client: Redis
) -> None:
    for point, name in enumerate(("slow", "other")):
        put(client, name, point)
    run("drain", "slow")
    assert run("undrain", "slow", "--plan").out == (
        "nothing moves: slow has not obeyed the order yet\n"
    )
    client.zrem("ring", "0:slow:0")
    assert run("undrain", "slow", "--plan").out == "nothing moves: slow does not run\n"


def test_an_order_that_nobody_answers_may_stand_and_the_error_says_so(
    client: Redis, redis_server: RedisServer, run: Run
) -> None:
    with nodes_on(client, "alder", "birch"):
        for command in ("drain", "undrain"):
            run(command, "birch")  # after it Redis knows the script
        with (
            Proxy(redis_server.socket) as proxy,
            connected(Settings(url=proxy.url)) as connection,
        ):
            order = drain(connection.keys, node="alder", by="ada", lag=0.0)
            connection.call("PING")
            proxy.deafen()
            with pytest.raises(RedisUnavailable, match="may have been done: check before"):
                connection.order(order)
        until(lambda: "alder" in run("nodes", "--json").json["drains"], "the order stands")
    refused = run("drain", "alder", url="redis://127.0.0.1:1", status=3).err
    assert refused.endswith("check host, port and that Redis runs\n")
