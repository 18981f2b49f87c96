"""The protocol of a node, fed by hand: what it asks for, and what it makes of each answer."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from hashring.core.hashing import hash_algorithm
from hashring.core.ring import Ring
from hashring.core.ring_change_message import ChangeKind, RingChange, Stamp
from hashring.errors import NodeSuperseded, RedisRefused, RedisUnavailable
from hashring.protocol.locks.lock_config import LockConfig
from hashring.protocol.locks.verdicts import Verdict
from hashring.protocol.machine_steps import Finished, Run, Step, Subscribe, Wait
from hashring.protocol.node.node_machine import NodeConfig, NodeMachine, View
from hashring.protocol.node.node_states import ClaimState, NodeState, SightState
from hashring.store.command import Command
from hashring.store.locks.commands import HeldByOther
from hashring.store.ring.commands import BeatReply, BeatStatus, LeaveStatus, Scoring
from hashring.store.ring.key_names import ring_keys
from hashring.store.ring.snapshot import Snapshot, snapshot

KEYS = ring_keys("accounts")
TTL, BEAT, IO = 3.0, 1.0, 0.5
MOMENT = 0.25
"""How long a gap may be a message on its way, at this heartbeat."""
LOCKS = LockConfig(locking=True, limit=2, ttl=TTL, idle=TTL, max_handoff_time=TTL)
OWN = "a" * 16
OTHER = "b" * 16


class Dice:
    """Randomness by hand: ``random()`` is what was set, the rest is seeded."""

    def __init__(self) -> None:
        self.value = 0.5
        self._rest = random.Random(1)

    def random(self) -> float:
        return self.value

    def randrange(self, stop: int, /) -> int:
        return self._rest.randrange(stop)


class Hand:
    """Drives one machine, and keeps the ring that Redis would have."""

    def __init__(self, **options: Any) -> None:
        config = {
            "keys": KEYS,
            "name": "me",
            "named": False,
            "n_replicas": 2,
            "ttl": TTL,
            "heartbeat_interval": BEAT,
            "io_timeout": IO,
            "scoring": Scoring.expiry(TTL),
            "algorithm": hash_algorithm("crc-32"),
            "placement": "random",
            "follow_foreign": False,
            "told": {},
        }
        self.dice = Dice()
        self.machine = NodeMachine(NodeConfig(**{**config, **options}), self.dice)
        self.now = 100.0
        self.number = 0
        self.stamp = Stamp(7, "07", 0, 1_000_000)
        self.others: dict[str, list[int]] = {"you": [5]}
        self.soonest: float | None = 2.0

    # --- what the machine asks for ------------------------------------------------------------

    def next(self) -> Step:
        return self.machine.next(self.now)

    def run(self) -> Run:
        step = self.next()
        assert isinstance(step, Run), step
        return step

    def waits_until(self) -> float:
        step = self.next()
        assert isinstance(step, Wait), step
        return step.until

    @property
    def state(self) -> NodeState:
        return self.machine.state

    @property
    def view(self) -> View:
        return self.machine.view(self.now)

    def owns(self) -> bool:
        return bool(self.view.bounds) and self.now < self.view.deadline

    # --- what is told to it -------------------------------------------------------------------

    def start(self, *, strict: bool = False) -> None:
        self.machine.start(self.now, strict=strict)

    def subscribe(self) -> None:
        step = self.next()
        assert isinstance(step, Subscribe)
        self.number = step.number
        self.machine.subscribed(step.number, self.now)

    def members(self) -> tuple[bytes, ...]:
        own = [replica.member for replica in self.machine.replicas]
        return (
            *own,
            *(b"%d:%s:x" % (p, name.encode()) for name, ps in self.others.items() for p in ps),
        )

    def reply(self, run: Run, status: BeatStatus = BeatStatus.OK, **changes: Any) -> BeatReply:
        members = self.members()
        stamp = replace(self.stamp, members=len(members))
        fetched = members if asks(run)["fetch"] else None
        answer = BeatReply(status, stamp, stamp.tag, self.soonest, 0, fetched)
        return replace(answer, **changes)

    def answer(
        self,
        run: Run,
        status: BeatStatus = BeatStatus.OK,
        *,
        sent: float | None = None,
        **changes: Any,
    ) -> None:
        run.done(self.reply(run, status, **changes), self.now if sent is None else sent, self.now)

    def live(self) -> Hand:
        self.start()
        self.subscribe()
        self.answer(self.run())
        assert self.state is NodeState.LIVE
        return self

    def wait(self, seconds: float) -> None:
        self.now += seconds

    def beat_due(self) -> Run:
        """Wait for the next heartbeat."""
        until = self.waits_until()
        self.now = until
        return self.run()

    def tell(self, change: RingChange, number: int | None = None) -> None:
        self.tell_payload(payload_of(change), number)

    def tell_payload(self, payload: bytes, number: int | None = None) -> None:
        number = self.number if number is None else number
        self.machine.told(number, KEYS.channel, payload, self.now)

    def change(
        self,
        kind: ChangeKind = ChangeKind.JOIN,
        node: str = "new",
        points: tuple[int, ...] = (50,),
        **options: Any,
    ) -> RingChange:
        """The next change of the ring: Redis has it from now on."""
        before = self.stamp
        if kind is ChangeKind.JOIN:
            self.others[node] = list(points)
        else:
            points = ()
            self.others.pop(node, None)
        count = len(self.members())
        self.stamp = Stamp(
            before.epoch + 1, f"{before.epoch + 1:02x}", count, before.at + 1_000_000
        )
        session = options.pop("session", OTHER)
        return replace(
            RingChange(kind, (node,), points, before.tag, self.stamp, session=session), **options
        )


def payload_of(change: RingChange) -> bytes:
    return json.dumps(
        {
            "v": 1,
            "kind": change.kind.value,
            "nodes": change.nodes,
            "points": change.points,
            "epoch": change.stamp.epoch,
            "tag": change.stamp.tag,
            "members": change.stamp.members,
            "at": str(change.stamp.at),
            "prev": change.prev,
            "session": change.session,
            **({} if change.was is None else {"was": change.was}),
        }
    ).encode()


def asks(run: Run) -> dict[str, Any]:
    """What a heartbeat asks for, from the script's arguments."""
    command = run.command
    assert command.script.name == "beat", command.script.name
    node, session, flags, take_from, _, _, expect, told, _, history, lock_ttl, _, lift, drops = (
        command.arguments[:14]
    )
    assert isinstance(flags, str)
    assert isinstance(told, str)
    assert isinstance(drops, int)
    rest = command.arguments[14:]
    return {
        "node": node,
        "history": history,
        "lock_ttl": lock_ttl,
        "session": session,
        "joining": "j" in flags,
        "fetch": "s" in flags,
        "take_from": take_from,
        "expect": expect,
        "told": json.loads(told),
        "resizes": "w" in flags,
        "own_weight": lift if "o" in flags else None,
        "drop": rest[:drops],
        "members": rest[drops:],
    }


def seen(
    stamp: Stamp,
    members: list[tuple[bytes, float]],
    nodes: dict[str, bytes] | None = None,
    remembered: tuple[int, ...] = (),
) -> Snapshot:
    """A look at a ring; each member with the seconds until it expires."""
    command: Command[Snapshot] = snapshot(KEYS, scoring=Scoring.expiry(TTL), remembered="me")
    raw = [part for member, left in members for part in (member, b"%.6f" % (stamp.at / 1e6 + left))]
    entries = [part for name, entry in (nodes or {}).items() for part in (name.encode(), entry)]
    memory = json.dumps({"points": remembered}).encode() if remembered else b""
    indexed = len(members)
    orders: list[bytes] = []
    drained: list[bytes] = []
    return command.read(
        [stamp.epoch, stamp.tag.encode(), stamp.at, raw, entries, memory, indexed, orders, drained]
    )


REFUSED = RedisRefused("no")
GONE = RedisUnavailable("gone")


# --- joining ----------------------------------------------------------------------------------


def test_a_new_node_that_is_stopped_has_nothing_to_do() -> None:
    hand = Hand()
    hand.machine.stop()
    assert hand.state is NodeState.STOPPED
    assert isinstance(hand.next(), Finished)


def test_the_subscription_stands_before_the_node_joins() -> None:
    hand = Hand()
    hand.start()
    step = hand.next()
    assert isinstance(step, Subscribe)
    assert hand.waits_until() > hand.now
    hand.machine.subscribed(step.number, hand.now)
    assert asks(hand.run())["joining"]


def test_a_join_asks_for_the_ring_and_brings_the_node_to_life() -> None:
    hand = Hand()
    hand.start()
    assert not hand.owns()
    hand.subscribe()
    run = hand.run()
    assert asks(run)["fetch"]
    assert hand.state is NodeState.JOINING
    assert not hand.owns()
    hand.answer(run)
    assert hand.state is NodeState.LIVE
    assert hand.owns()
    assert hand.view.ring.nodes == ("me", "you")


