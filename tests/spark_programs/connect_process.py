"""Calls every public function through the Spark Connect server that the environment names.

Then it runs the commands through the same server, which their own option names.
"""

import os
import sys
from collections import Counter
from contextlib import suppress
from pathlib import Path

import hashring.spark as public
from hashring.core.ring import Ring
from hashring.core.ring_json import RingFile
from hashring.errors import ConfigError, NoDataError, OutputRefused
from hashring.ring_files import read_ring
from hashring.spark import (
    Scenario,
    audit,
    compact,
    drawn_within,
    history_of,
    hot_keys,
    load,
    load_of_histogram,
    may_move,
    moves,
    moves_of_histogram,
    owner,
    partition_by_owner,
    plan,
    plan_of_histogram,
    planned_ring,
    point,
    point_histogram,
    reassign,
    register_functions,
    replicas_for,
    scenarios,
    simulate,
    summarise,
    with_move,
    with_owner,
    work_slices,
)
from hashring.spark.engine.session import is_connect, spark_session
from hashring.spark.io.input import read_frame
from hashring.spark.periods import owner_at_time
from tests.spark.conftest import keep
from tests.spark.test_owner import random_ring
from tests.spark_programs import engine_process


def columns_and_sql(keys, ring):
    for row in keys.select("key", owner(ring, "key").alias("o"), point("key")).collect():
        assert row.o == ring.owner(row.key)
    keys.createOrReplaceTempView("keys")
    register_functions(keys.sparkSession, ring)
    for row in keys.sparkSession.sql("select key, hashring_owner(key) o from keys").collect():
        assert row.o == ring.owner(row.key)


def counted_owners(names, ring):
    return Counter(map(ring.owner, names))


def counted_moves(names, before, after):
    pairs = Counter((before.owner(name), after.owner(name)) for name in names)
    return {pair: count for pair, count in pairs.items() if pair[0] != pair[1]}


def by_node(frame):
    return Counter({row.node: row["keys"] for row in frame.collect()})


def by_pair(frame):
    return {(row.before, row.after): row["keys"] for row in frame.collect()}


def tables(keys, ring):
    """A frame with the table of a ring, and one with the table of two."""
    after = planned_ring(ring, join=["new"])
    names = [row.key for row in keys.collect()]
    assert by_node(load(keys, ring)) == counted_owners(names, ring)
    assert by_pair(moves(keys, ring, after)) == counted_moves(names, ring, after)


def frames(keys, ring):
    after = planned_ring(ring, join=["new"])
    names = [row.key for row in keys.collect()]
    owners, moved = counted_owners(names, ring), counted_moves(names, ring, after)
    planned = plan(keys, ring, join=["new"])
    assert by_pair(planned.moves) == moved
    assert "<iframe" in planned._repr_html_()
    counted = point_histogram(keys)
    assert by_node(load_of_histogram(counted, ring, keys)) == owners
    assert by_pair(moves_of_histogram(counted, ring, after, keys)) == moved
    assert by_pair(plan_of_histogram(counted, ring, keys, join=["new"]).moves) == moved
    assert {row.owner for row in hot_keys(keys, ring, n=3).collect()} <= set(ring.nodes)
    owned = with_owner(keys, ring)
    assert Counter(row.owner for row in owned.collect()) == owners
    assert Counter(row.owner for row in partition_by_owner(keys, ring).collect()) == owners
    found = with_move(keys, ring, after).where("before <> after").collect()
    assert Counter((row.before, row.after) for row in found) == moved
    assert owned.where(may_move(ring, after)).count() == sum(moved.values())


def logs(spark, folder):
    """With slices, and as if the history were long: the command audits without both."""
    history = history_of(spark.read.parquet(f"{folder}/events.parquet"))
    work = spark.read.parquet(f"{folder}/log.parquet")
    most, owner_at_time.MOST_IN_TABLES = owner_at_time.MOST_IN_TABLES, 0
    slices = work_slices(work, history, rows=1)
    assert slices is not None
    found = audit(work, history, slices=slices)
    owner_at_time.MOST_IN_TABLES = most
    (key,) = found.keys.collect()
    assert (key.key, key.rows, key.overrun, key.longest_gap) == ("k", 2, 1, 3.0)
    assert (key.periods, key.worked, key.unworked) == (1, 1, 0)
    assert found.rejected.collect() == []
    return found.findings.collect()


def simulated(spark):
    kinds = scenarios([3], [4])
    assert kinds == [Scenario(3, 4)]
    assert len(summarise(simulate(spark, kinds, rings=5)).collect()) == 1
    assert drawn_within(spark, kinds[0], peak=3.0, rings=5) == (5, 1.0)
    assert replicas_for(3, 2.0).replicas > 0


def files(spark, folder):
    """What renames directories of this machine is refused; the server's are not seen from here."""
    for refused in (
        lambda: compact(spark, f"{folder}/keys.parquet"),
        lambda: reassign(spark, f"{folder}/keys.parquet", RingFile(Ring({"a": [0]}))),
    ):
        with suppress(OutputRefused):
            refused()
            raise AssertionError
    with suppress(NoDataError):
        read_frame(spark, [f"{folder}/.keys.parquet"])
        raise AssertionError
    mixed = Path(folder) / "mixed"
    (mixed / "day=1").mkdir(parents=True)
    for place in (mixed, mixed / "day=1"):
        keep(place / "a.parquet", key=["a"])
    with suppress(ConfigError):
        read_frame(spark, [str(mixed)], "parquet")
        raise AssertionError
    assert read_frame(spark, [f"{mixed}/*"], "parquet").frame.count() == 2


def main(folder: str) -> None:
    spark = spark_session()
    assert is_connect(spark)
    used = {name for name in public.__all__ if name in globals()}
    assert used | {"Audit", "Plan"} == set(public.__all__), set(public.__all__) - used
    keys = spark.read.parquet(str(Path(folder) / "keys.parquet"))
    ring = read_ring(Path(folder) / "ring.json").ring
    # One whose table is cells alone, and one whose table has finer blocks.
    for each in (ring, random_ring(400, 32)):
        columns_and_sql(keys, each)
        tables(keys, each)
    frames(keys, ring)
    findings = logs(spark, folder)
    simulated(spark)
    files(spark, folder)
    remote = os.environ.pop("SPARK_REMOTE")
    spark.stop()
    engine_process.main("--remote", remote, folder)
    again = spark_session(remote=remote).read.parquet(f"{folder}/findings.parquet")
    assert again.collect() == findings


if __name__ == "__main__":
    main(*sys.argv[1:])
