"""By a histogram alone, an answer is exact where no bucket is cut, and else within its bounds."""

import random
import shutil

import numpy as np
import pytest
from pyspark.sql import functions as F  # noqa: N812

from hashring.core.hashing import RING_SIZE
from hashring.core.ring import Ring
from hashring.errors import ConfigError, NoDataError
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
from hashring.spark.analysis.cut_buckets import shared_out
from hashring.spark.jobs import load_job, plan_job
from tests.spark.test_jobs import refused, run
from tests.spark.test_owner import random_ring

RING = random_ring(7, 5)
JOINED = RING.with_node("new", [3, 2**31 + 5])
EVEN = Ring({"a": [0, 2**29], "b": [2**30, 3 * 2**30]})
"""Its points are at the bounds of eight buckets."""


@pytest.fixture(scope="module")
def keys(spark):
    return spark.range(3000).selectExpr(
        "if(id < 5, null, concat('k', id)) AS key", "if(id % 50 = 0, -1D, id / 7) AS w", "id"
    )


@pytest.fixture(scope="module")
def place(spark, keys, tmp_path_factory):
    """Keys, histograms of them and a ring in files."""
    folder = tmp_path_factory.mktemp("histograms")
    keys.coalesce(1).write.parquet(str(folder / "keys.parquet"))
    for name, weight in (("plain", None), ("weighed", "w")):
        made = point_histogram(keys, weight=weight, buckets=2**6)
        made.coalesce(1).write.parquet(str(folder / f"{name}.parquet"))
    write_ring(RING, folder / "ring.json")
    return folder


def drawn(rng, buckets, codes):
    """Points with weights in buckets, and ranges with codes."""
    points = np.array([rng.randrange(RING_SIZE) for _ in range(200)])
    weights = np.array([rng.choice([0.0, 1.5, 3.25]) for _ in range(200)])
    starts = np.array(sorted({0, *(rng.randrange(RING_SIZE) for _ in range(12))}))
    which = np.array([rng.randrange(codes) for _ in starts])
    width = RING_SIZE // buckets
    low = np.arange(buckets) * width
    at = points // width
    keys = np.bincount(at, minlength=buckets)
    heavy = np.bincount(at, weights=weights, minlength=buckets)
    return points, weights, starts, which, (low, low + width, keys, heavy, 0 * keys)


@pytest.mark.parametrize("buckets", [1, 4, 32])
def test_what_groups_of_codes_have_is_within_the_errors(buckets):
    rng = random.Random(buckets)
    for _ in range(30):
        points, weights, starts, which, held = drawn(rng, buckets, codes=5)
        parts = shared_out(*held, starts, which)
        groups = np.array([rng.randrange(-1, 3) for _ in range(5)])
        keys_error, weight_error = parts.errors(groups, 3)
        true = groups[which[np.searchsorted(starts, points, side="right") - 1]]
        for group in range(3):
            mine = groups[parts.code] == group
            off = abs(int(parts.keys[mine].sum()) - int((true == group).sum()))
            assert off <= keys_error[group]
            off = abs(parts.weight[mine].sum() - weights[true == group].sum())
            assert off <= weight_error[group] + 1e-9


