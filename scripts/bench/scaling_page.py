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

How far one Redis goes, and what comes then. The numbers are of ``scripts/bench/run scaling simulated``: the first
measures what each call costs Redis, the second lets rings of up to 10,000 nodes run in virtual time on these costs. They are
of 16 replicas a node, ttl 60 s, heartbeat 10 s, and of nodes that follow the whole ring. What 1,000 live nodes do is measured by ``scripts/bench/run
thousand``: :doc:`/explanation/benchmarks`.

What a call costs Redis
=======================

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
===============

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
joins anew and fetches the ring: that costs what a rolling restart costs, all at once. From some thousand nodes on, spare a
ring that, by a replica and a failover.

Where one Redis ends
====================

On paper, from the costs above:

- **Heartbeats.** With {100 * CORE_SHARE:.0f} % of a core for them, {most:,.0f} nodes at a heartbeat of 10 s; the
  number is proportional to the heartbeat. A ttl of 5 minutes and a heartbeat of 50 s make it five times as many, and
  a crash unnoticed for five times as long.
- **Connections.** Each node has two. Redis' default ``maxclients`` of 10,000 ends at 5,000 nodes; it can be raised.
- **Changes.** A change costs time in the number of nodes, and a deployment changes each node twice, so a rolling restart
  costs in its square: {restart[10_000]:,.0f} s of CPU of Redis at 10,000 nodes, which spread over an hour is
  {100 * restart[10_000] / 3600:.0f} % of its core. Nodes that are started all at once have it all at once. Until all have
  heard, keys that move have two owners, or none: {1e3 * change[10_000]:.0f} ms at 10,000 nodes, and more when changes
  come faster than that.
- **The nodes.** Every node keeps the ring, and applies each change in a time linear in it (the
  :ref:`benchmarks <benchmark-memory>` have its size and its time). At 10,000 nodes this is what a
  rolling restart costs the fleet: 20,000 changes, 10,000 times.
- **One node a process.** A node is made for that. The thousand live nodes of the benchmarks are two processes of 500:
  all nodes of an event loop wait for each other. When it stands still, or Redis is wiped, they fetch the ring together.
  An answer with the ring is one text, and nodes that read the same share one ring, so that they are done before a
  client's timeout; a node that is not tries again, and is fenced when its ttl is over, like any that cannot renew.
  ``scripts/bench/herd.py`` does both to 150 nodes of 1,000 in one event loop.

Up to about a thousand nodes nothing needs to be thought of. At ten thousand it works at rest, and it is the changes
that hurt.

What comes then
===============
{_own_ranges(values, own)}
**Several rings.** Most fleets of thousands do several kinds of work. A ring a kind, each with its own nodes, divides the
square: ten rings of 1,000 nodes cost, for a rolling restart of all, a tenth of one ring of 10,000. Rings share a
Redis as long as their heartbeats fit, or have one each: nothing is shared between rings.

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

What was not measured: networks, other machines, TLS, Redis' I/O threads, and any fleet of more than 1,000 live nodes.
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
        )
    )
    head = cells("nodes", *(f"{n:,}" for n in sizes))
    widths = " ".join(["34", *["22"] * len(sizes)])
    return f"""
**Nodes that know only their own ranges.** ``RingNode(..., follow=False)`` reads no ring, and receives only the
changes next to its own points. A change then costs about the same at any size of the ring, and a rolling restart grows
with the fleet, not with its square. ``scripts/bench/run own-ranges own-ranges-100k`` measures time of Redis:

.. list-table::
   :header-rows: 1
   :widths: {widths}

{head}{rows}
A bare heartbeat renews 16 members, and does nothing else. The bytes are replies and messages of Redis. The time to
write to a connection for each neighbour is not included, and no ring of more than 10,000 followers was
measured. The CPU of the nodes themselves was not measured. Compare the ratios: a busy machine makes all times longer.

{measured}
"""


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:.2g}"


def _bytes(count: float) -> str:
    for unit, size in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6)):
        if count >= size:
            return f"{_short(count / size)} {unit}"
    return f"{_short(count / 1e3)} kB"
