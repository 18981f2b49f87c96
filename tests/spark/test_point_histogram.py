"""What a histogram of points answers is what the rows themselves answer."""

import re

import pytest
from pyspark.sql import functions as F  # noqa: N812

from hashring.core.ring import Ring
from hashring.errors import ColumnError, ConfigError, EmptyRingError
from hashring.ring_files import write_ring
from hashring.spark import (
    load,
    load_of_histogram,
    moves,
    moves_of_histogram,
    plan,
    plan_of_histogram,
    point_histogram,
    with_owner,
)
from tests.spark.conftest import rows
from tests.spark.test_jobs import run
from tests.spark.test_owner import random_ring

RING = random_ring(7, 5)
NEXT = RING.with_node("new", [3, 2**31 + 5])


@pytest.fixture(scope="module")
def keys(spark):
    """Keys with weights, of which some are none, and rows without a key."""
    return spark.range(3000).selectExpr(
        "if(id < 5, null, concat('k', id)) AS key", "if(id % 50 = 0, -1D, id / 7) AS w"
    )


def told(df, *columns):
    """Rows by name, with sums of weights that do not depend on the order of the rows."""
    return named(df.collect(), *columns)


def named(found, *columns):
    """The same of rows that were collected."""
    return sorted(((*(row[n] for n in columns), round(row.weight, 6)) for row in found), key=str)


@pytest.fixture(scope="module")
def of_rows(spark, keys):
    """What the rows themselves answer, collected once: without a weight, and weighed by w."""
    return {
        weight: (load(keys, RING, weight=weight).collect(),
                 moves(keys, RING, NEXT, weight=weight).collect())
        for weight in (None, "w")
    }  # fmt: skip


@pytest.mark.parametrize(
    ("buckets", "with_point"),
    [
        # More and very many buckets stay, with and without a column of points.
        pytest.param(1, False, marks=pytest.mark.long),
        (2**6, True),
        (2**16, False),
        pytest.param(1, True, marks=pytest.mark.long),
        pytest.param(2**6, False, marks=pytest.mark.long),
        pytest.param(2**16, True, marks=pytest.mark.long),
    ],
)
def test_the_load_is_that_of_the_rows(keys, of_rows, buckets, with_point):
    histogram = point_histogram(keys, weight="w", buckets=buckets)
    again = with_owner(keys, RING) if with_point else keys
    found = load_of_histogram(histogram, RING, again, weight="w").collect()
    columns = ("node", "keys", "bad_weights", "fair_share", "ring_share")
    assert named(found, *columns) == named(of_rows["w"][0], *columns)
    assert not any(row.estimated for row in found)
    assert sum(row.share for row in found if row.share is not None) == pytest.approx(1, abs=1e-9)


@pytest.mark.parametrize(
    "sizes",
    [
        pytest.param((2**6, 2**6), marks=pytest.mark.long),
        pytest.param((2**6, 2**12), marks=pytest.mark.long),
        (2**12, 1),
    ],
)
def test_histograms_put_together_count_each_row_once(keys, of_rows, sizes):
    halves = F.crc32("key") % 2 == 0, (F.crc32("key") % 2 == 1) | F.col("key").isNull()
    first, second = (
        point_histogram(keys.where(half), weight="w", buckets=buckets)
        for half, buckets in zip(halves, sizes, strict=True)
    )
    histogram = first.unionAll(second)
    loads, moved = of_rows["w"]
    found = load_of_histogram(histogram, RING, keys, weight="w")
    assert told(found, "node", "keys", "bad_weights") == named(loads, "node", "keys", "bad_weights")
    found = moves_of_histogram(histogram, RING, NEXT, keys, weight="w")
    assert told(found, "before", "after", "keys") == named(moved, "before", "after", "keys")


OTHERS = {
    "load": load_of_histogram,
    "moves": lambda histogram, ring, given: moves_of_histogram(histogram, ring, NEXT, given),
    "plan": lambda histogram, ring, given: plan_of_histogram(
        histogram, ring, rows=given, join=["n"]
    ),
}


