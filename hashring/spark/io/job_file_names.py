"""Names of files and numbers of jobs, by which jobs that write to one place are told apart.

Jobs of Spark keep what they have not committed in one place of the directory. The first that ends
takes away what others have there by then. So another job may lose rows, and Spark may report
success. The names of files tell the jobs apart.

Jobs that are given no number also commit what others of these have there, such as a job that was
killed. Its rows would be there twice once it is started again. So each job here has its own number.
"""

from __future__ import annotations

import re
import uuid
from contextlib import suppress
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

from hashring.core.readable_numbers import counted
from hashring.errors import OutputRefused
from hashring.spark.engine.spark_failures import SPARK_ERRORS, failure
from hashring.spark.io.existing_files import addresses_there

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_FILE_NAME: Final = "mapreduce.output.basename"
"""The setting, or the option of a format of files, with which the names of files begin."""
_NUMBER: Final = "mapreduce.job.application.attempt.id"
"""The same for the number of a job, which names its part of what is not committed."""
ANOTHER: Final = "another job appended at the same time"
WROTE_TOO: Final = "another job wrote there at the same time"
_UNCOMMITTED: Final = "/_temporary/"
"""Where Spark keeps what it has not committed, in the words of what misses it."""
_NOT_FOUND: Final = ("does not exist", "FileNotFoundException")
_PROTOCOL: Final = "spark.sql.sources.commitProtocolClass"
_NAMING_PROTOCOLS: Final = ("SQLHadoopMapReduceCommitProtocol", "PathOutputCommitProtocol")
"""Those of Spark, which name files as they are told. A platform's own may not."""
_JOB: Final = re.compile(r"-\d{5,}-([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})")
"""The id of the job, in the name that Spark gives to a file: the same for all files of a job."""


def new_file_name(spark: SparkSession) -> str:
    """A beginning of files' names that no other job gives; empty if Spark cannot be told one."""
    protocol = spark.conf.get(_PROTOCOL, None) or _NAMING_PROTOCOLS[0]
    return f"part-{uuid.uuid4().hex[:8]}" if protocol.endswith(_NAMING_PROTOCOLS) else ""


def own_job(name: str) -> dict[str, str]:
    """The settings, or the options of a format of files, of a job whose files' names begin so.

    Args:
        name: of :func:`new_file_name`.
    """
    if not name:
        return {}
    # Java has 31 bits for it; jobs without a number have 0.
    number = int(name.rpartition("-")[2], 16) % (2**31 - 1) + 1
    return {_FILE_NAME: name, _NUMBER: str(number)}


def check_nothing_left(
    spark: SparkSession, place: str | None, name: str, path: str, error: Exception
) -> None:
    """Check that a job that failed has left no file, whose rows the next try would double.

    Spark removes what is not committed. Some committers commit each task as it ends
    (``mapreduce.fileoutputcommitter.algorithm.version=2``), and any may fail half way.

    Args:
        place: the directory that was written; ``None`` if it is not known.
        name: with which the names of the job's files begin; empty if Spark names them.
        path: the output as the user named it.
        error: with which the job failed.

    Raises:
        OutputRefused: files are there.
    """
    left = 0
    if name and place is not None:
        with suppress(*SPARK_ERRORS, OSError):  # Java may have ended
            left = sum(file.startswith(name) for file in _names_there(spark, place))
    if left:
        raise OutputRefused(
            path,
            f"the job failed half way, and left {counted(left, 'file')} there: {failure(error)}",
            f"remove the files {name}*, and start again",
        ) from error


def beside_another(name: str) -> str:
    """The remedy for rows missing of those appended in files whose names begin so."""
    return f"append those that are not in files {name}*"


def was_taken_away(error: Exception) -> bool:
    """Whether a job of Spark failed because another took away what it had not committed."""
    told = str(error)
    return _UNCOMMITTED in told and any(sign in told for sign in _NOT_FOUND)


def has_others(spark: SparkSession, place: str, name: str) -> bool:
    """Whether a directory has files whose names do not begin so."""
    return not all(file.startswith(name) for file in _names_there(spark, place))


def is_of_one_job(spark: SparkSession, place: str) -> bool:
    """Whether all files of a directory were written by one job of Spark."""
    jobs = {found and found[1] for found in map(_JOB.search, _names_there(spark, place))}
    return len(jobs) <= 1


def _names_there(spark: SparkSession, place: str) -> list[str]:
    return [PurePosixPath(unquote(address)).name for address in addresses_there(spark, place)]
