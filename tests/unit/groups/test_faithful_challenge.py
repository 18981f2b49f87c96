"""The faithful challenge: one member on a Redis in memory."""

from __future__ import annotations

import pytest

from hashring.core.groups.faithful_challenge import FaithfulChallengeSpans
from hashring.core.groups.partition_change import PartitionChangeKind
from hashring.errors import RedisUnavailable
from hashring.protocol.group.faithful_challenge_machine import FaithfulChallengeMachine
from hashring.protocol.machine_steps import Run, Subscribe, Wait
from hashring.store.faithful_challenge.commands import faithful_keys, look, open_again, race, signal
from hashring.store.memory_store import MemoryServer
from hashring.testing.simulator import ChallengeSimulator, random_challenge_history

KEYS = faithful_keys("work")
SPANS = FaithfulChallengeSpans(6.0, 18.0, 2.0, 3.0, 0.1)
OTHER = "other#1"
SOON = SPANS.normal_lease + 2.0


class Alone:
    """A member with one partition, and time."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.server = MemoryServer(lambda: self.now)
        self.machine = FaithfulChallengeMachine(
            KEYS, "m", partitions=1, spans=SPANS, new_suffix=lambda: "s", chance=lambda: 0.5
        )
        self.failing: set[str] = set()
        self.failed: list[str] = []
        self.once = False
        self.sent: list[str] = []
        self.machine.start(self.now)

    def play(self, seconds: float) -> None:
        """Let time pass."""
        end = self.now + seconds
        while True:
            step = self.machine.next(self.now)
            if isinstance(step, Run):
                self._run(step)
            elif isinstance(step, Subscribe):
                self._listen(step.number)
            elif not isinstance(step, Wait) or step.until > end:
                break
            else:
                self.now = max(self.now, step.until)
        self.now = end

    def _run(self, step: Run) -> None:
        name = step.command.script.name
        self.sent.append(name)
        if name in self.failing:
            if self.once:
                self.failing.discard(name)
            self.failed.append(name)
            step.failed(RedisUnavailable("gone"), self.now)
        else:
            step.done(self.server.run(step.command), self.now, self.now)

    def _listen(self, number: int) -> None:
        for channel in self.machine.channels:
            self.server.listen(channel, lambda payload, c=channel: self._told(number, c, payload))
        self.machine.subscribed(number, self.now)

    def _told(self, number: int, channel: bytes, payload: bytes) -> None:
        self.machine.told(number, channel, payload, self.now)

    def told(self) -> list[PartitionChangeKind]:
        """What the application was told since the last call."""
        changes, self.machine.changes = self.machine.changes, []
        return [change.kind for change in changes]

    @property
    def held(self) -> dict[int, int]:
        return self.machine.holdings.held(self.now)

    def at_work(self) -> Alone:
        """It works on the partition, which may be challenged again."""
        self.play(SOON + SPANS.min_grab)
        assert list(self.held) == [0]
        self.told()
        return self

    def lose(self) -> None:
        """Another member wins the partition."""
        self.server.run(race(KEYS, 0, OTHER))
        self.server.run(signal(KEYS, 0, clear=False))
        self.play(1.0)
        assert self.told() == [PartitionChangeKind.REVOKED]

    def win(self) -> None:
        """The other lets it go, and this one wins it again."""
        self.server.run(open_again(KEYS, 0, OTHER))
        self.server.run(signal(KEYS, 0, clear=False))
        self.play(SOON)


def test_it_renews_three_times_in_a_longest_lease_of_less_than_three_seconds() -> None:
    spans = FaithfulChallengeSpans(0.5, 1.5, 0.1, 0.2, 0.1)
    machine = FaithfulChallengeMachine(
        KEYS, "m", partitions=1, spans=spans, new_suffix=lambda: "s", chance=lambda: 0.5
    )
    assert machine.interval == 0.5


def test_a_late_word_about_an_earlier_stay_does_not_end_the_next() -> None:
    member = Alone().at_work()
    (first,) = member.held.values()
    member.lose()
    member.play(SPANS.max_shutdown)
    assert PartitionChangeKind.LOST in member.told(), "its application was too slow"
    member.win()
    assert list(member.held) == [0]
    assert not member.machine.release(0, first, member.now)
    member.play(1.0)
    assert list(member.held) == [0]


def test_what_an_application_lets_go_of_is_challenged_and_assigned_anew() -> None:
    member = Alone().at_work()
    (first,) = member.held.values()
    assert member.machine.release(0, first, member.now)
    member.play(0.1)
    assert member.server.run(look(KEYS)) == ({}, {}), "anybody may have it"
    member.play(SOON)
    assert member.held == {0: first + 1}


def test_what_the_longest_silence_ended_is_challenged_and_assigned_anew() -> None:
    member = Alone().at_work()
    member.failing = {
        "faithful_challenge_look",
        "faithful_challenge_race",
        "faithful_challenge_open",
        "faithful_challenge_signal",
    }
    member.server.run(signal(KEYS, 0, clear=False))
    member.play(SPANS.max_lease + 1.0)
    assert PartitionChangeKind.LOST in member.told()
    member.failing = set()
    member.play(2 * SOON)
    assert list(member.held) == [0]


@pytest.mark.parametrize("name", ["look", "signal", "race", "begin", "open", "end"])
def test_what_redis_did_not_do_is_tried_again_with_the_next_renewal(name: str) -> None:
    member = Alone()
    member.play(0.1)
    if name == "end":
        member.at_work().lose()
        assert member.machine.release(0, next(iter(member.held.values())), member.now)
    script = f"faithful_challenge_{name}"
    member.failing, member.once = {script}, True
    ticks = 0
    while not member.failed:
        ticks += 1
        assert ticks < 1000, f"it never runs {script}"
        member.play(0.1)
    before = len(member.sent)
    member.play(1.0)
    assert script in member.sent[before:]


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1000336, 1000736, 1002612, 1002820])
def test_every_partition_is_worked_on_again(seed: int) -> None:
    ChallengeSimulator().play(random_challenge_history(seed))


def test_a_partition_that_is_challenged_twice_is_raced_for_once() -> None:
    member = Alone()
    member.play(1.0)
    for _ in range(2):
        member.server.run(signal(KEYS, 0, clear=False))
    member.sent.clear()
    member.play(SPANS.max_shutdown)
    assert member.sent.count("faithful_challenge_race") == 1
