"""The audit finds exactly what a look at every pair of rows and every version finds."""

import random
import re
from collections import Counter
from datetime import datetime, timezone
from uuid import uuid4

import pytest
from pyspark.sql import functions as F  # noqa: N812

from hashring.core.hashing import hash_algorithm
from hashring.core.ring import Ring
from hashring.core.ring_history import ring_history
from hashring.core.ring_json import RingFile
from hashring.errors import ColumnError, HistoryError
from hashring.spark.analysis.audit import PROBLEMS, audit, counted_audit, work_slices
from hashring.spark.analysis.work_log import REJECTIONS
from hashring.spark.io.input import read_frame
from hashring.spark.periods.history_from_events import history_of
from hashring.spark.periods.owner_at_time import as_of
from tests.conftest import LONG
from tests.spark.conftest import rows
from tests.unit.test_ring_history import change

HALF = 2**31
LOG = "key string, node string, start double, end double"
# crc32("hello") is in the lower half of the ring, crc32("b") = 1908338681 too; "a" is above.


def point(key):
    return hash_algorithm("crc-32").point(key)


def at(seconds):
    return int(seconds * 1e6)


@pytest.fixture(scope="module")
def history():
    """a owns all from second 10; b takes the lower half at 20, leaves at 30, is back at 40."""
    return ring_history(
        [
            change(1, "join", ("a",), [HALF], at=at(10)),
            change(2, "join", ("b",), [0], at=at(20)),
            change(3, "leave", ("b",), at=at(30)),
            change(4, "join", ("b",), [0], at=at(40)),
        ]
    )


PIECES = [
    ("a", 11, 20, None, None, None, None),  # up to the change is in time
    ("a", 11, 21.5, "overrun", 1.5, 1.5, 2),
    ("a", 20, 22, "late", 2, 2, 2),  # at the change it belongs to b already
    ("a", 25, 26, "late", 1, 6, 2),
    ("b", 12, 13, "early", 1, None, 2),
    ("b", 19, 23, "early", 1, None, 2),
    ("b", 20, 30, None, None, None, None),
    ("b", 29, 31, "overrun", 1, 1, 3),
    ("b", 35, 36, "late", 1, 6, 3),  # and it comes back later: lost first counts
    ("b", 41, 99, None, None, None, None),
    ("a", 90, 91, "late", 1, 51, 4),
]


KEYS = [f"k{i}" for i in range(20) if point(f"k{i}") < HALF]
"""Keys that a and b own in turn, as they own "hello"."""
AT_ONCE = [
    (KEYS[0], "a", 12.0, 19.0),
    (KEYS[0], "b", 13.0, 15.0),  # inside a's
    (KEYS[0], "a", 14.0, 16.0),  # meets b, but not itself
    (KEYS[0], "b", 19.0, 20.0),  # begins as a ends
    ("world", "b", 13.0, 14.0),  # another key
]
NO_LENGTH = [(KEYS[1], "a", 12.0, 19.0), (KEYS[1], "b", 13.0, 13.0)]
IN_PERIODS = [(KEYS[2], "a", 11.0, 12.0), (KEYS[2], "a", 15.0, 16.0), (KEYS[2], "b", 25.0, 26.0)]
BY_ANOTHER = [(KEYS[3], "a", 25.0, 26.0)]
IN_SECONDS = [(KEYS[4], "a", 11.25, 21.5)]
BAD = [
    (None, "a", 11.0, 12.0),
    ("", "a", 11.0, 12.0),
    ("k", None, 11.0, 12.0),
    ("k", "a", None, 12.0),
    ("k", "a", 11.0, float("nan")),
    ("k", "a", 1e300, 1e300),
    ("k", "a", 12.0, 11.0),
    ("k", "ghost", 11.0, 12.0),
    ("k", "a", 9.0, 12.0),
]
GOOD = [
    *(("hello", node, *map(float, at)) for node, *at, _, _, _, _ in PIECES),
    *AT_ONCE, *NO_LENGTH, *IN_PERIODS, *BY_ANOTHER, *IN_SECONDS,
]  # fmt: skip


@pytest.fixture(scope="module")
def found(spark, history):
    """One audit of pieces of work on many keys: each is judged by its own key and times."""
    return audit(spark.createDataFrame(GOOD + BAD, LOG), history)


@pytest.fixture(scope="module")
def judged(found):
    """What the audit says of each row that it judged."""
    return {
        (r.key, r.node, r.start.timestamp(), r.end.timestamp()): r for r in found.rows.collect()
    }


@pytest.fixture(scope="module")
def of_keys(found):
    return {r.key: r for r in found.keys.collect()}


