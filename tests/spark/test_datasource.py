"""The live ring as tables and as a stream, from a real Redis with real nodes."""

import json
import time
from contextlib import nullcontext
from datetime import datetime, timezone

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql.types import StructType
from redis import Redis
from redis_hashring import RingNode as OldNode

from hashring import RingNode
from hashring.cli.spark import audit as audit_command
from hashring.core.ring import Ring
from hashring.errors import ConfigError, EventsLost, RedisUnavailable, WrongServer
from hashring.spark.datasource import (
    SCHEMAS,
    HashringDataSource,
    _EventStream,
    live_ring,
    register,
)
from hashring.spark.io.input import read_frame
from hashring.spark.periods.history_from_events import history_of
from hashring.spark.streams.tagging import followed_ring
from hashring.store.embedded_server import RedisServer
from hashring.store.locks.commands import take_away
from hashring.store.redis_store import RedisStore
from hashring.store.ring.key_names import ring_keys
from hashring.store.ring.ring_events import last_and_added
from tests.conftest import PATIENCE, eventually, servers
from tests.spark.conftest import in_a_thread, keep, rows
from tests.spark.test_jobs import run

RING = "fleet [1]*"  # characters that a glob would read otherwise


@pytest.fixture
def redis(redis_server):
    with Redis(unix_socket_path=str(redis_server.socket)) as client:
        yield client


@pytest.fixture
def node(redis):
    """Starts nodes, and stops those that still run."""
    started = []

    def start(name, **options):
        made = RingNode(redis, RING, name=name, **options)
        made.start()
        started.append(made)
        return made

    yield start
    for made in started:
        made.stop()


def log_of_now(folder):
    """A work log of one row."""
    now = [datetime.now(timezone.utc)]
    return keep(folder / "log.parquet", key=["k"], node=["a"], start=now, end=now)


@pytest.fixture
def table(spark, redis_server):
    register(spark)

    def read(name, **options):
        reader = spark.read.format("hashring").options(url=redis_server.url, ring=RING, **options)
        return reader.option("table", name).load()

    return read


def test_replicas_and_nodes_are_those_of_the_ring(spark, redis_server, node, table):
    a = node("a", n_replicas=3)
    node("b", n_replicas=4, weight=0.5)
    found = table("replicas").collect()
    assert len({r.id for r in found}) == 5
    assert not any(r.expired or r.expires_in <= 0 for r in found)
    by_node = {n: [r.point for r in found if r.node == n] for n in ("a", "b")}
    nodes = {r.node: r for r in table("nodes").collect()}
    assert (nodes["a"].replicas, nodes["b"].replicas, nodes["b"].weight) == (3, 2, 0.5)
    assert nodes["a"].hash_algorithm == "crc-32"
    assert json.loads(nodes["a"].told)["pid"]
    ring = live_ring(spark, redis_server.url, RING)
    assert ring == Ring(by_node)
    assert [a.contains(f"k{i}") for i in range(99)] == [
        ring.owner(f"k{i}") == "a" for i in range(99)
    ]


@pytest.mark.parametrize(
    ("name", "value", "read"),
    [("weight", 10**400, None), ("hash_algorithm", "\ud800", "\\ud800")],
    ids=["weight", "algorithm"],
)
def test_what_a_node_tells_and_no_column_holds_ends_no_reading(  # noqa: PLR0917
    redis, node, table, name, value, read
):
    node("a", ttl=900, heartbeat_interval=300)  # a heartbeat would put right what it tells
    (told,) = redis.hgetall(ring_keys(RING).nodes).values()
    head, brace, rest = told.partition(b"{")
    garbage = json.dumps({**json.loads(brace + rest), name: value}).encode()
    redis.hset(ring_keys(RING).nodes, "a", head + garbage)
    assert [r[name] for r in table("nodes").collect()] == [read]


def test_the_hash_algorithm_of_the_nodes_is_the_ring_s(spark, redis_server, node):
    node("a", hash_algorithm="crc-32c")
    assert live_ring(spark, redis_server.url, RING).hash_algorithm.name == "crc-32c"


