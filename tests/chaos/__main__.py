"""``scripts/chaos``: see ``--help``."""

from __future__ import annotations

import json
import sys
import time
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path

import click

from hashring.store.embedded import RedisServer, find_server
from tests.chaos import report
from tests.chaos.checker import NEVER
from tests.chaos.faults import FAULTS, Bounds, Fault
from tests.chaos.fleet import VARIANTS, FleetError, Timing, Variant
from tests.chaos.scenario import Result, random_sequences, run

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "chaos.rst"
LENGTH = 5

EPILOG = """\b
Examples:
  scripts/chaos                                  every fault, every variant, and sequences
  scripts/chaos --list                           the faults
  scripts/chaos --fault kill --fault pause       two faults
  scripts/chaos --fault kill --variant asyncio   one kind of node
  scripts/chaos --sequences 3 --seed 7 --fault none
  scripts/chaos --json out.json                  results for programs
  scripts/chaos --docs                           write the tables and the plot of docs/chaos.rst
  scripts/chaos --read a.json --read b.json --docs
"""


@dataclass(frozen=True)
class Task:
    faults: tuple[Fault, ...]
    variant: Variant
    seed: int


def _result(fields: dict[str, object]) -> Result:
    recovery = fields["recovery"]
    fields = {
        **fields,
        "recovery": NEVER if recovery is None else recovery,
        "bounds": Bounds(**fields["bounds"]),  # type: ignore[arg-type]
    }
    for name in ("escaped", "fenced", "broken"):
        fields[name] = tuple(fields[name])  # type: ignore[arg-type]
    return Result(**fields)  # type: ignore[arg-type]


def _newest_server() -> Path:
    fetched = ROOT / ".servers" / "bin" / "redis-server"
    return fetched if fetched.exists() else find_server()


@click.command(epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--fault", "faults", multiple=True, metavar="NAME", help="Only this; again for more.")
@click.option("--variant", "variants", multiple=True, metavar="NAME", help="Only these nodes.")
@click.option("--sequences", type=click.IntRange(0), default=None, help="Random sequences of "
              f"{LENGTH} faults [3, or 0 with --fault].")  # fmt: skip
@click.option("--seed", type=int, default=1, show_default=True, help="Gives the same choices.")
@click.option("--jobs", type=click.IntRange(1), default=4, show_default=True, help="At a time.")
@click.option("--ttl", type=float, default=3.0, show_default=True)
@click.option("--heartbeat", type=float, default=0.5, show_default=True)
@click.option("--json", "json_file", type=click.Path(path_type=Path), help="Write results there.")
@click.option("--read", "read", multiple=True, type=click.Path(path_type=Path, exists=True),
              help="Results of earlier runs, instead of running.")  # fmt: skip
@click.option("--docs", is_flag=True, help="Write tables and plot into docs/.")
@click.option("--keep", type=click.Path(path_type=Path), help="Keep the histories there.")
@click.option("--list", "listing", is_flag=True, help="List faults and variants.")
def main(  # noqa: PLR0917 - an option each
    faults: tuple[str, ...],
    variants: tuple[str, ...],
    sequences: int | None,
    seed: int,
    jobs: int,
    ttl: float,
    heartbeat: float,
    json_file: Path | None,
    read: tuple[Path, ...],
    docs: bool,
    keep: Path | None,
    listing: bool,
) -> None:
    """Do faults to real processes on a real Redis; say for how long keys had two owners, or none.

    The same is done to redis-hashring 0.7.0. Exit status 1 when a promise of docs/guarantees.rst
    is broken (redis-hashring's verdicts do not count).
    """
    if listing:
        for fault in FAULTS.values():
            click.echo(f"{fault.name:16} {fault.text}")
        click.echo(f"variants: {', '.join(VARIANTS)}")
        return
    for name in (*faults, *variants):
        if name not in FAULTS and name not in VARIANTS and name != "none":
            raise click.UsageError(f"there is no {name!r}: scripts/chaos --list")
    timing = Timing(ttl=ttl, heartbeat=heartbeat)
    if read:
        results = [_result(each) for path in read for each in json.loads(path.read_text())]
    else:
        wanted = [FAULTS[name] for name in faults or FAULTS if name != "none"]
        chosen = [VARIANTS[name] for name in variants or VARIANTS]
        if sequences is None:
            sequences = 0 if faults else 3
        tasks = [Task((fault,), variant, seed) for fault in wanted for variant in chosen]
        tasks += [
            Task(tuple(found), variant, its_seed)
            for its_seed, found in random_sequences(sequences, LENGTH, seed)
            for variant in chosen
        ]
        results = run_all(tasks, timing, jobs, keep)
    if json_file is not None:
        json_file.write_text(json.dumps([each.as_dict() for each in results], indent=1) + "\n")
    show(results)
    if docs:
        report.write_docs(PAGE, results, 12.0)
        click.echo(f"wrote {PAGE.relative_to(ROOT)} and its plot")
    sys.exit(any(each.broken and not VARIANTS[each.variant].peer for each in results))


def run_all(tasks: list[Task], timing: Timing, jobs: int, keep: Path | None) -> list[Result]:
    """Run them, several at a time; they mostly wait."""
    program = _newest_server()
    results: dict[Task, Result] = {}
    begun = time.monotonic()
    with RedisServer(program) as resource, ThreadPoolExecutor(jobs) as pool:

        def one(task: Task) -> Result:
            for attempt in (1, 2):
                try:
                    return run(
                        task.faults,
                        task.variant,
                        timing,
                        seed=task.seed,
                        resource=resource.url,
                        program=program,
                        keep=keep,
                    )
                except FleetError:
                    if attempt == 2:
                        raise
            raise AssertionError

        running: dict[Future[Result], Task] = {pool.submit(one, task): task for task in tasks}
        left = set(running)
        while left:
            ended, left = wait(left, return_when=FIRST_COMPLETED)
            for future in ended:
                result = results[running[future]] = future.result()
                passed = time.monotonic() - begun
                click.echo(
                    f"[{len(results)}/{len(tasks)}, {passed:.0f} s] {report.line(result)}", err=True
                )
    return [results[task] for task in tasks]


def show(results: list[Result]) -> None:
    single = [each for each in results if each.fault in FAULTS]
    if single:
        click.echo("\nhashring (worst of threads, gevent, asyncio) / redis-hashring 0.7.0\n")
        click.echo(report.as_text(report.SIDE_BY_SIDE, report.side_by_side(single)))
        click.echo("\nlongest with two owners / with none, seconds\n")
        click.echo(report.as_text(report.EACH, report.each_variant(single)))
        click.echo("\nkey-seconds with two owners / with none, of 64 keys\n")
        click.echo(report.as_text(report.KEY_SECONDS, report.key_seconds(single)))
    found = report.sequences(results)
    if found:
        click.echo("\nrandom sequences\n")
        click.echo(report.as_text(report.SEQUENCES, found))
    ours = [each for each in results if not VARIANTS[each.variant].peer]
    broken = [each for each in ours if each.broken]
    for each in broken:
        click.echo(f"\nMISS  {report.line(each)}")
        for text in each.escaped[:5]:
            click.echo(f"      {text}")
    click.echo(f"\n{len(ours) - len(broken)} of {len(ours)} kept every promise")


if __name__ == "__main__":
    main()
