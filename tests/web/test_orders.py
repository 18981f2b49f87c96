"""Orders about nodes and members, on the page and in the API: planned, given, seen, lifted."""

from __future__ import annotations

import os
import re
import signal
from contextlib import ExitStack, closing
from html import unescape
from typing import Any
from urllib.parse import urlencode

import pytest
from redis import Redis

from hashring import PartitionGroup
from hashring.core.hashing import RING_SIZE
from hashring.errors import RedisUnavailable
from hashring.store.group.key_names import group_keys
from hashring.store.group.reading import read
from hashring.store.redis_store import RedisStore
from hashring.store.ring.commands import Scoring
from hashring.store.ring.key_names import ring_keys
from hashring.store.ring.snapshot import snapshot
from hashring.web import ring_actions, service, watcher_threads
from hashring.web.access import Access
from hashring.web.actions import ACTIONS
from hashring.web.base_action import Deed
from hashring.web.costly_requests import AT_ONCE, WAITING
from hashring.web.group_actions import UndrainMember
from hashring.web.wsgi_app import Limits
from tests.conftest import eventually
from tests.web.conftest import TOKEN, Visit, Visitor, nodes_on, put
from tests.web.test_acting import form_data, sign_in
from tests.web.test_change_plans import QUARTER, words

pytestmark = pytest.mark.one_server

BEARER = {"Authorization": f"Bearer {TOKEN}"}


def answered(visitor: Visitor, path: str, **typed: str) -> Any:
    """Answer the question of a page as a browser does, with what is typed."""
    page = visitor.client.get(path)
    assert page.status_code == 200, page.text
    return visitor.client.post(path.partition("?")[0], data=form_data(page.text) | typed)


def act(visitor: Visitor, what: str, **asked: Any) -> Any:
    return visitor.client.post(f"/api/act/{what}", json={"by": "bo", **asked}, headers=BEARER)


def test_a_node_is_drained_from_its_row_after_a_look_at_the_plan_and_undrained(
    redis: Redis, visit: Visit
) -> None:
    visitor = visit(rings=["ring"], token=TOKEN)
    sign_in(visitor)
    with nodes_on(redis, "ring", "a", "b", "c") as nodes:

        def page() -> str:
            return unescape(visitor.page("/ring", name="ring"))

        eventually(lambda: "/act/drain?ring=ring&node=a" in page(), "the page has the node")
        planned = words(visitor.page("/act/drain", ring="ring", node="a"))
        assert "Drain a of the ring ring?" in planned
        assert re.search(r"Moves \d+\.\d\d% of the ring", planned)
        assert "until somebody lifts it" in planned
        done = answered(visitor, "/act/drain?ring=ring&node=a", seconds="7200")
        assert (done.status_code, done.location) == (303, "/ring?name=ring")
        told = page()
        assert re.search(r"a of the ring ring is to drain until \d{4}-\d\d-\d\d", told)
        assert re.search(r'href="/ring\?name=ring#e-\d+-\d+"', told)
        eventually(lambda: nodes[0].state.value == "drained", "the node obeys")
        eventually(lambda: "/act/undrain?ring=ring&node=a" in page(), "its row says so")
        [order] = visitor.json("/api/ring", ring="ring")["drains"]
        assert order["node"] == "a"
        assert order["by"].startswith("ada (hashring serve")
        assert order["until"] is not None
        assert "a is drained: ordered" in words(page())
        back = words(visitor.page("/act/undrain", ring="ring", node="a"))
        assert "It joins with its next heartbeat" in back
        assert re.search(r"a 0\.00% \d", back)
        assert answered(visitor, "/act/undrain?ring=ring&node=a").status_code == 303
        eventually(lambda: nodes[0].state.value != "drained", "the node is back")


