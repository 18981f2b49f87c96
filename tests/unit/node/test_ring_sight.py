"""What a node knows of the ring, and whether something of it is missing."""

from __future__ import annotations

from hashring.core.hashing import hash_algorithm
from hashring.core.ring import Ring
from hashring.core.ring_change_message import Stamp
from hashring.protocol.node.node_states import SightEvent
from hashring.protocol.node.ring_sight import RingSight


def stamp(epoch: int) -> Stamp:
    return Stamp(epoch, f"tag {epoch}", 0, epoch)


def test_after_a_reading_of_a_younger_history_what_is_missed_is_missing_anew() -> None:
    sight = RingSight(hash_algorithm("crc-32"))
    sight.read(Ring(), stamp(8))
    assert sight.fall_behind(SightEvent.SKIPPED, stamp(9))
    # Redis has lost the ring meanwhile, and its changes are counted from the beginning.
    sight.read(Ring(), stamp(3))
    assert sight.fall_behind(SightEvent.SKIPPED, stamp(5))
