"""Owners, loads and moves are those of the ring itself."""

import random
import zlib
from collections import Counter

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.errors import AnalysisException
from pyspark.sql import functions as F  # noqa: N812

from hashring.core.hashing import HashAlgorithm, hash_algorithm
from hashring.core.ring import Ring
from hashring.core.ring_history import RingHistory
from hashring.errors import ColumnError, ConfigError, EmptyRingError
from hashring.spark import (
    hot_keys,
    load,
    load_of_histogram,
    moves,
    moves_of_histogram,
    owner,
    partition_by_owner,
    point,
    point_histogram,
    register_functions,
    with_move,
    with_owner,
)
from hashring.spark.engine.arrays_to_spark import one_row
from hashring.spark.engine.older_pyspark import by_partition_number
from hashring.spark.lookup.key_points import NATIVE_ALGORITHMS
from hashring.spark.lookup.ring_columns import ring_columns, ring_table
from hashring.spark.periods.owner_at_time import as_of
from tests.spark.conftest import in_a_thread, rows


def random_ring(nodes, replicas, seed=1, algorithm="crc-32"):
    rng = random.Random(seed)
    points = {f"n{i}": [rng.randrange(2**32) for _ in range(replicas)] for i in range(nodes)}
    return Ring(points, algorithm)


def keys_frame(spark, keys, kind=None):
    return spark.createDataFrame(pa.table({"key": pa.array(keys, kind)}))


# --- with_owner -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("nodes", "replicas", "keys"),
    [
        (3, 2, 10_000),
        (100, 16, 100_000),
        pytest.param(100, 16, 1_000_000, marks=pytest.mark.long),
        pytest.param(1, 1, 1000, marks=pytest.mark.long),
        pytest.param(400, 64, 100_000, marks=pytest.mark.long),
    ],
)
def test_every_one_of_a_million_keys_has_the_owner_that_the_ring_says(spark, nodes, replicas, keys):
    ring = random_ring(nodes, replicas)
    df = spark.range(keys).select(F.format_string("user:%d", "id").alias("key"))
    found = with_owner(df, ring).toPandas()
    point = hash_algorithm("crc-32").point
    assert [point(key) for key in found.key[:1000]] == list(found.point[:1000])
    owners = {int(p): ring.owner_of_point(int(p)) for p in found.point.unique()}
    assert (found.point.map(owners) == found.owner).all()


@given(
    st.dictionaries(
        st.text(min_size=1, max_size=5).filter(lambda s: s.isprintable()),
        st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=8),
        min_size=1,
        max_size=5,
    ),
    st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1), min_size=1),
)
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_any_ring_and_any_text_agree_with_the_ring(spark, points, keys):
    ring = Ring(points)
    found = with_owner(keys_frame(spark, keys), ring)
    assert {r.key: r.owner for r in found.collect()} == {key: ring.owner(key) for key in keys}


def test_a_key_on_a_boundary_belongs_to_the_range_that_begins_there(spark):
    point = hash_algorithm("crc-32").point("hello")
    ring = Ring({"below": [0], "at": [point], "above": [point + 1]})
    assert rows(with_owner(keys_frame(spark, ["hello"]), ring)) == [("hello", 907060870, "at")]


def test_binary_keys_are_hashed_as_they_are(spark, ring):
    keys = [b"\xff\x00", "héllo".encode(), b"a" * 1000]
    found = with_owner(keys_frame(spark, keys, pa.binary()), ring)
    assert {bytes(r.key): r.owner for r in found.collect()} == {k: ring.owner(k) for k in keys}


@pytest.mark.parametrize("kind", [pa.int8(), pa.int16(), pa.int32(), pa.int64()])
def test_integers_are_hashed_as_their_digits(spark, ring, kind):
    keys = [0, -1, 7, 127, -128]
    found = with_owner(keys_frame(spark, keys, kind), ring)
    assert {r.key: r.owner for r in found.collect()} == {k: ring.owner(str(k)) for k in keys}


def test_null_and_empty_keys_have_no_point_and_no_owner(spark, ring):
    found = with_owner(keys_frame(spark, ["", None, "x"]), ring)
    assert rows(found.where("key is null or key = ''").select("point", "owner")) == [
        (None, None),
        (None, None),
    ]


