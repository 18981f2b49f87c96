"""What drives a node when no loop runs, in the thread of whoever calls: one caller at a time.

So do ``heartbeat()``, ``update()``, ``cleanup()`` and ``remove()`` of a node that was not started.
Where a loop runs, only that may touch the machine: it is asked for the same step.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from hashring.errors import NodeStateError, StoreError
from hashring.node.key_answers import monotonic
from hashring.node.node_runner import Runner
from hashring.node.states import AT_WORK, STARTABLE, NodeState
from hashring.node.user_calls import UserCalls
from hashring.protocol.machine import Run
from hashring.running.machine_loop import run_out, run_step
from hashring.running.one_at_a_time import one_at_a_time
from hashring.store.ring.commands import sweep

if TYPE_CHECKING:
    from hashring.node.base_node import Node


class ByHand:
    """Drives the machine of one node where no loop does.

    Args:
        node: its settings, machine and readers.
        calls: of its users.
    """

    def __init__(self, node: Node, calls: UserCalls) -> None:
        # Weakly: a node that nobody needs any more is gone at once, and its name is free.
        self._node_of = weakref.ref(node)
        self._calls = calls
        self.abandon()

    @property
    def _node(self) -> Node:
        node = self._node_of()
        assert node is not None, "whoever calls has the node"
        return node

    def abandon(self) -> None:
        """In a forked child: those who wait for their turn are the parent's."""
        # A start that decides whether it is the only one, and calls by hand: one at a time drives
        # the machine.
        self.driving = one_at_a_time()

    def do(self, do: Callable[[], None]) -> bool:
        """Do it in the caller's thread, when no loop runs; false when one does."""
        if self._calls.runner is not None:
            return False

        def unless_it_runs() -> bool:
            # A start may have come first.
            if self._calls.runner is not None:
                return False
            do()
            return True

        return self.driving.run(unless_it_runs)

    def ask(self, make: Callable[[], Run]) -> None:
        """Run a step now: in the loop when one runs, since only it may touch the machine.

        Raises:
            StoreError: it could not be run.
            NodeStateError: the node stopped meanwhile.
            NodeForked: the node was started in a parent process.
        """
        node = self._node
        node._refuse_if_forked()
        if self.do(lambda: self.run_now(make())):
            return
        runner = self._calls.runner
        if runner is None:
            raise NodeStateError(f"node {node.name!r} has stopped")
        self._ask_loop(runner, make)

    def _ask_loop(self, runner: Runner, make: Callable[[], Run]) -> None:
        name = self._node.name
        request = runner.ask(make)
        while not request.latch.wait(1.0):
            if runner.ended.wait(0.001) or sys.is_finalizing():
                raise NodeStateError(f"node {name!r} has stopped")
            if runner.gone():
                raise NodeStateError(
                    f"node {name!r} runs no more: the thread of its greenlets has ended, or "
                    "their hub was destroyed. Call stop(), or start it again"
                )
        if request.error is not None:
            raise request.error

    def run_now(self, step: Run) -> None:
        """Run a step in the caller's thread, when no loop runs."""
        lease = self._node._lease
        run_step(step, self._calls.run_by_hand, monotonic)
        self._node._publish(lease)

    # --- what users ask for -------------------------------------------------------------------

    def heartbeat(self) -> None:
        """Join the ring, or refresh the node's replicas on it; see ``RingNode.heartbeat``."""
        if not self.do(self._beat):
            machine = self._node._machine
            # A node that has lost its name would get points back that nobody serves.
            if machine.state is not NodeState.SUPERSEDED:
                self.ask(machine.beat_step)
            self._raise_error()

    def _beat(self) -> None:
        node = self._node
        # One that is leaving could not, as Redis did not answer remove().
        if node._machine.state in (*STARTABLE, NodeState.LEAVING):
            node._adopt_in_child()
            node._begin_lease()
            node._machine.start(monotonic(), strict=False)
        machine, began = node._machine, monotonic()
        while machine.state is not NodeState.SUPERSEDED:
            self.ask(machine.beat_step)
            # A step may only look where to join, or where more points are to be.
            renewed = machine.last_beat is not None and machine.last_beat >= began
            if renewed or machine.state not in AT_WORK:
                break
        if machine.book is not None:
            run_out(machine.book.step, self.run_now, monotonic)
        self._raise_error()

    def _raise_error(self) -> None:
        if self._node._machine.error is not None:
            raise self._node._machine.error

    def cleanup(self) -> None:
        """Take expired nodes off the ring; see ``RingNode.cleanup``."""
        config, name = self._node._machine.config, self._node.name
        self.ask(
            lambda: Run(sweep(config.keys, scoring=config.scoring, by=name), _ignore, _ignore_error)
        )

    def remove(self) -> None:
        """Take the node off the ring; see ``RingNode.remove``."""
        self._node._refuse_if_forked()
        machine = self._node._machine
        if not self.do(self._remove) and machine.replicas:
            self.ask(partial(machine.leave_step, "removed"))

    def _remove(self) -> None:
        node, machine = self._node, self._node._machine
        node._own_nothing()
        machine.stop()
        node._publish(node._lease)
        if machine.book is not None:
            run_out(machine.book.leave, self.run_now, monotonic)
        if machine.replicas:
            # The node has ended, and what is on its way of it comes to nothing.
            self.run_now(machine.leave_step("stop"))

    def leave(self, failed: Callable[[StoreError], None], *, stay: bool) -> None:
        """Leave the ring, as ``stop()`` does: after heartbeats by hand, or not at all.

        Args:
            failed: called with what Redis did not do: the node expires by itself.
        """
        node, machine = self._node, self._node._machine
        node._own_nothing()
        if machine.state not in (NodeState.STOPPED, NodeState.NEW):
            machine.stop(stay=stay)
            run_out(machine.next, self.run_now, monotonic, failed)
            node._publish(node._lease)
        self._calls.close_by_hand()


def _ignore(reply: Any, sent: float, now: float) -> None:
    pass


def _ignore_error(error: StoreError, now: float) -> None:
    pass
