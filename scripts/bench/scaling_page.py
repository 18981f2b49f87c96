# ruff: noqa: E501 - a page is not code
"""docs/explanation/scaling.rst, from the numbers of the measures ``scaling``, ``thousand`` and the like."""

from __future__ import annotations

HEARTBEAT = 10.0
CORE_SHARE = 0.5
"""How much of its core Redis may be busy at rest, for all else to have room."""


def page(values: dict[str, float], tables: str, own: str = "") -> str:
    """The text.

    Args:
        values: what the measure ``scaling`` found.
        tables: its table, with what it was measured on.
        own: what the measure ``own-ranges`` was measured on.
    """
    message, ring = values["message"], values["ring_bytes"]
    sizes = (100, 1000, 10_000)
    beat, change, fetch = (
        {nodes: values[f"{name}-{nodes}"] for nodes in (10, *sizes)}
        for name in ("beat", "change", "fetch")
    )
    at_rest = {nodes: nodes / HEARTBEAT * beat[nodes] for nodes in sizes}
    most = CORE_SHARE * HEARTBEAT / beat[10_000]
    own_beat = values.get("own-beat-10000")
    most_own = (
        f", and {CORE_SHARE * HEARTBEAT / own_beat:,.0f} that know only their own ranges"
        if own_beat
        else ""
    )
    live = [int(name.removeprefix("live-join-")) for name in values if "live-join-" in name]
    largest = max([1000, *live])
    arrival = {nodes: change[nodes] + fetch[nodes] for nodes in sizes}
    restart = {nodes: nodes * (change[nodes] + arrival[nodes]) for nodes in sizes}
    out = {nodes: nodes * (2 * message * nodes + ring * nodes) for nodes in sizes}

    def row(what: str, values: dict[int, str]) -> str:
        return "   * - " + "\n     - ".join((what, *values.values())) + "\n"

    laws = "".join(
        (
            row("at rest, of a core", {n: f"{_short(100 * at_rest[n])} %" for n in at_rest}),
            row("a change told to all", {n: f"{_short(1e3 * change[n])} ms" for n in sizes}),
            row(
                "a node that joins, all in all",
                {n: f"{_short(1e3 * arrival[n])} ms" for n in sizes},
            ),
            row("a rolling restart, CPU", {n: f"{_short(restart[n])} s" for n in sizes}),
            row("a rolling restart, bytes out", {n: _bytes(out[n]) for n in sizes}),
        )
    )
    simulated = "".join(
        f"   * - {nodes:,}\n"
        f"     - {100 * values[f'sim-{nodes}-rest']:.2g} %\n"
        f"     - {1e3 * values[f'sim-{nodes}-join']:.1f} ms\n"
        f"     - {1e3 * values[f'sim-{nodes}-crash']:.0f} ms\n"
        f"     - {values[f'sim-{nodes}-extra']:,.0f}\n"
        for nodes in (100, 1000, 10_000)
        if f"sim-{nodes}-rest" in values
    )
    return f"""\
=======
Scaling
=======

.. Written by scripts/bench/run from docs/benchmarks/results.json. Changes made here are lost.

How far one Redis goes, and what comes then. All numbers are of 16 replicas a node, ttl 60 s, and heartbeat 10 s.

A ring can have nodes of two kinds. By default a node knows only its own ranges: this is what large fleets need. With
``follow=True`` it keeps a copy of the whole ring, and ``owner()`` needs no call to Redis.
{_own_ranges(values, own)}
Nodes that follow the ring
==========================

The numbers of this section are of ``scripts/bench/run scaling simulated``: the first
measures what each call costs Redis, the second lets rings of up to 10,000 nodes run in virtual time on these costs.
``scripts/bench/run thousand`` measures 1,000 live nodes: :doc:`/explanation/benchmarks`.

What a call costs Redis
-----------------------

- A heartbeat takes {1e6 * beat[10]:.0f} µs on a ring of 10 nodes, and {1e6 * beat[10_000]:.0f} µs on one of 10,000: one
  script, which renews 16 members of a sorted set.
- A change (a join, a leave, an expiry) takes {_short(1e3 * change[10])} ms when 10 nodes receive it, and
  {_short(1e3 * change[10_000])} ms when 10,000 are; a message has {message:.0f} bytes.
- An answer with the whole ring takes {_short(1e3 * fetch[10])} ms at 10 nodes, and {_short(1e3 * fetch[10_000])} ms at
  10,000; it has {ring:.0f} bytes for each node. Only a node that joins, or that missed a message, asks for it.

So, of one core of Redis:

.. list-table::
   :header-rows: 1
   :widths: 40 20 20 20

   * - nodes
     - 100
     - 1,000
     - 10,000
{laws}
{tables}
In virtual time
---------------

The table adds up what single calls take. What it cannot say is whether nodes get in each other's way: whether all
ask at once when one of them crashes, and how long the last one waits. So the nodes' real protocol runs against a
Redis that does one thing after another, each for as long as was measured, over a network of half a millisecond each
way. Of 1,000 and of 10,000 nodes 250 run; each stands for 4 or for 40, and so does each of its calls.

.. list-table::
   :header-rows: 1
   :widths: 20 20 20 20 20

   * - nodes
     - Redis at rest
     - a join seen by the last
     - a crash seen by the last, after the ttl
     - heartbeats it takes besides the regular ones
{simulated}
The first heartbeat after the expiry announces a crash; the other nodes then no longer wait for it. What is left of
the herd is who beats while the message is on its way. After a wipe of Redis every node
joins anew and fetches the ring: that costs what a rolling restart costs, all at once. Above a few thousand nodes that
follow, avoid this: give Redis a replica and automatic failover.

Where one Redis ends
====================

On paper, from the costs above:

- **Heartbeats.** With {100 * CORE_SHARE:.0f} % of a core for them, {most:,.0f} nodes that follow at a heartbeat of 10 s{most_own}; the
  number is proportional to the heartbeat. A ttl of 5 minutes and a heartbeat of 50 s make it five times as many, and
  a crash unnoticed for five times as long.
- **Connections.** Each node has two. Redis' default ``maxclients`` of 10,000 ends at 5,000 nodes; it can be raised.
- **Changes.** A change that all nodes follow costs time in their number, and a deployment changes each node twice. So a
  rolling restart costs in the square of the number of nodes that follow: {restart[10_000]:,.0f} s of CPU of Redis at 10,000 nodes, which spread over an hour is
  {100 * restart[10_000] / 3600:.0f} % of its core. Nodes that are started all at once have it all at once. Until all have
  heard, keys that move have two owners, or none: {1e3 * change[10_000]:.0f} ms at 10,000 nodes, and more when changes
  come faster than that.
- **The nodes.** A node that follows keeps the ring, and applies each change in a time linear in it (the
  :ref:`benchmarks <benchmark-memory>` have its size and its time). At 10,000 nodes this is what a
  rolling restart costs the fleet: 20,000 changes, 10,000 times.
- **One node a process.** A node is made for that. The thousand live nodes of the benchmarks are two processes of 500:
  all nodes of an event loop wait for each other. When it stands still, or Redis is wiped, they fetch the ring together.
  An answer with the ring is one text, and nodes that read the same share one ring, so that they are done before a
  client's timeout; a node that is not tries again, and is fenced when its ttl is over, like any that cannot renew.
  ``scripts/bench/herd.py`` does both to 150 nodes of 1,000 in one event loop.

Up to about a thousand nodes either kind works, without tuning. At ten thousand, nodes that follow work at rest, and
changes are expensive. Nodes that know only their own ranges are limited by heartbeats and connections alone.

What comes then
===============

**Several rings.** Most fleets of thousands do several kinds of work. Give each kind its own ring and nodes. Rings share a
Redis as long as their heartbeats fit, or have one each: nothing is shared between rings. With ``follow=True`` this also
divides the square: a rolling restart of ten rings of 1,000 nodes costs a tenth of one of 10,000 nodes.

**A ring of rings.** When it is one kind of work, divide the keys first: ``hash(key)`` modulo a fixed number of parts, a
ring for each part, and each node on one ring (or on a few). A node asks
``part == mine and node.contains(key)``. What is lost is evenness: a part has a fixed share of the keys, so the parts
must have nodes in proportion.

**Redis Cluster.** A ring lives in one slot, so one ring gains nothing from a cluster; several rings spread over its
nodes by their names. But a plain ``PUBLISH`` in a cluster goes to all of its nodes, so what a change costs is paid
by each of them; the heartbeats are what is divided. Separate Redis servers divide both.

**Regions.** A ring over several regions makes every heartbeat and every change cross between them, and a region that
is cut off owns nothing after its ttl. A ring in each region, on a Redis there, and the region a part of the key (where
the account's data is) keeps both inside. Moving a key to another region is then a decision of the application's,
not of a hash.

What was not measured: networks, other machines, TLS, Redis' I/O threads, and any fleet of more than {largest:,} live nodes.
"""


