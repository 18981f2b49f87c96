"""hashring watch: lines for programs, a screen for people."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
from redis import Redis

from hashring import PartitionGroup
from hashring.cli.common_options import Settings
from hashring.cli.connection import connected
from hashring.cli.repeated_looks import LastLook
from hashring.store.embedded_server import RedisServer
from hashring.store.ring.snapshot import Snapshot
from tests.cli.conftest import ending, finished, line_with, nodes_on, put, spawn, until
from tests.conftest import PATIENCE

pytestmark = pytest.mark.one_server


@contextmanager
def watching(client: Redis, url: str, *options: str) -> Iterator[subprocess.Popen[str]]:
    with ending(spawn("hashring", "watch", *options, url=url)) as process:
        until(lambda: client.pubsub_numsub("ring")[0][1], "it listens")
        yield process


def test_a_line_for_each_event_and_each_new_ring(client: Redis, redis_server: RedisServer) -> None:
    with watching(client, redis_server.url) as process:
        assert line_with(process, "").endswith("  ring    0 nodes\n")
        with nodes_on(client, "alder", n_replicas=3):
            assert line_with(process, "").endswith("  join    alder (start, 3 points, epoch 1)\n")
            assert line_with(process, "").endswith("  ring    1 node: 100.00% alder\n")
        assert line_with(process, "").endswith("  leave   alder (stop, epoch 2)\n")
        assert line_with(process, "").endswith("  ring    0 nodes\n")
        process.send_signal(signal.SIGINT)
        status, _, err = finished(process)
        assert (status, err.strip()) == (130, "")


def test_json_lines_say_which_they_are(client: Redis, redis_server: RedisServer) -> None:
    with watching(client, redis_server.url, "--json") as process:
        assert json.loads(line_with(process, ""))["shares"] == {}
        with nodes_on(client, "alder", n_replicas=3) as (alder,):
            joined = json.loads(line_with(process, ""))
            ring = json.loads(line_with(process, ""))
            assert (joined["type"], joined["kind"], joined["nodes"]) == ("event", "join", ["alder"])
            assert (ring["type"], ring["shares"]) == ("ring", {"alder": 1.0})
            assert ring["fingerprint"] == alder.ring.fingerprint


def test_an_event_is_not_shown_after_its_ring(client: Redis, redis_server: RedisServer) -> None:
    with ExitStack() as stack:
        connection = stack.enter_context(connected(Settings(url=redis_server.url)))
        look = LastLook(connection, 1)
        read = connection.snapshot

        def joined_just_before() -> Snapshot:
            stack.enter_context(nodes_on(client, "alder", n_replicas=3))
            return read()

        connection.snapshot = joined_just_before  # type: ignore[method-assign]
        new = look.again()
        assert look.snapshot.ring().nodes == ("alder",)
        assert [node for event in new for node in event.nodes] == ["alder"]


def test_a_look_goes_on_after_events_that_are_dropped_meanwhile(
    client: Redis, redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with connected(Settings(url=redis_server.url)) as connection:
        events = connection.keys.events
        client.xadd(events, {"kind": "note"}, id="1-0")
        look = LastLook(connection, 5)
        for number in range(2, 1501):
            client.xadd(events, {"kind": "note"}, id=f"{number}-0")
        call = connection.call

        def then_cut(*command: Any) -> Any:
            found = call(*command)
            if command[0] == "XRANGE":
                client.xtrim(events, maxlen=400, approximate=False)
            return found

        monkeypatch.setattr(connection, "call", then_cut)
        assert [look.again()[-1].id, look.again()[0].id] == ["1000-0", "1101-0"]
    assert [event.id for event in look.events] == [f"{number}-0" for number in range(1496, 1501)]


def test_of_older_data_the_history_before_the_first_look_is_not_new(
    client: Redis, redis_server: RedisServer
) -> None:
    with connected(Settings(url=redis_server.url)) as connection:

        def note(*history: int) -> None:
            for at in history:
                client.xadd(connection.keys.events, {"kind": "note"}, id=f"{at}-0")

        note(*range(1, 501))
        look = LastLook(connection, 5)
        note(*range(501, 801))
        assert len(look.again()) == 300
        client.delete(connection.keys.events)
        note(*range(1, 601), 900)
        shown = [event.id for event in look.again()]
    assert shown == [f"{number}-0" for number in (*range(501, 601), 900)]


@pytest.mark.parametrize("command", ["watch", "events --follow"])
def test_what_a_failover_noted_before_the_last_event_that_it_took_back_is_shown(
    client: Redis, redis_server: RedisServer, command: str
) -> None:
    def note(redis: Any, at: int) -> None:
        redis.xadd("{ring}:events", {"kind": "note", "by": f"event-{at}"}, id=f"{at}-0")

    note(client, 100)
    with ending(spawn("hashring", *command.split(), url=redis_server.url)) as process:
        until(lambda: client.pubsub_numsub("ring")[0][1], "it listens")
        note(client, 200)
        line_with(process, "event-200")
        with client.pipeline() as failover:
            failover.delete("{ring}:events")
            for at in (100, 150, 300):
                note(failover, at)
            failover.execute()
        shown = [line_with(process, "event-"), line_with(process, "event-")]
    assert [line.split()[-1] for line in shown] == ["event-150", "event-300"]


def test_a_change_that_nobody_told_of_shows_as_well(
    client: Redis, redis_server: RedisServer
) -> None:
    with watching(client, redis_server.url) as process:
        line_with(process, "0 nodes")
        put(client, "by-hand", 5)
        assert line_with(process, "").endswith("  ring    1 node: 100.00% by-hand\n")


def test_many_nodes_fit_on_a_line(client: Redis, redis_server: RedisServer) -> None:
    for number in range(30):
        put(client, f"node-{number:02}", number * 1000)
    with watching(client, redis_server.url) as process:
        line = line_with(process, "30 nodes: ")
        assert line.count("%") == 12
        assert line.endswith(" node-11, and 18 more\n")


def test_it_goes_on_when_redis_comes_back() -> None:
    with (
        RedisServer() as server,
        Redis(unix_socket_path=str(server.socket)) as client,
        watching(client, server.url) as process,
    ):
        line_with(process, "0 nodes")
        server.kill()
        assert line_with(process, "", "stderr").startswith("hashring: ")
        server.start()
        assert line_with(process, "", "stderr") == "hashring: Redis answers again\n"
        with nodes_on(client, "alder"):
            line_with(process, "1 node: 100.00% alder")


def test_a_group_is_watched_on_when_redis_comes_back() -> None:
    with (
        RedisServer() as server,
        Redis(unix_socket_path=str(server.socket)) as client,
        PartitionGroup(client, "g", 4),
        ending(
            spawn("hashring", "group", "watch", "g", "--interval", "0.1", url=server.url)
        ) as process,
    ):
        line_with(process, "g: Ready")
        os.kill(pid := client.info("server")["process_id"], signal.SIGSTOP)
        assert line_with(process, "", "stderr").startswith("hashring: group_read of key")
        os.kill(pid, signal.SIGCONT)
        assert line_with(process, "", "stderr") == "hashring: Redis answers again\n"
        line_with(process, "g: Ready")


def test_a_group_is_watched_on_when_redis_has_lost_it(
    client: Redis, redis_server: RedisServer
) -> None:
    command = ("hashring", "group", "watch", "g", "--interval", "0.1")
    with (
        PartitionGroup(client, "g", 4, ttl=60, heartbeat_interval=20),
        ending(spawn(*command, url=redis_server.url)) as process,
    ):
        line_with(process, "g: Ready")
        client.flushall()
        assert "there is no such group" in line_with(process, "", "stderr")
        with PartitionGroup(client, "g", 4, ttl=60, heartbeat_interval=20, member="heir"):
            assert line_with(process, "", "stderr") == "hashring: the group is there again\n"
            line_with(process, "heir")


@pytest.mark.parametrize(
    ("command", "first"),
    [
        ("watch", "alder"),
        ("events --follow", "alder"),
        ("group watch g --interval 3600", "g: Ready"),
        ("balance --apply --every 1h", ""),
    ],
)
def test_it_ends_when_its_reader_does_though_nothing_happens(
    client: Redis, redis_server: RedisServer, command: str, first: str
) -> None:
    with (
        nodes_on(client, "alder", ttl=60, heartbeat_interval=20),
        PartitionGroup(client, "g", 4, ttl=60, heartbeat_interval=20),
        ending(spawn("hashring", *command.split(), url=redis_server.url)) as process,
    ):
        line_with(process, first)
        assert process.stdout is not None
        process.stdout.close()
        assert process.wait(PATIENCE) == 141


def test_it_ends_when_its_reader_does_while_redis_is_away() -> None:
    with RedisServer() as server, ending(spawn("hashring", "watch", url=server.url)) as process:
        line_with(process, "0 nodes")
        server.kill()
        assert line_with(process, "", "stderr").startswith("hashring: ")
        assert process.stdout is not None
        process.stdout.close()
        assert process.wait(PATIENCE) == 141


# --- on a terminal --------------------------------------------------------------------------------


class Terminal:
    """A command on a pseudo-terminal.

    Attributes:
        text: everything written so far, with its control sequences.
    """

    def __init__(
        self, *arguments: str, rows: int, columns: int, program: list[str], **variables: str
    ) -> None:
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        environment = {**os.environ, "TERM": "xterm-256color"}
        # The size is the terminal's, and not what the caller of the tests says of its own.
        for name in ("NO_COLOR", "LINES", "COLUMNS"):
            environment.pop(name, None)
        environment |= variables
        self.process = subprocess.Popen(
            [sys.executable, *program, *arguments],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=environment,
            start_new_session=True,
        )
        os.close(theirs)
        os.set_blocking(self._ours, False)
        self.text = ""
        self._seen = 0

    def read(self) -> None:
        try:
            while data := os.read(self._ours, 65536):
                self.text += data.decode(errors="replace")
        except (BlockingIOError, OSError):
            return

    def shows(self, *words: str) -> None:
        """Wait until it has newly written all of these."""

        def look() -> bool:
            self.read()
            return all(word in self.text[self._seen :] for word in words)

        until(look, f"the screen shows {words}")
        self._seen = len(self.text)

    def types(self, text: str) -> None:
        """What a person types, with the Enter key."""
        self.presses(f"{text}\n")

    def presses(self, keys: str) -> None:
        os.write(self._ours, keys.encode())

    def ends(self) -> int:
        status = self.process.wait(PATIENCE)
        self.read()
        return status

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._ours)


COMMAND = ["-c", "from hashring.cli import main; main()"]
ENTER, LEAVE, SHOW_CURSOR = "\x1b[?1049h", "\x1b[?1049l", "\x1b[?25h"


@contextmanager
def terminal(
    url: str,
    *command: str,
    rows: int = 30,
    columns: int = 100,
    program: list[str] = COMMAND,
    **variables: str,
) -> Iterator[Terminal]:
    arguments = ("--url", url, *(command or ("watch",)))
    screen = Terminal(*arguments, rows=rows, columns=columns, program=program, **variables)
    try:
        yield screen
    finally:
        screen.close()


def test_the_screen_follows_the_ring(client: Redis, redis_server: RedisServer) -> None:
    with terminal(redis_server.url) as screen:
        screen.shows(ENTER, "ring 'ring' on unix://", "nobody owns anything")
        with nodes_on(client, "alder"):
            screen.shows("100.00%", "AAAAAAAA", "join    alder")
            with nodes_on(client, "birch"):
                screen.shows("BBB", "join    birch")
            screen.shows("100.00%", "leave   birch")
        screen.shows("nobody owns anything")


def test_an_expired_node_is_marked(client: Redis, redis_server: RedisServer) -> None:
    put(client, "gone", 5, expires_in=-5, told={})
    with terminal(redis_server.url) as screen:
        screen.shows("EXPIRED", "gone")


@pytest.mark.parametrize("seen", ["nobody", ""], ids=["shown", "at its start"])
@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_the_terminal_is_left_as_it_was(
    client: Redis, redis_server: RedisServer, number: signal.Signals, status: int, seen: str
) -> None:
    with terminal(redis_server.url) as screen:
        screen.shows(ENTER, seen)
        screen.process.send_signal(number)
        assert screen.ends() == status
        end = screen.text[screen.text.rindex(LEAVE) :]
        assert SHOW_CURSOR in screen.text
        assert "Traceback" not in end


# What a shell does with a command and Ctrl-Z, and with its `fg`: an empty line.
SHELL = """
import fcntl, os, signal, subprocess, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
signal.signal(signal.SIGTTOU, signal.SIG_IGN)
watch = [sys.executable, "-c", "from hashring.cli import main; main()", *sys.argv[1:]]
job = subprocess.Popen(watch, process_group=0).pid
while True:
    os.tcsetpgrp(0, job)
    os.kill(job, signal.SIGCONT)
    status = os.waitpid(job, os.WUNTRACED)[1]
    os.tcsetpgrp(0, os.getpgrp())
    if not os.WIFSTOPPED(status):
        sys.exit(os.waitstatus_to_exitcode(status))
    print("stopped", flush=True)
    input()
