"""Loses the Spark Connect server of the command line during a call, and is interrupted.

Prints a line when the interrupt has taken effect.
"""

import os
import signal
import sys
import threading

from pyspark.sql import SparkSession

from hashring.cli.spark.signals_between_calls import signals_between_calls
from tests.proxy import Proxy
from tests.spark_programs.interrupted_calls import sleep


def main(port):
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with Proxy(("127.0.0.1", int(port))) as proxy:
        spark = SparkSession.builder.remote(f"sc://127.0.0.1:{proxy.port}").getOrCreate()
        spark.range(1).count()

        def lose() -> None:
            proxy.refuse()
            os.kill(os.getpid(), signal.SIGINT)

        threading.Timer(3, lose).start()
        try:
            # Nobody can ask the server to end it.
            with signals_between_calls(spark):
                spark.range(1).selectExpr(sleep(30)).collect()
        except KeyboardInterrupt:
            print("interrupted", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
