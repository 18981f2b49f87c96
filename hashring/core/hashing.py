"""From a key to its point on the ring.

A point is an integer in ``[0, 2**32)``. The default is the CRC-32 of the key's UTF-8 bytes, the
one of zlib, gzip and PNG: ``hello`` is at 907 060 870.

Every 32-bit CRC that crcmod knows can be used by its crcmod name. Two of them are equal, bit for
bit, to what zlib computes several times faster (``crc-32`` itself and ``jamcrc``, its
complement); those run on zlib, and a property test holds them equal to crcmod.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar, Final, SupportsIndex

import crcmod.predefined

from hashring.errors import ConfigError, KeyTypeError, KeyValueError, MissingDependencyError

RING_SIZE: Final = 2**32
"""How many points a ring has."""

PointFunction = Callable[[bytes], int]


@dataclass(frozen=True)
class HashAlgorithm:
    """A named function from bytes to a point.

    Attributes:
        name: the name nodes agree on, such as ``"crc-32"``. A function of your own has a name of
            its own: a node refuses one by which readers know another of these, such as ``CRC32``.
        point_of_bytes: the function itself, ``bytes -> int`` in ``[0, 2**32)``. A node tries one of
            your own on some keys when it is made, and refuses it if a point is outside. It must be
            hashable for a node.
        affine: whether, among inputs of one length, the point is an affine function of the bits
            (over GF(2)), as every CRC is. Look-ups of many keys make use of it.
    """

    name: str
    point_of_bytes: PointFunction
    affine: bool = False

    # The names under which redis-hashring's users ask for its two algorithms.
    CRC32: ClassVar[str] = "crc-32"
    XXHASH: ClassVar[str] = "xxh32"

    def point(self, key: str | bytes) -> int:
        """The point of a key.

        Raises:
            KeyTypeError: the key is neither ``str`` nor ``bytes``.
            KeyValueError: the key is empty, or holds a lone surrogate.
        """
        return self.point_of_bytes(key_bytes(key))

    def __reduce_ex__(self, protocol: SupportsIndex) -> str | tuple[Any, ...]:
        # crcmod makes its functions anew in each process, so they do not travel: the name does.
        if _known.get(self.name) == self:
            return hash_algorithm, (self.name,)
        return super().__reduce_ex__(protocol)


def key_bytes(key: str | bytes) -> bytes:
    """The bytes that are hashed: a ``str`` as UTF-8, ``bytes`` (and bytearray) as they are.

    Raises:
        KeyTypeError: the key is neither.
        KeyValueError: the key is empty, or holds a lone surrogate.
    """
    if isinstance(key, str):
        try:
            # As the bulk look-ups do, whatever encode() a subclass has.
            data = str.encode(key)
        except UnicodeEncodeError as error:
            raise KeyValueError(
                key, f"cannot be encoded as UTF-8 ({error.reason}): pass it as bytes"
            ) from error
    elif isinstance(key, bytes | bytearray | memoryview):
        data = bytes(key)
    else:
        raise KeyTypeError(key)
    if not data:
        raise KeyValueError(key, "is empty; a key has at least one byte")
    return data


def _jamcrc(data: bytes) -> int:
    return zlib.crc32(data) ^ 0xFFFFFFFF


_ZLIB: Final[dict[str, PointFunction]] = {"crc-32": zlib.crc32, "jamcrc": _jamcrc}

_ALIASES: Final = {
    "crc32": "crc-32",
    "crc32c": "crc-32c",
    "xxhash": "xxh32",
}


def _crcmod_names() -> tuple[str, ...]:
    # crcmod keeps the table its documentation prints; a polynomial of 33 bits is a 32-bit CRC.
    return tuple(
        definition["name"]
        for definition in crcmod.predefined._crc_definitions
        if definition["poly"].bit_length() == 33
    )


def hash_algorithm_names() -> tuple[str, ...]:
    """The names that :func:`hash_algorithm` knows, whether or not their package is installed."""
    return (*_crcmod_names(), "xxh32")


_CHECK: Final = b"123456789"
"""The bytes for which the catalogues of CRCs tell the value of each."""

_known: Final[dict[str, HashAlgorithm]] = {}
"""The algorithms of this package that this process has asked for, by name."""


@cache
def _build(name: str) -> HashAlgorithm:
    # Two threads may build at once: both get the same.
    return _known.setdefault(name, _built(name))


def _built(name: str) -> HashAlgorithm:
    if name in _ZLIB:
        return HashAlgorithm(name, _ZLIB[name], affine=True)
    if name == "xxh32":
        try:
            import xxhash  # noqa: PLC0415 - optional, loaded only when it is asked for
        except ImportError as error:
            raise MissingDependencyError("hash_algorithm='xxh32'", "xxhash", "xxhash") from error
        return HashAlgorithm(name, xxhash.xxh32_intdigest)
    return HashAlgorithm(name, crcmod.predefined.mkPredefinedCrcFun(name), affine=True)


def hash_algorithm(name: str | HashAlgorithm) -> HashAlgorithm:
    """The algorithm of that name; an algorithm is returned as it is.

    ``crc-32`` (alias ``crc32``), every other 32-bit CRC of crcmod (``crc-32c``, ``posix``, ...) and
    ``xxh32`` (alias ``xxhash``; needs the extra of that name).

    Raises:
        ConfigError: there is none of that name.
        MissingDependencyError: its package is not installed.
    """
    if isinstance(name, HashAlgorithm):
        return name
    if (known := known_name(name)) is not None:
        return _build(known)
    raise ConfigError(
        "hash_algorithm", name, f"unknown; choose one of {', '.join(hash_algorithm_names())}"
    )


def known_name(name: object) -> str | None:
    """The name of the algorithm of this package that a name stands for; ``None`` if it is another.

    Aliases and capital letters count: readers of a ring take ``CRC32`` for ``crc-32``.
    """
    # redis-hashring's own enum says "crc32" and "xxhash" in its values.
    text = getattr(name, "value", name)
    if not isinstance(text, str):
        return None
    wanted = _ALIASES.get(text.lower(), text.lower())
    return wanted if wanted in hash_algorithm_names() else None


def is_known(algorithm: HashAlgorithm) -> bool:
    """Whether its name alone tells everybody what it does.

    Not so of a function of the user's own, unless it is one of these made otherwise.

    Raises:
        MissingDependencyError: the package of the algorithm of that name is not installed.
    """
    if known_name(algorithm.name) is None:
        return False
    known = hash_algorithm(algorithm.name)
    return known == algorithm or known.point(_CHECK) == algorithm.point(_CHECK)