@pytest.mark.parametrize(
    ("answer", "with_point"),
    [
        # Rows with their points stay, and without.
        ("load", True),
        ("moves", False),
        pytest.param("plan", True, marks=pytest.mark.long),
        pytest.param("load", False, marks=pytest.mark.long),
        pytest.param("moves", True, marks=pytest.mark.long),
        pytest.param("plan", False, marks=pytest.mark.long),
    ],
)
def test_a_histogram_of_other_rows_is_told(keys, caplog, answer, with_point):
    again = with_owner(keys, RING) if with_point else keys
    histogram = point_histogram(keys, buckets=2**6)
    OTHERS[answer](histogram, RING, again)
    assert caplog.messages == []
    OTHERS[answer](histogram, RING, again.where("key <> 'k17' OR key IS NULL").union(again))
    (message,) = caplog.messages
    assert re.fullmatch(
        r"the histogram has [\d,]+ rows in the buckets that were counted again, and the input "
        r"[\d,]+ rows: the histogram is of an earlier time, or of another input",
        message,
    )


JAM = random_ring(7, 5, algorithm="jamcrc")


@pytest.fixture(scope="module")
def of_jam(keys):
    """What the rows answer on a ring of another hash algorithm."""
    moved = moves(keys, JAM, JAM.with_node("new", [3]))
    return load(keys, JAM).collect(), moved.collect()


@pytest.mark.parametrize(
    "other",
    [
        "by another hash algorithm",
        "of another key",
        *(
            pytest.param(other, marks=pytest.mark.long)
            for other in ("text, as in a CSV", "no point of a ring", "of an older version")
        ),
    ],
)
def test_a_column_point_of_another_origin_is_not_taken_for_that_of_the_key(keys, of_jam, other):
    histogram = point_histogram(keys, buckets=16, hash_algorithm="jamcrc")
    known = with_owner(keys, JAM)
    again = {
        "by another hash algorithm": lambda: with_owner(keys, RING),
        "of another key": lambda: with_owner(
            keys.withColumn("other", F.reverse("key")), JAM, "other"
        ),
        "text, as in a CSV": lambda: known.withColumn("point", F.col("point").cast("string")),
        "no point of a ring": lambda: keys.withColumn("point", F.lit(5.5)),
        "of an older version": lambda: known.withColumn("point", F.col("point") + 0),
    }[other]()
    loads, moved = of_jam
    found = load_of_histogram(histogram, JAM, again)
    assert told(found, "node", "keys") == named(loads, "node", "keys")
    found = moves_of_histogram(histogram, JAM, JAM.with_node("new", [3]), again)
    assert told(found, "before", "after", "keys") == named(moved, "before", "after", "keys")


def test_the_points_in_files_of_assign_are_taken_as_they_are(spark, keys, of_rows, tmp_path):
    keys.write.parquet(str(tmp_path / "keys.parquet"))
    write_ring(RING, tmp_path / "ring.json")
    run("assign", "--input", tmp_path / "keys.parquet", "--ring-file", tmp_path / "ring.json",
        "--output", tmp_path / "owned.parquet")  # fmt: skip
    owned = spark.read.parquet(str(tmp_path / "owned.parquet"))
    # The keys themselves are not looked at.
    moved_keys = owned.withColumn("key", F.concat("key", F.lit("!")))
    histogram = point_histogram(keys, buckets=1)
    found = load_of_histogram(histogram, RING, moved_keys)
    assert told(found, "node", "keys") == named(of_rows[None][0], "node", "keys")


@pytest.mark.parametrize("buckets", [1, 2**16])
def test_the_moves_are_those_of_the_rows(keys, of_rows, buckets):
    histogram = point_histogram(keys, buckets=buckets)
    found = moves_of_histogram(histogram, RING, NEXT, keys).collect()
    columns = ("before", "after", "keys")
    assert [(*(row[n] for n in columns), row.weight) for row in found] == [
        (*(row[n] for n in columns), row.weight) for row in of_rows[None][1]
    ]
    assert not any(row.estimated for row in found)


