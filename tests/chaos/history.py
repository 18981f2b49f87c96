"""Who claimed which key when, as the processes of a fleet wrote it down.

Each worker asks its nodes about every key, again and again; one round is a :class:`Sweep`. Times
are the machine's monotonic clock, which all its processes share, in seconds. Sets of keys are
integers: bit ``k`` stands for key ``k``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

Cut = tuple[float, float]
"""From when to when a process could do nothing; to infinity when it was killed."""

SILENCE = 0.7
"""Seconds without a question after which nobody knows what a node would have said."""


@dataclass(frozen=True)
class Sweep:
    """One node's answers about all keys, each given somewhere between ``begun`` and ``ended``."""

    begun: float
    ended: float
    keys: int


@dataclass
class Life:
    """What is known of one node: its rounds, and when its process was stopped or dead.

    Attributes:
        since: when it was first on the ring; infinite if it never was.
    """

    node: str
    sweeps: list[Sweep] = field(default_factory=list)
    cuts: list[Cut] = field(default_factory=list)
    since: float = float("-inf")


@dataclass(frozen=True)
class Write:
    """A write that the fenced resource accepted."""

    key: str
    token: int
    node: str


@dataclass(frozen=True)
class Hold:
    """A node held a key's lock, with a token, from ``begun`` to ``ended`` at least."""

    key: str
    token: int
    node: str
    begun: float
    ended: float


@dataclass(frozen=True)
class Known:
    """From ``since`` on: the keys that a node surely claims, and those that it surely does not.

    A key in neither is one about which the node changed its mind, or was not asked.
    """

    since: float
    yes: int
    no: int


def known(life: Life, everything: int) -> Iterator[Known]:
    """What is known of a node as time goes on; the times rise.

    A node that answers alike in two rounds, one right after the other, is taken to have said the
    same in between. Where two rounds differ, or lie more than :data:`SILENCE` apart, nothing is
    known of the time between them.

    Before its first round, while its process is stopped, and after its death a node claims
    nothing, because it can do nothing. What it claims counts again from the first round that
    began after it was continued; a round that the stop tore apart does not count at all.
    """
    cuts = sorted(life.cuts)
    sweeps = [
        sweep for sweep in life.sweeps if not any(_within(cut, sweep) for cut in cuts)
    ]  # fmt: skip
    yield Known(float("-inf"), 0, everything)
    linked = False
    yes = no = 0
    for number, sweep in enumerate(sweeps):
        after = sweeps[number + 1] if number + 1 < len(sweeps) else None
        until = after.begun if after else float("inf")
        heard = after is not None and after.begun - sweep.ended <= SILENCE
        between = [cut for cut in cuts if sweep.ended <= cut[0] < until]
        here_yes, here_no = sweep.keys, ~sweep.keys & everything
        if linked:
            here_yes, here_no = here_yes & yes, here_no & no
        linked = heard and not between
        yes = no = 0
        if after is not None and linked:
            yes, no = sweep.keys & after.keys, ~(sweep.keys | after.keys) & everything
            here_yes, here_no = here_yes & yes, here_no & no
        yield Known(sweep.begun, here_yes, here_no)
        yield Known(sweep.ended, yes, no)
        for begin, end in between:
            yield Known(begin, 0, everything)
            if end != float("inf"):
                yield Known(end, 0, 0)


def _within(cut: Cut, sweep: Sweep) -> bool:
    return cut[0] < sweep.ended and sweep.begun < cut[1]
