"""``hashring group``: what it shows of real groups."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from redis import Redis

from hashring import GroupSituation, PartitionGroup
from hashring.cli import main
from hashring.cli.group import group_group
from hashring.core.readable_numbers import spans
from hashring.errors import ConfigError, UnknownMemberError
from hashring.store.embedded_server import RedisServer
from tests.cli.conftest import Run
from tests.conftest import eventually

Ask = Callable[..., Result]


@pytest.fixture
def ask(redis_server: RedisServer) -> Ask:
    def ask(*arguments: str, **more: Any) -> Result:
        verb, *rest = arguments
        # click keeps the help option of the first call: it has to be the one that `hashring` gives.
        more["help_option_names"] = ["-h", "--help"]
        return CliRunner().invoke(group_group, [verb, "--url", redis_server.url, *rest], **more)

    return ask


@pytest.fixture
def pair(redis_server: RedisServer) -> Iterator[tuple[PartitionGroup, PartitionGroup]]:
    with Redis(unix_socket_path=str(redis_server.socket)) as client:
        made = [
            PartitionGroup(client, "orders", 8, member=name, rebalance_delay=0, handoffs=4)
            for name in "ab"
        ]
        for group in made:
            group.start()
        eventually(lambda: [len(group.held) for group in made] == [4, 4], "four each")
        eventually(lambda: made[0].status().phase.value == "Ready", "it is at rest")
        yield made[0], made[1]
        for group in made:
            group.stop()


Pair = tuple[PartitionGroup, PartitionGroup]


def test_list_names_every_group(ask: Ask, pair: Pair, redis_server: RedisServer) -> None:
    with (
        Redis(unix_socket_path=str(redis_server.socket)) as client,
        PartitionGroup(client, "{team}:bills", 2, member="c"),
    ):
        lines = ask("list").output.splitlines()
        assert [line.split()[-2] for line in lines[1:]] == ["orders", "{team}:bills"]
        found = json.loads(ask("list", "--json").output)
    assert found["groups"][0] == {
        "name": "orders",
        "phase": "Ready",
        "members": 2,
        "partitions": 8,
        "assignor": "balanced",
    }


def test_list_says_when_there_is_none(ask: Ask) -> None:
    assert ask("list").output == "no groups\n"


def test_list_names_the_groups_that_it_cannot_read_beside_the_others(
    ask: Ask, pair: Pair, redis_server: RedisServer
) -> None:
    with Redis(unix_socket_path=str(redis_server.socket)) as client:
        client.set("{bills}:group:state", "not a hash")
        client.rpush("{mails}:group:state", "not a string")
        command = ["group", "list", "--url", redis_server.url]
        answer = CliRunner().invoke(main, command)
        assert answer.exit_code == 1
        assert answer.stdout.splitlines()[1].split()[-2] == "orders"
        told = answer.stderr.splitlines()
        assert [line.split(":")[0] for line in told] == ["bills", "mails"]
        answer = CliRunner().invoke(main, [*command, "--json"])
        assert answer.exit_code == 1
        found = json.loads(answer.stdout)
    assert [group["name"] for group in found["groups"]] == ["orders"]
    assert [group["name"] for group in found["unreadable"]] == ["bills", "mails"]


def test_show_says_who_has_what(ask: Ask, pair: Pair) -> None:
    output = ask("show", "orders").output
    assert output.startswith("orders: Ready, generation ")
    assert "8 partitions, 2 members, assignor balanced" in output
    rows = [line.split() for line in output.splitlines()[-2:]]
    assert [row[:3] for row in rows] == [["4", "yes", "active"], ["4", "yes", "active"]]
    found = json.loads(ask("show", "orders", "--json").output)
    assert [(each["name"], each["active"]) for each in found["members"]] == [
        ("a", True),
        ("b", True),
    ]
    assert found["blocking"] == []


def test_show_says_what_is_waited_for(ask: Ask, pair: Pair) -> None:
    pair[0].resize(7)
    output = ask("show", "orders").output
    assert "to drain partition 7, which was removed" in output


def test_show_says_in_a_line_what_one_member_is_waited_for(ask: Ask, pair: Pair) -> None:
    having = {member.member: [p for p in sorted(member.held) if p >= 2] for member in pair}
    pair[0].resize(2)
    lines = [line for line in ask("show", "orders").output.splitlines() if " to drain " in line]
    assert sorted(lines) == [
        f"waits for {name} to drain partitions {spans(partitions)}, which were removed"
        for name, partitions in sorted(having.items())
    ]


def test_a_group_whose_members_all_left_is_stopped_and_waits_for_nothing(
    client: Redis, run: Run
) -> None:
    with (
        PartitionGroup(client, "g", 8, member="a", rebalance_delay=1000),
        PartitionGroup(client, "g", 8, member="b", rebalance_delay=1000),
    ):
        eventually(lambda: run("group", "show", "g").out.startswith("g: Holddown, "), "b waits")
        assert "members wait for that time and act at once" in run("group", "show", "g").out
    lines = run("group", "show", "g").lines
    assert lines[0].startswith("g: generation ")
    assert lines[2:] == ["stopped: it has no members", "without an owner: 0-7"]
    assert run("group", "list").lines[1].split()[:2] == ["stopped", "0"]
    assert run("group", "show", "g", "--json").json["waits"] == []


def test_a_group_whose_last_member_expired_is_down(client: Redis, run: Run) -> None:
    text = "down: no member is left; a expired without leaving: no partition has an owner"

    def is_down() -> bool:
        # It joins anew with its next renewal. After those of its start there is none for long.
        client.zadd("{g}:group:leases", {"a": 1})
        shown = text in run("group", "show", "g").lines
        return shown and run("group", "list").lines[1].split()[:2] == ["down", "0"]

    with PartitionGroup(client, "g", 8, member="a", ttl=300):
        eventually(is_down, "show and list say that it is down")


def test_plan_says_what_would_move(ask: Ask, pair: Pair) -> None:
    output = ask("plan", "orders", "--join", "c").output.splitlines()
    assert output[0].endswith("-> c (a has 4, its fair share is 2.667; c has 0 of 2.667)")
    assert [line.split() for line in output[-3:]] == [
        ["4", "3", "a"],
        ["4", "3", "b"],
        ["0", "2", "c"],
    ]
    assert ask("plan", "orders").output.startswith("nothing moves\n")
    found = json.loads(ask("plan", "orders", "--leave", "a", "--json").output)
    assert found["after"] == {"a": 0, "b": 8}


def test_access_changes_who_has_what_at_once(ask: Ask, pair: Pair) -> None:
    found = json.loads(ask("plan", "orders", "--access", "exclusive", "--json").output)
    assert (found["after"], found["delay"]) == ({"a": 8, "b": 0}, 0.0)
    output = ask("access", "orders", "exclusive", "--yes").output
    assert output == "orders: non-exclusive -> exclusive access\n"
    eventually(lambda: len(pair[0].held) == 8, "a has everything")
    output = ask("show", "orders").output
    assert "2 members, exclusive access: one member has everything" in output
    rows = [line.split() for line in output.splitlines()[-2:]]
    assert [row[:3] for row in rows] == [["8", "yes", "active"], ["0", "no", "active"]]
    ask("access", "orders", "non-exclusive", "--yes")
    eventually(lambda: len(pair[0].held) == len(pair[1].held) == 4, "four each")
    found = json.loads(ask("access", "orders", "non-exclusive", "--yes", "--json").output)
    assert found == {"group": "orders", "before": "non-exclusive", "after": "non-exclusive"}


@pytest.mark.parametrize(
    ("command", "value", "has"),
    [("access", "non-exclusive", "non-exclusive access"), ("partitions", "8", "8 partitions")],
)
def test_a_change_that_is_none_is_not_asked_about_and_says_so(
    ask: Ask, pair: Pair, command: str, value: str, has: str
) -> None:
    before = pair[0].status().generation
    done = ask(command, "orders", value)
    assert (done.exit_code, done.output) == (0, f"orders: has {has} already\n")
    assert pair[0].status().generation == before


def test_access_is_asked_about_and_must_be_one_of_two(ask: Ask, pair: Pair) -> None:
    refused = ask("access", "orders", "exclusive")
    assert refused.exit_code == 2
    assert "confirm the change of 'orders' from non-exclusive to exclusive access" in refused.output
    assert "'shared' is not one of" in ask("access", "orders", "shared", "--yes").output
    error = str(ask("plan", "orders", "--access", "shared").exception)
    assert "access='shared': must be 'non-exclusive' or 'exclusive'" in error


def test_plan_takes_weights(ask: Ask, pair: Pair) -> None:
    found = json.loads(ask("plan", "orders", "--join", "c=2", "--json").output)
    assert found["after"] == {"a": 2, "b": 2, "c": 4}


RULES = """
def first(situation):
    return {min(m.name for m in situation.members): range(situation.partitions)}
