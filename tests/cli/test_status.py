"""status: the verdict on a real Redis, and its exit status."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import click
import pytest
from redis import Redis

from hashring import PartitionGroup, RingNode
from hashring.cli import main
from hashring.store.embedded_server import RedisServer
from tests.cli.conftest import SESSION, Run, until
from tests.conftest import PATIENCE, ROOT
from tests.web.conftest import put


def test_a_redis_without_rings_is_healthy(run: Run) -> None:
    assert run("status", status=0).out == "no rings and no groups here\n"


def test_the_worst_ring_comes_first_with_what_to_do(client: Redis, run: Run) -> None:
    with (
        RingNode(client, "well", name="a"),
        PartitionGroup(client, "orders", partitions=2, member="m", rebalance_delay=0),
    ):
        with RingNode(client, "stopped", name="b"):
            pass
        put(client, "c:1", 0, ring="full", told={"ttl": 60, "unserved": 25})
        client.set("{full}:epoch", "1 ab")
        lines = run("status", status=1).lines
    assert lines[0] == "degraded: 3 rings and 1 group (1 degraded, 1 stopped, 2 healthy)"
    assert lines[2:5] == [
        "degraded: ring full",
        "  25 keys unserved: all nodes full",
        "    to do: add nodes or raise the limit",
    ]
    assert "stopped: ring stopped" in lines
    assert lines[-2:] == ["", "healthy: ring well; group orders"]


def test_healthy_rings_are_named_but_not_hundreds_of_them(client: Redis, run: Run) -> None:
    for number in range(22):
        put(client, "a:1", 0, ring=f"r{number:02}")
        client.set(f"{{r{number:02}}}:epoch", "1 ab")
    names = ", ".join(f"r{number:02}" for number in range(20))
    assert run("status", status=0).lines == [
        "healthy: 22 rings (22 healthy)",
        "",
        f"healthy: rings {names} and 2 more",
    ]


def test_a_ring_that_the_environment_names_hides_no_other(
    client: Redis, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(client, "a:1", 0, ring="ring")
    client.set("{ring}:epoch", "1 ab")
    put(client, "b:1", 0, ring="payments", expires_in=-5)
    client.set("{payments}:epoch", "1 ab")
    monkeypatch.setenv("HASHRING_RING", "ring")
    assert "down: ring payments" in run("status", status=2).lines


KILLED = """
import os, sys
from redis import Redis
from hashring import PartitionGroup
group = PartitionGroup(Redis.from_url(sys.argv[1]), "orders", 4, member="m", ttl=float(sys.argv[2]))
group.start()
while len(group.held) < 4:
    pass
