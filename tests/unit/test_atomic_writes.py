"""A file is written whole or not at all, and replaces nothing."""

import errno
import os
import signal
from pathlib import Path

import pytest

from hashring.atomic_writes import check_directory, check_new, new_file, replace_text
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


@pytest.mark.parametrize("error", [errno.EPERM, errno.ENOTSUP, errno.ENOSYS])
def test_without_hard_links_a_file_is_written_and_replaces_nothing(tmp_path, monkeypatch, error):
    def refused(*_):
        raise OSError(error, "no links here")

    monkeypatch.setattr(os, "link", refused)
    with new_file(tmp_path / "x") as aside:
        aside.write_bytes(b"ours")
    assert [(p.name, p.read_bytes()) for p in tmp_path.iterdir()] == [("x", b"ours")]

    def write_again():
        with new_file(tmp_path / "y") as aside:
            aside.write_text("ours")
            (tmp_path / "y").write_text("theirs")

    with pytest.raises(OutputExists):
        write_again()
    assert (tmp_path / "y").read_text() == "theirs"


def test_what_cannot_be_renamed_without_hard_links_leaves_nothing(tmp_path, monkeypatch):
    def refused(*_):
        raise OSError(errno.EPERM, "no links here")

    def failed(*_):
        raise OSError(errno.EIO, "a broken disk")

    def write():
        with new_file(tmp_path / "x") as aside:
            aside.write_text("ours")

    monkeypatch.setattr(os, "link", refused)
    monkeypatch.setattr(Path, "replace", failed)
    with pytest.raises(OutputRefused, match="a broken disk"):
        write()
    assert list(tmp_path.iterdir()) == []


def test_ctrl_c_without_hard_links_leaves_no_empty_file(tmp_path, monkeypatch):
    replace = Path.replace

    def refused(*_):
        raise OSError(errno.EPERM, "no links here")

    def interrupted(*names):
        signal.raise_signal(signal.SIGINT)
        return replace(*names)

    monkeypatch.setattr(os, "link", refused)
    monkeypatch.setattr(Path, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_new(tmp_path / "x")
    assert [(p.name, p.read_text()) for p in tmp_path.iterdir()] == [("x", "whole")]


def test_a_file_that_fails_in_the_middle_leaves_nothing(tmp_path):
    def write():
        with new_file(tmp_path / "x") as aside:
            aside.write_text("half")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        write()
    assert list(tmp_path.iterdir()) == []


def test_a_file_in_a_working_directory_that_is_gone_is_refused(tmp_path, monkeypatch):
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(OutputRefused, match="No such file or directory"):
        check_new("ring.json")


def test_a_directory_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(
        OutputRefused, match=r"x cannot be written \(.*file is no directory\): name"
    ):
        check_new(tmp_path / "file" / "deeper" / "x")


@pytest.mark.parametrize("kept_from", ["out", "."])
def test_a_directory_where_nothing_can_be_made_is_refused(tmp_path, monkeypatch, kept_from):
    out = tmp_path / "out"
    out.mkdir()
    check_directory(out)
    place = tmp_path / kept_from
    monkeypatch.setattr(os, "access", lambda at, _: at != place)  # root may write everywhere
    with pytest.raises(OutputRefused, match=f"no right to write into {place}"):
        check_directory(out)


def test_a_link_to_nothing_is_found_before_the_work_starts(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "nothing")
    with pytest.raises(OutputExists):
        check_new(tmp_path / "link")
    with pytest.raises(OutputRefused, match="link is no directory"):
        check_new(tmp_path / "link" / "report.html")


def test_a_check_makes_nothing(tmp_path):
    check_new(tmp_path / "new" / "report.html")
    assert list(tmp_path.iterdir()) == []


def write_new(path):
    with new_file(path) as aside:
        aside.write_text("whole")


def write_over(path):
    path.write_text("before")
    replace_text(path, "whole")


@pytest.mark.parametrize("write", [write_new, write_over])
def test_a_file_is_on_the_disk_before_it_has_its_name_and_its_name_before_the_end(
    tmp_path, monkeypatch, write
):
    found = []
    sync = os.fsync

    def noted(opened):
        path = Path(os.readlink(f"/proc/self/fd/{opened}"))
        whole = (tmp_path / "x").is_file() and (tmp_path / "x").read_text() == "whole"
        found.append((path == tmp_path, whole))
        sync(opened)

    monkeypatch.setattr(os, "fsync", noted)
    write(tmp_path / "x")
    assert found == [(False, False), (True, True)]


@pytest.mark.parametrize("error", [errno.EACCES, errno.EINVAL, errno.ENOTSUP])
def test_where_nobody_can_wait_for_the_disk_a_file_is_written(tmp_path, monkeypatch, error):
    def refused(_):
        raise OSError(error, "no waiting here")

    monkeypatch.setattr(os, "fsync", refused)
    write_new(tmp_path / "x")
    assert (tmp_path / "x").read_text() == "whole"


def test_a_disk_that_fails_at_the_end_leaves_nothing(tmp_path, monkeypatch):
    def failed(_):
        raise OSError(errno.EIO, "a broken disk")

    monkeypatch.setattr(os, "fsync", failed)
    with pytest.raises(OutputRefused, match="a broken disk"):
        write_new(tmp_path / "x")
    assert list(tmp_path.iterdir()) == []
