"""What a forked child does first with what it inherits from its parent."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Protocol

from hashring.running.loop_log import LoopLog

_log: Final = LoopLog("hashring")


class Forking(Protocol):
    """A node or a member, as far as forks are concerned."""

    def _abandon(self) -> None:
        """In a forked child: it is the parent's, if it is anywhere."""


def abandon_each(inherited: Iterable[Forking]) -> None:
    """Abandon each; if one fails, log it and go on."""
    for each in inherited:
        try:
            each._abandon()
        except Exception:  # noqa: BLE001 - the others must be abandoned, too
            _log.exception(
                "a forked child could not abandon its parent's %s: do not use it in the child",
                type(each).__name__,
            )
