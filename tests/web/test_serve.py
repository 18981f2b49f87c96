"""``hashring serve`` as a process: it listens, streams, outlives Redis, and ends when told to."""

from __future__ import annotations

import http.client
import json
import logging
import os
import re
import signal
import socket
import time
import zlib
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from hashring import PartitionGroup
from hashring.cli.serve import _OneLine
from hashring.store.embedded_server import RedisServer
from tests.conftest import PATIENCE, ROOT, eventually
from tests.programs import python
from tests.proxy import Proxy
from tests.short_programs import HASHRING, Program, played
from tests.web.conftest import TOKEN, Running, nodes_on, put, serving


class Stream:
    """Server-sent events, one by one."""

    def __init__(self, running: Running, path: str, **headers: str) -> None:
        self.connection = http.client.HTTPConnection("127.0.0.1", running.port, timeout=PATIENCE)
        self.connection.request("GET", path, headers=headers)
        self.answer = self.connection.getresponse()
        assert self.answer.status == 200, self.answer.read()
        assert self.answer.headers["Content-Type"].startswith("text/event-stream")

    def events(self) -> Iterator[tuple[str, Any]]:
        """Id and data of each."""
        id_ = ""
        for line in iter(self.answer.readline, b""):
            name, _, value = line.decode().rstrip("\n").partition(": ")
            if name == "id":
                id_ = value
            elif name == "data":
                yield id_, json.loads(value)

    def close(self) -> None:
        self.connection.close()


def page_state(running: Running, ring: str) -> tuple[str, str]:
    """The version of a ring's page, and the page."""
    status, page = running.ask(f"/ring?name={ring}")
    assert status == 200, page
    found = re.search(r'data-version="([^"]+)"', page)
    assert found
    return found[1], page


def rows_of(message: Any) -> str:
    """All rows of the table that a message brings."""
    return "".join(message.get("rows", {}).values())


def test_a_page_hears_of_a_node_that_joins_and_of_one_that_leaves(
    client: Redis, running: Running
) -> None:
    with nodes_on(client, "one", "first"):
        version, page = page_state(running, "one")
        assert "first" in page
        stream = Stream(running, f"/ring/feed?name=one&since={version}")
        messages = (message for _, message in stream.events())
        with nodes_on(client, "one", "second"):
            joined = next(each for each in messages if "second" in rows_of(each))
            [row] = [id_ for id_, html in joined["rows"].items() if "second" in html]
        assert next(each for each in messages if each["gone"])["gone"] == [row]
        stream.close()


def test_a_page_that_was_away_gets_what_it_missed_or_everything(
    client: Redis, running: Running
) -> None:
    with nodes_on(client, "two", "first"):
        version, _ = page_state(running, "two")
        with nodes_on(client, "two", "second"):
            for since in (version, "another-process.7", "", "nonsense"):
                stream = Stream(running, f"/ring/feed?name=two&since={since}")
                found = next(m for _, m in stream.events() if "second" in rows_of(m))
                assert ("whole" in found) == (since != version)
                stream.close()


def test_a_compressed_stream_says_the_same(client: Redis, running: Running) -> None:
    with nodes_on(client, "packed", "first"):
        version, _ = page_state(running, "packed")
        stream = Stream(
            running, f"/ring/feed?name=packed&since={version}", **{"Accept-Encoding": "gzip"}
        )
        assert stream.answer.headers["Content-Encoding"] == "gzip"
        unpack = zlib.decompressobj(16 + zlib.MAX_WBITS)
        text = b""
        with nodes_on(client, "packed", "second"):
            while b"second" not in text:
                text += unpack.decompress(stream.answer.read1())
        # Pieces that were packed each on its own follow each other.
        with nodes_on(client, "packed", "third"):
            while b"third" not in text:
                text += unpack.decompress(stream.answer.read1())
        stream.close()


def test_a_heartbeat_alone_sends_the_node_s_row_and_no_other(
    client: Redis, running: Running
) -> None:
    put(client, "still", 1, ring="three", told={"ttl": 900})
    with nodes_on(client, "three", "beats", heartbeat_interval=0.2, ttl=30):
        version, _ = page_state(running, "three")
        stream = Stream(running, f"/ring/feed?name=three&since={version}")
        seen = 0
        for _, message in stream.events():
            assert "still" not in rows_of(message)
            seen += "beats" in rows_of(message)
            if seen > 2:
                break
        stream.close()


