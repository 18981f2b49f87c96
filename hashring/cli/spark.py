"""``hashring spark``: questions about all keys and all logs of a fleet, answered by Spark."""

from __future__ import annotations

import logging
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from pathlib import Path
from traceback import walk_tb
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click
from click.core import ParameterSource

from hashring.cli.export import live_ring
from hashring.cli.output import document
from hashring.cli.settings import Settings, json_option, ring_options
from hashring.cli.signals import held_back, sigterm_unwinds
from hashring.errors import ConfigError, EmptyRingError
from hashring.files import check_new, new_file, read_ring

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from hashring.core.ringfile import RingFile
    from hashring.spark.files import Output
    from hashring.spark.jobs import Outcome

_Command = TypeVar("_Command", bound=Callable[..., Any])


class _SparkGroup(click.Group):
    """Says in a line what Spark says in a hundred."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            with sigterm_unwinds():
                return super().invoke(ctx)
        except Exception as error:
            if not _is_sparks(error):
                raise
            from hashring.spark.failures import failure  # noqa: PLC0415 - Spark is loaded by now

            raise failure(error) from error


def _is_sparks(error: Exception) -> bool:
    names = [type(error).__module__]
    if isinstance(error, OSError):
        # Py4J cannot reach a Java that has ended, and says so with what its socket said.
        names += [frame.f_globals["__name__"] for frame, _ in walk_tb(error.__traceback__)][-1:]
    return any(name.partition(".")[0] in ("pyspark", "py4j") for name in names)


@click.group("spark", cls=_SparkGroup)
def spark_group() -> None:
    """All keys and all logs, on Spark.

    Needs the extra "spark" and Java 17 or 21 (with --remote, no Java here).

    \b
    Examples:
      hashring spark assign --input 'keys/*.parquet' --output owned.parquet --by-owner
      hashring spark load --input keys.csv --key account --report load.html
      hashring spark plan --input keys.parquet --ring-file ring.json --join new-host
      hashring spark simulate --nodes 50 --peak 1.2 --confidence 0.99
    """


command = spark_group


def _options(*decorators: Callable[[Any], Any]) -> Callable[[_Command], _Command]:
    def add(function: _Command) -> _Command:
        for decorator in reversed(decorators):
            function = decorator(function)
        return function

    return add


_session_options = _options(
    click.option("--master", help="A Spark master's URL. Default: all cores of this machine."),
    click.option("--remote", metavar="sc://HOST:PORT", help="A Spark Connect server instead."),
    click.option(
        "--conf", multiple=True, metavar="NAME=VALUE", help="A setting of Spark; may be repeated."
    ),
)
_report_option = click.option(
    "--report", type=click.Path(), help="Write one self-contained HTML page here."
)

_input_options = _options(
    click.option(
        "--input",
        "inputs",
        multiple=True,
        required=True,
        help="Files, directories or globs; may be repeated.",
    ),
    click.option(
        "--format",
        "format_",
        type=click.Choice(["parquet", "csv", "json"]),
        help="Of the input. Default: as its name ends. A CSV has a header line.",
    ),
    click.option(
        "--schema",
        help="Of the input, as Spark DDL: 'key string, w double'. Without it, every column of a "
        "CSV is a string.",
    ),
    click.option("--key", default="key", show_default=True, help="The column of keys."),
)

_output_options = _options(
    click.option("--output", help="A path to write to, which must not exist."),
    click.option("--table", help="A table to write to instead, which must not exist."),
    click.option(
        "--output-format",
        type=click.Choice(["parquet", "csv", "json"]),
        help="Default: as the output's name ends.",
    ),
)

_ring_file_options = _options(
    click.option(
        "--ring-file",
        type=click.Path(),
        help="A ring file (JSON or Parquet). Default: the live ring of --url and --ring.",
    ),
    ring_options(),
)

_NOT_WITH_PEAK: Final = {
    "n_replicas": "--n-replicas",
    "placement": "--placement",
    "limit": "--limit",
    "weights": "--weight",
    "output": "--output",
    "table": "--table",
    "output_format": "--output-format",
}

_weight_option = click.option(
    "--weight", help="A numeric column. Default: each row weighs 1.", metavar="COLUMN"
)
_seed_option = click.option("--seed", type=int, default=0, show_default=True)


@spark_group.command("assign")
@_input_options
@_output_options
@click.option(
    "--by-owner",
    is_flag=True,
    help="A directory owner=<node> for each node, which it can read alone; of host:17 it is "
    "owner=host%3A17.",
)
@_ring_file_options
@_report_option
@_session_options
@click.pass_context
def assign(ctx: click.Context, /, *, by_owner: bool, **options: Any) -> None:
    """Write every row with the point and the owner of its key.

    \b
    Examples:
      hashring spark assign --input 'keys/*.parquet' --output owned.parquet --by-owner
      hashring spark assign --input keys.csv --key account --output owned.csv --ring-file ring.json
    """
    from hashring.spark.jobs import assign_job  # noqa: PLC0415 - optional, loaded when used

    output = _output(options)
    if output is None:
        raise click.UsageError("give --output or --table: where the rows go")
    job = _Job(ctx, options)
    ring = job.ring().ring
    spark = job.session()
    source = _read(spark, options)
    job.finish(assign_job(source, ring, output, key=options["key"], by_owner=by_owner))


@spark_group.command("load")
@_input_options
@_weight_option
@click.option("--hottest", type=click.IntRange(min=1), default=20, show_default=True)
@_output_options
@_ring_file_options
@_report_option
@_session_options
@click.pass_context
def load(ctx: click.Context, /, *, weight: str | None, hottest: int, **options: Any) -> None:
    """Show the load of each node, and the hottest keys.

    The load stands beside the node's fair share.

    \b
    Examples:
      hashring spark load --input keys.csv --key account --report load.html
      hashring spark load --input log.parquet --weight seconds --ring-file ring.json
    """
    from hashring.spark.jobs import load_job  # noqa: PLC0415 - as above

    output = _output(options)
    job = _Job(ctx, options)
    ring = job.ring().ring
    source = _read(job.session(), options)
    job.finish(load_job(source, ring, output, key=options["key"], weight=weight, hottest=hottest))


@spark_group.command("plan")
@_input_options
@_weight_option
@click.option("--join", multiple=True, metavar="NODE", help="A node that joins; may be repeated.")
@click.option("--leave", multiple=True, metavar="NODE", help="A node that leaves; may be repeated.")
@click.option(
    "--reweigh",
    multiple=True,
    metavar="NODE=WEIGHT",
    help="A node's new weight, joining or there already; may be repeated.",
)
@click.option("--n-replicas", type=int, default=16, show_default=True, help="Points of weight 1.")
@click.option(
    "--placement",
    type=click.Choice(["random", "balanced"]),
    default="random",
    show_default=True,
    help="Where joining nodes put their points.",
)
@_seed_option
@_output_options
@_ring_file_options
@_report_option
@_session_options
@click.pass_context
def plan(
    ctx: click.Context,
    /,
    *,
    weight: str | None,
    join: tuple[str, ...],
    leave: tuple[str, ...],
    reweigh: tuple[str, ...],
    n_replicas: int,
    placement: str,
    seed: int,
    **options: Any,
) -> None:
    """Show what moves if nodes join, leave or change weight.

    From whom, to whom, and how much more than has to.

    \b
    Examples:
      hashring spark plan --input keys.parquet --ring-file ring.json --join new-host
      hashring spark plan --input keys.parquet --leave host-2 --reweigh host-1=2
    """
    from hashring.spark.jobs import plan_job  # noqa: PLC0415 - as above
    from hashring.spark.plan import planned_ring  # noqa: PLC0415 - as above

    weights = dict(_weight(text) for text in reweigh)
    if not (join or leave or weights):
        raise click.UsageError("nothing to plan: give --join, --leave or --reweigh")
    change: dict[str, Any] = {
        "join": join,
        "leave": leave,
        "weights": weights,
        "n_replicas": n_replicas,
        "placement": placement,
        "seed": seed,
    }
    output = _output(options)
    job = _Job(ctx, options)
    ring = job.ring().ring
    try:
        planned_ring(ring, **change)  # an unknown node is said before Spark starts
    except EmptyRingError as error:
        raise EmptyRingError(f"--leave {' --leave '.join(leave)}: {error}") from error
    source = _read(job.session(), options)
    job.finish(plan_job(source, ring, output, key=options["key"], weight=weight, **change))


@spark_group.command("audit")
@_input_options
@click.option("--node", default="node", show_default=True, help="The column of nodes.")
@click.option("--start", default="start", show_default=True, help="The column of starts.")
@click.option("--end", default="end", show_default=True, help="The column of ends.")
@click.option(
    "--events",
    multiple=True,
    help="Exported events of the ring (Parquet or JSON). Default: the live ring's.",
)
@click.option(
    "--base",
    type=click.Path(),
    help="The ring file from before the events, when they do not begin with the ring.",
)
@click.option(
    "--hash-algorithm",
    default="crc-32",
    show_default=True,
    help="The ring's, when no --base tells it.",
)
@_output_options
@ring_options()
@_report_option
@_session_options
@click.pass_context
def audit(
    ctx: click.Context,
    /,
    *,
    node: str,
    start: str,
    end: str,
    events: tuple[str, ...],
    base: str | None,
    hash_algorithm: str,
    **options: Any,
) -> None:
    """Hold a work log against the ring's history.

    Who worked on what they did not own, and who worked at the same time as another?

    \b
    Examples:
      hashring spark audit --input work.parquet --url redis://redis.internal:6379/0 --ring accounts
      hashring spark audit --input work.parquet --events events.parquet --base ring.json
    """
    from hashring.spark.asof import history_of  # noqa: PLC0415 - as above
    from hashring.spark.files import format_of, read_frame  # noqa: PLC0415 - as above
    from hashring.spark.jobs import audit_job  # noqa: PLC0415 - as above

    output = _output(options)
    job = _Job(ctx, options)
    base_ring = read_ring(base) if base else None
    if events and format_of(events, None) == "csv":
        raise ConfigError("events", list(events), "a CSV holds no lists: give Parquet or JSON")
    spark = job.session()
    if events:
        schema = None if all(".parquet" in path for path in events) else EVENTS_SCHEMA
        told = read_frame(spark, events, schema=schema).frame
    else:
        told = job.table("events")
    history = history_of(told, base_ring, hash_algorithm)
    source = _read(spark, options)
    job.finish(
        audit_job(
            source,
            history,
            output,
            events=told,
            key=options["key"],
            node=node,
            start=start,
            end=end,
        )
    )


EVENTS_SCHEMA = (
    "id string, at timestamp, kind string, by string, epoch long, nodes array<string>, "
    "points array<long>, reason string, tag string, prev string, keys string"
)
"""Of exported events, as the table ``events`` has it."""


@spark_group.command("simulate")
@click.option(
    "--nodes",
    type=click.IntRange(min=2),
    multiple=True,
    default=(10, 100),
    show_default=True,
    help="How many nodes; may be repeated.",
)
@click.option(
    "--n-replicas",
    type=click.IntRange(min=1),
    multiple=True,
    default=(16, 64, 128, 512),
    show_default=True,
    help="Points of a node; may be repeated.",
)
@click.option(
    "--placement",
    type=click.Choice(["random", "balanced"]),
    multiple=True,
    default=("random",),
    show_default=True,
    help="May be repeated. Balanced rings take some hundred times as long.",
)
@click.option("--limit", type=float, multiple=True, help="Times the fair share; may be repeated.")
@click.option(
    "--weight",
    "weights",
    type=float,
    multiple=True,
    help="Weights given to the nodes in turn; may be repeated.",
)
@click.option("--rings", type=click.IntRange(min=1), default=1000, show_default=True)
@click.option(
    "--peak",
    type=float,
    help="Instead: how many replicas keep the peak-to-mean at this or below? Found by the "
    "distribution of shares, and tried on --rings drawn rings.",
)
@click.option("--confidence", type=float, default=0.99, show_default=True, help="With --peak.")
@_seed_option
@_output_options
@json_option()
@_report_option
@_session_options
@click.pass_context
def simulate(
    ctx: click.Context,
    /,
    *,
    nodes: tuple[int, ...],
    n_replicas: tuple[int, ...],
    placement: tuple[str, ...],
    limit: tuple[float, ...],
    weights: tuple[float, ...],
    rings: int,
    peak: float | None,
    confidence: float,
    seed: int,
    **options: Any,
) -> None:
    """Draw random rings, and show balance and movement.

    How replicas, placement and limits trade one against the other.

    \b
    Examples:
      hashring spark simulate --nodes 50 --n-replicas 16 --n-replicas 128
      hashring spark simulate --nodes 50 --peak 1.2 --confidence 0.99
    """
    from hashring.spark.jobs import replicas_job, simulate_job  # noqa: PLC0415 - as above
    from hashring.spark.simulate import replicas_for, scenarios  # noqa: PLC0415 - as above

    job = _Job(ctx, options)
    if peak is not None:
        if len(nodes) != 1:
            raise click.UsageError("--peak asks about one number of --nodes")
        given = [
            option
            for name, option in _NOT_WITH_PEAK.items()
            if ctx.get_parameter_source(name) is not ParameterSource.DEFAULT
        ]
        if given:
            raise click.UsageError(
                "--peak asks about equal nodes with random points, and is answered with a number: "
                f"leave out {', '.join(given)}"
            )
        answer = replicas_for(nodes[0], peak, confidence, seed=seed)  # said before Spark starts
        spark = job.session()
        job.finish(replicas_job(spark, answer, nodes[0], peak, confidence, rings=rings, seed=seed))
        return
    kinds = scenarios(nodes, n_replicas, placement, weights or (1.0,), limit or (None,))
    output = _output(options)
    job.finish(simulate_job(job.session(), kinds, output, rings=rings, seed=seed))


@spark_group.command("stream")
@_input_options
@click.option("--output", required=True, help="A directory; each batch goes to one in it.")
@click.option("--checkpoint", required=True, help="Where Spark keeps its place in the input.")
@click.option(
    "--interval",
    help="Time between batches, such as '10 seconds', until Ctrl-C. Default: what there is now, "
    "and then the end.",
)
@click.option(
    "--refresh",
    type=click.FloatRange(min=0),
    default=1.0,
    show_default=True,
    help="Seconds until the live ring is read anew.",
)
@_ring_file_options
@_session_options
@click.pass_context
def stream(
    ctx: click.Context,
    /,
    *,
    output: str,
    checkpoint: str,
    interval: str | None,
    refresh: float,
    **options: Any,
) -> None:
    """Tag rows with their owner, while the ring changes.

    Rows are tagged as they come. Stopped or killed and started again with the same checkpoint, it
    neither loses nor doubles a row.

    \b
    Examples:
      hashring spark stream --input incoming --format json --schema 'key string' \\
          --output tagged --checkpoint state --url redis://redis.internal:6379/0
      hashring spark stream --input incoming --format csv --schema 'key string' \\
          --output tagged --checkpoint state --ring-file ring.json --interval '10 seconds'
    """
    from hashring.spark.files import read_stream  # noqa: PLC0415 - as above
    from hashring.spark.stream import fixed_ring, followed_ring, tag_stream  # noqa: PLC0415

    job = _Job(ctx, options)
    settings = ctx.ensure_object(Settings)
    if options["ring_file"]:
        ring = fixed_ring(job.ring().ring)
    elif settings.url is None:
        raise click.UsageError("give --url or --ring-file: Spark's workers need to find Redis")
    else:
        ring = followed_ring(settings.url, settings.ring, refresh)
    spark = job.session()
    rows = read_stream(spark, options["inputs"], options["format_"], options["schema"])
    query = tag_stream(rows, ring, output, checkpoint, key=options["key"], interval=interval)
    try:
        query.awaitTermination()
    except KeyboardInterrupt:
        pass  # the way to end it
    finally:
        # Java may be gone before us, or asked something at this moment.
        with suppress(Exception):
            query.stop()
    batches = query.recentProgress
    rows_seen = sum(batch.numInputRows for batch in batches)
    if settings.json:
        document({"batches": len(batches), "rows": rows_seen})
    else:
        click.echo(f"rows of the last {len(batches)} batches  {rows_seen:,}")


# --- what the commands share ------------------------------------------------------------------


class _Job:
    """The session, the ring and the report of one command."""

    def __init__(self, ctx: click.Context, options: dict[str, Any]) -> None:
        self._settings = ctx.ensure_object(Settings)
        self._options = options
        self._report = options.get("report")  # a stream has none
        if self._report:
            check_new(self._report)

    def session(self) -> SparkSession:
        from hashring.spark.session import spark_session  # noqa: PLC0415 - as above

        conf = dict(_setting(text) for text in self._options["conf"])
        logging.getLogger().addFilter(_is_not_py4j)
        # What these log, in JSON or with a traceback, comes as an exception, too.
        for name in ("py4j", "DataFrameQueryContextLogger"):
            logging.getLogger(name).setLevel(logging.CRITICAL)
        # A Java that PySpark has started and not yet met would go on without it.
        with nullcontext() if self._options["remote"] else held_back():
            found = spark_session(
                self._options["master"],
                self._options["remote"],
                conf,
                progress=sys.stderr.isatty(),
            )
        # PySpark's own handler asks Java to cancel what runs, in the middle of another question to
        # it, and fails. What is to be cancelled is where the output is taken away.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        return found

    def ring(self) -> RingFile:
        """The ring to work with.

        Raises:
            EmptyRingError: it has no nodes.
        """
        path = self._options["ring_file"]
        if path is None:
            return live_ring(self._settings)
        found = read_ring(path)
        if not found.ring.node_count:
            raise EmptyRingError(f"the ring of {path} has no nodes: export one that has")
        return found

    def table(self, name: str) -> DataFrame:
        """A table of the live ring, read through the data source."""
        from hashring.spark.datasource import register  # noqa: PLC0415 - as above

        if self._settings.url is None:
            raise click.UsageError("give --url, or files: Spark's workers need to find Redis")
        spark = self.session()
        register(spark)
        return (
            spark.read.format("hashring")
            .option("url", self._settings.url)
            .option("ring", self._settings.ring)
            .option("table", name)
            .load()
        )

    def finish(self, outcome: Outcome) -> None:
        """Show the summary, and write the report."""
        facts = list(outcome.facts)
        if self._report:
            with new_file(self._report) as aside:
                aside.write_text(outcome.report.html(), encoding="utf-8")
            facts.append(("report", self._report))
        self._show(facts)

    def _show(self, facts: Sequence[tuple[str, Any]]) -> None:
        if self._settings.json:
            document(dict(facts))
            return
        width = max(len(name) for name, _ in facts)
        for name, value in facts:
            click.echo(f"{name.rjust(width)}  {_shown(value)}")


def _is_not_py4j(record: logging.LogRecord) -> bool:
    """False for the tracebacks that it logs when it is interrupted."""
    return Path(record.pathname).parent.name != "py4j"


def _shown(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.0f}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _read(spark: SparkSession, options: dict[str, Any]) -> Any:
    from hashring.spark.files import read_frame  # noqa: PLC0415 - as above

    return read_frame(spark, options["inputs"], options["format_"], options["schema"])


def _output(options: dict[str, Any]) -> Output | None:
    from hashring.spark.files import Output  # noqa: PLC0415 - as above

    path, table = options["output"], options["table"]
    if path is None and table is None:
        return None
    return Output(path, options["output_format"], table)


def _weight(text: str) -> tuple[str, float]:
    # A node's name may hold an equals sign; a weight does not.
    name, _, weight = text.rpartition("=")
    try:
        return name, float(weight)
    except ValueError:
        raise click.UsageError(f"--reweigh {text}: give NODE=WEIGHT, such as host:1=2") from None


def _setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise click.UsageError(f"--conf {text}: give NAME=VALUE")
    return name, value
