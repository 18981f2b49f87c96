"""Interrupts calls to the Spark Connect server of the command line, as Ctrl-C and SIGTERM do.

Prints a line for each that is found right.
"""

import faulthandler
import os
import signal
import sys
import threading
from contextlib import contextmanager, suppress

from pyspark.sql import SparkSession

from hashring.cli.signals import Terminated, termination_interrupts
from hashring.cli.spark.signals_between_calls import signals_between_calls


def sleep(seconds: int) -> str:
    """What keeps a core of the server for so long."""
    return f"java_method('java.lang.Thread', 'sleep', {seconds}000L)"


LONG = sleep(3600)


class AtUnlock:
    """Sends Ctrl-C where gRPC is just about to unlock a condition, once."""

    def __init__(self) -> None:
        self.sent = False

    def __call__(self, frame, event, argument):
        unlocks = frame.f_code is threading.Condition.__exit__.__code__
        caller = frame.f_back.f_globals["__name__"] if frame.f_back else ""
        if unlocks and caller.startswith("grpc") and not self.sent:
            self.sent = True
            os.kill(os.getpid(), signal.SIGINT)


@contextmanager
def told(number, error):
    """Say it if what the block raises is what the handler does."""
    try:
        yield
    except error:
        print("a long call is interrupted by", number.name)
        raise


def main(remote):
    signal.signal(signal.SIGINT, signal.default_int_handler)
    spark = SparkSession.builder.remote(remote).getOrCreate()
    spark.range(1).count()
    # Where it is wrong, a call waits for ever.
    faulthandler.dump_traceback_later(120, exit=True)

    interrupting = AtUnlock()
    with suppress(KeyboardInterrupt):
        with signals_between_calls(spark):
            sys.settrace(interrupting)
            spark.range(1).count()
        interrupting.sent = False
    sys.settrace(None)
    assert interrupting.sent, "it was not interrupted"
    spark.range(1).count()
    print("the next call goes on")

    for number, error in ((signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, Terminated)):
        threading.Timer(1, os.kill, [os.getpid(), number]).start()
        try:
            with termination_interrupts(), told(number, error), signals_between_calls(spark):
                spark.range(1).selectExpr(LONG).collect()
        except (KeyboardInterrupt, SystemExit):
            assert spark.interruptAll() == [], "the server goes on with it"


if __name__ == "__main__":
    main(*sys.argv[1:])