@pytest.mark.parametrize(
    ("piece", "problem", "unowned", "after_change", "epoch"),
    [(number, *piece[3:]) for number, piece in enumerate(PIECES)],
    ids=[f"{node}-{start}-{end}" for node, start, end, *_ in PIECES],
)
def test_work_by_a_node_that_does_not_own_the_key(  # noqa: PLR0917
    judged, piece, problem, unowned, after_change, epoch
):
    found = judged[GOOD[piece]]
    assert (found.problem, found.unowned, found.after_change, found.epoch) == (
        problem,
        unowned,
        after_change,
        epoch,
    )


@pytest.fixture(scope="module")
def with_full(spark):
    """An audit where a, which owns "hello", is full from second 10 to 20; b never has this key."""
    history = ring_history(
        [
            change(1, "join", ("a",), [0], at=at(1)),
            change(2, "join", ("b",), [HALF], at=at(2)),
            change(3, "full", ("a",), at=at(10)),
            change(4, "room", ("a",), at=at(20)),
        ]
    )
    log = [
        ("hello", "b", 9.0, 10.0),
        ("hello", "b", 10.0, 10.5),
        ("hello", "a", 11.0, 12.0),
        ("hello", "b", 15.0, 99.0),
        ("hello", "b", 20.0, 20.5),
    ]
    return audit(spark.createDataFrame(log, LOG), history)


@pytest.fixture(scope="module")
def rows_with_full(with_full):
    return sorted(with_full.rows.collect(), key=lambda row: row.start)


def test_a_node_that_never_had_the_key_is_foreign_to_it(rows_with_full):
    found = rows_with_full[0]
    assert (found.problem, found.unowned, found.after_change) == ("foreign", 1, None)


def test_work_on_a_key_of_a_full_node_is_counted_and_no_fault(with_full, rows_with_full):
    assert [(r.problem, r.overflow) for r in rows_with_full] == [
        ("foreign", False),
        (None, True),
        (None, False),
        (None, True),
        ("foreign", False),
    ]
    assert (with_full.summary.first().overflow, with_full.keys.first().overflow) == (2, 2)
    assert {r.node: r.overflow for r in with_full.nodes.collect()} == {"a": 0, "b": 2}


def test_two_nodes_at_once_are_found_with_how_long(judged):
    assert [(judged[row].other, judged[row].overlap) for row in AT_ONCE] == [
        (None, None),
        ("a", 2.0),
        ("b", 1.0),
        (None, None),
        (None, None),
    ]


def test_work_of_no_length_meets_nobody(judged):
    assert [judged[row].other for row in NO_LENGTH] == [None, None]


def test_keys_tell_of_periods_without_work_and_of_gaps(of_keys):
    found = of_keys[IN_PERIODS[0][0]]
    # Owned by a, b, a, b: worked on in the first and second.
    assert (found.periods, found.worked, found.unworked, found.longest_gap) == (4, 2, 2, 9.0)


def test_work_on_another_s_key_does_not_count_as_the_owner_s(of_keys):
    found = of_keys[BY_ANOTHER[0][0]]
    assert (found.worked, found.late, found.longest_gap) == (0, 1, None)


def test_changes_tell_how_soon_the_new_owner_worked(spark, history):
    log = [
        ("hello", "b", 23.0, 24.0),
        ("hello", "b", 26.0, 27.0),
        ("b", "b", 21.0, 22.0),
        ("b", "a", 21.0, 22.0),
        ("hello", "a", 19.0, 24.0),
    ]
    found = {r.epoch: r for r in audit(spark.createDataFrame(log, LOG), history).changes.collect()}
    second = found[2]
    assert (second.kind, second.nodes, second["keys"]) == ("join", ["b"], 2)
    assert (second.first_work_least, second.first_work_most) == (1.0, 3.0)
    assert (second.overrun, second.late, second.after_change_most) == (1, 1, 4.0)
    assert (found[3]["keys"], found[3].first_work_least, found[3].late) == (0, None, 0)


def test_bad_rows_are_counted_by_reason_and_nothing_else_is_lost(found, judged):
    rejected = found.rejected.collect()
    assert Counter(r.reason for r in rejected) == {
        "no key": 2,
        "no node": 1,
        "no time": 3,
        "end before start": 1,
        "unknown node": 1,
        "before the history": 1,
    }
    assert judged.keys() == set(GOOD)
    assert found.rejected.columns == ["key", "node", "start", "end", "reason"]


