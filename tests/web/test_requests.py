"""Which requests are answered, and how the others are refused."""

from __future__ import annotations

import re
import threading
from contextlib import ExitStack
from html.parser import HTMLParser
from typing import Any

import pytest
from redis import Redis
from werkzeug.exceptions import HTTPException

from hashring import PartitionGroup
from hashring.core.hashing import RING_SIZE
from hashring.errors import ConfigError
from hashring.web import change_plans, costly_requests
from hashring.web.address_checks import check_base_path
from hashring.web.allowed_hosts import Hosts, TrustedProxies
from hashring.web.costly_requests import AT_ONCE, WAITING, Turns
from hashring.web.waitress_server import REQUESTS
from hashring.web.wsgi_app import Limits
from tests.conftest import PATIENCE, eventually
from tests.web.conftest import HOSTILE, TOKEN, Visit, put

pytestmark = pytest.mark.one_server

# --- hosts --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "host",
    ["localhost", "127.0.0.1:8765", "[::1]:8765", "10.1.2.3", "Ring.Example:80", "x.localhost"],
)
def test_addresses_and_allowed_names_are_answered(host: str) -> None:
    assert Hosts(["ring.example"]).allows(host)


@pytest.mark.parametrize("name", ["*", "Ring.Example.", "::1", "10.1.2.3", "ring_1"])
def test_a_name_or_an_address_can_be_allowed(name: str) -> None:
    assert Hosts([name]).allows("localhost")


@pytest.mark.parametrize(
    "name",
    [
        "ring.example:18779",
        "http://ring.example",
        "ring.example/",
        "[::1]",
        "*.ring.example",
        "ring example",
        "b\u00fccher.example",
        "",
    ],
)
def test_what_can_be_no_name_of_a_host_cannot_be_allowed(name: str) -> None:
    with pytest.raises(ConfigError, match="without a scheme, port or path") as refused:
        Hosts([name])
    assert (refused.value.setting, refused.value.value) == ("allowed_host", name)


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "127.0.0.1.evil.example",
        "localhost.evil.example",
        "[evil]",
        "x",
        "localhost:80@evil.example",
        "127.0.0.1:80@evil.example",
        "localhost:80:80",
        "localhost, evil.example",
        "localhost:",
        "localhost/evil.example",
        " localhost",
        "[::1",
        "::1",
        "",
    ],
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


def test_the_api_names_the_reason_for_which_it_refuses_a_name(visit: Visit) -> None:
    answer = visit().get("/api/rings", headers={"Host": "evil.example"})
    assert "does not answer to the name 'evil.example'" in answer.json["error"]


def test_metrics_are_given_to_whoever_asks_for_a_version_that_is_none(visit: Visit) -> None:
    asked = {"Accept": "application/openmetrics-text; version=new"}
    answer = visit().get("/metrics", headers=asked)
    assert answer.status_code == 200
    assert "hashring_redis_up" in answer.text


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


def test_a_query_whose_bytes_are_utf_8_only_with_those_behind_percent_signs_is_refused(
    visit: Visit,
) -> None:
    query = {"QUERY_STRING": "name=\xc3%A9"}
    answer = visit().client.get("/ring", environ_overrides=query)
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
        ("/api/plan?ring=ring&replicas=20001", 400, "from 1 to 20000"),
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
        (b"{", "application/json", 400, "truncated"),
        (b"[]", "application/json", 400, "Expected `object`, got `array`"),
        (b"{}", "text/plain", 415, "application/json"),
        (b"{}", "application/json", 400, "missing required field `ring`"),
        (b'{"ring": "ring", "keys": [1]}', "application/json", 400, "got `int` - at `$.keys[0]`"),
        (b'{"ring": "ring", "keys": [""]}', "application/json", 400, "length >= 1"),
        (b'{"ring": "ring", "keys": ["\\ud800"]}', "application/json", 400, "not JSON"),
        (b'{"ring": "\\ud800", "keys": []}', "application/json", 400, "not JSON"),
        (b'{"ring": 5, "keys": []}', "application/json", 400, "got `int` - at `$.ring`"),
        (
            b'{"ring": "ring", "keys": [' + b'"k",' * 10_000 + b'"k"]}',
            "application/json",
            400,
            "length <= 10000",
        ),
        (b"[" * 100_000, "application/json", 400, "Expected `object`"),
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