def test_the_last_node_is_drained_only_by_who_accepts_what_comes_of_it(
    redis: Redis, visit: Visit
) -> None:
    put(redis, "a", 0)
    visitor = visit(rings=["ring"], token=TOKEN)
    sign_in(visitor)
    path = "/act/drain?ring=ring&node=a"
    assert "every key of the ring would be unserved" in visitor.client.get(path).text
    assert act(visitor, "drain", ring="ring", node="a").status_code == 409
    refused = answered(visitor, path, seconds="900")
    assert refused.status_code == 409
    assert "no other node is left" in unescape(refused.text)
    assert '<option value="900" selected>' in refused.text
    assert answered(visitor, path, force="1").status_code == 303
    assert "a of the ring ring is to drain." in visitor.page("/")


def test_a_form_that_is_sent_again_acts_once_and_leads_to_the_same_place(
    redis: Redis, visit: Visit
) -> None:
    put(redis, "a", 0)
    put(redis, "b", QUARTER)
    visitor = visit(rings=["ring"], token=TOKEN)
    sign_in(visitor)
    path = "/act/drain?ring=ring&node=a"

    def drained() -> int:
        return sum(entry[b"kind"] == b"drain" for _, entry in redis.xrange("{ring}:events"))

    form = form_data(visitor.client.get(path).text)
    for _ in range(2):
        answer = visitor.client.post("/act/drain", data=form)
        assert (answer.status_code, answer.location) == (303, "/ring?name=ring")
    assert drained() == 1
    assert "a of the ring ring is to drain." in visitor.page("/")
    # The answer to a new question counts.
    assert answered(visitor, path).status_code == 303
    assert drained() == 2


def silent(*_: Any, **__: Any) -> Any:
    raise RedisUnavailable("Redis did not answer in time")


@pytest.mark.parametrize(
    ("what", "asked", "done"),
    [
        ("remove", {"node": "a"}, "a was taken off the ring ring."),
        ("drain", {"node": "a", "seconds": 900}, "a of the ring ring is to drain."),
        ("weight", {"node": "a", "weight": 2}, "a of the ring ring is to have the weight 2."),
        ("forget", {}, "The ring ring was forgotten. It is back once a node joins it."),
    ],
)
def test_what_was_done_is_done_though_redis_falls_silent_before_the_history_is_read(
    redis: Redis, visit: Visit, monkeypatch: pytest.MonkeyPatch, *, what: str, asked: Any, done: str
) -> None:
    if what != "forget":
        put(redis, "a", 0, told={"named": True})
        put(redis, "b", QUARTER)
    visitor = visit(rings=["ring"], token=TOKEN)
    monkeypatch.setattr(ring_actions, "newest", silent)
    if what == "drain":
        monkeypatch.setattr(ring_actions.RingAction, "_read", silent)
    answer = act(visitor, what, ring="ring", **asked)
    assert (answer.status_code, answer.json) == (200, {"done": done, "event": None})


