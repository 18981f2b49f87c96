"""A setting of a session for one statement.

Some statements ignore the options of their writer, but not the settings of the session.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Lock
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_in_use: WeakKeyDictionary[SparkSession, Lock] = WeakKeyDictionary()


@contextmanager
def setting(spark: SparkSession, name: str, value: str) -> Iterator[None]:
    """Within it, a setting of the session has this value; one thread at a time changes any.

    Statements that other threads run meanwhile have it, too.
    """
    with _in_use.setdefault(spark, Lock()):
        before = spark.conf.get(name, None)
        spark.conf.set(name, value)
        try:
            yield
        finally:
            with suppress(Exception):  # a signal within a call to Java spoils the next call
                if before is None:
                    spark.conf.unset(name)
                else:
                    spark.conf.set(name, before)
