"""Which checkpoint the batches in an output are of.

Batches are told apart by their numbers, and each checkpoint counts its own. So an output of two
would lack the batches of the second whose numbers the first has used.

An older copy of a checkpoint has the same id, and gives those numbers to other rows. Spark writes
``offsets/<number>`` to the checkpoint before it runs a batch. So the checkpoint is an older copy if
the output holds a batch after the newest that the checkpoint has planned.

Spark writes ``commits/<number>`` when a batch has ended, and never runs that batch again. So its
rows would be lost if another process began to replace it at that moment and then failed. To replace
a batch, Spark first deletes its directory, so the output has a note of that before.

Two streams that begin at once find neither a mark nor a batch that has ended. So before the output
has its mark, the checkpoint has a note of its output, and the first note stays. Once there is a
mark, nobody looks at the note: an output may be moved.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812 - the name everybody reads

from hashring.atomic_writes import new_file, replace_text
from hashring.errors import OutputExists, OutputRefused
from hashring.spark.engine.spark_failures import SPARK_ERRORS
from hashring.spark.io.directory_swap import STREAM
from hashring.spark.io.existing_files import has_no_rows, seen_files
from hashring.spark.io.job_file_names import is_of_one_job
from hashring.spark.io.local_paths import exactly, local_path
from hashring.spark.streams.compaction import BATCH, newest_batch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_FIRST: Final = "hashring-output"
"""In a checkpoint, the output whose stream began first."""
_REPLACING: Final = "_replacing"
"""The note of a batch that is being replaced: its number, and a name that no other process has."""


class StreamMark:
    """In an output, the id of the checkpoint whose batches it holds.

    Spark draws the id with the checkpoint's first query. The mark is what Spark can write, and read
    by any address of the output: a directory with a file.
    """

    def __init__(self, output: str, target: Path | None, checkpoint: str) -> None:
        """Of an output, where it is on this machine's file system, and a checkpoint."""
        self._output = output
        self._target = target
        self._checkpoint = checkpoint
        self._own = json.dumps(str(target or output.rstrip("/")))  # one line, whatever the name
        self._first = f"{checkpoint.rstrip('/')}/{_FIRST}"
        self._is_there = False
        self._id: str | None = None

    def check(self, spark: SparkSession) -> None:
        """Raise ``OutputRefused`` if another checkpoint has written to the output."""
        found = self._read(spark)
        self._is_there = found is not None
        if found is not None and found != self.checkpoint_id(spark):
            raise OutputRefused(
                self._output,
                f"its batches are of another checkpoint than {self._checkpoint}, which uses the "
                f"same numbers",
            )

    def check_begun(self, spark: SparkSession) -> None:
        """Raise if the checkpoint and the output have not begun together.

        Raises:
            OutputExists: the stream would hide what is in the output. Readers pass over files that
                are beside directories of batches.
            OutputRefused: the batches of the checkpoint are in another output, or somebody moved
                them.
        """
        if self._is_there:
            return
        if not has_no_rows(spark, self._output, self._target):
            is_new = _newest_offset(spark, self._checkpoint) < 0
            if is_new or self._newest_batch(spark, -1) < 0:
                raise OutputExists(self._output)
        elif (noted := _newest_commit(spark, self._checkpoint)) >= 0:
            raise self._elsewhere(spark, f"notes batches up to {noted} as ended, and none is there")
        first = _first_line(spark, self._first)
        if first not in (None, self._own):
            raise self._elsewhere(spark, f"began with the output {first}, and none is there")

    def _elsewhere(self, spark: SparkSession, why: str) -> OutputRefused:
        return OutputRefused(
            self._output,
            f"{self._checkpoint} {why}",
            f"name the output that has them; to continue here without them, write "
            f"{self.checkpoint_id(spark)} to {self._output.rstrip('/')}/{STREAM}/id",
        )

    def check_planned(self, spark: SparkSession) -> None:
        """Raise ``OutputRefused`` if the output holds a batch that the checkpoint did not plan."""
        planned = _newest_offset(spark, self._checkpoint)
        newest = self._newest_batch(spark, planned)
        if newest > planned:
            # Another process with this checkpoint may have gone on between the two looks.
            planned = _newest_offset(spark, self._checkpoint)
        if newest > planned:
            since = f" after batch {planned}" if planned >= 0 else ""
            raise OutputRefused(
                self._output,
                f"it holds batch {newest}, and the checkpoint {self._checkpoint} has planned none"
                f"{since}: this is an older copy of it, which would use the same numbers for other "
                f"rows",
                "restore its newest copy, or take a new output and a new checkpoint",
            )

    def check_ended(self, spark: SparkSession) -> None:
        """Raise ``OutputRefused`` if a batch that was noted as ended is not whole.

        That is the last one, or one of which a process began to replace the directory and did not
        end. On this machine's file system both always are. If another directory is gone, a user
        removed it.
        """
        if self._target is not None:
            return
        noted = _newest_commit(spark, self._checkpoint)
        replaced = self._replaced(spark)
        for number in sorted({noted, replaced}):
            if 0 <= number <= noted:
                self._check_ended(spark, number, noted, is_replaced=number == replaced)

    def _check_ended(
        self, spark: SparkSession, number: int, noted: int, *, is_replaced: bool
    ) -> None:
        output, checkpoint = self._output.rstrip("/"), self._checkpoint.rstrip("/")
        place = f"{output}/{BATCH}={number}"
        if is_gone := seen_files(spark, exactly(place)) is None:
            if not is_replaced:
                return
            why = "is gone: a process that replaced it has not ended"
        else:
            # Spark may be set up to leave no _SUCCESS. Then nobody knows.
            is_marked = is_finished(spark, place) or not is_finished(spark, f"{output}/{STREAM}")
            if is_marked and is_of_one_job(spark, place):
                return
            why = "lacks rows or has those of two processes"
        lost = [f"{checkpoint}/commits/{_numbers(number, noted)}"]
        planned = _newest_offset(spark, self._checkpoint)
        if planned > number:
            # Else Spark would go on with this one.
            later = _numbers(number + 1, planned)
            lost += [f"{checkpoint}/offsets/{later}", f"{output}/{BATCH}={later}"]
        note = f"{output}/{_REPLACING}"
        if is_replaced:
            lost.append(note)
        by_hand = f"; if you removed that directory, remove {note} alone" if is_gone else ""
        raise OutputRefused(
            self._output,
            f"{self._checkpoint} notes batch {number} as ended, and {place} {why}",
            f"see that no other process runs, and remove {', '.join(lost)}, with any .crc file of "
            f"that name: the next start then writes its rows again{by_hand}",
        )

    def _replaced(self, spark: SparkSession) -> int:
        """The number of a batch that a process began to replace and did not end; -1 for none."""
        note = _first_line(spark, f"{self._output.rstrip('/')}/{_REPLACING}")
        return int(note.split()[0]) if note else -1

    @contextmanager
    def replacement(self, spark: SparkSession, number: int) -> Iterator[None]:
        """Have a note of a batch whose directory is deleted within it, unless it ends well.

        Elsewhere than on this machine.
        """
        place = f"{self._output.rstrip('/')}/{_REPLACING}"
        note = f"{number} {uuid.uuid4().hex}"
        _write_line(spark, place, note)
        yield
        # Another process that replaces the batch, too, may not have ended. An empty line is no
        # note: Spark has no other way to remove one.
        if _first_line(spark, place) == note:
            _write_line(spark, place, "")

    def _newest_batch(self, spark: SparkSession, planned: int) -> int:
        """The largest number of a batch in the output; -1 if there is none after the planned one.

        Elsewhere than on this machine, only the files of such batches are listed.
        """
        if self._target is not None:
            return newest_batch(self._target)
        pattern = f"{exactly(self._output.rstrip('/'))}/{BATCH}={numbers_after(planned)}"
        return _largest(spark, pattern, rf"/{BATCH}=(\d+)/[^/]+$")

    def keep(self, spark: SparkSession) -> None:
        """Mark the output, and check it, before a batch is written: an older one has no mark.

        On this machine's file system, also an output that took the place of one that was moved.
        """
        if self._is_there and (self._target is None or (self._target / STREAM).exists()):
            return
        self.check(spark)
        if not self._is_there:
            self.check_begun(spark)
            self._note(spark)
            self.check_begun(spark)  # the note may be that of another stream by now
            self._write(spark)
            self._is_there = True

    def _note(self, spark: SparkSession) -> None:
        """Note the output in the checkpoint, if no other stream has done so.

        Elsewhere than on this machine, two that look at the same moment both find nothing.
        """
        if (checkpoint := local_path(spark, self._checkpoint)) is not None:
            with suppress(OutputExists), new_file(checkpoint / _FIRST) as aside:
                aside.write_text(f"{self._own}\n", encoding="utf-8")
        elif _first_line(spark, self._first) is None:
            _write_line(spark, self._first, self._own)

    def _read(self, spark: SparkSession) -> str | None:
        if self._target is None:
            return _first_line(spark, f"{self._output.rstrip('/')}/{STREAM}")
        place = self._target / STREAM
        # Earlier versions wrote a file here.
        files = [place] if place.is_file() else sorted(place.glob("[!._]*"))
        return next((text for file in files if (text := file.read_text("ascii").strip())), None)

    def _write(self, spark: SparkSession) -> None:
        found = self.checkpoint_id(spark)
        if self._target is not None:
            (self._target / STREAM).mkdir(exist_ok=True)
            replace_text(self._target / STREAM / "id", f"{found}\n")
            return
        _write_line(spark, f"{self._output.rstrip('/')}/{STREAM}", f"{found}")

    def checkpoint_id(self, spark: SparkSession) -> str | None:
        """The checkpoint's id. ``None`` before its first query, which draws it.

        A checkpoint that was deleted and made anew at the same path has another one.
        """
        if self._id is None:
            told = _first_line(spark, f"{self._checkpoint.rstrip('/')}/metadata")
            self._id = None if told is None else str(json.loads(told)["id"])
        return self._id