def test_changes_stream_as_json_from_any_of_them_on(client: Redis, running: Running) -> None:
    with nodes_on(client, "four", "first"):
        stream = Stream(running, "/api/changes/live?ring=four&after=0-0")
        events = stream.events()
        id_, first = next(events)
        assert (first["kind"], first["nodes"], first["id"]) == ("join", ["first"], id_)
        with nodes_on(client, "four", "second"):
            assert next(events)[1]["nodes"] == ["second"]
        assert next(events)[1]["kind"] == "leave"
        stream.close()
        new = Stream(running, "/api/changes/live?ring=four&after=")  # as without it
        with nodes_on(client, "four", "third"):
            assert next(new.events())[1]["nodes"] == ["third"]
        new.close()
        again = Stream(running, "/api/changes/live?ring=four", **{"Last-Event-ID": id_})
        assert next(again.events())[1]["nodes"] == ["second"]
        again.close()


FUTURE = "9999999999999-0"
"""The id of a change that happened while the clock of Redis was ahead."""


def test_who_follows_changes_gets_those_of_a_history_that_began_again(
    client: Redis, running: Running
) -> None:
    with nodes_on(client, "ahead", "lost"):
        [(_, fields)] = client.xrange("{ahead}:events")
        client.xadd("{ahead}:events", fields, id=FUTURE)
        stream = Stream(running, "/api/changes/live?ring=ahead&after=0-0")
        events = stream.events()
    while next(events)[1]["kind"] != "leave":
        pass
    client.delete("ahead", *client.keys("{ahead}:*"))
    with nodes_on(client, "ahead", "new"):
        assert next(events)[1]["nodes"] == ["new"]
    stream.close()


def test_who_comes_back_with_a_change_of_a_lost_history_gets_all_of_the_new(
    client: Redis, running: Running
) -> None:
    with nodes_on(client, "again", "first"):
        stream = Stream(running, "/api/changes/live?ring=again", **{"Last-Event-ID": FUTURE})
        assert next(stream.events())[1]["nodes"] == ["first"]
        stream.close()


def test_open_pages_ask_redis_nothing(client: Redis, running: Running) -> None:
    with nodes_on(client, "five", "first", heartbeat_interval=10):

        def counted() -> dict[str, int]:
            """How often each command was called; not INFO, which is how this test looks."""
            stats = client.info("commandstats")
            calls = {name.partition("_")[2]: each["calls"] for name, each in stats.items()}
            return {name: number for name, number in calls.items() if name != "info"}

        def commands() -> int:
            before = counted()
            looks = before.get("ping", 0)
            # Over as many looks, whatever the time they take.
            eventually(lambda: counted().get("ping", 0) >= looks + 2, "two looks")
            return sum(counted().values()) - sum(before.values())

        page_state(running, "five")
        alone = commands()
        streams = [Stream(running, "/ring/feed?name=five") for _ in range(60)]
        for stream in streams:
            next(stream.events())
        together = commands()
        for stream in streams:
            stream.close()
    # Each of sixty pages that asked anything at all would more than double it.
    assert together < 2 * alone + 60


def test_a_key_of_ten_kilobytes_and_a_body_without_end(client: Redis, running: Running) -> None:
    put(client, "a", 1, ring="six")
    key = "%F0%9F%A6%8A" * 2_500
    status, text = running.ask(f"/api/owner?ring=six&key={key}")
    assert (status, json.loads(text)["owner"]) == (200, "a")
    status, text = running.ask(
        "/api/owners", "POST", b"x" * 3_000_000, **{"Content-Type": "application/json"}
    )
    assert status == 413
    connection = http.client.HTTPConnection("127.0.0.1", running.port, timeout=PATIENCE)
    connection.request(
        "POST",
        "/api/owners",
        iter([b"x" * 65_536] * 40),
        {"Content-Type": "application/json"},
        encode_chunked=True,
    )
    assert connection.getresponse().status == 413
    connection.close()
    assert running.ask("/healthz")[0] == 200


def test_metrics_are_of_the_rings_there_are_and_of_no_node_that_is_gone(
    client: Redis, running: Running
) -> None:
    with nodes_on(client, "seven", "stays"):
        with nodes_on(client, "seven", "goes"):
            eventually(lambda: 'node="goes"' in running.ask("/metrics")[1], "the node's series")
        eventually(lambda: 'node="goes"' not in running.ask("/metrics")[1], "it is gone")
        text = running.ask("/metrics")[1]
    assert 'hashring_ring_node_up{node="stays",ring="seven"} 1.0' in text
    assert 'hashring_ring_changes_total{reason="stop",ring="seven"}' in text


