"""What the driver holds does not grow with the rows, nor with what is computed of them.

Spark fails a query whose results for the driver are more than it may hold. So with little room a
frame that executors compute passes, and one that comes to the driver on its way does not: tests
plant such faults, too.
"""

import random
import tracemalloc
from functools import reduce

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from hashring.core.ring import Ring
from hashring.core.ring_change_message import ChangeKind, RingChange, Stamp
from hashring.core.ring_history import ring_history
from hashring.spark import audit, load, load_of_histogram
from hashring.spark.analysis import node_load
from hashring.spark.periods import owner_at_time
from hashring.spark.periods.owner_at_time import as_of

ROOM = "spark.driver.maxResultSize"
TOO_MUCH = "bigger than spark.driver.maxResultSize"


@pytest.fixture
def little_room(spark):
    """The driver takes 256 KiB of a query's results."""
    conf = spark.sparkContext._jsc.sc().conf()
    conf.set(ROOM, "256k")
    yield
    conf.remove(ROOM)


def compute(df):
    """All rows, where they are."""
    df.write.format("noop").mode("overwrite").save()


def collected(df):
    """The same rows, by way of the driver."""
    return df.sparkSession.createDataFrame(df.toArrow())


def long_history(changes, nodes, replicas):
    """Nodes join, and once there are enough, leave in turn; each is at new points."""
    rng = random.Random(1)
    made = []
    for epoch in range(1, changes + 1):
        prev = f"t{epoch - 1}" if made else ""
        stamp = Stamp(epoch, f"t{epoch}", 0, epoch * 1_000_000)
        joined = epoch - max(0, epoch - nodes) // 2
        if epoch <= nodes or (epoch - nodes) % 2 == 0:
            points = tuple(sorted({rng.randrange(2**32) for _ in range(replicas)}))
            made.append(RingChange(ChangeKind.JOIN, (f"n{joined}",), points, prev, stamp))
        else:
            gone = (epoch - nodes + 1) // 2
            made.append(RingChange(ChangeKind.LEAVE, (f"n{gone}",), (), prev, stamp))
    return ring_history(made)


@pytest.fixture
def made_by_workers(monkeypatch):
    """Histories are too long for tables of the driver."""
    monkeypatch.setattr(owner_at_time, "MOST_IN_TABLES", 0)


@pytest.mark.parametrize("is_planted", [False, pytest.param(True, marks=pytest.mark.long)])
def test_the_loads_of_very_many_nodes_stay_on_executors(
    spark, little_room, monkeypatch, is_planted
):
    rng = random.Random(1)
    ring = Ring({f"n{i}": [rng.randrange(2**32)] for i in range(30_000)})
    keys = spark.range(100_000).selectExpr("concat('k', id) AS key")
    if is_planted:
        count = node_load.counted_by_code
        monkeypatch.setattr(node_load, "counted_by_code", lambda *given: collected(count(*given)))
        with pytest.raises(Exception, match=TOO_MUCH):
            compute(load(keys, ring))
    else:
        compute(load(keys, ring))


@pytest.mark.parametrize("is_planted", [False, pytest.param(True, marks=pytest.mark.long)])
def test_the_periods_of_a_long_history_stay_on_executors(
    spark, little_room, made_by_workers, monkeypatch, is_planted
):
    work = spark.range(1000).selectExpr(
        "concat('k', id % 100) AS key", "concat('n', id % 20) AS node",
        "100 + id / 10 AS start", "100.5 + id / 10 AS end",
    )  # fmt: skip
    history = long_history(400, 20, 64)
    if is_planted:
        monkeypatch.setattr(DataFrame, "hint", lambda frame, _: F.broadcast(frame))
        monkeypatch.setattr(type(work), "hint", lambda frame, _: F.broadcast(frame))
        with pytest.raises(Exception, match=TOO_MUCH):
            compute(audit(work, history).findings)
    else:
        compute(audit(work, history).findings)


def test_the_histograms_of_many_days_come_to_the_driver_as_one(spark, little_room):
    ring = Ring({"a": [0], "b": [2**31]})
    day = spark.range(2**11).selectExpr(
        "id << 21 AS start", "(id + 1) << 21 AS end", "1L AS keys", "1D AS weight",
        "0L AS bad_weights",
    )  # fmt: skip
    days = reduce(DataFrame.unionAll, [day] * 24)
    found = load_of_histogram(days, ring).collect()
    assert [(row.node, row["keys"]) for row in found] == [("a", 24 * 2**10), ("b", 24 * 2**10)]


def test_the_driver_holds_at_most_250_bytes_a_replica_of_a_long_history(made_by_workers):
    history = long_history(1000, 100, 64)
    replicas = len(history.lives()[0])
    tracemalloc.start()
    try:
        as_of(history)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 250 * replicas
