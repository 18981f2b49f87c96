"""Signing in, acting, and everything that must not let anybody else act."""

from __future__ import annotations

import re
from html import unescape
from typing import Any

import pytest
from redis import Redis

from hashring import PartitionGroup
from hashring.core.hashing import RING_SIZE
from hashring.errors import ConfigError
from hashring.store.group.decision_history import read_decision
from hashring.store.group.key_names import group_keys
from hashring.store.group.reading import read
from hashring.store.locks.commands import acquire, look
from hashring.store.redis_store import RedisStore
from hashring.store.ring.key_names import ring_keys
from hashring.store.ring.ring_events import newest
from hashring.web.sessions import Sessions
from hashring.web.token_guard import Guard
from tests.conftest import eventually
from tests.web.conftest import SESSION, TOKEN, Visit, Visitor, put


@pytest.fixture
def store(redis: Redis) -> Any:
    store = RedisStore(redis, 5.0)
    yield store
    store.close()


def form_token(page: str) -> str:
    found = re.search(r'name="csrf" value="([^"]+)"', page)
    assert found, page
    return found[1]


def form_data(page: str) -> dict[str, str]:
    """What the form that acts sends, besides what is typed."""
    form = page.split('<form method="post" action="', 1)[1].split("</form>", 1)[0]
    fields = re.findall(r'type="hidden" name="([^"]+)" value="([^"]*)"', form)
    return {name: unescape(value) for name, value in fields}


def sign_in(visitor: Visitor, by: str = "ada", token: str = TOKEN) -> Any:
    return visitor.client.post("/login", data={"by": by, "token": token})


def test_nothing_can_be_done_without_a_token_of_the_services(redis: Redis, visit: Visit) -> None:
    put(redis, "a", 0)
    visitor = visit(rings=["ring"])
    answer = visitor.client.post(
        "/api/act/remove",
        json={"ring": "ring", "node": "a", "by": "x"},
        headers={"Authorization": "Bearer x"},
    )
    assert answer.status_code == 403
    assert "--allow-actions" in answer.json["error"]
    assert visitor.client.post("/act/remove").status_code == 403
    assert "Remove it" not in visitor.page("/ring", name="ring", node="a")