@pytest.mark.parametrize("algorithm", ["jamcrc", "crc-32c", "posix", "xxh32"])
def test_other_hash_algorithms_agree_with_the_ring(spark, algorithm, caplog):
    ring = random_ring(5, 8, algorithm=algorithm)
    keys = [f"k{i}" for i in range(300)] + ["ключ", None, ""]
    found = with_owner(keys_frame(spark, keys), ring).collect()
    assert {r.key: r.owner for r in found} == {k: ring.owner(k) if k else None for k in keys}
    said = [r.message for r in caplog.records if "computed in Python" in r.message]
    assert bool(said) is (algorithm not in NATIVE_ALGORITHMS)


@pytest.mark.parametrize("algorithm", ["crc-32", "jamcrc", "xxh32"])
def test_a_string_that_is_no_utf_8_is_hashed_by_its_bytes(spark, algorithm):
    ring = random_ring(5, 8, algorithm=algorithm)
    keys = [bytes([255, 254, number]) for number in range(20)]
    df = keys_frame(spark, keys, pa.binary()).selectExpr("key as bytes", "cast(key as string) key")
    for r in with_owner(df, ring).collect():
        assert r.owner == ring.owner(r.bytes)


@pytest.mark.parametrize(
    ("expression", "name"),
    [
        ("cast(id as double)", "double"),
        ("cast(id as decimal(10,2))", "decimal(10,2)"),
        ("date'2024-01-01'", "date"),
        ("timestamp'2024-01-01 00:00:00'", "timestamp"),
        ("id > 1", "boolean"),
        ("array(id)", "array<bigint>"),
        ("struct(id)", "struct<id:bigint>"),
    ],
)
def test_a_type_without_one_text_form_is_refused_by_name(spark, ring, expression, name):
    with pytest.raises(ColumnError) as caught:
        with_owner(spark.range(3).selectExpr(f"{expression} as key"), ring)
    assert caught.value.column == "key"
    assert f"is {name}; a key is string, binary or an integer" in str(caught.value)


def test_a_key_that_spark_has_padded_is_refused_with_a_remedy(spark, ring):
    spark.sql("create table padded (key char(5)) using parquet")
    try:
        spark.sql("insert into padded values ('k1')")
        padded = spark.table("padded")
        for asked in (with_owner, load, hot_keys):
            with pytest.raises(ColumnError, match=r"'key' is char\(5\).*: give rtrim\(key\) under"):
                asked(padded, ring)
        trimmed = with_owner(padded.withColumn("key", F.rtrim("key")), ring)
        assert rows(trimmed.select("key", "owner")) == [("k1", ring.owner("k1"))]
    finally:
        spark.sql("drop table padded")


def test_a_padded_key_is_refused_after_one_of_its_name_that_is_not(spark, ring):
    plain = spark.createDataFrame([("k1",)], "key string")
    told = {"__CHAR_VARCHAR_TYPE_STRING": "char(5)"}
    load(plain, ring)
    with pytest.raises(ColumnError, match=r"'key' is char\(5\)"):
        load(plain.select(F.col("key").alias("key", metadata=told)), ring)


def test_a_missing_column_is_named_with_those_that_are_there(spark, ring):
    with pytest.raises(ColumnError, match=r"'account' is missing; the columns are id"):
        with_owner(spark.range(1), ring, "account")


def test_columns_that_would_be_hidden_are_refused(spark, ring):
    df = spark.range(1).selectExpr("id as key", "id as Owner")
    with pytest.raises(ColumnError, match="'owner' is there already"):
        with_owner(df, ring)


@pytest.mark.parametrize("ask", [with_owner, load, partition_by_owner])
def test_names_of_the_columns_of_the_lookup_are_refused(spark, ring, ask):
    df = spark.range(1).selectExpr("id as key", "id as __Hashring_word0")
    with pytest.raises(ColumnError, match="'__Hashring_word0' begins with __hashring"):
        ask(df, ring)


def test_an_ambiguous_key_column_is_refused(spark, ring):
    df = spark.range(1).selectExpr("id as key", "id as key")
    with pytest.raises(ColumnError, match="more than once"):
        with_owner(df, ring)


def test_an_empty_ring_owns_nothing(spark):
    with pytest.raises(EmptyRingError):
        with_owner(spark.range(1), Ring(), "id")


