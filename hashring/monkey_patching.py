"""Below gevent's monkey-patching: what a patched program has in the place of threads and locks.

Patched, the locks and queues of the standard library are gevent's. They serve the greenlets of one
thread. Between two threads of the operating system's one may wait for such a lock for ever after
the other has released it, so what such threads share takes what is here instead.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any


def _patcher() -> Any:
    """gevent's monkey-patching; ``None`` unless it is imported.

    While another thread is about to import it, the module is there without what it will have.
    """
    monkey = sys.modules.get("gevent.monkey")
    return monkey if hasattr(monkey, "get_original") else None


def threads_are_greenlets() -> bool:
    """Whether gevent's monkey-patching has put greenlets in the place of threads."""
    monkey = _patcher()
    return monkey is not None and bool(monkey.is_module_patched("threading"))


def socket_hub() -> Any:
    """The hub of the caller's thread, which alone may use the sockets that are made here.

    ``None`` where gevent has patched no sockets: then any thread may use any.
    """
    monkey = _patcher()
    if monkey is None or not monkey.is_module_patched("socket"):
        return None
    return sys.modules["gevent"].get_hub()


def connections_home() -> Any:
    """What alone may use the connections that a client makes here; ``None``: any thread may.

    That is the hub of gevent's sockets. With other sockets, and gevent's locks in the client, it is
    the caller's thread.
    """
    hub = socket_hub()
    return threads_are_greenlets() or None if hub is None else hub


def original(module: str, name: str) -> Any:
    """What stands in a module when nobody has patched it."""
    monkey = _patcher()
    if monkey is None:
        return getattr(importlib.import_module(module), name)
    return monkey.get_original(module, name)


def native_lock() -> Any:
    """A reentrant lock between threads, to be held for moments and without waiting inside."""
    return original("_thread", "RLock")()


def native_mutex() -> Any:
    """A lock between threads that is not reentrant: one holder, also of two greenlets."""
    return original("_thread", "allocate_lock")()
