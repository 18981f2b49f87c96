"""What a forked child does first with what it inherits from its parent."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Final, Protocol

from hashring.monkey_patching import native_lock
from hashring.running.loop_log import LoopLog
from hashring.store.connections_in_step import close_inherited

_log: Final = LoopLog("hashring")


class Forking(Protocol):
    """A node or a member, as far as forks are concerned."""

    def _abandon(self) -> None:
        """In a forked child: it is the parent's, if it is anywhere."""


_kinds: Final[list[Callable[[], Iterable[Forking]]]] = []


def abandon_in_children(inherited: Callable[[], Iterable[Forking]]) -> None:
    """Have these abandoned in forked children. If one cannot be, that is logged.

    Args:
        inherited: what there is, asked for in the child.
    """
    _kinds.append(inherited)


_process = os.getpid()
_noticing = native_lock()


def notice_fork() -> None:
    """Do so now, if nobody told Python of the fork: uWSGI does only with py-call-osafterfork."""
    if os.getpid() != _process:
        # Another thread may be at it: what it has not come to is the parent's still.
        with _noticing:
            _abandon_all()


def _abandon_all() -> None:
    global _process  # noqa: PLW0603 - a child is another process
    for inherited in _kinds:
        for each in inherited():
            if os.getpid() == _process:
                return  # Another thread has done it, or a signal handler in this one.
            try:
                each._abandon()
            except Exception:  # noqa: BLE001 - the others must be abandoned, too
                _log.exception(
                    "a forked child could not abandon its parent's %s: do not use it in the child",
                    type(each).__name__,
                )
    # At last: the greenlets of loops, which were ended above, say nothing of it.
    close_inherited()
    # At the very end: after an interrupt, the next call that notices the fork does all of it.
    _process = os.getpid()


def _after_fork_in_child() -> None:
    global _noticing  # noqa: PLW0603 - a thread of the parent may have had it
    _noticing = native_lock()
    _abandon_all()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
