"""What each kind of event does to the world."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from hashring.store.lock_commands import take_away
from hashring.testing.simulator.history import Event
from hashring.testing.simulator.world import KEYS, Process, World

Deed = Callable[[World, Event], None]


def _of_process(deed: Callable[[World, Process, Event], None]) -> Deed:
    def happen(world: World, event: Event) -> None:
        process = world.running(event.who)
        if process is not None:
            deed(world, process, event)

    return happen


def _start(world: World, event: Event) -> None:
    world.start(event.who)


def _stop(world: World, process: Process, event: Event) -> None:
    process.stop()


def _kill(world: World, process: Process, event: Event) -> None:
    process.kill()
    world.shown(process)


def _pause(world: World, process: Process, event: Event) -> None:
    process.paused_until = max(process.paused_until, world.now + event.seconds)
    process.trouble_until = max(process.trouble_until, process.paused_until)
    world.at(process.paused_until, process.wake)


def _cut(world: World, process: Process, event: Event) -> None:
    process.cut_until = max(process.cut_until, world.now + event.seconds)
    process.trouble_until = max(process.trouble_until, process.cut_until)
    process.reset()


def _hole(world: World, process: Process, event: Event) -> None:
    process.hole_until = max(process.hole_until, world.now + event.seconds)
    process.hole_ends = event.what
    process.trouble_until = max(process.trouble_until, process.hole_until)


def _lose_reply(world: World, process: Process, event: Event) -> None:
    process.replies_to_lose += 1


def _slow_command(world: World, process: Process, event: Event) -> None:
    process.slow_commands.append(event.seconds)


def _slow_join(world: World, process: Process, event: Event) -> None:
    process.slow_joins.append(event.seconds)


def _slow_reply(world: World, process: Process, event: Event) -> None:
    process.slow_replies.append(event.seconds)


def _lose_messages(world: World, process: Process, event: Event) -> None:
    process.messages_to_lose += int(event.what)


def _delay_messages(world: World, process: Process, event: Event) -> None:
    process.messages_late_until = max(process.messages_late_until, world.now + event.seconds)


def _unsubscribe(world: World, process: Process, event: Event) -> None:
    process.unsubscribe()


def _deaf(world: World, process: Process, event: Event) -> None:
    if process.listener is not None:
        process.listener.deaf = True


# --- locks ------------------------------------------------------------------------------------


def _hold(world: World, process: Process, event: Event) -> None:
    if process.user is not None:
        process.user.hold(event.what.encode(), event.seconds)


def _idle_user(world: World, process: Process, event: Event) -> None:
    if process.user is not None:
        process.user.idle_until = max(process.user.idle_until, world.now + event.seconds)


def _release_by_hand(world: World, event: Event) -> None:
    key = event.what.encode()
    world.server.run(take_away(KEYS, key=key, by="somebody"))
    world.taken_away[key] = world.now


# --- Redis ------------------------------------------------------------------------------------


def _disturb(world: World, until: float, *, reset: bool) -> None:
    for process in world.processes.values():
        if process.alive:
            process.trouble_until = max(process.trouble_until, until)
            if reset:
                process.reset()


def _down(world: World, event: Event) -> None:
    world.down_until = max(world.down_until, world.now + event.seconds)
    if event.what == "empty":
        world.server.wipe()
        world.touched(lost=True)
    _disturb(world, world.down_until, reset=True)


def _hang(world: World, event: Event) -> None:
    world.hang_until = max(world.hang_until, world.now + event.seconds)
    _disturb(world, world.hang_until, reset=False)


def _wipe(world: World, event: Event) -> None:
    world.server.wipe()
    world.touched(lost=True)


def _failover(world: World, event: Event) -> None:
    world.server.restore(world.copies[event])
    world.skew = event.lag_and_skew[1]
    world.touched(lost=True)
    _disturb(world, world.now, reset=True)


def _delete(world: World, event: Event) -> None:
    world.server.delete(KEYS.ring, *event.what.split())
    if "ring" in event.what:
        world.tampered_at = world.now
    world.touched(lost=True)


def _garbage_member(world: World, event: Event) -> None:
    world.server.zadd(KEYS.ring, event.what.encode(), world.redis_time() + event.seconds)
    world.tampered_at = world.now
    world.touched(lost=False)


def _garbage_message(world: World, event: Event) -> None:
    if world.now >= max(world.down_until, world.hang_until):
        world.server.publish(KEYS.channel, event.what.encode())


def _garbage_entry(world: World, event: Event) -> None:
    world.server.hset(KEYS.ring, event.what, b"nobody wrote this")
    world.touched(lost=True)


DEEDS: Final[dict[str, Deed]] = {
    "start": _start,
    "stop": _of_process(_stop),
    "kill": _of_process(_kill),
    "pause": _of_process(_pause),
    "cut": _of_process(_cut),
    "hole": _of_process(_hole),
    "lose reply": _of_process(_lose_reply),
    "slow command": _of_process(_slow_command),
    "slow reply": _of_process(_slow_reply),
    "slow join": _of_process(_slow_join),
    "lose messages": _of_process(_lose_messages),
    "delay messages": _of_process(_delay_messages),
    "unsubscribe": _of_process(_unsubscribe),
    "deaf": _of_process(_deaf),
    "hold": _of_process(_hold),
    "idle user": _of_process(_idle_user),
    "release by hand": _release_by_hand,
    "down": _down,
    "hang": _hang,
    "wipe": _wipe,
    "failover": _failover,
    "delete": _delete,
    "garbage member": _garbage_member,
    "garbage message": _garbage_message,
    "garbage entry": _garbage_entry,
}
