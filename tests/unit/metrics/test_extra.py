"""Without the extra, the metrics say what is missing."""

from __future__ import annotations

import subprocess
import sys

from tests.conftest import ROOT


def test_without_its_package_the_error_names_the_extra() -> None:
    program = "import sys; sys.modules['prometheus_client'] = None; import hashring.metrics"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        "hashring.errors.MissingDependencyError: hashring.metrics needs the package "
        "prometheus-client: pip install 'hashring-fleet[metrics]'"
    )
