"""Programs of Python that need a process of their own."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

from tests.conftest import PATIENCE, ROOT


def python(*arguments: object, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run Python in the project's directory, to its end.

    Args:
        options: as for ``subprocess.run``.
    """
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        check=False,
        capture_output=True,
        text=True,
        **{"cwd": ROOT, "timeout": 8 * PATIENCE, **options},
    )


def printed(*arguments: object, **options: Any) -> str:
    """What Python prints, which must end well; arguments as for :func:`python`."""
    done = python(*arguments, **options)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()
