"""Without the extra, the metrics say what is missing."""

from __future__ import annotations

from tests.programs import python


def test_without_its_package_the_error_names_the_extra() -> None:
    program = "import sys; sys.modules['prometheus_client'] = None; import hashring.metrics"
    done = python("-c", program)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        "hashring.errors.MissingDependencyError: hashring.metrics needs the package "
        "prometheus-client: pip install 'hashring-fleet[metrics]'"
    )
