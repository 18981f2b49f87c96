"""Keys from files: what counts as a key, what is passed over, and what stays out of memory."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hashring.cli.key_file import MAX_KEY_BYTES, BadLines, read_keys

pytestmark = pytest.mark.one_server

KEYS = st.text(min_size=1, max_size=30).filter(
    lambda key: "\n" not in key and not key.endswith("\r") and not key.startswith("\ufeff")
)


def read(data: bytes) -> tuple[list[str], list[tuple[int, str]]]:
    bad: list[tuple[int, str]] = []
    keys = list(read_keys(io.BytesIO(data), lambda number, why: bad.append((number, why))))
    return keys, bad


@given(st.lists(KEYS), st.sampled_from(["\n", "\r\n"]), st.booleans())
def test_every_key_that_was_written_is_read(keys: list[str], ending: str, last: bool) -> None:
    data = ending.join(keys).encode() + (ending.encode() if last and keys else b"")
    assert read(data) == (keys, [])


@given(st.binary(max_size=300))
def test_every_line_is_a_key_or_is_reported(data: bytes) -> None:
    keys, bad = read(data)
    lines = data.removesuffix(b"\n").split(b"\n") if data else []
    assert len(keys) + len(bad) == len(lines)
    assert all(keys)


def test_bad_lines_are_reported_with_number_and_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hashring.cli.key_file.MAX_KEY_BYTES", 8)
    long = b"x" * 9
    assert read(b"a\n\n\xff\n" + long + b"\nb\n" + long + b"\r\n" + long * 5) == (
        ["a", "b"],
        [
            (2, "is empty"),
            (3, "is not UTF-8"),
            (4, "is longer than 8 bytes"),
            (6, "is longer than 8 bytes"),
            (7, "is longer than 8 bytes"),
        ],
    )


@pytest.mark.parametrize("ending", ["", "\n", "\r\n"])
def test_the_longest_key_is_still_a_key(monkeypatch: pytest.MonkeyPatch, ending: str) -> None:
    monkeypatch.setattr("hashring.cli.key_file.MAX_KEY_BYTES", 8)
    assert read(f"12345678{ending}".encode()) == (["12345678"], [])
    assert read(f"\ufeff12345{ending}".encode()) == (["12345"], [])
    assert read(f"123456789{ending}".encode()) == ([], [(1, "is longer than 8 bytes")])


@given(st.integers(0, 40), st.sampled_from([b"", b"\n", b"\r\n"]))
def test_whatever_a_lines_length_the_next_one_is_whole(length: int, ending: bytes) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("hashring.cli.key_file.MAX_KEY_BYTES", 8)
        keys, bad = read(b"x" * length + b"\n" + b"next" + ending)
    assert keys[-1] == "next"
    assert len(keys) + len(bad) == 2
    assert (len(keys) == 2) == (0 < length <= 8)


def test_a_byte_order_mark_is_no_part_of_the_first_key_only() -> None:
    assert read("\ufeffa\n\ufeffb\n".encode()) == (["a", "\ufeffb"], [])


def test_no_more_than_a_line_is_read_ahead() -> None:
    class Endless(io.RawIOBase):
        def __init__(self) -> None:
            self.read_so_far = 0

        def readline(self, size: int | None = -1) -> bytes:
            self.read_so_far += 1
            return b"key\n"

    source = Endless()
    keys = read_keys(source)  # type: ignore[arg-type]
    assert [next(keys) for _ in range(1000)] == ["key"] * 1000
    assert source.read_so_far == 1000


def test_a_line_without_end_stays_out_of_memory() -> None:
    sizes = []

    class Zeros(io.RawIOBase):
        def readline(self, size: int | None = -1) -> bytes:
            sizes.append(size or 0)
            return b"0" * (size or 0) if len(sizes) < 100 else b""

    assert list(read_keys(Zeros())) == []  # type: ignore[arg-type]
    assert max(sizes) <= MAX_KEY_BYTES + 3


def test_many_bad_lines_are_counted_and_not_listed() -> None:
    said: list[str] = []
    bad = BadLines("keys.txt", said.append)
    for number in range(1, 1235):
        bad(number, "is empty")
    bad.finish()
    assert said == [
        "keys.txt: line 1 is empty: skipped",
        "keys.txt: line 2 is empty: skipped",
        "keys.txt: line 3 is empty: skipped",
        "keys.txt: 1,234 lines skipped in all",
    ]
