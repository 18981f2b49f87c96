"""What the commands on Spark share: the session, the output, and the answer."""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from hashring.atomic_writes import check_new, new_file
from hashring.cli.common_options import Settings
from hashring.cli.given_options import given, refuse
from hashring.cli.output import document
from hashring.cli.spark.inputs import check_input
from hashring.cli.spark.options import name_and_value
from hashring.cli.spark.signals_between_calls import signals_between_calls
from hashring.cli.spark.terminal_answer import shown, table_lines
from hashring.core.safe_text import printable
from hashring.errors import ConfigError, HashringError
from hashring.held_signals import held_back

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from hashring.spark.io.output import Output
    from hashring.spark.jobs.outcome import Outcome, Table

_OF_FILES: Final = ("format_", "schema", "input_options")
_OF_OUTPUT: Final = ("mode", "options_", "output_format")
_READ: Final = {"inputs": "input", "histogram": "histogram", "events": "events"}
"""The parameters of paths that Spark reads, and what errors call them."""
_FILES: Final = ("ring_file", "base", "report", "spark_log")
"""The parameters of files that a command reads or writes itself."""


class Job:
    """The session and the report of one command.

    Attributes:
        let_signals_in: lets in a signal that waits for the end of a call to a Spark Connect server.
    """

    def __init__(self, ctx: click.Context, options: dict[str, Any]) -> None:
        """Check what can be checked without Spark.

        Raises:
            UsageError: an option would have no effect.
            OutputExists, OutputRefused: the report cannot be made.
        """
        _check_not_empty(ctx)
        _check_effective(ctx)
        self._ctx = ctx
        self.let_signals_in: Callable[[], None] = lambda: None
        self._settings = ctx.ensure_object(Settings)
        self._options = options
        self._report = options.get("report")  # a stream has none
        if self._report:
            check_new(self._report)

    def session(self) -> SparkSession:
        """The session to work in, with Spark's own log kept from the terminal."""
        from hashring.spark.engine.session import (  # noqa: PLC0415
            is_connect,
            running_session,
            spark_session,
        )
        from hashring.spark.io.catalog_tables import check_outlives  # noqa: PLC0415 - an extra

        check_input(self._options)
        remote = self._options["remote"] or os.environ.get("SPARK_REMOTE")
        is_new = remote is None and running_session() is None
        conf = dict(name_and_value("--conf", text) for text in self._options["conf"])
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
        if is_connect(found):
            self.let_signals_in = self._ctx.with_resource(signals_between_calls(found))
        table = self._options.get("table")
        if table is not None and is_new:
            check_outlives(found, table)
        return found

    def finish(self, outcome: Outcome) -> None:
        """Show the answer, and write the report."""
        facts = list(outcome.facts)
        try:
            if self._report:
                with new_file(self._report) as aside:
                    aside.write_text(outcome.report.html(), encoding="utf-8")
                facts.append(("report", self._report))
        except HashringError:
            # The answer may have taken hours.
            self._show(facts, outcome.tables)
            raise
        self._show(facts, outcome.tables)

    def _show(self, facts: list[tuple[str, Any]], tables: Sequence[Table]) -> None:
        if self._settings.json:
            document({**dict(facts), **{table.title: table.records() for table in tables}})
            return
        facts = [(printable(name), value) for name, value in facts]
        width = max(len(name) for name, _ in facts)
        for name, value in facts:
            click.echo(f"{name.rjust(width)}  {shown(value)}")
        top = None if self._options.get("all_") else self._options.get("top")
        for table in tables:
            for line in table_lines(table, top):
                click.echo(line)


def _check_not_empty(ctx: click.Context) -> None:
    """Raise ``BadParameter`` for an empty text, such as of a variable of the shell that is not set.

    As a path it would be the working directory, and other options would be as if left out.
    """
    for param in ctx.command.params:
        found = ctx.params.get(str(param.name))
        if "" in (found if isinstance(found, tuple) else (found,)):
            why = "it is empty: is a variable of the shell not set?"
            raise click.BadParameter(why, ctx=ctx, param=param)


def _check_effective(ctx: click.Context) -> None:
    """Check the options that most commands have.

    Raises:
        UsageError: one of them would have no effect.
    """
    if given(ctx, "input_table"):
        refuse(
            ctx,
            *_OF_FILES,
            why="a table has its own format and columns: leave this out, or read files with "
            "--input",
        )
    if given(ctx, "histogram") and not given(ctx, "inputs", "input_table"):
        refuse(
            ctx, "key", why="a histogram has its own keys: leave this out, or read rows by --input"
        )
    if not given(ctx, "output", "table"):
        refuse(
            ctx, *_OF_OUTPUT, why="nothing is written: add --output or --table, or leave this out"
        )
    if given(ctx, "remote"):
        refuse(
            ctx,
            "spark_log",
            why="with --remote Spark runs elsewhere, and its server has the log: leave this out",
        )
    if given(ctx, "all_"):
        refuse(ctx, "top", why="--all prints every row: leave out one of the two")


def _is_not_py4j(record: logging.LogRecord) -> bool:
    """False for the tracebacks that it logs when it is interrupted."""
    return Path(record.pathname).parent.name != "py4j"


def output_of(options: dict[str, Any], default: str | None = None) -> Output | None:
    """What ``--output`` or ``--table`` names, if either was given.

    Args:
        default: the format of files whose name does not say.

    Raises:
        ConfigError: the format of files is not known, or an option does not fit it.
    """
    from hashring.spark.io.output import Output  # noqa: PLC0415 - as above

    path, table = options["output"], options["table"]
    if path is None and table is None:
        return None
    more = dict(name_and_value("--option", text) for text in options["options_"])
    used = _used(click.get_current_context().params)
    output = Output(path, options["output_format"], table, options["mode"], more, used)
    try:
        output.format_of_files()
    except ConfigError:
        if default is None:
            raise
        output = replace(output, format=default)
    output.check_options()
    return output


def _used(params: dict[str, Any]) -> dict[str, list[str | Path]]:
    """What a command reads and writes beside its output, by the names of its parameters."""
    found: dict[str, list[str | Path]] = {}
    for param, name in _READ.items():
        if paths := params.get(param):
            found[name] = [paths] if isinstance(paths, str) else list(paths)
    for name in _FILES:
        if path := params.get(name):
            found[name] = [Path(path)]
    return found
