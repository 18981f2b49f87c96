"""``hashring export``: the ring as a file."""

from __future__ import annotations

import click

from hashring.cli.common_options import NewPath, Settings, ring_options
from hashring.cli.live_ring import live_ring
from hashring.cli.output import json_line
from hashring.core.readable_numbers import counted
from hashring.core.ring_json import dump_ring
from hashring.ring_files import write_ring


@click.command("export")
@click.argument("file", type=NewPath(allow_dash=True))
@click.option(
    "--hash-algorithm",
    "algorithm",
    metavar="NAME",
    help="The hash algorithm from key to point, if no node reports one.",
)
@ring_options()
@click.pass_obj
def command(settings: Settings, file: str, algorithm: str | None) -> None:
    """Write the ring to a file, for programs without a Redis.

    As it is at this moment, without what has expired. The file is JSON, or Parquet when its name
    ends in .parquet (needs the extra "spark"); with - the JSON goes to standard output. It carries
    its version and the ring's fingerprint, so a file that was cut short or edited is refused when
    it is read. A file that exists is not touched.

    \b
    Examples:
      hashring export ring.json
      hashring --url redis://redis.internal:6379/0 --ring accounts export accounts.parquet
      hashring export - | jq .epoch
    """
    found = live_ring(settings, algorithm)
    if file == "-":
        click.echo(dump_ring(found), nl=False)
        return
    write_ring(found, file)
    told = {
        "file": file,
        "ring": found.name,
        "nodes": found.ring.node_count,
        "replicas": len(found.ring),
        "hash_algorithm": found.ring.hash_algorithm.name,
        "epoch": found.epoch,
        "fingerprint": found.ring.fingerprint,
    }
    if settings.json:
        json_line(told)
    else:
        click.echo(
            f"{file}: {counted(found.ring.node_count, 'node')}, "
            f"{counted(len(found.ring), 'replica')}, epoch "
            f"{found.epoch}, fingerprint {told['fingerprint']}"
        )
