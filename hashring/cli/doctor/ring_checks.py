"""The checks of ``hashring doctor`` that look at the ring: pure, from a snapshot and events."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import Final

from hashring.cli.doctor.findings import Finding, note, ok, problem
from hashring.cli.local_time import local_second
from hashring.cli.order_answers import drain_line
from hashring.cli.output import seconds
from hashring.core.expected_loads import share_likelihood
from hashring.core.readable_numbers import counted, listed, percent
from hashring.core.replica_ranges import duplicate_holders
from hashring.core.ring_balance import balance
from hashring.core.ring_change_message import ChangeKind
from hashring.core.safe_text import printable
from hashring.health import long_drained
from hashring.store.ring.commands import Scoring
from hashring.store.ring.node_reports import (
    NodeFacts,
    Sees,
    locking_nodes,
    node_facts,
    nodes_without_locks,
)
from hashring.store.ring.ring_events import RingEvent
from hashring.store.ring.snapshot import Snapshot

_CHANCE: Final = 1e-4  # part of the rings of random points whose shares are called a problem
_TRAVEL: Final = 1.0  # seconds a change may take from Redis to a node
_LATE_SWEEP: Final = 1.0  # seconds after which somebody alive should have swept what expired
_HISTORY: Final = 600.0  # seconds of history that are looked at
_OFTEN: Final = 3  # times in that history: more is no accident
_SHOWN: Final = 8


def ring_checks(
    snapshot: Snapshot,
    events: Sequence[RingEvent],
    scoring: Scoring,
    *,
    mixed: bool = False,
    instead: str = "",
) -> Iterator[Finding]:
    """Look at a ring.

    Args:
        events: its history, oldest first; what is older than ten minutes is not looked at.
        mixed: nodes of redis-hashring are on the ring.
        instead: what to say of other rings if there is no such ring.
    """
    nodes = node_facts(snapshot, scoring)
    live = [node for node in nodes if not node.expired]
    # What a node that is away has told is about a time when it ran.
    running = [node for node in live if not node.away]
    recent = [event for event in events if event.at > snapshot.now - _HISTORY]
    yield _nodes(nodes, live, instead)
    yield _garbage(snapshot)
    yield _index(snapshot)
    yield _duplicates(snapshot, mixed=mixed)
    yield _expired(nodes, live)
    yield _away(live, snapshot.now)
    yield _stray(snapshot)
    yield _algorithms(live)
    yield _agreement(live, snapshot, events)
    yield _names(live, recent)
    yield _restless(recent)
    yield _locks(snapshot, running)
    yield _unserved(running)
    yield _drains(snapshot, live)
    if snapshot.ring().node_count:
        yield _shares(snapshot)


def _list(names: Sequence[str]) -> str:
    return printable(listed(names, _SHOWN))


def _nodes(nodes: list[NodeFacts], live: list[NodeFacts], instead: str) -> Finding:
    if live and all(node.drained for node in live):
        return problem(
            "nodes",
            "every node is drained: no key has an owner",
            "hashring undrain one of them, or start another node",
        )
    if live:
        on_ring = [node for node in live if not node.drained]
        replicas = sum(node.replicas for node in on_ring)
        return ok("nodes", f"{counted(len(on_ring), 'node')} with {counted(replicas, 'replica')}")
    if nodes:
        return problem(
            "nodes", "every node has expired: no key has an owner", "start nodes, or look at them"
        )
    remedy = "; ".join(filter(None, ("start one, or check the ring's name", instead)))
    return note("nodes", "there is no node on this ring", remedy)


def _garbage(snapshot: Snapshot) -> Finding:
    if not snapshot.garbage:
        return ok("members", "every entry in the ring key is valid")
    return problem(
        "members",
        f"{counted(len(snapshot.garbage), 'invalid entry', 'invalid entries')} in the ring key; "
        "nodes ignore them",
        "find out who writes to this key, and ZREM the members",
        tuple(printable(why) for _, why in snapshot.garbage[:_SHOWN]),
    )


def _index(snapshot: Snapshot) -> Finding:
    if snapshot.unvouched:
        members = counted(len(snapshot.unvouched), "member")
        return problem(
            "index",
            f"no node vouches for {members}: readers ignore them, and a heartbeat removes them",
            "find out who writes to this key",
            tuple(printable(str(record.replica)) for record in snapshot.unvouched[:_SHOWN]),
        )
    if snapshot.unindexed:
        return note(
            "index",
            f"the index of points differs from the ring by {abs(snapshot.unindexed):,}; "
            "the next heartbeat repairs it",
        )
    if snapshot.misplaced:
        return note(
            "index",
            f"the index of points has {counted(snapshot.misplaced, 'member')} that the ring does "
            "not have; the nodes' next heartbeats repair it",
        )
    return ok("index", "the index of points has every member of the ring")


def _duplicates(snapshot: Snapshot, *, mixed: bool) -> Finding:
    holders = duplicate_holders(snapshot.ring())
    if not holders:
        return ok("points", "no two nodes share a point")
    shown = list(holders.items())[:_SHOWN]
    details = tuple(f"{point}: {_list(nodes)}" for point, nodes in shown)
    text = f"shared by several nodes: {counted(len(holders), 'point')}"
    if mixed:
        return problem(
            "points",
            f"{text}; with redis-hashring each of them owns it",
            f"{_RESTART_ONE} at once: a node of redis-hashring may claim every key until then",
            details,
        )
    return problem(
        "points", f"{text}; the last by name owns it, the others nothing", _RESTART_ONE, details
    )


_RESTART_ONE: Final = "restart all but one of them (under another name, when they have one)"


def _expired(nodes: list[NodeFacts], live: list[NodeFacts]) -> Finding:
    expired = [node for node in nodes if node.expired]
    if not expired:
        return ok("expired", "no expired node is left on the ring")
    names = _list([node.name for node in expired])
    since = max(-node.expires_in for node in expired)
    if live and since < _LATE_SWEEP:
        return note("expired", f"{names}: just expired; the next heartbeat sweeps it")
    if live:
        return problem(
            "expired",
            f"{names}: expired {seconds(since)} ago, and no heartbeat has swept it",
            "look whether the other nodes' heartbeats succeed (their status, their log)",
        )
    return problem(
        "expired",
        f"{names}: expired {seconds(since)} ago, and no live node is left to sweep",
        "start a node, or hashring remove each of them",
    )


def _away(live: list[NodeFacts], now: float) -> Finding:
    away = sorted((node for node in live if node.away), key=lambda node: node.expires_in)
    if not away:
        return ok("away", "no node is away for a restart")
    return note(
        "away",
        f"{counted(len(away), 'node')} stopped for a restart in place",
        details=tuple(
            f"{printable(node.name)}: away, back by "
            f"{local_second(now + node.expires_in)}, or other nodes take over"
            for node in away[:_SHOWN]
        ),
    )


def _stray(snapshot: Snapshot) -> Finding:
    on_ring = {record.replica.node for record in snapshot.replicas}
    stray = [
        name for name in snapshot.nodes if name not in on_ring and name not in snapshot.drained
    ]
    if stray:
        return problem(
            "entries",
            f"{_list(stray)}: has a description, but no replica on the ring",
            "a live node comes back with its next heartbeat; else hashring remove it",
        )
    telling = {name for name, node in snapshot.nodes.items() if node.told}
    silent = sorted(on_ring - telling)
    if silent:
        return note(
            "entries",
            f"{_list(silent)}: has no description: a node of redis-hashring "
            "(see --wire), or written by hand",
        )
    return ok("entries", "every node has a description, and each that has one is on the ring")


def _algorithms(live: list[NodeFacts]) -> Finding:
    users: dict[str, list[str]] = defaultdict(list)
    for node in live:
        if node.hash_algorithm:
            users[node.hash_algorithm].append(node.name)
    if len(users) < 2:
        return ok("hashing", f"all nodes hash with {next(iter(users), 'the default')}")
    return problem(
        "hashing",
        "nodes hash keys differently, so keys have two owners or none",
        "give every node the same hash_algorithm",
        tuple(f"{algorithm}: {_list(names)}" for algorithm, names in sorted(users.items())),
    )


def _agreement(live: list[NodeFacts], snapshot: Snapshot, events: Sequence[RingEvent]) -> Finding:
    another = [node.name for node in live if node.sees is Sees.ANOTHER]
    if another:
        return problem(
            "agreement",
            f"{_list(another)}: knows the last change, and yet sees another ring",
            "look again after a heartbeat: somebody may have written to the ring by hand; "
            "if it stays, restart the node",
        )
    changed = max((event.at for event in events if event.change is not None), default=0.0)
    older = [node for node in live if node.sees is Sees.OLDER]
    # A heartbeat tells what the node saw when it sent it. One sent a while after the change that
    # does not know of it shows that the message was lost.
    missed = [
        node.name for node in older if changed and snapshot.now - node.delay > changed + _TRAVEL
    ]
    if missed:
        return problem(
            "agreement",
            f"{_list(missed)}: missed the message of the last change, "
            f"{seconds(snapshot.now - changed)} ago",
            "it fetches the ring by itself after a heartbeat; if this comes again, look at its "
            "connection to Redis (the channel)",
        )
    if older:
        return note(
            "agreement",
            f"{_list([node.name for node in older])}: has sent no heartbeat since the last change",
        )
    unknown = sum(node.sees is Sees.UNKNOWN and not node.away for node in live)
    if unknown:
        return note(
            "agreement", f"{unknown:,} of {len(live):,} nodes do not say which ring they see"
        )
    return ok("agreement", "every node sees this ring")


def _names(live: list[NodeFacts], recent: list[RingEvent]) -> Finding:
    taken = _often_joined(recent, "restart")
    if taken:
        return problem(
            "names",
            f"{_list(taken)}: taken over again and again: several processes run under one name",
            "give each process a name of its own",
        )
    places: dict[tuple[str, str], list[str]] = defaultdict(list)
    for node in live:
        # Several nodes of one process are host:pid, host:pid.2 and so on; a node that found its
        # host:pid taken by another process adds four hex digits.
        suffix = node.name.removeprefix(f"{node.host}:{node.pid}")
        if suffix == "" or (suffix.startswith(".") and len(suffix) == 5):
            places[node.host, node.pid].append(node.name)
    twice = [name for names in places.values() if len(names) > 1 for name in names]
    if twice:
        return note(
            "names",
            f"{_list(twice)}: different processes with the same host name and pid",
            "give containers host names of their own, or the nodes names",
        )
    return ok("names", "every process has a name of its own")


def _restless(recent: list[RingEvent]) -> Finding:
    back = _often_joined(recent, "return")
    if back:
        return problem(
            "heartbeats",
            f"{_list(back)}: expired or was removed, and came back, at least {_OFTEN} times in "
            f"{seconds(_HISTORY)}",
            "its process is starved, or its Redis connection is bad; or its ttl is too short",
        )
    return ok("heartbeats", f"no node was lost and came back often in {seconds(_HISTORY)}")


def _often_joined(events: list[RingEvent], reason: str) -> list[str]:
    seen = Counter(
        event.change.nodes[0]
        for event in events
        if event.change is not None
        and event.change.kind is ChangeKind.JOIN
        and event.change.reason == reason
    )
    return sorted(name for name, times in seen.items() if times >= _OFTEN)


def _locks(snapshot: Snapshot, running: list[NodeFacts]) -> Finding:
    without = nodes_without_locks(snapshot, running)
    if not locking_nodes(snapshot):
        return ok("locks", "no node locks keys")
    if refused := [node for node in running if node.refusal is not None]:
        return problem(
            "locks",
            f"Redis refuses new locks to {counted(len(refused), 'node')}",
            "lift the reason that each tells",
            tuple(
                f"{printable(node.name)}: {printable(node.refusal or '')}"
                for node in refused[:_SHOWN]
            ),
        )
    if not without:
        return ok("locks", "every node locks keys")
    return problem(
        "locks",
        f"{_list(without)}: without lock=True, so it works on keys that others have locked",
        "give all nodes of a ring the same setting",
    )


def _unserved(running: list[NodeFacts]) -> Finding:
    limited = [node for node in running if node.limit is not None]
    without = sorted((node for node in limited if node.unserved), key=lambda node: -node.unserved)
    if without:
        keys = sum(node.unserved for node in without)
        return problem(
            "limits",
            f"no node has room for {counted(keys, 'key')}, so nobody serves them",
            "raise the limit of some nodes, or start more",
            tuple(
                f"{printable(node.name)}: {counted(node.unserved, 'key')}, at its limit of "
                f"{node.limit}"
                for node in without[:_SHOWN]
            ),
        )
    if not limited:
        return ok("limits", "no node has a limit")
    part = f"{len(limited)} of {counted(len(running), 'node')}"
    return ok("limits", f"no key is left for want of room; with a limit: {part}")


def _drains(snapshot: Snapshot, live: list[NodeFacts]) -> Finding:
    standing = snapshot.standing_drains
    if not standing:
        return ok("drains", "no node is drained")
    details = tuple(drain_line(name, order) for name, order in sorted(standing.items())[:_SHOWN])
    forgotten = long_drained(snapshot.binding_drains, snapshot.now)
    if live and forgotten:
        return problem(
            "drains",
            f"{_list(forgotten)}: drained for more than a day, without an end",
            "hashring undrain if it was forgotten; else drain again with --for",
            details,
        )
    return note("drains", f"{counted(len(standing), 'node')} drained by order", details=details)


def _shares(snapshot: Snapshot) -> Finding:
    """Compare each node's share with what as many random points have.

    Of n nodes, one that is too great or too small by chance is n times as likely as of one node,
    and there are two sides.
    """
    ring = snapshot.ring()
    total = len(ring)
    unlikely_below = _CHANCE / (2 * ring.node_count)
    ratios: list[tuple[float, str]] = []
    unlikely: list[str] = []
    for node in ring.nodes:
        own = len(ring.points_of(node))
        expected = own / total
        share = ring.share(node)
        ratios.append((share / expected, node))
        if share_likelihood(own, total, share) < unlikely_below:
            unlikely.append(
                f"{printable(node)}: {percent(share)} of the ring, expected {percent(expected)}"
            )
    (least, smallest), (most, largest) = min(ratios), max(ratios)
    text = (
        f"from {least:.2f} ({printable(smallest)}) to {most:.2f} ({printable(largest)}) times "
        "what their points should have"
    )
    found = balance(ring)
    if found is not None and ring.node_count > 1:
        text += f" (random points: up to {found.expected_peak_to_mean:.2f} on average)"
    remedy = "use more replicas, or placement='balanced'"
    if unlikely:
        return problem(
            "shares",
            f"{text}: more uneven than random points are",
            remedy,
            tuple(unlikely[:_SHOWN]),
        )
    if most > 1.5:
        return note("shares", text, remedy)
    return ok("shares", text)
