"""example.py: what a newcomer sees first, with real processes."""

from __future__ import annotations

import ast
import fcntl
import os
import re
import signal
import subprocess
import termios
import threading
from array import array
from pathlib import Path

import pytest
from redis import Redis

import hashring
import hashring.testing
from hashring.store import embedded_keeper as keeper
from hashring.store.embedded_server import RedisServer
from tests.cli.conftest import ending, finished, line_with, nodes_on, spawn, until
from tests.conftest import ROOT, eventually
from tests.programs import python

pytestmark = pytest.mark.one_server

LINE = re.compile(r"INFO:root:PID (\d+), (\d+) keys \((\[.*\])\)\n")


def keys_of(line: str) -> tuple[int, set[int]]:
    """The pid and the keys of a line of the log."""
    match = LINE.fullmatch(line)
    assert match, line
    keys = {int(key) for key in match[3][1:-1].split(", ") if key}
    assert len(keys) == int(match[2])
    return int(match[1]), keys


class Log:
    """What a process logs, read in the background: the latest keys of every pid."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.keys: dict[int, set[int]] = {}
        self.other: list[str] = []
        self._source = process.stderr
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        assert self._source is not None
        for line in self._source:
            if LINE.fullmatch(line):
                pid, keys = keys_of(line)
                self.keys[pid] = keys
            else:
                self.other.append(line)

    def split(self, *pids: int) -> bool:
        """Whether these have all accounts between them, each once, and none has none."""
        owned = [self.keys.get(pid, set()) for pid in pids]
        return all(owned) and sum(map(len, owned)) == 100 == len(set().union(*owned))

    def join(self) -> None:
        self._thread.join()


def children(process: subprocess.Popen[str]) -> list[int]:
    text = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()
    return [int(pid) for pid in text.split()]


def test_the_first_node_logs_all_accounts_as_in_the_seed() -> None:
    with ending(spawn("example.py")) as process:
        line = line_with(process, "", "stderr")
        accounts = ", ".join(str(number) for number in range(100))
        assert line == f"INFO:root:PID {process.pid}, 100 keys ([{accounts}])\n"
        process.send_signal(signal.SIGINT)
        assert finished(process) == (0, "", "")


def test_two_split_the_accounts_and_the_survivor_takes_them_back() -> None:
    with ending(spawn("example.py")) as first:
        line_with(first, "100 keys", "stderr")
        with ending(spawn("example.py")) as second:
            log, other = Log(first), Log(second)
            until(
                lambda: log.keys.update(other.keys) or log.split(first.pid, second.pid),
                "they split the accounts",
            )
            second.send_signal(signal.SIGTERM)
            assert second.wait() == 0
            until(lambda: log.split(first.pid), "the first has all of them again")
            other.join()
        first.send_signal(signal.SIGINT)
        assert first.wait() == 0
        log.join()
        assert log.other == other.other == []


def test_print_shows_the_nodes_that_run() -> None:
    with ending(spawn("example.py")) as process:
        line_with(process, "100 keys", "stderr")
        status, out, err = finished(spawn("example.py", "--print"))
        lines = out.splitlines()
        assert (status, err) == (0, "")
        assert lines[:2] == ['Hash ring "ring" replicas:', "Start      Range  Delay   Node"]
        assert len([line for line in lines if f":{process.pid}:" in line]) == 16
        assert lines[19:21] == [
            'Hash ring "ring" nodes:',
            "Range    Replicas Delay   Hostname             PID   Node",
        ]
        assert lines[21].startswith("100.00%       16      ")
        assert re.search(rf" {process.pid} \S+:{process.pid}$", lines[21])


def test_the_options_name_the_redis_and_the_ring() -> None:
    with RedisServer(port=0) as tcp:
        for arguments in (
            ("--host", "127.0.0.1", "--port", str(tcp.port)),
            ("--port", str(tcp.port)),
            ("--url", tcp.url),
        ):
            with ending(spawn("example.py", "--ring", "accounts", *arguments)) as process:
                line_with(process, "100 keys", "stderr")
                out = finished(spawn("example.py", "--print", "--ring", "accounts", *arguments))[1]
                assert 'Hash ring "accounts" nodes:' in out
                process.send_signal(signal.SIGINT)
                assert process.wait() == 0
            with Redis.from_url(tcp.url) as other:
                assert other.zcard("accounts") == 0


def test_nodes_share_the_keys_and_a_killed_one_is_reported_and_replaced() -> None:
    with ending(spawn("example.py", "--nodes", "3")) as process:
        log = Log(process)
        until(
            lambda: len(pids := children(process)) == 3 and log.split(*pids),
            "three share the accounts",
        )
        victim, *others = children(process)
        os.kill(victim, signal.SIGKILL)
        until(lambda: log.split(*others), "the others take over")
        assert log.other == [
            f"WARNING:root:PID {victim} was killed by SIGKILL; the others take over within 4 s\n"
        ]
        out = finished(spawn("example.py", "--print"))[1]
        assert len(out.partition("nodes:")[2].splitlines()) == 4
        process.send_signal(signal.SIGINT)
        assert process.wait() == 0
        log.join()
        assert len(log.other) == 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_nodes_end_together_and_leave_the_ring(
    client: Redis, redis_server: RedisServer, number: signal.Signals
) -> None:
    with ending(spawn("example.py", "--nodes", "2", "--url", redis_server.url)) as process:
        log = Log(process)
        until(lambda: len(pids := children(process)) == 2 and log.split(*pids), "both run")
        # As the terminal does it: everybody of the process group gets it, and twice.
        for pid in (*children(process), process.pid, process.pid):
            os.kill(pid, number)
        assert process.wait() == 0
        log.join()
        assert client.zcard("ring") == 0
        assert log.other == []


def test_nodes_that_are_all_killed_make_it_fail(redis_server: RedisServer) -> None:
    with ending(spawn("example.py", "--nodes", "2", "--url", redis_server.url)) as process:
        log = Log(process)
        until(lambda: len(pids := children(process)) == 2 and log.split(*pids), "both run")
        for pid in children(process):
            os.kill(pid, signal.SIGKILL)
        assert process.wait() == 1
        log.join()
        assert len(log.other) == 2


def test_nodes_end_when_their_parent_is_killed(client: Redis, redis_server: RedisServer) -> None:
    with ending(spawn("example.py", "--nodes", "2", "--url", redis_server.url)) as process:
        log = Log(process)
        until(lambda: len(pids := children(process)) == 2 and log.split(*pids), "both run")
        process.kill()
        process.wait()
        log.join()  # every process with standard error open has ended
        eventually(lambda: client.zcard("ring") == 0, "they have left")


FORKS_TWICE = """
import itertools, os, runpy

