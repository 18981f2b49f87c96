"""What must hold of the nodes of a ring, whatever happens.

They are checked after every event that could break them, by somebody who sees all processes, and
Redis, at once. Times are true times.

**Renewal.** No node claims a key later than one ttl after it sent the last renewal that it knows
to have succeeded; nor later than its own expiry in Redis, unless Redis lost data, or another
session took the name, after that renewal.

**Own.** A node that knows only its own ranges claims no others than it has in Redis, or had within
:data:`WINDOW`, counted from when its own connection worked again. When no message
was lost, and the node has renewed since Redis last lost data, no longer than :data:`PROMPT`. Of
nodes that follow the ring the next three rules speak.

**Told.** Every change of the ring in Redis has a tag of its own. A node that has a tag has the
ring that Redis had at that tag, unless it knows that it may not (a fetch is due). So nodes at the
same tag agree on the owner of every key. What somebody does to the ring's members by hand, without
telling, shows in their number; when several such deeds cancel out in number, it may take until the
next heartbeat.

**Exclusion.** Two nodes that both claim a point are not at the same tag: at least one of them
holds a place in history that is Redis' no more. Together with the next rule, this is the
*propagation window*.

**Freshness.** A node that claims keys has heard of a change within :data:`WINDOW` of it, even when
every message is lost, counted from when its own connection worked again: its next heartbeat, the
moment that a message may be late, and a fetch.

**Names.** A node ends as superseded, or changes its name, only when another process has its name;
and it ends only for one that still runs, or that looked at the ring first after it did: by the true
time, or by Redis' clock, which somebody may set back. It may also change a made-up name that its
own session of before a stop still has.

**Drain.** While an order to drain a node stands, no heartbeat of the node puts it on the ring. A
node that was answered so claims nothing.

**Placement.** A balanced join is made on the very ring that was looked at.

**Weight.** A node that has another weight adds points to its own, or gives some of them up; it
never moves one. Its own are those of the newest heartbeat whose answer it has, also if Redis lost
some of them since. Once faults are over, every live node has as many points as its weight makes:
the one that was ordered, or its own.

**Spares.** A heartbeat that Redis executes after the node gave it up puts back no point that the
node has given up since, for nobody would serve that. A failover may. So may a late heartbeat after
Redis lost the node's newest one, with its entry or because a failover brought back an older entry:
Redis does not know then what the node gave up. In both cases the point is gone within
:data:`WINDOW`, counted from when the node's connection worked again. When somebody has deleted the
ring's names by hand, a point of an older session may stay for one ttl more, for nobody knows of it.

**Ended.** Once Redis has executed that a node leaves, or stops to come back, or loses its name to
another process, no heartbeat of its session has an effect, however late it comes, unless Redis lost
data.

**Departures.** Once Redis has executed that a node leaves, it has none of its points there that the
node knew of, those included that it was about to give up; and no other, unless Redis lost data.

**Stays.** A named node that stopped to come back, and is back within one ttl, has the replicas that
it had, and nobody is told of anything. That holds whatever other processes of the name did
meanwhile, unless one was on the ring, or drained: one that gave up its start changes nothing, and
one that wakes up is back as well.

**Recovery.** Once faults are over, within :data:`RECOVERY` every node that runs is live, or drained
where an order to drain it stands; all are at Redis' tag, and every point is claimed by exactly one
of the live ones. Nodes that do not run have no entries there, unless somebody changed the ring's
members without telling.

**Rest.** After that nothing changes, and a node makes one call a heartbeat.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final

from hashring.core.hashing import RING_SIZE
from hashring.core.ranges import PointRange
from hashring.core.ring import Ring
from hashring.protocol.node.node_machine import NodeMachine
from hashring.protocol.node.node_states import NodeState
from hashring.store.command import Command
from hashring.store.ring.commands import BeatReply, BeatStatus, LeaveStatus, Look, read_members
from hashring.store.ring.node_entries import PLACED, holder_of, told_of
from hashring.store.ring.snapshot import Snapshot
from hashring.testing.simulator.network import LATENCY
from hashring.testing.simulator.ring.history import HEARTBEAT, TTL
from hashring.testing.simulator.ring.process import ACCEPTED, RingProcess, members_of
from hashring.testing.simulator.ring.world import (
    ALGORITHM,
    KEYS,
    RingRule,
    RingWorld,
    replica_of,
)
from hashring.testing.simulator.virtual_time import NEVER

MOMENT: Final = min(0.25, 0.25 * HEARTBEAT)

WINDOW: Final = HEARTBEAT + 1.5 * MOMENT + 5 * LATENCY
"""Seconds until a node knows of a change at the latest, when every message is lost."""

PROMPT: Final = 8 * LATENCY
"""Seconds until a node knows of a change next to its ranges, when it hears the messages.