def test_redis_goes_and_comes_back_and_the_page_stays(redis_server: RedisServer) -> None:
    with Proxy(redis_server.socket) as proxy, serving(proxy.url) as running:
        with Redis(unix_socket_path=str(redis_server.socket)) as client:
            put(client, "a", 1, expires_in=600)
            client.set("{ring}:epoch", "1 ab")
        assert "Redis does not respond" not in page_state(running, "ring")[1]
        assert running.ask("/readyz")[0] == 200
        proxy.refuse()
        eventually(lambda: running.ask("/readyz")[0] == 503, "it says that Redis is gone")
        told = json.loads(running.ask("/readyz")[1])
        assert told["since"] > 0
        eventually(
            lambda: "Redis does not respond" in page_state(running, "ring")[1], "the page says so"
        )
        _, page = page_state(running, "ring")
        assert "What follows is as of" in page
        assert ">a</a>" in page
        status, answer = running.ask("/api/owner?ring=ring&key=k")
        assert (status, json.loads(answer)["owner"]) == (200, "a")
        assert json.loads(answer)["failure"]["since"] > 0
        assert running.ask("/healthz")[0] == 200
        assert running.ask("/ring?name=unheard-of")[0] == 503
        proxy.heal()
        eventually(lambda: running.ask("/readyz")[0] == 200, "it heals")
        eventually(
            lambda: "Redis does not respond" not in page_state(running, "ring")[1],
            "so does the page",
        )


@pytest.mark.one_server
def test_it_starts_without_redis_and_finds_it_later(redis_server: RedisServer) -> None:
    with Proxy(redis_server.socket) as proxy:
        proxy.refuse()
        with serving(proxy.url, "--ring", "ring") as running:
            eventually(lambda: running.ask("/readyz")[0] == 503, "it is not ready")
            status, page = running.ask("/ring?name=ring")
            assert (status, "Nothing has been read yet" in page) == (200, True)
            assert running.ask("/api/ring?ring=ring")[0] == 503
            assert "Redis does not respond" in running.ask("/")[1]
            proxy.heal()
            eventually(lambda: running.ask("/readyz")[0] == 200, "it finds Redis")
            eventually(lambda: running.ask("/api/ring?ring=ring")[0] == 200, "and the ring")


@pytest.mark.one_server
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_ends_when_told_to_though_pages_are_open(
    redis_server: RedisServer, number: signal.Signals
) -> None:
    with serving(redis_server.url, "--ring", "ring") as running:
        streams = [Stream(running, "/ring/feed?name=ring") for _ in range(20)]
        silent = http.client.HTTPConnection("127.0.0.1", running.port)
        silent.connect()
        running.process.send_signal(number)
        assert running.process.wait(PATIENCE) == 0
        # Watchers get an end, and are not cut off in the middle.
        for stream in streams:
            stream.answer.read()
            stream.close()
        silent.close()


@pytest.mark.long
@pytest.mark.one_server
def test_it_ends_soon_though_none_of_many_servers_responds() -> None:
    with ExitStack() as stack:
        urls = []
        for number in range(24):
            # Takes connections, and answers nothing.
            silent = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
            urls.append(f"s{number}=redis://127.0.0.1:{silent.getsockname()[1]}")
        rest = [part for url in urls[1:] for part in ("--url", url)]
        running = stack.enter_context(serving(urls[0], *rest))
        began = time.monotonic()
        running.process.terminate()
        assert running.process.wait(PATIENCE) == 0
        assert time.monotonic() - began < 15  # One after the other, they would take longer.


def test_a_line_of_the_log_is_one_whatever_the_path_of_a_request_is() -> None:
    path = "/\nERROR forged\x1b[31m"
    record = logging.makeLogRecord({"msg": "GET %s", "args": (path,), "levelname": "INFO"})
    assert _OneLine("%(levelname)s %(message)s").format(record) == (
        r"INFO GET /\nERROR forged\x1b[31m"
    )


