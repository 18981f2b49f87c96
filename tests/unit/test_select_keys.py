"""Many keys at once, held against one key at a time."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from itertools import accumulate

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hashring.core import select_keys
from hashring.core.hashing import (
    RING_SIZE,
    HashAlgorithm,
    hash_algorithm,
    hash_algorithm_names,
    key_bytes,
)
from hashring.core.keys_as_bytes import MAX_TABLE_BYTES, parts_of_point
from hashring.core.ranges import bounds_of
from hashring.core.ring import Ring
from hashring.core.select_keys import (
    INSIDE,
    OUTSIDE,
    UNDECIDED,
    cells_of,
    class_table,
    select_inside,
)
from hashring.errors import KeyTypeError, KeyValueError
from tests.programs import printed, python

CRC32 = hash_algorithm("crc-32")
AFFINE = [name for name in hash_algorithm_names() if hash_algorithm(name).affine]

Key = str | bytes
Bounds = tuple[int, ...]

# Boundaries where tables of 8 and of 16 bits have theirs, next to those, and anywhere.
bound = st.one_of(
    st.integers(0, RING_SIZE),
    st.builds(
        lambda cell, by: min(max((cell << 24) + by, 0), RING_SIZE),
        st.integers(0, 256),
        st.integers(-2, 2),
    ),
    st.builds(lambda cell: cell << 16, st.integers(0, 2**16)),
)
bounds_ = st.lists(bound, unique=True, max_size=200).map(
    lambda values: tuple(sorted(values)[: len(values) // 2 * 2])
)


def one_by_one(keys: list[Key], bounds: Bounds, algorithm: HashAlgorithm) -> list[Key]:
    """The rule, spelled out."""
    point = algorithm.point_of_bytes
    return [key for key in keys if bisect_right(bounds, point(key_bytes(key))) % 2]


# Keys of a kind that the fast ways are made for, and of kinds that they are not made for.
plain = st.text(st.characters(min_codepoint=32, max_codepoint=126), min_size=1, max_size=12)
odd = st.one_of(
    st.text(min_size=1, max_size=8).filter(lambda text: text.isprintable() or "\0" in text),
    st.sampled_from(["\0", "a\0b", "\0a", "a\0", "é" * 3, "x" * (MAX_TABLE_BYTES + 1), "x" * 64]),
    st.binary(min_size=1, max_size=8),
)


@st.composite
def many_keys(draw: st.DrawFn) -> list[Key]:
    """A thousand keys or two, of one length or of many, some with strangers among them."""
    kind = draw(st.sampled_from(["numbers", "padded", "text", "bytes"]))
    count = draw(st.sampled_from([63, 64, 65, 511, 512, 700, 1500]))
    start = draw(st.integers(0, 10**6))
    prefix = draw(plain)
    keys: list[Key]
    if kind == "numbers":
        keys = [f"{prefix}{n}" for n in range(start, start + count)]
    elif kind == "padded":
        keys = [f"{prefix}-{n * 7919 % 10**9:09}" for n in range(start, start + count)]
    elif kind == "bytes":
        keys = [b"%d" % n for n in range(start, start + count)]
    else:
        some = draw(st.lists(plain, min_size=1, max_size=30))
        keys = [some[n % len(some)] + str(n * start)[: n % 7] for n in range(count)]
    for stranger in draw(st.lists(odd, max_size=3)):
        keys.insert(draw(st.integers(0, len(keys))), stranger)
    return keys


@pytest.fixture(params=["without numpy", "with numpy"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Whether numpy is used; chunks are short, so that a test has several."""
    monkeypatch.setattr(select_keys, "_CHUNK", 600)
    monkeypatch.setattr(select_keys, "NUMPY_CHUNK", 600)
    monkeypatch.setattr(
        select_keys, "_NUMPY_FROM", 64 if request.param == "with numpy" else float("inf")
    )
    return request.param


MANY = settings(max_examples=150, deadline=None)


@pytest.mark.slow
@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("name", hash_algorithm_names())
def test_many_at_once_are_those_of_one_at_a_time(name: str) -> None:
    algorithm = hash_algorithm(name)

    @settings(MANY, max_examples=40)
    @given(many_keys(), bounds_)
    def check(keys: list[Key], bounds: Bounds) -> None:
        assert select_inside(keys, None, bounds, algorithm) == one_by_one(keys, bounds, algorithm)

    check()


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("replicas", [1, 16, 128, 1000])
@pytest.mark.parametrize("nodes", [1, 2, 20])
def test_of_a_rings_nodes_each_key_is_selected_by_its_owner_alone(
    nodes: int, replicas: int
) -> None:
    points = {
        f"node-{n}": [(n * 2_654_435_761 + r * 40_503_001) % RING_SIZE for r in range(replicas)]
        for n in range(nodes)
    }
    ring = Ring(points)
    keys = [f"account-{n}" for n in range(3000)]
    for node in ring.nodes:
        bounds = bounds_of(ring.node_ranges(node))
        owned = [key for key in keys if ring.owner(key) == node]
        assert select_inside(keys, None, bounds, CRC32) == owned


