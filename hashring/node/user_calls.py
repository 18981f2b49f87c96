"""The calls to Redis that users make in their own threads, or greenlets, through a sync client.

Each user's thread runs its own flows: it takes locks, waits for them, and asks about the ring. The
node's loop makes the other calls.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from hashring.errors import RedisUnavailable
from hashring.node.key_answers import monotonic
from hashring.node.lock_flows import Asking, Hold, TryAgain
from hashring.node.node_runner import Runner
from hashring.protocol.flow import Flow, run_flow
from hashring.protocol.locks.key_lease import KeyLease
from hashring.running.calls_at_once import refuse_late
from hashring.store.command import Command
from hashring.store.interface import Store
from hashring.store.memory_store import MemoryStore
from hashring.store.redis_answers import described
from hashring.store.redis_store import RedisStore

T = TypeVar("T")


class UserCalls:
    """The calls of one node's users.

    Args:
        redis: the client that the node was given.
        timeout: seconds that Redis may take to answer.

    Attributes:
        runner: what runs the node, if anything; set by :class:`hashring.node.start_and_stop.Life`.
    """

    def __init__(self, redis: Any, timeout: float) -> None:
        self._redis = redis
        self._timeout = timeout
        self.runner: Runner | None = None
        self._forget()

    def _forget(self) -> None:
        self._store: Store | None = None
        # Who is in a call to Redis on the node's connections: of each call its thread, or greenlet.
        self._calling: dict[object, object] = {}

    # --- connections --------------------------------------------------------------------------

    @property
    def store(self) -> Store:
        """The node's connections, which its loop has, too."""
        if self._store is None:
            self._store = self._make_store()
        return self._store

    def _make_store(self) -> Store:
        if isinstance(self._redis, MemoryStore):
            return self._redis
        return RedisStore(self._redis, self._timeout)

    def close(self) -> None:
        """Close the connections of a node whose loop has ended; the next call makes new ones."""
        if self._store is not None:
            self._store.close()

    def close_single(self) -> None:
        """Close the connections of a node without a loop, unless one is in use."""
        # The holder of a lock of the client's may never let go of it: a call that a signal handler
        # has interrupted, or a thread that the end of the interpreter has ended.
        if not self.is_in_call(threading.get_ident()) and not sys.is_finalizing():
            self.close()

    def abandon(self) -> None:
        """In a forked child: connections and loop are the parent's, and end there if closed."""
        self.runner = None
        self._forget()

    # --- single calls -------------------------------------------------------------------------

    def run(self, command: Command[T]) -> T:
        """Run a command for the caller, however the node runs."""
        runner = self.runner
        run = partial(self._run_in_time, self.store, command, monotonic())
        if runner is None:
            return self.run_single(command)
        return self._as_caller(runner.backend.current(), partial(runner.backend.call_for_user, run))

    def _run_in_time(self, store: Store, command: Command[T], asked: float) -> T:
        """Run a command of a caller that may have waited for its turn since."""
        refuse_late(command, monotonic() - asked, self._timeout)
        if store is not self._store:
            raise RedisUnavailable(f"{described(command)}: not sent: the process was forked")
        return store.run(command)

    def run_single(self, command: Command[T]) -> T:
        """Run a command in the caller's thread."""
        return self._as_caller(threading.get_ident(), partial(self.store.run, command))

    def _as_caller(self, caller: object, run: Callable[[], T]) -> T:
        call = object()
        self._calling[call] = caller
        try:
            try:
                return run()
            finally:
                self._calling.pop(call, None)
        finally:
            # Once more: a signal handler may have raised before the line above.
            self._calling.pop(call, None)

    def is_in_call(self, caller: object) -> bool:
        """Whether a thread, or a greenlet, is in a call: a signal handler may find itself so."""
        return caller in list(self._calling.values())

    # --- flows --------------------------------------------------------------------------------

    def run_flow(self, asking: Asking, flow: Flow[T]) -> T:
        """The result of a flow about locks."""
        runner = self.runner
        try:
            return run_flow(self.run, flow)
        finally:
            if asking.book.left:
                self.release_late(asking, runner)

    def held(self, hold: Hold) -> KeyLease:
        """The lease of a hold, tried until it is there or there is no use."""
        runner = self.runner
        try:
            while isinstance(lease := run_flow(self.run, hold.attempt()), TryAgain):
                if runner is None or runner.ended.wait(lease.seconds):
                    raise hold.refusal(waited=False)
            return lease
        finally:
            hold.over()
            if hold.asking.book.left:
                self.release_late(hold.asking, runner)

    def release_late(self, asking: Asking, runner: Runner | None) -> None:
        """Let go of what is left after the node has stopped, or while it does.

        Args:
            runner: what ran the node when the caller asked.
        """
        if sys.is_finalizing():
            # There is nothing left to connect with: what is left ends after its ttl.
            return
        # On connections of its own: stop() closes the node's others meanwhile.
        store = self._make_store()
        run: Callable[[Command[Any]], Any] = store.run
        if runner is not None:
            run = partial(runner.backend.call_for_user, run)
        try:
            run_flow(run, asking.let_go())
        finally:
            store.close()