def test_a_node_has_as_many_different_points_as_it_was_given() -> None:
    hand = Hand(n_replicas=500)
    hand.live()
    points = {replica.point for replica in hand.machine.replicas}
    assert len(points) == 500
    assert hand.machine.sight.ring.points_of("me") == tuple(sorted(points))


def test_what_a_node_tells_of_itself_says_what_it_sees() -> None:
    hand = Hand(told={"host": "here"}).live()
    told = asks(hand.beat_due())["told"]
    assert told["host"] == "here"
    assert told["named"] is False
    assert told["ttl"] == TTL
    assert told["started"] == 1.0
    assert told["sees"] == {"tag": "07", "fingerprint": hand.machine.sight.ring.fingerprint}


def test_a_node_that_has_not_started_knows_of_no_node() -> None:
    view = Hand().view
    assert (view.node_count, view.bounds, view.ring.node_count) == (0, (), 0)


def test_messages_before_the_ring_is_known_are_passed_over() -> None:
    hand = Hand()
    hand.start()
    hand.subscribe()
    hand.tell(hand.change())
    assert hand.machine.counters.gaps == 0
    assert hand.machine.sight.stamp is None


def test_word_of_a_change_before_the_ring_is_known_makes_no_doubt() -> None:
    hand = Hand(follow_foreign=True)
    hand.start()
    hand.subscribe()
    hand.tell_payload(b"whatever redis-hashring says")
    assert hand.machine.sight.state is SightState.UNKNOWN
    assert asks(hand.run())["joining"]


def test_a_node_of_no_name_joins_without_a_look() -> None:
    hand = Hand()
    hand.start()
    hand.subscribe()
    assert asks(hand.run())["take_from"] == ""
    assert asks(hand.run())["expect"] == ""


# --- joining under a name ---------------------------------------------------------------------


def _look(hand: Hand) -> Run:
    hand.start()
    hand.subscribe()
    run = hand.run()
    assert run.command.script.name == "snapshot"
    return run


def test_a_named_node_takes_its_old_points_and_its_name_back() -> None:
    hand = Hand(named=True, n_replicas=2)
    run = _look(hand)
    old = [(b"11:me:old1", -1.0), (b"12:me:old2", 1.0), (b"5:you:x", 1.0)]
    run.done(seen(hand.stamp, old, {"me": (OTHER + "{}").encode()}), hand.now, hand.now)
    asked = asks(hand.run())
    assert [replica.point for replica in hand.machine.replicas] == [11, 12]
    assert asked["take_from"] == OTHER
    assert set(asked["drop"]) == {b"11:me:old1", b"12:me:old2"}
    assert not {b"11:me:old1", b"12:me:old2"} & set(asked["members"])


def test_a_named_node_takes_the_points_back_that_are_remembered() -> None:
    hand = Hand(named=True, n_replicas=2)
    _look(hand).done(seen(hand.stamp, [], remembered=(11, 12)), hand.now, hand.now)
    assert asks(hand.run())["take_from"] == ""
    assert [replica.point for replica in hand.machine.replicas] == [11, 12]


def test_an_old_point_that_another_node_has_by_now_is_replaced() -> None:
    hand = Hand(named=True, n_replicas=2)
    taken = [(b"12:you:x", 1.0), (b"11:gone:x", -1.0)]
    _look(hand).done(seen(hand.stamp, taken, remembered=(11, 12)), hand.now, hand.now)
    hand.run()
    points = [replica.point for replica in hand.machine.replicas]
    assert 11 in points
    assert 12 not in points
    assert len(points) == 2


def test_a_point_that_the_name_has_twice_is_taken_back_once() -> None:
    hand = Hand(named=True, n_replicas=3)
    old = [(b"11:me:x", 1.0), (b"11:me:y", 1.0), (b"12:me:z", 1.0)]
    _look(hand).done(seen(hand.stamp, old), hand.now, hand.now)
    hand.run()
    points = {replica.point for replica in hand.machine.replicas}
    assert len(points) == 3
    assert {11, 12} < points


@pytest.mark.parametrize("wanted", [1, 5])
def test_a_named_node_with_another_weight_takes_as_many_old_points_as_fit(wanted: int) -> None:
    hand = Hand(named=True, n_replicas=wanted)
    _look(hand).done(seen(hand.stamp, [], remembered=(11, 12, 13)), hand.now, hand.now)
    hand.run()
    points = {replica.point for replica in hand.machine.replicas}
    assert len(points) == wanted
    assert len(points & {11, 12, 13}) == min(3, wanted)


def test_a_named_node_whose_name_was_taken_since_the_look_looks_again() -> None:
    hand = Hand(named=True)
    _look(hand).done(seen(hand.stamp, []), hand.now, hand.now)
    hand.answer(hand.run(), BeatStatus.TAKEN)
    assert hand.state is NodeState.JOINING
    assert hand.machine.name == "me"
    hand.now = hand.waits_until()
    # The other began earlier, and joined later.
    _contest(hand, OTHER, '{"started": 0.5}')
    assert asks(hand.run())["take_from"] == OTHER


def test_a_named_node_whose_name_a_later_process_took_since_the_look_ends() -> None:
    hand = Hand(named=True)
    _look(hand).done(seen(hand.stamp, []), hand.now, hand.now)
    hand.answer(hand.run(), BeatStatus.TAKEN)
    hand.now = hand.waits_until()
    _contest(hand, OTHER, '{"started": 1.5}')
    assert hand.state is NodeState.SUPERSEDED


def test_a_node_of_no_name_takes_no_name_from_anybody() -> None:
    hand = Hand(placement="balanced")
    _look(hand).done(
        seen(hand.stamp, [(b"12:me:x", 1.0)], {"me": (OTHER + "{}").encode()}), hand.now, hand.now
    )
    assert asks(hand.run())["take_from"] == ""


# --- balanced placement -----------------------------------------------------------------------


def test_a_balanced_join_expects_the_ring_that_it_looked_at() -> None:
    hand = Hand(placement="balanced")
    _look(hand).done(seen(hand.stamp, [(b"5:you:x", 1.0)]), hand.now, hand.now)
    assert asks(hand.run())["expect"] == "=07"


def test_a_balanced_join_to_an_empty_history_expects_it_to_be_empty_still() -> None:
    hand = Hand(placement="balanced")
    _look(hand).done(seen(Stamp(0, "", 0, 5), []), hand.now, hand.now)
    assert asks(hand.run())["expect"] == "="


def test_a_balanced_join_evens_out_the_ring_that_it_looked_at() -> None:
    hand = Hand(placement="balanced", n_replicas=2)
    two = [(b"0:you:x", 1.0), (b"1000:you:y", 1.0)]
    _look(hand).done(seen(hand.stamp, two), hand.now, hand.now)
    hand.run()
    ring = Ring({"you": [0, 1000], "me": [replica.point for replica in hand.machine.replicas]})
    assert ring.share("me") == pytest.approx(0.5, abs=0.01)


@pytest.mark.parametrize("dice", [0.0, 0.5, 0.999])
def test_when_the_ring_moved_the_node_looks_again_after_a_moment_that_grows(dice: float) -> None:
    hand = Hand(placement="balanced")
    hand.dice.value = dice
    run = _look(hand)
    for tries in range(1, 60):
        run.done(seen(hand.stamp, []), hand.now, hand.now)
        hand.answer(hand.run(), BeatStatus.MOVED)
        assert not hand.owns()
        wait = dice * min(0.02 * tries, 1.0)
        if wait:
            assert hand.waits_until() == pytest.approx(hand.now + wait)
        hand.wait(wait)
        run = hand.run()
        assert run.command.script.name == "snapshot"


# --- whose name it is -------------------------------------------------------------------------


def _superseded_by_a_message(hand: Hand) -> None:
    hand.tell(hand.change(node="me", points=(9,), session=OTHER))


def _superseded_by_an_answer(hand: Hand) -> None:
    hand.answer(hand.beat_due(), BeatStatus.SUPERSEDED)


LOSSES = [_superseded_by_a_message, _superseded_by_an_answer]


LATER = '{"started": 1.5}'


def _contest(hand: Hand, holder: str, told: str = LATER) -> None:
    """A named node that has lost its name looks, and sees who has it."""
    run = hand.run()
    assert run.command.script.name == "snapshot"
    entries = {"me": (holder + told).encode()} if holder else {}
    run.done(seen(hand.stamp, [(b"9:me:theirs", 1.0)], entries), hand.now, hand.now)


def _named(holder: str = "", told: str = "{}", **options: Any) -> Hand:
    """A live node that took its name from the holder."""
    hand = Hand(named=True, **options)
    entries = {"me": (holder + told).encode()} if holder else {}
    _look(hand).done(seen(hand.stamp, [], entries), hand.now, hand.now)
    hand.answer(hand.run())
    assert hand.state is NodeState.LIVE
    return hand