def test_a_plan_is_that_of_the_rows(spark, keys):
    change = {"join": ["new"], "leave": ["n2"], "weights": {"n1": 2}, "weight": "w"}
    histogram = point_histogram(keys, weight="w")
    exact = plan(keys, RING, **change)
    found = plan_of_histogram(histogram, RING, keys, **change)
    names = ("keys", "moved_keys", "rows_without_key", "bad_weights", "fair_share_moved")
    assert [getattr(found, name) for name in names] == [getattr(exact, name) for name in names]
    assert found.estimated == 0
    columns = ("before", "after", "keys")
    assert rows(found.moves.select(*columns)) == rows(exact.moves.select(*columns))
    counted = ("node", "keys_before", "keys_after", "gained_keys", "lost_keys")
    assert rows(found.nodes.select(*counted)) == rows(exact.nodes.select(*counted))


def test_a_plan_without_the_rows_is_an_estimate(spark, keys):
    found = plan_of_histogram(point_histogram(keys, buckets=2**6), RING, join=["new"])
    assert found.keys == 2995
    assert 0 < found.estimated <= found.keys


def test_without_the_rows_a_bucket_is_shared_out_by_its_points(spark):
    ring = Ring({"a": [0], "b": [2**30]})
    histogram = point_histogram(spark.range(1001).selectExpr("'hello' AS key"), buckets=1)
    found = load_of_histogram(histogram, ring)
    assert rows(found.select("node", "keys", "weight", "estimated")) == [
        ("a", 250, 250.25, 250),
        ("b", 751, 750.75, 751),
    ]


def test_only_the_buckets_where_the_owner_changes_are_looked_at(keys, of_rows):
    changing = [point >> 16 for point, _ in RING.replicas()]
    few = with_owner(keys, RING).where(F.shiftright("point", 16).isin(changing))
    assert few.count() < 50
    found = load_of_histogram(point_histogram(keys), RING, few)
    assert told(found, "node", "keys") == named(of_rows[None][0], "node", "keys")


def test_the_commands_make_a_histogram_and_answer_by_it(spark, keys, tmp_path):
    keys.write.parquet(str(tmp_path / "keys.parquet"))
    write_ring(RING, tmp_path / "ring.json")
    files = ("--input", tmp_path / "keys.parquet", "--weight", "w")
    told = run("histogram", *files, "--output", tmp_path / "h.parquet", "--json")
    assert (told["rows"], told["rows without a key"], told["unusable weights"]) == (3000, 5, 60)
    ring = ("--ring-file", tmp_path / "ring.json", "--json")
    plain = run("load", *files, *ring)
    by = run("load", *files, *ring, "--histogram", tmp_path / "h.parquet")
    loads = {r["node"]: r["keys"] for r in by["busiest nodes"]}
    assert loads == {r["node"]: r["keys"] for r in plain["busiest nodes"]}
    assert "hottest keys" not in by
    assert "bad records left out" in plain
    assert "bad records left out" not in by
    change = ("--join", "host", "--seed", "1")
    moved = run("plan", *files, *ring, *change)
    again = run("plan", *files, *ring, *change, "--histogram", tmp_path / "h.parquet")
    names = ("rows", "rows that move", "unusable weights", "nodes by rows that they gain or lose")
    assert [again[name] for name in names] == [moved[name] for name in names]
    assert "bad records left out" in moved
    assert "bad records left out" not in again