"""


def test_plan_knows_a_groups_own_assignor(
    ask: Ask, redis_server: RedisServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def first(situation: GroupSituation) -> dict[str, range]:
        return {min(m.name for m in situation.members): range(situation.partitions)}

    (tmp_path / "group_rules.py").write_text(RULES)
    monkeypatch.chdir(tmp_path)
    with (
        Redis(unix_socket_path=str(redis_server.socket)) as client,
        PartitionGroup(client, "own", 4, first, member="b", rebalance_delay=0) as group,
    ):
        eventually(lambda: len(group.held) == 4, "it has everything")
        plan = ("plan", "own", "--join", "a", "--json")
        found = json.loads(ask(*plan, "--assignor", "group_rules:first").output)
        assert found["after"] == {"b": 0, "a": 4}
        refused = {
            (): "is an assignor of your own: plan with hashring group plan --assignor MODULE:NAME",
            ("--assignor", "group_rules:second"): "cannot be imported",
            ("--assignor", "nowhere"): "cannot be imported",
            ("--assignor", "json:dumps"): "group 'own' has assignor='first', this member assi",
        }
        for more, text in refused.items():
            assert text in str(ask(*plan, *more).exception)
        orders = ("drain", "own", "b"), ("undrain", "own", "b"), ("weight", "own", "b", "2")
        for order in orders:
            assert refused[()] in str(ask(*order, "--plan").exception)
        # With exclusive access no assignor is asked.
        assert "nothing moves" in ask("plan", "own", "--access", "exclusive").output
        ask("access", "own", "exclusive", "--yes")
        assert json.loads(ask(*plan).output)["after"] == {"b": 4, "a": 0}
        for order in orders:
            assert ask(*order, "--plan").exit_code == 0


def test_an_assignor_is_looked_for_also_where_the_working_directory_is_gone(
    ask: Ask, pair: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    tmp_path.rmdir()
    error = ask("plan", "orders", "--assignor", "nowhere:first").exception
    assert "cannot be imported (No module named 'nowhere')" in str(error)


def test_history_shows_every_decision(ask: Ask, pair: Pair) -> None:
    output = ask("history", "orders").output
    assert "joined a" in output
    assert "granted partition 0 a" in output
    lines = [json.loads(line) for line in ask("history", "orders", "--json").output.splitlines()]
    generations = [line["generation"] for line in lines]
    assert generations == sorted(set(generations))
    more = ask("history", "orders", "--count", str(10**20), "--json").output.splitlines()
    assert [json.loads(line) for line in more[: len(lines)]] == lines


@pytest.mark.parametrize("part", ["member", "to", "why", "partition"])
def test_a_history_that_holds_something_else_is_an_error(
    client: Redis, run: Run, part: str
) -> None:
    with PartitionGroup(client, "g", 1):
        eventually(lambda: client.exists("{g}:group:control"), "it has decided")
        event = json.dumps([{"kind": "joined", part: [1]}])
        decision = {"generation": 9, "phase": "Ready", "by": "nobody", "events": event}
        client.xadd("{g}:group:control", decision)
        done = run("group", "history", "g", status=2)
    assert done.err.startswith("hashring: history of the group is not whole: ")


def test_a_lease_without_an_end_is_a_number_in_json(client: Redis, run: Run) -> None:
    with PartitionGroup(client, "g", 1, member="a"):
        eventually(lambda: client.exists("{g}:group:control"), "it has decided")
        client.zadd("{g}:group:leases", {"a": "inf"})
        out = run("group", "show", "g", "--json").out
    json.loads(out, parse_constant=pytest.fail)


def test_what_others_changed_since_it_was_asked_about_stays(
    ask: Ask, pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    def meanwhile(*_: str) -> bool:
        pair[0].resize(12)
        return True

    monkeypatch.setattr("hashring.cli.group.terms.confirmed", meanwhile)
    error = str(ask("partitions", "orders", "9").exception)
    assert "partitions=9: it is 12 by now, not 8: give the command again" in error
    assert pair[0].status().partitions == 12


def test_partitions_asks_and_then_resizes(ask: Ask, pair: Pair) -> None:
    refused = ask("partitions", "orders", "12")
    assert refused.exit_code == 2
    assert "confirm the change of 'orders' from 8 to 12 partitions: give --yes" in refused.output
    assert pair[0].status().partitions == 8
    assert ask("partitions", "orders", "12", "--yes").output == "orders: 8 -> 12 partitions\n"
    told = json.loads(ask("partitions", "orders", "12", "-y", "--json").output)
    assert told == {"group": "orders", "before": 12, "after": 12}
    eventually(lambda: len(pair[0].held) + len(pair[1].held) == 12, "all twelve have an owner")


def test_more_partitions_than_a_decision_has_time_for_are_warned_of_before_the_question(
    ask: Ask, pair: Pair
) -> None:
    refused = ask("partitions", "orders", "100001")
    assert refused.exit_code == 2
    assert refused.stderr.startswith(
        "hashring: orders: 100,001 partitions are many for a ttl of 10 s: while Redis writes a "
        "decision it serves nobody else, and members may lose their leases; have 100,000 "
        "partitions at most\n"
    )
    assert pair[0].status().partitions == 8


@pytest.mark.parametrize(
    ("arguments", "kind", "text"),
    [
        (("show", "nobody"), ConfigError, "there is no such group"),
        (
            ("plan", "orders", "--leave", "x"),
            UnknownMemberError,
            "; hashring group show orders lists",
        ),
        (("plan", "orders", "--join", "c=x"), ConfigError, "give NAME or NAME=WEIGHT"),
        (("plan", "orders", "--join", "c=1e308"), ConfigError, "a number from 0.001 to 1000"),
        (("plan", "orders", "--join", "a"), ConfigError, "is a member already"),
        (("partitions", "orders", "0"), ConfigError, "partitions=0"),
    ],
)
def test_a_mistake_is_answered_with_an_error_of_the_projects(
    ask: Ask, pair: Pair, arguments: tuple[str, ...], kind: type[Exception], text: str
) -> None:
    result = ask(*arguments)
    assert isinstance(result.exception, kind)
    assert text in str(result.exception)
