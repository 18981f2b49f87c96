"""Programs that soon end by themselves, many of them for one start of Python.

A start takes more time than what such a program does. So one process imports what they need, and
forks a child for each: a process of its own, with arguments, environment, streams and exit status.

As a program, it does so: ``python -m tests.short_programs``, its order as JSON on standard input.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import runpy
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[1]
HASHRING = ROOT / "hashring" / "__main__.py"
PATIENCE = 60
"""Seconds that a program may take."""


@dataclass(frozen=True)
class Program:
    """A file of Python, and what it is called with."""

    file: Path
    arguments: Sequence[str]
    environment: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Ended:
    """What came of a program."""

    status: int
    out: str
    err: str


def played(programs: Sequence[Program], imports: Sequence[str]) -> list[Ended]:
    """Run the programs, one after the other.

    Args:
        imports: the modules that most of them need.
    """
    calls = [
        {"file": str(each.file), "arguments": each.arguments, "environment": each.environment}
        for each in programs
    ]
    done = subprocess.run(
        [sys.executable, "-m", "tests.short_programs"],
        input=json.dumps({"imports": imports, "calls": calls}),
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return [Ended(*each) for each in json.loads(done.stdout)]


def _become(file: str, arguments: list[str], environment: dict[str, str]) -> None:
    """Run as Python runs the file: until its end, and then the interpreter's."""
    # A program that waits for ever is ended.
    signal.alarm(PATIENCE)
    os.environ.update(environment)
    sys.argv = [file, *arguments]
    sys.path[0] = str(Path(file).parent)
    runpy.run_path(file, run_name="__main__")
    sys.exit()


def _main() -> None:
    order = json.load(sys.stdin)
    for name in order["imports"]:
        importlib.import_module(name)
    # Otherwise the end of each child would look at all that was imported, and copy it thereby.
    gc.collect()
    gc.freeze()
    told = []
    for call in order["calls"]:
        with contextlib.ExitStack() as stack:
            streams = [stack.enter_context(tempfile.TemporaryFile("w+")) for _ in range(2)]
            if (child := os.fork()) == 0:
                for number, stream in enumerate(streams, 1):
                    os.dup2(stream.fileno(), number)
                _become(**call)
            status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            for stream in streams:
                stream.seek(0)
            told.append((status, *(stream.read() for stream in streams)))
    json.dump(told, sys.stdout)


if __name__ == "__main__":
    _main()
