"""``scripts/chaos``: see ``--help``."""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from collections.abc import Collection
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import asdict, dataclass
from pathlib import Path

import click

from hashring.core.readable_numbers import counted
from hashring.store.embedded_server import RedisServer, find_server
from tests.chaos import report
from tests.chaos.checker import NEVER
from tests.chaos.faults import FAULTS, Bounds, Fault
from tests.chaos.fleet import VARIANTS, FleetError, Timing, Variant
from tests.chaos.fuzz import fuzz, targets
from tests.chaos.scenario import Result, random_sequences, run
from tests.chaos.soak import GROWTH, MIXED, MIXED_LOCKS, Soaked, growth_rows, soak

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "explanation" / "chaos.rst"
LENGTH = 5
SEQUENCES = 3
"""How many there are unless asked for, and at least on the page."""

EPILOG = """\b
Examples:
  scripts/chaos                                  every fault, every variant, and sequences
  scripts/chaos --list                           the faults
  scripts/chaos --fault kill --fault pause       two faults
  scripts/chaos --fault kill --variant asyncio   one kind of node
  scripts/chaos --sequences 3 --seed 7           random sequences of faults, and nothing else
  scripts/chaos --json out.json                  results for programs
  scripts/chaos --soak 15                        random faults for 15 minutes: what grows?
  scripts/chaos --fuzz 1000000                   damaged input for everything that is read
  scripts/chaos --docs                           write what docs/explanation/chaos.rst shows
  scripts/chaos --read a.json --read b.json --docs
                                                 the same from results that are there
"""


@dataclass(frozen=True)
class Task:
    faults: tuple[Fault, ...]
    variant: Variant
    seed: int

    @property
    def names(self) -> str:
        return " ".join(fault.name for fault in self.faults)

    def __str__(self) -> str:
        return f"{self.names}, {self.variant.name}, seed {self.seed}"


def _result(fields: dict[str, object]) -> Result:
    recovery = fields["recovery"]
    fields = {
        **fields,
        "recovery": NEVER if recovery is None else recovery,
        "bounds": Bounds(**fields["bounds"]),  # type: ignore[arg-type]
        "timing": Timing(**fields["timing"]),  # type: ignore[arg-type]
    }
    for name in ("escaped", "fenced", "locked", "broken"):
        fields[name] = tuple(fields[name])  # type: ignore[arg-type]
    return Result(**fields)  # type: ignore[arg-type]


def _newest_server() -> Path:
    fetched = ROOT / ".servers" / "bin" / "redis-server"
    return fetched if fetched.exists() else find_server()


@click.command(epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--fault",
    "faults",
    multiple=True,
    type=click.Choice(list(FAULTS)),
    metavar="NAME",
    help="Only this one; may be given again.",
)
@click.option(
    "--variant",
    "variants",
    multiple=True,
    type=click.Choice(list(VARIANTS)),
    metavar="NAME",
    help="Only these nodes; may be given again.",
)
@click.option("--sequences", type=click.IntRange(0), default=None, help="Random sequences of "
              f"{LENGTH} faults, instead of single ones.")  # fmt: skip
@click.option("--seed", type=int, default=1, show_default=True, help="Gives the same choices.")
@click.option("--jobs", type=click.IntRange(1), default=4, show_default=True, help="At a time.")
@click.option("--ttl", type=float, default=3.0, show_default=True)
@click.option("--heartbeat", type=float, default=0.5, show_default=True)
@click.option(
    "--soak",
    "minutes",
    type=click.FloatRange(0, min_open=True),
    metavar="MINUTES",
    help="Instead: random faults for so long; does anything grow?",
)
@click.option(
    "--fuzz",
    "inputs",
    type=click.IntRange(1),
    metavar="N",
    help="Instead: so many damaged inputs, shared out over all readers.",
)
@click.option(
    "--json",
    "json_file",
    type=click.Path(path_type=Path),
    help="Write results there; - for stdout.",
)
@click.option("--read", "read", multiple=True, type=click.Path(path_type=Path, exists=True),
              help="Results of earlier runs, instead of running; the last counts.")  # fmt: skip