@pytest.mark.parametrize("name", ["crc-32", "CRC32", "own"])
@pytest.mark.parametrize(
    "ask",
    [
        lambda df, ring: owner(ring, "key"),
        with_owner,
        lambda df, ring: with_move(df, ring, ring),
        load,
        lambda df, ring: moves(df, ring, ring),
        hot_keys,
        lambda df, ring: load_of_histogram(point_histogram(df), ring),
        lambda df, ring: moves_of_histogram(point_histogram(df), ring, ring),
        lambda df, ring: register_functions(df.sparkSession, ring, "own"),
        lambda df, ring: as_of(RingHistory(ring, 1, 0, ())),
    ],
)
def test_a_hash_function_of_the_users_own_is_not_taken_for_another_of_its_name(spark, ask, name):
    ring = Ring({"a": [0], "b": [2**31]}, HashAlgorithm(name, zlib.adler32))
    with pytest.raises(ConfigError, match=f"hash_algorithm='{name}': is a function of your own"):
        ask(keys_frame(spark, ["hello"]), ring)


def test_an_empty_frame_gives_an_empty_frame_with_the_columns(spark, ring):
    found = with_owner(spark.range(0), ring, "id")
    assert found.columns == ["id", "point", "owner"]
    assert rows(found) == []


def test_a_column_name_with_dots_and_backticks_is_just_a_name(spark, ring):
    df = spark.range(1).withColumnRenamed("id", "a.b`c")
    assert with_owner(df, ring, "a.b`c").collect()[0].owner == ring.owner("0")


def test_a_collated_key_has_the_owner_of_its_bytes(spark, ring):
    df = spark.sql("select collate(k, 'UTF8_LCASE') as key from values ('Ab'), ('aB') as t(k)")
    found = {r.key: r.owner for r in with_owner(df, ring).collect()}
    assert found == {"Ab": ring.owner("Ab"), "aB": ring.owner("aB")}


def plan_of(df, capsys):
    """The plan that Spark would run, as text."""
    capsys.readouterr()
    df.explain()
    return capsys.readouterr().out


def test_the_table_travels_with_no_row(spark, ring, capsys):
    # In a column of a joined row it would be copied with each row of a frame of 100 columns, and
    # the join would make a planner compare all columns that are computed from the key.
    assert "Join" not in plan_of(with_owner(spark.range(9), ring, "id"), capsys)


@pytest.mark.parametrize("algorithm", ["crc-32", pytest.param("jamcrc", marks=pytest.mark.long)])
def test_a_wide_frame_is_copied_once(spark, tmp_path, capsys, algorithm):
    # Above 100 columns each projection copies the row, since Spark generates no code for a stage.
    wide = pa.table({f"c{n}": pa.array([f"k{i}" for i in range(n, n + 500)]) for n in range(120)})
    pq.write_table(wide, tmp_path / "wide.parquet")
    df = spark.read.parquet(str(tmp_path / "wide.parquet"))
    before, after = random_ring(100, 16, algorithm=algorithm), random_ring(9, 4, 2, algorithm)
    owned = with_owner(df, before, "c7")
    moved = with_move(df, before, after, "c7")
    assert [plan_of(frame, capsys).count("Project") for frame in (owned, moved)] == [1, 1]
    keys = wide["c7"].to_pylist()
    assert rows(owned.select("c7", "owner")) == [(k, before.owner(k)) for k in keys]
    assert rows(moved.select("c7", "before", "after")) == [
        (k, before.owner(k), after.owner(k)) for k in keys
    ]


@pytest.mark.parametrize("nodes", [4, 3000])
def test_a_filter_on_another_column_reaches_the_files(spark, tmp_path, capsys, nodes):
    ring = random_ring(nodes, 4)
    df = spark.range(20).selectExpr("cast(id as string) as key", "id % 2 as day")
    df.write.partitionBy("day").parquet(str(tmp_path / "k"))
    owned = with_owner(spark.read.parquet(str(tmp_path / "k")), ring)
    assert "PartitionFilters: [isnotnull(day" in plan_of(owned.where("day = 1"), capsys)


@pytest.mark.parametrize("nodes", [50, 3000])
def test_a_filter_on_the_owner_computes_each_point_once(spark, capsys, nodes):
    # Pushed below the lookup, it would be the whole lookup again, written out at every use.
    ring = random_ring(nodes, 4)
    df = with_owner(spark.range(1000), ring, "id").where("owner = 'n7'").groupBy("owner").count()
    assert plan_of(df, capsys).count("crc32(") == 1
    found = [row["count"] for row in df.collect()]
    assert sum(found) == sum(ring.owner(str(i)) == "n7" for i in range(1000))


