"""Orders about members of a group, as an operator gives them."""

from __future__ import annotations

import json

import pytest
from redis import Redis

from hashring import PartitionGroup
from hashring.cli.order_options import span
from hashring.errors import ConfigError, GroupNotEmpty
from hashring.store.embedded_server import RedisServer
from tests.cli.test_group import Ask, Pair, ask, pair
from tests.conftest import eventually

__all__ = ["ask", "pair"]


def test_a_drain_moves_everything_and_is_shown_until_it_is_lifted(ask: Ask, pair: Pair) -> None:
    one, other = pair
    done = ask("drain", "orders", "a", "--by", "alice")
    assert (done.exit_code, done.output) == (0, "orders: a is to hand over what it has\n")
    eventually(lambda: (len(one.held), len(other.held)) == (0, 8), "all is at b")
    eventually(lambda: one.status().phase.value == "Ready", "it is at rest")
    shown = ask("show", "orders").output
    assert "a is drained since " in shown
    assert "until lifted, by alice" in shown
    told = json.loads(ask("show", "orders", "--json").output)
    assert told["orders"]["a"]["by"] == "alice"
    assert {m["name"]: m["state"] for m in told["members"]} == {"a": "drained", "b": "active"}
    assert "drain a (by alice)" in ask("history", "orders").output

    assert ask("undrain", "orders", "a", "--json").output == (
        '{\n  "group": "orders",\n  "orders": {}\n}\n'
    )
    eventually(lambda: (len(one.held), len(other.held)) == (4, 4), "four each again")


def test_a_plan_of_an_order_changes_nothing(ask: Ask, pair: Pair) -> None:
    before = pair[0].status().generation
    lines = ask("drain", "orders", "a", "--plan").output.splitlines()
    assert sum(line.endswith("a -> b (a is drained)") for line in lines) == 4
    assert lines[-2].split() == ["4", "0", "a"]
    told = json.loads(ask("weight", "orders", "a", "3", "--plan", "--json").output)
    assert told["after"] == {"a": 6, "b": 2}
    assert pair[0].status().generation == before


def test_a_plan_to_drain_the_last_member_says_so_and_orders_nothing(ask: Ask, pair: Pair) -> None:
    ask("drain", "orders", "a")
    eventually(lambda: len(pair[1].held) == 8, "all is at b")
    lines = ask("drain", "orders", "b", "--plan").output.splitlines()
    assert lines[0] == "no other member is left: drained ones keep the partitions until one joins"
    assert list(pair[0].status().orders) == ["a"]


def test_each_order_about_a_member_keeps_its_author(ask: Ask, pair: Pair) -> None:
    ask("drain", "orders", "a", "--by", "alice")
    ask("weight", "orders", "a", "3", "--by", "bob")
    text = "until lifted, by alice and has the weight 3 by order of bob"
    assert text in ask("show", "orders").output
    ask("undrain", "orders", "a", "--by", "carol")
    assert "a has the weight 3 by order of bob" in ask("show", "orders").output


def test_a_drain_for_a_time_ends_by_itself(ask: Ask, pair: Pair) -> None:
    done = ask("drain", "orders", "a", "--for", "0.5s")
    assert "a is drained until 20" in done.output
    eventually(lambda: "its time is up" in ask("history", "orders").output, "it has ended")
    eventually(lambda: len(pair[0].held) == 4, "it has its share again")


def test_a_weight_stands_until_it_is_taken_back(ask: Ask, pair: Pair) -> None:
    assert ask("weight", "orders", "a", "3").output == "orders: a is to have the weight 3\n"
    eventually(lambda: [len(group.held) for group in pair] == [6, 2], "by weight")
    assert (
        "a has the weight 3 by order of hashring group weight on " in ask("show", "orders").output
    )
    assert ask("weight", "orders", "a", "own").exit_code == 0
    eventually(lambda: [len(group.held) for group in pair] == [4, 4], "even again")
    assert ask("weight", "orders", "a", "own").output == "orders: a has its own weight\n"
    assert ask("undrain", "orders", "a").output == "orders: a was not drained\n"