"""


def test_ctrl_z_leaves_the_screen_until_the_command_goes_on(
    client: Redis, redis_server: RedisServer
) -> None:
    with terminal(redis_server.url, program=["-c", SHELL]) as screen:
        screen.shows(ENTER, "nobody owns anything")
        for _ in range(2):
            screen.presses("\x1a")
            screen.shows(LEAVE, "stopped")
            assert SHOW_CURSOR in screen.text[screen.text.rindex(ENTER) :]
            screen.types("")
            screen.shows(ENTER, "nobody owns anything")
        screen.presses("\x03")
        assert screen.ends() == 130
        assert screen.text.rindex(LEAVE) > screen.text.rindex(ENTER)
        assert "Traceback" not in screen.text


def test_with_nohup_it_goes_on_when_the_terminal_is_gone(
    client: Redis, redis_server: RedisServer
) -> None:
    put(client, "alder", 5, told={})
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        process = spawn("hashring", "watch", url=redis_server.url)
    finally:
        signal.signal(signal.SIGHUP, before)
    with ending(process):
        line_with(process, "100.00% alder")
        process.send_signal(signal.SIGHUP)
        put(client, "birch", 6, told={})
        line_with(process, "birch")
        process.send_signal(signal.SIGINT)
        assert finished(process)[0] == 130


def test_a_ring_too_large_for_the_screen_says_how_much_is_not_shown(
    client: Redis, redis_server: RedisServer
) -> None:
    for number in range(70):
        put(client, f"node-{number:02}", number * 2**25, told={})
    with terminal(redis_server.url, rows=20, columns=60) as screen:
        # 20 rows less 7 of the frame and 3 of the strip; one of the 10 left says how many more.
        screen.shows("and 61 more")
        frame = screen.text[screen.text.rindex("ring 'ring'") :]
        assert frame.count("\n") < 20


@pytest.mark.parametrize("columns", [80, 40])
def test_a_long_name_takes_no_room_from_what_is_told_of_its_node(
    client: Redis, redis_server: RedisServer, columns: int
) -> None:
    put(client, "a-name-that-is-longer-than-the-screen-is-wide." * 2, 5, told={})
    with terminal(redis_server.url, columns=columns) as screen:
        screen.shows("a-name")
        drawn = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", screen.text)
        assert re.search(r"^A  100\.00%  .*in \S+ \w+  .*a-name.*…\s*$", drawn, re.MULTILINE)


def test_a_width_of_nothing_is_no_error(client: Redis, redis_server: RedisServer) -> None:
    put(client, "alder", 5, told={})
    with terminal(redis_server.url, COLUMNS="0") as screen:
        screen.shows(ENTER)
        screen.process.send_signal(signal.SIGINT)
        assert screen.ends() == 130
        assert "Traceback" not in screen.text


def test_bars_are_of_signs_that_the_terminal_has(client: Redis, redis_server: RedisServer) -> None:
    put(client, "alder", 5, told={})
    with terminal(redis_server.url, PYTHONIOENCODING="latin-1") as screen:
        screen.shows("#" * 20, "100.00%")


def test_a_terminal_that_cannot_redraw_gets_lines(client: Redis, redis_server: RedisServer) -> None:
    put(client, "alder", 5, told={})
    with terminal(redis_server.url, TERM="dumb") as screen:
        screen.shows("ring    1 node: 100.00% alder")
        assert ENTER not in screen.text


def test_colours_and_control_sequences_are_for_terminals_that_want_them(
    client: Redis, redis_server: RedisServer
) -> None:
    with PartitionGroup(client, "g", 4):
        until(lambda: client.exists("{g}:group:state"), "it stands")
        for variables, colours, clears in (
            ({}, True, True),
            ({"NO_COLOR": "1"}, False, True),
            ({"TERM": "dumb"}, False, False),
        ):
            with terminal(redis_server.url, "doctor", **variables) as screen:
                screen.shows("ring 'ring'")
                assert ("\x1b" in screen.text) is colours
            with terminal(redis_server.url, "group", "watch", "g", **variables) as screen:
                screen.shows("g: Ready", "Lease")
                assert ("\x1b" in screen.text) is clears


def test_an_old_picture_says_that_it_is_old() -> None:
    with RedisServer() as server, terminal(server.url) as screen:
        screen.shows("nobody owns anything")
        server.kill()
        screen.shows("what follows is old: ")
        server.start()
        screen.shows("nobody owns anything")
        assert "what follows is old" not in screen.text[screen.text.rindex("ring 'ring'") :]


def test_without_rich_a_terminal_gets_told_what_to_do(
    redis_server: RedisServer, tmp_path: object
) -> None:
    hidden = [
        "-c",
        (
            "import importlib.util\n"
            "find = importlib.util.find_spec\n"
            "importlib.util.find_spec = lambda name: None if name == 'rich' else find(name)\n"
            "from hashring.cli import main; main()"
        ),
    ]
    with terminal(redis_server.url, columns=200, program=hidden) as screen:
        assert screen.ends() == 2
    assert re.sub(r"\s+", " ", screen.text).strip() == (
        "hashring: hashring watch on a terminal (not: hashring watch | cat) needs the package "
        "rich: pip install 'hashring-fleet[rich]'"
    )