@pytest.mark.parametrize("nodes", [50, 3000])
def test_moves_and_filters_on_them_compute_each_point_once(spark, capsys, nodes):
    before, after = random_ring(nodes, 4), random_ring(nodes, 4, 2)
    moved = moves(spark.range(1000), before, after, "id")
    assert plan_of(moved.where("before = 'n7'"), capsys).count("crc32(") == 1
    wanted = Counter((before.owner(str(i)), after.owner(str(i))) for i in range(1000))
    assert {(r.before, r.after): r["keys"] for r in moved.collect()} == {
        pair: count for pair, count in wanted.items() if pair[0] != pair[1]
    }


def test_points_side_by_side_are_looked_up(spark):
    ring = Ring({f"n{i}": [2**31 + 3 * i] for i in range(40)})
    table, _ = ring_table(ring)
    assert len(table.levels) >= 3
    points = spark.range(2**31 - 5, 2**31 + 130).select(F.col("id").alias("p"))
    columns = ring_columns(spark, ring)
    found = points.select("p", columns.told("node", columns.code(F.col("p"))).alias("o")).collect()
    assert {r.p: r.o for r in found} == {r.p: ring.owner_of_point(r.p) for r in found}


def test_duplicate_columns_beside_the_key_are_kept(spark, ring):
    df = spark.range(1).selectExpr("id as key", "1 as a", "2 as a")
    assert rows(with_owner(df, ring).select("*")) == [(0, 1, 2, 4108050209, "b")]


# --- owner, point and SQL ---------------------------------------------------------------------


def test_owner_and_point_are_columns(spark, ring):
    df = keys_frame(spark, ["a", "b", "hello", "", None])
    found = df.select("key", point("key").alias("p"), owner(ring, F.upper("key")).alias("o"))
    assert {r.key: r.p for r in found.collect()} == {
        **{k: hash_algorithm("crc-32").point(k) for k in ("a", "b", "hello")}, "": None, None: None
    }  # fmt: skip
    assert {r.key: r.o for r in found.collect()} == {
        **{k: ring.owner(k.upper()) for k in ("a", "b", "hello")}, "": None, None: None
    }  # fmt: skip
    counted = df.groupBy(owner(ring, "key").alias("node")).count().collect()
    assert sum(r["count"] for r in counted) == 5


@pytest.mark.parametrize(
    ("nodes", "how", "first"),
    [
        (4, "SQL", "owner"),
        (3000, "column", "filter"),
        pytest.param(4, "column", "filter", marks=pytest.mark.long),
        pytest.param(3000, "column", "owner", marks=pytest.mark.long),
        pytest.param(3000, "SQL", "filter", marks=pytest.mark.long),
        pytest.param(4, "column", "owner", marks=pytest.mark.long),
        pytest.param(4, "SQL", "filter", marks=pytest.mark.long),
        pytest.param(3000, "SQL", "owner", marks=pytest.mark.long),
    ],
)
def test_an_owner_in_an_expression_is_no_join_and_lets_filters_reach_the_files(  # noqa: PLR0917
    spark, tmp_path, capsys, nodes, how, first
):
    ring = random_ring(nodes, 4)
    df = spark.range(40).selectExpr("concat('k', id) AS key", "id % 2 AS day")
    df.write.parquet(str(tmp_path / "keys"))
    df = spark.read.parquet(str(tmp_path / "keys"))
    register_functions(spark, ring)
    asked = F.expr("hashring_owner(key)") if how == "SQL" else owner(ring, "key")
    if first == "filter":
        found = df.where("day = 1").select("key", "day", asked.alias("node"))
    else:
        found = df.select("key", "day", asked.alias("node")).where("day = 1")
    plan = plan_of(found, capsys)
    assert "PushedFilters: [IsNotNull(day), EqualTo(day,1)]" in plan
    assert "Join" not in plan
    assert {r.key: r.node for r in found.collect()} == {
        f"k{i}": ring.owner(f"k{i}") for i in range(1, 40, 2)
    }


def test_a_thread_uses_the_session_that_runs(spark, ring):
    df = keys_frame(spark, ["a"])
    assert in_a_thread(lambda: df.select(owner(ring, "key")).first()[0]) == ring.owner("a")