def test_a_log_without_a_usable_row_gives_zeros(spark, history):
    found = audit(spark.createDataFrame([], LOG), history)
    assert found.rows.collect() == []
    summary = found.summary.first().asDict()
    assert {
        name: summary[name] for name in ("rows", "keys", "unworked", *PROBLEMS)
    } == dict.fromkeys(("rows", "keys", "unworked", *PROBLEMS), 0)
    assert [r.version for r in found.changes.orderBy("version").collect()] == [0, 1, 2, 3, 4]


def test_timestamps_and_seconds_mean_the_same(spark, history, judged):
    stamped = spark.createDataFrame(IN_SECONDS, LOG).selectExpr(
        "key", "node", "timestamp_micros(11250000) as start", "timestamp_micros(21500000) as end"
    )
    assert audit(stamped, history).rows.collect() == [judged[row] for row in IN_SECONDS]


@pytest.mark.parametrize(
    ("ansi", "is_cut"),
    [
        # Slices count from the same moments as the audit: with an overflow that raises, they stay.
        ("true", True),
        pytest.param("false", False, marks=pytest.mark.long),
        pytest.param("true", False, marks=pytest.mark.long),
        pytest.param("false", True, marks=pytest.mark.long),
    ],
)
def test_an_end_at_infinity_is_after_all_others(spark, history, ansi, is_cut):
    """The largest TIMESTAMP, which some databases export as `infinity`."""
    before = spark.conf.get("spark.sql.ansi.enabled")
    log = spark.sql(
        f"select 'hello' key, node, timestamp_micros(start) start, timestamp_micros(end) end "
        f"from values ('a', 15000000L, {2**63 - 1}L), ('b', 21000000L, 22000000L), "
        f"('b', 43000000L, {2**63 - 1}L), ('a', {2**63 - 1}L, {2**63 - 1}L), "
        f"('a', {1 - 2**63}L, {2**63 - 1}L) as t(node, start, end)"
    )
    spark.conf.set("spark.sql.ansi.enabled", ansi)
    try:
        slices = work_slices(log, history, rows=1) if is_cut else None
        told = audit(log, history, slices=slices).rows.orderBy(F.unix_micros("start"))
        told = rows(told.select("node", "problem", "other", F.col("overlap") > 1e6))
    finally:
        spark.conf.set("spark.sql.ansi.enabled", before)
    assert (slices is not None) == is_cut
    assert told == [
        ("a", "overrun", None, None),
        ("b", None, "a", False),
        ("b", None, "a", True),
        ("a", "late", None, None),
    ]


@pytest.mark.parametrize(
    ("column", "expression", "text"),
    [
        ("start", "date'2024-01-01'", "'start' is date; a time is TIMESTAMP or a number"),
        ("start", "1.5F", "'start' is float; .* too coarse for a time: give DOUBLE or TIMESTAMP"),
        ("end", "'x'", "a number of seconds since 1970: cast it; of CSV and JSON, give its type"),
        ("end", "timestamp_ntz'2024-01-01'", "'end' is timestamp_ntz, a time without a zone: with"),
        ("node", "1", "'node' is int; a node's name is a string"),
        ("key", "1.5D", "'key' is double; a key is string, binary or an integer"),
    ],
)
def test_columns_of_the_wrong_type_are_refused(spark, history, column, expression, text):
    log = spark.createDataFrame([], LOG).withColumn(column, F.expr(expression))
    with pytest.raises(ColumnError, match=text):
        audit(log, history)


def test_times_without_a_zone_are_taken_as_the_error_says(spark, tmp_path):
    place = str(tmp_path / "log.parquet")
    spark.sql("SELECT timestamp_ntz'2024-01-01 00:00:00' AS start").write.parquet(place)
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        given = spark.read.schema("start timestamp").parquet(place)
        cast = spark.read.parquet(place).select(F.col("start").cast("timestamp"))
        (utc,), (local,) = (rows(log.select(F.unix_seconds("start"))) for log in (given, cast))
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    assert utc == (int(datetime(2024, 1, 1, tzinfo=timezone.utc).timestamp()),)
    assert local == (utc[0] + 5 * 3600,)


def test_a_missing_column_is_refused(spark, history):
    with pytest.raises(ColumnError, match="'end' is missing; the columns are key, node, start"):
        audit(spark.createDataFrame([], LOG).drop("end"), history)


def test_a_column_beside_the_log_s_is_there_once(spark, history):
    log = spark.createDataFrame([], LOG).select("*", F.lit(1).alias("x"), F.lit(2).alias("x"))
    with pytest.raises(ColumnError, match="'x' is there more than once"):
        audit(log, history)


