"""The programs people copy, on real servers, while their nodes are stopped and killed."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.error import URLError

import psutil
import psycopg
import pytest
from redis import Redis

from hashring.testing import RedisServer
from tests.conftest import PATIENCE, ROOT, eventually
from tests.programs import printed

EXAMPLES = ROOT / "examples"
PROGRAMS = sorted(EXAMPLES.glob("*/*.py"))
Start = Callable[..., subprocess.Popen[str]]

sys.path.insert(0, str(EXAMPLES))
from postgresql import PostgreSQL  # noqa: E402


class Lines:
    """The lines that a process has printed so far."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.seen: list[str] = []
        self.thread = threading.Thread(target=self._read, daemon=True)
        self.thread.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.seen.append(line.rstrip("\n"))


@pytest.fixture
def start() -> Iterator[Start]:
    """Start an example; all are ended with the test."""
    started: list[subprocess.Popen[str]] = []

    def one(*command: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, *command], stdout=subprocess.PIPE, text=True, cwd=EXAMPLES
        )
        started.append(process)
        return process

    yield one
    for process in started:
        process.send_signal(signal.SIGCONT)
        process.kill()
        process.wait(PATIENCE)
        assert process.stdout is not None
        process.stdout.close()


def leave(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE) == 0


@pytest.mark.parametrize("file", PROGRAMS, ids=lambda file: file.name)
def test_a_program_is_short_and_uses_public_names_only(file: Path) -> None:
    text = file.read_text()
    assert len(text.splitlines()) < 150
    modules = set(re.findall(r"^(?:from|import) (hashring[\w.]*)", text, re.M))
    public = {"fencing", "metrics", "ring_files", "testing"}
    assert modules <= {"hashring", *(f"hashring.{name}" for name in public)}


def test_the_readme_names_every_program_that_can_be_run() -> None:
    told = printed(EXAMPLES / "run.py", "--help")
    choices = re.search(r"\{([\w,]+)\}", told)
    assert choices is not None
    readme = (EXAMPLES / "README.rst").read_text()
    names = set(choices[1].split(","))
    assert names == set(re.findall(r"``examples/run ([a-z_]+)``", readme))
    for name in names:
        assert f"  examples/run {name}" in (EXAMPLES / name / "README.rst").read_text()


@pytest.mark.parametrize("text", ["0", "-1", "many"])
def test_an_example_of_no_node_is_refused(text: str) -> None:
    command = [sys.executable, EXAMPLES / "run.py", "beat", f"--nodes={text}"]
    told = subprocess.run(command, capture_output=True, text=True, check=False)
    assert told.returncode == 2
    assert f"--nodes: {text}: give a whole number, at least 1" in told.stderr


JOINED = {
    "accounts": ("accounts", 32),
    "feeds": ("feeds", 32),
    "stream": ("{events}:group:leases", 2),
    "owner_api": ("tenants", 32),
    "beat": ("beat", 32),
}
"""Where two nodes or members are in Redis, by the example, and how many entries they have."""


def started(name: str, start: Start) -> tuple[Lines, list[psutil.Process]]:
    """An example that was started by one command, and its two nodes or members."""
    process = start("run.py", name)
    assert process.stdout is not None
    url = process.stdout.readline().rpartition(" ")[2].strip()
    lines = Lines(process)
    key, entries = JOINED[name]
    with Redis.from_url(url) as redis:
        eventually(lambda: redis.zcard(key) == entries, f"two are in {key}: {lines.seen}")
    programs = [
        each
        for each in psutil.Process(process.pid).children()
        if str(EXAMPLES / name) in " ".join(each.cmdline())
    ]
    return lines, programs


@pytest.mark.parametrize("name", JOINED)
def test_one_command_starts_it_and_ctrl_c_ends_all_also_a_paused_node(
    start: Start, name: str
) -> None:
    lines, programs = started(name, start)
    programs[-1].suspend()
    lines.process.send_signal(signal.SIGINT)
    assert lines.process.wait(PATIENCE) == 0
    lines.thread.join(PATIENCE)


def test_an_example_ends_with_its_last_node(start: Start) -> None:
    lines, programs = started("beat", start)
    for each in programs:
        each.kill()
    assert lines.process.wait(PATIENCE) == 1
    lines.thread.join(PATIENCE)


ACCOUNTS = 32
"""One of two nodes with random points owns none of 8 in 16 of 1,000 runs; of 32, in 2 of 10**6."""