def test_each_session_of_a_process_may_know_the_data_source(spark):
    def columns():
        sessions = [spark, spark.newSession()]
        for session in sessions:
            spark.createDataFrame([], "x int")  # makes it the active one
            register(session)
        readers = [session.read.format("hashring") for session in sessions]
        options = {"url": "redis://nowhere", "ring": RING}
        return [reader.options(**options).load().columns[0] for reader in readers]

    assert in_a_thread(columns) == ["point", "point"]


def test_a_ring_that_is_read_again_registers_nothing_again(spark, redis_server, node, monkeypatch):
    node("a")
    session = spark.newSession()
    registered = []
    register = type(spark.dataSource).register

    def counted(registration, source):
        registered.append(source)
        register(registration, source)

    monkeypatch.setattr(type(spark.dataSource), "register", counted)

    def nodes():
        return [live_ring(session, redis_server.url, RING).nodes for _ in range(2)]

    assert in_a_thread(nodes) == [("a",)] * 2
    assert len(registered) == 1


@pytest.mark.parametrize("is_there", [True, False])
def test_a_ring_that_changes_as_it_is_read_has_the_hash_algorithm_of_its_nodes(
    spark, redis_server, node, monkeypatch, is_there
):
    if is_there:
        first = node("a", hash_algorithm="jamcrc")
    kind = type(spark.range(1))
    collect = kind.collect

    def then_others_join(frame):
        found = collect(frame)
        monkeypatch.setattr(kind, "collect", collect)
        if is_there:
            first.stop()
        node("b", hash_algorithm="crc-32c")
        return found

    monkeypatch.setattr(kind, "collect", then_others_join)
    found = live_ring(spark, redis_server.url, RING)
    assert (found.nodes, found.hash_algorithm.name) in [((), "crc-32"), (("b",), "crc-32c")]


def test_events_have_a_time_zone_whatever_a_timestamp_is(
    spark, redis_server, node, table, tmp_path
):
    node("a")
    (expected,) = history_of(table("events")).changes
    output = tmp_path / "events"
    table("events").write.json(str(output))
    spark.conf.set("spark.sql.timestampType", "TIMESTAMP_NTZ")
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        assert history_of(table("events")).changes == (expected,)
        exported = read_frame(spark, [str(output)], "json", SCHEMAS["events"]).frame
        assert [change.stamp.at for change in history_of(exported).changes] == [
            expected.stamp.at // 1000 * 1000  # Spark writes milliseconds
        ]
    finally:
        spark.conf.unset("spark.sql.timestampType")
        spark.conf.set("spark.sql.session.timeZone", "UTC")


def test_events_tell_the_history(node, table):
    node("a", n_replicas=2)
    b = node("b", n_replicas=2)
    b.stop()
    events = table("events")
    found = events.orderBy("epoch").collect()
    assert [(r.epoch, r.kind, r.nodes, r.reason) for r in found] == [
        (1, "join", ["a"], "start"),
        (2, "join", ["b"], "start"),
        (3, "leave", ["b"], "stop"),
    ]
    assert [len(r.points) for r in found] == [2, 2, 0]
    history = history_of(events)
    assert [ring.nodes for ring in history.rings()] == [(), ("a",), ("a", "b"), ("a",)]


def test_events_that_are_no_change_are_told_counted_and_no_gap(  # noqa: PLR0917
    spark, redis, redis_server, node, table, tmp_path
):
    a = node("a", lock=True, limit=1, heartbeat_interval=0.1, ttl=PATIENCE)
    assert sum(a.contains(f"key {i}") for i in range(9)) == 1
    eventually(lambda: redis.xlen(ring_keys(RING).events) >= 3, "full and unserved")
    (held,) = [bytes(r.key) for r in table("locks").collect()]
    store = RedisStore(redis, PATIENCE)
    store.run(take_away(ring_keys(RING), key=held, by="somebody"))
    store.close()
    # The first of each kind: the node may have found room since.
    found = {r.kind: r for r in reversed(table("events").orderBy("at", "id").collect())}
    assert (found["full"].nodes, found["full"].epoch) == (["a"], 2)
    assert (found["unserved"].by, found["unserved"].epoch) == ("a", None)
    assert int(found["unserved"].keys) > 0
    assert (found["release"].by, found["release"].keys) == ("somebody", held.decode())

    told = run("audit", "--input", log_of_now(tmp_path), "--url", redis_server.url,
               "--ring", RING)  # fmt: skip
    assert told["rows judged"] == "1"
    for kind in ("join", "full", "unserved", "release"):
        assert int(told[f"events: {kind}"]) >= 1