def _first_line(spark: SparkSession, path: str) -> str | None:
    """The first line of a text file, or of the files in a directory, on any file system."""
    try:
        row = spark.read.text(exactly(path)).first()
    except SPARK_ERRORS as error:
        if "PATH_NOT_FOUND" in str(error):
            return None
        raise
    return row["value"] if row else None


def _write_line(spark: SparkSession, place: str, line: str) -> None:
    """Write a directory with a text of one line, on any file system."""
    text = spark.range(1).select(F.lit(line).alias("value"))
    text.coalesce(1).write.mode("overwrite").text(place)


def _numbers(first: int, last: int) -> str:
    """Numbers, as a shell takes them."""
    return str(first) if first == last else f"{{{first}..{last}}}"


def is_finished(spark: SparkSession, directory: str) -> bool:
    """Whether Spark has finished what it wrote to a directory, on any file system."""
    return seen_files(spark, exactly(f"{directory}/_SUCCESS")) is not None


def _newest_offset(spark: SparkSession, checkpoint: str) -> int:
    """The number of the last batch that the checkpoint has planned; -1 for none."""
    return _largest(spark, exactly(f"{checkpoint.rstrip('/')}/offsets"), r"/offsets/(\d+)$")


def _newest_commit(spark: SparkSession, checkpoint: str) -> int:
    """The number of the last batch that the checkpoint notes as ended; -1 for none."""
    return _largest(spark, exactly(f"{checkpoint.rstrip('/')}/commits"), r"/commits/(\d+)$")


def _largest(spark: SparkSession, pattern: str, number: str) -> int:
    """The largest number in the names of the files that a pattern matches; -1 for none."""
    files = seen_files(spark, pattern) or ()
    return max((int(found[1]) for file in files if (found := re.search(number, file))), default=-1)


def numbers_after(number: int) -> str:
    """A pattern of Hadoop's for names that are a larger number than this one, from -1 on.

    It also matches longer names that begin with such a number.
    """
    if number < 0:
        return "{[0-9]*}"
    digits, any_digit = str(number), "[0-9]"
    larger = [
        f"{digits[:at]}[{int(digit) + 1}-9]{any_digit * (len(digits) - at - 1)}"
        for at, digit in enumerate(digits)
        if digit != "9"
    ]
    longer = f"[1-9]{any_digit * len(digits)}*"
    return f"{{{','.join([*larger, longer])}}}"