@click.option("--docs", is_flag=True, help="Write tables and plot into docs/: "
              "needs every result, with the default timing.")  # fmt: skip
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
    minutes: float | None,
    inputs: int | None,
    json_file: Path | None,
    read: tuple[Path, ...],
    docs: bool,
    keep: Path | None,
    listing: bool,
) -> None:
    """Do faults to real processes on a real Redis; say for how long keys had two owners, or none.

    Without options: every fault to every variant, and three random sequences of faults, in some
    ten minutes; the table comes at the end, progress on stderr. The same is done to
    redis-hashring 0.7.0. Exit status 1 when a promise of docs/explanation/guarantees.rst is broken
    (redis-hashring's verdicts do not count), or when a run has no result.
    """
    if listing:
        for fault in FAULTS.values():
            click.echo(f"{fault.name:16} {fault.text}")
        click.echo(f"variants: {', '.join(VARIANTS)}")
        return
    timing = Timing(ttl=ttl, heartbeat=heartbeat)
    if (
        json_file is not None
        and str(json_file) != "-"
        and not os.access(json_file.absolute().parent, os.W_OK)
    ):
        raise click.UsageError(f"--json {json_file}: nothing can be written there")
    if docs and (inputs is not None or minutes is not None):
        raise click.UsageError(
            "--docs writes the whole page, and --soak and --fuzz have no results for it. "
            "Leave out --docs."
        )
    if inputs is not None:
        sys.exit(fuzz_all(inputs, seed, json_file))
    if minutes is not None:
        sys.exit(soak_both(minutes, timing, seed, json_file, keep))
    errors: list[str] = []
    if read:
        found = [_result(each) for path in read for each in json.loads(path.read_text())]
        # Of what was run twice, the later.
        results = list({(each.fault, each.variant, each.seed): each for each in found}.values())
        if docs:
            refuse_part([(r.fault, r.variant) for r in results], [r.timing for r in results])
    else:
        tasks = planned(faults, variants, sequences, seed)
        if docs:
            refuse_part([(task.names, task.variant.name) for task in tasks], [timing])
        results, errors = run_all(tasks, timing, jobs, keep)
    if json_file is not None:
        _write(json_file, [each.as_dict() for each in results])
    show(results, errors)
    if docs and errors:
        without = counted(len(errors), "run has", "runs have")
        click.echo(f"{PAGE.relative_to(ROOT)} stays as it was, because {without} no result")
    elif docs:
        report.write_docs(PAGE, results, 12.0)
        click.echo(f"wrote {PAGE.relative_to(ROOT)} and its plot")
    broken = any(each.broken and not VARIANTS[each.variant].peer for each in results)
    sys.exit(broken or bool(errors))


def planned(
    faults: tuple[str, ...], variants: tuple[str, ...], sequences: int | None, seed: int
) -> list[Task]:
    """What is to be run."""
    wanted = [FAULTS[name] for name in faults or (FAULTS if sequences is None else ())]
    chosen = [VARIANTS[name] for name in variants or VARIANTS]
    if sequences is None:
        sequences = 0 if faults else SEQUENCES
    tasks = [
        Task((fault,), variant, seed)
        for fault in wanted
        for variant in chosen
        if fault.peers or not variant.peer
    ]
    if wanted and not tasks:
        raise click.UsageError("nodes of redis-hashring take no orders: give another variant")
    tasks += [
        Task(tuple(chain), variant, its_seed)
        for its_seed, chain in random_sequences(sequences, LENGTH, seed)
        for variant in chosen
    ]
    if not tasks:
        raise click.UsageError("that is no run at all: give a --fault, or more --sequences")
    return tasks


def refuse_part(runs: Collection[tuple[str, str]], timings: Collection[Timing]) -> None:
    """Refuse to replace the page by what these runs, of a fault and a variant each, would show."""
    other = next((timing for timing in timings if timing != Timing()), None)
    if other is not None:
        reason = f"the ttl is {other.ttl:g} s and the heartbeat {other.heartbeat:g} s"
    elif lacking := _lacking(runs):
        reason = f"there is no result of {lacking}"
    else:
        return
    raise click.UsageError(
        f"--docs writes the whole page. It needs every fault on every variant and {SEQUENCES} "
        f"sequences on each, all with the default timing, but {reason}. Leave out --fault, "
        "--variant, --sequences, --ttl and --heartbeat, or --read all results."
    )


def _lacking(runs: Collection[tuple[str, str]]) -> str:
    """The first run that the page shows and that is not among these."""
    for variant in VARIANTS.values():
        for fault in FAULTS.values():
            if (fault.name, variant.name) not in runs and (fault.peers or not variant.peer):
                return f"{fault.name} on {variant.name}"
        chains = sum(name not in FAULTS and of == variant.name for name, of in runs)
        if chains < SEQUENCES:
            return f"sequence {chains + 1} on {variant.name}"
    return ""


