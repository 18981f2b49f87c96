"""What a running node writes to the log ``hashring``."""

from __future__ import annotations

from hashring.errors import HashringError
from hashring.protocol.node.node_machine import NodeMachine
from hashring.protocol.node.node_states import NodeState
from hashring.running.loop_log import LoopLog

logger = LoopLog("hashring")


class NodeLog:
    """Says once what is news: the first failure of a row, its end, and each new state."""

    def __init__(self, machine: NodeMachine) -> None:
        self._machine = machine
        self._state = machine.state
        self._losses = machine.counters.losses
        self._history = machine.history

    def outcome(self, failing: bool, error: HashringError | None) -> None:
        """How a call went; ``failing`` says whether the one before has failed."""
        machine = self._machine
        if error is None:
            if failing and not machine.failing:
                logger.info("hashring %s: Redis answers again", machine.name)
        elif not failing and machine.state is not NodeState.FAILED:
            # The status has the newest error, and retries are many.
            logger.warning("hashring %s: %s", machine.name, error)

    def state(self) -> None:
        """The state, where it is a new one."""
        machine = self._machine
        if machine.counters.losses > self._losses:
            self._losses = machine.counters.losses
            logger.warning(
                "hashring %s: Redis lost the ring; its nodes put back themselves and their locks%s",
                machine.name,
                _waiting(machine),
            )
        elif machine.config.locking and self._history not in ("", machine.history):
            logger.warning(
                "hashring %s: Redis restarted, or another server took over, and may have lost the "
                "newest locks%s",
                machine.name,
                _waiting(machine),
            )
        self._history = machine.history
        if machine.state is self._state:
            return
        self._state = machine.state
        if machine.state is NodeState.FENCED and machine.deadline == float("-inf"):
            logger.info("hashring %s: removed by hand: owns nothing until it is back", machine.name)
        elif machine.state is NodeState.FENCED:
            logger.warning(
                "hashring %s: no heartbeat for %g s: owns nothing until one is answered%s",
                machine.name,
                machine.config.ttl,
                # The first failure of the row was logged, and may have had another reason.
                f"; the newest failure: {machine.last_error}" if machine.failing else "",
            )
        elif machine.state is NodeState.SUPERSEDED:
            logger.error("hashring %s: %s", machine.name, machine.error)
        else:
            logger.info("hashring %s: %s", machine.name, machine.state.value)


def _waiting(machine: NodeMachine) -> str:
    left = 0.0 if machine.book is None else machine.book.held_off_for(machine.last_beat or 0.0)
    return f"; nobody takes another lock for {left:.1f} s" if left else ""