@pytest.mark.parametrize("side", ["keys", "others"])
def test_an_owner_that_is_a_column_is_a_key_of_joins_whichever_side_is_broadcast(spark, side):
    ring = random_ring(3, 4)
    keys = with_owner(spark.range(100).selectExpr("concat('k', id) AS key"), ring)
    others = spark.createDataFrame([(node,) for node in ring.nodes], "node string")
    if side == "keys":
        keys = F.broadcast(keys)
    assert keys.join(others, F.col("owner") == F.col("node")).count() == 100
    register_functions(spark, ring)
    keys.createOrReplaceTempView("some_keys")
    others.createOrReplaceTempView("some_nodes")
    hint = "some_keys" if side == "keys" else "some_nodes"
    found = spark.sql(
        f"SELECT /*+ BROADCAST({hint}) */ * FROM some_nodes JOIN "
        "(SELECT key, hashring_owner(key) AS placed FROM some_keys) AS some_keys ON placed = node"
    )
    assert found.count() == 100


@pytest.mark.parametrize("kind", ["double", "date", "int", "boolean"])
def test_a_column_of_another_type_has_no_owner(spark, ring, kind):
    df = spark.sql(f"select cast(null as {kind}) as key")
    with pytest.raises(AnalysisException, match=r'requires the "BINARY" type'):
        df.select(owner(ring, "key"))


def test_functions_answer_in_sql_and_in_views(spark, capsys):
    ring = random_ring(9, 16)
    keys_frame(spark, [f"k{i}" for i in range(50)] + ["", None]).createOrReplaceTempView("own_keys")
    register_functions(spark, ring)
    found = spark.sql("select key, hashring_owner(key) o, hashring_point(key) p from own_keys")
    for r in found.collect():
        assert r.o == (ring.owner(r.key) if r.key else None)
        assert r.p == (hash_algorithm("crc-32").point(r.key) if r.key else None)
    assert "Join" not in plan_of(found, capsys)
    spark.sql(
        "create or replace temp view own_by_node as "
        "select hashring_owner(key) node, count(*) n from own_keys group by all"
    )
    assert spark.sql("select sum(n) from own_by_node").first()[0] == 52
    # Integers and binaries are keys, too.
    told = spark.sql("select hashring_owner(7) a, hashring_owner(cast('x' as binary)) b").first()
    assert (told.a, told.b) == (ring.owner("7"), ring.owner("x"))


def test_functions_registered_again_answer_by_the_new_ring(spark):
    for name in ("old", "new"):
        register_functions(spark, Ring({name: [0]}), prefix="changing")
        assert spark.sql("select changing_owner('k')").first()[0] == name


def test_functions_registered_again_answer_by_one_ring_meanwhile(spark, monkeypatch):
    first, second = random_ring(3, 40), random_ring(30, 400, seed=2)
    keys = [f"k{i}" for i in range(40)]
    keys_frame(spark, keys).createOrReplaceTempView("meanwhile_keys")
    register_functions(spark, first, "meanwhile")
    told = []

    def asked():
        return dict(rows(spark.sql("select key, meanwhile_owner(key) from meanwhile_keys")))

    def one_row_and_a_query(*arguments):
        told.append(asked())
        return one_row(*arguments)

    with monkeypatch.context() as patched:
        patched.setattr("hashring.spark.lookup.owner_in_sql.one_row", one_row_and_a_query)
        register_functions(spark, second, "meanwhile")
    assert len(told) > 1
    assert all(owners == {key: first.owner(key) for key in keys} for owners in told)
    assert asked() == {key: second.owner(key) for key in keys}


@pytest.mark.long
def test_functions_registered_many_times_leave_the_views_of_two_rings(spark):
    def views():
        return {t.name for t in spark.catalog.listTables() if t.name.startswith("again_")}

    register_functions(spark, Ring({"n": [0]}), "again")
    first = views()
    for _ in range(4):
        register_functions(spark, Ring({"n": [0]}), "again")
    assert len(views()) == 2 * len(first)
    assert not views() & first


@pytest.mark.parametrize(
    ("ring", "prefix", "error", "text"),
    [
        (Ring(), "ring", EmptyRingError, "no node"),
        (Ring({"a": [0]}), "no name", ConfigError, "prefix='no name': give letters"),
        (Ring({"a": [0]}, "crc-32c"), "ring", ConfigError, "SQL computes crc-32 and jamcrc only"),
    ],
)
def test_functions_that_cannot_be_are_refused(spark, ring, prefix, error, text):
    with pytest.raises(error, match=text):
        register_functions(spark, ring, prefix)