In a thread it hears them when its call is over, if one is under way.
"""

RECOVERY: Final = TTL + HEARTBEAT + 5 * LATENCY
"""Seconds from the end of all faults until all is well at the latest.

A member that a dead process refreshed in the last moment expires after one ttl, and a survivor
sweeps it within a quarter of a heartbeat of that.
"""

REST: Final = 2 * HEARTBEAT
"""For how long nothing must change after that."""

EXPECTED_TAG: Final = 6
"""Which argument of a heartbeat is the tag of the ring at which alone it joins, after a ``=``."""

# Scores have microseconds, and Redis time in seconds is a float.
_ROUNDING: Final = 3e-6


class NodeRenewal(RingRule):
    name = "renewal"

    def __init__(self) -> None:
        self._tag = ""
        self._ran: dict[str, frozenset[bytes]] = {}

    def executed(
        self, world: RingWorld, process: RingProcess, command: Command[Any], reply: Any
    ) -> None:
        if isinstance(reply, BeatReply) and reply.status is BeatStatus.OK:
            self._ran[process.spec.label] = members_of(command, reply)
        tag = world.server.tag(KEYS.ring)
        if tag == self._tag:
            # Its own scores at most are others than before.
            self._check(world, process)
            return
        self._tag = tag
        for each in world.processes.values():
            self._check(world, each)

    def touched(self, world: RingWorld, lost: bool) -> None:
        for each in world.processes.values():
            self._check(world, each)

    def shown(self, world: RingWorld, process: RingProcess) -> None:
        if process.claims() and process.deadline > process.renewed_sent + TTL + _ROUNDING:
            raise self.broken(
                world,
                f"{process.spec.label} claims keys until {process.deadline:.3f}, its last renewal "
                f"was sent at {process.renewed_sent:.3f}",
            )
        self._check(world, process)

    def _check(self, world: RingWorld, process: RingProcess) -> None:
        if not process.claims() or process.renewed_at <= world.lost_at:
            return
        machine = process.machine
        if world.server.holder(KEYS.ring, machine.name) != machine.session:
            return
        if machine.name.encode() in world.server.scores(KEYS.ring, "drained"):
            return  # The answer is on its way; the next two rules say how long it may be.
        members = world.server.scores(KEYS.ring)
        renewed = process.renewed & self._ran.get(process.spec.label, frozenset())
        for replica in machine.replicas:
            if replica.member not in renewed:
                # It is about to have this one, since it has another weight; or it has given this
                # one up, and the answer is on its way. The next two rules say how long it may be.
                continue
            score = members.get(replica.member, 0.0)
            expires = world.true_time(score)
            if process.deadline > expires + _ROUNDING:
                raise self.broken(
                    world,
                    f"{process.spec.label} claims keys until {process.deadline:.3f}, "
                    f"its replica {replica} "
                    + (f"expires at {expires:.3f}" if score else "is not on the ring"),
                )


def _may_be_wrong(world: RingWorld, process: RingProcess) -> bool:
    """Whether the process may have another ring than its tag says."""
    tampered = world.tampered_at
    return process.machine.in_doubt or (
        tampered >= 0.0 and world.now <= max(tampered, process.trouble_until) + WINDOW
    )


class Own(RingRule):
    name = "own"

    def __init__(self) -> None:
        self._ring = Ring()
        self._members: frozenset[bytes] = frozenset()
        self._wrong_since: dict[str, float] = {}
        self._actual: dict[str, tuple[PointRange, ...]] = {}
        self._changed_at: dict[str, float] = {}
        self._lost_at: dict[tuple[str, tuple[PointRange, ...]], float] = {}
        self._busy_at: dict[str, float] = {}

    def executed(
        self, world: RingWorld, process: RingProcess, command: Command[Any], reply: Any
    ) -> None:
        self._look(world)

    def touched(self, world: RingWorld, lost: bool) -> None:
        self._look(world)

    def ordered(self, world: RingWorld) -> None:
        self._look(world)

    def shown(self, world: RingWorld, process: RingProcess) -> None:
        self._check(world, process)

    def _look(self, world: RingWorld) -> None:
        members = frozenset(world.server.scores(KEYS.ring))
        if members != self._members:
            self._ring, self._members = world.ring, members
        for process in world.processes.values():
            self._check(world, process)

    def _check(self, world: RingWorld, process: RingProcess) -> None:
        if process.spec.follow:
            return
        label, machine = process.spec.label, process.machine
        actual: tuple[PointRange, ...] = ()
        has_name = world.server.holder(KEYS.ring, machine.name) in ("", machine.session)
        if has_name:
            actual = self._without_spares(machine).node_ranges(machine.name)
        before = self._actual.get(label)
        if actual != before:
            if before is not None:
                self._lost_at[label, before] = world.now
            self._actual[label] = actual
            self._changed_at[label] = world.now
        # With locks the view has what it may take keys in, besides what is its own.
        claimed = process.view.ranges if process.claims() else ()
        if not claimed or claimed == actual:
            self._wrong_since.pop(label, None)
            return
        # One claim after the other may be wrong: an answer may bring ranges that the node had in
        # Redis for a moment, and has no more.
        wrong = max(
            self._wrong_since.setdefault(label, world.now), self._lost_at.get((label, claimed), 0.0)
        )
        since, changed = max(wrong, process.trouble_until), max(wrong, self._changed_at[label])
        # An answer that is older than a change is taken up after the message was missed. Nobody
        # tells a node of what it did itself, though it may have given that up.
        missed_at = max(process.missed_at, process.late_at)
        heard = min(wrong, self._changed_at[label]) > missed_at
        # Who has not renewed since Redis lost data is not known there: nobody tells it.
        known = process.renewed_sent > world.lost_at
        told = (heard and known and process.listens) and wrong > max(
            process.trouble_until,
            process.messages_late_until,
            world.lost_at + WINDOW,
            world.tampered_at + WINDOW,
        )
        # It hears nothing before the answer. Under asyncio it does, but whether it has lost its
        # name it learns only from the answer to another heartbeat.
        if not (process.spec.asynchronous and has_name) and any(
            loop.busy for loop in process.loops
        ):
            self._busy_at[label] = world.now
        # Until it knows that Redis' clock was set back, a message may look like an old one to it.
        told = told and process.renewed_sent > world.set_back_at
        told = told and world.now > max(changed, self._busy_at.get(label, 0.0)) + PROMPT
        if told or world.now > since + WINDOW:
            raise self.broken(
                world,
                f"{label} claims {claimed} since {since:.3f}, and has {actual} in Redis since "
                f"{changed:.3f}",
            )

    def _without_spares(self, machine: NodeMachine) -> Ring:
        """The ring, with members of an earlier session of the node as those of another."""
        spares = [
            replica.point
            for replica in map(replica_of, self._members)
            if replica and replica.node == machine.name and replica not in machine.replicas
        ]
        if not spares:
            return self._ring
        own = [replica.point for replica in machine.replicas]
        points = [point for point in self._ring.points_of(machine.name) if point in own]
        return self._ring.with_node(machine.name, points).with_node("spare", spares)


class NodeReports(RingRule):
    name = "told"

    def __init__(self) -> None:
        self._rings: dict[str, set[str]] = {}
        self._members: frozenset[bytes] = frozenset()
        self._tag = ""

    def begin(self, world: RingWorld) -> None:
        self._note(world, "")
        world.listen(lambda change: self._note(world, change.stamp.tag))

    def _note(self, world: RingWorld, tag: str) -> None:
        members = world.server.scores(KEYS.ring)
        ring = Ring(read_members(members)[0], ALGORITHM)
        self._rings.setdefault(tag, set()).add(ring.fingerprint)
        self._members = frozenset(members)

    def executed(
        self, world: RingWorld, process: RingProcess, command: Command[Any], reply: Any
    ) -> None:
        if world.server.scores(KEYS.ring).keys() != self._members:
            raise self.broken(world, f"{process.spec.label} changed the ring, and it is not told")

    def touched(self, world: RingWorld, lost: bool) -> None:
        self._note(world, world.server.tag(KEYS.ring))

    def shown(self, world: RingWorld, process: RingProcess) -> None:
        machine = process.machine
        if not process.spec.follow or not process.alive:
            return
        sight = machine.sight
        if sight.stamp is None or _may_be_wrong(world, process):
            return
        if sight.ring.fingerprint not in self._rings.get(sight.stamp.tag, ()):
            raise self.broken(
                world,
                f"{process.spec.label} is at tag {sight.stamp.tag}, epoch {sight.stamp.epoch}, "
                f"with another ring than Redis had there: {dict(_points(sight.ring))}",
            )


def _points(ring: Ring) -> list[tuple[str, tuple[int, ...]]]:
    return [(node, ring.points_of(node)) for node in ring.nodes]


class Exclusion(RingRule):
    name = "exclusion"

    def shown(self, world: RingWorld, process: RingProcess) -> None:
        machine = process.machine
        if not process.spec.follow or not process.claims():
            return
        if machine.sight.stamp is None or _may_be_wrong(world, process):
            return
        for other in world.processes.values():
            stamp = other.machine.sight.stamp
            if (
                other is not process
                and other.spec.follow
                and stamp is not None
                and stamp.tag == machine.sight.stamp.tag
                and other.claims()
                and not _may_be_wrong(world, other)
                and _overlap(process.view.bounds, other.view.bounds)
            ):
                raise self.broken(
                    world,
                    f"{process.spec.label} and {other.spec.label} claim the same points at the "
                    f"same tag {stamp.tag}",
                )


def _overlap(one: tuple[int, ...], two: tuple[int, ...]) -> bool:
    edges = sorted(
        [(bound, -1 if i & 1 else 1) for i, bound in enumerate(one)]
        + [(bound, -1 if i & 1 else 1) for i, bound in enumerate(two)]
    )
    depth = 0
    for _, step in edges:
        depth += step
        if depth > 1:
            return True
    return False


class Freshness(RingRule):
    name = "freshness"

    def __init__(self) -> None:
        self._tag = ""
        self._left: dict[str, float] = {}

    def begin(self, world: RingWorld) -> None:
        world.listen(lambda change: self._follow(world, change.stamp.tag))

    def _follow(self, world: RingWorld, tag: str) -> None:
        if tag != self._tag:
            self._left[self._tag] = world.now
            self._left.pop(tag, None)
            self._tag = tag

    def executed(
        self, world: RingWorld, process: RingProcess, command: Command[Any], reply: Any
    ) -> None:
        for each in world.processes.values():
            self._check(world, each)

    def touched(self, world: RingWorld, lost: bool) -> None:
        self._follow(world, world.server.tag(KEYS.ring))

    def shown(self, world: RingWorld, process: RingProcess) -> None:
        self._check(world, process)

    def _check(self, world: RingWorld, process: RingProcess) -> None:
        stamp = process.machine.sight.stamp
        if stamp is None or stamp.tag == self._tag or not process.claims():
            return
        if not process.spec.follow:
            return
        since = max(self._left.get(stamp.tag, 0.0), process.trouble_until)
        if world.now > since + WINDOW:
            raise self.broken(
                world,
                f"{process.spec.label} claims keys at tag {stamp.tag}, epoch {stamp.epoch}, that "
                f"was left {world.now - since:.3f} s ago",
            )


class Names(RingRule):
    name = "names"

    def __init__(self) -> None:
        self._sessions: dict[str, RingProcess] = {}
        # Processes that met what they had been themselves before a stop.
        self._met_itself: set[str] = set()
        # By the true time, and by Redis' clock.
        self._began: dict[str, tuple[float, float]] = {}

    def executed(
        self, world: RingWorld, process: RingProcess, command: Command[Any], reply: Any
    ) -> None:
        accepted = isinstance(reply, BeatReply) and reply.status in ACCEPTED
        # One that comes back to what it left there need not look before its first heartbeat.
        if accepted or isinstance(reply, Snapshot | Look):
            self._began.setdefault(process.spec.label, (world.now, world.redis_time()))
        if accepted:
            self._sessions[str(command.arguments[1])] = process
        elif isinstance(reply, BeatReply):
            self._meet_itself(world, process)

    def _meet_itself(self, world: RingWorld, process: RingProcess) -> None:
        holder = world.server.holder(KEYS.ring, process.spec.name)
        if process.started_again and self._sessions.get(holder) is process:
            self._met_itself.add(process.spec.label)

    def shown(self, world: RingWorld, process: RingProcess) -> None:
        machine, spec = process.machine, process.spec
        if machine.state is NodeState.STOPPED:
            self._began.pop(spec.label, None)  # When it is started again, it begins anew.
        ended = machine.state is NodeState.SUPERSEDED
        if not ended and machine.name == spec.name:
            return
        self._meet_itself(world, process)
        alone = [p for p in world.processes.values() if p.spec.name == spec.name] == [process]
        if alone and (ended or spec.label not in self._met_itself):
            raise self.broken(world, f"{spec.label} lost its name {spec.name!r} to nobody")
        winner = self._sessions.get(world.server.holder(KEYS.ring, spec.name))
        if ended and winner is not None and not winner.alive:
            began, before = self._began.get(spec.label), self._began.get(winner.spec.label)
            if began and before and before[0] < began[0] and before[1] < began[1]:
                raise self.broken(
                    world, f"{spec.label} ended for {winner.spec.label}, which had ended before"
                )


class Drain(RingRule):
    name = "drain"

    def executed(
        self, world: RingWorld, process: RingProcess, command: Command[Any], reply: Any
    ) -> None:
        if not isinstance(reply, BeatReply) or reply.status is not BeatStatus.OK:
            return
        machine = process.machine
        asked = (machine.name, machine.session) == tuple(command.arguments[:2])
        if asked and world.is_to_drain(process):
            raise self.broken(world, f"{process.spec.label} is to drain, and joined the ring")

    def shown(self, world: RingWorld, process: RingProcess) -> None:
        if process.machine.state is NodeState.DRAINED and process.claims():
            raise self.broken(world, f"{process.spec.label} is drained, and claims keys")


class Placement(RingRule):
    name = "placement"

    def __init__(self) -> None:
        self._looked: dict[str, str] = {}

    def executed(
        self, world: RingWorld, process: RingProcess, command: Command[Any], reply: Any
    ) -> None:
        label = process.spec.label
        if isinstance(reply, Snapshot | Look):
            self._looked[label] = reply.stamp.tag
        elif (
            isinstance(reply, BeatReply)
            and reply.status is BeatStatus.OK
            and process.spec.placement == "balanced"
            and process.alive
            and "j" in str(command.arguments[2])
            and not reply.stayed
            # One that was sent before the last look names the ring of an earlier one.
            and reply.before != self._looked[label]
            and command.arguments[EXPECTED_TAG] != f"={reply.before}"
        ):
            raise self.broken(
                world,
                f"{label} looked at the ring at tag {self._looked[label]}, "
                f"and joined it at {reply.before}",
            )


class Weight(RingRule):
    name = "weight"

    def __init__(self) -> None:
        self._members: dict[str, frozenset[bytes]] = {}

    def touched(self, world: RingWorld, lost: bool) -> None:
        self._members = world.members()

    def ordered(self, world: RingWorld) -> None:
        self._members = world.members()

    def executed(
        self, world: RingWorld, process: RingProcess, command: Command[Any], reply: Any
    ) -> None:
        known, self._members = self._members, world.members()
        if not isinstance(reply, BeatReply) or reply.status is not BeatStatus.OK:
            return
        name, _, flags = map(str, command.arguments[:3])
        before, after = known.get(name, frozenset()), self._members[name]
        # What a failover or a late heartbeat put back is not among those that it had renewed.
        # What a failover took away is among those, so to put it back moves nothing.
        fresh = after - before - process.renewed
        # Redis does not know an old heartbeat from a new one if it lost since what tells.
        tells = world.lost_at < world.sent_at
        if "w" in flags and tells and fresh and (before & process.renewed) - after:
            raise self.broken(
                world,
                f"{process.spec.label} has another weight, and moved points: from "
                f"{sorted(before)} to {sorted(after)}",
            )
        members = members_of(command, reply)
        newest = members == {replica.member for replica in process.machine.replicas}
        if newest and (left := (process.renewed - members) & after):
            raise self.broken(world, f"{process.spec.label} gave up {sorted(left)}, and left it")

    def healed(self, world: RingWorld) -> None:
        members = world.members()
        for process in world.alive:
            machine = process.machine
            if machine.state is not NodeState.LIVE:
                continue
            points, right = len(members.get(machine.name, ())), world.points(process)
            if points != right:
                raise self.broken(
                    world, f"{process.spec.label} has {points} points, by its weight {right}"
                )


def _holders(world: RingWorld) -> dict[str, str]:
    """The session that holds each name; empty when none does."""
    names = {process.machine.name for process in world.processes.values()}
    return {name: world.server.holder(KEYS.ring, name) for name in names}


def _known(process: RingProcess) -> frozenset[bytes]:
    """The members that a process' node has, is about to have, or is about to give up."""
    machine = process.machine
    known = {replica.member for replica in (*machine.replicas, *machine.own.dropping)}
    return process.renewed | known