class TestAccounts:
    @pytest.fixture
    def database(self) -> Iterator[str]:
        with PostgreSQL() as server:
            with psycopg.connect(server.url) as connection:
                connection.execute((EXAMPLES / "accounts" / "schema.sql").read_text())
                for number in range(ACCOUNTS):
                    connection.execute("INSERT INTO accounts (id) VALUES (%s)", (f"a{number}",))
            yield server.url

    def test_a_node_that_wakes_up_too_late_writes_nothing(
        self, start: Start, database: str, redis_server: RedisServer
    ) -> None:
        options = ["--redis", redis_server.url, "--database", database, "--seconds", "0.05"]
        script = "accounts/sync.py"
        first = start(script, *options, "--ttl", "1.2", "--name", "first")
        second = start(script, *options, "--ttl", "1.2", "--name", "second")
        with psycopg.connect(database, autocommit=True) as look:

            def writes(node: str) -> int:
                row = look.execute("SELECT count(*) FROM writes WHERE node = %s", (node,))
                return int((row.fetchone() or [0])[0])

            def written_by(node: str) -> int:
                row = look.execute(
                    "SELECT count(DISTINCT account) FROM writes WHERE node = %s", (node,)
                )
                return int((row.fetchone() or [0])[0])

            eventually(lambda: writes("first") and writes("second"), "both nodes write")
            first.send_signal(signal.SIGSTOP)
            eventually(
                lambda: written_by("second") == ACCOUNTS, "the other node takes all accounts over"
            )
            before = writes("first")
            first.send_signal(signal.SIGCONT)
            eventually(lambda: writes("first") > before, "the node is back")
            leave(first)
            leave(second)
            backwards = look.execute(
                "SELECT count(*) FROM writes a JOIN writes b"
                " ON a.account = b.account AND a.number < b.number AND a.token > b.token"
            ).fetchone()
        assert backwards == (0,)

    def test_a_node_paused_in_mid_write_locks_no_row_of_its_heir(
        self, start: Start, database: str, redis_server: RedisServer
    ) -> None:
        options = ["--redis", redis_server.url, "--seconds", "0.05", "--ttl", "1.2"]
        script = "accounts/sync.py"
        with psycopg.connect(database, autocommit=True) as look:
            look.execute(SLOW_WRITES_OF_FIRST)
            slow = f"{database}&application_name=first"
            first = start(script, *options, "--database", slow, "--name", "first")

            def writing() -> tuple[object, ...] | None:
                return look.execute(
                    "SELECT 1 FROM pg_stat_activity"
                    " WHERE application_name = 'first' AND wait_event = 'PgSleep'"
                ).fetchone()

            def heirs() -> tuple[object, ...] | None:
                return look.execute(
                    "SELECT count(DISTINCT account) FROM writes WHERE node = 'second'"
                ).fetchone()

            eventually(writing, "the first node writes")
            first.send_signal(signal.SIGSTOP)
            start(script, *options, "--database", database, "--name", "second")
            eventually(lambda: heirs() == (ACCOUNTS,), "the other node writes all accounts")


SLOW_WRITES_OF_FIRST = """
CREATE FUNCTION slowly() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF current_setting('application_name') = 'first' THEN
        PERFORM pg_sleep(0.5);
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER slowly BEFORE UPDATE ON accounts FOR EACH ROW EXECUTE FUNCTION slowly();
"""


class TestFeeds:
    def test_a_feed_has_one_connection_while_nodes_come_and_go(
        self, start: Start, redis_server: RedisServer
    ) -> None:
        server = start("feeds/server.py")
        assert server.stdout is not None
        source = server.stdout.readline().strip()
        lines = Lines(server)

        def open_now() -> dict[str, int]:
            count: dict[str, int] = {}
            for line in list(lines.seen):
                sign, _, feed = line.partition(" ")
                count[feed] = count.get(feed, 0) + (1 if sign == "+" else -1)
            return {feed: number for feed, number in count.items() if number}

        def one_each() -> bool:
            return open_now() == {f"feed-{number}": 1 for number in range(24)}

        options = ["--redis", redis_server.url, "--source", source, "--ttl", "1.2"]
        first = start("feeds/feeds.py", *options, "--name", "first")
        eventually(one_each, "one node opens all feeds")
        second = start("feeds/feeds.py", *options, "--name", "second")
        eventually(lambda: len(lines.seen) > 24 and one_each(), "some feeds move")
        with Redis.from_url(redis_server.url) as redis:
            assert redis.zcard("feeds") == 32
        first.kill()
        eventually(lambda: not one_each(), "the dead node's feeds close")
        eventually(one_each, "the other node opens them")
        leave(second)
        eventually(lambda: open_now() == {}, "all feeds are closed")