def test_an_event_whose_id_is_after_the_calendar_is_of_its_last_day(redis, table):
    redis.xadd(ring_keys(RING).events, {"kind": "unserved"}, id=f"{2**63}-0")
    found = table("events").selectExpr("id", "string(at)")
    assert rows(found) == [(f"{2**63}-0", "9999-12-31 00:00:00")]


def test_a_full_node_that_stopped_and_came_back_is_not_full_in_the_history(redis, node, table):
    def full():
        a = node("a", lock=True, limit=1, heartbeat_interval=0.1, ttl=PATIENCE)
        assert sum(a.contains(f"key {i}") for i in range(9)) == 1
        eventually(lambda: redis.sismember(ring_keys(RING).full, "a"), "full")
        return a

    full().stop()
    full().stop()
    node("a")
    history = history_of(table("events"))
    kinds = [change.kind.value for change in history.changes]
    # Each number is that of a version, and of the change that made it.
    assert kinds == ["join", "full", "leave", "join", "full", "leave", "join"]
    assert list(history.full()) == [("a", 2, 3), ("a", 5, 6)]


def log_of_owners(folder, ring):
    """A work log of keys by their owners, who work as of now."""
    keys = [f"k{number}" for number in range(200)]
    now = [datetime.now(timezone.utc)] * len(keys)
    owners = [ring.owner(key) for key in keys]
    return keep(folder / "owners.parquet", key=keys, node=owners, start=now, end=now)


FOREIGN = "work on a key of another node"
ASSUMED = "assumed: no node reports it; to change it, give --hash-algorithm"


def test_an_audit_of_a_live_ring_hashes_as_its_nodes_do(spark, redis_server, node, tmp_path):
    for name in ("a", "b", "c"):
        node(name, hash_algorithm="jamcrc")
    log = log_of_owners(tmp_path, live_ring(spark, redis_server.url, RING))
    live = ("audit", "--input", log, "--url", redis_server.url, "--ring", RING, "--json")
    told = run(*live)
    assert (told["rows judged"], told["worst findings"]) == (200, [])
    assert (told["hash algorithm"], told["hash algorithm from"]) == ("jamcrc", "the nodes")
    told = run(*live, "--hash-algorithm", "crc32")
    assert told[FOREIGN] > 0
    assert (told["hash algorithm"], told["hash algorithm from"]) == ("crc-32", "--hash-algorithm")


@pytest.mark.long
def test_an_audit_of_a_ring_that_all_nodes_have_left_says_what_it_assumes(
    spark, redis_server, node, tmp_path
):
    node("a").stop()
    told = run("audit", "--input", log_of_now(tmp_path), "--url", redis_server.url,
               "--ring", RING)  # fmt: skip
    assert (told["hash algorithm"], told["hash algorithm from"]) == ("crc-32", ASSUMED)


@pytest.mark.long
def test_an_audit_of_nodes_that_do_not_agree_on_the_hash_is_refused_with_a_remedy(
    spark, redis_server, node, tmp_path, monkeypatch
):
    node("a", hash_algorithm="crc-32c")
    node("b", hash_algorithm="jamcrc")
    live = ("audit", "--input", log_of_now(tmp_path), "--url", redis_server.url, "--ring", RING)
    assert run(*live, "--hash-algorithm", "jamcrc")["hash algorithm"] == "jamcrc"
    monkeypatch.setattr(audit_command.Job, "session", None)  # Spark does not start for that
    with pytest.raises(ConfigError, match=r"crc-32c and jamcrc.*give --hash-algorithm to ask"):
        run(*live)


