"""Which paths are on this machine, as Spark takes them."""

from __future__ import annotations

import os
import re
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Final
from weakref import WeakKeyDictionary

from hashring.errors import ConfigError
from hashring.spark.engine.session import is_connect
from hashring.spark.engine.spark_failures import SPARK_ERRORS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NO_PATH: Final = "[PATH_NOT_FOUND] Path does not exist: "
"""What Spark says, before the path with its file system."""


def exactly(path: str) -> str:
    """A path for Spark's readers, to which brackets and the like are a pattern of names."""
    return re.sub(r"[\\\[\]{}*?]", r"\\\g<0>", path)


def is_local_by_default(spark: SparkSession) -> bool:
    """Whether a path without a scheme is on a local disk, and not on the cluster's file system.

    The default is the setting ``fs.defaultFS`` of Hadoop, which a file ``core-site.xml`` or the
    session sets. Spark shows where it looks in its error about a path that is not there.
    """
    known = _local_by_default.setdefault(spark, {})
    setting = spark.conf.get("fs.defaultFS", None)
    if setting not in known:
        try:
            spark.read.format("binaryFile").load(f"/.hashring-{uuid.uuid4().hex}").inputFiles()
        except SPARK_ERRORS as error:
            if NO_PATH not in str(error):
                raise
            known[setting] = f"{NO_PATH}file:" in str(error)
    return known[setting]


_local_by_default: WeakKeyDictionary[SparkSession, dict[str | None, bool]] = WeakKeyDictionary()
"""By the session's own setting, which may change."""


def scheme_of(path: str) -> str | None:
    """What an address begins with, such as ``s3a``; ``None`` for a path, which may have a colon."""
    scheme, colon, _ = path.partition(":")
    return scheme if colon and "/" not in scheme else None


def local_path(spark: SparkSession, path: str) -> Path | None:
    """The path on this machine's file system, if it is there that Spark would write.

    Over Spark Connect there is none: paths are those of the server.

    Raises:
        ConfigError: the path is empty, or the address of a file names a host, which Spark could not
            read.
    """
    if not path:  # else it would be the working directory
        raise ConfigError("path", path, "is empty: name a file or directory")
    scheme = scheme_of(path)
    if scheme not in (None, "file"):
        return None
    if is_connect(spark) or (scheme is None and not is_local_by_default(spark)):
        return None
    rest = path.removeprefix("file:")
    if scheme and (host := re.match("//([^/]+)", rest)):
        raise ConfigError(
            "path", path, f"names a host, {host[1]}: write file:/// and the path on this machine"
        )
    # What replaces a directory by its name would replace a link to one.
    return Path(os.path.realpath("/" + rest.lstrip("/") if scheme else path))