@pytest.mark.parametrize("loss", LOSSES)
def test_a_named_node_whose_name_is_taken_ends(loss: Callable[[Hand], None]) -> None:
    hand = Hand(named=True)
    _look(hand).done(seen(hand.stamp, []), hand.now, hand.now)
    hand.answer(hand.run())
    assert hand.owns()
    loss(hand)
    assert not hand.owns()
    session = hand.machine.session
    _contest(hand, OTHER)
    assert hand.state is NodeState.SUPERSEDED
    # Answers to the session that lost the name are nobody's.
    assert hand.machine.session != session
    assert not hand.owns()
    assert isinstance(hand.machine.error, NodeSuperseded)
    assert hand.machine.error.node == "me"
    assert hand.machine.last_error is hand.machine.error
    # What is on the ring under the name is the other's: nothing is taken off.
    assert isinstance(hand.next(), Finished)


EARLIER = "e" * 16
EARLIEST = "f" * 16


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize(
    ("holder", "told"),
    [
        (EARLIER, "{}"),
        ("itself", "{}"),
        ("", "{}"),
        # Hand's Redis shows 1 s since 1970 when a node joins.
        (EARLIEST, '{"started": 0.5}'),
        # No process of this package wrote these.
        *(
            (OTHER, told)
            for told in (
                "{",
                "{}",
                '{"started": "1.5"}',
                '{"started": true}',
                '{"started": NaN}',
                f'{{"started": {"9" * 400}}}',
            )
        ),
    ],
)
def test_a_name_that_a_failover_gave_back_to_an_earlier_process_is_taken_again(
    loss: Callable[[Hand], None], holder: str, told: str
) -> None:
    hand = _named(EARLIER)
    holder = hand.machine.session if holder == "itself" else holder
    loss(hand)
    assert not hand.owns()
    _contest(hand, holder, told)
    run = hand.run()
    asked = asks(run)
    assert (asked["joining"], asked["take_from"]) == (True, holder)
    hand.answer(run)
    assert hand.state is NodeState.LIVE
    assert hand.owns()


def test_a_named_node_whose_name_is_taken_while_it_looks_asks_who_began_first() -> None:
    hand = _named(EARLIER)
    _superseded_by_a_message(hand)
    _contest(hand, EARLIER)
    hand.answer(hand.run(), BeatStatus.MOVED)
    assert hand.machine.claim.state is ClaimState.LOOKING
    _superseded_by_a_message(hand)
    _contest(hand, OTHER, '{"started": 1.5}')
    assert (hand.state, hand.machine.claim.state) == (NodeState.SUPERSEDED, ClaimState.YIELDED)


def test_a_look_that_is_answered_after_the_stop_claims_nothing() -> None:
    hand = _named(EARLIER)
    _superseded_by_a_message(hand)
    run = hand.run()
    hand.machine.stop()
    entries = {"me": (OTHER + '{"started": 1.5}').encode()}
    run.done(seen(hand.stamp, [], entries), hand.now, hand.now)
    assert hand.state is NodeState.LEAVING
    assert hand.machine.error is None


def test_of_two_processes_that_replaced_the_same_one_the_one_that_began_later_keeps_the_name() -> (
    None
):
    for started, state in ((0.5, NodeState.JOINING), (1.5, NodeState.SUPERSEDED)):
        hand = _named(EARLIER)
        _superseded_by_an_answer(hand)
        _contest(hand, OTHER, json.dumps({"started": started, "replaced": [EARLIER]}))
        assert hand.state is state


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("told", [LATER, '{"started": 1.0}'])
def test_of_two_processes_with_one_name_the_one_that_began_later_keeps_it(
    loss: Callable[[Hand], None], told: str
) -> None:
    hand = _named(EARLIER)
    loss(hand)
    _contest(hand, OTHER, told)
    assert hand.state is NodeState.SUPERSEDED


def test_a_node_whose_name_is_another_process_takes_no_lock_any_more() -> None:
    hand = _named(EARLIER, locks=LOCKS)
    book = hand.machine.book
    assert book is not None
    _superseded_by_an_answer(hand)
    assert book.take([(b"key", 5, b"key")], hand.now) is not None
    _contest(hand, OTHER)
    assert hand.state is NodeState.SUPERSEDED
    assert book.left
    assert book.take([(b"other", 6, b"other")], hand.now) is None


def test_to_have_begun_a_moment_later_is_enough_to_keep_a_name() -> None:
    for started, state in ((1.0 - 5e-7, NodeState.JOINING), (1.0, NodeState.SUPERSEDED)):
        hand = _named(EARLIER)
        _superseded_by_an_answer(hand)
        _contest(hand, OTHER, json.dumps({"started": started}))
        assert hand.state is state


def test_who_was_replaced_stays_so_whatever_a_clock_says() -> None:
    hand = _named()
    session = hand.machine.session
    _superseded_by_an_answer(hand)
    _contest(hand, OTHER, json.dumps({"started": 0.5, "replaced": ["x", session]}))
    assert hand.state is NodeState.SUPERSEDED


def test_the_process_that_took_the_name_says_from_whom() -> None:
    hand = _named(EARLIER, json.dumps({"replaced": [EARLIEST, "a", "b", "c"]}))
    assert asks(hand.beat_due())["told"]["replaced"] == [EARLIER, EARLIEST, "a", "b"]


@pytest.mark.parametrize("told", ['{"replaced": 3}', '{"replaced": [3, null]}', "{}", "nonsense"])
def test_who_does_not_say_properly_whom_it_replaced_replaced_nobody(told: str) -> None:
    hand = _named(EARLIER, told)
    holds = [] if told == "nonsense" else [EARLIER]
    assert asks(hand.beat_due())["told"].get("replaced", []) == holds


def test_a_name_that_was_taken_back_may_be_lost_for_good_later() -> None:
    hand = _named(EARLIER)
    _superseded_by_an_answer(hand)
    _contest(hand, EARLIER)
    hand.answer(hand.run())
    _superseded_by_an_answer(hand)
    _contest(hand, OTHER)
    assert hand.state is NodeState.SUPERSEDED


@pytest.mark.parametrize("loss", LOSSES)
def test_a_node_of_no_name_whose_name_is_taken_joins_under_another(
    loss: Callable[[Hand], None],
) -> None:
    hand = Hand().live()
    session, replicas = hand.machine.session, hand.machine.replicas
    loss(hand)
    assert hand.state is NodeState.JOINING
    assert not hand.owns()
    hand.subscribe()  # Its own channel has its name.
    asked = asks(hand.run())
    assert asked["joining"]
    assert asked["node"] == hand.machine.name
    assert asked["node"].startswith("me.")
    assert asked["session"] != session
    assert not set(hand.machine.replicas) & set(replicas)
    assert all(replica.node == asked["node"] for replica in hand.machine.replicas)


def test_members_under_a_name_that_was_lost_are_taken_off_once() -> None:
    hand = Hand().live()
    old = [replica.member for replica in hand.machine.replicas]
    _superseded_by_an_answer(hand)
    hand.subscribe()
    run = hand.run()
    assert list(asks(run)["drop"]) == old
    hand.answer(run)
    assert not asks(hand.beat_due())["drop"]


def test_a_node_with_a_channel_of_its_own_subscribes_anew_under_another_name() -> None:
    hand = Hand(locks=LOCKS).live()
    _superseded_by_an_answer(hand)
    assert isinstance(hand.next(), Subscribe)
    # No change after the first fetch may be missed.
    assert isinstance(hand.next(), Wait)


def test_a_node_of_no_name_whose_name_is_in_use_joins_under_another() -> None:
    hand = Hand()
    hand.start()
    hand.subscribe()
    hand.answer(hand.run(), BeatStatus.TAKEN)
    hand.subscribe()
    run = hand.run()
    assert asks(run)["node"].startswith("me.")
    hand.answer(run)
    assert hand.state is NodeState.LIVE
    assert hand.machine.name in hand.view.ring


def test_the_message_of_its_own_join_changes_nothing() -> None:
    hand = Hand().live()
    points = tuple(replica.point for replica in hand.machine.replicas)
    own = hand.change(node="me", points=points, session=hand.machine.session)
    hand.others.pop("me")
    hand.tell(replace(own, stamp=replace(own.stamp, members=len(hand.members()))))
    assert hand.state is NodeState.LIVE
    assert hand.machine.sight.stamp is not None
    assert hand.machine.sight.stamp.epoch == 8
    assert hand.owns()


# --- heartbeats -------------------------------------------------------------------------------


@pytest.mark.parametrize("dice", [0.0, 0.999])
def test_the_next_heartbeat_is_up_to_a_tenth_early_from_when_this_one_was_sent(
    dice: float,
) -> None:
    hand = Hand()
    hand.dice.value = dice
    hand.soonest = None
    hand.start()
    hand.subscribe()
    run = hand.run()
    sent = hand.now
    hand.wait(0.4)
    hand.answer(run, sent=sent)
    assert hand.waits_until() == pytest.approx(sent + BEAT * (1 - 0.1 * dice))