def test_an_audit_of_a_live_ring_is_of_one_moment(spark, redis_server, node, tmp_path, monkeypatch):
    def joins_meanwhile(*given):
        node("b", n_replicas=1)
        return read_input(*given)

    read_input = audit_command.read_input
    monkeypatch.setattr(audit_command, "read_input", joins_meanwhile)
    node("a", n_replicas=1)
    told = run("audit", "--input", log_of_now(tmp_path), "--url", redis_server.url,
               "--ring", RING)  # fmt: skip
    assert (told["ring changes"], told["events: join"]) == ("1", "1")


def test_locks_are_read_with_their_tokens(node, table):
    a = node("a", lock=True)
    keys = [f"key {i}".encode() for i in range(30)]
    assert all(a.contains(key) for key in keys)
    found = {bytes(r.key): r for r in table("locks").collect()}
    assert found.keys() == set(keys)
    assert {r.node for r in found.values()} == {"a"}
    assert all(r.token > 0 and r.expires_in > 0 for r in found.values())


@pytest.mark.parametrize("name", SCHEMAS)
def test_a_server_of_a_cluster_that_does_not_have_the_ring_is_no_ring_without_rows(cluster, name):
    def is_refused(server):
        source = HashringDataSource({"url": server.url, "ring": RING, "table": name})
        try:
            return bool(list(source.reader(StructType()).read(None)))
        except WrongServer:
            return True

    assert sorted(map(is_refused, cluster)) == [False, True, True]


def test_a_ring_that_is_not_there_is_empty(table):
    for name in ("replicas", "nodes", "events", "locks"):
        assert table(name).collect() == []


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"table": "rings", "url": "redis://x", "ring": "r"}, "choose one of replicas, nodes"),
        ({"ring": "r"}, "url=None: missing"),
        ({"url": "redis://x"}, "ring=None: missing"),
        ({"url": "redis://x", "ring": "a{b"}, "braces in a ring's name"),
        (
            {"url": "nonsense://user:secret@x", "ring": "r"},
            r"url='nonsense://user:\*\*\*@x': Redis URL must",
        ),
        (
            {"url": "redis://user:secret#@x", "ring": "r"},
            "in a password as %2F, %3F, %23, %5B and %5D",
        ),
    ],
)
def test_options_that_cannot_be_are_said_before_anything_is_read(options, text):
    with pytest.raises(ConfigError, match=text) as caught:
        HashringDataSource(options).reader(StructType())
    assert "secret" not in str(caught.value)
    with pytest.raises(ConfigError, match=text if options.get("table") is None else "table"):
        HashringDataSource({"table": "events", **options}).simpleStreamReader(StructType())


@pytest.mark.parametrize(
    ("where", "text"),
    [
        (("--url", "http://x"), "url='http://x': Redis URL must specify one of the following"),
        (("--url", "redis://x", "--ring", "a{b"), "braces in a ring's name"),
    ],
)
@pytest.mark.parametrize(
    "command",
    [
        ("stream", "--format", "json", "--output", "out", "--checkpoint", "cp"),
        ("audit", "--format", "json", "--hash-algorithm", "crc-32"),
    ],
)
def test_a_live_ring_that_cannot_be_ends_a_command_before_spark_starts(
    monkeypatch, command, where, text
):
    monkeypatch.setattr(
        "hashring.spark.engine.session.spark_session", lambda *_, **__: pytest.fail("it")
    )
    with pytest.raises(ConfigError, match=text):
        run(*command, "--input", "in", *where)


def test_files_that_the_server_of_spark_has_are_not_looked_for_here():
    followed_ring("rediss://x?ssl_ca_certs=/of/the/server.pem", RING)


def test_an_option_that_cannot_be_is_said_by_spark(spark):
    register(spark)
    reader = spark.read.format("hashring").options(url="nonsense://user:secret@x", ring="r")
    text = r"url='nonsense://user:\*\*\*@x': Redis URL must"
    with pytest.raises(Exception, match=text) as caught:
        reader.load().collect()
    assert "secret" not in str(caught.value)


