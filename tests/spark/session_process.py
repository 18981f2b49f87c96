"""Runs a job in a session, and prints what became of its page and its log.

A process of its own: the page of the tests' own session is off, and its log level is set.
"""

import json
import sys
import urllib.request
from contextlib import suppress

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from hashring.core.ring import Ring
from hashring.spark.input import Input
from hashring.spark.jobs import load_job
from hashring.spark.session import spark_session
from tests.spark.engine_process import JAVA


def main(who: str, log: str | None = None) -> None:
    if who == "notebook":
        builder = SparkSession.builder.master("local[1]").config("spark.ui.port", 0)
        theirs = builder.config("spark.driver.extraJavaOptions", JAVA).getOrCreate()
        theirs.sparkContext.setLogLevel("WARN")
    conf = {"spark.driver.extraJavaOptions": JAVA} if who == "ours" else None
    spark = spark_session("local[1]" if who == "ours" else None, conf=conf, log=log)
    load_job(Input(spark.range(9), "keys"), Ring({"a": [0]}), key="id", hottest=0)
    with suppress(PySparkException):
        spark.range(1).select(F.raise_error(F.lit("in a task"))).collect()
    status = None
    if spark.sparkContext.uiWebUrl:
        with urllib.request.urlopen(spark.sparkContext.uiWebUrl) as page:
            status = page.status
    logs = spark._jvm.org.apache.logging.log4j.LogManager
    print(
        json.dumps(
            {
                "page": status,
                "plans": spark.conf.get("spark.sql.ui.explainMode"),
                "level": logs.getRootLogger().getLevel().toString(),
            }
        )
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
