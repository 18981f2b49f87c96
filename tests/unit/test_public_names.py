"""What ``import hashring`` gives, and what it does not load."""

from __future__ import annotations

import subprocess

import pytest

import hashring
from hashring.core.assignors import ASSIGNORS
from tests.programs import python


def ended(program: str) -> subprocess.CompletedProcess[str]:
    return python("-c", program)


@pytest.mark.parametrize("name", hashring.__all__)
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(hashring, name) is not None
    assert name in dir(hashring)


def test_no_other_name_is_public() -> None:
    assert {*hashring._HOMES, "__version__"} == set(hashring.__all__)


def test_a_name_that_is_not_there_is_named() -> None:
    with pytest.raises(AttributeError, match="module 'hashring' has no attribute 'RingNod'"):
        hashring.RingNod  # noqa: B018 - to ask is what is tested


@pytest.mark.parametrize("name", ASSIGNORS)
def test_help_on_a_group_names_every_assignor(name: str) -> None:
    assert f'``"{name}"``' in str(hashring.PartitionGroup.__doc__)


def test_importing_the_package_loads_no_client_and_no_event_loop() -> None:
    answer = ended(
        "import sys, hashring.cli; print({'redis', 'gevent', 'asyncio'} & set(sys.modules))"
    )
    assert (answer.stdout, answer.stderr) == ("set()\n", "")


def test_ctrl_c_while_the_command_is_loaded_ends_it_without_a_traceback() -> None:
    answer = ended(
        """
import runpy, sys

class CtrlC:
    def find_spec(self, name, path, target=None):
        if name == "hashring.cli":
            raise KeyboardInterrupt

sys.meta_path.insert(0, CtrlC())
runpy.run_module("hashring", run_name="__main__")
"""
    )
    assert (answer.returncode, answer.stdout, answer.stderr) == (130, "", "")
