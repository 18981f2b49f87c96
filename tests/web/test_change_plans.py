"""What a change would do, on a page, before anybody makes it."""

from __future__ import annotations

import re
from html import unescape

import pytest
from redis import Redis

from hashring import PartitionGroup
from hashring.core.hashing import RING_SIZE
from tests.conftest import eventually
from tests.web.conftest import HOSTILE, SESSION, TOKEN, Visit, put
from tests.web.test_acting import form_data, sign_in

pytestmark = pytest.mark.one_server

QUARTER = RING_SIZE // 4


def words(page: str) -> str:
    """The page's text."""
    main = page.split("<main", 1)[1].split("</main>", maxsplit=1)[0]
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", main)).split())


def test_a_plan_of_a_ring_shows_what_moves_to_whom_and_how_even_it_gets(
    redis: Redis, visit: Visit
) -> None:
    put(redis, "a", 0)
    put(redis, "b", QUARTER, 2 * QUARTER)
    put(redis, "c", 3 * QUARTER)
    visitor = visit(rings=["ring"])
    page = visitor.page("/plan/ring", ring="ring", leave="a")
    text = words(page)
    assert "Moves 25.00% of the ring" in text
    assert "a c 25.00%" in text
    assert "c 25.00% 50.00% +25.00%" in text
    assert re.search("Busiest node 1.00. → 1.50. its fair share", text)
    assert re.search(r'value="a" checked', page)
    told = visitor.json("/api/plan", ring="ring", leave="a")
    assert told["moved"] == 0.25
    # The page before says how, and the node's row and panel lead here.
    assert "Choose nodes that leave" in visitor.page("/plan/ring", ring="ring")
    assert "/plan/ring?ring=ring&amp;leave=a" in visitor.page("/ring", name="ring", node="a")


