"""What users ask of a node's locks: flows, run by whatever runs the node."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import compress
from numbers import Real
from typing import Any, Final, TypeVar, cast

from hashring.core.hashing import key_bytes
from hashring.core.readable_numbers import counted
from hashring.core.ring import Ring
from hashring.core.value_checks import plain_number
from hashring.errors import ConfigError, HoldTimeout, NotHeld, RedisRefused, StoreError
from hashring.protocol.flow import Flow
from hashring.protocol.locks.calls_under_way import AskedKey
from hashring.protocol.locks.key_lease import KeyLease, LeaseHolder
from hashring.protocol.locks.shared_lock_book import SharedLockBook
from hashring.protocol.locks.verdicts import Verdict
from hashring.protocol.node.node_machine import NodeMachine
from hashring.protocol.node.node_states import NodeState
from hashring.running.loop_log import LoopLog
from hashring.store.locks.commands import LOCKS_A_CALL, MAX_LOCKED_KEY_BYTES, check_locked_key

logger = LoopLog("hashring")

T = TypeVar("T")

# How often `hold` looks whether the lock it waits for was freed, in seconds.
PIN_POLL: Final = 0.01

_FOREVER: Final = float("inf")

# So many that wait look as often as that. Where more wait, each looks less often: otherwise they
# would keep the processor, and an event loop, from all else.
POLLED_AT_ONCE: Final = 20


Window = tuple[Sequence[int], float, Ring]
"""Boundaries of what may be worked on; the monotonic time from which on nothing may; the ring."""


@dataclass(frozen=True)
class Asking:
    """Asks one book for one node.

    Args:
        machine: the node's.
        book: its locks, or its limit alone.
        window: what the node's readers see; raises NodeForked in a forked child.
        clock: monotonic seconds.
        poke: wakes the node's loop.
        waiting: the holds that wait, by their identities.
    """

    machine: NodeMachine
    book: SharedLockBook
    window: Callable[[], Window]
    clock: Callable[[], float]
    poke: Callable[[], None]
    waiting: set[int] = field(default_factory=set)

    # --- asking -------------------------------------------------------------------------------

    def ask(self, data: bytes) -> tuple[Verdict, AskedKey]:
        """What the book says of a key; a node that is not running holds nothing.

        Raises:
            KeyValueError: the key is empty, or too long to be locked.
        """
        data = key_bytes(data)
        if self.book.config.locking:
            check_locked_key(data)
        bounds, until, _ = self.window()
        point = self.machine.config.algorithm.point_of_bytes(data)
        verdict = self.book.ask(data, point, bounds, until, self.clock())
        self.stir()
        return verdict, (data, point, 0)

    def ask_many(self, asked: Iterable[AskedKey]) -> tuple[list[AskedKey], list[AskedKey]]:
        """Those of the keys that may be worked on now, and those whose locks may be taken."""
        bounds, until, _ = self.window()
        found = self.book.ask_many(asked, bounds, until, self.clock())
        self.stir()
        return found

    def ask_again(self, asked: Iterable[AskedKey]) -> list[AskedKey]:
        """What the ring, or time, did not take away while Redis was asked for other keys."""
        held = self.book.held
        return self.ask_many([each for each in asked if each[0] in held])[0]

    def stir(self) -> None:
        """Wake the loop when the book has something new for it."""
        if self.book.due_calls.stirred:
            self.book.due_calls.stirred = False
            self.poke()

    # --- taking -------------------------------------------------------------------------------

    def take(self, asked: Sequence[AskedKey]) -> Flow[None]:
        """Take locks whose verdict was ``TAKE``; :meth:`ask_again` says which of them are held."""
        take = None
        try:
            take = self.book.take(asked, sent := self.clock())
            if take is not None:
                answers = yield take.command
                self.book.acquired(take, answers, sent, self.clock())
        except StoreError as error:
            refusal = error if isinstance(error, RedisRefused) else None
            if refusal is not None and not self.machine.failing:
                logger.warning("hashring %s: %s", self.machine.name, error)
            if take is not None:
                self.book.acquire_failed(take, self.clock(), refusal)
            # Not ours then: the loop finds out, and says what is wrong with Redis.
            logger.debug("hashring %s: %s", self.machine.name, error)
        except BaseException:
            # Cancelled, killed, or left by what a signal handler raised.
            if take is not None:
                self.book.interrupted(take, self.clock())
            raise
        finally:
            self.stir()

    def take_one(self, asked: AskedKey) -> Flow[bool]:
        """Take a lock whose verdict was ``TAKE``; whether the key may be worked on now."""
        yield from self.take([asked])
        return bool(self.ask_again([asked]))

    def select(self, items: Sequence[T], key: Callable[[T], str | bytes] | None) -> Flow[list[T]]:
        """Those of the items whose keys may be worked on now, in their order.

        Raises:
            KeyTypeError, KeyValueError: a key has no point, or is too long to be locked.
        """
        # Others may change a list while Redis is asked.
        items = tuple(items)
        keys = cast("Sequence[str | bytes]", items if key is None else list(map(key, items)))
        held: list[AskedKey] = []
        waited = False
        for asked in self._to_take(keys, held):
            yield from self.take(asked)
            held += asked
            waited = True
        mask = bytearray(len(items))
        for _, _, number in self.ask_again(held) if waited else held:
            mask[number] = 1
        return list(compress(items, mask))

    def _to_take(
        self, keys: Sequence[str | bytes], held: list[AskedKey]
    ) -> Iterator[list[AskedKey]]:
        """Ask about all keys: add those that are held, and yield what is to be taken."""
        to_take: list[AskedKey] = []
        point_of = self.machine.config.algorithm.point_of_bytes
        for first in range(0, len(keys), LOCKS_A_CALL):
            part = [key_bytes(key) for key in keys[first : first + LOCKS_A_CALL]]
            if self.book.config.locking and max(map(len, part)) > MAX_LOCKED_KEY_BYTES:
                part = [check_locked_key(key) for key in part]
            numbers = range(first, first + len(part))
            yes, wanted = self.ask_many(zip(part, map(point_of, part), numbers, strict=True))
            held += yes
            to_take += wanted
            if len(to_take) >= LOCKS_A_CALL:
                yield to_take[:LOCKS_A_CALL]
                to_take = to_take[LOCKS_A_CALL:]
        if to_take:
            yield to_take

    # --- holding ------------------------------------------------------------------------------

    def hold(self, key: str | bytes, timeout: float, event: Callable[[], Any]) -> Hold:
        """Begin to hold a key; what to try until it is held.

        Args:
            timeout: seconds to go on trying while another node holds its lock, or while it is found
                out what came of an earlier call about it.
            event: makes the lease's events.

        Raises:
            ConfigError, KeyTypeError, KeyValueError, NodeForked: as ``hold`` of a node.
        """
        seconds = _time_to_wait(timeout)
        if seconds is None or seconds < 0:
            raise ConfigError("timeout", timeout, "give a number of seconds, 0 not to wait")
        self.window()
        return Hold(self, check_locked_key(key_bytes(key)), seconds, event, self.clock())

    # --- letting go ---------------------------------------------------------------------------

    def let_go(self) -> Flow[None]:
        """Let go of locks after the node has stopped, or while it does."""
        while (step := self.book.step(self.clock())) is not None:
            sent = self.clock()
            try:
                reply = yield step.command
            except StoreError as error:
                step.failed(error, self.clock())
                # Many callers may let go at once: the first speaks for all.
                if self.book.forget_releases():
                    logger.warning(
                        "hashring %s: %s; its locks expire by themselves", self.machine.name, error
                    )
                return
            step.done(reply, sent, self.clock())


def _time_to_wait(timeout: object) -> float | None:
    """Seconds as a number of Python's own, which may be infinite; ``None`` unless it is one."""
    if isinstance(timeout, Real) and timeout == _FOREVER:
        return _FOREVER
    return plain_number(timeout)