def test_a_form_whose_order_redis_did_not_answer_asks_anew_when_it_is_sent_again(
    redis: Redis, visit: Visit, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(redis, "a", 0)
    put(redis, "b", QUARTER)
    visitor = visit(rings=["ring"], token=TOKEN)
    sign_in(visitor)
    form = form_data(visitor.client.get("/act/drain?ring=ring&node=a&next=/").text)
    drain = ring_actions.DrainNode._do

    def unanswered(*order: Any) -> Deed:
        drain(*order)
        return silent()

    monkeypatch.setattr(ring_actions.DrainNode, "_do", unanswered)
    assert visitor.client.post("/act/drain", data=form).status_code == 503
    before = redis.xlen("{ring}:events")
    again = visitor.client.post("/act/drain", data=form)
    assert (again.status_code, again.location) == (303, "/act/drain?ring=ring&node=a&next=%2F")
    assert "Drain a of the ring ring?" in visitor.client.get(again.location).text
    assert redis.xlen("{ring}:events") == before


def test_an_order_about_a_node_that_does_not_run_is_seen_and_lifted(
    redis: Redis, visit: Visit
) -> None:
    put(redis, "a", 0, told={"named": True})
    put(redis, "b", QUARTER)
    visitor = visit(rings=["ring"], token=TOKEN)
    assert act(visitor, "drain", ring="ring", node="a").status_code == 200
    told = visitor.json("/api/plan/undrain", ring="ring", node="a")
    assert told["note"] == "It has not obeyed the order to drain yet, so nothing moves."
    redis.zrem("ring", "0:a:0")
    redis.hdel("{ring}:nodes", "a")
    eventually(
        lambda: "a does not run and is to be drained" in words(visitor.page("/ring", name="ring")),
        "the page has the order",
    )
    sign_in(visitor)
    question = words(visitor.page("/act/undrain", ring="ring", node="a"))
    assert "It does not run, so nothing moves until it joins." in question
    lifted = act(visitor, "undrain", ring="ring", node="a").json
    assert lifted["done"] == "a is to be on the ring ring again."
    assert lifted["event"]
    again = act(visitor, "undrain", ring="ring", node="b").json
    assert again == {"done": "b of the ring ring was not drained.", "event": None}


def test_a_program_drains_a_node_for_a_time(redis: Redis, visit: Visit) -> None:
    put(redis, "a", 0)
    put(redis, "b", QUARTER)
    visitor = visit(rings=["ring"], token=TOKEN)
    assert act(visitor, "drain", ring="ring", node="a", seconds=60).status_code == 200
    store = RedisStore(redis, 5.0)
    try:
        seen = store.run(snapshot(ring_keys("ring"), scoring=Scoring.expiry(900)))
    finally:
        store.close()
    order = seen.drains["a"]
    assert order.until == pytest.approx(order.since + 60)
    assert order.by.startswith("bo (hashring serve")
    assert act(visitor, "drain", ring="ring", node="a", seconds=0).status_code == 400
    unknown = act(visitor, "drain", ring="ring", node="bb")
    assert unknown.status_code == 404
    assert "'b'" in unknown.json["error"]
    # The one that is left, although the other has not obeyed yet.
    planned = visitor.json("/api/plan/drain", ring="ring", node="b")
    assert "every key of the ring would be unserved" in planned["note"]
    last = act(visitor, "drain", ring="ring", node="b")
    assert (last.status_code, "no other node is left" in last.json["error"]) == (409, True)


def test_a_node_gets_another_weight_after_a_look_at_the_plan(redis: Redis, visit: Visit) -> None:
    visitor = visit(rings=["ring"], token=TOKEN)
    sign_in(visitor)
    with nodes_on(redis, "ring", "a", "b") as nodes:

        def told() -> Any:
            return visitor.json("/api/ring", ring="ring")

        eventually(lambda: told()["nodes"] == 2, "the page has the nodes")
        path = "/act/weight?ring=ring&node=a"
        assert path in unescape(visitor.page("/ring", name="ring", node="a"))
        assert 'method="post" action="/act/weight"' not in visitor.client.get(path).text
        planned = words(visitor.client.get(f"{path}&weight=3").text)
        assert "Give a of the ring ring the weight 3?" in planned
        assert re.search(r"Moves \d+\.\d\d% of the ring", planned)
        assert visitor.client.get(f"{path}&weight=-1").status_code == 400
        assert answered(visitor, f"{path}&weight=3").status_code == 303
        page = unescape(visitor.page("/ring", name="ring"))
        assert "a of the ring ring is to have the weight 3." in page
        assert re.search(r'href="/ring\?name=ring#e-\d+-\d+"', page)
        eventually(lambda: len(nodes[0].ring.points_of("a")) == 48, "the node obeys")
        eventually(lambda: told()["weights"], "the ring has the order")
        [order] = told()["weights"]
        assert (order["node"], order["weight"]) == ("a", 3.0)
        assert "a has the weight 3: ordered" in words(visitor.page("/ring", name="ring"))
        lifted = act(visitor, "weight", ring="ring", node="a").json
        assert lifted["done"] == "a of the ring ring is to have its own weight."
        assert lifted["event"]
        again = act(visitor, "weight", ring="ring", node="a").json
        assert again["event"] is None
        assert act(visitor, "weight", ring="ring", node="nobody").status_code == 404


def test_whoever_lifts_the_last_order_about_a_member_that_left_is_told_that_it_was_done(
    redis: Redis, visit: Visit, monkeypatch: pytest.MonkeyPatch
) -> None:
    visitor = visit(token=TOKEN)
    sign_in(visitor)
    with PartitionGroup(redis, "orders", partitions=4, member="n", rebalance_delay=0):
        with PartitionGroup(redis, "orders", partitions=4, member="m", rebalance_delay=0):
            eventually(
                lambda: act(visitor, "group-drain", group="orders", member="m").status_code == 200,
                "a member that is there can be drained",
            )

        def told() -> Any:
            return visitor.json("/api/group", group="orders")

        eventually(lambda: [m["name"] for m in told()["members"]] == ["n"], "it has left")
        do = UndrainMember._do

        def seen_at_once(self: UndrainMember, asked: Any, by: str) -> Deed:
            deed = do(self, asked, by)
            eventually(lambda: not told()["orders"], "the service has read what was done")
            return deed

        monkeypatch.setattr(UndrainMember, "_do", seen_at_once)
        done = answered(visitor, "/act/group-undrain?group=orders&member=m")
        assert (done.status_code, done.location) == (303, "/group?name=orders")
        assert "m is to have partitions again" in visitor.page("/group", name="orders")


def test_a_member_is_drained_and_weighed_from_its_row_with_the_plan_before(
    redis: Redis, visit: Visit
) -> None:
    def group(member: str) -> PartitionGroup:
        return PartitionGroup(redis, "orders", partitions=8, member=member, rebalance_delay=0)

    visitor = visit(token=TOKEN)
    sign_in(visitor)
    with group("m"), group("n"):

        def told() -> Any:
            return visitor.client.get("/api/group?group=orders").json

        eventually(
            lambda: [len(m["partitions"]) for m in told().get("members", ())] == [4, 4],
            "each has half",
        )
        page = unescape(visitor.page("/group", name="orders"))
        for what in ("drain", "weight"):
            assert f"/act/group-{what}?group=orders&member=m" in page
        path = "/act/group-drain?group=orders&member=m"
        planned = words(visitor.client.get(path).text)
        assert "Partitions that move 4 of 8" in planned
        assert "m 4 0 n 4 8" in planned
        done = answered(visitor, path)
        assert (done.status_code, done.location) == (303, "/group?name=orders")
        page = visitor.page("/group", name="orders")
        assert re.search(r'm is to hand over.* <a href="/group\?name=orders#e-\d+"', page)
        eventually(lambda: told()["members"][0]["state"] == "drained", "its state says so")
        [order] = told()["orders"]
        assert (order["member"], order["drained"], order["until"]) == ("m", True, None)
        last = visitor.page("/act/group-drain", group="orders", member="n")
        assert "No other member is left" in last
        eventually(
            lambda: "m is drained: ordered" in words(visitor.page("/group", name="orders")),
            "the page has the order",
        )
        assert answered(visitor, "/act/group-undrain?group=orders&member=m").status_code == 303
        eventually(lambda: not told()["orders"], "the order is lifted")
        path = "/act/group-weight?group=orders&member=m"
        assert 'method="post" action="/act/group-weight"' not in visitor.client.get(path).text
        eventually(
            lambda: [len(m["partitions"]) for m in told()["members"]] == [4, 4], "each has half"
        )
        weighed = words(visitor.client.get(f"{path}&weight=3").text)
        assert "the weight 3?" in weighed
        assert "m 4 6 n 4 2" in weighed
        assert answered(visitor, f"{path}&weight=3").status_code == 303
        eventually(lambda: told()["orders"] and told()["orders"][0]["weight"] == 3.0, "it has it")
        lifted = act(visitor, "group-weight", group="orders", member="m")
        assert lifted.json["done"] == "m is to have its own weight."
        again = act(visitor, "group-undrain", group="orders", member="m")
        assert again.json == {"done": "m was not drained.", "event": None}


def test_an_order_about_a_member_is_refused_with_the_reason(redis: Redis, visit: Visit) -> None:
    visitor = visit(token=TOKEN)
    with PartitionGroup(redis, "orders", partitions=4, member="worker", rebalance_delay=0):
        store = RedisStore(redis, 5.0)
        try:
            eventually(
                lambda: (
                    (state := store.run(read(group_keys("orders"))).state) is not None
                    and "worker" in state.roster
                ),
                "the member is there",
            )
        finally:
            store.close()
        for what in ("group-drain", "group-undrain", "group-weight"):
            answer = act(visitor, what, group="orders", member="workr")
            assert (answer.status_code, "'worker'" in answer.json["error"]) == (404, True)
        last = act(visitor, "group-drain", group="orders", member="worker")
        assert (last.status_code, "4 of 4 partitions" in last.json["error"]) == (409, True)
        assert (
            act(visitor, "group-weight", group="orders", member="worker", weight=-1)
            .json["error"]
            .startswith("the body is not as described")
        )


@pytest.mark.parametrize("what", ACTIONS)
def test_the_login_says_in_words_what_was_chosen(visit: Visit, what: str) -> None:
    given = {"ring": "r", "node": "n", "key": "k", "token": "1", "group": "g", "member": "m"}
    visitor = visit(token=TOKEN)
    page = visitor.page(
        "/login", next=f"/act/{what}?" + "&".join(f"{k}={v}" for k, v in given.items())
    )
    assert "You want to <b>" in page
    assert f"/api/act/{what}" in visitor.json("/openapi.json")["paths"]


def test_the_api_has_the_plan_of_an_order_about_a_node(redis: Redis, visit: Visit) -> None:
    visitor = visit(rings=["ring"], token=TOKEN)

    def plan(order: str, status: int = 200, **asked: Any) -> Any:
        return visitor.json(f"/api/plan/{order}", status, ring="ring", **asked)

    with nodes_on(redis, "ring", "a", "b") as nodes:
        eventually(lambda: visitor.json("/api/ring", ring="ring")["nodes"] == 2, "it has the nodes")
        share = nodes[0].ring.share("a")
        leaves = plan("drain", node="a")
        assert leaves["flows"] == [{"from": "a", "to": "b", "part": pytest.approx(share)}]
        assert (leaves["exact"], leaves["note"], leaves["after"]) == (True, None, {"b": 1.0})
        assert plan("undrain", node="a")["note"] == "No order to drain it stands, so nothing moves."
        grows = plan("weight", node="a", weight=3)
        assert (grows["exact"], grows["after"]["a"] > share) == (False, True)
        assert plan("weight", node="a")["moved"] == 0.0
        assert plan("weight", node="a", weight="0.5")["exact"]
        assert "weight" in plan("weight", 400, node="a", weight="heavy")["error"]
        assert "weight" in plan("weight", 400, node="a", weight="nan")["error"]
        for order in ("drain", "undrain", "weight"):
            assert "'b'" in plan(order, 404, node="bb")["error"]
            assert "node" in plan(order, 400)["error"]
        assert act(visitor, "drain", ring="ring", node="a").status_code == 200
        eventually(lambda: nodes[0].state.value == "drained", "the node obeys")
        eventually(lambda: visitor.json("/api/ring", ring="ring")["nodes"] == 1, "it is seen")
        last = plan("drain", node="b")
        assert "every key of the ring would be unserved" in last["note"]
        assert last["flows"] == [{"from": "b", "to": None, "part": 1.0}]
        assert "not on the ring" in plan("weight", node="a", weight=2)["note"]
        back = plan("undrain", node="a")
        assert (back["exact"], back["after"]["a"]) == (True, pytest.approx(share))


def test_the_api_has_the_plan_of_an_order_about_a_member(redis: Redis, visit: Visit) -> None:
    def group(member: str) -> PartitionGroup:
        return PartitionGroup(redis, "orders", partitions=8, member=member, rebalance_delay=0)

    visitor = visit(token=TOKEN)

    def plan(order: str, status: int = 200, **asked: Any) -> Any:
        return visitor.json(f"/api/group/plan/{order}", status, group="orders", **asked)

    def counts() -> list[int]:
        told = visitor.client.get("/api/group?group=orders").json
        return [len(member["partitions"]) for member in told.get("members", ())]

    with group("m"), group("n"):
        eventually(lambda: counts() == [4, 4], "each has half")
        assert plan("drain", member="m")["after"] == {"m": 0, "n": 8}
        assert plan("weight", member="m", weight=3)["after"] == {"m": 6, "n": 2}
        assert plan("undrain", member="m")["note"] == (
            "No order to drain it stands, so nothing moves."
        )
        assert "weight" in plan("weight", 400, member="m", weight="-1")["error"]
        for order in ("drain", "undrain", "weight"):
            assert "'m'" in plan(order, 404, member="mm")["error"]
        assert act(visitor, "group-drain", group="orders", member="m").status_code == 200
        eventually(lambda: counts() == [0, 8], "it hands over")
        assert plan("undrain", member="m")["after"] == {"m": 4, "n": 4}
        assert "No other member is left" in plan("drain", member="n")["note"]


@pytest.mark.parametrize("typed", ["2", "+2", " 2", "2e0", "\u0662", "0_2", ".2e1"])
def test_a_weight_that_a_page_shows_a_plan_for_can_be_ordered(
    redis: Redis, visit: Visit, typed: str
) -> None:
    put(redis, "a", 0)
    put(redis, "b", QUARTER)
    visitor = visit(rings=["ring"], token=TOKEN)
    sign_in(visitor)
    asked = f"/act/weight?{urlencode({'ring': 'ring', 'node': 'a', 'weight': typed})}"
    assert "the weight 2?" in visitor.client.get(asked).text
    assert answered(visitor, asked).status_code == 303
    with closing(RedisStore(redis, 5.0)) as store:
        seen = store.run(snapshot(ring_keys("ring"), scoring=Scoring.expiry(0.0)))
    assert seen.weights["a"].weight == 2


def test_an_answer_to_what_has_changed_meanwhile_is_asked_for_anew(
    redis: Redis, visit: Visit
) -> None:
    visitor = visit(rings=["ring"], token=TOKEN)
    sign_in(visitor)
    with nodes_on(redis, "ring", "a", "b", "c") as nodes:

        def figures() -> str:
            page = visitor.client.get("/act/drain?ring=ring&node=a").text
            return words(page) if 'class="figures"' in page else ""

        eventually(lambda: "a" in figures(), "what moves is known")
        before, asked = figures(), visitor.client.get("/act/drain?ring=ring&node=a").text
        for node in nodes[1:]:
            node.stop()
        eventually(lambda: figures() != before and "No other node" in figures(), "it is seen")
        data = form_data(asked) | {"force": "1"}
        again = visitor.client.post("/act/drain", data=data | {"seconds": "900"})
        assert again.status_code == 409
        assert "This has changed since you were asked" in again.text
        assert '<option value="900" selected>' in again.text
        assert visitor.json("/api/ring", ring="ring")["drains"] == []
        # The second answer is to what is shown now.
        data = form_data(again.text)
        assert visitor.client.post("/act/drain", data=data | {"force": "1"}).status_code == 303


def test_a_node_that_came_back_is_not_removed_by_an_answer_about_one_that_had_expired(
    redis: Redis, visit: Visit
) -> None:
    put(redis, "a", 0, expires_in=-5)
    put(redis, "b", QUARTER)
    visitor = visit(rings=["ring"], token=TOKEN)
    sign_in(visitor)
    path = "/act/remove?ring=ring&node=a"
    asked = visitor.client.get(path).text
    assert "It has not expired" not in asked
    put(redis, "a", 0)
    eventually(lambda: "It has not expired" in visitor.client.get(path).text, "it is seen")
    assert visitor.client.post("/act/remove", data=form_data(asked)).status_code == 409
    assert redis.zcard("ring") == 2


def test_an_answer_is_compared_with_redis_and_not_with_the_last_reading(
    redis: Redis, visit: Visit, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(redis, "a", 0, expires_in=-5)
    put(redis, "b", QUARTER)
    # The service reads the ring once, and then only when a message comes.
    monkeypatch.setattr(watcher_threads, "until_turn", lambda *_: 60.0)
    visitor = visit(rings=["ring"], token=TOKEN)
    sign_in(visitor)
    gone = visitor.client.get("/act/remove?ring=ring&node=a").text
    even = visitor.client.get("/act/drain?ring=ring&node=b").text
    assert "It has not expired" not in gone
    put(redis, "a", 0)
    for what, form in (("drain", form_data(even) | {"force": "1"}), ("remove", form_data(gone))):
        answer = visitor.client.post(f"/act/{what}", data=form)
        assert (what, answer.status_code) == (what, 409)
    assert redis.zcard("ring") == 2


def test_small_changes_of_a_large_ring_keep_nobody_from_acting(redis: Redis, visit: Visit) -> None:
    for number in range(400):
        put(redis, f"n{number}", number * RING_SIZE // 400, told={"named": True})
    visitor = visit(rings=["ring"], token=TOKEN)
    sign_in(visitor)
    asked = visitor.client.get("/act/drain?ring=ring&node=n7").text
    redis.zrem("ring", f"{200 * RING_SIZE // 400}:n200:0")
    eventually(lambda: visitor.json("/api/ring", ring="ring")["nodes"] == 399, "one is gone")
    assert visitor.client.post("/act/drain", data=form_data(asked)).status_code == 303


def test_an_order_that_redis_did_not_answer_may_have_been_given(
    redis: Redis, visit: Visit, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(redis, "a", 0, told={"named": True})
    put(redis, "b", QUARTER)
    monkeypatch.setattr(service, "_PATIENCE", 0.5)
    visitor = visit(rings=["ring"], token=TOKEN)
    sign_in(visitor)
    data = form_data(visitor.client.get("/act/remove?ring=ring&node=b").text)
    # Redis knows the script from now on, so it needs no second message.
    assert act(visitor, "drain", ring="ring", node="a").status_code == 200
    assert act(visitor, "undrain", ring="ring", node="a").status_code == 200
    events, pid = redis.xlen("{ring}:events"), redis.info()["process_id"]
    os.kill(pid, signal.SIGSTOP)
    try:
        by_api = act(visitor, "drain", ring="ring", node="a")
        by_page = visitor.client.post("/act/remove", data=data)
    finally:
        os.kill(pid, signal.SIGCONT)
    may_be = "may have been done all the same: look at the history"
    assert (by_api.status_code, may_be in by_api.text) == (503, True)
    # What was asked could not be compared with Redis, so nothing was tried.
    assert (by_page.status_code, may_be in by_page.text) == (503, False)
    eventually(lambda: redis.xlen("{ring}:events") > events, "it was done, indeed")
    assert redis.zcard("ring") == 2


def test_readers_who_ask_for_many_plans_keep_no_page_from_who_may_act(
    redis: Redis, visit: Visit
) -> None:
    put(redis, "a", 0)
    put(redis, "b", QUARTER)
    limits = Limits(Access(token=TOKEN).guard())
    visitor = visit(rings=["ring"], token=TOKEN, limits=limits)
    sign_in(visitor)
    with ExitStack() as stack:
        for _ in range(AT_ONCE):
            stack.enter_context(limits.turns.turn())
        # As if as many as may were waiting.
        limits.turns._asking += WAITING
        assert visitor.get("/api/plan", ring="ring", leave="a").status_code == 503
        question = words(visitor.page("/act/drain", ring="ring", node="a"))
        limits.turns._asking -= WAITING
    assert "Moves" in question
