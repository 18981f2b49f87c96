"""What must hold in histories with locks and limits, besides some of :mod:`.node_rules`.

**Holder.** A process that believes that it holds a key, by its own clock, is the one that holds the
key's lock in Redis, under that token; so at most one process believes so. Excepted are locks that
Redis lost, or somebody took away by hand, since the process last renewed them: it learns of that
at its next heartbeat, and until then only the token protects what it writes.

**Sole.** No two processes believe at one time that they hold one key. That holds over a loss of all
data, which undoes all locks, and over a restart or a failover with older data, which undoes some.
Excepted are locks that a person undid, also where the holder put one back after a loss, before it
had learnt what that person did; and those that were taken after a loss of the whole ring before any
node that knew the ring was back.

**Tokens.** Each lock that is taken has a greater token than any before it on that key, whatever
Redis lost, unless its clock was set back as well. Only taking makes a lock, or putting back one
that Redis lost while it was held. One that ended on time, or was released, may be put back only by
a call that was sent before, and after a loss.

**Limit.** No node believes that it holds more keys than its limit, nor keeps places for more; and
Redis has no more locks of a session, except, until they expire, those taken by a call that arrived
after it had been given up.

**Waits.** A hold waits for a key that another node has until its timeout is over, and then for one
call at most. Where its own node has a call about the key under way, it may wait for that first.

**Freed.** Who waits for a key that nobody has any more asks for it again within :data:`ASKS_AGAIN`.
Excepted are histories in which messages may be late or lost, or locks end without one.

**Handoff.** A lease that was asked to finish does not last longer than the handoff time after it.

**Lasts.** A lease is lost only when its node stops, when it was asked to finish, when Redis lost
data, when somebody took its lock or its node's name away, or after trouble within the lock's ttl.

**Left behind.** When a node has stopped, and Redis answered it all along, Redis has no lock of its
session but those of holds that went on, and takes none any more. Excepted are locks that a loss of
data brought back, and those of a call that took longer than a ttl to arrive. So are those that last
for more than a ttl when the node stops, because somebody has set Redis' clock back since.

**Recovery.** Once faults are over, within :data:`SETTLED` every node that runs is live, or drained
where an order to drain it stands.

**Served.** Once faults are over, within :data:`SETTLED` every key that is asked for is held by one
of the processes that run, when there is room for all; and by its owner, when that has no limit. A
node that is to drain holds none.

**Calm.** After that no key changes hands, and a loop makes three calls a heartbeat at most: the
heartbeat, the renewal, and a look at what nobody serves.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from hashring.errors import HoldTimeout
from hashring.protocol.locks.key_states import KeyState
from hashring.protocol.node.node_states import NodeState
from hashring.store.command import Command
from hashring.store.ring.commands import BeatReply
from hashring.testing.simulator.ring.history import HEARTBEAT, TTL
from hashring.testing.simulator.ring.lock_user import User
from hashring.testing.simulator.ring.node_rules import RECOVERY, FewCalls, wrong_state
from hashring.testing.simulator.ring.process import ACCEPTED, RingProcess
from hashring.testing.simulator.ring.world import KEYS, RingRule, RingWorld
from hashring.testing.simulator.virtual_time import NEVER

GONE: Final = (0, "", 0.0)

SCHEDULING: Final = 0.05
"""Seconds between the end of a wait, or of a pause, and what is done then."""

ASKS_AGAIN: Final = HEARTBEAT / 2 + 4 * SCHEDULING
"""Seconds: who was replaced as the one that waits asks again after half a heartbeat."""

_UNTOLD: Final = {
    *("cut", "hole", "pause", "pause unsent", "pause untold", "down", "hang", "refuse", "failover"),
    *("lose messages", "delay messages", "double messages", "mix messages", "unsubscribe", "deaf"),
    *("wipe", "delete", "set back", "release by hand"),
}
"""Kinds of events after which a node may not hear in time that a key is free."""

SETTLED: Final = RECOVERY + 2 * TTL
"""Seconds from the end of all faults until every key is held at the latest.

