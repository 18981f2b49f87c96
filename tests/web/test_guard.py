"""Who may ask, who may act, and what happens to everybody else."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Any

import pytest
from redis import Redis

from hashring.core.hashing import RING_SIZE
from hashring.errors import ConfigError
from hashring.store.events import newest
from hashring.store.executor import RedisStore
from hashring.store.group_commands import group_keys, read, read_decision
from hashring.store.keys import ring_keys
from hashring.store.lock_commands import acquire, look
from hashring.web.guard import Guard, Hosts
from hashring.web.service import checked_base_path
from tests.conftest import eventually
from tests.web.conftest import HOSTILE, SESSION, TOKEN, Visit, Visitor, put


@pytest.fixture
def store(redis: Redis) -> Any:
    store = RedisStore(redis, 5.0)
    yield store
    store.close()


# --- hosts --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "host",
    ["localhost", "127.0.0.1:8765", "[::1]:8765", "10.1.2.3", "Ring.Example:80", "x.localhost"],
)
def test_addresses_and_allowed_names_are_answered(host: str) -> None:
    assert Hosts(["ring.example"]).allows(host)


@pytest.mark.parametrize(
    "host",
    ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example", "[evil]", "x"],
)
def test_other_names_are_not_answered(host: str) -> None:
    assert not Hosts(["ring.example"]).allows(host)


def test_a_rebound_name_learns_nothing(visit: Visit) -> None:
    visitor = visit(rings=["secret-ring"])
    for path in ("/", "/api/rings", "/metrics", "/static/page.js", "/healthz"):
        answer = visitor.get(path, headers={"Host": "evil.example"})
        assert answer.status_code == 421
        assert "secret-ring" not in answer.text
        assert "--allowed-host" in answer.text


def test_every_answer_forbids_foreign_script_and_framing(redis: Redis, visit: Visit) -> None:
    put(redis, "a", 0)
    visitor = visit(rings=["ring"])
    for path in ("/", "/ring?name=ring", "/api/rings", "/nothing", "/static/page.css"):
        headers = visitor.client.get(path).headers
        policy = headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert headers["X-Content-Type-Options"] == "nosniff"


def test_pages_have_no_script_or_style_in_their_text_and_nothing_of_other_hosts(
    redis: Redis, visit: Visit
) -> None:
    put(redis, "a", 0)
    put(redis, "b", RING_SIZE // 2)
    visitor = visit(rings=["ring"], token=TOKEN)
    pages = [visitor.page("/"), visitor.page("/ring", name="ring", key="k", node="a")]
    for page in [*pages, visitor.page("/login")]:
        assert not re.search(r"<style|\sstyle=|\son\w+=|<script(?! src=)", page)
        addresses = re.findall(r'(?:src|href|action)="([^"]*)"', page)
        assert addresses
        assert all(address.startswith(("/", "#")) for address in addresses)


class Elements(HTMLParser):
    """What a browser makes of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.suspicious: list[Any] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = dict(attrs)
        script = tag == "script" and not str(names.get("src")).startswith("/static/")
        handler = any(name.startswith("on") or name == "style" for name in names)
        link = str(names.get("href", "/"))[:1] not in ("/", "#")
        if script or handler or link or tag in ("img", "iframe", "style", "object", "base"):
            self.suspicious.append((tag, attrs))

    def handle_data(self, data: str) -> None:
        self.text += data