def test_the_result_works_in_a_stream(spark, ring, tmp_path):
    keys_frame(spark, ["a", "b", "c"]).write.parquet(str(tmp_path / "in"))
    stream = spark.readStream.schema("key string").parquet(str(tmp_path / "in"))
    query = (
        with_owner(stream, ring)
        .writeStream.format("memory")
        .queryName("tagged")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    found = {r.key: r.owner for r in spark.table("tagged").collect()}
    assert found == {key: ring.owner(key) for key in "abc"}


# --- load -------------------------------------------------------------------------------------


def test_load_counts_what_each_node_owns_and_weighs_it(spark, ring):
    df = spark.createDataFrame([(f"k{i}", float(i)) for i in range(200)], "key string, w double")
    found = {r.node: r for r in load(df, ring, weight="w").collect()}
    expected = {node: [i for i in range(200) if ring.owner(f"k{i}") == node] for node in "abc"}
    assert {n: r.keys for n, r in found.items()} == {n: len(v) for n, v in expected.items()}
    assert {n: r.weight for n, r in found.items()} == {n: sum(v) for n, v in expected.items()}
    assert found["b"].fair_share == found["b"].ring_share == 0.5
    assert found["b"].share == pytest.approx(sum(expected["b"]) / sum(range(200)))


def test_a_node_without_keys_is_in_the_load(spark, ring):
    found = load(keys_frame(spark, ["hello"]), ring)
    assert sorted((r.node, r["keys"], r.share) for r in found.collect()) == [
        ("a", 1, 1.0),
        ("b", 0, 0.0),
        ("c", 0, 0.0),
    ]


def test_rows_without_a_key_are_counted_and_shown(spark, ring):
    found = load(keys_frame(spark, [None, "", "hello"]), ring)
    assert rows(found.where("node is null").select("keys", "share")) == [(2, None)]
    assert found.where("node = 'a'").first().share == 1.0


def test_all_keys_null_gives_shares_of_zero(spark, ring):
    found = load(keys_frame(spark, [None, None], pa.string()), ring)
    assert {r.node: r.share for r in found.collect()} == {"a": 0, "b": 0, "c": 0, None: None}


def test_an_empty_frame_gives_a_load_of_nothing(spark, ring):
    assert [r["keys"] for r in load(spark.range(0), ring, "id").collect()] == [0, 0, 0]


def test_sessions_without_ansi_get_the_same_answers(spark):
    # Clustered points make small tables below the root.
    rng = random.Random(3)
    ring = Ring({f"n{i}": [rng.randrange(10_000) for _ in range(9)] for i in range(5)})
    df = keys_frame(spark, [f"k{i}" for i in range(200)])
    before = spark.conf.get("spark.sql.ansi.enabled")
    spark.conf.set("spark.sql.ansi.enabled", "false")
    try:
        counts = {r.node: r["keys"] for r in load(df, ring).collect()}
        for r in with_owner(df, ring).collect():
            assert r.owner == ring.owner(r.key)
    finally:
        spark.conf.set("spark.sql.ansi.enabled", before)
    assert counts == {r.node: r["keys"] for r in load(df, ring).collect()}


def test_weights_that_are_none_are_counted_and_weigh_nothing(spark):
    values = [("a", None), ("b", float("nan")), ("c", -1.0), ("d", 2.0)]
    df = spark.createDataFrame(values, "key string, w double")
    (found,) = load(df, Ring({"n": [0]}), weight="w").collect()
    assert (found["keys"], found.weight, found.bad_weights) == (4, 2.0, 3)


def test_a_weight_of_a_type_that_is_no_number_is_refused(spark, ring):
    with pytest.raises(ColumnError, match="is boolean; a weight is a number"):
        load(spark.sql("select 'a' as key, true as w"), ring, weight="w")


def test_weights_in_text_are_numbers_where_they_can_be(spark):
    df = spark.createDataFrame([("a", "2.5"), ("b", " 1e1 "), ("c", "two")], "key string, w string")
    (found,) = load(df, Ring({"n": [0]}), weight="w").collect()
    assert (found.weight, found.bad_weights) == (12.5, 1)


def test_weights_in_text_that_are_numbers_to_java_alone_are_none(spark):
    texts = ["1d", "2F", "0x1p3", "NaN", "Infinity", "3"]
    df = spark.createDataFrame([("a", text) for text in texts], "key string, w string")
    (found,) = load(df, Ring({"n": [0]}), weight="w").collect()
    assert (found.weight, found.bad_weights) == (3.0, 5)
    collated = df.selectExpr("key", "w collate UNICODE_CI as w")
    (found,) = load(collated, Ring({"n": [0]}), weight="w").collect()
    assert (found.weight, found.bad_weights) == (3.0, 5)


def test_a_large_table_goes_to_the_executors_in_pieces(spark, monkeypatch):
    monkeypatch.setattr("hashring.spark.engine.arrays_to_spark.MOST_BYTES", 2**16)
    # With as many points, no array is a literal. The ring is of this test alone: tables are kept.
    ring = random_ring(300, 32, seed=77)
    keys = [f"k{i}" for i in range(300)]
    found = with_owner(keys_frame(spark, keys), ring).collect()
    assert {row.key: row.owner for row in found} == {key: ring.owner(key) for key in keys}
    arrays = {"a": list(range(20_000)), "b": ["x", "y"], "c": [None, *range(20_000)]}
    (row,) = one_row(spark, arrays).collect()
    assert row.asDict() == arrays


# --- hot keys ---------------------------------------------------------------------------------


def test_hot_keys_are_the_heaviest_first_with_their_owner(spark, ring):
    df = keys_frame(spark, ["x"] * 6 + ["y"] * 3 + ["z", None])
    found = hot_keys(df, ring, n=2).collect()
    assert [(r.key, r.rows, r.share, r.owner) for r in found] == [
        ("x", 6, 0.6, ring.owner("x")),
        ("y", 3, 0.3, ring.owner("y")),
    ]
    assert found[0].of_mean == pytest.approx(1.8)


def test_hot_keys_are_found_and_counted_among_many(spark, ring):
    light = spark.range(20_000).selectExpr("concat('k', id) AS key", "1 AS w")
    heavy = spark.range(60).selectExpr("concat('hot', id % 3) AS key", "100 - id % 3 AS w")
    found = hot_keys(light.union(heavy), ring, weight="w", n=3).collect()
    assert [(r.key, r.rows, r.weight) for r in found] == [
        ("hot0", 20, 2000),
        ("hot1", 20, 1980),
        ("hot2", 20, 1960),
    ]
    assert found[0].share == pytest.approx(2000 / 25_940)


@pytest.mark.parametrize("n", [2**29, 2**31])
def test_more_hot_keys_than_spark_counts_are_all_there_are(spark, ring, n):
    found = hot_keys(keys_frame(spark, ["x", "x", "y"]), ring, n=n).collect()
    assert [(r.key, r.rows) for r in found] == [("x", 2), ("y", 1)]


def test_only_keys_of_heavy_buckets_are_shuffled(spark, ring, capsys):
    hot_keys(keys_frame(spark, ["x"]), ring).explain()
    assert "LeftSemi" in capsys.readouterr().out


@pytest.mark.long
def test_as_many_hot_keys_as_are_asked_for_are_found_among_more(spark, ring):
    # Each is in a bucket of its own, nearly.
    assert hot_keys(spark.range(1000), ring, "id", n=400).count() == 400


def test_no_hot_keys_are_a_mistake(spark, ring):
    with pytest.raises(ConfigError, match="n=0: ask for at least one key"):
        hot_keys(spark.range(1), ring, "id", n=0)


# --- moves ------------------------------------------------------------------------------------


def test_moves_count_the_keys_whose_owner_differs(spark):
    before = random_ring(20, 16)
    after = before.with_node("new", [random.Random(5).randrange(2**32) for _ in range(16)])
    after = after.without_nodes("n3")
    keys = [f"k{i}" for i in range(5000)]
    expected = {}
    for key in keys:
        pair = before.owner(key), after.owner(key)
        if pair[0] != pair[1]:
            expected[pair] = expected.get(pair, 0) + 1
    found = moves(keys_frame(spark, keys), before, after)
    assert {(r.before, r.after): r["keys"] for r in found.collect()} == expected
    assert found.columns == ["before", "after", "keys", "weight"]


def test_with_move_gives_both_owners(spark):
    before, after = random_ring(9, 4), random_ring(9, 4, seed=2)
    keys = [f"k{i}" for i in range(500)] + [None]
    found = with_move(keys_frame(spark, keys), before, after).collect()
    assert {r.key: (r.before, r.after) for r in found} == {
        key: (before.owner(key), after.owner(key)) if key else (None, None) for key in keys
    }


def test_rings_that_hash_differently_are_not_compared(spark, ring):
    other = Ring({"a": [0]}, "jamcrc")
    with pytest.raises(ConfigError, match="compare rings of one algorithm"):
        moves(spark.range(1), ring, other, "id")


def test_nothing_moves_between_equal_rings(spark, ring):
    assert rows(moves(spark.range(100), ring, ring, "id")) == []


# --- partition by owner -----------------------------------------------------------------------


def test_each_node_has_a_spark_partition_of_its_own(spark):
    ring = random_ring(7, 4)
    parts = partition_by_owner(spark.range(500), ring, "id")
    found = parts.select(F.spark_partition_id().alias("part"), "owner").distinct().collect()
    assert {r.part: r.owner for r in found} == dict(enumerate(ring.nodes))


def test_a_node_may_have_several_partitions_and_no_key_one_of_its_own(spark):
    ring = random_ring(3, 4)
    df = spark.range(900).selectExpr("if(id < 9, null, cast(id as string)) as key")
    parts = partition_by_owner(df, ring, files_per_owner=4)
    found = parts.select(F.spark_partition_id().alias("part"), "owner").distinct().collect()
    expected = {4 * i + k: node for i, node in enumerate(ring.nodes) for k in range(4)}
    assert {r.part: r.owner for r in found} == {**expected, 12: None}
    with pytest.raises(ConfigError, match="files_per_owner=0: give at least 1"):
        partition_by_owner(df, ring, files_per_owner=0)


# One file stays; another test gives a node several, in tasks of its own.
@pytest.mark.parametrize("files", [1, pytest.param(2, marks=pytest.mark.long)])
def test_nodes_that_share_a_task_have_files_of_their_own(spark, tmp_path, files):
    ring = random_ring(7, 4)
    df = spark.range(900).selectExpr("if(id < 9, null, cast(id as string)) as key")
    parts = partition_by_owner(df, ring, files_per_owner=files, nodes_per_task=3)
    found = parts.select(F.spark_partition_id().alias("part"), "owner").distinct().collect()
    assert sorted((r.part, r.owner) for r in found if r.owner) == sorted(
        (i // 3 * files + k, node) for i, node in enumerate(ring.nodes) for k in range(files)
    )
    assert [r.part for r in found if r.owner is None] == [3 * files]
    parts.write.partitionBy("owner").parquet(str(tmp_path / "out"))
    for node in ring.nodes:
        assert len(list(tmp_path.glob(f"out/owner={node}/*.parquet"))) == files
        own = spark.read.parquet(str(tmp_path / "out" / f"owner={node}"))
        assert {r.key for r in own.collect()} == {
            str(i) for i in range(9, 900) if ring.owner(str(i)) == node
        }
    with pytest.raises(ConfigError, match="nodes_per_task=0: give at least 1"):
        partition_by_owner(df, ring, nodes_per_task=0)


def test_the_nodes_of_a_large_ring_share_tasks_unless_told_otherwise(spark):
    def tasks(nodes, **told):
        parts = partition_by_owner(spark.range(1), random_ring(nodes, 1), "id", **told)
        return parts.rdd.getNumPartitions() - 1  # one is of rows without an owner

    assert [tasks(nodes) for nodes in (200, 201, 450)] == [200, 101, 150]
    assert tasks(201, files_per_owner=2) == 2 * 67
    assert tasks(201, nodes_per_task=1) == 201


def test_pyspark_4_0_sends_rows_to_a_partition_by_its_number_too(spark):
    numbered = spark.range(400).withColumn("number", F.col("id") % 40)
    placed = by_partition_number(numbered, 40, "number")
    assert placed.columns == ["id", "number"]
    assert placed.rdd.getNumPartitions() == 40
    for row in placed.select("id", F.spark_partition_id().alias("part")).collect():
        assert row.part == row.id % 40


def test_a_node_reads_its_keys_alone(spark, tmp_path):
    ring = random_ring(5, 4)
    path = str(tmp_path / "out")
    partition_by_owner(spark.range(300), ring, "id").write.partitionBy("owner").parquet(path)
    own = spark.read.parquet(f"{path}/owner=n2")
    assert sorted(r.id for r in own.collect()) == [
        i for i in range(300) if ring.owner(str(i)) == "n2"
    ]


def test_an_integer_is_no_key_of_a_slow_hash_without_ansi_either(spark):
    spark.conf.set("spark.sql.ansi.enabled", "false")
    try:
        with pytest.raises(AnalysisException):
            spark.range(1).select(point("id", "crc-32c"))
    finally:
        spark.conf.unset("spark.sql.ansi.enabled")