def test_nodes_that_report_nothing_are_not_shown_as_disagreeing(redis: Redis, visit: Visit) -> None:
    put(redis, "a", 0)
    put(redis, "b", 1)
    redis.set("{ring}:epoch", "1 ab")
    visitor = visit(["ring"])
    eventually(lambda: "no node has reported yet" in visitor.page("/ring", name="ring"), "it says")
    put(redis, "b", 1, told={"sees": {"tag": "other", "fingerprint": "another"}})
    eventually(lambda: "confirmed so far" in visitor.page("/ring", name="ring"), "it counts")


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
        check_base_path(path)


# --- what one request may cost --------------------------------------------------------------------


@pytest.mark.parametrize(
    "query",
    [
        "replicas=4096&placement=balanced" + "".join(f"&join=n{n}" for n in range(100)),
        "".join(f"&join=n{n}" for n in range(101)),
        "".join(f"&leave=n{n}" for n in range(1001)),
    ],
    ids=["many points", "many that join", "many that leave"],
)
def test_a_plan_that_is_too_much_work_is_refused(redis: Redis, visit: Visit, query: str) -> None:
    put(redis, "a", 0)
    answer = visit(rings=["ring"]).client.get(f"/api/plan?ring=ring&{query}")
    assert answer.status_code == 422
    assert "in one request" in answer.json["error"] or "for one request" in answer.json["error"]


