"""Several processes from one command, which end together."""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from typing import Final, NoReturn

STOP: Final = (signal.SIGINT, signal.SIGTERM)


def run_processes(number: int, target: Callable[[], int], lost: Callable[[int, str], None]) -> int:
    """Run ``target`` in so many forked processes, and wait until all of them have ended.

    SIGINT and SIGTERM are passed on to all of them, as SIGTERM; ``target`` is called with both
    blocked, and must set its handlers and then unblock them. When this process dies, however it
    dies, the others get SIGTERM too. Afterwards the signals stay blocked, so that a second one
    changes nothing about the end.

    Args:
        target: returns the process's exit status.
        lost: called with the pid of a process that was killed, and the signal's name.

    Returns:
        0 when all ended well, or because they were told to; else 1.
    """
    waited_for = {*STOP, signal.SIGCHLD}
    # Waited for, never handled: none can fall between a fork and the note of it.
    signal.pthread_sigmask(signal.SIG_BLOCK, waited_for)
    lifeline = os.pipe()
    children = {_fork(target, lifeline) for _ in range(number)}
    os.close(lifeline[0])
    told_to_stop = failed = False
    while children:
        if signal.sigwait(waited_for) in STOP:
            told_to_stop = True
            for child in children:
                os.kill(child, signal.SIGTERM)
                os.kill(child, signal.SIGCONT)  # a paused one cannot hear the other
        for child in tuple(children):
            ended, how = os.waitpid(child, os.WNOHANG)
            if not ended:
                continue
            children.remove(child)
            status = os.waitstatus_to_exitcode(how)
            failed = failed or (status != 0 and not told_to_stop)
            if status < 0 and not told_to_stop:
                lost(child, signal.Signals(-status).name)
    os.close(lifeline[1])
    return int(failed and not told_to_stop)


def _fork(target: Callable[[], int], lifeline: tuple[int, int]) -> int:
    sys.stdout.flush()
    sys.stderr.flush()
    return os.fork() or _child(target, lifeline)


def _child(target: Callable[[], int], lifeline: tuple[int, int]) -> NoReturn:
    status = 1
    try:
        os.close(lifeline[1])
        threading.Thread(target=_stop_when_orphaned, args=lifeline[:1], daemon=True).start()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCHLD])
        status = target()
        sys.stdout.flush()
    except BaseException:  # noqa: BLE001 - nothing of the parent's may run here
        traceback.print_exc()
    finally:
        # Not sys.exit: what the parent opened is the parent's to close.
        os._exit(status)


def _stop_when_orphaned(lifeline: int) -> None:
    # Nobody ever writes to it: it ends when its other end does, with the parent.
    os.read(lifeline, 1)
    os.kill(os.getpid(), signal.SIGTERM)
