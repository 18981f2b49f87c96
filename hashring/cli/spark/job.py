"""What the commands on Spark share: the session, the ring, input and output, and the answer."""

from __future__ import annotations

import logging
import signal
import sys
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hashring.atomic_writes import check_new, new_file
from hashring.cli.common_options import Settings
from hashring.cli.export import live_ring
from hashring.cli.output import document
from hashring.cli.signals import held_back
from hashring.cli.spark.terminal_answer import shown, table_lines
from hashring.errors import ConfigError, EmptyRingError
from hashring.files import read_ring

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from hashring.core.ring_file import RingFile
    from hashring.spark.outcome import Outcome
    from hashring.spark.output import Output


class Job:
    """The session, the ring and the report of one command."""

    def __init__(self, ctx: click.Context, options: dict[str, Any]) -> None:
        self._settings = ctx.ensure_object(Settings)
        self._options = options
        self._report = options.get("report")  # a stream has none
        if self._report:
            check_new(self._report)

    def session(self) -> SparkSession:
        """The session to work in, with Spark's own log kept from the terminal."""
        from hashring.spark.input import format_of  # noqa: PLC0415 - optional, loaded when used
        from hashring.spark.session import spark_session  # noqa: PLC0415

        if "inputs" in self._options:
            if bool(self._options["inputs"]) == bool(self._options.get("input_table")):
                other = ", or a table of Spark with --input-table"
                raise click.UsageError(f"give --input{other * ('input_table' in self._options)}")
            if self._options["inputs"]:
                format_of(self._options["inputs"], self._options["format_"])
        conf = dict(_setting("--conf", text) for text in self._options["conf"])
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
                log=self._options["spark_log"],
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
        """Show the answer, and write the report."""
        facts = list(outcome.facts)
        if self._report:
            with new_file(self._report) as aside:
                aside.write_text(outcome.report.html(), encoding="utf-8")
            facts.append(("report", self._report))
        if self._settings.json:
            document({**dict(facts), **{table.title: table.records() for table in outcome.tables}})
            return
        width = max(len(name) for name, _ in facts)
        for name, value in facts:
            click.echo(f"{name.rjust(width)}  {shown(value)}")
        top = None if self._options.get("all_") else self._options.get("top")
        for table in outcome.tables:
            for line in table_lines(table, top):
                click.echo(line)


def _is_not_py4j(record: logging.LogRecord) -> bool:
    """False for the tracebacks that it logs when it is interrupted."""
    return Path(record.pathname).parent.name != "py4j"


def read_input(spark: SparkSession, options: dict[str, Any]) -> Any:
    """What ``--input`` names, read as ``--format`` and ``--schema`` say; or ``--input-table``."""
    from hashring.spark.input import read_frame, read_table  # noqa: PLC0415 - as above

    if options["input_table"]:
        return read_table(spark, options["input_table"])
    more = dict(_setting("--input-option", text) for text in options["input_options"])
    return read_frame(spark, options["inputs"], options["format_"], options["schema"], more)


def output_of(options: dict[str, Any], default: str | None = None) -> Output | None:
    """What ``--output`` or ``--table`` names, if either was given.

    Args:
        default: the format of files whose name does not say.

    Raises:
        ConfigError: the format of files is not known.
    """
    from hashring.spark.output import Output  # noqa: PLC0415 - as above

    path, table = options["output"], options["table"]
    if path is None and table is None:
        return None
    more = dict(_setting("--option", text) for text in options["options_"])
    output = Output(path, options["output_format"], table, options["mode"], more)
    try:
        output.check_format()
    except ConfigError:
        if default is None:
            raise
        output = replace(output, format=default)
    return output


def _setting(option: str, text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise click.UsageError(f"{option} {text}: give NAME=VALUE")
    return name, value
