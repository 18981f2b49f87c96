"""Settings of a session for one statement.

Some statements ignore the options of their writer, but not the settings of the session.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from threading import Lock
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_in_use: WeakKeyDictionary[SparkSession, Lock] = WeakKeyDictionary()


@contextmanager
def settings(spark: SparkSession, values: Mapping[str, str]) -> Iterator[None]:
    """Within it, settings of the session have these values; one thread at a time changes any.

    Statements that other threads run meanwhile have them, too.
    """
    if not values:
        yield
        return
    with _in_use.setdefault(spark, Lock()):
        before = {name: spark.conf.get(name, None) for name in values}
        try:
            for name, value in values.items():
                spark.conf.set(name, value)
            yield
        finally:
            for name, old in before.items():
                with suppress(Exception):  # a signal within a call to Java spoils the next call
                    if old is None:
                        spark.conf.unset(name)
                    else:
                        spark.conf.set(name, old)