def _placed_of(entry: bytes) -> int:
    """How many times a node's session had had other points at the heartbeat of this entry."""
    return int(told_of(entry).get(PLACED, 0))


class Spares(RingRule):
    name = "spares"

    def __init__(self) -> None:
        self._since: dict[tuple[str, bytes], float] = {}
        self._members: dict[str, frozenset[bytes]] = {}
        self._holders: dict[str, str] = {}
        self._placed: dict[bytes, str] = {}
        # How many times a session had had other points at its newest heartbeat, and which entry
        # that left.
        self._newest: dict[str, int] = {}
        self._entries: dict[bytes, bytes] = {}

    def touched(self, world: RingWorld, lost: bool) -> None:
        self._look(world)

    def ordered(self, world: RingWorld) -> None:
        self._look(world)

    def _look(self, world: RingWorld) -> None:
        self._members, self._holders = world.members(), _holders(world)
        self._entries = dict(world.server.hgetall(KEYS.ring, "nodes"))

    def _knows_the_newest(self, entry: bytes, session: str) -> bool:
        """Whether Redis has not lost the newest heartbeat of a session."""
        return holder_of(entry) == session and _placed_of(entry) == self._newest.get(session)

    def executed(
        self, world: RingWorld, process: RingProcess, command: Command[Any], reply: Any
    ) -> None:
        name, session = process.machine.name, process.machine.session
        before = self._members.get(name, frozenset())
        knew = self._knows_the_newest(self._entries.get(name.encode(), b""), session)
        self._look(world)
        if isinstance(reply, BeatReply) and (name, session) == tuple(command.arguments[:2]):
            if reply.status is BeatStatus.OK:
                placed = members_of(command, reply)
                self._placed.update(dict.fromkeys(placed, session))
                back = placed - before - _known(process)
                if back and knew and not reply.swept:
                    raise self.broken(
                        world,
                        f"{process.spec.label} has given up {sorted(back)}, and they are back",
                    )
            if reply.status in ACCEPTED:
                number = _placed_of(self._entries.get(name.encode(), b""))
                self._newest[session] = max(number, self._newest.get(session, 0))
        spares = {
            (each.spec.label, member)
            for each in world.processes.values()
            if each.claims() and self._holders[each.machine.name] == each.machine.session
            for member in self._members.get(each.machine.name, frozenset()) - _known(each)
            if member in self._placed  # Others are somebody's garbage.
        }
        self._since = {spare: self._since.get(spare, world.now) for spare in spares}
        for (label, member), at in self._since.items():
            trouble = world.processes[label].trouble_until
            since = max(at, trouble, world.lost_at, world.tampered_at)
            if self._placed[member] != world.processes[label].machine.session:
                since = max(since, world.names_lost_at + TTL)
            if world.now > since + WINDOW:
                raise self.broken(
                    world, f"{label} does not know of {member!r}, on the ring since {at:.3f}"
                )