def test_the_deadline_counts_from_when_the_heartbeat_was_sent() -> None:
    hand = Hand()
    hand.start()
    hand.subscribe()
    run = hand.run()
    sent = hand.now
    hand.wait(0.4)
    hand.answer(run, sent=sent)
    assert hand.view.deadline == sent + TTL


def test_heartbeats_that_were_answered_are_counted_and_timed() -> None:
    hand = Hand().live()
    run = hand.beat_due()
    sent = hand.now
    hand.wait(0.25)
    hand.answer(run, sent=sent)
    assert (hand.machine.counters.heartbeats, hand.machine.beat_took) == (2, 0.25)


def test_a_heartbeat_asks_for_nothing_that_is_known() -> None:
    asked = asks(Hand().live().beat_due())
    assert not asked["joining"]
    assert not asked["fetch"]


@pytest.mark.parametrize("dice", [0.0, 0.999])
@pytest.mark.parametrize("soonest", [0.3, 0.0, -2.0])
def test_the_node_beats_a_moment_after_the_next_expiry(dice: float, soonest: float) -> None:
    hand = Hand()
    hand.dice.value = dice
    hand.soonest = soonest
    hand.live()
    at = hand.now + max(soonest, 0.0) + 0.001
    assert at <= hand.waits_until() <= at + MOMENT
    assert hand.waits_until() == pytest.approx(at + dice * MOMENT)


def test_an_expiry_that_another_node_has_swept_is_waited_for_no_more() -> None:
    hand = Hand()
    hand.dice.value = 0.999
    hand.soonest = 0.3
    hand.live()
    regular = hand.machine._at.beat
    assert hand.waits_until() < regular
    hand.wait(0.31)
    hand.tell(hand.change(ChangeKind.EXPIRE, "you"))
    assert hand.waits_until() == regular


def test_an_expiry_that_the_node_has_swept_itself_is_waited_for_no_more() -> None:
    hand = Hand()
    hand.soonest = 0.3
    hand.live()
    hand.soonest = None
    hand.answer(hand.beat_due())
    assert hand.waits_until() == hand.machine._at.beat > hand.now


def test_an_expiry_after_the_next_heartbeat_changes_nothing() -> None:
    hand = Hand()
    hand.soonest = 30.0
    hand.live()
    assert hand.waits_until() <= hand.now + BEAT


def test_what_happened_to_its_name_before_the_ring_was_read_is_no_news() -> None:
    hand = Hand().live()
    stamp, due = hand.stamp, hand.waits_until()
    old = replace(stamp, epoch=stamp.epoch - 1, tag="06", at=stamp.at - 1)
    hand.tell(replace(hand.change(ChangeKind.LEAVE, "me"), prev="05", stamp=old))
    assert hand.waits_until() == due


def test_the_same_history_with_another_number_of_members_is_fetched_at_once() -> None:
    hand = Hand().live()
    run = hand.beat_due()
    hand.answer(run, stamp=replace(hand.stamp, members=99))
    assert asks(hand.run())["fetch"]


def test_being_put_back_is_known_without_a_fetch() -> None:
    hand = Hand().live()
    hand.tell(hand.change(ChangeKind.EXPIRE, "you"))
    before = hand.stamp
    run = hand.beat_due()
    hand.change(points=())
    hand.others.pop("new")
    hand.answer(run, before=before.tag)
    assert hand.machine.sight.stamp is not None
    assert hand.machine.sight.stamp.tag == hand.stamp.tag
    assert hand.machine.counters.gaps == 0
    assert hand.waits_until() > hand.now + 2 * MOMENT


def test_being_put_back_on_a_ring_of_another_size_is_a_gap() -> None:
    hand = Hand().live()
    before = hand.stamp
    run = hand.beat_due()
    hand.change()  # not told, and not our own either
    hand.answer(run, before=before.tag)
    assert hand.machine.counters.gaps == 1


# --- failing ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("interval", "most"), [(1.0, 0.5), (10.0, 2.0), (0.1, 0.05)])
@pytest.mark.parametrize("dice", [0.0, 0.999])
def test_retries_double_up_to_half_a_heartbeat_and_two_seconds(
    interval: float, most: float, dice: float
) -> None:
    hand = Hand(heartbeat_interval=interval, ttl=1000.0, scoring=Scoring.expiry(1000.0))
    hand.dice.value = dice
    hand.soonest = None
    hand.live()
    run = hand.beat_due()
    for tries in range(40):
        run.failed(GONE, hand.now)
        wait = min(most, 0.05 * 2**tries) * (0.5 + 0.5 * dice)
        assert hand.waits_until() == pytest.approx(hand.now + wait)
        run = hand.beat_due()
    assert hand.machine.counters.failures == 40


def test_an_answer_ends_the_trouble() -> None:
    hand = Hand().live()
    run = hand.beat_due()
    assert not hand.machine.failing
    run.failed(GONE, hand.now)
    assert hand.machine.failing
    assert hand.machine.failed_since == hand.now
    assert hand.machine.last_error is GONE
    assert hand.owns()
    hand.answer(hand.beat_due())
    assert not hand.machine.failing
    assert hand.machine.failed_since is None
    assert hand.machine.last_error is None
    # The retries begin anew with a short wait.
    run = hand.beat_due()
    run.failed(GONE, hand.now)
    assert hand.waits_until() <= hand.now + 0.05


def test_a_fetch_that_failed_is_still_due_at_the_retry() -> None:
    hand = Hand().live()
    hand.machine._at.beat = hand.machine.sight.fetch_at = hand.now
    hand.run().failed(GONE, hand.now)
    assert asks(hand.beat_due())["fetch"]


def test_failures_do_not_hurry_for_an_expiry() -> None:
    hand = Hand()
    hand.soonest = 0.01
    hand.live()
    hand.beat_due().failed(GONE, hand.now)
    assert hand.waits_until() >= hand.now + 0.025


def test_a_ring_that_may_differ_is_read_whatever_else_is_heard() -> None:
    hand = Hand().live()
    run = hand.beat_due()
    hand.tell(hand.change(node="b", was=99))
    assert hand.machine.sight.state is SightState.UNCERTAIN
    hand.change(node="c")
    hand.tell(hand.change(node="d"))
    hand.change(node="e")
    # The answer tells of still another change.
    hand.answer(run)
    assert hand.machine.sight.state is SightState.DEAF
    # By its time it is old, by its number it is not: a failover may have put the clock back.
    old = hand.change(node="f")
    hand.tell(replace(old, prev="zz", stamp=replace(old.stamp, at=1)))
    assert hand.machine.sight.state is SightState.DEAF
    _reads(hand)


def test_a_ring_that_may_differ_is_read_though_missing_messages_come() -> None:
    hand = Hand().live()
    late = hand.change(node="b")
    hand.tell(hand.change(node="c"))
    hand.tell(hand.change(node="d"))
    assert hand.machine.sight.state is SightState.BEHIND
    hand.tell(replace(late, stamp=replace(late.stamp, members=99)))
    assert hand.machine.sight.state is SightState.UNCERTAIN
    _reads(hand)


def test_what_happened_until_an_answer_that_came_too_late_is_read() -> None:
    hand = Hand().live()
    run = hand.beat_due()
    sent = hand.now
    hand.change(node="b")
    hand.wait(2 * TTL)
    hand.next()
    assert hand.state is NodeState.FENCED
    hand.answer(run, sent=sent)
    assert (hand.state, hand.machine.sight.state) == (NodeState.FENCED, SightState.DEAF)
    _reads(hand)


def _reads(hand: Hand) -> None:
    assert hand.machine.in_doubt
    step = hand.next()
    run = step if isinstance(step, Run) else hand.beat_due()
    assert asks(run)["fetch"]
    hand.answer(run)
    assert hand.machine.sight.state is SightState.CURRENT
    assert set(hand.view.ring.nodes) == {"me", *hand.others}


# --- fencing ----------------------------------------------------------------------------------


def _failing_until(hand: Hand, deadline: float) -> None:
    while (until := hand.waits_until()) < deadline:
        hand.now = until
        hand.run().failed(GONE, hand.now)


def test_a_node_that_cannot_renew_owns_nothing_from_its_deadline_on() -> None:
    hand = Hand().live()
    deadline = hand.view.deadline
    _failing_until(hand, deadline)
    hand.now = deadline - 1e-6
    assert hand.owns()
    hand.now = deadline
    # Readers need not wait for the loop: the view they have says when it ends.
    assert not hand.owns()
    hand.next()
    assert hand.state is NodeState.FENCED
    assert hand.view.ranges == ()
    assert hand.machine.counters.fences == 1


def test_the_node_wakes_up_at_its_deadline() -> None:
    hand = Hand(heartbeat_interval=10.0, ttl=20.0, scoring=Scoring.expiry(20.0)).live()
    run = hand.beat_due()
    hand.now = hand.view.deadline - 0.01
    run.failed(GONE, hand.now)
    assert hand.waits_until() == hand.view.deadline


