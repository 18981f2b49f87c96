"""Keep one redis-server running while it has users, and no longer.

:mod:`hashring.store.embedded_server` runs this program in a session of its own, so that no user's
Ctrl-C reaches it or the server. It needs only the standard library. All its state is in one
directory, in files that are locked with ``flock``; the kernel lets go of a lock when the last
process that holds it dies, however it dies:

===============  ==================================================================================
``users.lock``   shared by all users; when the keeper gets it alone, nobody is left
``keeper.lock``  held by the keeper; while it is free there is no keeper. Holds its pid
``server.lock``  held by the keeper and by the server, which inherits it; a keeper that finds it
                 held by a server without a keeper ends that server before it starts another, so
                 there are never two. Holds the server's pid
===============  ==================================================================================

The files themselves stay: to delete a lock file is to let two processes lock two files of the
same name. The keeper keeps all files young, so that cleaners of old files leave them. If somebody
deletes a lock file of a shared server anyway, the keeper ends the server at its next look; the next
keeper waits for that before it starts another.

What it does not do: when keeper and server are both killed with SIGKILL, files stay behind until
the next keeper of the directory. Where the kernel cannot tie a child to its parent (anywhere but
Linux), a server outlives a keeper killed with SIGKILL, until the next keeper ends it.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import signal
import sys
import time
from typing import Final, NoReturn

USERS_LOCK: Final = "users.lock"
KEEPER_LOCK: Final = "keeper.lock"
SERVER_LOCK: Final = "server.lock"
SOCKET: Final = "redis.sock"

PRIVATE: Final = "private"
"""One creator's server: it is not started again when it dies, and its directory goes with it."""
SHARED: Final = "shared"
"""Everybody's server: started again when it crashes; the keeper leaves its launcher's family."""

ANOTHER_KEEPER: Final = 3
"""Exit status: the directory has a keeper already."""
_LOST: Final = 4
"""Exit status: somebody deleted a lock file."""

_USAGE: Final = 2
_PATIENCE: Final = 5.0  # seconds a server may take to save and exit before SIGKILL
_TICK: Final = 0.1  # seconds between two looks at users.lock
_YOUNG: Final = 3600.0  # seconds until the files' times are set anew
_STOP: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_PR_SET_PDEATHSIG: Final = 1


def main(arguments: list[str]) -> int:
    """Keep a server; return the exit status.

    Args:
        arguments: ``private`` or ``shared``, the directory, and the server's command line, whose
            first word is a path.
    """
    if len(arguments) < 3 or arguments[0] not in (PRIVATE, SHARED):
        print("usage: keeper private|shared DIRECTORY PROGRAM [ARGUMENT...]", file=sys.stderr)
        return _USAGE
    mode, directory, *command = arguments
    os.chdir(directory)
    keeper_lock = open_lock(KEEPER_LOCK)
    if not _lock_soon(keeper_lock):
        return ANOTHER_KEEPER
    server_lock = _server_lock()
    _wait_for_server_without_lock()

    # Signals are waited for, never handled: none can fall between a look and a wait. The timer's
    # SIGALRM is the look at users.lock, for which there is no event that would wake us.
    signals = {*_STOP, signal.SIGCHLD, signal.SIGALRM}
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # the launcher may have ignored it
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    if mode == SHARED and os.fork():
        # The launcher ends here, so that the keeper is nobody's child and never a zombie. The
        # locks go on: they belong to the open files, which the child has as well.
        os._exit(0)
    _note_pid(keeper_lock)
    users_lock = open_lock(USERS_LOCK)
    locks = {KEEPER_LOCK: keeper_lock, USERS_LOCK: users_lock, SERVER_LOCK: server_lock}
    server = _spawn(command, server_lock)
    signal.setitimer(signal.ITIMER_REAL, _TICK, _TICK)

    while True:
        received = signal.sigwait(signals)
        if mode == SHARED and not all(map(_has_name, locks.values(), locks)):
            # At once: in good order, it would remove a socket that may be another server's by now.
            os.kill(server, signal.SIGKILL)
            os.waitpid(server, 0)
            return _LOST
        _keep_files_young(keeper_lock)
        if received in _STOP:
            _end(server, signals)
            return 0
        status = _status(server)
        if lock_now(users_lock):
            if status is None:
                _end(server, signals)
            if mode == PRIVATE:
                _remove(directory)
            return 0
        if status is not None:
            # A crash leaves the socket behind; a server that could not start never made one, and
            # one that was asked to shut down has removed it.
            if mode == PRIVATE or not os.path.exists(SOCKET):
                return status
            server = _spawn(command, server_lock)


