"""The life of a node over a sync client, from ``start()`` in a thread or a greenlet to ``stop()``.

A signal handler may call ``stop()`` anywhere, or raise between any two lines; and another thread
may start the node again. So each step leaves something that ``stop()`` can end.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from hashring.errors import NodeStateError, StoreError
from hashring.monkey_patching import threads_are_greenlets
from hashring.node.key_answers import monotonic
from hashring.node.node_runner import Runner
from hashring.node.node_settings import OnChange
from hashring.node.on_change_calls import OnChangeCalls
from hashring.node.single_calls import SingleCalls
from hashring.node.user_calls import UserCalls
from hashring.protocol.node.node_states import AT_WORK
from hashring.running.loop_log import LoopLog, is_logging
from hashring.running.native_threads import ThreadBackend
from hashring.running.threads_and_greenlets import Backend, GeventBackend, where_it_may_wait

if TYPE_CHECKING:
    from hashring.node.base_node import Node

logger = LoopLog("hashring")


class Life:
    """What starts, runs and stops one node.

    Each call gets the node. If this referred to it, a node that nobody needs any more would stay
    until the garbage collector comes, and so would its name.

    Args:
        calls: of its users; the life says what runs the node.
        single_calls: drives the node when nothing runs it.
        on_change: the application's callback.
    """

    def __init__(
        self, calls: UserCalls, single_calls: SingleCalls, on_change: OnChange | None
    ) -> None:
        self._calls = calls
        self._single_calls = single_calls
        self._on_change = None if on_change is None else OnChangeCalls(on_change)
        self._stops = 0

    # --- start --------------------------------------------------------------------------------

    def start(self, node: Node, make_backend: Callable[[], Backend]) -> None:
        """Join the ring, and stay on it from a loop on that backend; see ``RingNode.start``."""
        stops = self._stops
        backend = make_backend()
        try:
            runner = self._launch(node, backend, stops, strict=True)
            backend.spawn(runner.run, runner.label)
            runner.settled.wait()
            state, error = node._machine.state, node._machine.error
            stopped = node._stopping
            if self._launched(backend) is None:
                # Another thread has stopped this run, and may have started the next, of which all
                # of these may be.
                stopped, error = True, None
            if stopped or state not in AT_WORK:
                runner.ended.wait()
                raise error or NodeStateError(f"node {node.name!r} was stopped while it started")
        except BaseException:
            # Not joined; or Ctrl-C, or what a signal handler raised: nobody will call stop().
            if (started := self._launched(backend)) is not None:
                self._give_up(node, started)
            raise

    def _give_up(self, node: Node, started: Runner) -> None:
        """End what a start has launched that raises."""
        node._own_nothing()
        started.stop()
        patience = 2 * node._machine.config.io_timeout
        cancelled = started.cancel()
        try:
            if cancelled or started.ended.wait(patience):
                self._leave_singly(node, over=started)
        finally:
            # Perhaps no thread was there to run it in: then nothing else lets go who waits for it.
            if cancelled:
                started.bury()

    def poll(self, node: Node) -> None:
        """Join the ring, and stay on it from the calling thread; see ``RingNode.poll``."""
        stops, backend = self._stops, backend_of_threads()
        try:
            self._launch(node, backend, stops, strict=False).run()
        except BaseException:
            # Ctrl-C in the loop: leave the ring as stop() would, then let it through.
            runner = self._launched(backend)
            try:
                if runner is not None:
                    self._leave_singly(node, over=runner)
            finally:
                # Perhaps the loop never began: then nothing else lets go who waits for it.
                if runner is not None:
                    runner.bury()
            raise
        if (runner := self._launched(backend)) is not None:
            self._forget_runner(runner)

    def _launch(self, node: Node, backend: Backend, stops: int, *, strict: bool) -> Runner:
        """A runner that is ready to run; the node is its.

        Args:
            stops: how often stop() had been called when the start began. A signal handler may
                have called it since, when there was no runner to tell.
        """
        if (last := self._calls.runner) is not None and (last.gone() or last.ended.is_set()):
            backend.call(partial(self._leave_singly, node, over=last))
        runner = self._single_calls.driving.run(partial(self._new_runner, node, backend))
        node._machine.start(monotonic(), strict=strict)
        if self._stops != stops:
            node._own_nothing()
            runner.stop()
        return runner

    def _new_runner(self, node: Node, backend: Backend) -> Runner:
        calls = self._calls
        if calls.runner is not None and not calls.runner.ended.wait(0):
            raise NodeStateError(
                f"node {node.name!r} runs already: call stop() before starting it again"
            )
        node._adopt_in_child()
        runner = Runner(node._machine, calls.store, backend, monotonic, f"hashring {node.name}")
        runner.publish = self._publisher(node, runner, node._begin_lease())
        calls.runner = runner
        return runner

    def _launched(self, backend: Backend) -> Runner | None:
        """The node's runner, if it is the one that runs on this backend."""
        runner = self._calls.runner
        return runner if runner is not None and runner.backend is backend else None

    def _publisher(self, node: Node, runner: Runner, lease: list[Any]) -> Callable[[], None]:
        if self._on_change is None:
            return lambda: node._publish(lease)
        calls = self._on_change.of_run(runner.backend, runner.label, node._view.ranges)

        def publish() -> None:
            node._publish(lease)
            calls.note(node._view.ranges, ended=node._machine.state not in AT_WORK)

        return publish

    # --- stop ---------------------------------------------------------------------------------

    def stop(self, node: Node, *, stay: bool = False) -> None:
        """Leave the ring, and own nothing from now on; see ``RingNode.stop``."""
        self._stops += 1
        node._own_nothing()
        runner = self._calls.runner
        if runner is None:
            where_it_may_wait(partial(self._leave_singly, node, stay=stay))
            return
        if sys.is_finalizing():
            # What ran the loop is gone, and with it who could say that the node has left.
            return
        runner.stop(stay=stay)
        waits = runner.may_wait() and not self._is_interrupted(node, runner)
        if waits:
            runner.wait()
        leave = partial(self._leave_singly, node, stay=stay, over=runner)
        if runner.gone():
            where_it_may_wait(leave)
        elif waits:
            # Its greenlet may have been killed before it had left.
            leave()

    def _is_interrupted(self, node: Node, runner: Runner) -> bool:
        """Whether the caller, a signal handler then, interrupted what the loop may wait for."""
        asking = node._asking
        return (
            (asking is not None and asking.book.entered)
            or self._calls.is_in_call(runner.backend.current())
            or is_logging(logger.logger)
        )

    def _forget_runner(self, runner: Runner) -> bool:
        """The runner has ended: the node has none, unless another thread has started it again."""
        calls = self._calls

        def forget() -> bool:
            if calls.runner is not runner:
                return False
            calls.runner = None
            calls.close()
            return True

        return self._single_calls.driving.run(forget)

    def _leave_singly(self, node: Node, *, stay: bool = False, over: Runner | None = None) -> None:
        """Leave the ring when no loop runs, if the node is on it.

        Args:
            over: what ran the node, and has ended or will never go on.
        """
        failures: list[StoreError] = []

        def leave() -> None:
            if over is None or self._forget_runner(over):
                self._single_calls.do(
                    partial(self._single_calls.leave, node, failures.append, stay=stay)
                )
                if over is not None and not over.backend.gone():
                    over.publish()

        # In one: another thread must not start the node before it has left, and has said so.
        self._single_calls.driving.run(leave)
        if over is not None:
            over.bury()
        # Later: a signal handler may have interrupted a log handler, and wait for its turn.
        for error in failures:
            logger.warning("hashring %s: %s; it expires by itself", node.name, error)

    # --- the end of the process ---------------------------------------------------------------

    def part(self, node: Node) -> Runner | None:
        """Own nothing from now on, and begin to leave the ring; what runs the node, if anything."""
        runner = self._calls.runner
        if runner is not None:
            self._stops += 1
            node._own_nothing()
            runner.stop()
        return runner

    def end(self, runner: Runner, deadline: float) -> bool:
        """After :meth:`part`: wait for the end; whether the runner will never go on.

        Args:
            deadline: in monotonic seconds.
        """
        if runner.gone():
            return True
        if runner.may_wait() and runner.ended.wait(max(0.0, deadline - monotonic())):
            self._forget_runner(runner)
        return False

    def bury(self, node: Node, runner: Runner) -> None:
        """Leave in place of a runner that will never go on."""
        self._leave_singly(node, over=runner)

    def abandon(self) -> None:
        """In a forked child: what runs the node is the parent's."""
        if self._calls.runner is not None:
            self._calls.runner.abandon()
        self._calls.abandon()
        self._single_calls.abandon()
        if self._on_change is not None:
            self._on_change.abandon()


def backend_of_threads() -> Backend:
    """What a loop runs on in a program of threads, which gevent may have patched."""
    # Other threads may put into the inboxes of greenlets, and wait for their latches; into the
    # queues that gevent has put in the place of the standard library's they may not.
    return GeventBackend() if threads_are_greenlets() else ThreadBackend()