After the ring is right again: a lock that a dead process left expires (a lock's ttl); who waited
for it and was not told asks again; a lease may go on for the handoff time, and what nobody asks for
any more is let go when it was idle. None of them is longer than the node's ttl here.
"""


class LockWatch(RingRule):
    """Looks at the locks whenever Redis may have changed one."""

    def executed(
        self, world: RingWorld, process: RingProcess, command: Command[Any], reply: Any
    ) -> None:
        if command.script.name.startswith("locks_"):
            self.look(world)

    def look(self, world: RingWorld) -> None:
        """Look at the locks."""


def believed(world: RingWorld, process: RingProcess) -> list[tuple[bytes, int, float]]:
    """Key, token and deadline of what a process believes to hold now."""
    book, user, now = process.machine.book, process.user, process.local()
    found: list[tuple[bytes, int, float]] = []
    if book is None or user is None or not process.alive:
        return found
    if process.may_work():
        found += [
            (key, held.token, held.deadline)
            for key, held in book.held.items()
            if now < held.deadline
        ]
    found += [
        (lease.key, lease.token, lease.deadline)
        for lease in user.leases
        if not lease.lost.is_set() and now < lease.deadline
    ]
    return found


class LockHolder(LockWatch):
    name = "holder"

    def look(self, world: RingWorld) -> None:
        terms = world.lock_terms
        locks = world.locks()
        for process in world.processes.values():
            session = process.machine.session
            for key, token, deadline in believed(world, process):
                lock = locks.get(key)
                if lock is not None and lock[0] == token and lock[1] == session:
                    continue
                # It was sent no later than one ttl before the deadline, in true time.
                renewed = process.true(deadline - terms.ttl)
                if renewed <= max(world.lost_at, world.taken_away.get(key, float("-inf"))):
                    continue
                raise self.broken(
                    world,
                    f"{process.spec.label} believes to hold {key.decode()} under {token}; "
                    f"Redis has {lock[:2] if lock else 'no lock'}",
                )

    def told_yes(self, world: RingWorld, process: RingProcess, keys: Sequence[bytes]) -> None:
        self.look(world)
        held = {key for key, _, _ in believed(world, process)}
        if not held.issuperset(keys):
            raise self.broken(world, f"{process.spec.label} was told yes, and does not hold it")


class Sole(LockWatch):
    name = "sole"

    def __init__(self) -> None:
        self._standing: dict[bytes, tuple[int, str, float]] = {}
        self._emptied_at = NEVER
        self._unaware = False
        self._lost_at = NEVER
        # Locks, by their tokens, that Redis gave or took back without knowing what stood before.
        self._unfounded: set[tuple[bytes, int]] = set()

    def touched(self, world: RingWorld, lost: bool) -> None:
        self._lost_at = world.now if lost else self._lost_at
        self._standing = world.locks()
        if not self._standing and not world.server.tag(KEYS.ring):
            self._emptied_at = world.now
            self._unaware = True

    def executed(
        self, world: RingWorld, process: RingProcess, command: Command[Any], reply: Any
    ) -> None:
        terms = world.lock_terms
        if isinstance(reply, BeatReply) and reply.status in ACCEPTED:
            # It may have been sent before its node knew that.
            knew = process.history if world.sent_at >= process.history_at else ""
            if knew not in ("", reply.history) or world.now > self._emptied_at + terms.ttl:
                self._unaware = False
        before, self._standing = self._standing, world.locks()
        if command.script.name == "locks_renew":
            self._unfounded |= {
                (key, lock[0])
                for key, lock in self._standing.items()
                if key not in before
                and self._lost_at <= world.taken_away.get(key, NEVER) + terms.ttl
            }
        began_since = process.machine.history == world.server.history(KEYS.ring)
        if self._unaware and began_since and command.script.name == "locks_acquire":
            self._unfounded |= {(key, lock[0]) for key, lock in self._standing.items()}
        super().executed(world, process, command, reply)

    def look(self, world: RingWorld) -> None:
        seen: set[bytes] = set()
        for process in world.processes.values():
            keys = {key for key, _, _ in believed(world, process)}
            if not seen.isdisjoint(keys):
                self._look_at_each(world)
                return
            seen |= keys

    def _look_at_each(self, world: RingWorld) -> None:
        terms = world.lock_terms
        holders: dict[bytes, str] = {}
        for process in world.processes.values():
            own: set[bytes] = set()
            for key, token, deadline in believed(world, process):
                renewed = process.true(deadline - terms.ttl)
                undone = world.taken_away.get(key, NEVER)
                if renewed > undone and (key, token) not in self._unfounded:
                    own.add(key)
            for key in own:
                if key in holders:
                    raise self.broken(
                        world,
                        f"{holders[key]} and {process.spec.label} both hold {key.decode()}",
                    )
                holders[key] = process.spec.label

    def told_yes(self, world: RingWorld, process: RingProcess, keys: Sequence[bytes]) -> None:
        self.look(world)


class LockTokens(LockWatch):
    name = "tokens"

    def __init__(self) -> None:
        self._standing: dict[bytes, tuple[int, str, float]] = {}
        self._lost: set[tuple[bytes, int, str]] = set()
        self._lost_at = NEVER
        self._newest: dict[bytes, int] = {}
        # When locks were released.
        self._released: dict[tuple[bytes, int, str], float] = {}

    def executed(
        self, world: RingWorld, process: RingProcess, command: Command[Any], reply: Any
    ) -> None:
        script = command.script.name
        if not script.startswith("locks_"):
            return
        locks, now = world.locks(), world.redis_time()
        if script == "locks_release":
            gone = self._standing.keys() - locks.keys()
            self._released |= {(key, *self._standing[key][:2]): world.now for key in gone}
        for key, (token, session, expires) in locks.items():
            before = self._standing.get(key)
            if before is not None and before[:2] == (token, session) and now < before[2]:
                if expires > before[2]:
                    self._lost.discard((key, token, session))
                continue
            if script == "locks_renew" and (key, token, session) in self._lost:
                self._lost.remove((key, token, session))
                continue  # Put back, once for each time that Redis lost it.
            if script == "locks_renew" and self._ended_under_way(world, before, (token, session)):
                continue  # Redis lost the ring alone, and this was sent while the lock stood.
            released = self._released.get((key, token, session), NEVER)
            if script == "locks_renew" and world.sent_at < released <= self._lost_at + 2 * TTL:
                continue  # Released since, in the wait after a loss.
            if script == "locks_renew" and self._lost_at <= world.taken_away.get(key, NEVER) + TTL:
                continue  # Taken away by hand, and Redis lost the ring before its holder learnt it.
            if script != "locks_acquire":
                raise self.broken(world, f"{script} made a lock on {key.decode()} under {token}")
            if token <= self._newest.get(key, 0) and not world.lost_and_set_back:
                raise self.broken(world, f"{key.decode()} was taken again under {token}")
            self._newest[key] = token
        self._standing = locks

    def _ended_under_way(
        self, world: RingWorld, before: tuple[int, str, float] | None, lock: tuple[int, str]
    ) -> bool:
        """Whether a lock ended, soon after a loss, while what Redis ran last was on its way."""
        if before is None or before[:2] != lock or world.now > self._lost_at + TTL:
            return False
        return world.sent_at < before[2] - (world.redis_time() - world.now)

    def set_back(self, world: RingWorld) -> None:
        self._standing = world.locks()

    def touched(self, world: RingWorld, lost: bool) -> None:
        # A failover brings old locks back: nobody took them.
        self._lost_at = world.now if lost else self._lost_at
        before, self._standing = self._standing, world.locks()
        for key, lock in before.items():
            token, session, expires = self._standing.get(key, GONE)
            # A failover may lose a renewal alone: the lock ends before its holder's deadline.
            kept = (token, session) == lock[:2] and expires >= lock[2]
            if lock[2] > world.redis_time() and not kept:
                self._lost.add((key, *lock[:2]))


class LockLimit(LockWatch):
    name = "limit"

    def __init__(self) -> None:
        self._late_at: dict[str, float] = {}

    def executed(
        self, world: RingWorld, process: RingProcess, command: Command[Any], reply: Any
    ) -> None:
        book = process.machine.book
        if (
            command.script.name == "locks_acquire"
            and book is not None
            and all(take.command is not command for take in book.takes)
        ):
            # A caller that is paused before it sends its call still waits for the answer.
            self._late_at[process.spec.label] = world.now
        super().executed(world, process, command, reply)

    def look(self, world: RingWorld) -> None:
        terms = world.lock_terms
        locks = Counter(session for _, session, _ in world.locks().values())
        for process in world.processes.values():
            limit, book = process.spec.limit, process.machine.book
            if limit is None or book is None or not process.alive:
                continue
            places = max(book.count, len({key for key, _, _ in believed(world, process)}))
            if places > limit:
                raise self.broken(world, f"{process.spec.label} has {places} keys, not {limit}")
            late_at = max(process.late_at, self._late_at.get(process.spec.label, NEVER))
            if world.now <= max(late_at, world.lost_at) + terms.ttl + world.set_back:
                continue
            held = locks[process.machine.session]
            if held > limit:
                raise self.broken(world, f"{process.spec.label} has {held} locks, not {limit}")


class LockWaits(RingRule):
    name = "waits"

    def executed(
        self, world: RingWorld, process: RingProcess, command: Command[Any], reply: Any
    ) -> None:
        for each in world.processes.values():
            if each.user is not None and each.alive:
                self._look_at(world, each, each.user)

    def _look_at(self, world: RingWorld, process: RingProcess, user: User) -> None:
        for hold, ended, error in user.given_up:
            if isinstance(error, HoldTimeout) and ended < hold.began + hold.timeout:
                raise self.broken(
                    world, f"{process.spec.label} waited {ended - hold.began:g} s: {error}"
                )
        user.given_up.clear()
        if process.paused:
            return
        for hold in (holder.hold for holder in user.holders):
            patience = max(hold.timeout, world.io_timeout)
            last = max(process.true(hold.began + patience), process.paused_until)
            if world.now > last + world.io_timeout + SCHEDULING:
                raise self.broken(
                    world,
                    f"{process.spec.label} waits for {hold.key.decode()} since "
                    f"{process.true(hold.began):.3f}, and its timeout is {hold.timeout:g} s",
                )

    def finished(self, world: RingWorld) -> None:
        for process in world.alive:
            if process.user is not None and process.user.holders:
                raise self.broken(world, f"{process.spec.label} waits still")


class LockFreed(LockWatch):
    name = "freed"

    def __init__(self) -> None:
        self._free_since: dict[bytes, float] = {}

    def look(self, world: RingWorld) -> None:
        locks = world.locks()
        self._free_since = {
            key: self._free_since.get(key, world.now)
            for key in world.lock_terms.keys
            if key not in locks
        }
        if any(event.kind in _UNTOLD and event.at <= world.now for event in world.history.events):
            return
        for process in world.alive:
            if process.paused or process.machine.book is None:
                continue
            for key in process.machine.book.others.values():
                since = self._free_since.get(key.key, world.now)
                waits = key.state is KeyState.AWAITED and process.true(key.until) > world.now
                # While its loop waits for Redis, it hears nothing.
                if waits and world.now > max(since, process.trouble_until) + ASKS_AGAIN:
                    raise self.broken(
                        world, f"{process.spec.label} waits for {key.key.decode()}, which is free"
                    )


class LockHandoff(LockWatch):
    name = "handoff"

    def look(self, world: RingWorld) -> None:
        terms = world.lock_terms
        for process in world.processes.values():
            for lease in process.user.leases if process.user else ():
                if lease.revoked_at is None:
                    continue
                if lease.deadline > lease.revoked_at + terms.max_handoff_time + 1e-6:
                    raise self.broken(
                        world, f"{process.spec.label} has {lease.key.decode()} for too long"
                    )


class LockLasts(RingRule):
    name = "lasts"

    def __init__(self) -> None:
        self._stopped_at: dict[str, float] = {}

    def asked_to_stop(self, world: RingWorld, process: RingProcess) -> None:
        self._stopped_at[process.spec.label] = world.now

    def lease_lost(self, world: RingWorld, process: RingProcess, key: bytes, session: str) -> None:
        if session not in ("", process.machine.session):
            return
        label = process.spec.label
        # Its node learns of what was done in Redis at its next heartbeat.
        since = world.now - world.lock_terms.ttl - HEARTBEAT - SCHEDULING
        excuses = (
            self._stopped_at.get(label, NEVER),
            world.taken_away.get(key, NEVER),
            world.lost_at,
            world.connected_at(process),
        )
        if max(excuses) < since:
            raise self.broken(world, f"{label} lost {key.decode()} for no reason")


class LockDepartures(LockWatch):
    name = "left behind"

    def __init__(self) -> None:
        # Of each process that leaves, how many of its calls had failed when it began to.
        self._failures: dict[str, int] = {}
        # When a call of the process took long to arrive.
        self._late_at: dict[str, float] = {}
        # The sessions that have ended: whose they were, and the tokens of what is excepted.
        self._ended: dict[str, tuple[str, frozenset[int]]] = {}

    def shown(self, world: RingWorld, process: RingProcess) -> None:
        machine, label = process.machine, process.spec.label
        if machine.state is NodeState.LEAVING:
            self._failures.setdefault(label, machine.counters.failures)
        elif (failures := self._failures.pop(label, None)) is not None:
            left = machine.state is NodeState.STOPPED and machine.counters.failures == failures
            # What comes back with older data, or was put back, may have been let go of before.
            settled = world.now > world.lost_at + 2 * world.lock_terms.ttl
            if left and settled and process.user is not None:
                lasting = world.redis_time() + world.lock_terms.ttl
                longer = {token for token, _, end in world.locks().values() if end > lasting}
                tokens = frozenset(lease.token for lease in process.user.leases) | longer
                self._ended[machine.session] = label, tokens
                self.look(world)

    def touched(self, world: RingWorld, lost: bool) -> None:
        # Redis may have forgotten which sessions have ended.
        self._ended.clear()

    def executed(
        self, world: RingWorld, process: RingProcess, command: Command[Any], reply: Any
    ) -> None:
        if world.now > world.sent_at + world.lock_terms.ttl:
            self._late_at[process.spec.label] = world.now
        super().executed(world, process, command, reply)

    def look(self, world: RingWorld) -> None:
        for key, (token, session, _) in world.locks().items() if self._ended else ():
            label, tokens = self._ended.get(session, ("", frozenset()))
            late = world.now <= self._late_at.get(label, NEVER) + world.lock_terms.ttl
            if label and not late and token not in tokens:
                raise self.broken(
                    world, f"{label} has stopped, and Redis has its lock on {key.decode()}"
                )


class LockRecovery(RingRule):
    name = "recovery"

    def healed(self, world: RingWorld) -> None:
        for process in world.alive:
            if wrong := wrong_state(world, process):
                raise self.broken(world, wrong)


class LockService(LockWatch):
    name = "served"

    def healed(self, world: RingWorld) -> None:
        terms = world.lock_terms
        for process in filter(world.is_to_drain, world.alive):
            if kept := sorted(key for key, _, _ in believed(world, process)):
                raise self.broken(world, f"{process.spec.label} is drained, and holds {kept}")
        running = [process for process in world.alive if not world.is_to_drain(process)]
        if not running or not _has_room(running, len(terms.keys)):
            return
        unlimited = {process.machine.name for process in running if process.spec.limit is None}
        ring = world.ring
        holders = {
            key: process.machine.name
            for process in running
            for key, _, _ in believed(world, process)
        }
        if missing := set(terms.keys) - set(holders):
            raise self.broken(
                world, f"nobody holds {b', '.join(sorted(missing)).decode()}; held are {holders}"
            )
        for key, holder in holders.items():
            owner = ring.owner(key)
            if owner in unlimited and owner != holder:
                raise self.broken(world, f"{holder} holds {key.decode()}, and {owner} owns it")


def _has_room(running: Sequence[RingProcess], keys: int) -> bool:
    """Whether there is room for all keys, a place of each node's apart.

    The owner of a key that another holds keeps a place for it until it is handed over.
    """
    limits = [process.spec.limit for process in running]
    return None in limits or sum(limit - 1 for limit in limits if limit) >= keys


class Calm(FewCalls):
    name = "calm"
    most = 3

    def __init__(self) -> None:
        super().__init__()
        self._locks: dict[bytes, int] = {}

    def healed(self, world: RingWorld) -> None:
        super().healed(world)
        self._locks = self._tokens(world)

    def _tokens(self, world: RingWorld) -> dict[bytes, int]:
        return {key: token for key, (token, _, _) in world.locks().items()}

    def finished(self, world: RingWorld) -> None:
        if world.alive and self._tokens(world) != self._locks:
            raise self.broken(world, f"keys changed hands: {self._locks}, {self._tokens(world)}")
        super().finished(world)
