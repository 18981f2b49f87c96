"""The jobs on a cluster of two workers."""

from pathlib import Path

import pyspark

from tests.spark.conftest import stored
from tests.spark_programs.engine_jobs import check, engine_inputs, overrun

HOME = Path(pyspark.__file__).parent


def test_workers_with_memory_of_their_own(tmp_path):
    # A standalone master in the driver's Java, and two workers that start an executor each.
    ring = engine_inputs(tmp_path)
    home = tmp_path / "home"  # beside which they keep their logs
    home.mkdir()
    for part in HOME.iterdir():
        (home / part.name).symlink_to(part)
    master = ("--master", "local-cluster[2,1,1024]")
    module = "tests.spark_programs.engine_process"
    check(tmp_path, ring, module, *master, SPARK_HOME=str(home))
    assert overrun(tmp_path / "findings-long.parquet")
    assert len(stored(tmp_path / "warehouse" / "owned")) == 200
    # Both did some of it.
    assert all(list((home / "work").glob(f"app-*/{number}")) for number in range(2))
