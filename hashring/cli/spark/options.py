"""Options that several commands on Spark have."""

from __future__ import annotations

from typing import Final

import click

from hashring.cli.common_options import combined, ring_options


def name_and_value(option: str, text: str) -> tuple[str, str]:
    """The two parts of an option's ``NAME=VALUE``.

    Raises:
        UsageError: it is none.
    """
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise click.UsageError(f"{option} {text}: give NAME=VALUE")
    return name, value


session_options = combined(
    click.option("--master", help="A Spark master's URL. Default: all cores of this machine."),
    click.option("--remote", metavar="sc://HOST:PORT", help="A Spark Connect server instead."),
    click.option(
        "--conf", multiple=True, metavar="NAME=VALUE", help="A setting of Spark; may be repeated."
    ),
    click.option(
        "--spark-log",
        type=click.Path(dir_okay=False, writable=True),
        help="Append what Spark's own process prints to this file. Default: it is shown only when "
        "Spark does not start.",
    ),
    click.pass_context,
)
job_options = combined(
    click.option("--report", type=click.Path(), help="Write one self-contained HTML page here."),
    session_options,
)
"""With these a command gets the context, for its :class:`hashring.cli.spark.job.Job`."""

input_options = combined(
    click.option(
        "--input",
        "inputs",
        multiple=True,
        help="Files, directories or globs; may be repeated.",
    ),
    click.option(
        "--format",
        "format_",
        help="Of the input: parquet, csv (with a header line), json, or any that the session can "
        "read, such as orc. Default: as its name ends.",
    ),
    click.option(
        "--schema",
        help="Of the input, as Spark DDL: 'key string, w double'. Without it, every column of a "
        "CSV is a string.",
    ),
    click.option("--key", default="key", show_default=True, help="The column of keys."),
)

input_option_option = click.option(
    "--input-option",
    "input_options",
    multiple=True,
    metavar="NAME=VALUE",
    help="An option of the input's format, such as sep=;; may be repeated.",
)
source_options = combined(
    input_options,
    click.option(
        "--input-table", help="A table or view of the session's catalogs, instead of --input."
    ),
    input_option_option,
)

output_options = combined(
    click.option("--output", help="A path to write to."),
    click.option("--table", help="A table to write to instead."),
    click.option(
        "--mode",
        type=click.Choice(["error", "append", "overwrite"]),
        default="error",
        show_default=True,
        help="What to do with an output that exists; overwrite replaces all its rows.",
    ),
    click.option(
        "--option",
        "options_",
        multiple=True,
        metavar="NAME=VALUE",
        help="An option of the output's format, such as compression=zstd; may be repeated.",
    ),
    click.option(
        "--output-format",
        help="parquet, csv, json, or any that the session can write. Default: as the output's name "
        "ends; of a table, as Spark is set up.",
    ),
)

LIVE_RING: Final = ("url", "ring", "wire")
"""The parameters that say which live ring."""

ring_file_options = combined(
    click.option(
        "--ring-file",
        type=click.Path(),
        help="A ring file (JSON or Parquet). Default: the live ring of --url and --ring.",
    ),
    ring_options(),
)
weight_option = click.option(
    "--weight", help="A numeric column. Default: each row weighs 1.", metavar="COLUMN"
)
histogram_option = click.option(
    "--histogram",
    help="Parquet of hashring spark histogram, to answer by instead of --input. With --input, rows "
    "in buckets where the owner changes are counted again.",
)
answer_options = combined(
    click.option(
        "--top",
        type=click.IntRange(min=1),
        default=20,
        show_default=True,
        help="Rows of each table; the others are summed.",
    ),
    click.option("--all", "all_", is_flag=True, help="All rows of each table."),
)
seed_option = click.option("--seed", type=int, default=0, show_default=True)