@pytest.mark.one_server
def test_what_it_cannot_begin_with_is_said(
    running: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [each for each in os.environ if each.startswith("HASHRING_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HASHRING_REDIS_URL", "redis://127.0.0.1:1")
    empty, binary = tmp_path / "empty", tmp_path / "binary"
    empty.write_text("# eu=redis://eu\n\n")
    binary.write_bytes(b"\xff")
    calls: list[tuple[list[str], dict[str, str], str]] = [
        (["--allow-actions"], {"HASHRING_TOKEN": "short"}, "HASHRING_TOKEN"),
        (["--allow-actions"], {"HASHRING_TOKEN": "sh\u00f6rt" * 9}, "HASHRING_TOKEN"),
        (["--allow-actions"], {"HASHRING_TOKEN": "sh\u00f6rt" * 9}, "ASCII"),
        (["--allowed-host", "ring.example:80"], {}, "allowed_host='ring.example:80'"),
        (["--port", str(running.port)], {}, "cannot listen there"),
        (["--url", "http://x"], {}, "url='http://x'"),
        (["--act-user", "ada"], {}, "give --trusted-proxy as well"),
        (["--host", "a" * 70], {}, "cannot listen there"),
        (["--host", "*"], {}, "host='*': give an address or a name"),
        (["--host", ""], {}, "host='': give an address or a name"),
        (["--host", "[::1]"], {}, "host='[::1]': give an address or a name"),
        (["--host", "http://ring"], {}, "host='http://ring': give an address or a name"),
        (["--servers", str(empty)], {}, "names no server"),
        (["--servers", str(binary)], {}, "cannot be read"),
    ]
    programs = [
        Program(HASHRING, ["serve", *arguments], environment) for arguments, environment, _ in calls
    ]
    ended = played(programs, ["hashring.cli.serve", "hashring.web.wsgi_app", "redis"])
    for done, (_, _, text) in zip(ended, calls, strict=True):
        assert (done.status, text in done.err) == (2, True), done.err
        assert "Traceback" not in done.err
        assert "short" not in done.err


@pytest.mark.one_server
def test_without_the_extra_it_says_which_to_install() -> None:
    script = (
        "import sys; sys.modules['flask'] = None\n"
        "from hashring.cli import main; main(['serve', '--url', 'redis://127.0.0.1:1'])"
    )
    done = python("-c", script)
    assert (done.returncode, "hashring-fleet[web]" in done.stderr) == (2, True), done.stderr


@pytest.mark.one_server
def test_listening_beyond_this_machine_is_said(redis_server: RedisServer) -> None:
    with serving(
        redis_server.url, "--host", "0.0.0.0", "--allow-actions", HASHRING_TOKEN=TOKEN
    ) as (running):
        assert running.process.stderr is not None
        assert "can be reached from other machines" in running.process.stderr.readline()
        assert running.ask("/healthz")[0] == 200


@pytest.mark.one_server
def test_a_password_is_shown_nowhere(redis_server: RedisServer) -> None:
    with Proxy(redis_server.socket) as proxy:
        url = proxy.url.replace("redis://", "redis://:s3cret@")
        with serving(url, "--ring", "ring") as running:
            pages = [
                running.ask(path)[1] for path in ("/", "/ring?name=ring", "/readyz", "/metrics")
            ]
            running.process.send_signal(signal.SIGTERM)
            _, said = running.process.communicate(timeout=PATIENCE)
    assert "***" in pages[0]
    assert not any("s3cret" in text for text in [*pages, said, *running.said])


def test_the_rights_in_its_documentation_are_enough_to_look(
    redis_server: RedisServer,
) -> None:
    text = (ROOT / "docs" / "operations" / "service.rst").read_text()
    [line] = re.findall(r"ACL SETUSER watcher .*", text)
    with (
        Redis(unix_socket_path=str(redis_server.socket)) as admin,
        Proxy(redis_server.socket) as proxy,
    ):
        admin.execute_command(*line.split())
        url = proxy.url.replace("redis://", "redis://watcher:secret@")
        group = PartitionGroup(admin, "orders", partitions=3, member="m", rebalance_delay=0)
        with nodes_on(admin, "ring", "a"), group, serving(url) as running:
            eventually(lambda: "orders" in running.ask("/api/groups")[1], "the group is found")
            for path in ("/api/ring?ring=ring", "/api/owner?ring=ring&key=k", "/group?name=orders"):
                status, answer = running.ask(path)
                assert status == 200
                assert "Redis refuses" not in answer
            assert json.loads(running.ask("/api/owner?ring=ring&key=k")[1])["lock_error"] is None
            told = json.loads(running.ask("/api/changes?ring=ring")[1])
            assert (len(told["changes"]), told["failure"]) == (1, None)
        admin.acl_deluser("watcher")


@pytest.mark.one_server
def test_with_json_it_writes_its_address_once_it_listens(redis_server: RedisServer) -> None:
    with serving(redis_server.url, "--json", "--base-path", "/rings") as running:
        assert running.process.stdout is not None
        told = json.loads(running.process.stdout.readline())
        assert told == {"url": f"{running.url}/rings/"}
