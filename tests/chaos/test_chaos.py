"""A short version of ``scripts/chaos``: what holds whatever happens, and however slow it is."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from hashring.store.embedded_server import RedisServer
from tests.chaos.checker import exposure, fence_breaks
from tests.chaos.faults import FAULTS
from tests.chaos.fleet import VARIANTS, Fleet, Timing, until
from tests.chaos.scenario import replenish, settled
from tests.chaos.soak import MIXED, MIXED_LOCKS, grown
from tests.chaos.worker import PEER

SHORT = Timing(ttl=1.5, heartbeat=0.3)


@pytest.fixture(scope="module")
def resource() -> Iterator[str]:
    """A Redis that no fault touches."""
    with RedisServer() as server:
        yield server.url


def live_through(fleet: Fleet, *faults: str) -> None:
    """After each fault, every key has one owner again, and keeps it."""
    fleet.add(len(fleet.variant.kinds), veteran=True)
    fleet.add(1)
    until(lambda: settled(fleet), "every key has one owner")
    fleet.mark("steady")
    for name in faults:
        FAULTS[name].act(fleet)
        replenish(fleet, len(fleet.variant.kinds) + 1)
        until(lambda: settled(fleet), f"every key has one owner after {name}")
    fleet.mark("end")
    assert fleet.escaped() == []


def test_nodes_of_every_kind_come_back_by_themselves_and_nothing_escapes_or_grows() -> None:
    with Fleet(MIXED, SHORT) as fleet:
        live_through(fleet, "flushall", "kill", "messages-lost", "cuts", "garbage", "restart-empty")


def test_with_locks_no_key_ever_has_two_owners(resource: str) -> None:
    with Fleet(MIXED_LOCKS, SHORT, resource=resource) as fleet:
        live_through(fleet, "pause", "cut-off", "maxmemory", "script-flush")
        found = exposure(
            fleet.lives(),
            fleet.workers[0].job.keys,
            fleet.marked("steady"),
            fleet.marked("end"),
        )
        assert found.double == ()
        assert fleet.writes()
        assert fence_breaks(fleet.writes()) == []


def test_a_node_that_goes_on_claiming_its_keys_when_it_is_cut_off_is_found() -> None:
    """redis-hashring's does: the real thing, and not only planted histories, fails the check."""
    with Fleet(VARIANTS[PEER], SHORT) as fleet:
        fleet.add(3)
        until(lambda: settled(fleet), "every key has one owner")
        begin = fleet.mark("steady")
        FAULTS["cut-off"].act(fleet)
        # The others take over at the latest when their clean-up comes round.
        until(
            lambda: exposure(fleet.lives(), 64, begin, fleet.mark("end")).double,
            "two nodes claim a key",
        )


def test_what_grows_for_good_is_found_and_what_only_varies_is_not() -> None:
    steady = [float(20 + number % 5) for number in range(60)]
    leak = [float(20 + number // 3) for number in range(60)]
    _, _, found = grown({"thread: descriptors": steady})
    assert found == []
    _, _, found = grown({"thread: descriptors": leak})
    assert found == ["thread: descriptors grew from 27 to 34"]
    _, _, found = grown({"thread: resident": [value * (1 << 20) for value in leak]})
    assert len(found) == 1
