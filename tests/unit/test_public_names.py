"""What ``import hashring`` gives, and what it does not load."""

from __future__ import annotations

import asyncio
import builtins
import inspect
import re
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


def _raised(public: object) -> set[str]:
    """The errors that the docstrings of a class and its methods, or of a function, name."""
    members = vars(public).items() if inspect.isclass(public) else ()
    parts = [public, *(part for name, part in members if not name.startswith("_"))]
    told = [(inspect.getdoc(part) or "").partition("Raises:\n")[2] for part in parts]
    sections = [text.partition("\n\n")[0] for text in told]
    lists = [names for text in sections for names in re.findall(r"(?m)^    ([A-Z][\w, ]+):", text)]
    return {name for names in lists for name in names.split(", ")}


@pytest.mark.parametrize("name", hashring.__all__)
def test_every_error_that_it_names_is_public(name: str) -> None:
    known = {*hashring.__all__, *vars(builtins), *vars(asyncio)}
    assert _raised(getattr(hashring, name)) - known == set()


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
