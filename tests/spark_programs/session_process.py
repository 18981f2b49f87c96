"""Runs a job in a session, and prints what became of its page and its log.

A process of its own: the page of the tests' own session is off, and its log level is set. The job
is the command that follows the name of who sets the session up, or a query. A command ends the
process with its own status.
"""

import json
import os
import runpy
import sys
import urllib.request
from contextlib import suppress
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

import hashring
from hashring.core.ring import Ring
from hashring.spark import with_owner
from hashring.spark.engine.session import spark_session
from tests.spark.java_classes import options

MAIN = Path(hashring.__file__).parent / "__main__.py"


def run(command: list[str]) -> object:
    """Run the command as its own program would; returns its status."""
    sys.argv, sys.path[0] = [str(MAIN), *command], str(MAIN.parent)
    try:
        runpy.run_path(str(MAIN), run_name="__main__")
    except SystemExit as end:
        return end.code
    return 0


def query(who: str) -> None:
    if who == "notebook":
        builder = SparkSession.builder.master("local[1]").config("spark.ui.port", 0)
        theirs = builder.config("spark.driver.extraJavaOptions", options()).getOrCreate()
        theirs.sparkContext.setLogLevel("WARN")
    conf = {"spark.driver.extraJavaOptions": options()} if who == "ours" else None
    spark = spark_session("local[1]" if who == "ours" else None, conf=conf)
    with_owner(spark.range(9), Ring({"a": [0]}), "id").collect()


def main(who: str, *command: str) -> object:
    if who == "submit":
        # As in the cluster modes of Yarn and Kubernetes, where no shell script starts the Python.
        os.environ.pop("SPARK_ENV_LOADED")
    status = run(list(command)) if command else query(who)
    spark = spark_session()
    with suppress(PySparkException):
        spark.range(1).select(F.raise_error(F.lit("in a task"))).collect()
    page = None
    if spark.sparkContext.uiWebUrl:
        with urllib.request.urlopen(spark.sparkContext.uiWebUrl) as answer:
            page = answer.status
    logs = spark._jvm.org.apache.logging.log4j.LogManager
    print(
        json.dumps(
            {
                "master": spark.conf.get("spark.master"),
                "page": page,
                "plans": spark.conf.get("spark.sql.ui.explainMode"),
                "level": logs.getRootLogger().getLevel().toString(),
            }
        )
    )
    return status


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
