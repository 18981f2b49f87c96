"""The site, built once."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest

from tests.programs import printed


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
            printed("-m", "sphinx", "-Wnq", "--keep-going", "docs", aside)
            aside.rename(pages)
    return pages
