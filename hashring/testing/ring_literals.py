"""Rings written down in a test."""

from __future__ import annotations

from hashring.core.hashing import HashAlgorithm
from hashring.core.ring import Ring
from hashring.core.value_checks import check_node_name
from hashring.errors import ConfigError


def ring_of(text: str, hash_algorithm: str | HashAlgorithm = "crc-32") -> Ring:
    """The ring that a text describes: a line a node, its name, a colon, its points.

    ::

        ring_of('''
            first: 1e9
            host:80: 2_000_000_000 3e9
        ''')

    Empty lines, and what follows a ``#``, are passed over. A name may hold colons: the last one
    of the line ends it.

    Raises:
        ConfigError: a line is none of this, a node comes twice, or a point is not on the ring.
    """
    points: dict[str, list[int]] = {}
    for line in text.split("\n"):
        written = line.partition("#")[0].strip()
        if not written:
            continue
        name, colon, rest = written.rpartition(":")
        if not colon or not rest.split():
            raise ConfigError("text", written, "is not a line such as 'name: 10 20'")
        if name in points:
            raise ConfigError("text", written, f"names node {name!r} again")
        points[check_node_name(name)] = [_point(number, written) for number in rest.split()]
    return Ring(points, hash_algorithm)


def _point(number: str, line: str) -> int:
    try:
        value = float(number) if "e" in number else int(number)
        if isinstance(value, int) or value.is_integer():
            return int(value)
    except ValueError:
        pass
    raise ConfigError("text", line, f"has {number!r}, which is no point")
