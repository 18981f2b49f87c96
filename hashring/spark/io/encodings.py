"""Encodings of text in which Spark does not find the ends of lines."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from hashring.errors import ConfigError

_WIDE: Final = re.compile(r"utf[-_]?(?:16|32)|unicode|ucs")
"""In the names of encodings whose characters have two bytes or more."""
_IN_ORDER: Final = re.compile(r"utf-?(?:16|32)[lb]e")
"""Those of them that have their bytes in one order, and no mark of it."""


def in_lower_case(options: Mapping[str, object] | None) -> dict[str, str]:
    """Names and values of options, as Spark compares them."""
    return {option.lower(): str(value).lower() for option, value in (options or {}).items()}


def encoding_of(options: Mapping[str, str]) -> str:
    """The encoding that options of a format name, all in lower case; empty if they name none."""
    return options.get("encoding", options.get("charset", ""))


def check_encoding(options: Mapping[str, str], remedy: str) -> None:
    """Check that Spark finds the ends of lines in a CSV of this encoding.

    Of UTF-16 and UTF-32, it looks for the byte of a line break, which is a part of a character.

    Args:
        options: names and values in lower case.

    Raises:
        ConfigError: it would read other keys.
    """
    encoding = encoding_of(options)
    if not _WIDE.search(encoding) or options.get("multiline") == "true":
        return
    # With the order of its bytes, Spark knows how a separator of lines is written.
    if "linesep" in options and _IN_ORDER.fullmatch(encoding):
        return
    raise ConfigError(
        "encoding",
        encoding,
        f"Spark would split such a CSV within characters, and read other keys: {remedy}",
    )


def check_table_encoding(options: Mapping[str, object], table: str) -> None:
    """Check that Spark finds the ends of lines in a table of CSV, by the options of the table.

    Raises:
        ConfigError: it would read other keys.
    """
    remedy = f"ALTER TABLE {table} SET SERDEPROPERTIES ('multiLine'='true')"
    check_encoding(in_lower_case(options), remedy)