def test_a_fenced_node_asks_for_the_ring_and_comes_back() -> None:
    hand = Hand().live()
    hand.now = hand.view.deadline
    run = hand.run()
    assert hand.state is NodeState.FENCED
    asked = asks(run)
    assert asked["fetch"]
    assert not asked["joining"]
    hand.change(node="third", points=(77,))
    hand.answer(run)
    assert hand.state is NodeState.LIVE
    assert hand.owns()
    assert "third" in hand.view.ring


def test_an_answer_after_the_deadline_to_a_heartbeat_sent_before_does_not_bring_it_back() -> None:
    hand = Hand().live()
    hand.now = hand.view.deadline - 0.1
    run = hand.run()
    assert not asks(run)["fetch"]
    sent = hand.now
    hand.wait(0.2)
    hand.next()  # an asyncio loop may look while the answer is on its way
    assert hand.state is NodeState.FENCED
    hand.answer(run, sent=sent)
    assert hand.state is NodeState.FENCED
    assert not hand.owns()
    run = hand.run()
    assert asks(run)["fetch"]
    hand.answer(run)
    assert hand.owns()


def test_an_answer_older_than_the_ttl_gives_nothing() -> None:
    hand = Hand().live()
    run = hand.beat_due()
    sent = hand.now
    hand.wait(2 * TTL)
    hand.answer(run, sent=sent)
    assert not hand.owns()
    hand.next()
    assert hand.state is NodeState.FENCED


# --- stopping ---------------------------------------------------------------------------------


def test_a_node_that_stops_owns_nothing_at_once_and_leaves() -> None:
    hand = Hand().live()
    hand.machine.stop()
    assert hand.state is NodeState.LEAVING
    assert not hand.owns()
    run = hand.run()
    assert run.command.script.name == "leave"
    run.done(LeaveStatus.OK, hand.now, hand.now)
    assert hand.state is NodeState.STOPPED
    assert hand.view.ring.node_count == 0
    assert isinstance(hand.next(), Finished)
    hand.machine.stop()
    assert hand.state is NodeState.STOPPED


def test_a_node_that_stops_to_stay_gives_up_its_name_and_nothing_else() -> None:
    hand = _named()
    replicas = [replica.member for replica in hand.machine.replicas]
    hand.machine.stop(stay=True)
    assert not hand.owns()
    run = hand.run()
    assert run.command.script.name == "park"
    assert list(run.command.arguments[7:]) == replicas
    run.done(LeaveStatus.OK, hand.now, hand.now)
    assert hand.state is NodeState.STOPPED
    assert isinstance(hand.next(), Finished)


def test_of_two_stops_the_first_says_whether_the_node_stays() -> None:
    hand = _named()
    hand.machine.stop(stay=True)
    hand.machine.stop()
    assert hand.run().command.script.name == "park"


def test_a_start_that_fails_leaves_nothing_behind_though_the_node_stayed_before() -> None:
    hand = _named()
    hand.machine.stop(stay=True)
    hand.run().done(LeaveStatus.OK, hand.now, hand.now)
    hand.start(strict=True)
    hand.subscribe()
    hand.run().done(seen(hand.stamp, []), hand.now, hand.now)
    hand.run().failed(GONE, hand.now)
    assert hand.state is NodeState.FAILED
    assert hand.run().command.script.name == "leave"


def test_a_node_that_stayed_joins_with_the_very_replicas() -> None:
    hand = Hand(named=True, n_replicas=2)
    old = [(b"11:me:x", 1.0), (b"12:me:z", 1.0)]
    away = {"me": b"-" * 16 + b"{}"}
    _look(hand).done(seen(hand.stamp, old, away), hand.now, hand.now)
    asked = asks(hand.run())
    assert asked["take_from"] == ""
    assert [replica.member for replica in hand.machine.replicas] == [b"11:me:x", b"12:me:z"]


def test_a_node_that_cannot_leave_stops_all_the_same() -> None:
    hand = Hand().live()
    hand.machine.stop()
    hand.run().failed(GONE, hand.now)
    assert isinstance(hand.next(), Finished)
    assert hand.state is NodeState.STOPPED


def test_a_node_that_was_never_on_the_ring_leaves_without_a_word() -> None:
    hand = Hand()
    hand.start()
    hand.machine.stop()
    assert isinstance(hand.next(), Finished)
    assert hand.state is NodeState.STOPPED


def test_a_node_whose_join_was_not_answered_leaves_to_be_sure() -> None:
    hand = Hand()
    hand.start()
    hand.subscribe()
    hand.run().failed(GONE, hand.now)
    hand.machine.stop()
    assert hand.run().command.script.name == "leave"


@pytest.mark.parametrize("named", [True, False])
def test_a_node_that_loses_its_name_after_the_stop_stops_all_the_same(named: bool) -> None:
    hand = _named() if named else Hand().live()
    hand.machine.stop()
    hand.tell(hand.change(node="me", points=(9,), session=OTHER))
    assert hand.state is NodeState.LEAVING
    run = hand.run()
    assert run.command.script.name == "leave"
    run.done(LeaveStatus.SUPERSEDED, hand.now, hand.now)
    assert isinstance(hand.next(), Finished)
    assert hand.state is NodeState.STOPPED


def test_an_answer_after_the_stop_does_not_bring_the_node_back() -> None:
    hand = Hand().live()
    run = hand.beat_due()
    hand.machine.stop()
    hand.answer(run)
    assert hand.state is NodeState.LEAVING
    assert not hand.owns()


def test_an_answer_after_the_name_was_lost_does_not_bring_the_node_back() -> None:
    hand = Hand(named=True)
    _look(hand).done(seen(hand.stamp, []), hand.now, hand.now)
    hand.answer(hand.run())
    hand.now = hand.view.deadline
    run = hand.run()  # with the ring in the answer, since it is fenced
    _superseded_by_a_message(hand)
    hand.answer(run)
    assert hand.state is NodeState.JOINING
    assert not hand.owns()
    _contest(hand, OTHER)
    hand.answer(run)
    assert hand.state is NodeState.SUPERSEDED
    assert isinstance(hand.next(), Finished)


def test_an_answer_to_the_name_that_was_lost_is_not_the_new_name_s() -> None:
    hand = Hand().live()
    hand.now = hand.view.deadline
    run = hand.run()
    _superseded_by_a_message(hand)
    hand.answer(run)
    assert hand.state is NodeState.JOINING
    assert not hand.owns()


def test_a_stopped_node_may_start_again_with_a_new_session() -> None:
    hand = Hand().live()
    session = hand.machine.session
    hand.machine.stop()
    hand.run().done(LeaveStatus.OK, hand.now, hand.now)
    hand.next()
    hand.live()
    assert hand.machine.session != session
    assert hand.owns()


def _restarted(hand: Hand) -> Hand:
    hand.machine.stop()
    hand.run().done(LeaveStatus.OK, hand.now, hand.now)
    assert isinstance(hand.next(), Finished)
    hand.start()
    return hand


@pytest.mark.parametrize("runs", [1, 2])
def test_a_node_does_not_end_for_a_session_of_its_own_of_before_a_stop(runs: int) -> None:
    """Redis lost the stop, obeyed a late heartbeat of before it, and its clock went back."""
    hand = _named()
    session = hand.machine.session
    for _ in range(runs):
        _restarted(hand).subscribe()
        run = hand.run()
        run.done(seen(hand.stamp, []), hand.now, hand.now)
        hand.answer(hand.run())
    _superseded_by_an_answer(hand)
    _contest(hand, session, '{"started": 1.5}')
    assert hand.state is NodeState.JOINING
    assert asks(hand.run())["take_from"] == session


def test_a_node_that_starts_again_knows_no_more_of_its_ring_than_its_history() -> None:
    hand = Hand().live()
    hand.answer(hand.beat_due(), history="1")
    hand.beat_due().failed(GONE, hand.now)
    machine = _restarted(hand).machine
    assert (machine.sight.stamp, machine.history, machine.sight.state) == (
        None,
        "1",
        SightState.UNKNOWN,
    )
    assert (machine.error, machine.last_error, machine.failed_since) == (None, None, None)
    hand.subscribe()
    asked = asks(hand.run())
    assert (asked["joining"], asked["fetch"], asked["history"]) == (True, True, "1")
    assert not {"started", "replaced", "sees"} & asked["told"].keys()


def test_a_node_that_starts_again_after_redis_was_emptied_counts_the_loss() -> None:
    hand = Hand()
    hand.start()
    hand.subscribe()
    hand.answer(hand.run(), history="1")
    hand.machine.stop()
    hand.run().done(LeaveStatus.OK, hand.now, hand.now)
    hand.start()
    hand.subscribe()
    hand.answer(hand.run(), history="2")
    assert hand.machine.counters.losses == 1