os._exit(9)
"""


def killed(server: RedisServer, *, ttl: float) -> None:
    """A member that had every partition of the group ``orders``, and was killed."""
    command = [sys.executable, "-c", KILLED, server.url, str(ttl)]
    assert subprocess.run(command, check=False, timeout=PATIENCE).returncode == 9


def finding(run: Run, check: str, status: int = 1) -> tuple[str, str, list[str]]:
    """Level, text and details of what the doctor, which sees a problem, says of one check.

    Args:
        status: its exit status; 0 if it sees none.
    """
    told = run("doctor", "--json", status=status).json["findings"]
    (found,) = [each for each in told if each["check"] == check]
    return found["level"], found["text"], found["details"]


def test_a_group_whose_every_process_was_killed_is_down(
    redis_server: RedisServer, client: Redis, run: Run
) -> None:
    killed(redis_server, ttl=1.5)
    until(lambda: "0 members" in run("group", "show", "orders").out, "its lease ends")
    assert "expired without leaving: m" in run("group", "show", "orders").lines
    lines = run("status", status=2).lines
    assert "  no member is left; m expired without leaving: no partition has an owner" in lines
    remedy = "start the members, or forget the group"
    assert f"    to do: {remedy}: hashring group forget orders" in lines
    assert finding(run, "group members") == (
        "problem",
        "no member is left in 1 group after some expired: no partition of it has an owner",
        ["orders: m expired"],
    )
    with PartitionGroup(client, "orders", 4, member="n", ttl=1.5) as group:
        until(lambda: len(group.held) == 4, "a member that was started has the partitions")
        assert "no problems found" in run("doctor").out


def test_a_forgotten_group_is_stopped_until_a_member_joins(
    redis_server: RedisServer, client: Redis, run: Run
) -> None:
    killed(redis_server, ttl=1.5)
    until(lambda: "0 members" in run("group", "show", "orders").out, "its lease ends")
    done = run("group", "forget", "orders", "--yes", "--by", "ada").out
    assert done == "orders was forgotten; a member that joins starts it again\n"
    lines = run("status", status=0).lines
    assert lines[:3] == ["stopped: 1 group (1 stopped)", "", "stopped: group orders"]
    assert lines[3].startswith("  forgotten ")
    assert lines[3].endswith(" by ada")
    assert finding(run, "group members", status=0)[0] == "ok"
    assert run("group", "history", "orders").lines[-2:] == ["    expired m", "    forgotten"]
    with PartitionGroup(client, "orders", 4, member="n", ttl=1.5) as group:
        until(lambda: len(group.held) == 4, "the group is back")
        assert run("status", status=0).lines[0].startswith("healthy")


def test_a_member_whose_report_cannot_be_read_is_named_everywhere(
    redis_server: RedisServer, client: Redis, run: Run
) -> None:
    # Its lease stands, and it sends no other report.
    killed(redis_server, ttl=3600.0)
    session, joined, _ = client.hget("{orders}:group:members", "m").split(b" ", 2)
    client.hset("{orders}:group:members", "m", b"%s %s {}" % (session, joined))
    assert "1 member with a report that cannot be read: m" in run("status", status=1).out
    assert "reports that cannot be read: m" in run("group", "show", "orders").lines
    assert run("group", "show", "orders", "--json").json["unreadable"] == ["m"]
    assert finding(run, "member reports") == (
        "problem",
        "1 member with a report that cannot be read",
        ["orders: m"],
    )


def test_one_ring_alone_is_asked_about(client: Redis, run: Run) -> None:
    put(client, "a:1", 0, ring="dead", expires_in=-5)
    put(client, "b:1", 0, ring="well")
    assert "every node expired (1)" in run("status", "--ring", "dead", status=2).out
    assert run("status", "--ring", "well", status=0).lines[0].startswith("healthy")


def test_the_option_narrows_also_before_the_command_and_over_the_environment(
    client: Redis, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(client, "a:1", 0, ring="dead", expires_in=-5)
    put(client, "b:1", 0, ring="well")
    monkeypatch.setenv("HASHRING_RING", "dead")
    assert run("--ring", "well", "status", status=0).lines[-1] == "healthy: ring well"


@pytest.mark.parametrize("more", [(), ("--json",)])
def test_a_ring_of_which_redis_has_no_trace_is_an_error(run: Run, more: tuple[str, ...]) -> None:
    done = run("status", "--ring", "rign", *more, status=2)
    assert (done.out, done.err) == (
        "",
        "hashring: ring='rign': there is no such ring; hashring status shows those there are\n",
    )


def test_a_ring_whose_history_is_all_that_is_left_is_stopped(client: Redis, run: Run) -> None:
    client.set("{once}:epoch", "1 ab")
    assert run("status", "--ring", "once", status=0).lines[2] == "stopped: ring once"


def test_a_node_that_stopped_to_come_back_is_away_and_no_alarm(client: Redis, run: Run) -> None:
    with RingNode(client, "ring", name="beech"):
        node = RingNode(client, "ring", name="alder")
        node.start()
        node.stop(stay=True)
        line = run("status", "--ring", "ring", status=0).lines[3]
        assert line == "  1 node away for a restart: alder; keys of an away node have no owner"
        row = next(line for line in run("nodes").lines if line.endswith("alder"))
        assert row.split()[2] == "away"
        told = {node["name"]: node for node in run("nodes", "--json").json["nodes"]}
        assert [(told[name]["away"], told[name]["expired"]) for name in ("alder", "beech")] == [
            (True, False),
            (False, False),
        ]
        checks = {found["check"]: found for found in run("doctor", "--json").json["findings"]}
        assert (checks["away"]["level"], checks["away"]["text"]) == (
            "note",
            "1 node stopped for a restart in place",
        )
        assert checks["away"]["details"][0].startswith("alder: away, back by 20")
        assert checks["agreement"]["level"] != "problem"
        with RingNode(client, "ring", name="alder"):
            until(
                lambda: run("status", "--ring", "ring").lines[0].startswith("healthy"),
                "the ring is well",
            )


@pytest.mark.parametrize("crashed", [True, False])
def test_an_old_drain_of_a_crashed_process_with_a_made_up_name_is_no_alarm(
    client: Redis, run: Run, crashed: bool
) -> None:
    put(client, "a:1", 0, ring="well", told={"ttl": 900})
    client.set("{well}:epoch", "1 ab")
    order = {"by": "ada", "since": str((client.time()[0] - 2 * 86_400) * 10**6)}
    drain = {"drain": order | ({"session": SESSION[::-1]} if crashed else {})}
    client.hset("{well}:orders", "b:2", json.dumps(drain))
    told = run("status", "--ring", "well", status=0 if crashed else 1)
    assert ("drained for more than a day: b:2" in told.out) is not crashed


def test_a_node_without_locks_beside_nodes_with_locks_degrades_the_ring(
    client: Redis, run: Run
) -> None:
    put(client, "a", 0, ring="ring", told={"ttl": 900, "lock": True})
    assert run("status", "--ring", "ring").lines[0].startswith("healthy")
    put(client, "b", 1, ring="ring", told={"ttl": 900})
    [told] = run("status", "--ring", "ring", "--json", status=1).json["verdicts"]
    assert told["reasons"] == [
        {
            "state": "degraded",
            "text": "1 node without lock=True: b; works on keys that others have locked",
            "remedy": "give all nodes lock=True",
            "command": "hashring doctor --ring ring",
        }
    ]
    put(client, "a", 0, ring="ring", told={"ttl": 900})
    assert run("status", "--ring", "ring").lines[0].startswith("healthy")


def test_as_json(client: Redis, run: Run) -> None:
    put(client, "a:1", 0, ring="dead", expires_in=-5)
    told = json.loads(run("status", "--ring", "dead", "--json", status=2).out)
    assert told["state"] == "down"
    assert told["verdicts"][0]["ring"] == "dead"
    assert told["verdicts"][0]["reasons"][0]["remedy"].startswith("start its nodes")


def test_a_ring_that_cannot_be_read_does_not_hide_the_others(client: Redis, run: Run) -> None:
    put(client, "a:1", 0, ring="well")
    client.set("{well}:epoch", "1 ab")
    client.set("broken", "a text")
    client.set("{broken}:epoch", "1 ab")
    lines = run("status", status=2).lines
    assert "unknown: ring broken" in lines
    assert lines[0] == "unknown: 2 rings (1 unknown, 1 healthy)"


@pytest.mark.parametrize("damaged", ["state", "control"])
def test_a_damaged_group_hides_no_other_from_status_and_doctor(
    client: Redis, run: Run, damaged: str
) -> None:
    put(client, "a:1", 0, ring="well")
    client.set("{well}:epoch", "1 ab")
    with PartitionGroup(client, "g", 4):
        until(lambda: client.exists("{g}:group:control"), "it has decided")
    if damaged == "state":
        client.hset("{g}:group:state", "terms", "{")
    else:
        client.xadd("{g}:group:control", {"x": "y"})
    told = run("status", status=2)
    assert told.lines[0] == "unknown: 1 ring and 1 group (1 unknown, 1 healthy)"
    assert "unknown: group g" in told.lines
    assert "not whole" in told.out
    found = run("doctor", "--ring", "well", "--json").json["findings"]
    unknown = [each["text"] for each in found if each["level"] == "unknown"]
    assert [text.split(":")[0] for text in unknown] == (["group g"] if damaged == "state" else [])
    assert "no drain of a member was forgotten" in found[-1]["text"]


def test_a_group_of_another_type_hides_no_drain_of_other_groups_from_doctor(
    client: Redis, run: Run
) -> None:
    client.set("{a}:group:state", "text")
    with PartitionGroup(client, "g", 4):
        until(lambda: client.exists("{g}:group:control"), "it has decided")
        found = run("doctor", "--json").json["findings"]
    *_, unknown, drains = [each["text"] for each in found]
    assert unknown.startswith("group a: ")
    assert drains == "no drain of a member was forgotten (1 group)"


def test_every_command_that_a_remedy_names_is_there() -> None:
    sources = (ROOT / "hashring" / "health.py", *(ROOT / "hashring" / "cli").glob("doctor/*.py"))
    found = {
        name
        for source in sources
        for name in re.findall(r'command_line\(\s*"([^"]+)"', source.read_text())
    }
    assert "group undrain" in found
    for name in found:
        command: click.Command | None = main
        for word in name.split():
            assert isinstance(command, click.Group)
            command = command.get_command(click.Context(command), word)
        assert command is not None, name