class Ended(RingRule):
    name = "ended"

    def __init__(self) -> None:
        self._ended: set[str] = set()
        self._holders: dict[str, str] = {}

    def touched(self, world: RingWorld, lost: bool) -> None:
        if lost:
            self._ended.clear()
        self._holders = _holders(world)

    def ordered(self, world: RingWorld) -> None:
        self._holders = _holders(world)

    def executed(
        self, world: RingWorld, process: RingProcess, command: Command[Any], reply: Any
    ) -> None:
        if command.script.name not in ("beat", "leave", "park"):
            return
        node, session = map(str, command.arguments[:2])
        before, self._holders = self._holders.get(node, ""), _holders(world)
        if not isinstance(reply, BeatReply):
            self._ended.add(session)
        elif reply.status in ACCEPTED:
            if session in self._ended:
                raise self.broken(
                    world, f"a heartbeat of {process.spec.label} came after its end, and is obeyed"
                )
            if before != session and not reply.swept:
                self._ended.add(before)


class Departures(RingRule):
    name = "departures"

    def __init__(self) -> None:
        self._placed: dict[str, set[bytes]] = {}

    def executed(
        self, world: RingWorld, process: RingProcess, command: Command[Any], reply: Any
    ) -> None:
        machine = process.machine
        if isinstance(reply, BeatReply) and reply.status is BeatStatus.OK:
            session = str(command.arguments[1])
            self._placed.setdefault(session, set()).update(members_of(command, reply))
        if command.script.name != "leave" or reply is LeaveStatus.SUPERSEDED:
            return
        if str(command.arguments[1]) != machine.session:
            return  # It comes late, and the node has begun anew meanwhile.
        left = self._placed.get(machine.session, set()) & set(world.server.scores(KEYS.ring))
        if world.lost_at > NEVER or world.tampered_at > NEVER:
            left &= _known(process)
        if left:
            raise self.broken(world, f"{process.spec.label} has left, and {sorted(left)} is there")


