"""``hashring owner``: which node owns a key."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, Final

import click

from hashring.cli.common_options import Settings, ring_options
from hashring.cli.connection import connected
from hashring.cli.key_file import BadLines, read_keys
from hashring.cli.live_ring import ring_as_hashed
from hashring.core.hashing import key_bytes
from hashring.core.ring import Ring
from hashring.core.safe_text import printable
from hashring.errors import EmptyRingError, KeyValueError
from hashring.store.ring.node_reports import node_facts, told_zones

_BATCH: Final = 1000  # keys whose answers are written in one call


@click.command("owner")
@click.argument("keys", nargs=-1, required=True, metavar="KEY...|-")
@click.option(
    "--hash-algorithm",
    "algorithm",
    metavar="NAME",
    help="The hash algorithm from key to point, if no node reports one.",
)
@click.option(
    "--owners",
    "count",
    type=click.IntRange(min=1),
    metavar="N",
    help="List N nodes for each key, best first, in different zones as far as there are any.",
)
@ring_options()
@click.pass_obj
def command(
    settings: Settings, keys: tuple[str, ...], algorithm: str | None, count: int | None
) -> int | None:
    """Say which node owns each key.

    On the ring as it is at this moment. One line a key: the key, a tab, the node. With - the keys
    are read from standard input, one a line; a line that is no key is reported and skipped, and the
    exit status is 1. With --json, a line of JSON for each key.

    \b
    Examples:
      hashring owner account:17 account:18
      hashring owner - < accounts.txt | cut -f2 | sort | uniq -c
      hashring owner --owners 3 account:17
      hashring owner -- -key-that-begins-with-a-dash
    """
    from_stdin = keys == ("-",)
    if not from_stdin:
        for key in keys:
            _check(key)
    with connected(settings) as connection:
        snapshot = connection.snapshot()
    ring = ring_as_hashed(snapshot, settings, algorithm)
    if not ring.node_count:
        raise EmptyRingError
    bad = BadLines("standard input", lambda text: click.echo(f"hashring: {text}", err=True))
    source = read_keys(sys.stdin.buffer, bad) if from_stdin else iter(keys)
    zones = told_zones(node_facts(snapshot, settings.scoring, ring)) if count else {}
    answers = (_as_json if settings.json else _as_text)(ring, source, count, zones)
    # As other filters do: at once for a person, in large pieces for a program.
    size = 1 if sys.stdout.isatty() else _BATCH
    while batch := list(islice(answers, size)):
        click.echo("\n".join(batch))
    bad.finish()
    return 1 if bad.count else None


def _check(key: str) -> None:
    """Refuse an argument that is no key, with a remedy for a shell.

    Raises:
        KeyValueError: it is empty, or not UTF-8.
    """
    try:
        key_bytes(key)
    except KeyValueError as error:
        if not key:
            raise
        raise KeyValueError(
            key,
            "cannot be encoded as UTF-8: this command takes UTF-8 text only (in Python, owner() of "
            "a node takes any bytes)",
        ) from error


def _as_text(
    ring: Ring, keys: Iterator[str], count: int | None, zones: Mapping[str, str]
) -> Iterator[str]:
    shown = {node: printable(node) for node in ring.nodes}
    for key in keys:
        nodes = ring.owners(key, count, zones=zones) if count else (ring.owner(key),)
        yield "\t".join((printable(key), *(shown[node] for node in nodes)))


def _as_json(
    ring: Ring, keys: Iterator[str], count: int | None, zones: Mapping[str, str]
) -> Iterator[str]:
    for key in keys:
        point = ring.hash_algorithm.point(key)
        answer: dict[str, Any] = {"key": key, "point": point, "owner": ring.owner_of_point(point)}
        if count:
            answer["owners"] = [
                {"node": node, "zone": zones.get(node)}
                for node in ring.owners(key, count, zones=zones)
            ]
        yield json.dumps(answer)
