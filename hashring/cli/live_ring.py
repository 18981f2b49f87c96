"""The ring as it is now, for commands that work on a ring file or on the live ring."""

from __future__ import annotations

import click

from hashring.cli.common_options import Settings
from hashring.cli.connection import connected
from hashring.core.hashing import hash_algorithm
from hashring.core.ring import Ring
from hashring.core.ring_json import RingFile
from hashring.errors import EmptyRingError
from hashring.store.ring.node_reports import ring_algorithm, told_algorithms
from hashring.store.ring.snapshot import Snapshot


def live_ring(settings: Settings, algorithm: str | None = None) -> RingFile:
    """The ring of the settings as it is now.

    Args:
        algorithm: the name of the function from key to point; by default as the nodes tell.

    Raises:
        EmptyRingError: it has no nodes.
        ConfigError: its nodes do not agree on the function.
        StoreError: it could not be read.
    """
    with connected(settings) as connection:
        seen = connection.snapshot()
    ring = ring_as_hashed(seen, settings, algorithm)
    if not ring.node_count:
        raise EmptyRingError
    return RingFile(ring, settings.ring, seen.stamp.epoch, seen.stamp.tag, seen.stamp.at)


def ring_as_hashed(seen: Snapshot, settings: Settings, algorithm: str | None) -> Ring:
    """The ring of a snapshot; warns of an algorithm that none of its nodes hashes with.

    Args:
        algorithm: as in :func:`live_ring`.

    Raises:
        ConfigError: its nodes do not agree on the function.
    """
    ring = seen.ring(ring_algorithm(seen, algorithm, settings.wire))
    told, mine = told_algorithms(seen), ring.hash_algorithm.name
    if algorithm is not None and told and mine not in told:
        click.echo(
            f"hashring: the nodes hash with {' and '.join(sorted(told))}, not {mine}: they own "
            "other keys than this answer says",
            err=True,
        )
    return ring


def live_algorithm(settings: Settings) -> tuple[str, bool]:
    """The hash algorithm of the live ring, and whether a node on it reports one.

    If none does, it is the default.

    Raises:
        ConfigError: its nodes do not agree, or report one that is not known here.
        StoreError: the ring could not be read.
    """
    with connected(settings) as connection:
        seen = connection.snapshot()
    name = ring_algorithm(seen, wire=settings.wire)
    return hash_algorithm(name).name, bool(told_algorithms(seen))