def _own_ranges(values: dict[str, float], measured: str) -> str:
    """What nodes that know only their own ranges cost; nothing until it was measured."""
    sizes = sorted(
        int(name.removeprefix("own-join-"))
        for name in values
        if name.startswith("own-join-") and "bytes" not in name
    )
    if not sizes:
        return ""

    def cells(*each: str) -> str:
        return "   * - " + "\n     - ".join(each) + "\n"

    def against(what: str, nodes: int) -> str:
        own, follower = values[f"own-{what}-{nodes}"], values.get(f"follow-{what}-{nodes}")
        text = f"{1e3 * own:.2g} ms"
        return text if follower is None else f"{text}; {own / follower:.2g} x"

    def restart(nodes: int) -> str:
        used = nodes * (values[f"own-leave-{nodes}"] + values[f"own-join-{nodes}"])
        sent = nodes * (values[f"own-leave-bytes-{nodes}"] + values[f"own-join-bytes-{nodes}"])
        return f"{_short(used)} s, {_bytes(sent)}"

    def in_place() -> str:
        if not all(f"own-{what}-{n}" in values for n in sizes for what in ("stay", "back")):
            return ""
        found = (
            tuple(n * (values[f"own-stay{of}-{n}"] + values[f"own-back{of}-{n}"]) for n in sizes)
            for of in ("", "-bytes")
        )
        each = (f"{_short(used)} s, {_bytes(sent)}" for used, sent in zip(*found, strict=True))
        return cells("the same in place: no key moves", *each)

    rows = "".join(
        (
            cells(
                "a heartbeat; against a follower's; against a bare one",
                *(
                    f"{1e6 * values[f'own-beat-{n}']:.0f} µs"
                    + "".join(
                        f"; {values[f'own-beat-{n}'] / values[f'{other}-beat-{n}']:.2g} x"
                        for other in ("follow", "bare")
                        if f"{other}-beat-{n}" in values
                    )
                    for n in sizes
                ),
            ),
            *(
                cells(f"a {what}; against followers", *(against(what, n) for n in sizes))
                for what in ("join", "leave", "crash")
            ),
            cells("a rolling restart, CPU and bytes out", *(restart(n) for n in sizes)),
            in_place(),
        )
    )
    greeted = (
        f" Nor are the two connections of a node that starts: {1e3 * values['connections']:.2g} ms of Redis each time."
        if "connections" in values
        else ""
    )
    head = cells("nodes", *(f"{n:,}" for n in sizes))
    widths = " ".join(["34", *["22"] * len(sizes)])
    return f"""
Nodes that know only their own ranges
=====================================

Such a node reads no ring, and receives only the changes next to its own points. A change costs about the same at any
size of the ring, and a rolling restart grows with the fleet, not with its square. A heartbeat costs more than with ``follow=True``, because the script also finds
the ends of the node's ranges.
``scripts/bench/run own-ranges own-ranges-100k`` measures time of Redis:

.. list-table::
   :header-rows: 1
   :widths: {widths}

{head}{rows}
A bare heartbeat renews 16 members, and does nothing else. The bytes are replies and messages of Redis. The time to
write to a connection for each neighbour is not included.{greeted} No ring of more than 10,000 followers was
measured. Compare the ratios: a busy machine makes all times longer.

{measured}
{_own_simulated(values)}{_own_live(values)}{_balanced(values)}"""


