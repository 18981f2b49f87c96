"""Rings in memory, beside other packages for consistent hashing."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from result import Measure, Result, Run
from targets import RING

HERE = Path(__file__).resolve().parents[1]
ROOT = HERE.parents[1]

# It has this package's import name, so it cannot be in the environment that has this package.
NAMESAKE = "hashring==1.5.1"
PLACE = Path(sys.prefix) / "peers" / NAMESAKE.replace("==", "-")

KINDS = {
    "ours-16": "this package, 16 replicas",
    "ours-128": "this package, 128 replicas",
    "ours-balanced-16": "this package, 16 replicas, ``balanced``",
    "uhashring": "uhashring 2.5, its default (160 points a node)",
    "uhashring-ketama": "uhashring 2.5, ketama",
    "hashring": "hashring 1.5.1 (120 points a node)",
    "jump": "jump-consistent-hash 3.6.0 of the key's CRC-32",
}


def fetch_namesake() -> Path:
    """Where the package of this one's import name is, in a directory of its own."""
    if not PLACE.exists():
        part = PLACE.with_name(f"{PLACE.name}.part")
        shutil.rmtree(
            part, ignore_errors=True
        )  # of a run that was ended: pip would keep it as it is
        subprocess.run(
            [
                *(sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"),
                *("--disable-pip-version-check", "--target", str(part), NAMESAKE),
            ],
            check=True,
            stdout=sys.stderr,
        )
        part.rename(PLACE)
    return PLACE


def take(run: Run) -> Result:
    nodes, count, rounds = (10, 5000, 2) if run.quick else (100, 200_000, 15)
    result = Result()
    try:
        namesake: Path | None = fetch_namesake()
    except subprocess.CalledProcessError:
        namesake = None
        result.notes.append(f"{NAMESAKE} could not be installed, and is left out.")
    for kind, label in KINDS.items():
        path = namesake if kind == "hashring" else ROOT
        if path is None:
            continue
        run.say(label)
        # Isolated from the directory of the program, which would come first on its path.
        done = subprocess.run(
            [
                *(sys.executable, "-P", str(HERE / "one_ring.py")),
                *(kind, str(nodes), str(count), str(rounds)),
            ],
            check=True,
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONPATH": str(path)},
        )
        found = json.loads(done.stdout)
        result.add(
            f"{label}: the owner of one key, against bare bisect(crc32)",
            f"{found['ns']:.0f} ns",
            f"{found['floor']:.0f} ns",
            value=found["ns"] / found["floor"],
        )
        result.add(
            f"{label}: peak to mean; moved by a join, by a leave, x the least possible; memory",
            f"{found['peak']:.2f}; {found['join']:.2f}, {found['leave']:.2f}; "
            f"{found['memory'] / 1e6:.2f} MB",
        )
    return result


MEASURE = Measure(
    "libraries",
    RING,
    "Other packages for consistent hashing",
    "A ring of 100 nodes in memory: the time to find the owner of a key, against a search over "
    "1,600 points in the same process, in turn; then, over 200,000 keys, how uneven the shares are "
    "(the largest against the mean), and how many keys move when a node joins (against one in 101) "
    "and when a node in the middle leaves (against what it had). The package ``hashring`` has this "
    "one's import name, so it runs from a directory of its own (``pip install --target``), in a "
    "process that does not see this one; so does each of the others.",
    30,
    take,
)