# --- bad input ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_name_is_text_on_every_page(redis: Redis, visit: Visit, name: str) -> None:
    put(redis, name, 0, told={"host": name, "pid": name, "version": name})
    put(redis, "b", RING_SIZE // 2)
    redis.xadd("{ring}:events", {"kind": name, "by": name})
    visitor = visit(rings=["ring", name])
    for page in (
        visitor.page("/"),
        visitor.page("/ring", name="ring", node=name, key=name),
        visitor.page("/ring", name=name, node=name, key=name),
        visitor.get("/ring", name=name + "?", node=name, key=name).text,
        visitor.get("/group", name=name).text,
    ):
        found = Elements(page)
        assert found.suspicious == []
        assert not set(found.text) & {"\u202e", "\u0085", "\0"}
    told = visitor.json("/api/nodes", ring="ring")["nodes"]
    assert name in {node["name"] for node in told}


@pytest.mark.parametrize(
    "key", [*HOSTILE, "\0", "a\0b", "k" * 10_000, "\n", "\ud7ff\U0010ffff", "%00", "%ff"]
)
def test_any_text_can_be_looked_up(redis: Redis, visit: Visit, key: str) -> None:
    put(redis, "a", 0)
    visitor = visit(rings=["ring"])
    assert visitor.json("/api/owner", ring="ring", key=key)["key"] == key
    page = visitor.page("/ring", name="ring", key=key)
    assert "<b>a</b>" in page
    assert "\0" not in page


def test_a_key_too_long_to_look_up_here_is_refused_with_the_way_out(
    redis: Redis, visit: Visit
) -> None:
    put(redis, "a", 0)
    visitor = visit(rings=["ring"])
    error = visitor.json("/api/owner", 400, ring="ring", key="k" * 16_385)["error"]
    assert "16385 bytes" in error
    assert "hashring owner" in error
    assert "at most 16384" in visitor.page("/ring", name="ring", key="k" * 16_385)


@pytest.mark.parametrize("path", ["/ring?name=ring&key=%ff", "/api/owner?ring=ring&key=a%80"])
def test_a_query_that_is_not_utf_8_is_refused(redis: Redis, visit: Visit, path: str) -> None:
    put(redis, "a", 0)
    answer = visit(rings=["ring"]).client.get(path)
    assert answer.status_code == 400
    assert "not UTF-8" in answer.text


@pytest.mark.parametrize(
    ("path", "status", "text"),
    [
        ("/ring?name=nothing", 404, "There is no ring"),
        ("/group?name=nothing", 404, "There is no group"),
        ("/ring", 400, "say which name"),
        ("/ring?name=a}b", 400, "braces"),
        ("/api/ring?ring=nothing", 404, "there is no ring 'nothing'"),
        ("/api/ring", 400, "say which ring"),
        ("/api/ring?ring=" + "r" * 600, 400, "at most 512"),
        ("/api/owner?ring=ring", 400, "say which key"),
        ("/api/changes?ring=ring&count=0", 400, "whole number from 1 to 500"),
        ("/api/changes?ring=ring&count=1e9", 400, "whole number"),
        ("/api/changes?ring=ring&after=x", 400, "id of a change"),
        ("/api/changes/live?ring=ring&after=1-2-3", 400, "id of a change"),
        ("/api/plan?ring=ring&placement=odd", 400, "placement"),
        ("/api/plan?ring=ring&replicas=5000", 400, "from 1 to 4096"),
        ("/api/group?group=nothing", 404, "there is no group 'nothing'"),
        ("/static/../guard.py", 404, "not found"),
        ("/static/..%2fguard.py", 404, "not found"),
        ("/nothing", 404, "not found"),
        ("/api/nothing", 404, "not found"),
        ("/act/remove?ring=ring&node=a", 403, "--allow-actions"),
        ("/login", 403, "--allow-actions"),
    ],
)
def test_what_cannot_be_answered_is_said_clearly(
    redis: Redis, visit: Visit, path: str, status: int, text: str
) -> None:
    put(redis, "a", 0)
    answer = visit(rings=["ring"]).client.get(path)
    assert answer.status_code == status
    assert text in answer.text
    assert answer.is_json == path.startswith("/api/")


@pytest.mark.parametrize(
    ("body", "kind", "status", "text"),
    [
        (b"x" * 2_000_000, "application/json", 413, "exceeds"),
        (b"{", "application/json", 400, "could not understand"),
        (b"[]", "application/json", 400, "no JSON object"),
        (b"{}", "text/plain", 415, "application/json"),
        (b"{}", "application/json", 400, "list of texts"),
        (b'{"ring": "ring", "keys": [1]}', "application/json", 400, "list of texts"),
        (b'{"ring": "ring", "keys": [""]}', "application/json", 400, "empty"),
        (b'{"ring": "ring", "keys": ["\\ud800"]}', "application/json", 400, "UTF-8"),
        (b'{"ring": "\\ud800", "keys": []}', "application/json", 400, "UTF-8"),
        (b'{"ring": 5, "keys": []}', "application/json", 400, "ring: give a text"),
        (
            b'{"ring": "ring", "keys": [' + b'"k",' * 10_000 + b'"k"]}',
            "application/json",
            400,
            "at most 10000",
        ),
        (b"[" * 100_000, "application/json", 400, "nested too deeply"),
    ],
)
def test_a_body_that_cannot_be_answered_is_refused(
    redis: Redis, visit: Visit, *, body: bytes, kind: str, status: int, text: str
) -> None:
    put(redis, "a", 0)
    visitor = visit(rings=["ring"])
    answer = visitor.client.post("/api/owners", data=body, content_type=kind)
    assert (answer.status_code, answer.is_json) == (status, True), answer.text
    assert text in answer.json["error"]


def test_a_ring_whose_key_is_something_else_is_told_so(redis: Redis, visit: Visit) -> None:
    redis.set("ring", "a string")
    visitor = visit(rings=["ring"])
    assert "WRONGTYPE" in visitor.json("/api/ring", 503, ring="ring")["error"]
    page = visitor.page("/ring", name="ring")
    assert "Redis refuses" in page
    assert "Redis refuses" not in visitor.page("/")


# --- acting -----------------------------------------------------------------------------------


def form_token(page: str) -> str:
    found = re.search(r'name="csrf" value="([^"]+)"', page)
    assert found, page
    return found[1]


def sign_in(visitor: Visitor, by: str = "ada", token: str = TOKEN) -> Any:
    csrf = form_token(visitor.page("/login"))
    return visitor.client.post("/login", data={"csrf": csrf, "by": by, "token": token})


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
    assert sign_in(visitor).status_code == 303
    page = visitor.page("/act/remove", ring="ring", node="a")
    assert "Take a off the ring ring?" in page
    data = {"csrf": form_token(page), "ring": "ring", "node": "a"}
    assert "was taken off" in visitor.client.post("/act/remove", data=data).text
    assert redis.zcard("ring") == 1
    [event] = newest(store, ring_keys("ring").events, 1)
    assert event.kind == "leave"
    assert event.by.startswith("ada (hashring serve")
    gone = visitor.client.post("/act/remove", data=data)
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
    [event] = newest(store, keys.events, 1)
    assert (event.kind, event.keys) == ("release", "k")
    assert event.by.startswith("a script (hashring serve")


def test_a_group_is_asked_for_a_rebalance_and_its_history_says_by_whom(
    redis: Redis, store: RedisStore, visit: Visit
) -> None:
    from hashring import PartitionGroup  # noqa: PLC0415

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
            assert answer.json == {"done": "orders was asked to rebalance."}
            eventually(lambda: phase() == "Ready", "the partitions have moved")
            entries = store.call("XRANGE", keys.control, "-", "+")
            said = [event for entry in entries for event in read_decision(entry).events]
            assert any(e.kind.value == "asked" and "by ada" in e.why for e in said)


def test_a_form_of_somebody_elses_does_nothing(redis: Redis, visit: Visit) -> None:
    put(redis, "a", 0)
    visitor = visit(rings=["ring"], token=TOKEN)
    sign_in(visitor)
    for csrf in ("", "guessed"):
        data = {"csrf": csrf, "ring": "ring", "node": "a"}
        assert visitor.client.post("/act/remove", data=data).status_code == 403
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


def test_many_addresses_cannot_guess_faster_than_all_together_may() -> None:
    guard = Guard(TOKEN, lambda: 1000.0)
    for number in range(50):
        guard.admits("guess", f"10.0.0.{number}")
    assert guard.wait("10.0.1.1") > 0


# --- base path ----------------------------------------------------------------------------------


def test_everything_is_below_the_base_path_and_links_stay_there(redis: Redis, visit: Visit) -> None:
    put(redis, "a", 0)
    visitor = visit(rings=["ring"], base_path="/tools/hashring", token=TOKEN)
    page = visitor.page("/tools/hashring/ring", name="ring", node="a")
    links = re.findall(r'(?:src|href|action|data-feed)="(/[^"]*)"', page)
    assert links
    assert all(link.startswith("/tools/hashring/") for link in links)
    assert visitor.page("/tools/hashring")
    assert visitor.get("/ring", name="ring").status_code == 404
    assert visitor.get("/tools/hashringing").status_code == 404
    assert visitor.json("/tools/hashring/openapi.json")["servers"] == [{"url": "/tools/hashring"}]


@pytest.mark.parametrize("path", ["x", "/", "/x/", "//x", "/a b", "/../x", "/é"])
def test_a_base_path_that_cannot_be_is_refused(path: str) -> None:
    with pytest.raises(ConfigError, match="base_path="):
        checked_base_path(path)
