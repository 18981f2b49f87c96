"""``hashring balance``: weights that even out the loads that nodes report."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest
from redis import Redis

from hashring import RingNode
from hashring.store.embedded_server import RedisServer
from tests.cli.conftest import Run, ending, finished, line_with, nodes_on, put, spawn, until

pytestmark = pytest.mark.one_server


@pytest.fixture
def fleet(client: Redis, run: Run) -> Iterator[list[RingNode]]:
    """Three nodes, of which two report a load."""
    with nodes_on(client, "alder", "birch", "cedar", heartbeat_interval=0.1, ttl=30.0) as nodes:
        yield nodes


def loaded(run: Run, *nodes: tuple[RingNode, float]) -> None:
    """The nodes have reported these loads."""
    for node, load in nodes:
        node.load = load

    def told() -> set[tuple[str, float]]:
        return {(each["name"], each["load"]) for each in run("nodes", "--json").json["nodes"]}

    until(lambda: told() >= {(node.name, load) for node, load in nodes}, "the loads are told")


def test_without_loads_there_is_nothing_to_even_out(run: Run, fleet: list[RingNode]) -> None:
    for apply in ((), ("--apply",)):
        told = run("balance", *apply).out
        assert told == "no node reports a load: assign node.load in your program\n"
    assert run("balance", "--json").json["without_load"] == ["alder", "birch", "cedar"]


def test_without_a_live_node_there_is_nothing_to_even_out(run: Run, client: Redis) -> None:
    put(client, "gone", 1, expires_in=-5, told={"load": 2.0})
    told = "no live node is on the ring, so there is no load to even out\n"
    assert run("balance").out == told
    assert run("balance", "--ring", "other").out == told


def test_it_shows_weights_and_changes_nothing(run: Run, fleet: list[RingNode]) -> None:
    alder, birch, _ = fleet
    loaded(run, (alder, 3.0), (birch, 1.0))
    told = run("balance", "--json").json
    weights = {node["name"]: node["weight_after"] for node in told["nodes"]}
    assert weights["alder"] < 1 < weights["birch"]
    assert (told["before"], told["ordered"]) == (1.5, False)
    assert told["after"] < told["before"]
    assert told["plan"]["moved"] > 0
    assert told["without_load"] == ["cedar"]
    lines = run("balance", "--plan").lines
    assert lines[0].startswith("busiest load: 1.50 times the mean now, 1.")
    assert "no load: cedar" in lines
    assert run("nodes", "--json").json["weights"] == {}


def test_the_weights_are_ordered_with_their_reason(run: Run, fleet: list[RingNode]) -> None:
    alder, birch, cedar = fleet
    loaded(run, (alder, 3.0), (birch, 1.0))
    assert run("balance", "--apply", "--by", "alice").lines[-1] == "the weights are ordered"
    until(lambda: alder.weight < 1 < birch.weight, "the nodes obey")
    assert cedar.weight == 1.0
    events = [line for line in run("events").lines if " weight " in line and "alice" in line]
    assert len(events) == 2
    assert all("busiest load 1.50 times the mean" in line for line in events)


def test_even_loads_change_nothing(run: Run, fleet: list[RingNode]) -> None:
    loaded(run, *((node, 2.0) for node in fleet))
    assert run("balance", "--apply").lines[-1] == "no weight changes"
    assert run("nodes", "--json").json["weights"] == {}


def test_loads_of_0_change_nothing(run: Run, fleet: list[RingNode]) -> None:
    loaded(run, (fleet[0], 0.0))
    assert run("balance").out == "every load is 0: no weight changes\n"


def test_what_cannot_work_is_refused(run: Run) -> None:
    assert "give one of them" in run("balance", "--plan", "--apply", status=2).err
    assert "give a number of at least 1" in run("balance", "--tolerance", "0.5", status=2).err
    assert "give --apply as well" in run("balance", "--every", "5m", status=2).err
    for every, remedy in (("soon", "give a time such as"), ("0.5", "give at least 1s")):
        told = run("balance", "--apply", "--every", every, status=2).err
        assert f"every={every!r}" in told
        assert remedy in told


def test_it_repeats_until_ctrl_c(
    run: Run, fleet: list[RingNode], redis_server: RedisServer
) -> None:
    alder, birch, _ = fleet
    loaded(run, (alder, 3.0), (birch, 1.0))
    command = ("balance", "--apply", "--every", "1s", "--by", "alice")
    with ending(spawn("hashring", *command, url=redis_server.url)) as process:
        assert "busiest load 1.50 times the mean; 2 weights ordered, 1." in line_with(process, "")
        line_with(process, "busiest load")
        process.send_signal(signal.SIGINT)
        status, _, err = finished(process)
    assert (status, err.strip()) == (130, "")


def test_it_takes_no_second_step_within_its_time(
    run: Run, fleet: list[RingNode], redis_server: RedisServer
) -> None:
    alder, birch, _ = fleet
    loaded(run, (alder, 3.0), (birch, 1.0))
    run("balance", "--apply", "--by", "alice")
    until(lambda: alder.weight < 1 < birch.weight, "the nodes obey")
    until(lambda: not run("balance", "--json").json["waiting"], "they have said so")
    standing = run("nodes", "--json").json["weights"]
    command = ("balance", "--apply", "--every", "1h", "--by", "bob")
    with ending(spawn("hashring", *command, url=redis_server.url)) as process:
        told = line_with(process, "busiest load")
        assert "1.50 times the mean; the last order is too new, loads follow late" in told
    assert run("nodes", "--json").json["weights"] == standing


def test_it_goes_on_when_redis_was_away() -> None:
    with (
        RedisServer(port=0) as server,
        ending(spawn("hashring", "balance", "--apply", "--every", "1s", url=server.url)) as process,
    ):
        line_with(process, "no live node is on the ring")
        server.kill()
        assert "hashring: " in line_with(process, "", "stderr")
        server.start()
        line_with(process, "Redis answers again", "stderr")
        line_with(process, "no live node is on the ring")


def test_it_goes_on_when_redis_was_read_only(
    run: Run, client: Redis, fleet: list[RingNode], redis_server: RedisServer
) -> None:
    alder, birch, _ = fleet
    loaded(run, (alder, 3.0), (birch, 1.0))
    client.execute_command("REPLICAOF", "127.0.0.1", "1")
    command = ("balance", "--apply", "--every", "1s")
    try:
        with ending(spawn("hashring", *command, url=redis_server.url)) as process:
            assert "READONLY" in line_with(process, "hashring: ", "stderr")
            client.execute_command("REPLICAOF", "NO", "ONE")
            line_with(process, "Redis answers again", "stderr")
            line_with(process, "2 weights ordered")
    finally:
        client.execute_command("REPLICAOF", "NO", "ONE")


@pytest.mark.parametrize(
    ("change", "refusal"),
    [
        (("ACL", "SETUSER", "default", "-hgetall"), "give the user the rights of a node"),
        (("SET", "{accounts}:orders", "x"), "remove the key that is in the way"),
    ],
    ids=["rights", "type"],
)
def test_it_ends_when_somebody_has_to_mend_what_redis_refuses(
    change: tuple[str, ...], refusal: str
) -> None:
    command = ("balance", "--apply", "--every", "1s", "--ring", "accounts")
    with (
        RedisServer(port=0) as server,
        ending(spawn("hashring", *command, url=server.url)) as process,
    ):
        line_with(process, "no live node is on the ring")
        with Redis.from_url(server.url) as client:
            client.execute_command(*change)
        status, _, err = finished(process)
    assert status == 3
    assert refusal in err