def test_a_redis_that_is_not_there_is_said(spark, tmp_path):
    register(spark)
    reader = spark.read.format("hashring").options(url=f"unix://{tmp_path}/no", ring="r")
    with pytest.raises(Exception, match="RedisUnavailable"):
        reader.load().collect()


# --- the stream of events ---------------------------------------------------------------------


def finished(start):
    """Run a query to its end, as its operator would on a busy machine.

    Spark gives the Python of a streaming source ten seconds to start, a constant of its
    PythonWorkerFactory. A query that missed them goes on from its checkpoint.
    """
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            start().awaitTermination()
            return
        except StreamingQueryException as error:
            if "failed to connect back" not in str(error) or time.monotonic() > deadline:
                raise


@pytest.fixture
def streamed(spark, redis_server, tmp_path):
    register(spark)

    def once():
        """Let the stream run up to now; all events that it has written so far."""
        stream = spark.readStream.format("hashring").options(
            url=redis_server.url, ring=RING, table="events"
        )
        writer = (
            stream.load()
            .writeStream.format("parquet")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
        )
        finished(lambda: writer.start(str(tmp_path / "events")))
        return spark.read.schema("epoch long, kind string").parquet(str(tmp_path / "events"))

    return once


def test_a_stream_goes_on_where_it_was_and_doubles_nothing(node, streamed):
    node("a")
    b = node("b")
    assert sorted(rows(streamed())) == [(1, "join"), (2, "join")]
    b.stop()
    assert sorted(rows(streamed())) == [(1, "join"), (2, "join"), (3, "leave")]


def test_events_that_the_ring_dropped_meanwhile_are_an_error(redis, node, streamed):
    node("a")
    streamed()
    node("b")
    node("c")
    redis.xtrim(ring_keys(RING).events, maxlen=1, approximate=False)
    with pytest.raises(Exception, match="EventsLost"):
        streamed()


class Told:
    """The stream of events as Spark asks it, on one server: no Spark is needed for that."""

    def __init__(self, server):
        self.url = server.url
        self.client = Redis(unix_socket_path=str(server.socket))
        self.events = ring_keys(RING).events
        self.counts = int(self.client.info("server")["redis_version"].split(".")[0]) >= 7
        self.stream = _EventStream(server.url, RING)
        self.at = self.stream.initialOffset()

    def read(self):
        found, self.at = self.stream.read(self.at)
        return [row[2] for row in found]

    def unserved(self, times=1):
        for _ in range(times):
            self.client.xadd(self.events, {"kind": "unserved", "by": "a", "keys": 1})

    def cut_to(self, left):
        self.client.xtrim(self.events, maxlen=left, approximate=False)


@pytest.fixture(params=sorted(servers()))
def told(request):
    with RedisServer(servers()[request.param]) as server:
        found = Told(server)
        yield found
        found.client.close()


def test_the_first_batch_is_not_replayed_with_fewer_events(told):
    told.unserved(3)
    start = told.at
    assert told.read() == ["unserved"] * 3
    assert len(list(told.stream.readBetweenOffsets(start, told.at))) == 3
    told.cut_to(1)
    with pytest.raises(EventsLost):
        told.stream.readBetweenOffsets(start, told.at)


def test_dropped_events_that_are_no_changes_are_noticed(told):
    told.unserved(2)
    told.read()
    told.unserved(3)
    told.cut_to(2)
    with pytest.raises(EventsLost, match="are gone"):
        told.read()


def test_events_dropped_after_they_were_read_are_no_loss_where_redis_counts(told):
    told.unserved(2)
    told.read()
    told.cut_to(0)
    told.unserved()
    if told.counts:
        assert told.read() == ["unserved"]
    else:
        with pytest.raises(EventsLost):
            told.read()


def test_events_dropped_before_the_first_was_read_are_noticed_once_there_were_none(told):
    assert told.read() == []
    told.unserved(3)
    told.cut_to(2)
    with pytest.raises(EventsLost, match="after 0-0 are gone"):
        told.read()