@pytest.mark.long
def test_a_log_with_a_column_reason_is_judged_and_its_rejected_rows_need_another_name(
    spark, history
):
    found = audit(spark.createDataFrame([], LOG).withColumn("reason", F.lit("x")), history)
    assert found.rows.columns[:4] == ["key", "node", "start", "end"]
    with pytest.raises(ColumnError, match="'reason' is there already, and would be hidden: rename"):
        _ = found.rejected


@pytest.mark.long
def test_nodes_of_a_collated_column_are_told_apart(spark):
    history = ring_history(
        [change(1, "join", ("A",), [HALF], at=at(10)), change(2, "join", ("a",), [0], at=at(20))]
    )
    log = spark.createDataFrame([("hello", "a", 21.0, 22.0), ("hello", "A", 31.0, 32.0)], LOG)
    found = audit(log.withColumn("node", F.collate("node", "UTF8_LCASE")), history).rows
    assert {r.node: r.problem for r in found.collect()} == {"a": None, "A": "late"}


# --- against brute force ----------------------------------------------------------------------


def random_history(rng, nodes, changes, base=None):
    made, alive = [], set(base.nodes if base else ())
    now = 1000
    for epoch in range(1, changes + 1):
        now += rng.choice([0, 1, 5, 200])
        node = rng.choice(nodes)
        if alive and rng.random() < 0.2:
            kind = rng.choice(["full", "room"])
            made.append(change(epoch + bool(base), kind, (rng.choice(sorted(alive)),), at=now))
        elif node in alive and rng.random() < 0.6:
            gone = tuple(rng.sample(sorted(alive), min(len(alive), rng.choice([1, 1, 2]))))
            alive -= set(gone)
            kind = "expire" if len(gone) > 1 else rng.choice(["expire", "leave"])
            made.append(change(epoch + bool(base), kind, gone, at=now))
        else:
            alive.add(node)
            points = [rng.randrange(2**32) for _ in range(rng.randint(1, 6))]
            made.append(change(epoch + bool(base), "join", (node,), points, at=now))
    return ring_history(made, base, base_epoch=1 if base else 0, since=1000), now


def full_nodes(history):
    """The full nodes of each version: a node is full until it has room, or is off the ring."""
    full = [set()]
    for version, ring in zip([*history.versions()][1:], [*history.rings()][1:], strict=True):
        told_full = set(version.change.nodes) if version.change.kind == "full" else set()
        told_room = set(version.change.nodes) if version.change.kind == "room" else set()
        full.append(((full[-1] | told_full) - told_room).intersection(ring.nodes))
    return full


def returned_with_room(history):
    """The nodes that were full when they went, and came back."""
    went, back = set(), set()
    for version, full in zip([*history.versions()][1:], full_nodes(history), strict=False):
        if version.change.kind == "join":
            back |= went.intersection(version.change.nodes)
        elif version.change.takes_off:
            went |= full.intersection(version.change.nodes)
    return back


def by_hand(history, log):
    """Each row of the log with what is wrong with it, the slow and plain way."""
    versions, rings = list(history.versions()), list(history.rings())
    full = full_nodes(history)
    told = []
    for row in log:
        key, node, start, end = row
        owners = [ring.owner(key) if ring.node_count else None for ring in rings]
        index = max(v.index for v in versions if v.at <= start)
        since = index
        while since and owners[since - 1] == owners[index]:
            since -= 1
        until = index
        while until < len(versions) and owners[until] == owners[index]:
            until += 1
        lost_at = versions[until].at if until < len(versions) else float("inf")
        previous = owners[since - 1] if since else None
        following = owners[until] if until < len(versions) else None
        problem = after = unowned = None
        if owners[index] == node:
            if end > lost_at:
                problem, unowned, after = "overrun", end - lost_at, end - lost_at
        elif owners[index] in full[index]:
            pass
        elif previous == node:
            problem, unowned, after = "late", end - start, end - versions[since].at
        elif following == node:
            problem, unowned = "early", min(end, lost_at) - start
        else:
            problem, unowned = "foreign", end - start
        others = [
            (e, n)
            for k, n, s, e in log
            if k == key and n != node and (s, e, n) <= (start, end, node) and e > start
        ]
        other = max(others, default=None) if end > start else None
        overlap = min(other[0], end) - start if other else None
        told.append((*row, problem, unowned, after, other[1] if other else None, overlap))
    return told


def on_executors(monkeypatch):
    """Any history is too long for tables of the driver, and has many parts and slices of time."""
    monkeypatch.setattr("hashring.spark.periods.owner_at_time.MOST_IN_TABLES", 0)
    for name, value in (("PART_LIVES", 7), ("CELL_POINTS", 3), ("SLICE_CHANGES", 4)):
        monkeypatch.setattr(f"hashring.spark.periods.period_pieces.{name}", value)