def test_the_error_is_at_most_the_rows_of_the_buckets_that_are_cut():
    none = np.zeros(1, np.int64)
    starts, codes = np.array([0, RING_SIZE // 4]), np.array([0, 1])
    parts = shared_out(none, none + RING_SIZE, none + 100, none + 100.0, none, starts, codes)
    assert [errors.tolist() for errors in parts.errors(np.arange(2), 2)] == [[75, 75], [75.0, 75.0]]
    # Of a group that has the whole bucket, nothing is uncertain.
    assert [errors.tolist() for errors in parts.errors(none.repeat(2), 1)] == [[0], [0.0]]


def test_a_load_is_exact_where_no_bucket_is_cut(spark, keys):
    found = load_of_histogram(point_histogram(keys, buckets=8), EVEN).collect()
    assert {r.node: r["keys"] for r in found} == {
        r.node: r["keys"] for r in load(keys, EVEN).collect()
    }
    assert {(r.estimated, r.keys_error, r.weight_error) for r in found} == {(0, 0, 0.0)}


def test_a_bound_between_two_ranges_of_one_node_cuts_no_bucket(keys):
    (found,) = load_of_histogram(
        point_histogram(keys.where("key IS NOT NULL"), buckets=1), Ring({"a": [5, 77]})
    ).collect()
    assert (found["keys"], found.estimated, found.keys_error) == (2995, 0, 0)


def test_a_load_is_within_its_errors(keys):
    found = load_of_histogram(point_histogram(keys, weight="w", buckets=2**6), RING).collect()
    true = {r.node: r for r in load(keys, RING, weight="w").collect()}
    for row in found:
        assert abs(row["keys"] - true[row.node]["keys"]) <= row.keys_error
        assert abs(row.weight - true[row.node].weight) <= row.weight_error + 1e-6
    assert any(row.keys_error for row in found)


def test_moves_are_within_their_errors(keys):
    found = moves_of_histogram(point_histogram(keys, buckets=2**6), RING, JOINED).collect()
    true = {(r.before, r.after): r["keys"] for r in moves(keys, RING, JOINED).collect()}
    for row in found:
        assert abs(row["keys"] - true.get((row.before, row.after), 0)) <= row.keys_error
    assert any(row.keys_error for row in found)


@pytest.mark.parametrize("few", [False, True])
def test_a_plan_is_within_its_errors(keys, few):
    """Also where the rows that many pairs of nodes get are so few that they round to none."""
    rows = keys.where("id % 300 = 7") if few else keys
    histogram = point_histogram(rows, weight="w", buckets=2 if few else 2**6)
    found = plan_of_histogram(histogram, RING, join=["new"], weight="w")
    true = plan(rows, RING, join=["new"], weight="w")
    assert 0 < found.moved_keys_error < found.keys
    assert abs(found.moved_keys - true.moved_keys) <= found.moved_keys_error
    assert abs(found.moved_weight - true.moved_weight) <= found.moved_weight_error + 1e-6
    pairs = [(found.nodes.collect(), true.nodes.collect())]
    assert found.weight == pytest.approx(true.weight)
    names = ("keys_before", "keys_after", "gained_keys", "lost_keys")
    for mine, its in zip(*pairs[0], strict=True):
        assert all(abs(mine[name] - its[name]) <= found.keys_error for name in names)


def test_every_move_that_there_may_be_is_told(keys):
    """Each pair of which the histogram cannot say that nothing moves, also without any weight."""
    few = keys.where("id % 300 = 7").selectExpr("key", "0D AS w")
    found = moves_of_histogram(point_histogram(few, weight="w", buckets=2), RING, JOINED, None,
                               weight="w").collect()  # fmt: skip
    true = {(row.before, row.after) for row in moves(keys, RING, JOINED).collect()}
    assert {(row.before, row.after) for row in found} >= true
    assert any(row["keys"] == 0 < row.keys_error for row in found)


def test_with_the_rows_nothing_is_off(keys):
    histogram = point_histogram(keys, buckets=2**6)
    found = load_of_histogram(histogram, RING, keys).collect()
    assert {(r.estimated, r.keys_error, r.weight_error) for r in found} == {(0, 0, 0.0)}
    told = plan_of_histogram(histogram, RING, keys, join=["new"])
    assert (told.moved_keys_error, told.moved_weight_error, told.keys_error) == (0, 0.0, 0)


def test_load_answers_by_the_histogram_alone_and_says_how_far_off_it_may_be(place):
    ring = ("--ring-file", place / "ring.json", "--json")
    told = run("load", "--histogram", place / "plain.parquet", *ring)
    true = run("load", "--input", place / "keys.parquet", "--hottest", "0", *ring)
    assert (told["rows"], told["rows without a key"]) == (3000, 5)
    assert (told["key column"], told["weight column"]) == ("key", None)
    assert 0 < told["rows shared out by points"] < 2995
    loads = {r["node"]: r for r in true["busiest nodes"]}
    for row in told["busiest nodes"]:
        assert abs(row["keys"] - loads[row["node"]]["keys"]) <= row["± keys"]
        assert abs(row["share"] - loads[row["node"]]["share"]) <= row["± share"]
    most = max(r["± keys"] for r in told["busiest nodes"])
    assert told["keys of a node are off by at most"] == most > 0
    bounds = (told[f"peak to fair share, at {which}"] for which in ("least", "most"))
    low, high = bounds
    assert low <= true["peak to fair share"] <= high
    assert "share of a node is off by at most" not in true
    assert "± keys" not in true["busiest nodes"][0]


def test_load_with_the_rows_is_exact_and_says_nothing_of_bounds(place):
    ring = ("--ring-file", place / "ring.json", "--json")
    rows = ("--input", place / "keys.parquet")
    told = run("load", *rows, "--histogram", place / "plain.parquet", *ring)
    true = run("load", *rows, "--hottest", "0", *ring)
    assert told["busiest nodes"] == true["busiest nodes"]
    assert "rows shared out by points" not in told


def test_the_load_by_a_weighed_histogram_alone_names_its_weight(place):
    told = run("load", "--histogram", place / "weighed.parquet", "--ring-file", place / "ring.json",
               "--report", place / "load.html", "--json")  # fmt: skip
    assert told["weight column"] == "w"
    assert told["unusable weights"] == 60
    assert "± share" in (place / "load.html").read_text(encoding="utf-8")


def test_plan_answers_by_the_histogram_alone_and_says_how_far_off_it_may_be(place):
    asked = ("--join", "host", "--seed", "1", "--ring-file", place / "ring.json", "--json")
    told = run("plan", "--histogram", place / "plain.parquet", *asked)
    true = run("plan", "--input", place / "keys.parquet", *asked)
    off = told["rows that move are off by at most"]
    assert 0 < abs(told["rows that move"] - true["rows that move"]) <= off
    most = told["any number of rows below is off by at most"]
    lists = [{r["node"]: r for r in answer["nodes by rows that they gain or lose"]}
             for answer in (told, true)]  # fmt: skip
    for node, row in lists[0].items():
        for name in ("rows before", "rows after", "gained", "lost"):
            assert abs(row[name] - lists[1][node][name]) <= most
    assert told["part of the weight that moves is off by at most"].endswith("%")
    assert "rows that move are off by at most" not in true


@pytest.mark.parametrize(
    "more", [("--format", "csv"), ("--schema", "key string"), ("--input-option", "a=b")]
)
def test_how_to_read_rows_is_refused_without_rows(place, more):
    given = ("--histogram", place / "plain.parquet", "--ring-file", place / "ring.json")
    assert "or --histogram without --format, --schema" in refused("load", *given, *more)


def test_a_histogram_that_counts_no_key_is_refused(spark, place):
    empty = point_histogram(spark.sql("SELECT string(null) AS key"))
    empty.coalesce(1).write.parquet(str(place / "none.parquet"))
    given = ("--histogram", place / "none.parquet", "--ring-file", place / "ring.json")
    rows = ("--input", place / "keys.parquet")
    for asked in (("load",), ("plan", "--join", "host")):
        for more in ((), rows):
            with pytest.raises(NoDataError, match="counts no row that has a key"):
                run(*asked, *given, *more)


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"hash_algorithm": "jamcrc"}, r"hash_algorithm=(crc-32|jamcrc)"),
        ({"key": "other"}, r"key=(key|other)"),
        ({"weight": "w"}, r"weight=(None|w)"),
    ],
)
def test_histograms_that_a_pattern_names_and_that_were_not_made_alike_are_refused(
    keys, place, tmp_path, other, said
):
    both = keys.withColumn("other", F.concat(F.lit("o"), "key"))
    for name, how in (("a", {}), ("b", other)):
        made = point_histogram(both, **how, buckets=8)
        made.coalesce(1).write.parquet(str(tmp_path / f"{name}.parquet"))
    given = ("--histogram", tmp_path / "?.parquet", "--ring-file", place / "ring.json")
    made_by = f"points are made by {said} in .*/[ab].parquet, and by {said} in .*/[ab].parquet: "
    for asked in (("load",), ("plan", "--join", "host")):
        with pytest.raises(ConfigError, match=made_by):
            run(*asked, *given)


