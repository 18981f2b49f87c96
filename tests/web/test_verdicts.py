"""The verdict on everything is no better than what the service knows."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from html import unescape

import pytest
from click.testing import CliRunner
from redis import Redis
from werkzeug.test import Client, TestResponse

from hashring.cli import main
from hashring.store.discovery import Found
from hashring.store.embedded_server import RedisServer
from hashring.store.ring.commands import Scoring
from hashring.web import Access, Service, create_app, names_watcher, watchers_by_name
from hashring.web.several_servers import Site, create_sites
from tests.conftest import eventually
from tests.web.conftest import Visitor, put
from tests.web.test_change_plans import words

pytestmark = pytest.mark.one_server


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as found:
        yield found


def visitor_of(service: Service) -> Visitor:
    return Visitor(service, create_app(service, redis_shown="redis://test"))


def started(service: Service, stack: ExitStack) -> Service:
    service.start()
    stack.callback(service.stop)
    return service


def found(client: Redis, ring: str, *, nodes: int = 0) -> None:
    """Write a ring that a search finds; without nodes it was stopped."""
    client.set(f"{{{ring}}}:epoch", "1 ab")
    for point in range(nodes):
        put(client, f"n{point}", point, ring=ring, told={"ttl": 900})


@pytest.fixture
def three_places(monkeypatch: pytest.MonkeyPatch) -> None:
    """A service that watches three rings and groups, and looks for them often."""
    monkeypatch.setattr(watchers_by_name, "MOST", 3)
    monkeypatch.setattr(names_watcher, "_SCAN_INTERVAL", 0.1)


def listed(service: Service) -> set[str]:
    rings, groups = service.listed()
    return {watcher.name for watcher in (*rings, *groups)}


@pytest.mark.parametrize("asked", [False, True])
def test_of_a_redis_that_has_never_responded_nothing_is_healthy(
    stack: ExitStack, asked: bool
) -> None:
    service = Service(Redis(host="127.0.0.1", port=1))
    if asked:
        started(service, stack)
        eventually(lambda: service.failure is not None, "it has asked Redis")
    visitor = visitor_of(service)
    told = visitor.json("/api/status")
    assert (told["state"], told["exit_status"]) == ("unknown", 2)
    assert told["reasons"]
    assert "nothing is known" in words(visitor.page("/"))
    several = Client(create_sites([Site("eu", service, "x")], access=Access()), TestResponse)
    told = several.get("/api/status").json
    assert (told["state"], told["exit_status"]) == ("unknown", 2)
    assert told["servers"]["eu"]["state"] == "unknown"


LISTS = ("/api/rings", "/api/groups")


def watcher_client(redis: Redis, stack: ExitStack, *commands: str) -> Redis:
    """A client of a Redis user of its own, who may do all but what is forbidden."""
    redis.acl_setuser(
        "watcher", enabled=True, nopass=True, keys="*", channels="*", categories=["+@all"],
        commands=commands,
    )  # fmt: skip
    stack.callback(redis.acl_deluser, "watcher")
    path = redis.connection_pool.connection_kwargs["path"]
    return stack.enter_context(Redis(unix_socket_path=path, username="watcher", password="x"))


@pytest.mark.parametrize("path", LISTS)
def test_no_list_is_empty_before_redis_has_answered(path: str, stack: ExitStack) -> None:
    client = stack.enter_context(Redis(unix_socket_path="/nowhere/redis.sock"))
    visitor = visitor_of(Service(client))
    assert visitor.json(path, 503)["error"] == "Redis has not responded yet"
    service = started(visitor.service, stack)
    eventually(lambda: service.failure is not None, "Redis was asked")
    assert "/nowhere/redis.sock" in visitor.json(path, 503)["error"]


@pytest.mark.parametrize("path", LISTS)
def test_no_list_is_empty_before_a_search(path: str, redis: Redis, stack: ExitStack) -> None:
    service = started(Service(watcher_client(redis, stack, "-scan")), stack)
    eventually(lambda: service.search_failure is not None, "it has looked for rings")
    error = visitor_of(service).json(path, 503)["error"]
    assert error.startswith("rings and groups cannot be looked for: ")
    assert error.endswith("; let its Redis user call SCAN")


def test_a_ring_that_is_given_is_listed_without_a_search_and_the_list_says_why(
    redis: Redis, stack: ExitStack
) -> None:
    service = started(Service(watcher_client(redis, stack, "-scan"), rings=["ring"]), stack)
    eventually(lambda: service.search_failure is not None, "it has looked for rings")
    told = visitor_of(service).json("/api/rings")
    assert [ring["ring"] for ring in told["rings"]] == ["ring"]
    assert "scan" in told["failure"]["error"].lower()


@pytest.mark.usefixtures("three_places")
def test_lists_stay_and_say_why_while_a_later_search_fails(redis: Redis, stack: ExitStack) -> None:
    found(redis, "a", nodes=1)
    service = started(Service(watcher_client(redis, stack)), stack)
    visitor = visitor_of(service)
    eventually(lambda: service.searched, "it has looked for rings")
    assert [visitor.json(path)["failure"] for path in LISTS] == [None, None]
    redis.acl_setuser("watcher", commands=["-scan"])
    eventually(lambda: service.search_failure is not None, "it may not look any more")
    told = visitor.json("/api/rings")
    assert [ring["ring"] for ring in told["rings"]] == ["a"]
    assert "scan" in told["failure"]["error"].lower()
    assert "scan" in visitor.json("/api/groups")["failure"]["error"].lower()


def test_a_redis_user_that_may_not_scan_makes_the_verdict_unknown_and_says_so(
    redis: Redis, stack: ExitStack
) -> None:
    put(redis, "a", 0, told={"ttl": 900})
    service = started(Service(watcher_client(redis, stack, "-scan"), rings=["ring"]), stack)
    visitor = visitor_of(service)
    assert visitor.json("/api/ring", ring="ring")["status"]["state"] == "healthy"
    eventually(lambda: service.search_failure is not None, "it has looked for rings")
    told = visitor.json("/api/status")
    assert (told["state"], told["exit_status"]) == ("unknown", 2)
    assert "rings and groups cannot be looked for" in told["reasons"][0]["text"]
    ready = visitor.json("/readyz", 503)
    assert "scan" in ready["fault"].lower()
    page = words(visitor.page("/"))
    assert "It is not known whether these are all rings and groups." in page
    assert "let its Redis user call SCAN" in page


def test_a_cluster_that_serves_no_slots_makes_the_verdict_unknown_and_says_so(
    stack: ExitStack,
) -> None:
    server = stack.enter_context(RedisServer(port=0, config=["cluster-enabled yes"]))
    service = started(Service(stack.enter_context(Redis.from_url(server.url))), stack)
    visitor = visitor_of(service)
    eventually(lambda: service.search_failure is not None, "it has looked for rings")
    eventually(lambda: service.answered, "the server responds")
    assert "CLUSTERDOWN" in visitor.json("/readyz", 503)["fault"]
    assert visitor.json("/api/status")["state"] == "unknown"


def test_a_node_without_locks_beside_nodes_with_locks_degrades_page_api_and_metrics(
    redis: Redis, stack: ExitStack
) -> None:
    put(redis, "a", 0, told={"ttl": 900, "lock": True})
    put(redis, "b", 1, told={"ttl": 900})
    visitor = visitor_of(started(Service(redis, rings=["ring"]), stack))
    eventually(lambda: "hashring_ring_state" in visitor.page("/metrics"), "the ring is read")
    text = "1 node without lock=True: b; works on keys that others have locked"
    assert text in unescape(visitor.page("/ring", name="ring"))
    [reason] = visitor.json("/api/ring", ring="ring")["status"]["reasons"]
    assert (reason["state"], reason["text"]) == ("degraded", text)
    assert 'hashring_ring_state{ring="ring",state="degraded"} 1.0' in visitor.page("/metrics")
    assert 'hashring_ring_nodes_without_locks{ring="ring"} 1.0' in visitor.page("/metrics")


@pytest.mark.usefixtures("three_places")
def test_rings_that_have_no_place_are_counted_and_the_verdict_is_unknown(
    redis: Redis, stack: ExitStack, caplog: pytest.LogCaptureFixture
) -> None:
    for name in "abcde":
        found(redis, name, nodes=1)
    service = started(Service(redis), stack)
    visitor = visitor_of(service)
    eventually(lambda: service.unwatched == 2, "two have no place")
    eventually(lambda: all(ring.looks for ring in service.listed()[0]), "the others are read")
    assert listed(service) == {"a", "b", "c"}
    told = visitor.json("/api/status")
    assert (told["state"], told["exit_status"]) == ("unknown", 2)
    assert told["reasons"][0]["text"].startswith("2 rings and groups not watched")
    assert "2 rings and groups not watched" in visitor.page("/")
    assert "hashring_redis_unwatched 2.0" in visitor.page("/metrics")
    assert "2 rings and groups not watched" in caplog.text
    # It is there, so no answer says that it is not.
    assert "it is not watched" in visitor.json("/api/ring", 503, ring="e")["error"]
    assert "is not watched" in unescape(visitor.get("/ring", name="e").text)
    assert visitor.get("/ring", name="nowhere").status_code == 404


@pytest.mark.usefixtures("three_places")
def test_stopped_rings_and_groups_make_way_until_they_run_again(
    redis: Redis, stack: ExitStack
) -> None:
    for name in "abc":
        found(redis, name)
    service = started(Service(redis), stack)
    eventually(lambda: listed(service) == {"a", "b", "c"}, "three stopped ones are watched")
    for name in "def":
        found(redis, name, nodes=1)
    eventually(lambda: listed(service) == {"d", "e", "f"}, "they make way")
    assert service.unwatched == 0
    put(redis, "n", 7, ring="b")
    eventually(lambda: service.unwatched == 1, "one that runs again has no place")
    redis.delete("{d}:epoch", "{d}:nodes", "d")
    eventually(lambda: listed(service) == {"b", "e", "f"}, "it gets the place of one that is gone")
    eventually(lambda: service.unwatched == 0, "all that run are watched")


@pytest.mark.usefixtures("three_places")
def test_a_stopped_ring_makes_way_for_one_that_is_asked_for(
    redis: Redis, stack: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(names_watcher, "_SCAN_INTERVAL", 1e6)
    for name in "abc":
        found(redis, name)
    service = started(Service(redis), stack)
    eventually(lambda: listed(service) == {"a", "b", "c"}, "three stopped ones are watched")
    eventually(lambda: all(ring.view for ring in service.listed()[0]), "and read")
    found(redis, "new", nodes=1)
    assert visitor_of(service).json("/api/ring", ring="new")["nodes"] == 1


@pytest.mark.parametrize("name", ["-dash", "--", "a b", "it's; $HOME", "n" * 500])
def test_the_command_of_a_remedy_does_what_it_says_in_a_shell(
    redis_server: RedisServer, stack: ExitStack, name: str
) -> None:
    url = f"{redis_server.url}?db=3&socket_timeout=50"
    client = stack.enter_context(Redis.from_url(url))
    put(client, "well", 0, told={"ttl": 900})
    put(client, name, 1, expires_in=-60.0, told={"ttl": 900})
    service = started(Service(client, rings=["ring"]), stack)
    visitor = Visitor(service, create_app(service, redis_shown=url))
    eventually(lambda: "remedy" in visitor.page("/ring", name="ring"), "the ring was read")
    [command] = re.findall("<code>(.*?)</code>", visitor.page("/ring", name="ring"))
    program = f'hashring() {{ printf "%s\\n" "$@"; }}; {unescape(command)}'
    arguments = subprocess.check_output(["sh", "-c", program], text=True).splitlines()
    arguments.insert(arguments.index("remove") + 1, "--yes")
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 0, result.output
    assert not client.hexists("{ring}:nodes", name)
    assert client.hexists("{ring}:nodes", "well")


def test_many_groups_leave_place_for_rings() -> None:
    groups = {Found("group", f"g{number}") for number in range(4)}
    rings = {Found("ring", "r0"), Found("ring", "r1")}
    order = [name for _, name in watchers_by_name._in_turn(groups | rings)]
    assert order == ["r0", "g0", "r1", "g1", "g2", "g3"]


@pytest.mark.parametrize(("named", "expired"), [(["old"], ["a"]), ([], [])])
def test_what_scores_mean_holds_for_the_ring_that_is_named_and_without_a_name_for_all(
    redis: Redis, stack: ExitStack, named: list[str], expired: list[str]
) -> None:
    for name in ("old", "new"):
        # Expired half a minute ago; or, as redis-hashring has it, alive then.
        put(redis, "a", 0, ring=name, expires_in=-30)
    scoring = Scoring.last_heartbeat(3600)
    visitor = visitor_of(started(Service(redis, rings=named, scoring=scoring), stack))
    assert visitor.json("/api/ring", ring="old")["expired"] == []
    assert visitor.json("/api/ring", ring="new")["expired"] == expired
