"""A simulator: random histories of faults in virtual time, and what must hold in them.

::

    python -m hashring.testing.simulator                 # 2,000 histories of a ring
    python -m hashring.testing.simulator --locks         # with locks and limits
    python -m hashring.testing.simulator --own-ranges    # nodes that follow no ring
    python -m hashring.testing.simulator --drains        # nodes that are drained by order
    python -m hashring.testing.simulator --weights       # nodes whose weights change
    python -m hashring.testing.simulator --groups        # of a partition group
    python -m hashring.testing.simulator --challenge     # of the lease challenge
    python -m hashring.testing.simulator --set-back      # of a Redis whose clock is set back
    python -m hashring.testing.simulator --rare          # with more faults; also beside the others
    python -m hashring.testing.simulator --seed 1234     # one, as a story when it fails

:mod:`.virtual_time`, :mod:`.network` and :mod:`.process` are what a world is made of, and
:mod:`.fault_effects` what can happen in it. In a process, a :mod:`.simulated_loop` drives each
machine, and a :mod:`.simulated_subscription` brings it messages; :mod:`.simulated_flows` run what
an application asks. Each protocol (:mod:`.ring`, :mod:`.groups`, :mod:`.challenge`) has a simulator
and a :mod:`.world`, with its histories and its rules. :mod:`.play` runs a :mod:`.history`, made of
:mod:`.random_events`. :mod:`.shrinking` makes one that breaks a rule as small as it goes, and
:mod:`.play` prints its story.
"""

from __future__ import annotations

from hashring.testing.simulator.challenge.random_histories import random_challenge_history
from hashring.testing.simulator.challenge.simulator import ChallengeSimulator
from hashring.testing.simulator.groups.random_histories import (
    ordered_group_history,
    random_group_history,
    undecided_group_history,
    with_rare_group_events,
)
from hashring.testing.simulator.groups.simulator import GroupSimulator
from hashring.testing.simulator.history import Event, History
from hashring.testing.simulator.random_events import (
    with_clock_set_back,
    with_rare_events,
    with_returns,
)
from hashring.testing.simulator.ring.random_histories import (
    own_ranges,
    random_history,
    random_lock_history,
    with_drains,
    with_rare_ring_events,
    with_ring_clock_set_back,
    with_weights,
)
from hashring.testing.simulator.ring.simulator import RingSimulator
from hashring.testing.simulator.rules import Violation

__all__ = [
    "ChallengeSimulator",
    "Event",
    "GroupSimulator",
    "History",
    "RingSimulator",
    "Violation",
    "ordered_group_history",
    "own_ranges",
    "random_challenge_history",
    "random_group_history",
    "random_history",
    "random_lock_history",
    "undecided_group_history",
    "with_clock_set_back",
    "with_drains",
    "with_rare_events",
    "with_rare_group_events",
    "with_rare_ring_events",
    "with_returns",
    "with_ring_clock_set_back",
    "with_weights",
]