def test_the_first_events_of_a_ring_that_had_none_are_read(told):
    assert told.read() == told.read() == []
    with RingNode(told.client, RING):
        told.unserved()
    assert told.read() == ["join", "unserved", "leave"]


def read_at_once(told):
    options = {"url": told.url, "ring": RING, "table": "events"}
    return list(HashringDataSource(options).reader(StructType()).read(None))


@pytest.mark.parametrize("read", [Told.read, read_at_once])
def test_events_dropped_between_two_calls_to_redis_are_noticed(told, monkeypatch, read):
    told.unserved(1500)
    oldest = told.client.xrange(told.events, count=1000)[-1][0].decode()
    call = RedisStore.call

    def then_cut(store, command, *more):
        found = call(store, command, *more)
        if command == "XRANGE" and len(found) == 1000:
            told.cut_to(400)
        return found

    monkeypatch.setattr(RedisStore, "call", then_cut)
    with pytest.raises(EventsLost, match=f"after {oldest} are gone .*: read it again"):
        read(told)


def test_a_change_that_is_gone_between_two_others_is_noticed(told):
    with RingNode(told.client, RING), RingNode(told.client, RING):
        told.client.xdel(told.events, told.client.xrange(told.events)[1][0])
    with pytest.raises(EventsLost):
        told.read()


def test_all_events_are_of_one_batch_however_many_they_are(told):
    told.unserved(2001)
    assert len(told.read()) == 2001
    assert told.read() == []


def test_events_that_come_while_the_stream_reads_are_of_the_next_batch(told, monkeypatch):
    told.unserved()

    def then_more(store, keys):
        state = last_and_added(store, keys)
        told.unserved(2)
        return state

    with monkeypatch.context() as patch:
        patch.setattr("hashring.spark.datasource.last_and_added", then_more)
        assert told.read() == ["unserved"]
    # Redis counts them from there on.
    told.cut_to(2)
    if told.counts:
        assert told.read() == ["unserved"] * 2


def test_a_redis_that_came_back_empty_begins_the_events_anew(told):
    with RingNode(told.client, RING, heartbeat_interval=0.1, ttl=PATIENCE):
        assert told.read() == ["join"]
        told.client.flushall()
        eventually(lambda: told.client.exists(told.events), "the node is back")
        assert told.read() == ["join"]
    assert told.read() == ["leave"]
    assert told.read() == []


def test_events_with_ids_before_the_last_that_was_read_are_not_passed_over(told):
    """Redis came back empty, or as of earlier, on a server whose clock is behind."""
    told.unserved(2)
    told.read()
    told.client.flushall()
    assert told.read() == []
    told.client.xadd(told.events, {"kind": "unserved", "by": "a", "keys": 1}, id="5-0")
    with pytest.raises(EventsLost, match=r"are gone \(the oldest left is 5-0\)"):
        told.read()


def test_a_checkpoint_of_another_ring_is_refused(told):
    """Its events would look as if the ring had begun anew, and those before would be left out."""
    with RingNode(told.client, RING):
        told.read()
    start = told.at
    told.read()
    with RingNode(told.client, "other"):
        stream = _EventStream(told.url, "other")
        refusal = r"ring='other': the checkpoint is of ring 'fleet \[1\]\*': give each ring a"
        with pytest.raises(ConfigError, match=refusal):
            stream.read(start)
        with pytest.raises(ConfigError, match=refusal):
            stream.readBetweenOffsets(start, told.at)


def test_a_checkpoint_of_an_older_version_does_not_name_its_ring_and_goes_on(told):
    with RingNode(told.client, RING):
        told.read()
        del told.at["ring"]
        start = told.at
    assert told.read() == ["leave"]
    assert len(list(told.stream.readBetweenOffsets(start, told.at))) == 1
    del told.at["ring"]
    assert len(list(told.stream.readBetweenOffsets(start, told.at))) == 1


