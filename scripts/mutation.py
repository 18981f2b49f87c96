"""Change one thing in a line of code, run the tests of that code, and report what they miss.

A seed draws the lines, at most one change a line. Each change runs in a copy of the tree, two at a
time. The first round runs the quick tests of all parts; later rounds run slower tests on what is
left. A change that no test finds is a survivor. Tests that never end count as finding it, and are
reported as hung.

scripts/mutants.py makes the changes. It leaves texts, annotations, logs and asserts alone.

Examples:
  scripts/mutation --sample 220 --seed 1
  scripts/mutation --part locks --sample 20
  scripts/mutation --part lua --list
"""

from __future__ import annotations

import argparse
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from difflib import unified_diff
from pathlib import Path
from queue import SimpleQueue
from typing import Final

from mutants import Edit, compiles, edits

ROOT: Final = Path(__file__).resolve().parents[1]
GROUPS: Final = (
    "next_state group_orders pending_moves partition_column partition_map state view_changes"
)
LEASES: Final = "member_holdings faithful_challenge lease_challenge"
PARTS: Final = {
    # A file is of the first part that names it.
    "member": [
        f"hashring/protocol/group/{name}.py"
        for name in ("base_member_machine", "group_member_machine", "group_decider")
    ],
    "machines": [
        "hashring/protocol/node/*.py",
        "hashring/protocol/group/*.py",
        "hashring/protocol/*.py",
    ],
    "kernel": [f"hashring/core/groups/{name}.py" for name in f"{GROUPS} {LEASES}".split()],
    "locks": [
        "hashring/protocol/locks/*.py",
        "hashring/node/lock_flows.py",
        "hashring/store/locks/commands.py",
    ],
    "lua": [
        "hashring/store/*.lua",
        *(
            f"hashring/store/{name}/*.lua"
            for name in (
                "ring",
                "locks",
                "group",
                "lease_challenge",
                "faithful_challenge",
                "fencing",
            )
        ),
    ],
}

# Runs of pytest by a name: what they select by name, and where.
_QUICK: Final = "not (histor or simulation or is_found or every_way)"
_PLAYED: Final = "no_history or break_no_rule or every_way"
_CONTRACT: Final = "not (asyncio or greenlet or patched)"


def _contract(*names: str) -> list[str]:
    return [f"tests/contract/test_{name}.py" for name in names]


_NODE: Final = [
    "tests/unit/node",
    "tests/unit/test_flows.py",
    "tests/unit/test_listening.py",
    "tests/unit/test_silent_subscription.py",
]
_MACHINES: Final = ("node_machine", "own_ranges", "weight", "drain", "states")
_NODE_STORES: Final = ("store", "own_ranges", "look", "weights", "node_orders", "stay")
_STORES: Final = ("locks", "ended_sessions", *_NODE_STORES)
_GROUP_STORES: Final = ("group_store", "challenge_store", "faithful_challenge_store")
_MORE_STORES: Final = ("refusals", "garbage", "copies", "memory_commands", "full_redis")
_GROUP_PLAY: Final = "challenge or plan or solace or conflicts or simul or histor or every_way"
_ALL_RECORDS: Final = ["tests/unit/test_defaults.py", "tests/unit/test_state_table.py"]
_ALL_HISTORIES: Final = ["tests/unit/test_clock_set_back.py", "tests/unit/test_state_table.py"]
_TIMES: Final = "tests/unit/store/test_memory_times.py"
RUNS: Final = {
    # In memory, and without threads.
    "near machines": (
        _QUICK,
        [*(f"tests/unit/node/test_{name}.py" for name in _MACHINES), *_ALL_RECORDS],
    ),
    "near locks": (
        _QUICK,
        [f"tests/unit/node/test_{name}.py" for name in ("locks", "renewal", "lock_flows")],
    ),
    "near group": (f"not ({_GROUP_PLAY})", ["tests/unit/groups", *_ALL_RECORDS]),
    "near ring store": ("memory", [*_contract(*_STORES), _TIMES]),
    "near group store": ("memory", [*_contract(*_GROUP_STORES, "group_clock"), _TIMES]),
    # More of it, and on a server.
    "node": (_QUICK, _NODE),
    "node stores": (
        _CONTRACT,
        _contract(*_STORES, *_MORE_STORES),
    ),
    "node runners": (
        _CONTRACT,
        [
            *_contract("runners", "drain_runners", "own_ranges_runners", "weight_runners"),
            *_contract("single_calls", "start_and_stop", "loops"),
        ],
    ),
    "node histories": (_PLAYED, [*_NODE, *_ALL_HISTORIES]),
    "locks": (_CONTRACT, [f"tests/integration/test_{name}.py" for name in ("locks_node", "locks")]),
    "group": (f"{_QUICK} and not challenge", ["tests/unit/groups"]),
    "challenge": (
        _QUICK,
        [
            f"tests/unit/groups/test_{name}.py"
            for name in (
                "challenge",
                "lease_challenge_machine",
                "faithful_challenge",
                "faithful_challenge_race",
            )
        ],
    ),
    "group stores": (
        _CONTRACT,
        _contract(*_GROUP_STORES, "group_clock", "group_forget", *_MORE_STORES),
    ),
    "group runners": (
        _CONTRACT,
        _contract("group", "group_challenge", "group_runners", "callbacks", "loops"),
    ),
    "group histories": (_PLAYED, ["tests/unit/groups", *_ALL_HISTORIES]),
    "failovers": (
        _CONTRACT,
        [f"tests/integration/test_{name}.py" for name in ("group_faults", "locks_of_older_data")],
    ),
    "fencing": (
        _CONTRACT,
        ["tests/integration/test_fencing.py", "tests/unit/store", *_contract("full_redis")],
    ),
}
_NODE_ALL: Final = ["node", "node stores", "locks", "node runners", "node histories"]
_GROUP_ALL: Final = ["group", "group stores", "group histories", "group runners", "challenge"]
_SHARED_LUA: Final = ["near ring store", "near group store", "node stores", *_GROUP_ALL, *_NODE_ALL]
# What tests a file, by the first pattern that is in its path: the quick runs first.
TESTS: Final = [
    ("store/fencing/", ["fencing"]),
    ("store/group/", ["near group store", *_GROUP_ALL]),
    ("store/(lease|faithful)_challenge", ["near group store", "challenge", *_GROUP_ALL]),
    ("store/_which_server", [*_SHARED_LUA, "failovers"]),
    ("store/_", _SHARED_LUA),
    ("store/ring/|store/locks/.*lua", ["near ring store", "node stores", *_NODE_ALL]),
    ("lock", ["near locks", *_NODE_ALL]),
    ("_challenge", ["near group", "challenge", *_GROUP_ALL]),
    ("/groups/|member|group", ["near group", *_GROUP_ALL]),
    ("protocol/(flow|machine|silent)", ["near machines", *_NODE_ALL, *_GROUP_ALL]),
    ("", ["near machines", *_NODE_ALL]),
]


