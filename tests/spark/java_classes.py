"""Make an archive of Spark's classes, with which Java starts in half the time.

Without it, each Java of the tests reads and verifies ten thousand classes anew. The archive is a
file in ``.venv``. It is made again when it does not fit this Java or this PySpark. Java ignores an
archive that does not fit, so the tests pass without one; they only take longer.
"""

import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from pyspark.sql import SparkSession

from hashring.core.ring import Ring
from hashring.spark import load, moves, with_owner

ARCHIVE = Path(sys.prefix) / "spark-classes.jsa"
CLASS_PATH = ARCHIVE.with_suffix(".path")
"""Where the jars of the archive are, as Spark tells Java."""
QUICK = (
    "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m "
    "-XX:CompileThresholdScaling=0.25"
)
"""For a Java that lives for seconds: the simplest garbage collector, and the quick compiler.

The compiler begins after a quarter of the usual calls: most of a test runs once or a few times, and
interpreting it takes longer than compiling it.
"""


def options() -> str:
    """The options of the tests' Java, with the archive if there is one."""
    if not ARCHIVE.exists():
        return QUICK
    # About an archive that does not fit, Java would print a line beside the answer of a job.
    return f"{QUICK} -XX:SharedArchiveFile={ARCHIVE} -Xlog:cds*=off"


def _fits() -> bool:
    """Whether this Java can use the archive with the jars that are there."""
    if not (ARCHIVE.exists() and CLASS_PATH.exists()):
        return False
    home = os.environ.get("JAVA_HOME")
    java = [f"{home}/bin/java" if home else "java", "-cp", CLASS_PATH.read_text()]
    command = [*java, *QUICK.split(), "-Xshare:on", f"-XX:SharedArchiveFile={ARCHIVE}", "-version"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def _play(spark: SparkSession, folder: Path) -> None:
    """Do what most tests do, so that Spark loads the classes that they need."""
    keys = spark.range(200).selectExpr("concat('k', id) as key")
    ring = Ring({"a": [0], "b": [2**30, 3 * 2**30], "c": [2**31]})
    owned = with_owner(keys, ring)
    for kind in ("parquet", "csv", "json"):
        owned.write.partitionBy("owner").format(kind).save(str(folder / kind))
        spark.read.schema(owned.schema).format(kind).load(str(folder / kind)).collect()
    load(keys, ring).collect()
    moves(keys, ring, Ring({"a": [0]})).collect()
    owned.createOrReplaceTempView("owned")
    owned.write.saveAsTable("kept")
    spark.sql("select o.owner, count(*) from owned o join kept using (key) group by 1").collect()
    spark.sql("drop table kept")
    stream = spark.readStream.schema("key string").parquet(str(folder / "parquet" / "owner=a"))
    started = stream.writeStream.option("checkpointLocation", f"{folder}/state")
    started.trigger(availableNow=True).start(str(folder / "out")).awaitTermination()
    spark.createDataFrame([("k",)], "key string").toPandas()


def _make(folder: Path) -> None:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    made = ARCHIVE.with_name(f"{ARCHIVE.name}.{os.getpid()}")
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config(
            "spark.driver.extraJavaOptions",
            f"{QUICK} -Xlog:cds*=off -XX:ArchiveClassesAtExit={made}",
        )
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    java = spark.sparkContext._gateway.proc
    path = spark._jvm.System.getProperty("java.class.path")
    _play(spark, folder)
    spark.stop()
    # Java ends with its standard input, and writes the archive before.
    java.stdin.close()
    java.wait()
    made.replace(ARCHIVE)
    CLASS_PATH.write_text(path)


def main() -> None:
    """Make the archive, unless there is one that fits."""
    if not _fits():
        with TemporaryDirectory() as folder:
            _make(Path(folder))


if __name__ == "__main__":
    main()
