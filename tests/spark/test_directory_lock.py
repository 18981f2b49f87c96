"""One process at a time has the lock of a directory, whatever happens to the directory."""

import fcntl

import pytest

from hashring.errors import OutputRefused
from hashring.spark.io.directory_lock import alone


def test_the_lock_of_a_directory_that_is_replaced_meanwhile_is_taken_anew(tmp_path, monkeypatch):
    place, flock = tmp_path / "out", fcntl.flock
    place.mkdir()

    def late(file, how):
        # As another process that replaces the directory before the lock is held.
        if not (tmp_path / "before").exists():
            place.rename(tmp_path / "before")
            place.mkdir()
        flock(file, how)

    monkeypatch.setattr("hashring.spark.io.directory_lock.fcntl.flock", late)
    with (
        alone(place, str(place), "overwrites"),
        (place / "_lock").open("a") as other,
        pytest.raises(BlockingIOError),
    ):
        flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_a_full_disk_has_the_lock_too(tmp_path):
    (tmp_path / "_lock").symlink_to("/dev/full")
    with alone(tmp_path, "out", "overwrites"):
        locked = pytest.raises(OutputRefused, match=r"another process .* it")
        with locked, alone(tmp_path, "out", "compacts"):
            pass
