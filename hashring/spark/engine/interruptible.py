"""Spark's work that ends when it is interrupted, and leaves no more behind than Spark does."""

from __future__ import annotations

import sys
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from queue import Empty, SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING, Final, TypeVar

from pyspark import inheritable_thread_target

from hashring.spark.engine.session import is_connect
from hashring.spark.engine.spark_failures import SPARK_ERRORS

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

_Result = TypeVar("_Result")

_ENDING: Final = 10.0
"""Seconds for which an interrupt waits for Java to end what it was asked."""
_EVERY: Final = 0.05  # seconds


def interruptible(
    spark: SparkSession,
    work: Callable[[], _Result],
    undo: Callable[[], object] = lambda: None,
) -> _Result:
    """Do some work of Spark, and cancel it when it is interrupted, so that Spark removes its files.

    Whatever the handler of a signal raises is an interrupt. What other threads and other users of
    the session run goes on. Java has nothing to cancel while it plans, and would write all rows
    after that. So an interrupt takes effect when Java has ended the work, at most some seconds
    later. A second one takes effect at once. Work that then goes on is cancelled as soon as it can
    be.

    Args:
        work: runs in a thread of its own, where no signal breaks the connection to Java; over Spark
            Connect in the caller's.
        undo: removes what is left of work that was interrupted, once that has ended: the caller may
            have gone on before. It runs in another thread, and not over Spark Connect.
    """
    tag = f"hashring-{uuid.uuid4().hex}"
    if is_connect(spark):
        return _over_connect(spark, tag, work)
    context = spark.sparkContext
    result: Future[_Result] = Future()
    # Unlike other things to wait for, it does not stay locked when a signal's handler raises.
    ended: SimpleQueue[None] = SimpleQueue()

    @inheritable_thread_target(spark)
    def tagged() -> _Result:
        context.addJobTag(tag)
        # Makes this session the active one of the thread. Java looks there for settings, and for
        # the formats that were registered.
        spark.createDataFrame([], "none INT")
        try:
            return work()
        finally:
            # Where PySpark is set up so, threads share what has the tag.
            with suppress(Exception):
                context.removeJobTag(tag)

    def run() -> None:
        if not result.set_running_or_notify_cancel():
            return  # interrupted before it began
        try:
            result.set_result(tagged())
        except BaseException as error:  # noqa: BLE001 - it is raised in the caller's thread
            result.set_exception(error)
        finally:
            ended.put(None)

    try:
        Thread(target=run, name="hashring work", daemon=True).start()
        ended.get()
        return result.result()
    except BaseException as error:
        # Any: the handler of a signal may raise what it likes, such as that a time is over.
        if result.done() and isinstance(error, Exception):
            raise  # the work's own
        result.cancel()
        gone: SimpleQueue[None] = SimpleQueue()
        rest = (context, tag, result, undo, gone)
        Thread(target=_cancel, args=rest, name="hashring cancel", daemon=True).start()
        with suppress(Empty):
            gone.get(timeout=_ENDING)
        raise


@contextmanager
def interrupts_kept() -> Iterator[None]:
    """Let an interrupt out of a call to Spark as what it is.

    Py4J then closes its connection, and a client of Spark Connect asks the server to end the call.
    If that fails, they raise an error of their own instead.
    """
    handled = sys.exc_info()[1]  # of the caller, from long before
    try:
        yield
    except SPARK_ERRORS as error:
        cause = error.__context__
        while cause is not None and cause is not handled:
            if isinstance(cause, KeyboardInterrupt):
                raise cause from None
            cause = cause.__context__
        raise


def _cancel(
    context: SparkContext,
    tag: str,
    result: Future[_Result],
    undo: Callable[[], object],
    gone: SimpleQueue[None],
) -> None:
    """Cancel the jobs with a tag until there are no more to come, and remove what is left."""
    while True:
        with suppress(Exception):  # whatever is wrong with Java by now
            context.cancelJobsWithTag(tag)
        if result.done():
            break
        time.sleep(_EVERY)
    with suppress(Exception):
        undo()
    gone.put(None)


def _over_connect(spark: SparkSession, tag: str, work: Callable[[], _Result]) -> _Result:
    spark.addTag(tag)
    try:
        return work()
    except BaseException as error:
        if not isinstance(error, SPARK_ERRORS):
            with suppress(Exception):  # whatever is wrong with the server by now
                spark.interruptTag(tag)
        raise
    finally:
        with suppress(Exception):
            spark.removeTag(tag)
