"""What jobs read on an engine other than the tests' session, and what they must have written."""

import os
import subprocess
import sys
from datetime import datetime, timezone
from pathlib import Path

from hashring.core.ring import Ring
from hashring.core.ring_json import RingFile
from hashring.ring_files import write_ring
from tests.conftest import ROOT
from tests.spark.conftest import keep, stored
from tests.spark.test_owner import random_ring

ENGINE_PATIENCE = 900
"""As long as a machine with twenty times more to do than it can may take."""


def engine_inputs(folder: Path) -> Ring:
    """Write what the jobs read, and return the ring among it."""
    ring = random_ring(4, 8)
    write_ring(RingFile(ring), folder / "ring.json")
    (folder / "keys.parquet").mkdir()
    for first in (0, 100):  # a file for each worker
        keys = [f"k{i}" for i in range(first, first + 100)]
        keep(folder / "keys.parquet" / f"{first}.parquet", key=keys)
    keep(
        folder / "events.parquet", epoch=[1, 2], kind=["join", "leave"], nodes=[["a"], ["a"]],
        points=[[5], None], at=[datetime.fromtimestamp(at, timezone.utc) for at in (10, 20)],
    )  # fmt: skip
    keep(
        folder / "log.parquet", key=["k", "k"], node=["a", "a"], start=[11.0, 15.0],
        end=[12.0, 25.0],
    )  # fmt: skip
    return ring


def check(folder: Path, ring: Ring, module: str, *arguments: str, **environment: str) -> None:
    """Run the jobs of a module in a process, and look at what they wrote."""
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments, folder], cwd=ROOT, capture_output=True,
        text=True, timeout=ENGINE_PATIENCE, check=False, env={**os.environ, **environment},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    owned = {row["key"]: row["owner"] for row in stored(folder / "owned.parquet")}
    assert owned == {f"k{i}": ring.owner(f"k{i}") for i in range(200)}
    own = {row["key"] for row in stored(folder / "by.parquet" / "owner=n1")}
    assert own == {key for key, owner in owned.items() if owner == "n1"}
    assert (folder / "load.html").exists()
    assert overrun(folder / "findings.parquet")


def overrun(place: Path) -> bool:
    """Whether the findings of an audit are the one that there is."""
    return [(row["problem"], row["unowned"]) for row in stored(place)] == [("overrun", 5.0)]
