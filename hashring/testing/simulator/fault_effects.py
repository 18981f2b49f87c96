"""What each kind of event that every world has does to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from hashring.testing.simulator.history import Event
from hashring.testing.simulator.process import Process
from hashring.testing.simulator.world import Fault, World


def of_process(fault: Callable[[Any, Any, Event], None]) -> Fault:
    """A fault of a process, from what it does to a world and to the process if that runs."""

    def happen(world: World[Any], event: Event) -> None:
        process = world.running(event.who)
        if process is not None:
            fault(world, process, event)

    return happen


def _return(world: World[Any], process: Process, event: Event) -> None:
    process.away = event.seconds
    process.stop()


def _kill(world: World[Any], process: Process, event: Event) -> None:
    process.kill()
    world.shown(process)


def _cut(world: World[Any], process: Process, event: Event) -> None:
    process.cut_until = max(process.cut_until, world.now + event.seconds)
    process.trouble_until = max(process.trouble_until, process.cut_until)
    process.reset()


def _hole(world: World[Any], process: Process, event: Event) -> None:
    process.hole_until = max(process.hole_until, world.now + event.seconds)
    process.hole_ends = event.what
    process.trouble_until = max(process.trouble_until, process.hole_until)


def _lose_reply(world: World[Any], process: Process, event: Event) -> None:
    process.replies_to_lose += 1


def _repeat_call(world: World[Any], process: Process, event: Event) -> None:
    process.calls_to_repeat += 1


def _lose_messages(world: World[Any], process: Process, event: Event) -> None:
    process.messages_to_lose += int(event.what)


def _delay_messages(world: World[Any], process: Process, event: Event) -> None:
    process.messages_late_until = max(process.messages_late_until, world.now + event.seconds)


def _double_messages(world: World[Any], process: Process, event: Event) -> None:
    process.messages_doubled_until = max(process.messages_doubled_until, world.now + event.seconds)


def _mix_messages(world: World[Any], process: Process, event: Event) -> None:
    process.messages_mixed_until = max(process.messages_mixed_until, world.now + event.seconds)
    process.trouble_until = max(process.trouble_until, process.messages_mixed_until + 1.0)


def _deaf(world: World[Any], process: Process, event: Event) -> None:
    for loop in process.loops:
        if loop.listener is not None:
            loop.listener.deaf = True


# --- Redis ------------------------------------------------------------------------------------


def _disturb(world: World[Any], until: float, *, reset: bool) -> None:
    for process in world.processes.values():
        if process.alive:
            process.trouble_until = max(process.trouble_until, until)
            if reset:
                process.reset()


def _down(world: World[Any], event: Event) -> None:
    world.down_until = max(world.down_until, world.now + event.seconds)
    if event.what == "restarted":
        # Another run of the server, with all that it had written.
        world.server.restore(world.server.copy())
    if event.what == "empty":
        world.server.wipe()
        world.touched(lost=True)
    _disturb(world, world.down_until, reset=True)


def _hang(world: World[Any], event: Event) -> None:
    world.hang_until = max(world.hang_until, world.now + event.seconds)
    _disturb(world, world.hang_until, reset=False)


def _refuse(world: World[Any], event: Event) -> None:
    world.refuses_until = max(world.refuses_until, world.now + event.seconds)
    _disturb(world, world.refuses_until, reset=False)


def _wipe(world: World[Any], event: Event) -> None:
    world.server.wipe()
    world.touched(lost=True)


def _failover(world: World[Any], event: Event) -> None:
    world.server.restore(world.copies[event])
    world.skew = event.lag_and_skew[1]
    world.touched(lost=True)
    _disturb(world, world.now, reset=True)


FAULTS: Final[dict[str, Fault]] = {
    "start": lambda world, event: world.start(event.who),
    "stop": of_process(lambda _, process, event: process.stop()),
    "return": of_process(_return),
    "kill": of_process(_kill),
    "pause": of_process(lambda _, process, event: process.pause(event.seconds)),
    "pause unsent": of_process(
        lambda _, process, event: process.pauses_unsent.append(event.seconds)
    ),
    "pause untold": of_process(
        lambda _, process, event: process.pauses_untold.append(event.seconds)
    ),
    "cut": of_process(_cut),
    "hole": of_process(_hole),
    "lose reply": of_process(_lose_reply),
    "repeat call": of_process(_repeat_call),
    "slow command": of_process(
        lambda _, process, event: process.slow_commands.append(event.seconds)
    ),
    "slow reply": of_process(lambda _, process, event: process.slow_replies.append(event.seconds)),
    "slow join": of_process(lambda _, process, event: process.slow_joins.append(event.seconds)),
    "lose messages": of_process(_lose_messages),
    "delay messages": of_process(_delay_messages),
    "double messages": of_process(_double_messages),
    "mix messages": of_process(_mix_messages),
    "unsubscribe": of_process(lambda _, process, event: process.unsubscribe()),
    "deaf": of_process(_deaf),
    "down": _down,
    "hang": _hang,
    "refuse": _refuse,
    "wipe": _wipe,
    "failover": _failover,
    "set back": lambda world, event: world.set_clock_back(event.set_back),
}