@pytest.mark.parametrize(
    ("seed", "is_long"),
    [
        (2, True),
        pytest.param(1, False, marks=pytest.mark.long),
        pytest.param(0, False, marks=pytest.mark.long),
        pytest.param(0, True, marks=pytest.mark.long),
        pytest.param(1, True, marks=pytest.mark.long),
        pytest.param(2, False, marks=pytest.mark.long),
    ],
)
def test_any_history_and_any_log_give_what_brute_force_gives(spark, seed, is_long, monkeypatch):
    """Seed 1 with a ring before the first change, seed 2 with most of its keys cut into slices."""
    if is_long:
        on_executors(monkeypatch)
    rng = random.Random(seed)
    nodes = [f"n{i:02d}" for i in range(8)]
    base = Ring({n: [rng.randrange(2**32)] for n in nodes[:3]}) if seed % 2 else None
    history, last = random_history(rng, nodes, 60, base)
    assert len(returned_with_room(history)) > 1
    known = history.nodes()
    log = []
    for _ in range(1500 if LONG else 600):
        start = rng.randint(history.since, last + 50)
        row = f"k{rng.randrange(40)}", rng.choice(known), start, start + rng.choice([0, 1, 7, 300])
        log.append(row)
    scaled = [(k, n, s / 1e6, e / 1e6) for k, n, s, e in log]
    # By Redis time of the history, which these tests give in microseconds.
    work = spark.createDataFrame(scaled, LOG)
    slices = work_slices(work, history, rows=len(log) // 50) if seed == 2 else None
    assert seed < 2 or len(slices.keys) > 20
    found = audit(work, history, slices=slices)
    told = [
        (
            r.key,
            r.node,
            *(round(t.timestamp() * 1e6) for t in (r.start, r.end)),
            r.problem,
            *(None if v is None else round(v * 1e6) for v in (r.unowned, r.after_change)),
            r.other,
            None if r.overlap is None else round(r.overlap * 1e6),
        )
        for r in found.rows.collect()
    ]
    order = str
    assert sorted(told, key=order) == sorted(by_hand(history, log), key=order)

    per_key = {r.key: r for r in found.keys.collect()}
    versions, rings = list(history.versions()), list(history.rings())
    for key in {k for k, *_ in log}:
        owners = [ring.owner(key) if ring.node_count else None for ring in rings]
        begins = [i for i in range(len(owners)) if i == 0 or owners[i] != owners[i - 1]]
        owned = [i for i in begins if owners[i] is not None]
        worked = set()
        for k, n, s, _ in log:
            if k == key:
                index = max(v.index for v in versions if v.at <= s)
                since = max(i for i in begins if i <= index)
                if owners[since] == n:
                    worked.add(since)
        assert (per_key[key].periods, per_key[key].worked) == (len(owned), len(worked))


@pytest.mark.parametrize("is_cut", [pytest.param(False, marks=pytest.mark.long), True])
def test_a_history_of_any_length_tells_which_work_met(spark, is_cut):
    """With many nodes or in a long history, an end and its node do not fit into one number."""
    nodes = [f"n{i:02d}" for i in range(20)]
    joined = [change(i + 1, "join", (n,), [i * 7], at=at(10)) for i, n in enumerate(nodes)]
    late = change(21, "leave", ("n19",), at=at(95e9))  # in the year 4980
    rng = random.Random(1)
    starts = [(rng.choice(nodes[:4]), rng.randrange(11, 99)) for _ in range(60)]
    log = [("hello", node, float(begun), begun + rng.choice([1.0, 3.0])) for node, begun in starts]
    work = spark.createDataFrame(log, LOG)
    told = []
    for changes in (joined, [*joined, late]):
        history = ring_history(changes)
        slices = work_slices(work, history, rows=20) if is_cut else None
        assert (slices is not None) == is_cut
        found = audit(work, history, slices=slices)
        met = found.rows.select("key", "node", "start", "end", "other", "overlap")
        told.append((sorted(rows(met), key=str), rows(found.keys.select("longest_gap"))))
    assert told[0] == told[1]
    others = {other for _, _, _, _, other, _ in told[0][0]}
    assert None in others
    assert len(others) > 3


def test_the_state_between_slices_is_two_rows(spark, history):
    log = [("hello", "ab"[i % 2], 12.0 + i, 15.0 + i) for i in range(600)]
    slices = work_slices(spark.createDataFrame(log, LOG), history, rows=256)
    before = Counter(number for _, number, *_ in slices.states)
    assert set(before.values()) == {2}
    assert len(before) == slices.keys[0].last  # each but the first


@pytest.mark.long
def test_all_hot_keys_together_have_so_many_slices_at_most(spark, history, monkeypatch):
    monkeypatch.setattr("hashring.spark.analysis.hot_key_slices._ALL_SLICES", 30)
    log = [(f"k{i % 3}", "a", 12.0 + i, 13.0 + i) for i in range(600)]
    work = spark.createDataFrame(log, LOG)
    slices = work_slices(work, history, rows=100)
    assert [hot.last for hot in slices.keys] == [9, 9, 9]
    found = audit(work, history, slices=slices).summary.first()
    assert (found.rows, found["keys"], found.overlapping) == (600, 3, 0)


@pytest.mark.parametrize("rows", [3, pytest.param(4, marks=pytest.mark.long)])
def test_only_a_key_with_more_rows_than_a_task_should_sort_is_cut(spark, history, rows):
    log = [("hello", "a", 12.0 + i, 13.0 + i) for i in range(4)] + [("world", "a", 12.0, 13.0)]
    work = spark.createDataFrame(log, LOG).withColumn("key", F.col("key").cast("binary"))
    slices = work_slices(work, history, rows=rows)
    assert [hot.key for hot in slices.keys] == [b"hello"] if rows == 3 else slices is None
    found = audit(work, history, slices=slices).summary.first()
    assert (found.rows, found["keys"], found.overlapping) == (5, 2, 0)


@pytest.mark.long  # Random logs with slices are judged, too.
def test_of_two_hot_keys_with_one_hash_one_is_cut_and_both_are_judged(spark, history):
    keys = ("plumless", "buckeroo")
    assert point(keys[0]) == point(keys[1])
    log = [(key, "ab"[i % 2], 12.0 + i, 15.0 + i) for i in range(6) for key in keys]
    work = spark.createDataFrame(log, LOG)
    slices = work_slices(work, history, rows=3)
    assert [hot.key in keys for hot in slices.keys] == [True]
    cut, whole = (audit(work, history, slices=given).rows for given in (slices, None))
    assert sorted(rows(cut), key=str) == sorted(rows(whole), key=str)


@pytest.mark.parametrize("rows", [3, pytest.param(100, marks=pytest.mark.long)])
def test_rows_are_sorted_by_one_number_before_the_windows_sort_them(spark, history, capsys, rows):
    log = [("hello", "a", 12.0 + i, 13.0 + i) for i in range(9)]
    work = spark.createDataFrame(log, LOG)
    found = audit(work, history, slices=work_slices(work, history, rows=rows))
    found.findings.explain()
    sorts = re.findall(r"Sort \[(.*)\], false", capsys.readouterr().out)
    assert [text.count(" ASC ") for text in sorts] == [5, 1]
    assert "shiftleft" in sorts[1]


def jobs_of(spark, work):
    """How many jobs Spark runs for it."""
    group = uuid4().hex
    spark.sparkContext.setJobGroup(group, "counted")
    try:
        work()
    finally:
        spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)
    return len(spark.sparkContext.statusTracker().getJobIdsForGroup(group))


