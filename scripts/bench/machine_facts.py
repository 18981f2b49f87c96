"""What a number was measured on."""

from __future__ import annotations

import datetime
import os
import platform
import subprocess
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from hashring._version import __version__
from hashring.store.embedded_server import find_server

LIBRARIES = (
    "redis",
    "gevent",
    "redis-hashring",
    "uhashring",
    "jump-consistent-hash",
    "python-redis-lock",
    "xxhash",
    "numpy",
    "pyspark",
)


@cache
def _redis() -> str:
    told = subprocess.run([find_server(), "--version"], capture_output=True, text=True, check=True)
    words = told.stdout.split()
    return f"{words[0]} {next(word[2:] for word in words if word.startswith('v='))}"


@cache
def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine()
    return next(
        (line.partition(":")[2].strip() for line in lines if line.startswith("model name")),
        platform.machine(),
    )


def _commit() -> str:
    """The commit that was measured, with a + when files were changed since; empty without Git."""
    command = ["git", "describe", "--always", "--dirty=+", "--exclude=*"]
    try:
        told = subprocess.run(
            command, cwd=Path(__file__).parent, capture_output=True, text=True, check=False
        )
    except OSError:
        return ""
    return told.stdout.strip()


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def facts(load_before: float) -> dict[str, Any]:
    """The machine, the programs, and how busy the machine was before and after."""
    return {
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d"),
        "cores": os.cpu_count(),
        "processor": _processor(),
        "load": [round(load_before, 1), round(os.getloadavg()[0], 1)],
        "nice": os.nice(0),
        "python": platform.python_version(),
        "server": _redis(),
        "hashring": __version__,
        "commit": _commit(),
        "libraries": {name: found for name in LIBRARIES if (found := _version(name))},
    }
