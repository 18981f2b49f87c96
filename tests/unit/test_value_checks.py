"""Which numbers are taken, and which names nodes, members and zones may have."""

from __future__ import annotations

import math
from enum import Enum, IntEnum
from fractions import Fraction

import numpy as np
import pytest

from hashring.core.value_checks import (
    MAX_NAME_BYTES,
    check_node_name,
    plain_number,
    plain_whole,
)
from hashring.errors import ConfigError


@pytest.mark.parametrize("name", ["a", "host:1", "[::1]:80", "北京", "a b", "x" * MAX_NAME_BYTES])
def test_a_good_name_is_returned_as_it_is(name: str) -> None:
    assert check_node_name(name) == name


class Level(IntEnum):
    HIGH = 9


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (5, 5),
        (1.5, 1.5),
        (Level.HIGH, 9),
        (Fraction(1, 2), 0.5),
        (np.int64(5), 5),
        (np.uint8(5), 5),
        (np.float64(1.5), 1.5),
        (np.float32(1.5), 1.5),
    ],
)
def test_a_number_of_any_kind_becomes_one_of_pythons_own(value: object, plain: float) -> None:
    found = plain_number(value)
    assert (type(found), found) == (type(plain), plain)
    assert plain_whole(value) == (plain if isinstance(plain, int) else None)


@pytest.mark.parametrize(
    "value",
    [None, "5", b"5", True, np.bool_(True), np.array([5]), np.float64("nan"), math.inf, 10**400],
)
def test_what_is_no_finite_number_is_none_that_counts(value: object) -> None:
    assert plain_number(value) is None


class Worker(str, Enum):
    FIRST = "worker-1"


def test_a_name_from_an_enum_of_texts_is_its_text_however_it_is_written() -> None:
    name = check_node_name(Worker.FIRST)
    assert (name.encode(), f"{name}", type(name)) == (b"worker-1", "worker-1", str)


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("", "a node's name is a non-empty str"),
        (None, "a node's name is a non-empty str"),
        (b"bytes", "a node's name is a non-empty str"),
        (7, "a node's name is a non-empty str"),
        ("a\udc80", "cannot be encoded as UTF-8"),
        ("tab\t", "holds a control character; use printable text"),
        ("\x7f", "holds a control character; use printable text"),
    ],
)
def test_a_bad_name_is_refused_with_the_remedy(name: object, remedy: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check_node_name(name)  # type: ignore[arg-type]
    assert str(caught.value) == f"name={name!r}: {remedy}"


def test_a_long_name_is_refused_by_its_bytes_and_shown_in_part() -> None:
    with pytest.raises(ConfigError) as caught:
        check_node_name("ü" * 257)
    assert str(caught.value) == (
        f"name={'ü' * 40 + '…'!r}: 514 bytes long; at most 512 are allowed"
    )