@dataclass(frozen=True)
class TryAgain:
    """A key cannot be held yet, and may be soon.

    Attributes:
        seconds: how long to wait before the next try, unless the node stops meanwhile.
    """

    seconds: float


@dataclass(eq=False)
class Hold(LeaseHolder):
    """A hold of one key that begins, try by try; waiting in between is up to who runs it.

    ::

        while isinstance(lease := run_flow(run, hold.attempt()), TryAgain):
            if stopped.wait(lease.seconds):
                raise hold.refusal(waited=False)
        hold.over()  # whatever became of it

    Attributes:
        asking: asks the node's book.
        key: the key.
        timeout, event: see :meth:`Asking.hold`.
        began: when, in monotonic seconds.
    """

    asking: Asking
    key: bytes
    timeout: float
    event: Callable[[], Any]
    began: float

    def attempt(self) -> Flow[KeyLease[Any] | TryAgain]:
        """Try once: the lease, or for how long to wait before the next try.

        Raises:
            NotHeld, HoldTimeout, NodeForked: there is no use in another try.
        """
        asking, book = self.asking, self.asking.book
        lease = book.pin_again(self.key, asking.clock(), self)
        if lease is None:
            verdict, asked = asking.ask(self.key)
            ours = verdict is Verdict.YES
            if verdict is Verdict.TAKE:
                ours = yield from asking.take_one(asked)
            lease = book.pin(self.key, asking.clock, self.event, self) if ours else None
        if lease is not None:
            return lease
        left = self._left()
        if left <= 0:
            raise self.refusal()
        asking.waiting.add(id(self))
        # No call to Redis: the loop hears when the lock is freed, and knows its ttl.
        return TryAgain(min(PIN_POLL * max(1.0, len(asking.waiting) / POLLED_AT_ONCE), left))

    def over(self) -> None:
        """Nobody waits any more."""
        self.asking.waiting.discard(id(self))

    def _left(self) -> float:
        """For how many seconds to go on trying; 0 to give up."""
        book, timeout = self.asking.book, self.timeout
        if book.busy(self.key):
            # Being taken or let go by this node itself, which takes a call to Redis.
            timeout = max(timeout, self.asking.machine.config.io_timeout)
        elif (
            book.holder(self.key) is None
            and not book.in_doubt(self.key)
            and not book.held_off_for(self.asking.clock())
        ):
            return 0.0
        return self.began + timeout - self.asking.clock()

    def refusal(self, *, waited: bool = True) -> NotHeld:
        """Why the key cannot be held now.

        Args:
            waited: whether the timeout is over, if it waits for another node; or else nothing runs
                this node.
        """
        asking, machine = self.asking, self.asking.machine
        book, (bounds, until, ring) = asking.book, asking.window()
        shown = self.key.decode("utf-8", "replace")
        if asking.clock() >= until:
            state = machine.state.value
            return NotHeld(shown, None, f"this node is {state}, and owns nothing")
        holder = book.holder(self.key)
        if holder is not None:
            if self.timeout and waited:
                return HoldTimeout(
                    shown, holder, f"{holder} still held it after {self.timeout:g} s"
                )
            return NotHeld(shown, holder, f"{holder} holds it")
        if machine.state is NodeState.DRAINED and not (machine.config.follow and ring.node_count):
            return NotHeld(shown, None, "this node is drained, and owns nothing")
        if not machine.config.follow:
            # Of others it is not known what they own.
            if not bisect_right(bounds, machine.config.algorithm.point_of_bytes(self.key)) & 1:
                return NotHeld(shown, None, "another node owns it")
        elif not ring.node_count:
            # Everybody's ttl was over, and somebody else was the first to come back and say so.
            return NotHeld(shown, None, "this node is not on the ring just now: try again")
        elif (owner := ring.owner(self.key)) != machine.name:
            return NotHeld(shown, owner, f"{owner} owns it")
        if left := book.held_off_for(asking.clock()):
            return NotHeld(
                shown,
                None,
                "Redis lost the locks of the ring, or may have, and somebody may still work on it: "
                + (f"try again in {left:.1f} s" if left < float("inf") else "try again"),
            )
        if book.limit.reached(book.count):
            limit = book.limit.most
            assert limit is not None
            return NotHeld(shown, None, f"this node is at its limit of {counted(limit, 'key')}")
        if isinstance(book.error, RedisRefused):
            return NotHeld(shown, None, f"Redis refuses its lock: {book.error}")
        return NotHeld(shown, None, "Redis did not answer, or it is just being let go: try again")
