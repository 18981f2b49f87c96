"""What drives a node when no loop runs, in the caller's thread: one caller at a time.

So do ``heartbeat()``, ``update()``, ``cleanup()`` and ``remove()`` of a node that was not started.
Where a loop runs, only that may touch the machine: it is asked for the same step.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from hashring.errors import NodeStateError, StoreError
from hashring.node.key_answers import monotonic
from hashring.node.node_runner import Runner
from hashring.node.user_calls import UserCalls
from hashring.protocol.machine_steps import Run
from hashring.protocol.node.node_states import AT_WORK, STARTABLE, NodeState
from hashring.running.cross_hub_lock import cross_hub_lock
from hashring.running.machine_loop import run_out, run_step
from hashring.store.ring.commands import sweep

if TYPE_CHECKING:
    from hashring.node.base_node import Node


class SingleCalls:
    """Drives the machine of one node where no loop does.

    Each call gets the node, as those of :class:`hashring.node.start_and_stop.Life` do.

    Args:
        calls: of the node's users.
    """

    def __init__(self, calls: UserCalls) -> None:
        self._calls = calls
        self.abandon()

    def abandon(self) -> None:
        """In a forked child: those who wait for their turn are the parent's."""
        # A start that decides whether it is the only one, and calls by hand: one at a time drives
        # the machine.
        self.driving = cross_hub_lock()

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

    def ask(self, node: Node, make: Callable[[], Run]) -> None:
        """Run a step now: in the loop when one runs, since only it may touch the machine.

        Raises:
            StoreError: it could not be run.
            NodeStateError: the node stopped meanwhile.
            NodeForked: the node was started in a parent process.
        """
        node._refuse_if_forked()
        if self.do(lambda: self.run_now(node, make())):
            return
        runner = self._calls.runner
        if runner is None:
            raise NodeStateError(f"node {node.name!r} has stopped")
        self._ask_loop(node.name, runner, make)

    def _ask_loop(self, name: str, runner: Runner, make: Callable[[], Run]) -> None:
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

    def run_now(self, node: Node, step: Run) -> None:
        """Run a step in the caller's thread, when no loop runs."""
        lease = node._lease
        run_step(step, self._calls.run_single, monotonic)
        node._publish(lease)

    # --- what users ask for -------------------------------------------------------------------

    def heartbeat(self, node: Node) -> None:
        """Join the ring, or refresh the node's replicas on it; see ``RingNode.heartbeat``."""
        if not self.do(partial(self._beat, node)):
            machine = node._machine
            # A node that has lost its name would get points back that nobody serves.
            if machine.state is not NodeState.SUPERSEDED:
                self.ask(node, machine.beat_step)
            _raise_error(node)

    def _beat(self, node: Node) -> None:
        # One that is leaving could not, as Redis did not answer remove().
        if node._machine.state in (*STARTABLE, NodeState.LEAVING):
            node._adopt_in_child()
            node._begin_lease()
            node._machine.start(monotonic(), strict=False)
        machine, began = node._machine, monotonic()
        while machine.state is not NodeState.SUPERSEDED:
            machine.fence_when_due(monotonic())
            self.ask(node, machine.beat_step)
            # A step may only look where to join, or where more points are to be; and a heartbeat
            # that finds changes has the next one read the ring.
            renewed = machine.last_beat is not None and machine.last_beat >= began
            if (renewed and not machine.in_doubt) or machine.state not in AT_WORK:
                break
        if machine.book is not None:
            run_out(machine.book.step, partial(self.run_now, node), monotonic)
        _raise_error(node)

    def cleanup(self, node: Node) -> None:
        """Take expired nodes off the ring; see ``RingNode.cleanup``."""
        config, name = node._machine.config, node.name
        command = sweep(config.keys, scoring=config.scoring, by=name)
        self.ask(node, lambda: Run(command, _ignore, _ignore_error))

    def remove(self, node: Node) -> None:
        """Take the node off the ring; see ``RingNode.remove``."""
        node._refuse_if_forked()
        machine = node._machine
        if not self.do(partial(self._remove, node)) and machine.replicas:
            self.ask(node, partial(machine.leave_step, "removed"))

    def _remove(self, node: Node) -> None:
        machine = node._machine
        node._own_nothing()
        machine.stop()
        node._publish(node._lease)
        if machine.book is not None:
            run_out(machine.book.leave, partial(self.run_now, node), monotonic)
        if machine.replicas:
            # The node has ended, and what is on its way of it comes to nothing.
            self.run_now(node, machine.leave_step("stop"))
            run_out(machine.next, partial(self.run_now, node), monotonic)
            node._publish(node._lease)

    def leave(self, node: Node, failed: Callable[[StoreError], None], *, stay: bool) -> None:
        """Leave the ring, as ``stop()`` does: after heartbeats by hand, or not at all.

        Args:
            failed: called with what Redis did not do: the node expires by itself.
        """
        machine = node._machine
        node._own_nothing()
        if machine.state not in (NodeState.STOPPED, NodeState.NEW):
            machine.stop(stay=stay)
            run_out(machine.next, partial(self.run_now, node), monotonic, failed)
            node._publish(node._lease)
        self._calls.close_single()


def _raise_error(node: Node) -> None:
    if node._machine.error is not None:
        raise node._machine.error


def _ignore(reply: Any, sent: float, now: float) -> None:
    pass


def _ignore_error(error: StoreError, now: float) -> None:
    pass
