"""A ring as text: what ``hashring export`` writes, and jobs without a Redis read.

The text is JSON with a version. It carries the ring's fingerprint, so a file that was cut short,
edited or joined from two is refused instead of sending keys to the wrong nodes.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final

from hashring.core.hashing import is_known, known_name
from hashring.core.ring import Ring
from hashring.core.ring_change_message import GREATEST_COUNT
from hashring.core.value_checks import checked_count, checked_name, checked_point, is_whole
from hashring.errors import ConfigError, RingFileError

RING_FORMAT: Final = "hashring.ring"
RING_FILE_VERSION: Final = 1
"""The version that :func:`dump_ring` writes, and the newest that :func:`load_ring` reads."""
_PARQUET_MAGIC: Final = b"PAR1"


@dataclass(frozen=True)
class RingFile:
    """A ring and where it was taken from.

    Attributes:
        ring: the ring itself.
        name: the ring's name in Redis; empty when it has none.
        epoch, tag: its place in the ring's history; 0 and empty when unknown.
        at: Redis time of the reading, in microseconds since 1970; 0 when unknown.
    """

    ring: Ring
    name: str = ""
    epoch: int = 0
    tag: str = ""
    at: int = 0


def dump_ring(file: RingFile) -> str:
    """The text of a ring file; equal ones give equal text.

    Raises:
        ConfigError: the ring's hash algorithm is a function of the user's own: a file has its name
            alone.
        MissingDependencyError: the package is not installed that has the algorithm of that name.
    """
    ring = file.ring
    algorithm = ring.hash_algorithm
    # By another form of a name, the ring that is read would have another fingerprint.
    if not is_known(algorithm) or known_name(algorithm.name) != algorithm.name:
        raise ConfigError(
            "hash_algorithm",
            algorithm.name,
            "is a function of your own, and readers of the file do not have it: save the points of "
            "each node, from Ring.points_of()",
        )
    body = {
        "format": RING_FORMAT,
        "version": RING_FILE_VERSION,
        "name": file.name,
        "hash_algorithm": algorithm.name,
        "epoch": file.epoch,
        "tag": file.tag,
        "at": file.at,
        "fingerprint": ring.fingerprint,
        "nodes": {node: list(ring.points_of(node)) for node in ring.nodes},
    }
    return json.dumps(body, ensure_ascii=False, indent=None, separators=(", ", ": ")) + "\n"


def load_ring(text: str | bytes, source: str = "the text") -> RingFile:
    """The ring that the text of a ring file describes.

    Args:
        source: where the text is from, for the error's message.

    Raises:
        RingFileError: the text is cut short, no ring file, of a newer version, or its contents do
            not have the fingerprint it states.
        MissingDependencyError: its hash algorithm needs a package that is not installed.
    """
    if text[:4] in (_PARQUET_MAGIC, _PARQUET_MAGIC.decode()):
        raise RingFileError(source, "is Parquet: read it with hashring.ring_files.read_ring")
    try:
        body = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise RingFileError(source, f"is not whole JSON ({error}): export the ring anew") from None
    if not isinstance(body, dict) or body.get("format") != RING_FORMAT:
        raise RingFileError(
            source, f'is no ring file (no "format": "{RING_FORMAT}"): make one with hashring export'
        )
    version = body.get("version")
    if not is_whole(version) or version < 1:
        raise RingFileError(
            source, f"has the version {version!r}, which is none: export the ring anew"
        )
    if version > RING_FILE_VERSION:
        raise RingFileError(
            source,
            f"has version {version}, and this hashring reads up to {RING_FILE_VERSION}: "
            f"upgrade hashring here, or export with this version",
        )
    try:
        ring = Ring(
            {
                checked_name(node): [checked_point(p) for p in points]
                for node, points in body["nodes"].items()
            },
            body["hash_algorithm"],
        )
        found = RingFile(
            ring,
            _text(body["name"]),
            _count(body["epoch"]),
            _text(body["tag"]),
            _count(body["at"]),
        )
        stated = _text(body["fingerprint"])
    except ConfigError as error:
        raise RingFileError(source, f"describes no ring: {error}") from error
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise RingFileError(
            source, f"lacks or garbles a field ({error}): export the ring anew"
        ) from None
    if ring.fingerprint != stated:
        raise RingFileError(
            source,
            f"states fingerprint {stated} but holds a ring of fingerprint {ring.fingerprint}: "
            f"it was changed after the export; export the ring anew",
        )
    return found


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    value.encode()  # a lone surrogate could not be written into a file; UnicodeEncodeError
    return value


def _count(value: Any) -> int:
    if checked_count(value) > GREATEST_COUNT:
        raise ValueError(f"{value} is more than any ring reaches")
    return int(value)