def test_a_node_without_locks_holds_others_off_for_its_ttl_after_a_loss() -> None:
    for locks in (None, replace(LOCKS, locking=False)):
        hand = Hand(locks=locks).live()
        assert asks(hand.beat_due())["lock_ttl"] == TTL


def test_a_named_node_that_starts_again_has_replaced_nobody_yet() -> None:
    hand = _named(EARLIER)
    assert asks(hand.beat_due())["told"]["replaced"] == [EARLIER]
    hand = _restarted(hand)
    assert hand.machine.claim.state is ClaimState.LOOKING
    hand.subscribe()
    hand.run().done(seen(hand.stamp, []), hand.now, hand.now)
    assert "replaced" not in asks(hand.run())["told"]


def test_a_node_that_starts_again_waits_after_a_failure_as_one_that_never_failed() -> None:
    hand = Hand().live()
    for _ in range(5):
        hand.beat_due().failed(GONE, hand.now)
    _restarted(hand)
    hand.subscribe()
    hand.run().failed(GONE, hand.now)
    assert hand.waits_until() == pytest.approx(hand.now + 0.05, abs=0.03)


# --- a strict start ---------------------------------------------------------------------------


def test_a_strict_start_ends_when_the_subscription_is_refused() -> None:
    hand = Hand()
    hand.start(strict=True)
    step = hand.next()
    assert isinstance(step, Subscribe)
    hand.machine.unsubscribed(step.number, REFUSED, hand.now)
    assert hand.state is NodeState.FAILED
    assert hand.machine.error is REFUSED
    assert isinstance(hand.next(), Finished)


def test_a_strict_start_ends_when_redis_is_silent_about_the_subscription() -> None:
    hand = Hand()
    hand.start(strict=True)
    step = hand.next()
    assert isinstance(step, Subscribe)
    hand.machine.unsubscribed(step.number, None, hand.now)
    assert hand.state is NodeState.FAILED
    assert isinstance(hand.machine.error, RedisUnavailable)
    assert "subscription" in str(hand.machine.error)


@pytest.mark.parametrize("options", [{}, {"named": True}, {"placement": "balanced"}])
def test_a_strict_start_ends_when_the_join_fails(options: dict[str, Any]) -> None:
    hand = Hand(**options)
    hand.start(strict=True)
    hand.subscribe()
    run = hand.run()
    run.failed(REFUSED, hand.now)
    assert hand.state is NodeState.FAILED
    assert hand.machine.error is REFUSED
    assert not hand.owns()
    if run.command.script.name == "beat":
        # It may have got through.
        leave = hand.run()
        assert leave.command.script.name == "leave"
        leave.failed(GONE, hand.now)
    assert isinstance(hand.next(), Finished)
    assert hand.machine.error is REFUSED


def test_a_strict_start_is_over_once_the_node_is_live() -> None:
    hand = Hand()
    hand.start(strict=True)
    hand.subscribe()
    hand.answer(hand.run())
    hand.beat_due().failed(GONE, hand.now)
    hand.machine.unsubscribed(hand.number, GONE, hand.now)
    assert hand.state is NodeState.LIVE


def test_a_strict_start_that_has_failed_does_not_come_back_with_an_answer() -> None:
    hand = Hand()
    hand.start(strict=True)
    hand.subscribe()
    run = hand.run()
    hand.machine.unsubscribed(hand.number, GONE, hand.now)
    hand.answer(run)
    assert hand.state is NodeState.FAILED
    assert not hand.owns()


def test_a_node_that_started_strictly_and_has_to_join_again_tries_on() -> None:
    hand = Hand()
    hand.start(strict=True)
    hand.subscribe()
    hand.answer(hand.run())
    _superseded_by_a_message(hand)
    hand.subscribe()
    hand.run().failed(GONE, hand.now)
    assert hand.state is NodeState.JOINING


def test_a_start_that_is_not_strict_tries_on() -> None:
    hand = Hand()
    hand.start()
    step = hand.next()
    assert isinstance(step, Subscribe)
    hand.machine.unsubscribed(step.number, REFUSED, hand.now)
    assert hand.state is NodeState.JOINING
    hand.now = hand.waits_until()
    hand.subscribe()
    hand.run().failed(REFUSED, hand.now)
    hand.now = hand.waits_until()
    hand.answer(hand.run())
    assert hand.state is NodeState.LIVE


# --- the channel ------------------------------------------------------------------------------


def test_a_change_that_continues_what_is_known_is_applied_without_a_word_to_redis() -> None:
    hand = Hand().live()
    due = hand.waits_until()
    hand.tell(hand.change(node="new", points=(50, 60)))
    assert hand.view.ring.points_of("new") == (50, 60)
    hand.tell(hand.change(ChangeKind.LEAVE, "new"))
    hand.tell(hand.change(ChangeKind.EXPIRE, "you"))
    assert hand.view.ring.nodes == ("me",)
    assert hand.waits_until() == due
    assert hand.machine.counters.gaps == 0


def test_a_change_that_is_told_twice_is_applied_once() -> None:
    hand = Hand().live()
    change = hand.change()
    hand.tell(change)
    ring = hand.view.ring
    hand.tell(change)
    assert hand.view.ring is ring
    assert hand.machine.counters.gaps == 0


def test_a_change_from_before_what_was_fetched_is_passed_over() -> None:
    hand = Hand().live()
    hand.change()
    late = hand.change(ChangeKind.LEAVE, "new")
    hand.machine._at.beat = hand.machine.sight.fetch_at = hand.now
    hand.answer(hand.run())
    due = hand.waits_until()
    hand.tell(late)
    hand.tell(replace(late, prev="05", stamp=replace(late.stamp, epoch=6, tag="06")))
    assert hand.waits_until() == due
    assert hand.machine.counters.gaps == 0


@pytest.mark.parametrize("dice", [0.0, 0.999])
def test_a_gap_is_fetched_after_a_moment_that_differs_from_node_to_node(dice: float) -> None:
    hand = Hand()
    hand.dice.value = dice
    hand.live()
    hand.wait(0.1)
    hand.change(node="lost")
    hand.tell(hand.change(node="heard"))
    assert hand.machine.counters.gaps == 1
    assert "heard" not in hand.view.ring
    assert hand.waits_until() == pytest.approx(hand.now + MOMENT * (0.5 + dice))
    hand.now = hand.waits_until()
    run = hand.run()
    assert asks(run)["fetch"]
    hand.answer(run)
    assert {"lost", "heard"} <= set(hand.view.ring.nodes)
    assert hand.machine.counters.fetches == 2


def test_an_answer_tells_of_a_ring_whose_message_looked_older_than_what_is_known() -> None:
    """Redis lost the ring, and has a clock that is behind: the message came before the answer."""
    hand = Hand().live()
    run = hand.beat_due()
    began = replace(hand.stamp, epoch=1, tag="other", at=hand.stamp.at - 1)
    hand.tell(replace(hand.change(node="back"), prev="", stamp=began))
    hand.answer(run, stamp=began, before="")
    assert hand.machine.counters.gaps == 1
    hand.stamp = began
    hand.now = hand.waits_until()
    hand.answer(hand.run())
    assert "back" in hand.view.ring.nodes


def test_a_gap_of_a_long_heartbeat_waits_a_quarter_of_a_second() -> None:
    hand = Hand(heartbeat_interval=10.0, ttl=60.0, scoring=Scoring.expiry(60.0)).live()
    hand.change(node="lost")
    hand.tell(hand.change(node="heard"))
    assert hand.waits_until() == pytest.approx(hand.now + 0.25)


def test_further_changes_in_a_gap_do_not_put_the_fetch_off() -> None:
    hand = Hand().live()
    hand.change(node="lost")
    hand.tell(hand.change(node="heard"))
    due = hand.waits_until()
    hand.wait(0.1)
    hand.tell(hand.change(node="too"))
    assert hand.waits_until() == due
    assert hand.machine.counters.gaps == 1


def test_a_new_history_after_a_wipe_is_a_gap() -> None:
    hand = Hand().live()
    hand.stamp = Stamp(0, "", 0, hand.stamp.at + 1)
    hand.tell(hand.change())
    assert hand.machine.counters.gaps == 1


@pytest.mark.parametrize("untold", ["before", "in it"])
def test_a_change_with_another_number_of_members_than_expected_is_fetched(untold: str) -> None:
    hand = Hand().live()
    hand.soonest = None
    change = hand.change()
    if untold == "before":
        # What was added without telling makes up for what this change took away besides.
        change = replace(change, was=99)
    else:
        change = replace(change, stamp=replace(change.stamp, members=99))
    hand.tell(change)
    assert "new" in hand.view.ring
    assert hand.waits_until() == pytest.approx(hand.now + MOMENT)
    hand.now = hand.waits_until()
    assert asks(hand.run())["fetch"]