def test_names_and_weights_of_a_plan_come_one_a_line(redis: Redis, visit: Visit) -> None:
    put(redis, "a", *range(0, RING_SIZE, RING_SIZE // 16))
    visitor = visit(rings=["ring"])
    page = visitor.page(
        "/plan/ring", ring="ring", join="x = y\r\n\r\nz", weight="z=2\na=0.5", replicas=8
    )
    text = words(page)
    assert "this is one possible outcome" in text
    assert "x = y 0.00%" in text
    assert "z 0.00%" in text
    assert ">x = y\n\nz</textarea>" in page.replace("\r", "")
    # The API takes weights as well: eight points each of a and x, sixteen of z.
    told = visitor.json("/api/plan", ring="ring", join=["x", "z"], weight=["z=2"], replicas=4)
    assert set(told["after"]) == {"a", "x", "z"}


def test_a_plan_counts_points_as_the_nodes_of_the_ring_do(redis: Redis, visit: Visit) -> None:
    for number, name in enumerate("abc"):
        points = range(number, RING_SIZE - 64, RING_SIZE // 64)
        put(redis, name, *points, told={"weight": 1.0, "n_replicas": 64})
    visitor = visit(rings=["ring"])
    assert visitor.json("/api/plan", ring="ring", weight="a=1")["moved"] == 0
    joined = visitor.json("/api/plan", ring="ring", join="d")["least"]
    assert joined == pytest.approx(1 / 4)
    assert re.search(r'name="replicas"[^>]* value="64"', visitor.page("/plan/ring", ring="ring"))


def test_a_node_that_owns_nothing_moves_nothing_in_a_plan(redis: Redis, visit: Visit) -> None:
    put(redis, "a", 0)
    put(redis, "b", QUARTER)
    redis.hset("{ring}:nodes", "drained", SESSION + "{}")
    visitor = visit(rings=["ring"])
    assert visitor.json("/api/plan", ring="ring", leave="drained")["moved"] == 0
    assert visitor.json("/api/plan", ring="ring", weight="drained=2")["moved"] == 0
    told = visitor.json("/api/plan", ring="ring", leave=["drained", "a"])
    assert set(told["after"]) == {"b"}
    assert "'gone' is not on" in str(visitor.json("/api/plan", 404, ring="ring", leave="gone"))


def test_a_name_with_spaces_around_it_is_another_node_in_the_api(
    redis: Redis, visit: Visit
) -> None:
    put(redis, "a", 0)
    put(redis, " a ", QUARTER)
    visitor = visit(rings=["ring"])
    told = visitor.json("/api/plan", ring="ring", weight=" a =5")
    assert {flow["to"] for flow in told["flows"]} == {" a "}
    # On the page, spaces around what is typed are of no name.
    page = words(visitor.page("/plan/ring", ring="ring", weight="a = 5"))
    assert re.search(r"From whom to whom From To Of the ring a a \d", page)


@pytest.mark.parametrize("joining", [0, 8])
def test_a_plan_whose_nodes_would_get_very_many_points_is_refused(
    redis: Redis, visit: Visit, joining: int
) -> None:
    staying = [f"s{number}" for number in range(8)]
    for number, name in enumerate(staying):
        put(redis, name, number, told={"n_replicas": 1000})
    new = [f"n{number}" for number in range(joining)]
    heavy = new or staying
    visitor = visit(rings=["ring"])
    told = visitor.json(
        "/api/plan", 422, ring="ring", join=new, weight=[f"{name}=20" for name in heavy],
        replicas=1000,
    )  # fmt: skip
    assert "are too much work for one request" in told["error"]
    # One of them is not.
    one = heavy[0]
    asked = {"join": one} if new else {}
    visitor.json("/api/plan", ring="ring", weight=f"{one}=20", replicas=1000, **asked)


@pytest.mark.parametrize(
    ("asked", "status", "text"),
    [
        ({"leave": "a"}, 409, "no node would be left"),
        ({"leave": "nobody"}, 404, "nobody"),
        ({"join": "a"}, 400, "is on the ring already"),
        ({"join": "x", "weight": "x=heavy"}, 400, "such as worker-3=2"),
        ({"join": "x", "weight": "2"}, 400, "such as worker-3=2"),
        ({"join": "x", "weight": "x=nan"}, 400, "is no weight"),
        ({"join": "x", "placement": "nowhere"}, 400, "placement"),
        ({"join": "x", "replicas": "0"}, 400, "a whole number from 1"),
        ({"join": "\n".join(f"n{n}" for n in range(101))}, 422, "at most 100"),
    ],
)
def test_a_plan_that_cannot_be_keeps_the_form_and_says_why(
    redis: Redis, visit: Visit, asked: dict[str, str], status: int, text: str
) -> None:
    put(redis, "a", 0)
    answer = visit(rings=["ring"]).get("/plan/ring", ring="ring", **asked)
    assert answer.status_code == status
    assert text in unescape(answer.text)
    if "join" in asked:
        assert f">{asked['join']}</textarea>" in answer.text


def test_a_node_that_is_planned_to_leave_is_removed_and_the_plan_is_back(
    redis: Redis, visit: Visit
) -> None:
    put(redis, "a", 0)
    put(redis, "b", QUARTER)
    visitor = visit(rings=["ring"], token=TOKEN)
    sign_in(visitor)
    page = visitor.page("/plan/ring", ring="ring", leave="a")
    found = re.search(r'href="(/act/remove[^"]*)"', page)
    assert found
    confirm = visitor.client.get(unescape(found[1])).text
    done = visitor.client.post("/act/remove", data=form_data(confirm))
    assert (done.status_code, done.location) == (303, "/plan/ring?ring=ring&leave=a")
    assert "a was taken off the ring ring." in visitor.client.get(done.location).text


def test_a_plan_page_is_small_whatever_the_address_names_and_holds(
    redis: Redis, visit: Visit
) -> None:
    put(redis, "a", 0)
    put(redis, "b", QUARTER)
    visitor = visit(rings=["ring"], token=TOKEN)
    page = visitor.page("/plan/ring", ring="ring", leave=["a"] * 100, more="%" * 10_000)
    assert page.count("/act/remove") == 1
    assert len(page) < 100_000


def test_the_row_of_a_node_that_is_late_leads_to_its_removal(redis: Redis, visit: Visit) -> None:
    put(redis, "late", 0, expires_in=60, told={"ttl": 900})
    put(redis, "well", 7, told={"ttl": 900})
    removal = "/act/remove?ring=ring&amp;node={}"
    page = visit(rings=["ring"], token=TOKEN).page("/ring", name="ring")
    assert removal.format("late") in page
    assert removal.format("well") not in page
    assert removal.format("late") not in visit(rings=["ring"]).page("/ring", name="ring")


def test_a_plan_of_a_group_shows_moves_rounds_and_counts(redis: Redis, visit: Visit) -> None:
    with PartitionGroup(redis, "orders", partitions=6, member="m", rebalance_delay=0):
        visitor = visit()
        eventually(
            lambda: visitor.json("/api/group", group="orders")["members"], "the member is there"
        )
        text = words(visitor.page("/plan/group", group="orders"))
        assert "Then see what moves." in text
        assert "Partitions that move" not in text
        text = words(visitor.page("/plan/group", group="orders", join="n"))
        assert "Partitions that move 3 of 6" in text
        assert "m 6 3" in text
        assert "n 0 3" in text
        left = words(visitor.page("/plan/group", group="orders", join="n", leave="m"))
        assert "0 m n m leaves" in left
        text = words(
            visitor.page("/plan/group", group="orders", partitions="8", access="exclusive")
        )
        assert "Partitions that move 2 of 6" in text
        answer = visitor.get("/plan/group", group="orders", leave="nobody")
        assert answer.status_code == 404
        assert "Members that leave" in answer.text
        assert "/plan/group?group=orders&amp;leave=m" in visitor.page("/group", name="orders")


def test_a_plan_of_a_group_takes_weights_of_members_that_join_and_stay(
    redis: Redis, visit: Visit
) -> None:
    with PartitionGroup(redis, "orders", partitions=12, member="m", rebalance_delay=0):
        visitor = visit()
        eventually(
            lambda: visitor.json("/api/group", group="orders")["members"], "the member is there"
        )

        def after(**asked: object) -> object:
            return visitor.json("/api/group/plan", group="orders", **asked)["after"]

        assert after(join="n", weight="n=2") == {"m": 4, "n": 8}
        assert after(join=["n", "o"], weight=["m=2"]) == {"m": 6, "n": 3, "o": 3}
        text = words(visitor.page("/plan/group", group="orders", join="n", weight="n = 2\nm=1"))
        assert "n 0 8" in text
        told = visitor.json("/api/group/plan", 404, group="orders", weight="nobody=2")
        assert "nobody" in told["error"]
        told = visitor.json("/api/group/plan", 400, group="orders", leave="m", weight="m=2")
        assert told["error"] == "leave='m': cannot get a weight in the same plan"


@pytest.mark.parametrize("kind", ["ring", "group"])
def test_a_name_that_joins_with_a_weight_behind_it_is_refused_unless_it_has_a_weight(
    redis: Redis, visit: Visit, kind: str
) -> None:
    put(redis, "m", 0)
    with PartitionGroup(redis, "group", partitions=12, member="m", rebalance_delay=0):
        visitor = visit(rings=["ring"])
        eventually(
            lambda: visitor.json("/api/group", group="group")["members"], "the member is there"
        )
        path = "/api/plan" if kind == "ring" else "/api/group/plan"
        told = visitor.json(path, 400, **{kind: kind}, join="x=2")
        assert told["error"] == (
            "join='x=2': give the weight apart: join x, weight x=2. If it is the whole name, give "
            "it a weight: x=2=1"
        )
        told = visitor.json(path, **{kind: kind}, join="x=2", weight="x=2=1")
        assert set(told["after"]) == {"m", "x=2"}
        assert visitor.get(f"/plan/{kind}", **{kind: kind}, join="x=2").status_code == 400


def test_a_plan_of_a_group_without_members_says_what_nobody_owns(
    redis: Redis, visit: Visit
) -> None:
    with PartitionGroup(redis, "orders", partitions=6, member="m", rebalance_delay=0):
        visitor = visit()
        eventually(
            lambda: visitor.json("/api/group", group="orders")["members"], "the member is there"
        )
        told = visitor.json("/api/group/plan", group="orders", leave="m")
        assert told["note"] == "no member is left, so nobody owns 6 partitions"
        page = words(visitor.page("/plan/group", group="orders", leave="m"))
        assert "No member is left, so nobody owns 6 partitions." in page


def test_a_hostile_name_is_text_in_a_plan(redis: Redis, visit: Visit) -> None:
    put(redis, "b", 7)
    for number, name in enumerate(HOSTILE):
        put(redis, name, number * 1000)
    page = visit(rings=["ring"], token=TOKEN).page(
        "/plan/ring", ring="ring", leave=HOSTILE, join=HOSTILE[0] + "x", weight="b=2"
    )
    assert "<script>document" not in page
    assert "<img" not in page
    assert "{{7*7}}" in page
