"""For how long no lock may be taken, because Redis lost the ring's locks, or may have."""

from __future__ import annotations

from hashring.protocol.locks.key_states import NEVER


class HoldOff:
    """What a node knows of the ring's history, and of the wait after a loss.

    Attributes:
        history: the history of the ring that the last heartbeat found.
        until: until when no lock may be taken in it, in monotonic seconds.
    """

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """No history is known."""
        self.history = ""
        self.until = -NEVER

    def heartbeat(self, history: str, seconds: float, now: float) -> None:
        """The answer to a heartbeat: the history, and for how long no lock may be taken."""
        self.history = history
        self.until = now + seconds if seconds else -NEVER

    def answered(self, seconds: float | None, now: float) -> bool:
        """A call may take no lock for so long; whether only a heartbeat learns for how long."""
        if seconds is None:
            self.until = NEVER
            return True
        self.until = max(self.until, now + seconds)
        return False

    def left(self, now: float) -> float:
        """Seconds for which no lock may be taken."""
        return max(0.0, self.until - now)