class TestOwnerApi:
    @contextmanager
    def answering(
        self, start: Start, url: str, name: str, monkeypatch: pytest.MonkeyPatch
    ) -> Iterator[str]:
        monkeypatch.setenv("HASHRING_REDIS_URL", url)
        monkeypatch.setenv("NODE_NAME", name)
        app = ["-m", "uvicorn", "app:app", "--app-dir", "owner_api", "--port", "0"]
        process = subprocess.Popen(
            [sys.executable, *app], cwd=EXAMPLES, stderr=subprocess.PIPE, text=True
        )
        assert process.stderr is not None
        try:
            for line in process.stderr:
                if found := re.search(r"running on (http://\S+)", line):
                    yield found[1]
                    break
        finally:
            process.terminate()
            process.communicate(timeout=PATIENCE)

    def test_every_process_names_the_same_owner(
        self, start: Start, redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def ask(base: str, path: str) -> dict[str, object]:
            with urllib.request.urlopen(base + path, timeout=PATIENCE) as answer:
                found: dict[str, object] = json.loads(answer.read())
                return found

        url = redis_server.url
        with self.answering(start, url, "a", monkeypatch) as a:
            with self.answering(start, url, "b", monkeypatch) as b:
                eventually(lambda: ask(a, "/status")["node_count"] == 2, "the first sees both")
                eventually(lambda: ask(b, "/status")["node_count"] == 2, "the second sees both")
                for number in range(20):
                    one, two = (ask(base, f"/owner?key=tenant-{number}") for base in (a, b))
                    assert one["owner"] == two["owner"]
                    assert [one["here"], two["here"]] == [one["owner"] == "a", one["owner"] == "b"]
                assert ask(a, "/healthz") == {"alive": True}
                with pytest.raises(URLError, match="400"):
                    ask(a, "/owner?key=")
            eventually(lambda: ask(a, "/status")["node_count"] == 1, "the other has left")
            assert ask(a, "/owner?key=tenant-1")["owner"] == "a"


class TestBeat:
    def test_a_period_runs_once_though_the_owner_is_killed(
        self, start: Start, redis_server: RedisServer
    ) -> None:
        nodes = {
            name: start("beat/beat.py", "--redis", redis_server.url, "--name", name)
            for name in ("one", "two", "three")
        }
        with Redis.from_url(redis_server.url, decode_responses=True) as redis:

            def runs() -> list[list[str]]:
                return [run.split() for run in redis.lrange("{invoices}:runs", 0, -1)]

            eventually(lambda: len(runs()) >= 3, "a job runs every second")
            owner = runs()[-1][1]
            nodes.pop(owner).kill()
            eventually(lambda: runs()[-1][1] != owner, "another node runs it")
            for process in nodes.values():
                leave(process)
            periods = [period for period, _ in runs()]
        assert len(periods) == len(set(periods))


def test_the_stream_example_counts_every_event_once(
    start: Start, redis_server: RedisServer
) -> None:
    script = ["stream/processor.py", "--redis", redis_server.url]
    assert start(*script, "--fill", "20000").wait(PATIENCE) == 0
    members = [start(*script, "--name", name) for name in ("a", "b")]
    with Redis.from_url(redis_server.url, decode_responses=True) as redis:

        def total(field: str) -> int:
            found = (redis.hget(f"{{events}}:state:{number}", field) for number in range(32))
            return sum(int(value or 0) for value in found)

        eventually(lambda: total("done") > 2000, "they work")
        members[0].kill()
        eventually(lambda: total("done") >= 20_000, "all events are counted")
        counts: dict[str, int] = {}
        for number in range(32):
            for name, count in redis.hgetall(f"{{events}}:count:{number}").items():
                counts[name] = counts.get(name, 0) + int(count)
        assert counts == {f"customer-{number}": 20 for number in range(1000)}
        assert total("disorder") == 0
    leave(members[1])


@pytest.mark.one_server
def test_the_stream_example_goes_on_after_an_outage_and_counts_once(
    start: Start, tmp_path: Path
) -> None:
    kept = ("appendonly yes", "appendfsync always")
    with RedisServer(port=0, config=kept, directory=tmp_path) as server:
        script = ["stream/processor.py", "--redis", server.url]
        members = [start(*script, "--name", name) for name in ("a", "b")]
        with Redis.from_url(server.url, decode_responses=True) as redis:
            eventually(lambda: redis.zcard("{events}:group:leases") == 2, "both are members")
            assert start(*script, "--fill", "20000").wait(PATIENCE) == 0

            def done() -> int:
                states = (redis.hget(f"{{events}}:state:{number}", "done") for number in range(32))
                return sum(int(value or 0) for value in states)

            eventually(lambda: done() > 0, "they work")
            server.kill()
            time.sleep(1)
            server.start()
            eventually(lambda: done() >= 20_000, "all events are counted")
            counts = [redis.hvals(f"{{events}}:count:{number}") for number in range(32)]
            assert sum(int(count) for found in counts for count in found) == 20_000
        for member in members:
            leave(member)


@pytest.mark.one_server
@pytest.mark.parametrize(
    "number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.long)]
)
def test_the_fire_ends_in_the_middle_with_all_its_members(start: Start, number: int) -> None:
    process = start("stream/flights.py", "--rows", "60000")
    assert process.stdout is not None
    assert any("b is stopped" in line for line in process.stdout)
    members = psutil.Process(process.pid).children()
    process.send_signal(number)
    assert process.wait(PATIENCE) == 130
    assert [member for member in members if member.is_running()] == []
