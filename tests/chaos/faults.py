"""What is done to a fleet, and for how long ownership may suffer from it.

A fault marks ``"fault"`` when it begins and ``"healed"`` when its cause is gone: recovery counts
from then. Bounds are those of docs/explanation/guarantees.rst: a key has two owners for at most the
propagation window; it has none for at most that, or for ttl + one heartbeat after a crash; all is
well again within the propagation window of the fault's end.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from hashring.protocol.machine_steps import io_timeout
from hashring.store.ring.commands import Scoring
from hashring.store.ring.key_names import ring_keys
from hashring.store.ring.node_orders import drain, undrain
from hashring.store.ring.snapshot import snapshot
from tests.chaos.fleet import Fleet, Timing, Worker, until
from tests.proxy import Proxy

GARBAGE_MEMBERS = (
    b"abc",
    b"12:only",
    b"",
    b":::",
    b"99999999999:far:1:ab",
    b"-1:minus:1:ab",
    b"7:\xff\xfe:1:ab",
    b"1_0:under:1:ab",
    b"5::1:",
)
GARBAGE_MESSAGES = (
    b"",
    b"*",
    b"\xff\xfe\x00",
    b"{",
    b"[" * 5000,
    b'{"v":1}',
    b'{"v":1,"kind":"join","nodes":["x"],"points":[99999999999],"epoch":1,"tag":"t","members":1}',
    b'{"v":2,"kind":"leave"}',
    b'{"v":1,"kind":"leave","nodes":[7],"prev":null,"epoch":-1,"tag":"","members":true,"at":"x"}',
    b"9" * 5000,
)


@dataclass(frozen=True)
class Bounds:
    """The longest that a window may last, until recovery, and that a node may not answer, in
    seconds."""

    double: float
    none: float
    recovery: float
    silence: float = 1.0


@dataclass(frozen=True)
class Fault:
    """One fault.

    Attributes:
        text: what happens, for the reader of the table.
        act: does it.
        away: given the fleet afterwards, for how long a key may have no owner; the propagation
            window unless given.
        recovery: the same for the time until all is well.
        peers: whether it can be done to nodes of redis-hashring, which take no orders.
        burns: whether a node does other work instead of answering, for its job's ``burn``.
        slow: seconds by which every message and call is late meanwhile.
        loses: whether another server takes over, perhaps with an earlier state, locks included.
            Nobody takes a lock for as long as one lasts. A lock whose release is lost stands until
            it expires.
        empties: whether Redis loses everything. Nodes put back the locks that they hold; nobody
            takes another one for as long as a lock lasts.
    """

    name: str
    text: str
    act: Callable[[Fleet], None]
    away: Callable[[Fleet], float] | None = None
    recovery: Callable[[Timing], float] | None = None
    burns: bool = False
    slow: float = 0.0
    loses: bool = False
    empties: bool = False
    topology: str = "single"
    workers: int = 4
    nodes: int = 1
    peers: bool = True

    def bounds(self, fleet: Fleet) -> Bounds:
        """What this fault may do to ownership."""
        timing = fleet.timing
        window = timing.window + self.slow
        held_off = timing.ttl if (self.empties or self.loses) and fleet.variant.lock else 0.0
        return Bounds(
            double=0.0 if fleet.variant.lock else window,
            none=max(window, self.away(fleet) if self.away else 0.0) + held_off,
            recovery=max(window, self.recovery(timing) if self.recovery else 0.0) + held_off,
            # A call is given up, and the next one too.
            silence=2 * io_timeout(timing.ttl) + (fleet.workers[0].job.burn if self.burns else 0.0),
        )


def _takeover(timing: Timing) -> float:
    return timing.ttl + timing.heartbeat


def _crash(fleet: Fleet) -> float:
    return _takeover(fleet.timing)


def _outage(fleet: Fleet) -> float:
    """Nobody can renew: at worst, a key is without an owner from one ttl after the last heartbeat
    before the fault until Redis is back, and then for the time of recovery."""
    timing = fleet.timing
    lasted = fleet.marked("healed") - fleet.marked("fault")
    return lasted - timing.ttl + timing.heartbeat + timing.window


def _all_change(fleet: Fleet, spared: Worker | None = None) -> None:
    """A node leaves and one comes, so that there is something to miss."""
    fleet.stop(fleet.mortal(spared))
    fleet.add()


# --- processes --------------------------------------------------------------------------------


def kill(fleet: Fleet) -> None:
    fleet.mark("fault")
    fleet.kill(fleet.mortal())
    fleet.mark("healed")


def pause(fleet: Fleet) -> None:
    victim = fleet.victim()
    fleet.mark("fault")
    fleet.pause(victim)
    time.sleep(1.6 * fleet.timing.ttl)
    fleet.mark("healed")
    fleet.resume(victim)


def burn(fleet: Fleet) -> None:
    victim = fleet.victim()
    fleet.mark("fault")
    fleet.tell(victim, signal.SIGUSR1)
    time.sleep(victim.job.burn + 0.1)
    fleet.mark("healed")


def clocks(fleet: Fleet) -> None:
    fleet.mark("fault")
    for worker in fleet.running:
        fleet.tell(worker, signal.SIGUSR2)
    time.sleep(2 * fleet.timing.heartbeat)
    _all_change(fleet)
    fleet.mark("healed")


def churn(fleet: Fleet) -> None:
    fleet.mark("fault")
    for _ in range(6):
        _all_change(fleet)
    fleet.mark("healed")


def drained(fleet: Fleet) -> None:
    """A quarter of the nodes is drained, one after another; and again, all at once."""
    names = fleet.names()
    chosen = fleet.rng.sample(sorted(names), max(1, len(names) // 4))
    fleet.mark("fault")
    for node in chosen:
        drain_nodes(fleet, names, [node])
    undrain_nodes(fleet, names, chosen)
    drain_nodes(fleet, names, chosen)
    undrain_nodes(fleet, names, chosen)
    fleet.mark("healed")


def drain_nodes(fleet: Fleet, names: Mapping[str, str], nodes: Sequence[str]) -> None:
    for node in nodes:
        fleet.run(drain(ring_keys(fleet.ring), node=names[node], by="chaos"))
    ordered = time.monotonic()

    def idle() -> bool:
        """Whether the nodes claim nothing in a round that began after the order."""
        last = {life.node: life.sweeps[-1] for life in fleet.lives() if life.node in nodes}
        return all(sweep.begun > ordered and not sweep.keys for sweep in last.values())

    until(idle, f"{', '.join(nodes)} own nothing after the order to drain")
    time.sleep(fleet.timing.window)


def undrain_nodes(fleet: Fleet, names: Mapping[str, str], nodes: Sequence[str]) -> None:
    for node in nodes:
        fleet.run(undrain(ring_keys(fleet.ring), node=names[node], by="chaos"))
    look = snapshot(ring_keys(fleet.ring), scoring=Scoring.expiry(fleet.timing.ttl))
    until(lambda: not fleet.run(look).drained, "they are back")
    time.sleep(fleet.timing.window)


def rolling_restart(fleet: Fleet) -> None:
    fleet.mark("fault")
    for worker in fleet.running:
        fleet.restart_nodes(worker)
    fleet.mark("healed")


# --- Redis ------------------------------------------------------------------------------------


def restart_empty(fleet: Fleet) -> None:
    fleet.mark("fault")
    fleet.server.kill()
    fleet.server.start()
    fleet.mark("healed")


def down(fleet: Fleet) -> None:
    fleet.mark("fault")
    fleet.server.kill()
    time.sleep(1.5 * fleet.timing.ttl)
    fleet.server.start()
    fleet.mark("healed")


def hang(fleet: Fleet) -> None:
    fleet.mark("fault")
    os.kill(fleet.server.pid, signal.SIGSTOP)
    time.sleep(1.5 * fleet.timing.ttl)
    fleet.mark("healed")
    os.kill(fleet.server.pid, signal.SIGCONT)


def flushall(fleet: Fleet) -> None:
    fleet.mark("fault")
    fleet.redis.flushall()
    fleet.mark("healed")


def ring_deleted(fleet: Fleet) -> None:
    fleet.mark("fault")
    fleet.redis.delete(fleet.ring)
    fleet.mark("healed")


def ring_of_another_type(fleet: Fleet) -> None:
    fleet.mark("fault")
    fleet.redis.set(fleet.ring, "not a ring")
    time.sleep(1.5 * fleet.timing.ttl)
    fleet.redis.delete(fleet.ring)
    fleet.mark("healed")


def garbage(fleet: Fleet) -> None:
    fleet.mark("fault")
    for member in GARBAGE_MEMBERS:
        fleet.redis.zadd(fleet.ring, {member: time.time() + 1000})
    for message in GARBAGE_MESSAGES:
        fleet.redis.publish(fleet.ring, message)
    time.sleep(fleet.timing.heartbeat)
    fleet.add(wait=not fleet.variant.peer)
    fleet.mark("healed")


def maxmemory(fleet: Fleet) -> None:
    fleet.mark("fault")
    fleet.redis.config_set("maxmemory", 1)
    time.sleep(1.5 * fleet.timing.ttl)
    fleet.redis.config_set("maxmemory", 0)
    fleet.mark("healed")


def script_flush(fleet: Fleet) -> None:
    fleet.mark("fault")
    for _ in range(10):
        fleet.redis.script_flush()
        time.sleep(0.1)
    _all_change(fleet)
    fleet.redis.script_flush()
    fleet.mark("healed")


# --- the network ------------------------------------------------------------------------------


def cut_off(fleet: Fleet) -> None:
    victim = fleet.victim()
    assert victim.proxy is not None
    fleet.mark("fault")
    victim.proxy.black_hole()
    time.sleep(1.8 * fleet.timing.ttl)
    fleet.mark("healed")
    victim.proxy.heal()


def connections_cut(fleet: Fleet) -> None:
    fleet.mark("fault")
    for _ in range(10):
        for worker in fleet.running:
            if worker.proxy is not None:
                worker.proxy.cut()
        time.sleep(0.1)
    fleet.mark("healed")


def half_open(fleet: Fleet) -> None:
    victim = fleet.victim()
    assert victim.proxy is not None
    fleet.mark("fault")
    victim.proxy.deafen("pubsub")
    _all_change(fleet, spared=victim)
    fleet.mark("healed")


def slow(fleet: Fleet) -> None:
    for worker in fleet.running:
        if worker.proxy is not None:
            worker.proxy.delay(SLOW)
    fleet.mark("fault")
    _all_change(fleet)
    time.sleep(fleet.timing.ttl)
    for worker in fleet.running:
        if worker.proxy is not None:
            worker.proxy.heal()
    fleet.mark("healed")


SLOW = 0.2
LATE = 1.0


def pubsub_killed(fleet: Fleet) -> None:
    fleet.mark("fault")
    for number in range(8):
        fleet.redis.execute_command("CLIENT", "KILL", "TYPE", "pubsub")
        if number == 4:
            _all_change(fleet)
        time.sleep(0.2)
    fleet.mark("healed")


def messages_lost(fleet: Fleet) -> None:
    _without_messages(fleet, Proxy.lose_messages)


def messages_late(fleet: Fleet) -> None:
    _without_messages(fleet, lambda proxy: proxy.delay_messages(LATE))


def _without_messages(fleet: Fleet, fail: Callable[[Proxy], None]) -> None:
    proxies = [worker.proxy for worker in fleet.running if worker.proxy is not None]
    fleet.mark("fault")
    for proxy in proxies:
        fail(proxy)
    _all_change(fleet)
    time.sleep(fleet.timing.ttl)
    for proxy in proxies:
        proxy.heal()
    fleet.mark("healed")


# --- a second Redis ---------------------------------------------------------------------------


def _await_failover(fleet: Fleet) -> None:
    fleet.mark("fault")
    fleet.server.kill()
    fleet.wait_promoted()
    fleet.mark("healed")


def failover(fleet: Fleet) -> None:
    _await_failover(fleet)


def failover_lost(fleet: Fleet) -> None:
    fleet.replication.black_hole()
    fleet.add()  # the replica does not hear of it, nor of the locks that it takes
    time.sleep(fleet.timing.heartbeat)
    _await_failover(fleet)


def promoted(fleet: Fleet) -> None:
    fleet.mark("fault")
    fleet.promote()
    time.sleep(2 * fleet.timing.heartbeat)  # until then everybody talks to what is a replica now
    for worker in fleet.running:
        if worker.proxy is not None:
            worker.proxy.upstream = fleet.upstream
            worker.proxy.cut()
    fleet.mark("healed")


FAULTS = {
    fault.name: fault
    for fault in (
        Fault("kill", "SIGKILL of a node", kill, _crash, _takeover),
        Fault("pause", "SIGSTOP beyond the ttl, then SIGCONT", pause, _crash),
        Fault("burn", "a node's loop burns CPU beyond the ttl", burn, _crash, burns=True),
        Fault("clocks", "wall clocks of nodes off by +120 s and -120 s", clocks),
        Fault("churn", "nodes come and go, six times", churn),
        Fault(
            "rolling-restart",
            "50 nodes restarted one after another",
            rolling_restart,
            workers=5,
            nodes=10,
        ),
        Fault(
            "drain",
            "5 of 20 nodes drained, one after another and at once",
            drained,
            workers=5,
            nodes=4,
            peers=False,
        ),
        Fault("restart-empty", "Redis killed, and back empty", restart_empty, empties=True),
        Fault(
            "down", "Redis down for longer than the ttl, back empty", down, _outage, empties=True
        ),
        Fault("hang", "Redis stands still for longer than the ttl", hang, _outage),
        Fault("flushall", "FLUSHALL", flushall, empties=True),
        Fault("ring-deleted", "the ring's key deleted", ring_deleted),
        Fault(
            "ring-type",
            "the ring's key of another type for longer than the ttl",
            ring_of_another_type,
            _outage,
        ),
        Fault("garbage", "garbage on the ring and on its channel", garbage),
        Fault("maxmemory", "Redis full for longer than the ttl", maxmemory),
        Fault("script-flush", "SCRIPT FLUSH, ten times", script_flush),
        Fault("cut-off", "a node's network swallows everything beyond the ttl", cut_off, _crash),
        Fault("cuts", "all connections cut, ten times", connections_cut),
        Fault("half-open", "a node's subscription is deaf while nodes come and go", half_open),
        Fault("slow", f"answers {SLOW:g} s late", slow, slow=3 * SLOW),
        Fault("pubsub-killed", "CLIENT KILL TYPE pubsub, eight times", pubsub_killed),
        Fault("messages-lost", "every pub/sub message is lost", messages_lost),
        Fault("messages-late", f"every pub/sub message is {LATE:g} s late", messages_late),
        Fault(
            "failover", "failover by Sentinel", failover, _outage, loses=True, topology="sentinel"
        ),
        Fault(
            "failover-lost",
            "failover by Sentinel, unreplicated writes lost",
            failover_lost,
            _outage,
            loses=True,
            topology="sentinel",
        ),
        Fault("promoted", "replica promoted by hand", promoted, topology="replica", loses=True),
    )
}