def _own_simulated(values: dict[str, float]) -> str:
    """Such nodes in virtual time; nothing until it was measured."""
    sizes = [n for n in (1000, 10_000, 100_000) if f"own-sim-rest-{n}" in values]
    if not sizes:
        return ""
    rows = "".join(
        f"   * - {n:,}\n"
        f"     - {100 * values[f'own-sim-rest-{n}']:.2g} %\n"
        f"     - {1e3 * values[f'own-sim-join-{n}']:.1f} ms\n"
        f"     - {1e3 * values[f'own-sim-crash-{n}']:.1f} ms\n"
        f"     - {values[f'own-sim-extra-{n}']:.0f}\n"
        f"     - {_short(values[f'own-sim-restart-{n}'])} s\n"
        for n in sizes
    )
    return f"""
In virtual time (``scripts/bench/run own-ranges-simulated``) the nodes' real protocol runs on these costs. Of 100,000
nodes the heartbeat is 50 s, and of the others 10 s:

.. list-table::
   :header-rows: 1
   :widths: 15 15 20 20 15 15

   * - nodes
     - Redis at rest
     - a join seen by the last node that it concerns
     - a crash, after the ttl
     - heartbeats it takes besides the regular ones
     - all restarted in place: CPU of Redis
{rows}"""