def test_a_group_too_large_to_plan_for_in_a_request_is_refused(
    redis: Redis, visit: Visit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(change_plans, "MOST_PARTITIONS", 7)
    with PartitionGroup(redis, "big", partitions=8, member="m", rebalance_delay=0):
        error = visit().json("/api/group/plan", 422, group="big")["error"]
    assert "hashring group plan" in error


def test_a_plan_says_what_another_access_type_moves(redis: Redis, visit: Visit) -> None:
    def member(name: str) -> PartitionGroup:
        return PartitionGroup(redis, "orders", partitions=2, member=name, rebalance_delay=0)

    with member("a") as first, member("b") as second:
        eventually(lambda: first.held and second.held, "each has one")
        visitor = visit()
        told = visitor.json("/api/group/plan", group="orders", access="exclusive")
        assert (told["before"], told["after"]) == ({"a": 1, "b": 1}, {"a": 2, "b": 0})
        error = visitor.json("/api/group/plan", 400, group="orders", access="shared")["error"]
    assert "'non-exclusive' or 'exclusive'" in error


def test_costly_requests_take_turns_and_too_many_are_refused() -> None:
    turns, inside, leave = Turns(), threading.Semaphore(0), threading.Event()
    refused: list[int] = []

    def ask() -> None:
        try:
            with turns.turn():
                inside.release()
                leave.wait(PATIENCE)
        except HTTPException as error:
            refused.append(error.code or 0)

    threads = [threading.Thread(target=ask) for _ in range(AT_ONCE + WAITING + 3)]
    for thread in threads:
        thread.start()
    eventually(lambda: len(refused) == 3, "those for whom there is no place are refused")
    for _ in range(AT_ONCE):
        assert inside.acquire(timeout=PATIENCE)
    assert not inside.acquire(blocking=False)
    leave.set()
    for thread in threads:
        thread.join()
    assert refused == [503] * 3


def test_answers_that_grow_with_the_ring_or_group_take_turns(
    redis: Redis, visit: Visit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(costly_requests, "LONG", 44)
    for number in range(45):
        put(redis, f"n{number}", number)
    turns = Turns()
    visitor = visit(rings=["ring"], limits=Limits(None, turns=turns))
    long = [
        "/ring?name=ring&all=1",
        "/plan/ring?ring=ring",
        "/group?name=orders",
        "/api/group?group=orders",
    ]
    with ExitStack() as stack:
        member = PartitionGroup(redis, "orders", partitions=45, member="m", rebalance_delay=0)
        stack.enter_context(member)
        eventually(
            lambda: visitor.client.get("/api/group?group=orders").status_code == 200,
            "it is watched",
        )
        for path in long:
            assert visitor.client.get(path).status_code == 200
        monkeypatch.setattr(costly_requests, "WAITING", 0)
        for _ in range(AT_ONCE):
            stack.enter_context(turns.turn())
        for path in long:
            refused = visitor.client.get(path)
            assert (refused.status_code, refused.headers["Retry-After"]) == (503, "5")
        # What most ask for waits for nobody.
        for path in ("/", "/ring?name=ring", "/plan/group?group=orders", "/api/nodes?ring=ring"):
            assert visitor.client.get(path).status_code == 200


def test_plans_of_orders_read_no_ring_or_group_before_their_turn(
    redis: Redis, visit: Visit, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(redis, "a", 0)
    turns = Turns()
    visitor = visit(rings=["ring"], limits=Limits(None, turns=turns))
    unknown = ["/api/plan/drain?ring=ring&node=b", "/api/group/plan/drain?group=orders&member=b"]
    with ExitStack() as stack:
        member = PartitionGroup(redis, "orders", partitions=2, member="m", rebalance_delay=0)
        stack.enter_context(member)
        eventually(
            lambda: [visitor.client.get(path).status_code for path in unknown] == [404, 404],
            "both are read, and have no such node or member",
        )
        monkeypatch.setattr(costly_requests, "WAITING", 0)
        for _ in range(AT_ONCE):
            stack.enter_context(turns.turn())
        assert [visitor.client.get(path).status_code for path in unknown] == [503, 503]


def test_costly_requests_leave_threads_to_others() -> None:
    # Of readers, and of those who may act.
    assert 2 * (AT_ONCE + WAITING) <= REQUESTS - 4


# --- proxies --------------------------------------------------------------------------------------


def seen(trusted: list[str], address: str, **headers: str) -> dict[str, Any]:
    """What an application sees of a request."""
    found: dict[str, Any] = {}

    def app(environ: dict[str, Any], _: Any) -> list[bytes]:
        found.update(environ)
        return []

    TrustedProxies(app, trusted)({"REMOTE_ADDR": address, **headers}, lambda *_: print)
    return found


FORWARDED = {
    "HTTP_X_FORWARDED_FOR": "6.6.6.6, 203.0.113.7",
    "HTTP_X_FORWARDED_PROTO": "https",
    "HTTP_X_FORWARDED_USER": "ada",
}


@pytest.mark.parametrize("address", ["10.1.2.3", "::ffff:10.1.2.3", "fd00::1"])
def test_a_trusted_proxy_is_believed(address: str) -> None:
    found = seen(["10.0.0.0/8", "fd00::/8"], address, **FORWARDED)
    assert (found["REMOTE_ADDR"], found["wsgi.url_scheme"]) == ("203.0.113.7", "https")
    assert found["HTTP_X_FORWARDED_USER"] == "ada"


@pytest.mark.parametrize(
    ("forwarded", "address"),
    [
        ("203.0.113.7:5555", "203.0.113.7"),
        ("[2001:db8::1]:443", "2001:db8::1"),
        ("[2001:db8::1]", "2001:db8::1"),
        ('"[2001:db8::1]:443"', "2001:db8::1"),
        ("2001:DB8:0::1", "2001:db8::1"),
        ("::ffff:203.0.113.7", "203.0.113.7"),
        ("[::ffff:cb00:7107]:80", "203.0.113.7"),
        ("fe80::1%a", "fe80::1"),
        ("unknown", "10.1.2.3"),
        ("_hidden:5555", "10.1.2.3"),
        ("203.0.113.7:http", "10.1.2.3"),
        ("203.0.113.700", "10.1.2.3"),
    ],
)
def test_of_what_a_proxy_gives_the_address_counts_without_its_port(
    forwarded: str, address: str
) -> None:
    found = seen(["10.0.0.0/8"], "10.1.2.3", HTTP_X_FORWARDED_FOR=f"6.6.6.6, {forwarded}")
    assert found["REMOTE_ADDR"] == address


@pytest.mark.parametrize("address", ["11.0.0.1", "", "unix", "::1"])
def test_nobody_else_is_believed(address: str) -> None:
    found = seen(["10.0.0.0/8"], address, **FORWARDED)
    assert found == {"REMOTE_ADDR": address}


def test_a_proxy_that_is_no_address_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"trusted_proxy='proxy\.example'"):
        TrustedProxies(lambda *_: [], ["proxy.example"])
