"""Several Redis servers in one service."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from redis import Redis
from werkzeug.test import Client, TestResponse

from hashring.errors import ConfigError
from hashring.web import Access, Service, server_sent_events
from hashring.web.several_servers import Site, create_sites
from tests.conftest import eventually
from tests.web.conftest import TOKEN, put, serving

pytestmark = pytest.mark.one_server


@pytest.fixture
def services(redis: Redis) -> Iterator[list[Service]]:
    put(redis, "a", 0, told={"ttl": 900, "unserved": 25})
    away = Redis(host="127.0.0.1", port=1)
    found = [Service(redis, rings=["ring"]), Service(away)]
    for service in found:
        service.start()
    yield found
    for service in found:
        service.stop()


def client_of(services: list[Service], **settings: Any) -> Client:
    sites = [
        Site(name, each, "redis://x") for name, each in zip(("eu", "us"), services, strict=True)
    ]
    return Client(create_sites(sites, **{"access": Access(), **settings}), TestResponse)


def test_the_first_page_has_the_state_of_each_server_the_worst_first(
    services: list[Service],
) -> None:
    client = client_of(services)
    eventually(
        lambda: (
            client.get("/api/status").json["servers"]["eu"]["state"] == "degraded"
            and client.get("/api/status").json["state"] == "unknown"
        ),
        "one is degraded, and one away",
    )
    told = client.get("/api/status").json
    assert (told["state"], told["exit_status"]) == ("unknown", 2)
    page = client.get("/").text
    assert "<title>◇ unknown · Redis servers" in page
    assert page.index('href="/server/us/"') < page.index('href="/server/eu/"')
    assert "ring ring: 25 keys unserved" in page
    links = re.findall(r'href="(/[^"#]*)"', page)
    assert [link for link in links if client.get(link).status_code != 200] == []
    ready = client.get("/readyz")
    assert (ready.status_code, ready.json["servers"]) == (200, {"eu": True, "us": False})


def test_each_server_has_its_own_pages_api_and_metrics(services: list[Service]) -> None:
    client = client_of(services, base_path="/rings", access=Access(token=TOKEN))
    page = client.get("/rings/server/eu/ring?name=ring")
    assert page.status_code == 200
    assert 'href="/rings/"' in page.text
    assert 'href="/rings/server/eu/plan/ring?ring=ring"' in page.text
    assert client.get("/rings/server/eu/api/ring?ring=ring").json["ring"] == "ring"
    assert client.get("/rings/server/us/api/ring?ring=ring").status_code == 503
    assert client.get("/rings/server/nowhere/").status_code == 404
    assert client.get("/elsewhere").status_code == 404
    metrics = client.get("/rings/metrics").text
    assert 'hashring_redis_up{server="eu"} 1.0' in metrics
    assert 'hashring_redis_up{server="us"} 0.0' in metrics
    assert metrics.count("# TYPE hashring_redis_up gauge") == 1


def test_links_to_grafana_choose_the_server(services: list[Service]) -> None:
    for address, begin in (
        ("https://g.example/d/hashring", "https://g.example/d/hashring?var-server=eu"),
        ("https://g.example/d/x?orgId=2", "https://g.example/d/x?orgId=2&amp;var-server=eu"),
    ):
        page = client_of(services, grafana=address).get("/server/eu/ring?name=ring").text
        assert f'href="{begin}&amp;var-ring=ring"' in page


def test_rights_and_names_of_hosts_count_for_the_first_page_too(services: list[Service]) -> None:
    client = client_of(services, access=Access(view_users=["ada"]))
    for path in ("/", "/api/status", "/server/eu/"):
        assert client.get(path).status_code == 403
        assert client.get(path, headers={"Host": "evil.example"}).status_code == 421
    assert "default-src 'none'" in client.get("/").headers["Content-Security-Policy"]


def test_the_limits_of_a_process_hold_for_all_servers_together(
    services: list[Service], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_sent_events, "MOST_STREAMS", 2)
    client = client_of(services, access=Access(token=TOKEN))
    streams = [client.get(f"/server/{name}/feed") for name in ("eu", "us")]
    assert [stream.status_code for stream in streams] == [200, 200]
    assert client.get("/server/eu/feed").status_code == 503
    streams[0].close()
    assert client.get("/server/us/feed").status_code == 200
    wrong = {"Authorization": "Bearer wrong"}
    asked = [
        client.post(f"/server/{name}/api/act/drain", headers=wrong).status_code
        for name in ("eu", "us", "eu", "us", "eu", "us")
    ]
    assert asked == [401] * 5 + [429]


@pytest.mark.parametrize("name", ["a/b", "", "ä", "eu"])
def test_a_name_that_no_path_can_have_or_that_is_given_twice_is_refused(
    redis: Redis, name: str
) -> None:
    sites = [Site("eu", Service(redis), ""), Site(name, Service(redis), "")]
    with pytest.raises(ConfigError, match="server="):
        create_sites(sites, access=Access())


def test_the_command_takes_servers_from_options_and_from_a_file(
    redis: Redis, tmp_path: Any
) -> None:
    path = tmp_path / "servers"
    path.write_text("# away\nus=redis://user:secret@127.0.0.1:1/0\n")
    url = f"unix://{redis.connection_pool.connection_kwargs['path']}"
    with serving(f"eu={url}", "--servers", str(path)) as running:
        page = running.ask("/")[1]
        assert 'href="/server/eu/"' in page
        assert 'href="/server/us/"' in page
        assert "secret" not in page


def test_a_server_with_a_name_may_stand_before_the_command(redis: Redis) -> None:
    url = f"unix://{redis.connection_pool.connection_kwargs['path']}"
    put(redis, "a", 0)
    with serving(f"eu={url}", before=True) as running:
        assert running.ask("/server/eu/api/ring?ring=ring")[0] == 200


def test_one_server_with_a_name_has_its_pages_and_metrics_under_that(redis: Redis) -> None:
    url = f"unix://{redis.connection_pool.connection_kwargs['path']}"
    with serving(f"eu={url}") as running:
        status, page = running.ask("/")
        assert (status, 'href="/server/eu/"' in page) == (200, True)
        assert "1 Redis server<" in page
        assert running.ask("/server/eu/")[0] == 200
        assert 'hashring_redis_up{server="eu"}' in running.ask("/metrics")[1]


@pytest.mark.parametrize("of_command_line", [True, False])
def test_a_server_before_the_command_counts_beside_a_file_unless_of_the_environment(
    redis: Redis, tmp_path: Any, monkeypatch: pytest.MonkeyPatch, of_command_line: bool
) -> None:
    path = tmp_path / "servers"
    path.write_text("us=redis://127.0.0.1:1/0\n")
    url = f"eu=unix://{redis.connection_pool.connection_kwargs['path']}"
    more = ("--servers", str(path))
    if of_command_line:
        started = serving(url, *more, before=True)
    else:
        started = serving(None, *more, HASHRING_REDIS_URL=url)
    with started as running:
        page = running.ask("/")[1]
        assert ('href="/server/eu/"' in page) == of_command_line
        assert 'href="/server/us/"' in page
