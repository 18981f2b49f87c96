"""What nodes that know only their own ranges cost Redis, against nodes that follow the ring."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redis import Redis
from redis_load import KEYS, SCORING, cpu_of, crowd_of
from result import Measure, Result, Run
from simulated_own import OwnCosts, play
from targets import SCALE

from hashring.store.embedded_server import RedisServer
from hashring.store.ring.commands import Scoring

if TYPE_CHECKING:
    from collections.abc import Callable

SIZES = (1000, 10_000)
LARGEST = 100_000
"""Of nodes that know only their own ranges; so many followers need as many connections."""
SIMULATED = ((1000, 10.0), (10_000, 10.0), (LARGEST, 50.0))
"""Nodes of a simulated ring, and seconds between their heartbeats; the ttl is six of them."""


IN_PLACE = {"stay": "a node stops to come back", "back": "it is back"}
Cost = tuple[float, float]
"""Seconds of Redis, and bytes that it sends."""


def spent(client: Redis, count: int, deed: Callable[[int], None]) -> Cost:
    """Seconds of Redis and bytes that it sends for each of so many deeds."""

    def do(deeds: int) -> Cost:
        sent, used = client.info("stats")["total_net_output_bytes"], cpu_of(client)
        for number in range(deeds):
            deed(number)
        used = cpu_of(client) - used
        return used, client.info("stats")["total_net_output_bytes"] - sent

    # What it takes to ask for these numbers.
    asked = do(0)
    used, sent = do(count)
    return used / count, max(0.0, sent - asked[1]) / count


def heartbeat(nodes: int, count: int, scoring: Scoring) -> float:
    """Seconds of Redis for a heartbeat of a node that follows the ring."""
    with crowd_of(nodes, scoring=scoring) as (crowd, client):
        crowd.put_all()
        return repeated(client, count, crowd.beat)[0]


def repeated(client: Redis, count: int, beat: Callable[[int], None]) -> Cost:
    """The cost of a heartbeat of so many nodes, each of which has had one before."""
    for number in range(count):
        # A node that has just come is answered with its ranges, once.
        beat(number)
    return spent(client, 10 * count, lambda number: beat(number % count))


def connections(count: int) -> float:
    """Seconds of Redis for the two connections of a node: made, greeted, one of them subscribed."""
    with RedisServer() as server, Redis(unix_socket_path=str(server.socket)) as client:

        def connect(number: int) -> None:
            with Redis(unix_socket_path=str(server.socket)) as node, node.pubsub() as listener:
                node.ping()
                listener.subscribe(KEYS.node_channel(str(number)))
                listener.get_message(timeout=5.0)

        return spent(client, count, connect)[0]


def changes(nodes: int, count: int, *, own: bool) -> dict[str, Cost]:
    """Seconds of Redis and bytes of a heartbeat, a leave, a join and a crash."""
    with crowd_of(nodes, own=own) as (crowd, client), client.pubsub() as neighbours:
        crowd.put_all()
        if own:
            # Whoever is told is told by this connection.
            neighbours.psubscribe(KEYS.node_channel("*"))
            neighbours.get_message(timeout=5.0)
        else:
            crowd.listen(nodes)

        def read() -> None:
            while own and neighbours.get_message(timeout=0.0) is not None:
                pass

        def join(number: int) -> None:
            crowd.beat(number, joining=True, fetch=not own)
            read()

        def leave(number: int) -> None:
            crowd.leave(number)
            read()

        def crash(number: int) -> None:
            crowd.expire(number)
            crowd.beat(count + number)
            read()

        def beat(number: int) -> None:
            crowd.beat(count + number)

        found = {"beat": repeated(client, count, beat)}
        found |= {"leave": spent(client, count, leave), "join": spent(client, count, join)}
        if own:
            # They are short, and one pause of the machine would be a large part of a few of them.
            # These nodes know their ranges; the last of them loads the script.
            first, many = 2 * count, min(10 * count, nodes - 2 * count - 1)
            for number in range(many + 1):
                crowd.beat(first + number)
            crowd.stay(first + many)
            epoch = client.get(KEYS.epoch)
            found |= {
                "stay": spent(client, many, lambda number: crowd.stay(first + number)),
                "back": spent(client, many, lambda number: crowd.back(first + number)),
            }
            if client.get(KEYS.epoch) != epoch:
                raise RuntimeError("a restart in place changed the ring")
        used, sent = spent(client, count, crash)
        found["crash"] = used - found["beat"][0], sent - found["beat"][1]
        return found


def note(values: dict[str, float], kind: str, nodes: int, found: dict[str, Cost]) -> None:
    for what, (used, sent) in found.items():
        values |= {f"{kind}-{what}-{nodes}": used, f"{kind}-{what}-bytes-{nodes}": sent}


def take(run: Run) -> Result:
    result = Result()
    values = result.values
    values["connections"] = connections(20 if run.quick else 200)
    result.add(
        "the two connections of a node that starts: time of Redis",
        f"{values['connections'] * 1e3:.2f} ms",
    )
    for nodes in (50, 200) if run.quick else SIZES:
        run.say(f"{nodes:,} nodes: followers")
        beating = 5 if run.quick else 40
        bare = heartbeat(nodes, beating, Scoring.last_heartbeat(600.0))
        follower = heartbeat(nodes, beating, SCORING)
        follows = changes(nodes, 5, own=False)
        run.say(f"{nodes:,} nodes: nodes that know only their own ranges")
        knows = changes(nodes, beating, own=True)
        note(values, "follow", nodes, follows)
        note(values, "own", nodes, knows)
        values |= {f"bare-beat-{nodes}": bare, f"follow-beat-{nodes}": follower}
        own = knows["beat"][0]
        for name, other in (("bare one", bare), ("follower's", follower)):
            result.add(
                f"{nodes:,} nodes: a heartbeat, against a {name}",
                f"{own * 1e6:.0f} µs",
                f"{other * 1e6:.0f} µs",
                value=own / other,
            )
        for what in ("stay", "back"):
            used, sent = knows[what]
            result.add(
                f"{nodes:,} nodes: {IN_PLACE[what]}: time of Redis, bytes that it sends",
                f"{used * 1e3:.2f} ms, {sent:,.0f} B",
            )
        for what in ("join", "leave", "crash"):
            (used, sent), (theirs, out) = knows[what], follows[what]
            result.add(
                f"{nodes:,} nodes: a {what}: time of Redis, bytes that it sends",
                f"{used * 1e3:.2f} ms, {sent:,.0f} B",
                f"{theirs * 1e3:.2f} ms, {out:,.0f} B",
                value=used / theirs,
            )
    return result


def take_largest(run: Run) -> Result:
    result = Result()
    nodes = 300 if run.quick else LARGEST
    run.say(f"{nodes:,} nodes")
    found = changes(nodes, 5 if run.quick else 40, own=True)
    note(result.values, "own", nodes, found)
    for what, (used, sent) in found.items():
        result.add(
            f"{nodes:,} nodes: {IN_PLACE.get(what, f'a {what}')}: "
            "time of Redis, bytes that it sends",
            f"{used * 1e3:.2f} ms, {sent:,.0f} B",
        )
    return result


def take_simulated(run: Run) -> Result:
    """Rings in virtual time, with the costs of Redis that ``own-ranges`` found."""
    import pages  # noqa: PLC0415 - it has the numbers of all measures, and so imports them all

    values: dict[str, float] = {}
    for name in ("own-ranges", "own-ranges-100k"):
        if (taken := pages.kept().get(name)) is not None:
            values |= taken["result"]["values"]
    result = Result()
    for nodes, heartbeat in SIMULATED[:1] if run.quick else SIMULATED:
        what = ("beat", "join", "leave", "stay", "back")
        if missing := [each for each in what if f"own-{each}-{nodes}" not in values]:
            raise RuntimeError(f"take the measure own-ranges first: {missing} at {nodes:,} nodes")
        run.say(f"{nodes:,} nodes in virtual time")
        costs = OwnCosts(**{each: values[f"own-{each}-{nodes}"] for each in what})
        found = play(nodes, 30 if run.quick else 100, costs, heartbeat)
        result.values |= {f"own-sim-{name}-{nodes}": value for name, value in vars(found).items()}
        result.add(
            f"simulated, {nodes:,} nodes, heartbeat {heartbeat:g} s: Redis at rest; a join seen by "
            "the last node that it concerns; a crash, after the ttl; heartbeats that it takes",
            f"{found.rest * 100:.2g} % of a core; {found.join * 1e3:.1f} ms; "
            f"{found.crash * 1e3:.1f} ms; {found.extra}",
        )
        result.add(
            f"simulated, {nodes:,} nodes restarted in place, no key moved: time of Redis",
            f"{found.restart:.2g} s",
        )
    return result


MEASURES = (
    Measure(
        "own-ranges",
        SCALE,
        "Nodes that know only their own ranges",
        "What ``follow=False`` costs one Redis, against nodes that follow the ring. The rings are "
        "put there as joins would; the nodes' own commands are measured. A bare heartbeat is that "
        'of ``wire="redis-hashring"``: it renews 16 members, and no more. Followers listen on a '
        "connection each, neighbours on one for all of them. So what it costs Redis to write to a "
        "connection for each neighbour is not included.",
        120,
        take,
    ),
    Measure(
        "own-ranges-100k",
        SCALE,
        "100,000 nodes that know only their own ranges",
        "The same of a ring of 100,000 nodes. That many followers would need as many connections.",
        120,
        take_largest,
    ),
    Measure(
        "own-ranges-simulated",
        SCALE,
        "Very many nodes that know only their own ranges, in virtual time",
        "The nodes' real protocol against a Redis that takes as long for each call as "
        "``own-ranges`` found. Of each ring 100 nodes run; the heartbeats of the others slow Redis "
        "down. The time is simulated, so it does not matter how busy the machine is.",
        60,
        take_simulated,
    ),
)
