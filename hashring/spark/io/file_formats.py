"""The formats of files, by their names and as Spark reads and writes them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from hashring.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FORMATS: Final = ("parquet", "csv", "json")
FILE_FORMATS: Final = (*FORMATS, "orc", "avro", "text", "xml")
"""Of plain files."""
_CLASS: Final = re.compile(
    rf"(?:org\.apache\.spark\.sql|com\.databricks\.spark)\.(?:\w+\.)*({'|'.join(FILE_FORMATS)})"
    rf"(?:\.\w+)?",
    re.IGNORECASE,
)
QUOTES_DOUBLED: Final = {"escape": '"'}
"""A quote within a field of a CSV is two, as RFC 4180 has it and others write it. Spark would take
them for part of the key, and a backslash for what comes before a quote."""
WHOLE: Final = {"ignoreCorruptFiles": "false", "ignoreMissingFiles": "false"}
"""Options for readers of which no row may be missing. Settings of a session may say otherwise."""


def format_name(given: str) -> str:
    """The name of a format as the code compares it.

    Spark takes ``CSV`` for ``csv``, and also the names of classes and packages that it had once.
    """
    by_class = _CLASS.fullmatch(given)
    name = (by_class[1] if by_class else given).lower()
    return name if name in FILE_FORMATS else given


def format_of(paths: Sequence[str], given: str | None, what: str = "input") -> str:
    """The format of files: as given, or as their names end.

    Args:
        what: the setting that names the files, for the error's message.

    Raises:
        ConfigError: neither says.
    """
    if given is not None:
        return format_name(given)
    for name in FORMATS:
        if all(re.search(rf"\.{name}(\.\w+)?/*$", path) for path in paths):
            return name
    raise ConfigError(
        what,
        ", ".join(paths),
        f"its name does not end in one of {', '.join(FORMATS)}: give the format",
    )


def is_old_parser(spark: SparkSession) -> bool:
    """Whether the session reads and writes times in text as Spark 2 did."""
    policy = spark.conf.get("spark.sql.legacy.timeParserPolicy", None) or ""
    return policy.upper() == "LEGACY"