@pytest.mark.parametrize("kind", [ChangeKind.EXPIRE, ChangeKind.LEAVE])
def test_a_node_that_was_taken_off_comes_back_at_once(kind: ChangeKind) -> None:
    hand = Hand().live()
    replicas = hand.machine.replicas
    hand.tell(hand.change(kind, "me"))
    assert "me" not in hand.view.ring
    asked = asks(hand.run())
    assert asked["members"] == tuple(replica.member for replica in replicas)


def test_a_fenced_node_that_was_taken_off_comes_back_too() -> None:
    hand = Hand().live()
    deadline = hand.view.deadline
    hand.now = deadline
    hand.run().failed(GONE, hand.now)
    hand.tell(hand.change(ChangeKind.EXPIRE, "me"))
    assert hand.state is NodeState.FENCED
    assert asks(hand.run())["fetch"]


def test_garbage_on_the_nodes_own_channel_is_counted_once_without_locks() -> None:
    hand = Hand().live()
    hand.machine.told(hand.number, KEYS.node_channel("me"), b"garbage", hand.now)
    assert hand.machine.counters.bad_messages == 1


def test_a_heartbeat_says_the_load_once_the_application_did() -> None:
    hand = Hand().live()
    assert "load" not in asks(hand.beat_due())["told"]
    hand.machine.load = 3.0
    hand.now += 1000.0
    assert asks(hand.run())["told"]["load"] == 3.0


GARBAGE = [b"", b"*", b"\xff\xfe", b"{}", b'{"v": 2}', b'{"v": 1}', b"[" * 5000]


@pytest.mark.parametrize("payload", GARBAGE)
def test_garbage_on_the_channel_is_counted_and_nothing_else(payload: bytes) -> None:
    hand = Hand().live()
    due, view = hand.waits_until(), hand.view
    hand.tell_payload(payload)
    assert hand.machine.counters.bad_messages == 1
    assert hand.waits_until() == due
    assert hand.view is view


def test_what_an_old_subscription_says_is_not_heard() -> None:
    hand = Hand().live()
    old = hand.number
    hand.machine.unsubscribed(old, GONE, hand.now)
    hand.now = hand.waits_until()
    hand.subscribe()
    hand.tell(hand.change(), number=old)
    hand.machine.subscribed(old, hand.now)
    hand.machine.unsubscribed(old, GONE, hand.now)
    assert "new" not in hand.view.ring
    assert hand.machine.counters.subscriptions == 2


# --- what is told while a heartbeat is under way ----------------------------------------------


def test_a_change_told_before_an_older_ring_is_answered_is_applied_after_it() -> None:
    hand = Hand()
    hand.start()
    hand.subscribe()
    run = hand.run()
    reply = hand.reply(run)
    hand.tell(hand.change(node="new", points=(50,)))
    run.done(reply, hand.now, hand.now)
    assert "new" in hand.view.ring
    assert hand.machine.sight.stamp == hand.stamp


def test_an_answer_from_before_what_was_told_is_no_gap() -> None:
    hand = Hand().live()
    run = hand.beat_due()
    reply = hand.reply(run)
    hand.tell(hand.change(node="new"))
    hand.tell(hand.change(node="newer"))
    run.done(reply, hand.now, hand.now)
    assert hand.machine.counters.gaps == 0
    assert hand.machine.sight.stamp == hand.stamp
    assert {"new", "newer"} <= set(hand.view.ring.nodes)


def test_an_answer_from_before_what_was_known_when_it_was_asked_for_is_a_gap() -> None:
    hand = Hand().live()
    before = hand.stamp
    hand.tell(hand.change(node="new"))
    run = hand.beat_due()
    # A failover lost the change.
    hand.answer(run, stamp=before, before=before.tag)
    assert hand.machine.counters.gaps == 1


# --- a gap that only the heartbeat shows ------------------------------------------------------


def test_a_lost_message_is_found_at_the_next_heartbeat_and_fetched_a_moment_later() -> None:
    hand = Hand().live()
    hand.change(node="lost")
    hand.answer(hand.beat_due())
    assert "lost" not in hand.view.ring
    until = hand.waits_until()
    assert hand.now + 0.5 * MOMENT <= until <= hand.now + 1.5 * MOMENT
    hand.now = until
    run = hand.run()
    assert asks(run)["fetch"]
    hand.answer(run)
    assert "lost" in hand.view.ring


def test_a_message_that_comes_after_the_heartbeat_all_the_same_spares_the_fetch() -> None:
    hand = Hand().live()
    late = hand.change(node="late")
    hand.answer(hand.beat_due())
    hand.wait(0.01)
    hand.tell(late)
    assert "late" in hand.view.ring
    assert hand.waits_until() > hand.now + 2 * MOMENT


def test_after_a_change_that_no_message_told_of_the_subscription_is_made_anew() -> None:
    hand = Hand().live()
    hand.change(node="lost")
    hand.answer(hand.beat_due())
    hand.now = hand.waits_until()
    hand.answer(hand.run())
    step = hand.next()
    assert isinstance(step, Subscribe)
    assert step.number == hand.number + 1


def test_a_subscription_that_tells_of_what_came_later_is_kept() -> None:
    hand = Hand().live()
    hand.change(node="lost")
    hand.answer(hand.beat_due())
    hand.tell(hand.change(node="heard"))
    hand.now = hand.waits_until()
    hand.answer(hand.run())
    assert hand.machine.counters.fetches == 2
    assert {"lost", "heard"} <= set(hand.machine.sight.ring.nodes)
    hand.waits_until()


def test_a_subscription_that_tells_late_and_in_order_is_kept() -> None:
    hand = Hand().live()
    first, _ = hand.change(node="first"), hand.change(node="second")
    hand.answer(hand.beat_due())
    hand.tell(first)
    hand.now = hand.waits_until()
    hand.answer(hand.run())
    assert hand.machine.counters.fetches == 2
    hand.waits_until()


def test_after_a_gap_that_a_message_showed_the_subscription_is_kept() -> None:
    hand = Hand().live()
    hand.change(node="lost")
    hand.tell(hand.change(node="heard"))
    hand.now = hand.waits_until()
    hand.answer(hand.run())
    hand.waits_until()


# --- the subscription -------------------------------------------------------------------------


def test_a_lost_subscription_is_made_anew_and_what_was_missed_is_asked_for() -> None:
    hand = Hand().live()
    hand.wait(0.1)
    hand.machine.unsubscribed(hand.number, GONE, hand.now)
    assert hand.owns()
    until = hand.waits_until()
    assert hand.now < until <= hand.now + 0.05
    hand.now = until
    hand.subscribe()
    assert asks(hand.run())["node"] == "me"


def test_a_client_that_reconnected_by_itself_is_a_reason_to_ask() -> None:
    hand = Hand().live()
    hand.wait(0.1)
    hand.machine.subscribed(hand.number, hand.now)
    hand.run()


def test_a_subscription_that_neither_stands_nor_fails_is_tried_again() -> None:
    hand = Hand().live()
    hand.machine.unsubscribed(hand.number, GONE, hand.now)
    hand.now = hand.waits_until()
    assert isinstance(hand.next(), Subscribe)
    asked = hand.now
    while not isinstance(step := hand.next(), Subscribe):
        if isinstance(step, Run):
            hand.answer(step)
        else:
            assert isinstance(step, Wait)
            hand.now = step.until
    assert hand.now == pytest.approx(asked + 4 * IO)


def test_subscribing_backs_off_like_heartbeats_do() -> None:
    hand = Hand()
    hand.dice.value = 0.999
    hand.start()
    for tries in range(10):
        step = hand.next()
        assert isinstance(step, Subscribe)
        hand.machine.unsubscribed(step.number, GONE, hand.now)
        assert hand.waits_until() == pytest.approx(
            hand.now + min(0.5, 0.05 * 2**tries) * (0.5 + 0.5 * 0.999)
        )
        hand.now = hand.waits_until()


def test_a_subscription_that_stood_begins_anew_with_a_short_wait() -> None:
    hand = Hand().live()
    hand.dice.value = 0.999
    for _ in range(10):
        hand.machine.unsubscribed(hand.number, GONE, hand.now)
        assert hand.waits_until() <= hand.now + 0.05
        hand.now = hand.waits_until()
        hand.subscribe()
        hand.answer(hand.run())


# --- a ring shared with redis-hashring --------------------------------------------------------


def _foreign() -> Hand:
    scoring = Scoring.last_heartbeat(TTL)
    return Hand(follow_foreign=True, scoring=scoring, name="host:1").live()


def test_a_message_of_redis_hashring_means_look() -> None:
    hand = _foreign()
    hand.tell_payload(b"*")
    assert hand.machine.counters.bad_messages == 0
    assert hand.waits_until() == pytest.approx(hand.now + MOMENT)
    hand.others["host:9"] = [99]
    hand.now = hand.waits_until()
    hand.answer(hand.run())
    assert "host:9" in hand.view.ring