@dataclass(frozen=True)
class Mutant:
    """One change: ``text[start:end]`` of a file becomes ``instead``."""

    part: str
    path: str
    line: int
    before: str
    after: str

    def diff(self) -> str:
        lines = (self.before.splitlines(), self.after.splitlines())
        return "\n".join(unified_diff(*lines, self.path, self.path, lineterm="", n=1))


def mutants(part: str, path: Path, rng: random.Random) -> Iterator[Mutant]:
    """One for each line of the file that has any."""
    text = path.read_text()
    lines: dict[int, list[Edit]] = {}
    for edit in edits(path):
        lines.setdefault(text.count("\n", 0, edit[0]), []).append(edit)
    for line, choices in lines.items():
        rng.shuffle(choices)
        for start, end, instead in choices:
            after = text[:start] + instead + text[end:]
            if compiles(path, after):
                yield Mutant(part, str(path.relative_to(ROOT)), line + 1, text, after)
                break


def sample(parts: list[str], count: int, seed: int) -> list[Mutant]:
    rng, found, seen = random.Random(seed), list[Mutant](), set[Path]()
    for part, patterns in PARTS.items():
        paths = sorted({path for pattern in patterns for path in ROOT.glob(pattern)} - seen)
        seen.update(paths)
        for path in paths:
            found += mutants(part, path, rng)
    rng.shuffle(found)
    return [mutant for mutant in found if mutant.part in parts][:count]


def copy_of_the_tree(into: Path) -> None:
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    for name in subprocess.check_output(listed, cwd=ROOT, text=True).split("\0"):
        if name and (ROOT / name).is_file():
            (into / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, into / name)
    if (ROOT / ".servers").exists() and not (into / ".servers").exists():
        (into / ".servers").symlink_to((ROOT / ".servers").resolve())


def command(run: str, others: str, path: str = "") -> list[str]:
    """The call of pytest, on the newest server alone; first the tests that are named for a file."""
    chosen, places = RUNS[run]
    options = ["-x", "-q", "-p", "no:randomly", "-p", "no:cacheprovider", "--hypothesis-seed=0"]
    options += ["--hypothesis-profile", "mutation"]
    options += ["-k", f"({chosen}) and not ({others or 'nothing'})"]
    first = [
        str(found.relative_to(ROOT))
        for place in places
        for found in (ROOT / place).glob(f"test_{Path(path).stem}.py")
    ]
    return [sys.executable, "-m", "pytest", *options, *first, *places]


RUNNING: Final = set[int]()
"""The processes that run tests now; each leads a group of its own."""


def stop(number: int, frame: object) -> None:
    """End what runs; what has not begun is cancelled by this exit."""
    for pid in [*RUNNING]:
        os.killpg(pid, signal.SIGKILL)
    sys.exit(128 + number)