def test_a_log_is_read_and_shuffled_once_and_bad_records_are_counted_as_it_is_read(
    spark, history, tmp_path, capsys
):
    path = tmp_path / "log.csv"
    path.write_text("key,node,start,end\nk,a,11,12\nk,z,12,13\nb,a,12,13\nk,a,25,x\n")
    df, bad_records = read_frame(spark, [str(path)], schema=LOG).counted()
    found, reasons = counted_audit(df, as_of(history))
    for frame in (found.findings, found.counts, found.keys):
        frame.explain()
        plan = capsys.readouterr().out
        # Those of a broadcast are of the ring.
        assert plan.count(" Exchange ") == plan.count("Exchange hashpartitioning(point") == 1
        assert plan.count("FileScan") == 1
    assert jobs_of(spark, lambda: found.counts.write.format("noop").mode("overwrite").save()) > 0
    told = []
    assert jobs_of(spark, lambda: told.append((reasons.get(), bad_records()))) == 0
    assert told == [({**dict.fromkeys(REJECTIONS, 0), "unknown node": 1}, 1)]


@pytest.mark.parametrize("is_long", [pytest.param(False, marks=pytest.mark.long), True])
def test_java_compiles_every_method_of_an_audit(spark, is_long, monkeypatch):
    """It interprets a method of more than 8000 bytes, many times slower, and Spark writes such."""
    if is_long:
        on_executors(monkeypatch)
    day, made = 86_400_000_000, []
    for burst in range(40):
        for i in range(8):
            # Changes and points close together, which take the most levels of a table.
            points = [(burst % 4 << 30) + burst * 64 + i * 8 + j for j in range(4)]
            stamp = burst * day + i
            made.append(change(len(made) + 1, "join", (f"n{burst}-{i}",), points, at=stamp))
    made.append(change(len(made) + 1, "full", ("n0-0",), at=41 * day))
    made = ring_history(made)
    log = [("hello", "n0-0", 12.0 + i, 13.0 + i) for i in range(4)]
    work = spark.createDataFrame(log, LOG)
    found = audit(work, made, slices=work_slices(work, made, rows=3))
    spark.conf.set("spark.sql.adaptive.enabled", "false")  # which plans while it runs
    try:
        for name in ("findings", "counts"):
            stages = getattr(found, name)._jdf.queryExecution().debug().codegenToSeq()
            sizes = [stages.apply(i)._3().maxMethodCodeSize() for i in range(stages.size())]
            assert 0 < max(sizes) < 8000, name
    finally:
        spark.conf.unset("spark.sql.adaptive.enabled")