@pytest.mark.slow
@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("length", [*range(1, 12), 31, 32, 63, 64, 65, 66, 200])
@pytest.mark.parametrize("name", AFFINE)
def test_keys_of_any_one_length_are_right(name: str, length: int) -> None:
    algorithm = hash_algorithm(name)
    keys: list[Key] = [
        bytes(1 + (n * (at + 3) + n // 255) % 255 for at in range(length)) for n in range(520)
    ]
    bounds = tuple(accumulate([RING_SIZE // 31] * 30))
    assert select_inside(keys, None, bounds, algorithm) == one_by_one(keys, bounds, algorithm)


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("cut", [("a", "\0cd"), ("a", "bcd"), ("abc", "d"), ("\0", "\0\0\0")])
def test_two_keys_that_are_as_long_as_two_others_are_not_mistaken_for_them(
    cut: tuple[str, str],
) -> None:
    # Far from the few keys that are looked at to see whether all have one length.
    keys: list[Key] = [f"{n:02}"[-2:] for n in range(600)]
    keys[11:13] = cut
    for key in cut:
        point = CRC32.point(key)
        assert select_inside(keys, None, (point, point + 1), CRC32) == [key]


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("others", [["ab"] * 599, [""] * 599, ["a", "abc"] * 300])
def test_an_empty_key_among_good_ones_is_refused(others: list[str]) -> None:
    with pytest.raises(KeyValueError, match="is empty"):
        select_inside([*others[:300], "", *others[300:]], None, (2**31, 2**31 + 5), CRC32)


@pytest.mark.usefixtures("way")
def test_items_are_chosen_by_their_keys_and_keep_their_order() -> None:
    items = [(n, f"account-{n * 7 % 2000}") for n in range(2000)]
    bounds = (2**30, 2**31 + 5)
    chosen = select_inside(items, lambda item: item[1], bounds, CRC32)
    inside = set(one_by_one([key for _, key in items], bounds, CRC32))
    assert chosen == [item for item in items if item[1] in inside]


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("at", [0, 10, 599, 600, 1499])
@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ("", KeyValueError),
        (b"", KeyValueError),
        ("a\udc80", KeyValueError),
        (7, KeyTypeError),
        (None, KeyTypeError),
        (array("B", [1]), KeyTypeError),
    ],
)
def test_the_first_bad_key_is_named(at: int, wrong: object, error: type[Exception]) -> None:
    keys: list[object] = [f"account-{n}" for n in range(1500)]
    keys[at] = wrong
    keys[at + 1 :] = [None] * len(keys[at + 1 :])
    with pytest.raises(error) as caught:
        select_inside(keys, None, (0, 5), CRC32)  # type: ignore[arg-type]
    assert caught.value.key is wrong  # type: ignore[attr-defined]


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("wrong", [array("B", [1]), b"", 1])
def test_among_bytes_a_bad_key_is_named_as_well(wrong: object) -> None:
    keys: list[object] = [b"%d" % n for n in range(700)]
    keys[650] = wrong
    with pytest.raises((KeyTypeError, KeyValueError)) as caught:
        select_inside(keys, None, (0, 5), CRC32)  # type: ignore[arg-type]
    assert caught.value.key is wrong


@pytest.mark.usefixtures("way")
def test_a_bad_key_is_named_even_when_nothing_is_owned() -> None:
    with pytest.raises(KeyTypeError):
        select_inside([*map(str, range(700)), 1], None, (), CRC32)  # type: ignore[list-item]


@pytest.mark.usefixtures("way")
def test_bytes_of_any_kind_and_text_may_be_mixed() -> None:
    keys = [kind(b"%d" % n) for n in range(300) for kind in (bytes, bytearray, memoryview)]
    mixed = [*keys, *map(str, range(300))]
    bounds = (2**30, 2**31)
    chosen = select_inside(mixed, None, bounds, CRC32)
    assert chosen == one_by_one(mixed, bounds, CRC32)
    assert len({type(key) for key in chosen}) == 4


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("count", [0, 1, 2, 63, 64])
def test_few_keys_are_no_special_case(count: int) -> None:
    keys: list[Key] = [str(n) for n in range(count)]
    for bounds in [(), (0, RING_SIZE), (2**31, RING_SIZE)]:
        assert select_inside(keys, None, bounds, CRC32) == one_by_one(keys, bounds, CRC32)


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("bounds", [(), (2**31, RING_SIZE), tuple(range(0, 10**6, 1000))])
def test_an_algorithm_of_ones_own_need_be_no_crc_and_need_not_fit(bounds: Bounds) -> None:
    keys: list[Key] = [str(n) * (1 + n % 40) for n in range(800)]
    for own in (HashAlgorithm("length", len), HashAlgorithm("far", lambda data: 2**40)):
        assert select_inside(keys, None, bounds, own) == one_by_one(keys, bounds, own)


@given(bounds_, st.sampled_from([1, 8, 16]), st.integers(0, RING_SIZE - 1))
@example((0, RING_SIZE), 8, 0)
@example((1 << 24, (1 << 24) + 1), 8, 1 << 24)
def test_a_class_holds_for_all_points_that_begin_alike(
    bounds: Bounds, bits: int, point: int
) -> None:
    table = class_table(bounds, bits)
    assert len(table) == 2**bits
    size = RING_SIZE >> bits
    cells = {point // size, *(bound // size for bound in bounds if bound < RING_SIZE)}
    for cell in cells:
        start, end = cell * size, (cell + 1) * size
        within = [bound for bound in bounds if start < bound < end]
        expected = UNDECIDED if within else bisect_right(bounds, start) % 2
        assert table[cell] == expected
        assert expected in (OUTSIDE, INSIDE, UNDECIDED)


@given(bounds_, st.integers(0, RING_SIZE - 1))
@example((), 0)
@example((5, RING_SIZE), RING_SIZE - 1)
def test_a_cell_answers_as_the_search_does_or_leaves_it_to_the_search(
    bounds: Bounds, point: int
) -> None:
    cells, shift = cells_of(bounds)
    assert len(cells) << shift == RING_SIZE
    for near in (point, *bounds, *(bound - 1 for bound in bounds)):
        if not 0 <= near < RING_SIZE:
            continue
        answer = cells[near >> shift]
        assert answer is None or answer == bisect_right(bounds, near) % 2


@pytest.mark.parametrize("ranges", [1, 16, 1000])
def test_few_points_are_left_to_the_search(ranges: int) -> None:
    bounds = tuple(number * (RING_SIZE // (2 * ranges)) + 7 for number in range(2 * ranges))
    cells, _ = cells_of(bounds)
    assert cells.count(None) <= len(cells) / 8


@pytest.mark.parametrize("name", AFFINE)
@given(data=st.binary(min_size=1, max_size=40))
def test_the_parts_of_an_affine_point_add_up_to_it(name: str, data: bytes) -> None:
    algorithm = hash_algorithm(name)
    point = algorithm.point_of_bytes(bytes(len(data)))
    for at, value in enumerate(data):
        point ^= parts_of_point(algorithm, len(data) - 1 - at)[value]
    assert point == algorithm.point_of_bytes(data)


def test_every_algorithm_but_xxh32_is_affine() -> None:
    assert {*hash_algorithm_names()} - {*AFFINE} == {"xxh32"}


WITHOUT_NUMPY = """
import sys
sys.modules["numpy"] = None
from hashring.core.select_keys import select_inside
from hashring.core.hashing import hash_algorithm
keys = [f"account-{n}" for n in range(70_000)]
print(len(select_inside(keys, None, (0, 2**31), hash_algorithm("crc-32"))))
"""


def test_without_numpy_installed_the_answer_is_the_same() -> None:
    found = int(printed("-c", WITHOUT_NUMPY))
    keys: list[Key] = [f"account-{n}" for n in range(70_000)]
    assert found == len(one_by_one(keys, (0, 2**31), CRC32))
    assert found == len(select_inside(keys, None, (0, 2**31), CRC32))


def test_numpy_is_not_loaded_for_few_keys() -> None:
    program = (
        "import sys; from hashring.core.select_keys import select_inside; "
        "from hashring.core.hashing import hash_algorithm; "
        "select_inside(list(map(str, range(60_000))), None, (0, 9), hash_algorithm('crc-32')); "
        "sys.exit('numpy' in sys.modules)"
    )
    assert python("-c", program).returncode == 0


@pytest.mark.usefixtures("way")
def test_a_list_that_shrinks_meanwhile_is_no_error() -> None:
    items: list[Key] = [f"account-{n}" for n in range(2000)]

    def key(item: Key) -> Key:
        del items[700:]
        return item

    assert select_inside(items, key, (0, RING_SIZE), CRC32) == items