def outcome(command: list[str], tree: Path, limit: float) -> tuple[str, str]:
    """``passed``, ``failed`` or ``hung``, and the end of what it printed."""
    environment = {**os.environ, "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"}
    with (
        tempfile.TemporaryFile("w+") as log,
        subprocess.Popen(
            command, cwd=tree, env=environment, stdout=log, stderr=log, start_new_session=True
        ) as process,
    ):
        RUNNING.add(process.pid)
        try:
            code = process.wait(limit)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            return "hung", ""
        finally:
            RUNNING.discard(process.pid)
        log.seek(0)
        return ("failed" if code else "passed"), log.read()[-2000:]


def runs_of(path: str) -> list[str]:
    return [*dict.fromkeys(next(runs for part, runs in TESTS if re.search(part, path)))]


class Trial:
    """Two copies of the tree, in which changes are tried."""

    def __init__(self, work: Path, others: str) -> None:
        self._others = others
        self._limits: dict[str, float] = {}
        self._trees: SimpleQueue[Path] = SimpleQueue()
        for name in ("one", "two"):
            copy_of_the_tree(work / name)
            self._trees.put(work / name)

    def unchanged(self, run: str) -> str:
        """What a run of the tests printed when it fails without any change; else nothing."""
        tree, began = self._trees.get(), time.monotonic()
        how, printed = outcome(command(run, self._others), tree, 1800)
        self._limits[run] = 20 + 3 * (time.monotonic() - began)
        self._trees.put(tree)
        return "" if how == "passed" else printed or how

    def changed(self, run: str, mutant: Mutant) -> str:
        """The outcome with the change, and the test that fails."""
        tree = self._trees.get()
        try:
            while True:
                limit = self._limits[run]
                (tree / mutant.path).write_text(mutant.after)
                how, printed = outcome(command(run, self._others, mutant.path), tree, limit)
                (tree / mutant.path).write_text(mutant.before)
                # The machine may have got busier than it was: then they take long unchanged, too.
                unchanged = command(run, self._others)
                if how != "hung" or outcome(unchanged, tree, limit / 3)[0] != "hung":
                    break
                self._limits[run] = max(self._limits[run], 2 * limit)
        finally:
            self._trees.put(tree)
        found = re.findall(r"^(?:FAILED|ERROR) (\S+)", printed, re.M)
        return how + (f" by {found[0]}" if found else "")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sample", type=int, default=200, help="how many to try (default: 200)")
    parser.add_argument("--skip", type=int, default=0, help="leave the first so many out, to go on")
    parser.add_argument("--seed", type=int, default=0, help="draws them (default: 0)")
    parser.add_argument(
        "--part", action="append", choices=PARTS, help="only of it; may be repeated"
    )
    parser.add_argument(
        "--rounds", type=int, default=9, metavar="N", help="stop after so many: 1 is the quickest"
    )
    parser.add_argument("--survivors", type=Path, metavar="FILE", help="write their diffs into it")
    parser.add_argument("--list", action="store_true", help="print the changes and try none")
    return parser.parse_args()


def main() -> int:
    options = arguments()
    drawn = sample(options.part or list(PARTS), options.sample, options.seed)[options.skip :]
    if options.list:
        print("\n\n".join(mutant.diff() for mutant in drawn))
        return 0

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    sys.path.insert(0, str(ROOT))
    from tests.conftest import oldest_and_newest, servers  # noqa: PLC0415 - needs all tools

    others = " or ".join(servers().keys() - {oldest_and_newest()[-1]})
    how: dict[Mutant, str] = dict.fromkeys(drawn, "survived")
    left = drawn
    with tempfile.TemporaryDirectory() as work, ThreadPoolExecutor(2) as pool:
        trial = Trial(Path(work), others)
        for number in range(options.rounds):
            asked = [(runs[number], each) for each in left if (runs := runs_of(each.path))[number:]]
            needed = sorted({run for run, _ in asked})
            for run, wrong in zip(needed, pool.map(trial.unchanged, needed), strict=True):
                if wrong:
                    print(f"{wrong}\nscripts/mutation: the tests of {run} fail without any change")
                    return 1
            print(f"round {number + 1}: {len(asked)} changes; without any: passed", flush=True)
            outcomes = pool.map(trial.changed, *zip(*asked, strict=True)) if asked else ()
            for count, ((run, each), found) in enumerate(zip(asked, outcomes, strict=True), 1):
                print(f"{count}/{len(asked)} {each.path}:{each.line} {run}: {found}", flush=True)
                if not found.startswith("passed"):
                    how[each] = found.split()[0]
            left = [each for each in left if how[each] == "survived"]

    print("", *(each.diff() for each in left), sep="\n")
    tallies = {part: Counter(how[each] for each in drawn if each.part == part) for part in PARTS}
    print(f"\n{'part':<10}{'tried':>8}{'killed':>8}{'hung':>8}{'survived':>10}")
    tallies["all"] = sum(tallies.values(), Counter())
    for part, tally in tallies.items():
        columns = (tally.total(), tally["failed"] + tally["hung"], tally["hung"])
        print(f"{part:<10}" + "".join(f"{n:>8}" for n in columns) + f"{tally['survived']:>10}")
    print(f"seed {options.seed}; the hung are among the killed")
    if options.survivors:
        options.survivors.write_text("\n\n".join(each.diff() for each in left) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
