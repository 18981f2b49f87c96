"""Where one Redis ends: its costs against the number of nodes, and what that makes of a ring."""

from __future__ import annotations

import time

import numpy as np
from redis_load import cpu_of, crowd_of
from result import Measure, Plot, Result, Run
from simulated import HEARTBEAT, POINTS, Costs, World
from targets import SCALE

SAMPLES = ((100, 100), (1000, 250), (10_000, 250))
"""Nodes of a simulated ring, and how many of them run."""


def beats(run: Run, nodes: int, count: int) -> tuple[float, float, float]:
    """Seconds of Redis for a heartbeat, and for one that is answered with the ring; its bytes."""
    with crowd_of(nodes) as (crowd, client):
        run.say(f"{nodes:,} nodes: {count:,} heartbeats")
        crowd.join_all()
        step = max(1, nodes // count)
        before = cpu_of(client)
        for number in range(count):
            crowd.beat(number * step % nodes)
        plain = (cpu_of(client) - before) / count
        fetches = max(5, min(200, 100_000 // nodes))
        sent = client.info("stats")["total_net_output_bytes"]
        before = cpu_of(client)
        for number in range(fetches):
            crowd.beat(number % nodes, fetch=True)
        used = (cpu_of(client) - before) / fetches
        sent = client.info("stats")["total_net_output_bytes"] - sent
        return plain, used, sent / fetches


def tells(run: Run, nodes: int, listeners: int, count: int) -> tuple[float, float]:
    """Seconds of Redis for a change that so many hear of, and its bytes; a leave or a join."""
    with crowd_of(nodes) as (crowd, client):
        run.say(f"{listeners:,} subscribers: {count} changes")
        crowd.join_all()
        crowd.listen(listeners)
        sent = client.info("stats")["total_net_output_bytes"]
        before = cpu_of(client)
        for number in range(count // 2):
            crowd.leave(number)
            crowd.beat(number, joining=True)
        used = (cpu_of(client) - before) / count
        time.sleep(0.2)
        sent = client.info("stats")["total_net_output_bytes"] - sent
        return used, sent / count


def at(values: dict[str, float], name: str, nodes: int) -> float:
    """A cost that was measured at some sizes of the ring, at any: on the line between two of them.

    Nothing is fitted: what a node costs grows with the ring, so no one line is true at both ends.
    """
    prefix = f"{name}-"
    measured = sorted(
        (int(key.removeprefix(prefix)), value)
        for key, value in values.items()
        if key.startswith(prefix)
    )
    return float(np.interp(nodes, *zip(*measured, strict=True)))


def take(run: Run) -> Result:
    result = Result()
    sizes = (10, 100) if run.quick else (10, 100, 1000, 10_000)
    plain, fetching, ring_bytes = {}, {}, {}
    for nodes in sizes:
        plain[nodes], fetching[nodes], ring_bytes[nodes] = beats(
            run, nodes, 200 if run.quick else 2000
        )
    listeners = (10, 100) if run.quick else (10, 100, 1000, 3000, 10_000)
    telling, message = {}, 0.0
    for count in listeners:
        telling[count], sent = tells(run, 100, count, 20 if run.quick else 40)
        message = sent / count
    for nodes in sizes:
        result.add(
            f"{nodes:,} nodes: a heartbeat; one that is answered with the ring: time of Redis",
            f"{plain[nodes] * 1e6:.0f} µs; {fetching[nodes] * 1e6:,.0f} µs",
        )
    for count in listeners:
        result.add(
            f"a change told to {count:,} subscribers: time of Redis",
            f"{telling[count] * 1e3:.2f} ms",
        )
    result.values = {
        **{f"beat-{nodes}": plain[nodes] for nodes in sizes},
        **{f"fetch-{nodes}": fetching[nodes] for nodes in sizes},
        **{f"change-{count}": telling[count] for count in listeners},
        "message": message,
        "ring_bytes": float(ring_bytes[sizes[-1]]) / sizes[-1],
    }
    result.notes.append(
        f"A message has {message:.0f} bytes, a ring {result.values['ring_bytes']:.0f} bytes for "
        "each node."
    )
    if not run.quick:
        result.plots += [
            Plot(
                "scaling-beat",
                "Time of Redis for a heartbeat",
                "nodes on the ring",
                "µs",
                {"measured": [(n, round(plain[n] * 1e6, 1)) for n in sizes]},
                log_x=True,
            ),
            Plot(
                "scaling-tell",
                "Time of Redis for a change",
                "subscribers",
                "ms",
                {"measured": [(n, round(telling[n] * 1e3, 3)) for n in listeners]},
                log_x=True,
                log_y=True,
            ),
        ]
    return result


def take_simulated(run: Run) -> Result:
    """Rings in virtual time, with the costs of Redis that ``scaling`` found."""
    import pages  # noqa: PLC0415 - it has the numbers of all measures, and so imports them all

    scaling = pages.kept().get("scaling")
    if scaling is None:
        raise RuntimeError("take the measure scaling first: the costs of Redis are its")
    found = scaling["result"]["values"]
    result = Result()
    for nodes, sample in ((20, 20),) if run.quick else SAMPLES:
        run.say(f"{nodes:,} nodes in virtual time")
        beat, fetch = at(found, "beat", nodes), at(found, "fetch", nodes)
        costs = Costs(beat, (fetch - beat) / (POINTS * nodes), at(found, "change", nodes) / nodes)
        world = World(nodes, sample, costs)
        world.settle()
        busy, began = world.busy, world.now
        world.run(world.now + 2 * HEARTBEAT)
        rest = (world.busy - busy) / (world.now - began)
        waits = []
        for _ in range(3):
            began = world.now
            joiner = world.add(1.0)
            world.run(world.now + 1)
            stamp = joiner.machine.sight.stamp
            assert stamp is not None
            waits += [node.saw[stamp.epoch] - began for node in world.running if node is not joiner]
        victim = world.running[0]
        world.crash(victim)
        expires = world.expires(victim)
        world.run(expires - 0.01)
        before = world.extra
        world.run(world.now + 1.01)
        extra = world.extra - before
        late = [node for node in world.running if victim.machine.name in node.machine.sight.ring]
        took = max(max(node.saw.values()) for node in world.running) - expires
        assert not late
        key = f"sim-{nodes}"
        result.values |= {
            f"{key}-rest": rest,
            f"{key}-join": max(waits),
            f"{key}-crash": took,
            f"{key}-extra": extra,
        }
        result.add(
            f"simulated, {nodes:,} nodes: Redis at rest; a join seen by the last; a crash seen by "
            "the last, after the ttl; heartbeats besides the regular ones that it takes",
            f"{rest * 100:.2f} % of a core; {max(waits) * 1e3:.1f} ms; {took * 1e3:.0f} ms; "
            f"{extra:,.0f}",
        )
    return result


MEASURES = (
    Measure(
        "scaling",
        SCALE,
        "Scaling",
        "What the calls of nodes cost one Redis against the number of nodes: rings of up to 10,000 "
        "nodes are put there by the nodes' own commands, and up to 10,000 subscriptions held by "
        "two processes that do nothing else. What follows from it: :doc:`/explanation/scaling`.",
        200,
        take,
    ),
    Measure(
        "simulated",
        SCALE,
        "Very many nodes in virtual time",
        "Rings of up to 10,000 nodes: the nodes' real protocol against a Redis that takes as long "
        "for each call as ``scaling`` found. Of 1,000 and of 10,000 nodes 250 run, and each stands "
        "for 4 or for 40. The time is simulated, so it does not matter how busy the machine is.",
        60,
        take_simulated,
    ),
)
