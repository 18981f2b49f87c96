"""The locks by which processes that want a shared server agree who starts its keeper.

The keeper's own locks, and how to take any of them, are in :mod:`hashring.store.embedded_keeper`,
which runs alone. One more file is locked by those who start a keeper: ``start.lock``.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from hashring.store.embedded_keeper import KEEPER_LOCK, lock_now, open_lock

START_LOCK: Final = "start.lock"


def is_kept(directory: Path) -> bool:
    """Whether a keeper runs for the directory."""
    probe = open_lock(directory / KEEPER_LOCK)
    try:
        if not lock_now(probe, fcntl.LOCK_SH):
            return True
        # Unlocked, not only closed: a child forked by another thread meanwhile has it open, too.
        fcntl.flock(probe, fcntl.LOCK_UN)
        return False
    finally:
        os.close(probe)


@contextlib.contextmanager
def only_starter(directory: Path) -> Iterator[bool]:
    """Hold ``start.lock`` for as long as the block runs, if it is free; whether it is held.

    Of several processes that find no keeper, one starts a keeper.
    """
    lock = open_lock(directory / START_LOCK)
    try:
        alone = lock_now(lock, fcntl.LOCK_EX)
        try:
            yield alone
        finally:
            if alone:
                fcntl.flock(lock, fcntl.LOCK_UN)
    finally:
        os.close(lock)
