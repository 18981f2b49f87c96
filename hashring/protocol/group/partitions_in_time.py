"""How many partitions Redis can grant in one decision before members lose their leases."""

from __future__ import annotations

from typing import Final

from hashring.core.readable_numbers import counted
from hashring.protocol.machine_steps import io_timeout

# For each second that Redis may take to answer. To grant one takes Redis microseconds, all are in
# one script, and a busy machine makes it several times slower.
_PARTITIONS_A_SECOND: Final = 30_000


def why_too_many(partitions: int, ttl: float) -> str | None:
    """Why a group with this ttl (seconds) should have fewer partitions; ``None`` if it need not."""
    most = int(_PARTITIONS_A_SECOND * io_timeout(ttl))
    if partitions <= most:
        return None
    return (
        f"{counted(partitions, 'partition')} are many for a ttl of {ttl:g} s: while Redis writes a "
        "decision it serves nobody else, and members may lose their leases; have "
        f"{counted(most, 'partition')} at most"
    )