def test_only_events_are_a_stream(redis_server):
    for table in SCHEMAS:
        source = HashringDataSource({"url": redis_server.url, "ring": "r", "table": table})
        refusal = pytest.raises(ConfigError, match=r"only events are a stream: use spark\.read")
        with nullcontext() if table == "events" else refusal:
            source.simpleStreamReader(source.schema())


# --- a ring that nodes of redis-hashring are on -----------------------------------------------

WIRE = "redis-hashring"


@pytest.fixture
def old_node(redis):
    """A node of redis-hashring."""
    made = OldNode(redis, RING, n_replicas=4)
    made.start()
    yield made
    made.stop()


def test_a_ring_of_redis_hashring_has_its_nodes_and_its_hash_algorithm(
    spark, redis_server, node, old_node, table
):
    node("new:1", wire=WIRE, n_replicas=3)
    eventually(lambda: old_node.get_node_count() == 2, "the old node sees the new one")
    found = table("replicas", wire=WIRE).collect()
    assert len(found) == 7
    assert all(not r.expired and 0 < r.expires_in <= 60 for r in found)
    nodes = {r.node: r for r in table("nodes", wire=WIRE).collect()}
    (old,) = nodes.keys() - {"new:1"}
    assert nodes[old][1:4] == (4, False, None)
    assert nodes["new:1"][1:4] == (3, False, "xxh32")
    keys = [f"k{number}" for number in range(99)]
    for read in (live_ring, lambda *where, wire: followed_ring(*where[1:], wire=wire)(where[0])):
        ring = read(spark, redis_server.url, RING, wire=WIRE)
        assert ring.hash_algorithm.name == "xxh32"
        owners = [ring.owner(key) for key in keys]
        assert [owner == old for owner in owners] == [old_node.contains(key) for key in keys]
        assert set(owners) == {old, "new:1"}


@pytest.mark.usefixtures("old_node")
def test_a_ring_of_redis_hashring_alone_has_its_hash_algorithm(spark, redis_server):
    ring = live_ring(spark, redis_server.url, RING, WIRE)
    assert (ring.node_count, ring.hash_algorithm.name) == (1, "xxh32")
    # Without the option, its scores look like expiries.
    assert live_ring(spark, redis_server.url, RING).node_count == 0


@pytest.mark.usefixtures("old_node")
def test_locks_of_a_ring_of_redis_hashring_are_the_same(table):
    assert table("locks", wire=WIRE).collect() == []


def test_another_wire_is_refused(spark, redis_server):
    refusal = "wire='other': unknown; leave it out, or say 'redis-hashring'"
    for ask in (
        lambda: followed_ring("redis://x", "r", wire="other"),
        lambda: live_ring(spark, redis_server.url, "r", "other"),
        lambda: HashringDataSource({"url": "redis://x", "ring": "r", "wire": "other"}).reader(None),
    ):
        with pytest.raises(ConfigError, match=refusal):
            ask()


def test_events_of_a_ring_of_redis_hashring_are_refused(tmp_path):
    source = HashringDataSource({"url": "redis://x", "ring": "r", "table": "events", "wire": WIRE})
    for read in (source.reader, source.simpleStreamReader):
        with pytest.raises(ConfigError, match="redis-hashring write no events, so the history has"):
            read(None)


# --- jobs on the live ring --------------------------------------------------------------------


def test_jobs_work_on_the_live_ring(spark, redis_server, node, tmp_path):
    node("a")
    node("b")
    keys = keep(tmp_path / "keys.parquet", key=[str(number) for number in range(100)])
    told = run("load", "--input", keys, "--url", redis_server.url, "--ring", RING)
    assert (told["rows"], told["nodes"]) == ("100", "2")


def test_a_redis_that_is_not_there_is_one_line_on_the_terminal(spark, tmp_path):
    keep(tmp_path / "log.parquet", key=["k"])
    with pytest.raises(RedisUnavailable, match=r"^XRANGE: .*check host, port and that") as caught:
        run("audit", "--input", tmp_path / "log.parquet", "--url", f"unix://{tmp_path}/no",
            "--hash-algorithm", "crc-32")  # fmt: skip
    assert "\n" not in str(caught.value)
