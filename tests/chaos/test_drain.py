"""Nodes drained under load, with locks: a short version of ``scripts/chaos --fault drain``."""

from __future__ import annotations

import time

from hashring.store.embedded_server import RedisServer
from tests.chaos.checker import exposure, fence_breaks, lock_breaks
from tests.chaos.faults import drain_nodes, undrain_nodes
from tests.chaos.fleet import Fleet, Timing, until
from tests.chaos.scenario import settled
from tests.chaos.soak import MIXED_LOCKS

# A lock that a drained node keeps lasts for longer than the test waits for the key's next holder.
LONG = Timing(ttl=600.0, heartbeat=0.3)


def test_keys_of_drained_nodes_are_handed_over_and_never_held_by_two() -> None:
    with RedisServer() as resource, Fleet(MIXED_LOCKS, LONG, resource=resource.url) as fleet:
        fleet.add(3, nodes=3)
        until(lambda: settled(fleet), "every key has one owner")
        begin, names = fleet.mark("steady"), fleet.names()
        one_of_each_kind = ("w0-0", "w1-1", "w2-2")
        drain_nodes(fleet, names, one_of_each_kind)
        until(lambda: settled(fleet), "every key has one owner while three are drained")
        undrain_nodes(fleet, names, one_of_each_kind)
        until(lambda: settled(fleet), "every key has one owner when they are back")
        keys, end = fleet.workers[0].job.keys, time.monotonic()
        assert exposure(fleet.lives(), keys, begin, end).double == ()
        assert fleet.holds()
        assert lock_breaks(fleet.holds()) == []
        assert fence_breaks(fleet.writes()) == []
        assert fleet.escaped() == []
