"""The site, built once."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built pages. Any warning of the build is a failure. Workers of one run share a build."""
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent
    pages = folder / "site"
    with (folder / "site.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not pages.exists():
            aside = folder / "site.building"
            done = subprocess.run(
                [sys.executable, "-m", "sphinx", "-Wnq", "--keep-going", "docs", aside],
                cwd=ROOT,
                capture_output=True,
                text=True,
                check=False,
            )
            assert done.returncode == 0, done.stderr
            aside.rename(pages)
    return pages