class Stays(RingRule):
    name = "stays"

    def __init__(self) -> None:
        self._parked: dict[str, tuple[float, frozenset[bytes]]] = {}
        # When Redis first took each process for the node.
        self._since: dict[str, float] = {}

    def touched(self, world: RingWorld, lost: bool) -> None:
        self._parked.clear()

    def executed(
        self, world: RingWorld, process: RingProcess, command: Command[Any], reply: Any
    ) -> None:
        name = process.machine.name
        members = world.members().get(name, frozenset())
        if command.script.name == "park":
            whole = world.tampered_at == world.names_lost_at == NEVER
            if reply is LeaveStatus.OK:
                self._parked[name] = (world.now, members)
            elif reply is LeaveStatus.ABSENT and members and whole:
                raise self.broken(
                    world, f"{process.spec.label} has given up a name with {sorted(members)}"
                )
            return
        if isinstance(reply, BeatReply) and reply.status in ACCEPTED:
            self._since.setdefault(process.spec.label, world.now)
        if isinstance(reply, BeatReply) and reply.status is BeatStatus.DRAINED:
            self._parked.pop(name, None)
        if not isinstance(reply, BeatReply) or reply.status is not BeatStatus.OK:
            return
        at, before = self._parked.pop(name, (NEVER, members))
        since = self._since[process.spec.label]
        if world.now > at + TTL or len(before) != world.points(process):
            return
        if since < world.lost_at:
            # It has the points that it had when it took the name, and Redis has lost that it did.
            return
        # Without a tag, which somebody deleted, its heartbeat begins a new history.
        if members != before or reply.before not in ("", reply.stamp.tag):
            raise self.broken(
                world, f"{process.spec.label} came back in time, and changed the ring"
            )