def test_on_a_shared_ring_every_heartbeat_reads_it() -> None:
    hand = _foreign()
    # One of the others went and one came, and neither said so where we could hear it.
    hand.others = {"host:9": [99]}
    run = hand.beat_due()
    assert asks(run)["fetch"]
    hand.answer(run)
    assert hand.view.ring.nodes == ("host:1", "host:9")


# --- what readers see -------------------------------------------------------------------------


def test_the_view_is_the_same_object_until_something_changes() -> None:
    hand = Hand().live()
    view = hand.view
    hand.next()
    assert hand.view is view
    hand.answer(hand.beat_due())
    assert hand.view is not view
    assert hand.view.deadline > view.deadline
    assert hand.view.bounds is view.bounds
    assert hand.view.ring is view.ring


def test_the_view_s_bounds_are_its_ranges() -> None:
    hand = Hand(n_replicas=5).live()
    view = hand.view
    assert view.bounds == tuple(bound for range_ in view.ranges for bound in range_)
    assert view.ranges == view.ring.node_ranges("me")


def test_a_garbage_member_is_counted() -> None:
    hand = Hand()
    hand.start()
    hand.subscribe()
    run = hand.run()
    members = (*hand.members(), b"abc", b"1:2")
    hand.answer(run, members=members, stamp=replace(hand.stamp, members=len(members)))
    assert hand.machine.sight.garbage == 2
    assert hand.view.ring.nodes == ("me", "you")


# --- by hand ----------------------------------------------------------------------------------


def test_a_look_by_hand_shows_the_ring_without_a_heartbeat() -> None:
    hand = Hand()
    hand.machine.look_step().done(
        seen(hand.stamp, [(b"5:you:x", 1.0), (b"abc", 1.0)]), hand.now, hand.now
    )
    assert hand.view.ring.nodes == ("you",)
    assert hand.machine.sight.garbage == 1
    assert not hand.owns()


def test_a_running_node_that_is_removed_by_hand_owns_nothing_until_it_is_back() -> None:
    hand = Hand().live()
    hand.machine.leave_step("removed").done(LeaveStatus.OK, hand.now, hand.now)
    assert not hand.owns()
    hand.next()
    assert hand.state is NodeState.FENCED
    assert hand.machine.counters.fences == 0  # It missed no deadline.
    hand.tell(hand.change(ChangeKind.LEAVE, "me"))
    hand.answer(hand.run())
    assert hand.owns()


# --- full nodes, and locks ----------------------------------------------------------------------


def test_which_nodes_are_full_is_told_and_read() -> None:
    hand = Hand().live()
    hand.tell(hand.change())
    assert hand.machine.sight.full_nodes == frozenset()
    hand.tell(replace(hand.change(node="you", points=(5,)), kind=ChangeKind.FULL, points=()))
    assert hand.machine.sight.full_nodes == {"you"}
    hand.tell(replace(hand.change(node="you", points=(5,)), kind=ChangeKind.ROOM, points=()))
    assert hand.machine.sight.full_nodes == frozenset()
    hand.stamp = replace(hand.stamp, epoch=99, tag="99")
    hand.answer(hand.beat_due(), full=frozenset({"new"}))
    while not asks(run := hand.beat_due())["fetch"]:
        hand.answer(run)
    hand.answer(run, full=frozenset({"new"}))
    assert hand.machine.sight.full_nodes == {"new"}


def test_a_node_says_at_once_that_it_is_full_and_says_it_once() -> None:
    hand = Hand(locks=replace(LOCKS, locking=False)).live()
    book, (bounds, until) = hand.machine.book, (hand.view.bounds, hand.view.deadline)
    assert book is not None
    inside = [bounds[0], bounds[0] + 1, bounds[0] + 2]
    verdicts = [book.ask(b"%d" % point, point, bounds, until, hand.now) for point in inside]
    assert verdicts == [Verdict.YES, Verdict.YES, Verdict.NO]
    hand.answer(hand.run())
    assert hand.waits_until() > hand.now


@pytest.mark.parametrize("full", [{"me"}, {"me", "you"}])
def test_who_has_what_a_node_refuses_is_looked_up_when_every_node_is_full(full: set[str]) -> None:
    hand = Hand(locks=replace(LOCKS, limit=0)).live()
    book, (bounds, until) = hand.machine.book, (hand.view.bounds, hand.view.deadline)
    assert book is not None
    assert book.ask(b"key", bounds[0], bounds, until, hand.now) is Verdict.NO
    hand.answer(hand.run(), members=hand.members(), full=frozenset(full))
    step = hand.next()
    looks = isinstance(step, Run) and step.command.script.name == "locks_look"
    assert looks is (full == {"me", "you"})


def test_a_node_that_subscribed_anew_asks_again_for_locks_that_it_waits_for() -> None:
    hand = Hand(locks=LOCKS).live()
    book, (bounds, until) = hand.machine.book, (hand.view.bounds, hand.view.deadline)
    assert book is not None
    take = book.take([(b"key", bounds[0], b"key")], hand.now)
    assert take is not None
    book.acquired(take, [HeldByOther("you", 100.0, awaited=True)], hand.now, hand.now)
    assert book.ask(b"key", bounds[0], bounds, until, hand.now) is Verdict.NO
    # That the lock is free may have been told while nobody listened.
    hand.machine.unsubscribed(hand.number, RedisUnavailable("gone"), hand.now)
    hand.wait(0.5)
    hand.subscribe()
    assert book.ask(b"key", bounds[0], bounds, until, hand.now) is Verdict.TAKE


def test_what_redis_was_asked_about_locks_is_asked_again_before_the_next_heartbeat() -> None:
    hand = Hand(locks=LOCKS).live()
    book = hand.machine.book
    assert book is not None
    take = book.take([(b"key", hand.view.bounds[0], b"key")], hand.now)
    assert take is not None
    book.acquire_failed(take, hand.now)
    heartbeat = hand.machine._at.beat
    hand.run().failed(RedisUnavailable("gone"), hand.now)
    assert hand.now < hand.waits_until() < heartbeat


def test_a_book_that_is_outdated_has_one_heartbeat_made_at_once() -> None:
    hand = Hand(locks=LOCKS).live()
    assert hand.machine.book is not None
    hand.machine.book.due_calls.outdated = True
    hand.answer(hand.run())
    assert hand.waits_until() > hand.now


def test_a_node_with_locks_that_redis_takes_is_not_failing() -> None:
    assert not Hand(locks=LOCKS).live().machine.failing


def leaving_with_a_lock() -> tuple[Hand, Run]:
    """A node that holds a lock and stops, and its request to release the lock."""
    hand = Hand(locks=LOCKS).live()
    book, point = hand.machine.book, hand.view.bounds[0]
    assert book is not None
    take = book.take([(b"key", point, b"key")], hand.now)
    assert take is not None
    book.acquired(take, [7], hand.now, hand.now)
    hand.machine.stop()
    release = hand.run()
    return hand, release


def test_a_node_that_leaves_tries_once_to_release_its_locks() -> None:
    hand, release = leaving_with_a_lock()
    assert release.command.script.name == "locks_release"
    release.failed(RedisUnavailable("gone"), hand.now)
    assert hand.run().command.script.name == "leave"


def test_a_node_that_leaves_asks_a_silent_redis_no_more() -> None:
    hand, release = leaving_with_a_lock()
    hand.now += IO
    release.failed(RedisUnavailable("silent"), hand.now)
    assert isinstance(hand.next(), Finished)
    assert hand.state is NodeState.STOPPED


def _leaves(hand: Hand) -> list[Any]:
    """The sessions with which a node that stops leaves."""
    hand.machine.stop()
    sessions = []
    while isinstance(step := hand.next(), Run):
        assert step.command.script.name == "leave"
        sessions.append(step.command.arguments[1])
        step.done(LeaveStatus.OK, hand.now, hand.now)
    assert isinstance(step, Finished)
    return sessions


def _again(hand: Hand) -> str:
    """The node is started once more; the session that it had."""
    session = hand.machine.session
    hand.start()
    hand.subscribe()
    return session


def test_a_node_that_is_started_again_leaves_with_the_session_that_was_on_the_ring_last() -> None:
    hand = Hand().live()
    first = _again(hand)
    hand.answer(hand.run())
    second = _again(hand)
    assert first != second
    # A join of the new session may have arrived, too.
    assert _leaves(hand) == [second, hand.machine.session]


def test_a_node_that_joined_anew_leaves_once() -> None:
    hand = Hand().live()
    _again(hand)
    hand.answer(hand.run())
    assert _leaves(hand) == [hand.machine.session]


def test_a_node_that_stayed_on_the_ring_while_it_stopped_has_left_with_that() -> None:
    hand = _named()
    _again(hand)
    hand.machine.stop(stay=True)
    step = hand.run()
    assert step.command.script.name == "park"
    step.done(LeaveStatus.OK, hand.now, hand.now)
    assert isinstance(hand.next(), Finished)
    _again(hand)
    assert _leaves(hand) == []
