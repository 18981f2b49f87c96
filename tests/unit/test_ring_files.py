"""A ring survives the way through a file, and a file that is no ring file is refused."""

import sys

import pytest

from hashring.core.ring import Ring
from hashring.core.ring_json import RingFile
from hashring.errors import (
    MissingDependencyError,
    NoDataError,
    OutputExists,
    OutputRefused,
    RingFileError,
)
from hashring.ring_files import read_ring, write_ring

RING = RingFile(Ring({"a": [0, 7], "bé": [5]}, "crc-32c"), "accounts", 7, "ab", 9)


@pytest.mark.parametrize("name", ["ring.json", "ring.parquet"])
def test_a_ring_comes_back_as_it_was(tmp_path, name):
    write_ring(RING, tmp_path / name)
    assert read_ring(tmp_path / name) == RING


@pytest.mark.parametrize("name", ["ring.json", "ring.parquet"])
def test_a_ring_file_cut_short_is_refused(tmp_path, name):
    path = tmp_path / name
    write_ring(RING, path)
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(RingFileError, match=f"ring file .*{name} is"):
        read_ring(path)


def test_a_ring_in_parquet_needs_a_package_that_is_named(tmp_path, monkeypatch):
    write_ring(RING, tmp_path / "ring.parquet")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    for act in (
        lambda: write_ring(RING, tmp_path / "other.parquet"),
        lambda: read_ring(tmp_path / "ring.parquet"),
    ):
        with pytest.raises(MissingDependencyError, match=r"needs the package pyarrow.*\[spark\]"):
            act()
    assert [path.name for path in tmp_path.iterdir()] == ["ring.parquet"]


def test_a_ring_file_that_is_not_there_is_named(tmp_path):
    text = r"no.json: no ring file could be read \(No such file or directory\): check the path, or"
    with pytest.raises(NoDataError, match=text):
        read_ring(tmp_path / "no.json")


def test_a_name_that_is_too_long_while_it_is_written_is_refused(tmp_path):
    with pytest.raises(OutputRefused, match=r"cannot be written \(File name too long\): name"):
        write_ring(RING, tmp_path / ("x" * 250))
    assert list(tmp_path.iterdir()) == []


def test_what_exists_is_never_touched(tmp_path):
    path = tmp_path / "ring.json"
    path.write_text("mine")
    with pytest.raises(OutputExists, match=r"ring.json exists: name another, or remove it first"):
        write_ring(RING, path)
    assert path.read_text() == "mine"


def test_a_directory_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputRefused):
        write_ring(RING, tmp_path / "file" / "x")


def test_a_directory_that_is_not_there_yet_is_made(tmp_path):
    write_ring(RING, tmp_path / "new" / "ring.json")
    assert read_ring(tmp_path / "new" / "ring.json") == RING


@pytest.mark.parametrize("name", ["a\0b", "a\ud800b"], ids=["zero", "surrogate"])
def test_a_path_that_no_file_can_have_is_refused(tmp_path, name):
    with pytest.raises(NoDataError, match="no ring file could be read"):
        read_ring(tmp_path / name)
    with pytest.raises(OutputRefused):
        write_ring(RING, tmp_path / name)
