"""Users whom a proxy has signed in: who may look, who may act, and as whom."""

from __future__ import annotations

from typing import Any

import pytest
from redis import Redis

from hashring.store.redis_store import RedisStore
from hashring.store.ring.key_names import ring_keys
from hashring.store.ring.ring_events import newest
from hashring.web.sessions import SESSION_SECONDS, Sessions
from tests.web.conftest import TOKEN, Visit, Visitor, put
from tests.web.test_acting import form_data, form_token

pytestmark = pytest.mark.one_server

PROXY = {"trusted_proxies": ["127.0.0.1"]}


def as_(user: str) -> dict[str, str]:
    return {"X-Forwarded-User": user.encode().decode("latin-1")}


def last_event(redis: Redis) -> Any:
    store = RedisStore(redis, 5.0)
    try:
        return newest(store, ring_keys("ring"), 1)[-1]
    finally:
        store.close()


def remove(visitor: Visitor, user: str, csrf: str = "") -> Any:
    headers = as_(user)
    page = visitor.client.get("/act/remove?ring=ring&node=a", headers=headers)
    if page.status_code != 200:
        return page
    data = form_data(page.text) | ({"csrf": csrf} if csrf else {})
    return visitor.client.post("/act/remove", data=data, headers=headers)


def test_a_user_who_may_act_acts_without_a_token_under_the_name_of_the_proxy(
    redis: Redis, visit: Visit
) -> None:
    put(redis, "a", 0)
    visitor = visit(rings=["ring"], act_users=["Zoë"], **PROXY)
    page = visitor.get("/ring", name="ring", node="a", headers=as_("Zoë")).text
    assert "acting as Zoë" in page
    assert "sign out" not in page
    done = remove(visitor, "Zoë")
    assert (done.status_code, done.location) == (303, "/ring?name=ring")
    assert last_event(redis).by.startswith("Zoë (hashring serve")
    notice = visitor.get("/ring", name="ring", headers=as_("Zoë")).text
    assert "a was taken off the ring ring." in notice


def test_a_form_of_another_site_does_nothing_for_a_user(redis: Redis, visit: Visit) -> None:
    put(redis, "a", 0)
    visitor = visit(rings=["ring"], act_users=["*"], **PROXY)
    other = form_token(visitor.client.get("/act/remove?ring=ring&node=a", headers=as_("eve")).text)
    assert remove(visitor, "ada", csrf=other).status_code == 403
    assert redis.zcard("ring") == 1


def test_through_the_api_a_user_acts_under_no_other_name(redis: Redis, visit: Visit) -> None:
    put(redis, "a", 0)
    visitor = visit(rings=["ring"], act_users=["ada"], **PROXY)
    asked = {"ring": "ring", "node": "a", "by": "somebody else"}
    for user, status in (("", 403), ("eve", 403), ("ada", 200)):
        answer = visitor.client.post("/api/act/remove", json=asked, headers=as_(user))
        assert answer.status_code == status
    assert last_event(redis).by.startswith("ada (")
    # So it need not give any.
    put(redis, "b", 0)
    del asked["by"]
    answer = visitor.client.post("/api/act/remove", json=asked | {"node": "b"}, headers=as_("ada"))
    assert answer.status_code == 200
    assert last_event(redis).by.startswith("ada (")


@pytest.mark.parametrize("view", [[], ["eve"]])
def test_whom_the_proxy_names_acts_with_the_token_under_no_other_name(
    redis: Redis, visit: Visit, view: list[str]
) -> None:
    put(redis, "a", 0)
    put(redis, "b", 7)
    visitor = visit(rings=["ring"], view_users=view, token=TOKEN, **PROXY)
    asked = {"ring": "ring", "node": "b", "by": "grace"}
    headers = as_("eve") | {"Authorization": f"Bearer {TOKEN}"}
    assert visitor.client.post("/api/act/remove", json=asked, headers=headers).status_code == 200
    assert last_event(redis).by.startswith("eve (")
    signed = visitor.client.post("/login", data={"by": "grace", "token": TOKEN}, headers=as_("eve"))
    assert signed.status_code == 303
    assert remove(visitor, "eve").status_code == 303
    assert last_event(redis).nodes == ("a",)
    assert last_event(redis).by.startswith("eve (")


@pytest.mark.parametrize("user", ["", "eve", "ada\tx", "x" * 101])
def test_nobody_else_acts(redis: Redis, visit: Visit, user: str) -> None:
    put(redis, "a", 0)
    visitor = visit(rings=["ring"], act_users=["ada"], **PROXY)
    answer = remove(visitor, user)
    # To a login that there is only with a token.
    assert answer.status_code == 303
    answer = visitor.client.get(answer.location, headers=as_(user))
    assert answer.status_code == 403
    assert "--act-user" in answer.text


def test_a_name_from_an_address_that_is_no_trusted_proxy_s_is_nobody_s(
    redis: Redis, visit: Visit
) -> None:
    put(redis, "a", 0)
    visitor = visit(
        rings=["ring"], act_users=["*"], view_users=["*"], trusted_proxies=["203.0.113.7"]
    )
    assert visitor.get("/ring", name="ring", headers=as_("ada")).status_code == 403
    assert remove(visitor, "ada").status_code == 403


def test_only_named_users_look_where_view_users_are_given(redis: Redis, visit: Visit) -> None:
    put(redis, "a", 0)
    visitor = visit(rings=["ring"], view_users=["bob"], act_users=["ada"], **PROXY)
    for path in ("/", "/ring?name=ring", "/ring/feed?name=ring", "/api/rings", "/openapi.json"):
        for user, status in (("", 403), ("eve", 403), ("bob", 200), ("ada", 200)):
            answer = visitor.client.get(path, headers=as_(user), buffered=False)
            assert answer.status_code == status, (path, user)
            answer.close()
    assert visitor.get("/api/rings").json["error"].startswith("You may not look")
    for path in ("/healthz", "/metrics", "/static/page.css"):
        assert visitor.get(path).status_code == 200
    assert remove(visitor, "bob").status_code == 303


def test_beside_users_the_token_is_as_good_as_before(redis: Redis, visit: Visit) -> None:
    put(redis, "a", 0)
    visitor = visit(rings=["ring"], act_users=["ada"], token=TOKEN, **PROXY)
    assert visitor.client.post("/login", data={"by": "eve", "token": TOKEN}).status_code == 303
    assert remove(visitor, "").status_code == 303
    assert last_event(redis).by.startswith("eve (")


def test_a_user_s_session_ends_as_any_other_and_no_cookie_names_it() -> None:
    now = 0.0
    sessions = Sessions(lambda: now)
    first = sessions.of_user("ada")
    assert sessions.of_user("ada") is first
    assert sessions.find("ada") is None
    now += SESSION_SECONDS
    second = sessions.of_user("ada")
    assert second.form_token != first.form_token
