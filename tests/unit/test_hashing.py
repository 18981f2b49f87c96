"""From a key to its point."""

from __future__ import annotations

import pickle
import subprocess
import sys
import zlib
from copy import copy, deepcopy
from typing import Any

import crcmod.predefined
import pytest
from hypothesis import given
from hypothesis import strategies as st
from redis_hashring import HashAlgorithm as Theirs

from hashring.core.hashing import (
    RING_SIZE,
    HashAlgorithm,
    _build,
    hash_algorithm,
    hash_algorithm_names,
    key_bytes,
)
from hashring.core.ring import Ring
from hashring.errors import ConfigError, KeyTypeError, KeyValueError, MissingDependencyError

CHECK_TEXT = b"123456789"

# The value of CHECK_TEXT for each algorithm, from the catalogue of CRCs that crcmod documents,
# and from xxHash's reference implementation.
CHECK_VALUES = {
    "crc-32": 0xCBF43926,
    "crc-32-bzip2": 0xFC891918,
    "crc-32c": 0xE3069283,
    "crc-32d": 0x87315576,
    "crc-32-mpeg": 0x0376E6E7,
    "posix": 0x765E7680,
    "crc-32q": 0x3010BF7F,
    "jamcrc": 0x340BC6D9,
    "xfer": 0xBD0BE338,
    "xxh32": 0x937BAD67,
}


def test_hello_is_where_the_specification_says() -> None:
    assert hash_algorithm("crc-32").point("hello") == 907_060_870


def test_the_default_names_are_those_of_redis_hashring() -> None:
    assert HashAlgorithm.CRC32 == "crc-32"
    assert HashAlgorithm.XXHASH == "xxh32"


@pytest.mark.parametrize(("name", "value"), CHECK_VALUES.items())
def test_every_algorithm_gives_its_published_check_value(name: str, value: int) -> None:
    assert hash_algorithm(name).point(CHECK_TEXT) == value


def test_every_known_name_has_a_check_value_above() -> None:
    assert set(hash_algorithm_names()) == set(CHECK_VALUES)


@given(st.binary(min_size=1))
@pytest.mark.parametrize("name", ["crc-32", "jamcrc"])
def test_what_zlib_computes_is_what_crcmod_computes(name: str, data: bytes) -> None:
    reference = crcmod.predefined.mkPredefinedCrcFun(name)
    assert hash_algorithm(name).point(data) == reference(data)


@given(st.text(min_size=1))
@pytest.mark.parametrize("name", sorted(CHECK_VALUES))
def test_every_key_has_a_point_on_the_ring_and_text_is_hashed_as_utf8(name: str, key: str) -> None:
    algorithm = hash_algorithm(name)
    assert 0 <= algorithm.point(key) < RING_SIZE
    assert algorithm.point(key) == algorithm.point(key.encode())


@pytest.mark.parametrize(
    ("alias", "name"),
    [("crc32", "crc-32"), ("CRC-32C", "crc-32c"), ("crc32c", "crc-32c"), ("xxhash", "xxh32")],
)
def test_an_alias_is_the_algorithm_it_stands_for(alias: str, name: str) -> None:
    assert hash_algorithm(alias) is hash_algorithm(name)


def test_the_algorithms_of_redis_hashring_itself_are_accepted_and_agree() -> None:
    assert hash_algorithm(Theirs.CRC32).name == "crc-32"  # type: ignore[arg-type]
    assert hash_algorithm(Theirs.XXHASH).name == "xxh32"  # type: ignore[arg-type]


def test_an_algorithm_stands_for_itself() -> None:
    own = HashAlgorithm("length", len)
    assert hash_algorithm(own) is own
    assert own.point("four") == 4


class Again(HashAlgorithm):
    pass


@pytest.mark.parametrize("way", [lambda it: pickle.loads(pickle.dumps(it)), copy, deepcopy])
@pytest.mark.parametrize("name", CHECK_VALUES)
def test_a_known_algorithm_is_the_same_after_a_copy_or_a_pickle(name: str, way: Any) -> None:
    algorithm = hash_algorithm(name)
    assert way(algorithm) is algorithm
    ring = Ring({"a": [1, 5], "b": [9]}, name)
    assert ring.share("a")  # which the ring keeps
    assert way(ring) == ring
    assert way(ring).shares == ring.shares
    assert way(ring).owner("x") == ring.owner("x")


def test_a_pickle_of_a_known_algorithm_is_read_in_a_process_that_never_used_it() -> None:
    pickled = pickle.dumps(hash_algorithm("crc-32c"))
    program = f"import pickle; print(pickle.loads({pickled!r}).point('123456789'))"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert int(found.stdout) == CHECK_VALUES["crc-32c"]


@pytest.mark.parametrize("kind", [HashAlgorithm, Again])
def test_an_own_algorithm_travels_with_its_function_whatever_its_name(kind: Any) -> None:
    hash_algorithm("crc-32")
    own = kind("crc-32", zlib.adler32)
    for there in (pickle.loads(pickle.dumps(own)), copy(own), deepcopy(own)):
        assert there == own
        assert type(there) is kind
        assert there.point("a") == zlib.adler32(b"a")


def test_bytes_of_any_kind_are_hashed_as_they_are() -> None:
    data = b"\xff\x00key"
    for same in (data, bytearray(data), memoryview(data)):
        assert key_bytes(same) == data  # type: ignore[arg-type]


@pytest.mark.parametrize("key", [1, None, 1.5, ("a",), ["a"]])
def test_a_key_that_is_no_text_is_refused_with_the_remedy(key: object) -> None:
    with pytest.raises(KeyTypeError) as caught:
        hash_algorithm("crc-32").point(key)  # type: ignore[arg-type]
    assert str(caught.value) == (
        f"key {key!r} is {type(key).__name__}; a key is str (hashed as UTF-8) or bytes: "
        f"convert it the same way on every node, for example str(key)"
    )
    assert caught.value.key is key


@pytest.mark.parametrize("key", ["", b""])
def test_an_empty_key_is_refused(key: str | bytes) -> None:
    with pytest.raises(KeyValueError, match="is empty; a key has at least one byte"):
        hash_algorithm("crc-32").point(key)


def test_a_key_that_utf8_cannot_encode_is_refused_with_the_remedy() -> None:
    with pytest.raises(KeyValueError) as caught:
        hash_algorithm("crc-32").point("a\udc80")
    assert str(caught.value) == (
        r"key 'a\udc80' cannot be encoded as UTF-8 (surrogates not allowed): pass it as bytes"
    )


@pytest.mark.parametrize("name", ["md5", "", "crc-16", "crc-64", None, 32])
def test_an_unknown_algorithm_is_refused_with_the_known_ones(name: object) -> None:
    with pytest.raises(ConfigError) as caught:
        hash_algorithm(name)  # type: ignore[arg-type]
    assert str(caught.value) == (
        f"hash_algorithm={name!r}: unknown; choose one of crc-32, crc-32-bzip2, crc-32c, crc-32d, "
        f"crc-32-mpeg, posix, crc-32q, jamcrc, xfer, xxh32"
    )


def test_xxh32_without_its_package_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "xxhash", None)
    _build.cache_clear()
    with pytest.raises(MissingDependencyError) as caught:
        hash_algorithm("xxh32")
    assert str(caught.value) == (
        "hash_algorithm='xxh32' needs the package xxhash: pip install 'hashring-fleet[xxhash]'"
    )
