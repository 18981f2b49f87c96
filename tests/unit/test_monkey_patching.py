"""What the library finds of gevent's monkey-patching."""

from __future__ import annotations

import _thread
import sys
from types import ModuleType

import pytest

from hashring import monkey_patching


def test_nothing_is_patched_while_another_thread_imports_the_patcher(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "gevent.monkey", ModuleType("gevent.monkey"))
    assert not monkey_patching.threads_are_greenlets()
    assert monkey_patching.socket_hub() is None
    assert monkey_patching.connections_home() is None
    assert monkey_patching.original("_thread", "RLock") is _thread.RLock