def run_all(
    tasks: list[Task], timing: Timing, jobs: int, keep: Path | None
) -> tuple[list[Result], list[str]]:
    """Run them, several at a time; they mostly wait. The results, and which have none and why."""
    program = _newest_server()
    results: dict[Task, Result] = {}
    errors: list[str] = []
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
                except FleetError as error:
                    if attempt == 2:
                        raise
                    click.echo(f"{task} begins again: {error}", err=True)
            raise AssertionError

        running: dict[Future[Result], Task] = {pool.submit(one, task): task for task in tasks}
        left = set(running)
        while left:
            ended, left = wait(left, return_when=FIRST_COMPLETED)
            for future in ended:
                task = running[future]
                if (error := future.exception()) is None:
                    results[task] = future.result()
                    ended_with = report.line(results[task])
                else:
                    ended_with = f"{task} has no result: {type(error).__name__}: {error}"
                    errors.append(ended_with)
                    click.echo("".join(traceback.format_exception(error)), err=True, nl=False)
                count, passed = len(results) + len(errors), time.monotonic() - begun
                click.echo(f"[{count}/{len(tasks)}, {passed:.0f} s] {ended_with}", err=True)
    return [results[task] for task in tasks if task in results], errors


def soak_both(
    minutes: float, timing: Timing, seed: int, json_file: Path | None, keep: Path | None
) -> bool:
    """Soak a fleet without locks and one with, at the same time; whether a rule is broken."""

    def one(variant: Variant) -> Soaked:
        return soak(
            variant,
            minutes,
            timing,
            seed=seed,
            resource=resource.url,
            program=program,
            keep=keep,
            progress=lambda text: click.echo(text, err=True),
        )

    program = _newest_server()
    with RedisServer(program) as resource, ThreadPoolExecutor(2) as pool:
        soaked = list(pool.map(one, (MIXED, MIXED_LOCKS)))
    for each in soaked:
        click.echo(
            f"\n{each.variant}: {each.faults} faults in {each.minutes:g} minutes (seed {seed}); "
            f"{each.double:.1f} key-seconds with two owners, longest {each.longest_double:.2f} s, "
            f"{each.none:.1f} with none; {len(each.escaped)} exceptions escaped; "
            f"{each.writes} fenced writes, {each.refused} refused"
        )
    click.echo("\n" + report.as_text(GROWTH, growth_rows(soaked)))
    broken = [f"{each.variant}: {rule}" for each in soaked for rule in each.broken]
    click.echo("\n" + ("\n".join(f"MISS  {rule}" for rule in broken) or "pass: nothing grew"))
    if json_file is not None:
        _write(json_file, [asdict(each) for each in soaked])
    return bool(broken)


def fuzz_all(inputs: int, seed: int, json_file: Path | None) -> bool:
    """Feed every reader its share; whether anything was found."""
    readers = targets()
    found = []
    for target in readers:
        done = fuzz(target, -(-inputs // len(readers)), seed)
        found.append(done)
        click.echo(
            f"{done.name:20} {done.inputs:8} inputs, {done.accepted:8} read, "
            f"{done.inputs / max(done.seconds, 1e-9):7.0f}/s, {len(done.findings)} findings"
        )
        for kind, data in done.findings.items():
            click.echo(f"  {kind}: {data[:200]!r}")
    total = sum(each.inputs for each in found)
    seconds = sum(each.seconds for each in found)
    click.echo(f"\n{total} inputs in {seconds:.0f} s (seed {seed})")
    if json_file is not None:
        _write(
            json_file,
            [
                {**asdict(each), "findings": {k: repr(v) for k, v in each.findings.items()}}
                for each in found
            ],
        )
    return any(each.findings for each in found)


def _write(file: Path, value: object) -> None:
    text = json.dumps(value, indent=1) + "\n"
    if str(file) == "-":
        click.echo(text, nl=False)
    else:
        file.write_text(text)


def show(results: list[Result], errors: list[str]) -> None:
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
    for error in errors:
        click.echo(f"\nERROR {error}")
    kept = f"{len(ours) - len(broken)} of {len(ours)} kept every promise"
    if errors:
        kept += f"; {counted(len(errors), 'run has', 'runs have')} no result"
    click.echo(f"\n{kept}")


if __name__ == "__main__":
    main(prog_name="scripts/chaos")