def _own_live(values: dict[str, float]) -> str:
    """Such nodes live; nothing until it was measured."""
    sizes = sorted(
        int(name.removeprefix("live-join-")) for name in values if name.startswith("live-join-")
    )
    if not sizes:
        return ""

    def row(what: str, *names: tuple[str, float, str]) -> str:
        each = (
            "; ".join(
                f"{_short(factor * values[f'live-{name}-{n}'])} {unit}"
                for name, factor, unit in names
            )
            for n in sizes
        )
        return "   * - " + "\n     - ".join((what, *each)) + "\n"

    rows = "".join(
        (
            row("memory of a node, connections and all", ("memory", 1e-3, "kB")),
            row("a join seen by the nodes that it concerns, p99", ("join", 1e3, "ms")),
            row("a crash: owners again, as a part of ttl + one heartbeat", ("crash", 100, "%")),
            row("at rest: CPU of Redis; of a node", ("rest", 100, "%"), ("node", 100, "%")),
            row(
                "a rolling restart: CPU of Redis; bytes out",
                ("restart", 1, "s"),
                ("restart-bytes", 1e-6, "MB"),
            ),
            row("the same in place", ("stay", 1, "s"), ("stay-bytes", 1e-6, "MB")),
            row(
                "after FLUSHALL: all right again; CPU of Redis",
                ("wipe", 1, "s"),
                ("wipe-cpu", 1, "s"),
            ),
        )
    )
    head = "   * - live nodes\n     - " + "\n     - ".join(f"{n:,}" for n in sizes) + "\n"
    return f"""
``scripts/bench/run own-live`` runs live nodes, as asyncio tasks of a few processes on this machine:

.. list-table::
   :header-rows: 1

{head}{rows}"""


def _balanced(values: dict[str, float]) -> str:
    """How even such nodes place their points; nothing until it was measured."""
    sizes = sorted(
        int(name.removeprefix("balanced-look-")) for name in values if "balanced-look-" in name
    )
    if not sizes:
        return ""

    def cell(placement: str, nodes: int) -> str:
        share = values.get(f"balanced-{placement}-{nodes}")
        return "not played" if share is None else f"{share:.2f}"

    rows = "".join(
        f"   * - {n:,}\n"
        f"     - {cell('stretches', n)}\n"
        f"     - {cell('whole', n)}\n"
        f"     - {cell('random', n)}\n"
        f"     - {1e3 * values[f'balanced-look-{n}']:.2f} ms\n"
        for n in sizes
    )
    return f"""
With ``placement="balanced"`` such a node reads only stretches of a ring of more than 128 nodes before it joins.
``scripts/bench/run balanced`` plays a rolling restart, in which each node leaves and a new one joins. The table
shows the share of the node that owns most over the fair share:

.. list-table::
   :header-rows: 1
   :widths: 16 21 21 21 21

   * - nodes
     - joiners read stretches
     - they read the whole ring
     - they place at random
     - Redis for what a joiner reads
{rows}"""


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:.2g}"


def _bytes(count: float) -> str:
    for unit, size in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6)):
        if count >= size:
            return f"{_short(count / size)} {unit}"
    return f"{_short(count / 1e3)} kB"