def test_the_summary_adds_up(spark):
    rng = random.Random(9)
    history, last = random_history(rng, ["a", "b", "c"], 30)
    known = history.nodes()
    log = [
        (f"k{rng.randrange(9)}", rng.choice(known), s / 1e6, (s + 9) / 1e6)
        for s in (rng.randint(history.since, last) for _ in range(300))
    ]
    found = audit(spark.createDataFrame(log, LOG), history)
    told, nodes = found.rows.collect(), found.nodes.collect()
    summary = found.summary.first()
    assert summary.rows == len(told) == 300
    for name in PROBLEMS:
        assert summary[name] == sum(r.problem == name for r in told)
        assert sum(r[name] for r in nodes) == summary[name]
    assert summary.overlapping == sum(r.other is not None for r in told)
    assert found.findings.count() == sum(r.problem is not None or r.other is not None for r in told)
    changes = found.changes.collect()
    assert sum(r.overrun for r in changes) == summary.overrun
    assert sum(r.late for r in changes) == summary.late


# --- history from events ----------------------------------------------------------------------

EVENTS = "id string, epoch long, at timestamp, kind string, nodes array<string>, points array<long>"


def test_events_of_a_frame_make_the_history_whatever_their_order(spark):
    when = [datetime.fromtimestamp(s, timezone.utc) for s in (10, 20, 20)]
    events = [
        ("20000-1", 3, when[2], "leave", ["a"], None),
        ("15000-0", None, when[0], "unserved", None, None),
        ("15000-1", None, when[0], "release", None, None),
        ("15000-2", None, when[0], "of a later version", None, None),
        ("20000-2", 4, when[2], "full", ["b"], None),
        ("20000-3", 5, when[2], "room", ["b"], None),
        ("20000-0", 2, when[1], "join", ["b"], [7]),
        ("10000-0", 1, when[0], "join", ["a"], [5, 3]),
    ]
    found = history_of(spark.createDataFrame(events, EVENTS))
    versions = zip(found.versions(), found.rings(), strict=True)
    assert [(version.at, ring.nodes) for version, ring in versions] == [
        (10_000_000, ()),
        (10_000_000, ("a",)),
        (20_000_000, ("a", "b")),
        *[(20_000_000, ("b",))] * 3,
    ]
    assert list(found.full()) == [("b", 4, 5)]


def test_events_that_begin_in_the_middle_go_with_an_exported_ring(spark):
    events = spark.createDataFrame([], EVENTS)
    with pytest.raises(HistoryError, match="no events"):
        history_of(events)
    base = RingFile(Ring({"a": [0]}), epoch=4, at=5_000_000)
    found = history_of(events, base)
    assert (found.base, found.since) == (base.ring, 5_000_000)
    assert as_of(found).nodes == ("a",)


def test_events_of_another_history_do_not_go_with_an_exported_ring(spark):
    events = spark.sql(
        "select '9000-0' id, 5L epoch, timestamp_seconds(9) at, 'join' kind, array('b') nodes, "
        "array(1L) points, 'u5' tag, 'u4' prev"
    )
    with pytest.raises(HistoryError, match="of epoch 5 does not follow the ring that was exported"):
        history_of(events, RingFile(Ring({"a": [0]}), epoch=4, tag="t4", at=5_000_000))


