"""What a command on Spark works on, as its options name it: rows, and a ring."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from hashring.cli.common_options import Settings
from hashring.cli.given_options import refuse
from hashring.cli.live_ring import live_algorithm, live_ring
from hashring.cli.spark.options import LIVE_RING, name_and_value
from hashring.core.hashing import hash_algorithm
from hashring.errors import EmptyRingError
from hashring.ring_files import read_ring
from hashring.store.ring.node_reports import DEFAULT_ALGORITHM

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from hashring.core.ring_json import RingFile


def check_input(options: dict[str, Any]) -> None:
    """Check that the options name an input whose format is known, if the command reads one.

    With a histogram, there may be none.

    Raises:
        UsageError: there is none, or files and a table.
        ConfigError: the format of files is not known.
    """
    from hashring.spark.io.file_formats import format_of  # noqa: PLC0415 - optional, loaded when used

    if "inputs" not in options:
        return
    given = bool(options["inputs"]) + bool(options.get("input_table"))
    how = options["format_"] or options["schema"] or options["input_options"]
    if not given and options.get("histogram") and not how:
        return
    if given != 1:
        other = ", or a table of Spark with --input-table"
        alone = ", or --histogram without --format, --schema and --input-option"
        raise click.UsageError(
            f"give --input{other * ('input_table' in options)}{alone * ('histogram' in options)}"
        )
    if options["inputs"]:
        format_of(options["inputs"], options["format_"])


def read_input(spark: SparkSession, options: dict[str, Any]) -> Any:
    """What ``--input`` names, read as ``--format`` and ``--schema`` say; or ``--input-table``.

    ``None`` if there is neither: :func:`check_input` has seen a histogram instead.
    """
    from hashring.spark.io.input import read_frame, read_table  # noqa: PLC0415 - as above

    if not options["inputs"] and not options["input_table"]:
        return None
    if options["input_table"]:
        return read_table(spark, options["input_table"])
    return read_frame(
        spark,
        options["inputs"],
        options["format_"],
        options["schema"],
        format_options(options),
        key=options["key"],
    )


def read_histogram(spark: SparkSession, options: dict[str, Any]) -> Any:
    """What ``--histogram`` names, or ``None``."""
    from hashring.spark.io.input import read_frame  # noqa: PLC0415 - as above

    path = options["histogram"]
    return read_frame(spark, [path], "parquet") if path else None


def format_options(options: dict[str, Any]) -> dict[str, str]:
    """The names and values of ``--input-option``.

    Raises:
        UsageError: one is not a name and a value.
    """
    return dict(name_and_value("--input-option", text) for text in options["input_options"])


def check_events(settings: Settings, files: tuple[str, ...]) -> None:
    """Check that there are events to read.

    Raises:
        UsageError: neither files nor the URL of a Redis.
        ConfigError: the live ring cannot be.
    """
    from hashring.spark.datasource import check_where  # noqa: PLC0415 - as above

    if files:
        return
    if settings.url is None:
        raise click.UsageError("give --url, or files: Spark's workers need to find Redis")
    check_where(settings.url, settings.ring)


def history_algorithm(
    settings: Settings, files: tuple[str, ...], base: RingFile | None, wanted: str | None
) -> tuple[str, str]:
    """The hash algorithm of a history, and where it comes from: no event has it.

    Args:
        files: of events; without them they are the live ring's, whose nodes report it.
        base: the ring before the events.
        wanted: the name that the user gave.

    Raises:
        ConfigError: the nodes do not agree, or there is no such algorithm.
        StoreError: the live ring could not be read.
    """
    if base is not None:
        return base.ring.hash_algorithm.name, "--base"
    if wanted is not None:
        return hash_algorithm(wanted).name, "--hash-algorithm"
    name, why = DEFAULT_ALGORITHM, "events do not have it"
    if not files:
        name, is_reported = live_algorithm(settings)
        if is_reported:
            return name, "the nodes"
        why = "no node reports it"
    return name, f"assumed: {why}; to change it, give --hash-algorithm"


def read_events(spark: SparkSession, settings: Settings, files: tuple[str, ...]) -> DataFrame:
    """The exported events in these files; without files, those of the live ring.

    Raises:
        InputDamaged: a file holds a record that is no event, such as one that is cut short.
    """
    from hashring.spark.datasource import SCHEMAS, register  # noqa: PLC0415 - as above
    from hashring.spark.io.file_formats import WHOLE  # noqa: PLC0415
    from hashring.spark.io.input import read_frame  # noqa: PLC0415

    if files:
        schema = None if all(".parquet" in path for path in files) else SCHEMAS["events"]
        # An event that is there twice counts once.
        found = read_frame(spark, files, schema=schema, options=WHOLE, may_repeat=True)
        return found.whole()
    register(spark)
    return (
        spark.read.format("hashring")
        .option("url", settings.url)
        .option("ring", settings.ring)
        .option("table", "events")
        .load()
    )


def ring_of(settings: Settings, options: dict[str, Any]) -> RingFile:
    """The ring of ``--ring-file``; without it, the live ring.

    Raises:
        EmptyRingError: it has no nodes.
        UsageError: the command also has an option of the live ring.
    """
    path = options["ring_file"]
    if path is None:
        return live_ring(settings)
    refuse(click.get_current_context(), *LIVE_RING, why="the ring is in --ring-file: leave out one")
    found = read_ring(path)
    if not found.ring.node_count:
        raise EmptyRingError(f"the ring of {path} has no nodes: export one that has")
    return found