def open_lock(path: str | os.PathLike[str]) -> int:
    """A descriptor of a lock file, which is created when missing."""
    return os.open(path, os.O_RDWR | os.O_CREAT, 0o600)


def lock_now(descriptor: int, operation: int = fcntl.LOCK_EX) -> bool:
    """Lock an open file, if that can be at once; whether it could.

    Args:
        operation: ``fcntl.LOCK_EX`` to have it alone, ``fcntl.LOCK_SH`` to share it.
    """
    try:
        fcntl.flock(descriptor, operation | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _lock_soon(descriptor: int) -> bool:
    # Somebody who only looks whether there is a keeper holds the lock for a moment.
    for _ in range(50):
        if lock_now(descriptor):
            return True
        time.sleep(0.01)
    return False


def _note_pid(descriptor: int) -> None:
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, b"%d\n" % os.getpid(), 0)


def _server_lock() -> int:
    """The lock on the server, free of any server that lost its keeper."""
    descriptor = open_lock(SERVER_LOCK)
    if not lock_now(descriptor):
        # The holder is alive and is the server, so its pid cannot be somebody else's by now.
        with contextlib.suppress(ValueError, ProcessLookupError):
            os.kill(int(os.pread(descriptor, 32, 0)), signal.SIGKILL)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    return descriptor


def _wait_for_server_without_lock() -> None:
    """Wait for the end of a server whose lock files were deleted; its keeper ends it."""
    if not os.path.exists(SOCKET):
        return
    import socket  # noqa: PLC0415 - slow to load, and most keepers never need it

    with (
        contextlib.suppress(OSError),
        socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection,
    ):
        connection.settimeout(_PATIENCE)
        connection.connect(SOCKET)
        os.unlink(SOCKET)  # Nobody else shall take it for ours.
        while connection.recv(64):
            pass


def _has_name(descriptor: int, path: str) -> bool:
    """Whether an open file is the one of that name."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except OSError:
        return False


def _keep_files_young(keeper_lock: int) -> None:
    if time.time() - os.fstat(keeper_lock).st_mtime < _YOUNG:
        return
    with contextlib.suppress(OSError):
        for name in (".", *os.listdir(".")):
            os.utime(name)
        os.utime(keeper_lock)


def _spawn(command: list[str], server_lock: int) -> int:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(SOCKET)
    libc = ctypes.CDLL(None) if sys.platform == "linux" else None
    keeper = os.getpid()
    child = os.fork()
    if not child:
        _become(command, server_lock, keeper, libc)
    return child


def _become(
    command: list[str], server_lock: int, keeper: int, libc: ctypes.CDLL | None
) -> NoReturn:
    try:
        if libc is not None:
            # "When my parent dies" means the parent's thread; the keeper has only one.
            libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() == keeper:
            signal.pthread_sigmask(signal.SIG_SETMASK, [])
            # Python ignores it and an ignored signal stays ignored; Redis wants to decide.
            signal.signal(signal.SIGPIPE, signal.SIG_DFL)
            _note_pid(server_lock)
            os.set_inheritable(server_lock, True)
            os.execv(command[0], command)
    except OSError as error:
        os.write(2, f"{command[0]}: {error.strerror}\n".encode(errors="backslashreplace"))
    finally:
        os._exit(127)


def _status(server: int) -> int | None:
    """The exit status, or None while it runs."""
    done, status = os.waitpid(server, os.WNOHANG)
    return os.waitstatus_to_exitcode(status) if done else None


def _end(server: int, signals: set[signal.Signals]) -> None:
    # Not waited for yet, so the pid is still the server's, dead or alive.
    os.kill(server, signal.SIGTERM)
    os.kill(server, signal.SIGCONT)  # a paused server gets the other only then
    deadline = time.monotonic() + _PATIENCE
    while time.monotonic() < deadline:
        if _status(server) is not None:
            break
        signal.sigwait(signals)
    else:
        os.kill(server, signal.SIGKILL)
        os.waitpid(server, 0)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(SOCKET)


def _remove(directory: str) -> None:
    import shutil  # noqa: PLC0415 - slow to load, and most keepers never need it

    shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