def test_rows_with_points_of_several_keys_are_refused_beside_a_histogram(keys, place, tmp_path):
    for name in ("key", "other"):
        owned = with_owner(keys.withColumn("other", F.concat(F.lit("o"), "key")), RING, name)
        owned.write.partitionBy("owner").parquet(str(tmp_path / f"{name}.parquet"))
    rows = ("--input", tmp_path / "*/*/*.parquet")
    with pytest.raises(ConfigError, match=r"^input=.* made by key=(key|other) in .*\.parquet, and"):
        run("load", *rows, "--histogram", place / "plain.parquet", "--ring-file",
            place / "ring.json")  # fmt: skip


def test_histograms_in_directories_of_a_column_and_not_made_alike_are_refused(
    keys, place, tmp_path
):
    for day, key in ((1, "key"), (2, "id")):
        made = point_histogram(keys, key, buckets=8)
        made.coalesce(1).write.parquet(str(tmp_path / f"all.parquet/day={day}"))
    said = r"made by key=(key|id) in .*/day=[12], and by key=(key|id) in .*/day=[12]: "
    with pytest.raises(ConfigError, match=said):
        run("load", "--histogram", tmp_path / "all.parquet", "--ring-file", place / "ring.json")


def test_histograms_that_a_pattern_names_and_that_were_made_alike_count_together(place, tmp_path):
    for name in "ab":
        shutil.copytree(place / "plain.parquet", tmp_path / f"[{name}] ü%.parquet")
    told = run("load", "--histogram", tmp_path / "*.parquet", "--ring-file", place / "ring.json",
               "--json")  # fmt: skip
    assert told["rows"] == 6000


def test_a_job_without_rows_and_without_a_histogram_is_refused():
    with pytest.raises(ConfigError, match="give rows, a histogram of their points, or both"):
        load_job(None, RING)
    with pytest.raises(ConfigError, match="give rows, a histogram of their points, or both"):
        plan_job(None, RING, join=["host"])
