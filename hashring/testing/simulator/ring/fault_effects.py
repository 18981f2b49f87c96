"""What the kinds of events that only rings have do to their world."""

from __future__ import annotations

from typing import Final

from hashring.store.locks.commands import take_away
from hashring.store.ring import node_orders
from hashring.testing.simulator.fault_effects import FAULTS, of_process
from hashring.testing.simulator.history import Event
from hashring.testing.simulator.ring.process import RingProcess
from hashring.testing.simulator.ring.world import KEYS, RingWorld
from hashring.testing.simulator.world import Fault


def _hold(world: RingWorld, process: RingProcess, event: Event) -> None:
    if process.user is not None:
        process.user.hold(event.what.encode(), event.seconds)


def _idle_user(world: RingWorld, process: RingProcess, event: Event) -> None:
    if process.user is not None:
        process.user.idle_until = max(process.user.idle_until, world.now + event.seconds)


def _cancel(world: RingWorld, process: RingProcess, event: Event) -> None:
    if process.user is not None:
        process.user.cancels.append(event.seconds)


def _drain(world: RingWorld, event: Event) -> None:
    seconds, node = event.seconds or None, world.node(event.who)
    world.order(node_orders.drain(KEYS, node=node, by="somebody", seconds=seconds, force=True))


def _undrain(world: RingWorld, event: Event) -> None:
    world.order(node_orders.undrain(KEYS, node=world.node(event.who), by="somebody"))


def _weigh(world: RingWorld, event: Event) -> None:
    weight = None if event.what == "own" else float(event.what)
    world.order(node_orders.weigh(KEYS, weights={world.node(event.who): weight}, by="somebody"))


def _release_by_hand(world: RingWorld, event: Event) -> None:
    key = event.what.encode()
    world.server.run(take_away(KEYS, key=key, by="somebody"))
    world.taken_away[key] = world.now


def _delete(world: RingWorld, event: Event) -> None:
    world.server.delete(KEYS.ring, *event.what.split())
    if "ring" in event.what:
        world.tampered_at = world.now
    if "nodes" in event.what:
        world.names_lost_at = world.now
    world.touched(lost=True)


def _garbage_member(world: RingWorld, event: Event) -> None:
    world.server.zadd(KEYS.ring, event.what.encode(), world.redis_time() + event.seconds)
    world.tampered_at = world.now
    world.touched(lost=False)


def _garbage_message(world: RingWorld, event: Event) -> None:
    if world.now >= max(world.down_until, world.hang_until):
        world.server.publish(KEYS.channel, event.what.encode())


def _garbage_entry(world: RingWorld, event: Event) -> None:
    world.server.hset(KEYS.ring, event.what, b"nobody wrote this")
    world.touched(lost=True)


RING_FAULTS: Final[dict[str, Fault]] = {
    **FAULTS,
    "stay": of_process(lambda _, process, event: process.stop(stay=process.spec.named)),
    "hold": of_process(_hold),
    "idle user": of_process(_idle_user),
    "cancel": of_process(_cancel),
    "drain": _drain,  # type: ignore[dict-item]
    "undrain": _undrain,  # type: ignore[dict-item]
    "weigh": _weigh,  # type: ignore[dict-item]
    "weigh itself": of_process(lambda _, process, event: process.weigh(float(event.what))),
    "release by hand": _release_by_hand,  # type: ignore[dict-item]
    "delete": _delete,  # type: ignore[dict-item]
    "garbage member": _garbage_member,  # type: ignore[dict-item]
    "garbage message": _garbage_message,  # type: ignore[dict-item]
    "garbage entry": _garbage_entry,  # type: ignore[dict-item]
}
