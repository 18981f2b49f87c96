"""A ring survives the way through text, and nothing else passes for one."""

import io
import json
import zlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hashring.core.hashing import HashAlgorithm
from hashring.core.ring import Ring
from hashring.core.ring_json import RingFile, dump_ring, load_ring
from hashring.errors import ConfigError, NoDataError, OutputExists, RingFileError
from hashring.ring_files import read_ring, write_ring

RING = Ring({"a": [0, 7], "bé": [5]}, "crc-32c")


@given(
    st.dictionaries(
        st.text(st.characters(exclude_categories=["Cs"]), min_size=1),
        st.lists(st.integers(0, 2**32 - 1), min_size=1),
    )
)
def test_a_ring_comes_back_as_it_was(points):
    ring = Ring(points)
    assert load_ring(dump_ring(RingFile(ring))).ring == ring


def test_its_place_in_history_comes_back_too():
    text = dump_ring(RingFile(RING, "accounts", epoch=7, tag="ab", at=9))
    assert load_ring(text) == RingFile(RING, "accounts", 7, "ab", 9)
    assert load_ring(text.encode()).ring == RING


@given(st.integers(0, len(dump_ring(RingFile(RING))) - 3))
def test_a_file_cut_short_anywhere_is_refused(length):
    with pytest.raises(RingFileError, match="is not whole JSON"):
        load_ring(dump_ring(RingFile(RING))[:length], "r.json")


def test_a_ring_loads_from_an_open_file_of_text_or_of_bytes(tmp_path):
    path = tmp_path / "ring.json"
    path.write_text(dump_ring(RingFile(RING)), encoding="utf-8")
    with path.open(encoding="utf-8") as text, path.open("rb") as data:
        assert Ring.load(text) == Ring.load(data) == RING


def test_a_ring_is_saved_to_an_open_file(tmp_path):
    with (tmp_path / "ring.json").open("x", encoding="utf-8") as file:
        RING.save(file)
    with (tmp_path / "ring.json").open(encoding="utf-8") as file:
        assert Ring.load(file) == RING
    with pytest.raises(ConfigError, match=r"file=7: give a path or an open file"):
        RING.save(7)


@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("own", zlib.adler32),
        ("crc-32", zlib.adler32),
        ("CRC32", zlib.adler32),
        ("CRC32", zlib.crc32),
    ],
)
def test_a_ring_whose_algorithm_a_reader_would_not_know_is_not_saved(tmp_path, name, function):
    ring = Ring({"a": [1], "b": [9]}, HashAlgorithm(name, function))
    for path in (tmp_path / "ring.json", tmp_path / "ring.parquet", io.StringIO()):
        with pytest.raises(ConfigError, match=f"hash_algorithm='{name}': is a function of your o"):
            ring.save(path)
    assert not [*tmp_path.iterdir()]


def test_a_ring_whose_algorithm_is_a_known_one_made_otherwise_is_saved(tmp_path):
    Ring({"a": [1]}, HashAlgorithm("crc-32", zlib.crc32)).save(tmp_path / "r")
    assert Ring.load(tmp_path / "r") == Ring({"a": [1]})


@pytest.mark.parametrize("name", ["ring.json", "ring.parquet"])
@pytest.mark.parametrize("kind", [str, Path])
def test_a_ring_is_saved_to_a_path_and_loads_from_it(tmp_path, kind, name):
    path = kind(tmp_path / name)
    RING.save(path)
    assert Ring.load(path) == RING
    # Whole or not at all, and never over what is there.
    with pytest.raises(OutputExists):
        RING.without_nodes(*RING.nodes).save(path)
    assert Ring.load(path) == RING
    assert [each.name for each in tmp_path.iterdir()] == [name]


def test_a_ring_alone_is_written_to_a_path(tmp_path):
    for name in ("ring.json", "ring.parquet"):
        write_ring(RING, tmp_path / name)
        assert read_ring(tmp_path / name) == RingFile(RING)


def test_what_loads_no_ring_is_named(tmp_path):
    path = tmp_path / "ring.json"
    path.write_text(dump_ring(RingFile(RING))[:-9], encoding="utf-8")
    with path.open("rb") as file, pytest.raises(RingFileError, match=f"ring file {path} is not"):
        Ring.load(file)
    with pytest.raises(
        RingFileError, match=r"ring file the text is Parquet: read it with hashring"
    ):
        Ring.load(io.BytesIO(b"PAR1..."))
    with pytest.raises(ConfigError, match=r"file=7: give a path or an open file"):
        Ring.load(7)
    with pytest.raises(NoDataError, match=r"no.json: no ring file could be read"):
        Ring.load("no.json")


def changed(**fields):
    return json.dumps({**json.loads(dump_ring(RingFile(RING))), **fields})


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[]", "is no ring file"),
        ("{}", "is no ring file"),
        (changed(version=2), "has version 2, and this hashring reads up to 1: upgrade"),
        (changed(version="1"), "has the version '1', which is none: export the ring anew"),
        (changed(version=True), "has the version True, which is none"),
        (changed(nodes={"a": [0]}), "it was changed after the export; export the ring anew"),
        (changed(nodes={"a": [2**32]}), "lacks or garbles a field"),
        (changed(nodes={"a": ["7"]}), "lacks or garbles a field"),
        (changed(nodes={"": [7]}), "lacks or garbles a field"),
        (changed(nodes=[]), "lacks or garbles a field"),
        (changed(hash_algorithm="md5"), "describes no ring: hash_algorithm='md5': unknown"),
        (changed(hash_algorithm="crc-32"), "states fingerprint"),
        (changed(epoch=-1), "lacks or garbles a field"),
        (changed(name=None), "lacks or garbles a field"),
    ],
)
def test_what_is_no_ring_file_is_refused_with_the_reason(text, why):
    with pytest.raises(RingFileError) as caught:
        load_ring(text, "r.json")
    assert caught.value.source == "r.json"
    assert str(caught.value).startswith("ring file r.json ")
    assert why in str(caught.value)


@pytest.mark.parametrize(
    ("field", "value"),
    [("name", "\ud800"), ("tag", "\ud800"), ("epoch", 2**53 + 1), ("at", 2**53 + 1)],
)
def test_a_place_in_history_that_no_ring_has_is_refused(field, value):
    body = json.loads(dump_ring(RingFile(RING))) | {field: value}
    with pytest.raises(RingFileError, match="lacks or garbles a field"):
        load_ring(json.dumps(body))
