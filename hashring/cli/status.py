"""``hashring status``: whether all is well, worst first."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import click

from hashring.cli.common_options import Settings, ring_options
from hashring.cli.connection import Connection, connected
from hashring.cli.output import document
from hashring.cli.rings_on_server import SHOWN, check_exists
from hashring.core.groups import group_status
from hashring.core.readable_numbers import counted, listed
from hashring.core.safe_text import printable
from hashring.errors import GroupFormatError, RedisRefused
from hashring.health import (
    Health,
    State,
    exit_status,
    group_health,
    ring_health,
    unreadable,
    worst,
    worst_first,
)
from hashring.store.discovery import discover
from hashring.store.group.decision_history import newest_decisions
from hashring.store.group.key_names import group_keys
from hashring.store.group.reading import read
from hashring.store.ring.key_names import ring_keys
from hashring.store.ring.node_reports import node_facts, nodes_without_locks, told_algorithms
from hashring.store.ring.ring_events import newest
from hashring.store.ring.snapshot import snapshot

_EVENTS: Final = 20
_DECISIONS: Final = 5


@click.command("status")
@ring_options()
@click.pass_obj
def command(settings: Settings) -> int:
    """Say whether all rings and groups are well, and if not, why.

    Looks at all rings and groups on this Redis, or at the ring that --ring names. HASHRING_RING
    does not count here. On a Redis Cluster it asks all servers. The worst comes first, each with
    its reasons and what to do.

    Exit status: 0 when all are healthy, changing or stopped on purpose; 1 when one is degraded;
    2 when one is down or cannot be read, or when there is no ring of the name that --ring gives.

    \b
    Examples:
      hashring status
      hashring status --ring accounts || page-somebody
      hashring status --json | jq -r .state
    """
    with connected(settings) as connection:
        # A ring named in the environment must not hide that another one is down.
        if "ring" in settings.typed:
            verdicts = {
                ("ring", settings.ring): _of_ring(connection, settings.ring, settings, named=True)
            }
        else:
            verdicts = {}
            for server in connection.servers():
                verdicts |= _of_all(server, settings)
            verdicts = dict(sorted(verdicts.items()))
    if settings.json:
        _write_json(verdicts)
    else:
        click.echo("\n".join(_lines(verdicts)))
    return exit_status(verdicts.values())


def _of_all(connection: Connection, settings: Settings) -> dict[tuple[str, str], Health]:
    verdicts = {}
    for kind, name in {found for found in discover(connection) if found is not None}:
        of = _of_ring if kind == "ring" else _of_group
        verdicts[kind, name] = of(connection, name, settings)
    return verdicts


def _of_ring(
    connection: Connection, name: str, settings: Settings, *, named: bool = False
) -> Health:
    """The verdict on a ring.

    Args:
        named: it is the ring of the settings, and there may be none of that name.
    """
    keys = ring_keys(name)
    try:
        seen = connection.run(snapshot(keys, scoring=settings.scoring))
        if named:
            check_exists(connection, seen)
        nodes = node_facts(seen, settings.scoring)
        return ring_health(
            nodes,
            newest(connection, keys, _EVENTS),
            ring=name,
            now=seen.now,
            algorithms=told_algorithms(seen),
            drains=seen.binding_drains,
            without_locks=nodes_without_locks(seen, nodes),
        )
    except RedisRefused as error:
        return unreadable(error)


def _of_group(connection: Connection, name: str, _: Settings) -> Health:
    keys = group_keys(name)
    try:
        reading = connection.run(read(keys))
        state = reading.standing()
        if state is None:
            return Health(State.STOPPED)
        decisions = newest_decisions(connection, keys, _DECISIONS)
        status = group_status.status(state, reading.facts)
        return group_health(status, decisions, group=name, now=reading.facts.now)
    except (RedisRefused, GroupFormatError) as error:
        return unreadable(error)


def _lines(verdicts: dict[tuple[str, str], Health]) -> Iterator[str]:
    if not verdicts:
        yield "no rings and no groups here"
        return
    states = [health.state for health in verdicts.values()]
    tally = ", ".join(
        f"{states.count(state)} {state.value}" for state in reversed(State) if state in states
    )
    kinds = [kind for kind, _ in verdicts]
    looked_at = " and ".join(
        counted(kinds.count(kind), kind) for kind in sorted(set(kinds), reverse=True)
    )
    yield f"{worst(verdicts.values()).value}: {looked_at} ({tally})"
    for (kind, name), health in sorted(verdicts.items(), key=lambda item: worst_first(item[1])):
        if health.state is State.HEALTHY:
            continue
        yield ""
        yield f"{health.state.value}: {kind} {printable(name)}"
        for reason in health.reasons:
            yield f"  {printable(reason.text)}"
            if reason.remedy:
                end = f": {reason.command}" if reason.command else ""
                yield f"    to do: {printable(reason.remedy + end)}"
    if State.HEALTHY in states:
        yield ""
        yield f"{State.HEALTHY.value}: {_names_of(verdicts, State.HEALTHY)}"


def _names_of(verdicts: dict[tuple[str, str], Health], state: State) -> str:
    """``rings accounts, feeds; group orders``: all that are in a state."""
    parts = []
    for kind in ("ring", "group"):
        names = [
            name for (of, name), health in verdicts.items() if (of, health.state) == (kind, state)
        ]
        if names:
            parts.append(
                f"{kind}{'' if len(names) == 1 else 's'} {printable(listed(names, SHOWN))}"
            )
    return "; ".join(parts)


def _write_json(verdicts: dict[tuple[str, str], Health]) -> None:
    document(
        {
            "state": worst(verdicts.values()).value,
            "verdicts": [
                {
                    kind: name,
                    "state": health.state.value,
                    "reasons": [reason.as_dict() for reason in health.reasons],
                }
                for (kind, name), health in sorted(
                    verdicts.items(), key=lambda item: (worst_first(item[1]), item[0])
                )
            ],
        }
    )
