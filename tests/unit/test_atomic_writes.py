"""A file is written whole or not at all, and replaces nothing."""

import pytest

from hashring.atomic_writes import check_new, new_file
from hashring.errors import OutputExists, OutputRefused


def test_what_somebody_else_wrote_meanwhile_is_not_touched_either(tmp_path):
    path = tmp_path / "report.html"

    def write():
        with new_file(path) as aside:
            aside.write_text("ours")
            path.write_text("theirs")

    with pytest.raises(OutputExists):
        write()
    assert [p.read_text() for p in tmp_path.iterdir()] == ["theirs"]


def test_a_file_that_fails_in_the_middle_leaves_nothing(tmp_path):
    def write():
        with new_file(tmp_path / "x") as aside:
            aside.write_text("half")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        write()
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(
        OutputRefused, match=r"x cannot be written \(.*file is no directory\): name"
    ):
        check_new(tmp_path / "file" / "deeper" / "x")


def test_a_check_makes_nothing(tmp_path):
    check_new(tmp_path / "new" / "report.html")
    assert list(tmp_path.iterdir()) == []
