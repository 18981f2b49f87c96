"""What a loss of the ring's locks in Redis, or of the newest of them, means for a node."""

from __future__ import annotations

from hashring.protocol.locks.key_states import NEVER


class HoldOff:
    """What a node knows of the ring's history, and of the wait after a loss.

    Attributes:
        history: the history of the ring that the last heartbeat found.
        until: until when no lock may be taken in it, in monotonic seconds.
        given_from: the session's locks under this token or a greater one were taken in it. Others
            may have been let go of, and be back with older data.
    """

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """No history is known."""
        self.history = ""
        self.until = -NEVER
        self.given_from: float = 0

    def heartbeat(self, history: str, seconds: float, now: float) -> None:
        """The answer to a heartbeat: the history, and for how long no lock may be taken."""
        if history != self.history and self.history:
            self.given_from = NEVER
        self.history = history
        self.until = now + seconds if seconds else -NEVER

    def taken(self, history: str, token: int) -> None:
        """A call that names this history took a lock under this token.

        Tokens count up: those of locks from before the history are smaller.
        """
        if history == self.history:
            self.given_from = min(self.given_from, token)

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