def test_a_member_drains_and_weighs_itself(pair: Pair) -> None:
    one, other = pair
    one.drain()
    eventually(lambda: len(other.held) == 8, "all is at b")
    with pytest.raises(ConfigError, match="no other member is left to take over: 8 of 8"):
        other.drain()
    one.undrain()
    one.weigh(3)
    eventually(lambda: [len(group.held) for group in pair] == [6, 2], "by weight")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("drain", "orders", "c"),
            "'c' is not a member of the group; hashring group show orders lists",
        ),
        (("undrain", "orders", "c"), "hashring group show orders lists the members, and mind"),
        (("weight", "orders", "c", "2"), "hashring group show orders lists the members, and mind"),
        (("drain", "orders", "c", "--plan"), "hashring group show orders lists the members, and"),
        (("drain", "orders", "a", "--for", "soon"), "for='soon': give a time such as 90s, 30m"),
        (("drain", "orders", "a", "--for", "0"), "for=0.0: give a positive number of seconds"),
        (("weight", "orders", "a", "much"), "weight='much': give a number above 0, or own"),
        (("weight", "orders", "a", "nan"), "weight=nan: of member 'a' must be a number from"),
        (("weight", "orders", "a", "-1"), "weight=-1.0: of member 'a' must be a number from"),
        (("weight", "orders", "a", "0"), "weight=0.0: of member 'a' must be a number from"),
    ],
)
def test_a_mistake_is_refused(
    ask: Ask, pair: Pair, arguments: tuple[str, ...], message: str
) -> None:
    assert message in str(ask(*arguments).exception)
    assert pair[0].status().orders == {}


def test_a_mistake_about_a_group_of_an_odd_name_writes_nothing_odd(
    ask: Ask, redis_server: RedisServer
) -> None:
    with (
        Redis(unix_socket_path=str(redis_server.socket)) as client,
        PartitionGroup(client, "odd\x1b[31m", 4, member="a"),
    ):
        told = str(ask("drain", "odd\x1b[31m", "c").exception)
    assert "'c' is not a member of the group; hashring group show 'odd\\x1b[31m' lists" in told


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90), ("1.5s", 1.5), ("30m", 1800), ("2h", 7200), ("1d", 86_400)]
)
def test_times_have_units(text: str, seconds: float) -> None:
    assert span(text) == seconds


def test_a_group_is_forgotten_only_if_somebody_confirms_it(ask: Ask, client: Redis) -> None:
    with PartitionGroup(client, "bills", 2, member="m"):
        pass
    assert "give --yes" in ask("forget", "bills").output
    assert "forgotten" not in ask("history", "bills").output
    done = ask("forget", "bills", "--yes", "--json")
    told = json.loads(done.output)
    assert told["group"] == "bills"
    line = f"  {told['generation']}  Ready, decided by hashring group forget on "
    assert line in ask("history", "bills").output


@pytest.mark.parametrize(
    "arguments",
    [
        ("drain", "bills", "a"),
        ("undrain", "bills", "a"),
        ("weight", "bills", "a", "2"),
        ("forget", "bills", "--yes"),
    ],
)
def test_an_order_in_a_group_that_never_was_names_the_command_that_lists_those_there_are(
    ask: Ask, arguments: tuple[str, ...]
) -> None:
    error = ask(*arguments).exception
    assert isinstance(error, ConfigError)
    assert str(error) == (
        "group='bills': there is no such group; hashring group list shows those there are"
    )


def test_a_group_with_members_is_not_forgotten_and_nobody_is_asked(ask: Ask, pair: Pair) -> None:
    error = ask("forget", "orders").exception
    assert isinstance(error, GroupNotEmpty)
    assert error.members == ("a", "b")