@pytest.mark.parametrize(
    ("bound", "most", "is_long"),
    [
        ("owner_at_time.MOST_IN_TABLES", 3, False),
        ("owner_at_time.MOST_IN_TABLES", 2, True),  # replicas
        ("period_tables.MOST_IN_TABLES", 6, False),
        ("period_tables.MOST_IN_TABLES", 5, True),  # periods
        ("period_tables._MOST_CELLS", 5, True),
    ],
)
def test_workers_make_the_periods_of_a_history_that_is_too_long_for_tables(
    history, monkeypatch, bound, most, is_long
):
    monkeypatch.setattr(f"hashring.spark.periods.{bound}", most)
    assert as_of(history).moves_rows == is_long


# Without a ring before the first change, and with one.
@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in (1, 2))]
)
def test_workers_find_of_every_point_and_time_what_the_driver_s_tables_find(
    spark, seed, monkeypatch
):
    """All columns of a period, with their types, also at its bounds."""
    rng = random.Random(seed)
    nodes = [f"n{i}" for i in range(12)]
    base = Ring({n: [rng.randrange(2**32)] for n in nodes[:3]}) if seed else None
    history, _ = random_history(rng, nodes, 100, base)
    bounds = [0, 2**32, *history.lives()[0].points]
    times = [version.at - early for version in history.versions() for early in (0, 1)]
    asked = [
        (point, rng.choice(times))
        for point in ((rng.choice(bounds) - below) % 2**32 for below in (0, 1) * 2000)
    ]
    frame = spark.createDataFrame(asked, "point long, at long")
    by_driver = as_of(history).with_period(frame, "point", "at")
    on_executors(monkeypatch)
    by_workers = as_of(history).with_period(frame, "point", "at")
    assert by_workers.dtypes == by_driver.dtypes
    assert sorted(rows(by_workers), key=str) == sorted(rows(by_driver), key=str)


def test_many_replicas_at_one_point_are_in_parts_without_points(spark, monkeypatch):
    on_executors(monkeypatch)
    joined = [change(i + 1, "join", (f"n{i}",), [2**31], at=1000 + i) for i in range(30)]
    asof = as_of(ring_history(joined))
    at = spark.createDataFrame([(2**31, 1000 + i) for i in range(30)], "point long, at long")
    found = asof.with_period(at, "point", "at").collect()
    assert {(row.at, asof.nodes[row.owner]) for row in found} == {
        (1000 + i, max(f"n{j}" for j in range(i + 1))) for i in range(30)
    }


@pytest.mark.parametrize("is_long", [False, True])
def test_nothing_is_found_for_a_null_and_before_the_history(spark, history, is_long, monkeypatch):
    if is_long:
        on_executors(monkeypatch)
    at = [(None, history.since), (5, None), (5, history.since - 1), (5, history.since)]
    frame = spark.createDataFrame(at, "point long, at long")
    found = as_of(history).with_period(frame, "point", "at").collect()
    assert sorted(row.since is None for row in found) == [False, True, True, True]


def test_a_history_that_is_too_long_for_workers_is_refused_with_a_remedy(history, monkeypatch):
    monkeypatch.setattr("hashring.spark.lookup.range_table.MAX_WORDS", 2)
    with pytest.raises(HistoryError, match=r"^4 changes of 3 replicas .* audit shorter"):
        as_of(history)


@pytest.mark.parametrize(
    ("column", "kind"),
    [
        ("at", "string"),
        ("nodes", "string"),
        ("points", "array<string>"),
        ("epoch", "double"),
        ("id", "bigint"),
        ("tag", "binary"),
    ],
)
def test_events_of_other_types_are_refused(spark, column, kind):
    events = spark.createDataFrame([], EVENTS)
    changed = events.withColumn(column, F.lit(None).cast(kind))
    with pytest.raises(ColumnError, match=f"'{column}' is {kind}; export the table events anew"):
        history_of(changed)


def test_times_of_events_without_a_zone_are_refused_with_a_remedy(spark):
    events = spark.createDataFrame([], EVENTS).withColumn("at", F.expr("timestamp_ntz'2024-01-01'"))
    with pytest.raises(ColumnError, match=r"'at' is timestamp_ntz; .* cast it to TIMESTAMP, or ex"):
        history_of(events)


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("points", "array()"),
        ("points", "array(1L, null)"),
        ("nodes", "array()"),
        ("nodes", "array('a', 'b')"),
        ("nodes", "array(null)"),
        ("id", "'17'"),
        ("at", "null"),
        ("kind", "cast(null as string)"),
    ],
)
def test_an_event_that_is_not_whole_is_an_error(spark, column, value):
    whole = "select '1-1' id, 1L epoch, now() at, 'join' kind, array('a') nodes, array(1L) points"
    events = spark.sql(whole).withColumn(column, F.expr(value))
    with pytest.raises(HistoryError, match="an event is not whole"):
        history_of(events)
