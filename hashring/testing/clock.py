"""A clock that moves when a test moves it."""

from __future__ import annotations

from hashring.errors import ConfigError


class ManualClock:
    """A clock in seconds: call it for the time.

    Args:
        now: what it shows at first.

    ``MemoryServer(ManualClock(1_700_000_000.0))`` is a server on which nothing expires until the
    test says so.
    """

    def __init__(self, now: float = 0.0) -> None:
        self.now = now

    def __call__(self) -> float:
        """The time."""
        return self.now

    def advance(self, seconds: float) -> None:
        """Let time pass.

        Raises:
            ConfigError: ``seconds`` is negative.
        """
        if seconds < 0:
            raise ConfigError("seconds", seconds, "time goes forward only: set now instead")
        self.now += seconds