fork, number = os.fork, itertools.count()

def limited():
    if next(number) == 2:
        raise BlockingIOError(11, "Resource temporarily unavailable")
    return fork()

os.fork = limited
runpy.run_path("example.py", run_name="__main__")
"""


def test_the_others_end_if_a_node_cannot_be_started(
    client: Redis, redis_server: RedisServer
) -> None:
    done = python("-c", FORKS_TWICE, "--nodes", "3", "--url", redis_server.url)
    assert done.returncode == 1
    assert "example.py: [Errno 11] Resource temporarily unavailable\n" in done.stderr
    assert client.zcard("ring") == 0


def test_a_paused_node_is_told_to_end_too(client: Redis, redis_server: RedisServer) -> None:
    with ending(spawn("example.py", "--nodes", "2", "--url", redis_server.url)) as process:
        log = Log(process)
        until(lambda: len(pids := children(process)) == 2 and log.split(*pids), "both run")
        os.kill(children(process)[0], signal.SIGSTOP)
        process.send_signal(signal.SIGINT)
        assert process.wait() == 0
        log.join()


def test_the_server_outlives_the_one_that_brought_it_and_goes_with_the_last(
    runtime_directory: Path,
) -> None:
    with ending(spawn("example.py")) as first, ending(spawn("example.py")) as second:
        lines = [line_with(process, "keys", "stderr") for process in (first, second)]
        assert all(lines)
        server = int((runtime_directory / "run" / keeper.SERVER_LOCK).read_text())
        first.send_signal(signal.SIGINT)
        assert first.wait() == 0
        log = Log(second)
        until(lambda: log.split(second.pid) or "100 keys" in lines[1], "the second goes on")
        assert "Hash ring" in finished(spawn("example.py", "--print"))[1]
        assert Path(f"/proc/{server}").exists()
        second.send_signal(signal.SIGINT)
        assert second.wait() == 0
        log.join()
        assert log.other == []
    eventually(lambda: not Path(f"/proc/{server}").exists(), "the server is gone")


def test_keys_of_a_file_are_split_and_long_lists_cut(tmp_path: Path) -> None:
    file = tmp_path / "keys.txt"
    file.write_text("".join(f"account:{number}\r\n" for number in range(250)))
    with ending(spawn("example.py", "--keys", str(file))) as process:
        line = line_with(process, "", "stderr")
        assert ", 250 keys (['account:0', 'account:1', " in line
        assert line.endswith("'account:99'] and 150 more)\n")


@pytest.mark.parametrize("nodes", ["1", "2"])
def test_keys_from_standard_input_serve_all_nodes(nodes: str) -> None:
    command = ("example.py", "--keys", "-", "--nodes", nodes)
    with ending(spawn(*command, stdin=subprocess.PIPE)) as process:
        assert process.stdin is not None
        process.stdin.write("".join(f"{number}\n" for number in range(100)))
        process.stdin.close()
        process.stdin = None
        counts: dict[str, int] = {}
        while sum(counts.values()) != 100 or len(counts) != int(nodes):
            line = line_with(process, "keys", "stderr")
            words = line.split()
            counts[words[1]] = int(words[2])
        process.send_signal(signal.SIGINT)
        assert finished(process)[0] == 0


def waits_for_more(pid: int, pipe: int) -> bool:
    """Whether the process has read all that the pipe held, and sleeps."""
    left = array("i", [0])
    fcntl.ioctl(pipe, termios.FIONREAD, left)
    state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    return left[0] == 0 and state == "S"


def test_ctrl_c_does_not_wait_until_all_keys_are_read(tmp_path: Path) -> None:
    # A pipe that never ends stands for a file that takes for ever to read.
    fifo = tmp_path / "keys"
    os.mkfifo(fifo)
    with (
        ending(spawn("example.py", "--keys", str(fifo))) as process,
        fifo.open("wb", buffering=0) as writer,
    ):
        writer.write(b"a\n" * 100)
        # A signal between Python's look for signals and its read would wait for the read's end.
        eventually(lambda: waits_for_more(process.pid, writer.fileno()), "all is read")
        process.send_signal(signal.SIGINT)
        assert finished(process)[0] == 130


@pytest.mark.parametrize(
    "url",
    [
        *(f"redis://me:s3cr{character}et@localhost" for character in "/?#["),
        "redis://me:36?s3cret@localhost/0?db=1",
    ],
)
def test_a_password_that_cuts_its_url_is_not_shown(url: str) -> None:
    status, out, err = finished(spawn("example.py", "--print", "--url", url))
    assert (status, out) == (1, "")
    assert err.startswith("example.py: --url cannot be read: ")
    assert "%40" in err
    assert "s3cr" not in err


def test_the_log_of_the_package_itself_stays_out_of_sight_unless_it_warns() -> None:
    with (
        RedisServer(port=0) as server,
        ending(spawn("example.py", "--url", server.url)) as process,
    ):
        line_with(process, "100 keys", "stderr")
        server.kill()
        assert line_with(process, "", "stderr").startswith("WARNING:hashring:hashring ")
        lines = sorted(line_with(process, "", "stderr") for _ in range(2))
        assert ", 0 keys ([])" in lines[0]
        assert "owns nothing until one is answered" in lines[1]
        server.start()
        # Of two threads, in either order.
        lines = sorted(line_with(process, "", "stderr") for _ in range(2))
        assert "100 keys" in lines[0]
        assert "Redis lost the ring" in lines[1]


def test_a_log_that_nobody_reads_ends_the_node(client: Redis, redis_server: RedisServer) -> None:
    process = spawn("example.py", "--url", redis_server.url)
    line_with(process, "100 keys", "stderr")
    assert process.stderr is not None
    process.stderr.close()
    with nodes_on(client, "alder"):  # a change, so that it has something to say
        process.wait()
    assert client.zcard("ring") == 0
    assert process.stdout is not None
    process.stdout.close()


def test_help_shows_examples_and_says_which_timers() -> None:
    status, out, _ = finished(spawn("example.py", "--help"))
    assert status == 0
    assert "python example.py --nodes 3" in out
    assert "a node beats every second and expires after 3 seconds" in out


def test_it_imports_public_names_only() -> None:
    tree = ast.parse((ROOT / "example.py").read_text())
    public = {"hashring": hashring.__all__, "hashring.testing": hashring.testing.__all__}
    named = [
        (node.module, name.name)
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("hashring")
        for name in node.names
    ]
    assert named
    for module, name in named:
        assert name in public[str(module)], f"{module}.{name}"
