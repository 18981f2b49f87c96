"""What the kinds of events that only groups have do to their world."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import Any, Final

from hashring.errors import ConfigError, GroupNotEmpty
from hashring.protocol.flow import run_flow
from hashring.protocol.group.group_flows import forget
from hashring.testing.simulator.fault_effects import FAULTS, of_process
from hashring.testing.simulator.groups.process import KEYS, NAME, GroupProcess
from hashring.testing.simulator.groups.world import GroupWorld
from hashring.testing.simulator.history import Event
from hashring.testing.simulator.world import Fault


def _stall(world: GroupWorld, process: GroupProcess, event: Event) -> None:
    process.stalled_until = max(process.stalled_until, world.now + event.seconds)


def _answer_oddly(world: GroupWorld, process: GroupProcess, event: Event) -> None:
    process.odd = Random(f"{world.history.seed} odd {process.spec.label}")


def _delete(world: Any, event: Event) -> None:
    """Somebody deletes one of the group's keys."""
    if world.settled_in():
        world.rolled_back_at = world.now
        world.server.drop(getattr(KEYS, event.what))
        world.touched(lost=True)


def _forget(world: Any, event: Event) -> None:
    """An operator forgets the group, if there is one and no member's lease stands."""
    with suppress(ConfigError, GroupNotEmpty):
        run_flow(world.server.run, forget(NAME, KEYS, "operator"))
        world.touched(lost=False)


def _garble(world: GroupWorld, process: GroupProcess, event: Event) -> None:
    """Somebody overwrites what stands in Redis about a member, or the group's phase."""
    key, field, edit = _GARBLED[event.what]
    world.server.edit(getattr(KEYS, key), field or process.spec.name.encode(), edit)
    world.touched(lost=False)


def _without_report(entry: bytes) -> bytes:
    return b" ".join([*entry.split(b" ", 2)[:2], b"{}"])


_GARBLED: Final[dict[str, tuple[str, bytes, Callable[[bytes], bytes]]]] = {
    "report": ("members", b"", _without_report),
    "entry": ("members", b"", lambda entry: b"nobody wrote this"),
    "view": ("views", b"", lambda view: view + b"\nnobody wrote this"),
    "views": ("views", b"", lambda view: b"nobody wrote this"),
    "phase": ("state", b"phase", lambda phase: b"nobody wrote this"),
}


def _report_strangely(world: GroupWorld, process: GroupProcess, event: Event) -> None:
    process.strange_until = max(process.strange_until, world.now + event.seconds)
    process.world.late_until = max(process.world.late_until, process.strange_until)


def _drain(world: GroupWorld, process: GroupProcess, event: Event) -> None:
    process.drain(event.seconds or None)


def _busy(world: Any, event: Event) -> None:
    partition, load = event.what.split()
    world.busy(int(partition), float(load))


def _wipe(world: Any, event: Event) -> None:
    if world.settled_in():
        world.emptied_at = world.now
        FAULTS["wipe"](world, event)


def _down(world: Any, event: Event) -> None:
    if event.what != "empty":
        FAULTS["down"](world, event)
    elif world.settled_in():
        world.emptied_at = world.now + event.seconds
        FAULTS["down"](world, event)


def _failover(world: Any, event: Event) -> None:
    if world.settled_in():
        world.rolled_back_at = world.now
        FAULTS["failover"](world, event)


def _rewind(world: Any, event: Event) -> None:
    """Older keys are put back into a server that goes on."""
    if world.settled_in():
        world.rolled_back_at = world.now
        world.server.restore(world.copies[event], same_run=True)
        world.touched(lost=True)


GROUP_FAULTS: Final[dict[str, Fault]] = {
    **FAULTS,
    "hand over": of_process(lambda _, process, event: process.leave(handover=True)),
    "stall": of_process(_stall),
    "slow decision": of_process(
        lambda _, process, event: process.slow_decisions.append(event.seconds)
    ),
    "fail to decide": of_process(
        lambda _, process, event: process.fail_to_decide(hangs=event.what == "hangs")
    ),
    "resize": of_process(lambda _, process, event: process.resize(int(event.what))),
    "switch access": of_process(lambda _, process, event: process.switch_access()),
    "migrate": of_process(lambda _, process, event: process.migrate(dict([event.term]))),
    "odd answers": of_process(_answer_oddly),
    "delete": _delete,
    "forget": _forget,
    "garble": of_process(_garble),
    "strange reports": of_process(_report_strangely),
    "drain": of_process(_drain),
    "undrain": of_process(lambda _, process, event: process.undrain()),
    "weigh": of_process(lambda _, process, event: process.weigh(float(event.what))),
    "busy": _busy,
    "wipe": _wipe,
    "down": _down,
    "failover": _failover,
    "rewind": _rewind,
}