def wrong_state(world: RingWorld, process: RingProcess) -> str:
    """What is wrong with the state of a node that runs, once faults are over; else empty."""
    state = process.machine.state
    right = NodeState.DRAINED if world.is_to_drain(process) else NodeState.LIVE
    return "" if state is right else f"{process.spec.label} is {state.value}, not {right.value}"


class Recovery(RingRule):
    name = "recovery"

    def healed(self, world: RingWorld) -> None:
        running = world.alive
        if not running:
            return
        tag = world.server.tag(KEYS.ring)
        for process in running:
            machine = process.machine
            if wrong := wrong_state(world, process):
                raise self.broken(world, wrong)
            if process.spec.follow and (
                machine.sight.stamp is None or machine.sight.stamp.tag != tag
            ):
                raise self.broken(
                    world, f"{process.spec.label} is at {machine.sight.stamp}, Redis at tag {tag}"
                )
        names = sorted(p.machine.name for p in running if p.machine.state is NodeState.LIVE)
        ring = world.ring
        if sorted(ring.nodes) != names:
            raise self.broken(world, f"on the ring are {ring.nodes}, live are {names}")
        entries = world.server.hgetall(KEYS.ring, "nodes").items()
        others = {name.decode() for name, entry in entries if holder_of(entry)}
        others.difference_update(process.machine.name for process in running)
        if others and world.tampered_at == NEVER:
            raise self.broken(world, f"{sorted(others)} have entries, and do not run")
        if not names:
            return
        claimed = sorted(
            (start, end, process.spec.label)
            for process in running
            if process.claims()
            for start, end in process.view.ranges
        )
        at = 0
        for start, end, label in claimed:
            if start != at:
                raise self.broken(world, f"{label} claims from {start}, others up to {at}")
            at = end
        if at != RING_SIZE:
            raise self.broken(world, f"nobody claims the points from {at} on")


class FewCalls(RingRule):
    """A node that has nothing to do makes few calls.

    Attributes:
        most: calls a heartbeat.
    """

    most: ClassVar[int]

    def __init__(self) -> None:
        self._calls: dict[str, int] = {}

    def healed(self, world: RingWorld) -> None:
        self._calls = {process.spec.label: process.calls for process in world.alive}

    def finished(self, world: RingWorld) -> None:
        # A heartbeat comes up to a tenth early.
        most = self.most * (int(REST / (0.9 * HEARTBEAT)) + 1)
        for process in world.alive:
            made = process.calls - self._calls[process.spec.label]
            if made > most:
                raise self.broken(
                    world, f"{process.spec.label} made {made} calls in {REST} s, not {most}"
                )


class RingRest(FewCalls):
    name = "rest"
    most = 1

    def __init__(self) -> None:
        super().__init__()
        self._tag = ""

    def healed(self, world: RingWorld) -> None:
        super().healed(world)
        self._tag = world.server.tag(KEYS.ring)

    def finished(self, world: RingWorld) -> None:
        if world.server.tag(KEYS.ring) != self._tag:
            raise self.broken(world, "the ring changed without a reason")
        super().finished(world)