def test_a_histogram_of_another_hash_algorithm_is_refused(spark, keys, tmp_path):
    ring = Ring({node: RING.points_of(node) for node in RING.nodes}, "jamcrc")
    point_histogram(keys).write.parquet(str(tmp_path / "h.parquet"))
    kept = spark.read.parquet(str(tmp_path / "h.parquet"))
    text = "histogram='crc-32': the ring hashes with jamcrc: make the histogram by that"
    with pytest.raises(ConfigError, match=text):
        load_of_histogram(kept, ring)
    with pytest.raises(ConfigError, match=text):
        moves_of_histogram(kept, ring, ring.with_node("new", [3]), keys)
    with pytest.raises(ConfigError, match=text):
        plan_of_histogram(kept.unionAll(kept), ring, join=["new"])
    assert load_of_histogram(point_histogram(keys, hash_algorithm="crc32"), RING).count() == 8
    again = point_histogram(keys, hash_algorithm="jamcrc")
    found = load_of_histogram(again, ring, keys)
    assert told(found, "node", "keys") == told(load(keys, ring), "node", "keys")


ANSWERS = {
    "load": load_of_histogram,
    "moves": lambda histogram, ring, *more, **named: moves_of_histogram(
        histogram, ring, NEXT, *more, **named
    ),
    "plan": lambda *more, **named: plan_of_histogram(*more, **named, join=["new"]),
}


@pytest.fixture(scope="module")
def kept(spark, keys, tmp_path_factory):
    """Histograms in files: without weights, and with those of w."""
    folder = tmp_path_factory.mktemp("kept")
    for name, weight in (("plain", None), ("weighed", "w")):
        point_histogram(keys, weight=weight).write.parquet(str(folder / name))
    return [spark.read.parquet(str(folder / name)) for name in ("plain", "weighed")]


@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS)
def test_a_histogram_of_another_weight_or_key_is_refused(keys, kept, answer):
    keys = keys.withColumn("other", F.reverse("key"))
    plain, weighed = kept
    text = "weight='w': the histogram has no weights: ask by the same, or make another"
    with pytest.raises(ConfigError, match=text):
        answer(plain, RING, rows=keys, weight="w")
    with pytest.raises(ConfigError, match=text):
        answer(plain, RING, weight="w")
    with pytest.raises(
        ConfigError, match="weight=None: the histogram has the weights of column 'w'"
    ):
        answer(weighed, RING, rows=keys)
    with pytest.raises(
        ConfigError, match="key='other': the histogram has the keys of column 'key'"
    ):
        answer(plain, RING, rows=keys, key="other")
    # Nothing is added to its own counts.
    answer(weighed, RING)


def test_a_histogram_of_an_older_version_is_taken_as_it_is(spark, keys):
    histogram = point_histogram(keys).withColumn("start", F.col("start") + 0)
    assert histogram.schema["start"].metadata == {}
    load_of_histogram(histogram, RING, keys, weight="w")


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("start", "-1024"),
        ("end", "4294967296 + 1024"),
        ("end", "start"),
        ("end", "start + 1000"),
        ("start", "512"),
        ("end", "bigint(null)"),
        ("keys", "-1"),
        ("weight", "double('NaN')"),
        ("bad_weights", "bigint(null)"),
    ],
)
def test_a_row_that_is_no_bucket_is_refused(spark, column, value):
    bucket = {"start": "1024", "end": "start + 1024", "keys": "1", "weight": "1", "bad_weights": 0}
    made = ", ".join(f"{text} AS {name}" for name, text in {**bucket, column: value}.items())
    with pytest.raises(ConfigError, match=r"histogram={'start': .*}: is no bucket of points"):
        load_of_histogram(spark.sql(f"SELECT {made}"), RING)


def test_what_is_no_histogram_or_ring_is_refused(spark, keys):
    histogram = point_histogram(keys)
    with pytest.raises(EmptyRingError):
        load_of_histogram(histogram, Ring())
    with pytest.raises(EmptyRingError):
        moves_of_histogram(histogram, RING, Ring())
    with pytest.raises(ColumnError, match="'start' is missing: make the histogram with"):
        load_of_histogram(keys, RING)
    other = histogram.withColumn("keys", F.col("keys").cast("string"))
    with pytest.raises(ColumnError, match="'keys' is string: make the histogram with"):
        load_of_histogram(other, RING)
    with pytest.raises(ConfigError, match="buckets=3: give a power of two, up to 4,194,304"):
        point_histogram(keys, buckets=3)
