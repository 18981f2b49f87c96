"""Histories of a lease challenge: members, and what happens to them."""

from __future__ import annotations

from dataclasses import dataclass, field

from hashring.core.groups.faithful_challenge import FaithfulChallengeSpans
from hashring.core.groups.lease_challenge import LeaseChallengeRules
from hashring.testing.simulator.history import History


@dataclass(frozen=True)
class ChallengerSpec:
    """A process that is a member.

    Attributes:
        label: what the story calls it, and the member's name.
        late: the most seconds by which each of its messages, and its application, is later than
            others' at random.
        monotonic: what its monotonic clock shows at the beginning, in seconds.
        rate: how many seconds that clock goes on in a second.
    """

    label: str
    late: float = 0.0
    monotonic: float = 0.0
    rate: float = 1.0


@dataclass(frozen=True)
class ChallengeHistory(History):
    """A history of one lease challenge, or of a faithful one.

    Attributes:
        terms: the time spans, of the lease challenge or of the faithful one.
        partitions: how many.
        drain: seconds that stopping a partition takes.
    """

    terms: LeaseChallengeRules | FaithfulChallengeSpans = field(default_factory=LeaseChallengeRules)
    partitions: int = 8
    drain: float = 0.2

    @property
    def faithful(self) -> bool:
        """Whether it is of the faithful challenge."""
        return isinstance(self.terms, FaithfulChallengeSpans)