def test_a_person_takes_a_node_off_and_the_history_says_who(
    redis: Redis, store: RedisStore, visit: Visit
) -> None:
    put(redis, "a", 0)
    put(redis, "b", RING_SIZE // 2)
    visitor = visit(rings=["ring"], token=TOKEN)
    assert visitor.get("/act/remove", ring="ring", node="a").status_code == 303
    led = visitor.client.get("/act/remove?ring=ring&node=a")
    assert "<b>take a off the ring ring</b>" in visitor.client.get(led.location).text
    assert sign_in(visitor).status_code == 303
    page = visitor.page("/act/remove", ring="ring", node="a")
    assert "Take a off the ring ring?" in page
    data = form_data(page)
    done = visitor.client.post("/act/remove", data=data)
    assert (done.status_code, done.location) == (303, "/ring?name=ring")
    [event] = newest(store, ring_keys("ring"), 1)
    page = visitor.page("/ring", name="ring")
    assert "a was taken off the ring ring" in page
    assert f'href="/ring?name=ring#e-{event.id}"' in page
    assert "was taken off" not in visitor.page("/ring", name="ring")
    assert redis.zcard("ring") == 1
    eventually(
        lambda: f'id="e-{event.id}"' in visitor.page("/ring", name="ring"), "the history has it"
    )
    assert event.kind == "leave"
    assert event.by.startswith("ada (hashring serve")
    gone = visitor.client.post("/act/remove", data=data | {"form": "another"})
    assert (gone.status_code, "not on ring" in gone.text) == (404, True)


def test_a_program_releases_a_lock_and_no_other(
    redis: Redis, store: RedisStore, visit: Visit
) -> None:
    put(redis, "a", 0)
    keys = ring_keys("ring")
    [granted] = store.run(
        acquire(keys, node="a", session=SESSION, ttl=60, locked=[b"k"], most=1, awaited=0)
    )
    visitor = visit(rings=["ring"], token=TOKEN)
    headers = {"Authorization": f"Bearer {TOKEN}"}
    asked = {"ring": "ring", "key": "k", "token": "1", "by": "a script"}
    answer = visitor.client.post("/api/act/release", json=asked, headers=headers)
    assert "was not released" in answer.json["done"]
    asked["token"] = str(granted)
    answer = visitor.client.post("/api/act/release", json=asked, headers=headers)
    assert "was released" in answer.json["done"]
    assert not store.run(look(keys, locked=[b"k"]))
    [event] = newest(store, keys, 1)
    assert (event.kind, event.keys) == ("release", "k")
    assert event.by.startswith("a script (hashring serve")


def test_a_group_is_asked_for_a_rebalance_and_its_history_says_by_whom(
    redis: Redis, store: RedisStore, visit: Visit
) -> None:
    group = PartitionGroup(redis, "orders", partitions=8, member="m", rebalance_delay=3600)
    with group:
        late = PartitionGroup(redis, "orders", partitions=8, member="n", rebalance_delay=3600)
        with late:
            keys = group_keys("orders")

            def phase() -> str:
                state = store.run(read(keys)).state
                return state.phase.value if state else ""

            eventually(lambda: phase() == "Holddown", "the second member is waited for")
            visitor = visit(token=TOKEN)
            asked = {"group": "orders", "by": "ada"}
            headers = {"Authorization": f"Bearer {TOKEN}"}
            answer = visitor.client.post("/api/act/rebalance", json=asked, headers=headers)
            assert answer.json["done"] == "orders was asked to rebalance."
            number = int(answer.json["event"])
            eventually(lambda: phase() == "Ready", "the partitions have moved")
            entries = store.call("XRANGE", keys.control, "-", "+")
            said = [event for entry in entries for event in read_decision(entry).events]
            assert any(e.kind.value == "asked" and "by ada" in e.why for e in said)
            eventually(
                lambda: f'id="e-{number}"' in visitor.page("/group", name="orders"),
                "the page's history has it",
            )


def test_a_ring_whose_nodes_are_gone_is_forgotten_from_the_list_and_stays_so(
    redis: Redis, store: RedisStore, visit: Visit
) -> None:
    visitor = visit(token=TOKEN)
    sign_in(visitor)
    put(redis, "a", 0, ring="old")
    redis.set("{old}:epoch", "1 ab")
    asked = {"ring": "old", "by": "ada"}
    headers = {"Authorization": f"Bearer {TOKEN}"}
    answer = visitor.client.post("/api/act/forget", json=asked, headers=headers)
    error = (
        "ring 'old' has 1 live node: 'a'; it can be forgotten once all have left or expired: stop "
        "them, or wait"
    )
    assert (answer.status_code, answer.json) == (409, {"error": error})
    page = visitor.client.get("/act/forget?ring=old").text
    refused = visitor.client.post("/act/forget", data=form_data(page))
    assert (refused.status_code, error in unescape(refused.text)) == (409, True)
    assert form_data(refused.text)["ring"] == "old"
    put(redis, "a", 0, ring="old", expires_in=-60)
    asked_from = "/act/forget?ring=old&amp;next=%2F"
    eventually(lambda: asked_from in visitor.page("/"), "the list offers it")
    page = visitor.client.get(unescape(asked_from)).text
    data = form_data(page)
    done = visitor.client.post("/act/forget", data=data)
    assert (done.status_code, done.location) == (303, "/")
    assert "The ring old was forgotten" in visitor.page("/")
    [event] = newest(store, ring_keys("old"), 1)
    assert (event.kind, event.by.split()[0]) == ("forget", "ada")
    # Another service, or this one after a restart, does not show it either.
    other = visit()
    watcher = other.service.ring("old")
    assert watcher is not None
    eventually(lambda: watcher.stopping, "it is not watched any more")
    assert [ring.name for ring in other.service.listed()[0]] == []


def test_a_group_whose_members_are_gone_is_forgotten_from_the_list_and_stays_so(
    redis: Redis, store: RedisStore, visit: Visit
) -> None:
    visitor = visit(token=TOKEN)
    sign_in(visitor)
    asked = {"group": "old", "by": "ada"}
    headers = {"Authorization": f"Bearer {TOKEN}"}
    with PartitionGroup(redis, "old", 2, member="m"):
        eventually(lambda: "/group?name=old" in visitor.page("/"), "it is found")
        answer = visitor.client.post("/api/act/group-forget", json=asked, headers=headers)
        assert answer.status_code == 409
        assert "group 'old' has 1 live member: 'm'" in answer.json["error"]
        assert "act/group-forget" not in visitor.page("/group", name="old")
    asked_from = "/act/group-forget?group=old&amp;next=%2F"
    eventually(lambda: asked_from in visitor.page("/"), "the list offers it")
    assert "/act/group-forget?group=old" in visitor.page("/group", name="old")
    page = visitor.client.get(unescape(asked_from)).text
    with PartitionGroup(redis, "old", 2, member="n"):
        refused = visitor.client.post("/act/group-forget", data=form_data(page))
    assert refused.status_code == 409
    assert "group &#39;old&#39; has 1 live member: &#39;n&#39;" in refused.text
    assert form_data(refused.text)["group"] == "old"
    page = visitor.client.get(unescape(asked_from)).text
    done = visitor.client.post("/act/group-forget", data=form_data(page))
    assert (done.status_code, done.location) == (303, "/")
    assert "The group old was forgotten" in visitor.page("/")
    [entry] = store.call("XREVRANGE", group_keys("old").control, "+", "-", "COUNT", 1)
    decision = read_decision(entry)
    assert ([event.kind.value for event in decision.events], decision.by.split()[0]) == (
        ["forgotten"],
        "ada",
    )
    # Another service, or this one after a restart, does not show it either.
    other = visit()
    watcher = other.service.group("old")
    assert watcher is not None
    eventually(lambda: watcher.stopping, "it is not watched any more")
    assert [group.name for group in other.service.listed()[1]] == []


def test_a_form_of_somebody_elses_does_nothing_but_ask_again(redis: Redis, visit: Visit) -> None:
    put(redis, "a", 0)
    visitor = visit(rings=["ring"], token=TOKEN)
    sign_in(visitor)
    for csrf in ("", "guessed"):
        data = {"csrf": csrf, "ring": "ring", "node": "a"}
        answer = visitor.client.post("/act/remove", data=data)
        assert answer.status_code == 403
        assert "answer again" in answer.text
        assert "Take a off the ring ring?" in answer.text
    assert redis.zcard("ring") == 1
    cookie = visitor.client.get_cookie("hashring", path="/")
    assert cookie is not None
    assert (cookie.http_only, cookie.same_site) == (True, "Strict")


@pytest.mark.parametrize("by", ["", "  ", "x" * 101, "a\nb"])
def test_whoever_acts_must_say_who(visit: Visit, by: str) -> None:
    answer = sign_in(visit(token=TOKEN), by=by)
    assert answer.status_code == 400
    assert "by=" in answer.text


def test_a_wrong_token_does_nothing_and_is_soon_not_even_looked_at(
    redis: Redis, visit: Visit
) -> None:
    put(redis, "a", 0)
    visitor = visit(rings=["ring"], token=TOKEN)
    asked = {"ring": "ring", "node": "a", "by": "eve"}

    def attempt(token: str) -> Any:
        headers = {"Authorization": f"Bearer {token}"}
        return visitor.client.post("/api/act/remove", json=asked, headers=headers)

    assert visitor.client.post("/api/act/remove", json=asked).status_code == 401
    assert [attempt(f"guess-{n}").status_code for n in range(5)] == [401] * 5
    refused = attempt(TOKEN)
    assert refused.status_code == 429
    assert int(refused.headers["Retry-After"]) > 0
    assert "wait" in refused.json["error"]
    assert redis.zcard("ring") == 1


def test_an_address_may_try_again_after_a_while_and_others_meanwhile() -> None:
    now = 1000.0
    guard = Guard(TOKEN, lambda: now)
    for _ in range(5):
        assert guard.wait("eve") == 0
        assert not guard.admits("guess", "eve")
    assert guard.wait("eve") > 0
    assert guard.wait("ada") == 0
    assert guard.admits(TOKEN, "ada")
    now += guard.wait("eve") + 0.01
    assert guard.wait("eve") == 0


def test_no_number_of_other_addresses_locks_the_operator_out() -> None:
    guard = Guard(TOKEN, lambda: 1000.0)
    for number in range(200):
        for _ in range(5):
            guard.admits("guess", f"10.0.{number}.1")
    assert guard.wait("10.1.0.1") == 0
    assert guard.admits(TOKEN, "10.1.0.1")


def test_the_addresses_of_one_ipv6_network_wait_together() -> None:
    guard = Guard(TOKEN, lambda: 1000.0)
    for number in range(5):
        guard.admits("guess", f"2001:db8:0:1::{number}")
    assert guard.wait("2001:db8:0:1::ffff") > 0
    assert guard.wait("2001:db8:0:2::1") == 0


# --- sessions -------------------------------------------------------------------------------------


def cookie_of(visitor: Visitor) -> str:
    cookie = visitor.client.get_cookie("hashring", path="/")
    assert cookie is not None
    return str(cookie.value)


def test_whoever_only_looks_gets_no_cookie(redis: Redis, visit: Visit) -> None:
    put(redis, "a", 0)
    visitor = visit(rings=["ring"], token=TOKEN)
    for path in ("/", "/ring?name=ring&node=a", "/login", "/act/remove?ring=ring&node=a"):
        assert "Set-Cookie" not in visitor.client.get(path).headers


def test_a_cookie_does_not_follow_from_the_token(visit: Visit) -> None:
    cookies = set()
    for _ in range(3):
        visitor = visit(token=TOKEN)
        sign_in(visitor)
        cookies.add(cookie_of(visitor))
    assert len(cookies) == 3
    assert all(re.fullmatch(r"[\w-]{43}", cookie) for cookie in cookies)


def test_after_signing_out_a_copy_of_the_cookie_acts_no_more(redis: Redis, visit: Visit) -> None:
    put(redis, "a", 0)
    visitor = visit(rings=["ring"], token=TOKEN)
    sign_in(visitor)
    kept, csrf = cookie_of(visitor), form_token(visitor.page("/"))
    assert visitor.client.post("/logout", data={"csrf": csrf}).status_code == 303
    visitor.client.set_cookie("hashring", kept)
    data = {"csrf": csrf, "ring": "ring", "node": "a"}
    # It leads to the login, and from there to the question again.
    answer = visitor.client.post("/act/remove", data={**data, "next": "/?x"})
    assert answer.status_code == 303
    assert answer.location.startswith("/login?next=%2Fact%2Fremove%3Fring%3Dring")
    assert csrf not in answer.location
    assert redis.zcard("ring") == 1


def test_a_session_ends_eight_hours_after_it_began_however_much_it_is_used() -> None:
    now = 1000.0
    sessions = Sessions(lambda: now)
    cookie = sessions.begin("ada")
    for _ in range(8 * 60 - 1):
        now += 60
        assert sessions.find(cookie) is not None
    now += 60
    assert sessions.find(cookie) is None


def test_signing_in_again_ends_the_session_before(visit: Visit) -> None:
    visitor = visit(token=TOKEN)
    sign_in(visitor)
    first = cookie_of(visitor)
    sign_in(visitor, by="grace")
    visitor.client.set_cookie("hashring", first)
    assert "sign in to act" in visitor.page("/")


def test_so_many_sessions_are_kept_and_the_newest_of_more() -> None:
    sessions = Sessions(lambda: 0.0)
    cookies = [sessions.begin(f"{number}") for number in range(1001)]
    assert sessions.find(cookies[0]) is None
    assert sessions.find(cookies[1]) is not None


@pytest.mark.parametrize(("proto", "secure"), [("https", True), ("http", False)])
def test_the_cookie_is_secure_where_the_proxy_says_that_the_visitor_came_by_https(
    visit: Visit, proto: str, secure: bool
) -> None:
    visitor = visit(token=TOKEN, trusted_proxies=["127.0.0.1"])
    headers = {"X-Forwarded-Proto": proto, "X-Forwarded-For": "203.0.113.7"}
    data = {"by": "ada", "token": TOKEN}
    answer = visitor.client.post("/login", data=data, headers=headers)
    assert ("Secure" in answer.headers["Set-Cookie"]) == secure


def test_a_proxy_that_is_not_trusted_does_not_make_the_cookie_secure(visit: Visit) -> None:
    data = {"by": "ada", "token": TOKEN}
    headers = {"X-Forwarded-Proto": "https"}
    answer = visit(token=TOKEN).client.post("/login", data=data, headers=headers)
    assert "Secure" not in answer.headers["Set-Cookie"]


def test_behind_a_trusted_proxy_each_visitor_waits_alone(visit: Visit) -> None:
    visitor = visit(token=TOKEN, trusted_proxies=["127.0.0.1"])

    def attempt(address: str, token: str) -> int:
        headers = {"X-Forwarded-For": f"6.6.6.6, {address}", "Authorization": f"Bearer {token}"}
        return visitor.client.post("/api/act/rebalance", json={}, headers=headers).status_code

    assert [attempt("203.0.113.7", "guess") for _ in range(6)] == [401] * 5 + [429]
    assert attempt("203.0.113.8", TOKEN) == 400


def test_a_visitor_waits_whatever_port_the_proxy_gives_with_the_address(visit: Visit) -> None:
    visitor = visit(token=TOKEN, trusted_proxies=["127.0.0.1"])
    attempts = [
        visitor.client.post(
            "/api/act/rebalance",
            json={},
            headers={"X-Forwarded-For": f"203.0.113.7:{port}", "Authorization": "Bearer guess"},
        ).status_code
        for port in range(5000, 5006)
    ]
    assert attempts == [401] * 5 + [429]


def test_a_wrong_token_keeps_the_form_and_where_it_leads(visit: Visit) -> None:
    visitor = visit(token=TOKEN)
    data = {"by": "ada", "token": "wrong", "next": "/ring?name=a&node=b"}
    answer = visitor.client.post("/login", data=data)
    assert answer.status_code == 401
    assert 'value="ada"' in answer.text
    assert 'value="/ring?name=a&amp;node=b"' in answer.text
    assert "not the token" in answer.text


def test_signing_in_leads_on_to_the_action_that_was_chosen(redis: Redis, visit: Visit) -> None:
    put(redis, "a b&c", 0)
    visitor = visit(rings=["ring"], token=TOKEN)
    answer = visitor.get("/act/remove", ring="ring", node="a b&c")
    page = visitor.client.get(answer.location).text
    following = re.search(r'name="next" value="([^"]+)"', page)
    assert following
    data = {"by": "ada", "token": TOKEN, "next": unescape(following[1])}
    answer = visitor.client.post("/login", data=data)
    assert "Take a b&amp;c off the ring ring?" in visitor.client.get(answer.location).text


@pytest.mark.parametrize("name", ["path", "self", "what"])
def test_any_field_in_an_address_is_kept_while_the_visitor_signs_in(
    redis: Redis, visit: Visit, name: str
) -> None:
    put(redis, "a", 0)
    answer = visit(rings=["ring"], token=TOKEN).get(
        "/act/remove", ring="ring", node="a", **{name: "x"}
    )
    assert answer.status_code == 303
    assert f"{name}%3Dx" in answer.location


def test_for_a_visitor_who_has_not_signed_in_no_question_is_made(visit: Visit) -> None:
    visitor = visit(token=TOKEN)
    for query in ({"ring": "none", "node": "b"}, {}):
        asked = visitor.get("/act/drain", **query)
        assert (asked.status_code, asked.location.partition("?")[0]) == (303, "/login")


@pytest.mark.parametrize(
    "address",
    [
        "https://evil.example/",
        "//evil.example/",
        "/\\evil.example/",
        "evil",
        "/\n/x",
        "javascript:x",
    ],
)
def test_signing_in_leads_nowhere_else(visit: Visit, address: str) -> None:
    data = {"by": "ada", "token": TOKEN, "next": address}
    assert visit(token=TOKEN).client.post("/login", data=data).location == "/"


def test_a_login_form_of_another_site_is_refused(visit: Visit) -> None:
    data = {"by": "ada", "token": TOKEN}
    headers = {"Sec-Fetch-Site": "cross-site"}
    answer = visit(token=TOKEN).client.post("/login", data=data, headers=headers)
    assert answer.status_code == 403
    assert "Set-Cookie" not in answer.headers


def test_a_short_token_is_refused(visit: Visit) -> None:
    with pytest.raises(ConfigError, match="16 characters") as refused:
        visit(token="short")
    assert "short" not in str(refused.value).replace("16 characters", "")


def test_white_space_around_a_token_is_no_part_of_it(visit: Visit) -> None:
    visitor = visit(token=f"{TOKEN}\n")
    assert sign_in(visitor).status_code == 303
    assert sign_in(visitor, token=f" {TOKEN} ").status_code == 303
    headers = {"Authorization": f"Bearer {TOKEN}"}
    answer = visitor.client.post("/api/act/remove", json={}, headers=headers)
    assert answer.status_code == 400


@pytest.mark.parametrize(
    "token", ["p\u00e4ssword of many words", "one line\nand another", "a" * 20 + "\0"]
)
def test_a_token_that_no_header_can_carry_is_refused(visit: Visit, token: str) -> None:
    with pytest.raises(ConfigError, match="ASCII") as refused:
        visit(token=token)
    assert token not in str(refused.value)


def test_white_space_does_not_make_a_token_long_enough(visit: Visit) -> None:
    with pytest.raises(ConfigError, match="16 characters"):
        visit(token="token" + " " * 20)


def test_a_form_too_long_for_an_address_is_refused_and_not_led_to_the_login(visit: Visit) -> None:
    answer = visit(token=TOKEN).client.post("/act/release", data={"key": "k" * 40_000})
    assert answer.status_code == 413
    assert "sign in first" in answer.text


def test_a_form_larger_than_any_of_the_service_is_not_read(visit: Visit) -> None:
    answer = visit(token=TOKEN).client.post("/login", data={"by": "k" * 70_000})
    assert answer.status_code == 413
