"""README.rst: what it shows can be run, and what it names is there."""

from __future__ import annotations

import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import click
import pytest
from redis import Redis

from hashring.cli import COMMANDS, main
from hashring.store.embedded_server import RedisServer
from tests.cli.conftest import ending, until
from tests.conftest import PATIENCE, ROOT
from tests.programs import printed

TEXT = (ROOT / "README.rst").read_text()


def blocks(language: str) -> list[str]:
    """The code blocks of that language, without their indent."""
    found = re.findall(rf"\.\. code:: {language}\n\n((?:  .*\n|\n)+)", TEXT)
    return [re.sub(r"^  ", "", block, flags=re.M).strip() + "\n" for block in found]


PROGRAMS = [each for each in blocks("python") if "PartitionGroup" not in each]
GROUP_PROGRAMS = [each for each in blocks("python") if "PartitionGroup" in each]


def started(program: str, server: RedisServer, directory: Path) -> subprocess.Popen[str]:
    assert "Redis()" in program
    file = directory / "program.py"
    file.write_text(program.replace("Redis()", f"Redis(unix_socket_path={str(server.socket)!r})"))
    return subprocess.Popen([sys.executable, file], stdout=subprocess.PIPE, text=True)


@pytest.mark.parametrize("program", GROUP_PROGRAMS, ids=["threads"])
def test_a_program_with_a_group_holds_partitions_and_leaves(
    client: Redis, redis_server: RedisServer, tmp_path: Path, program: str
) -> None:
    process = started(program, redis_server, tmp_path)
    with ending(process):
        assert process.stdout is not None
        begun = [process.stdout.readline() for _ in range(4)]
        assert begun == [f"begin {number}\n" for number in range(4)]
        assert client.zcard("{orders}:group:leases") == 1
        process.send_signal(signal.SIGINT)
        process.wait(PATIENCE)
    until(lambda: client.zcard("{orders}:group:leases") == 0, "it has left")


@pytest.mark.parametrize("number", range(len(PROGRAMS)))
def test_a_program_runs_owns_keys_and_leaves_the_ring(
    client: Redis, redis_server: RedisServer, tmp_path: Path, number: int
) -> None:
    process = started(PROGRAMS[number], redis_server, tmp_path)
    with ending(process):
        assert process.stdout is not None
        line = process.stdout.readline()
        if "while True" in PROGRAMS[number]:
            assert client.zcard("accounts") == 16
            assert line == f"{list(range(100))}\n"
            process.send_signal(signal.SIGINT)
        else:
            assert line == "['alice', 'bob', 'carol']\n"
        process.wait(PATIENCE)
    until(lambda: client.zcard("accounts") == 0, "it has left")


def test_every_command_it_shows_is_one() -> None:
    for block in blocks("bash"):
        for line in block.splitlines():
            words = shlex.split(line, comments=True)
            if words[0] == "hashring":
                name, *arguments = words[1:]
                context = click.Context(main, **main.context_settings)
                found = main.get_command(context, name)
                while isinstance(found, click.Group):
                    context = click.Context(found, parent=context, info_name=name)
                    name, *arguments = arguments
                    found = found.get_command(context, name)
                assert found is not None, line
                found.make_context(name, arguments, parent=context)
            elif words[0] == "pip":
                assert words[1:] == ["install", "hashring-fleet"]
            else:
                assert (ROOT / words[0]).stat().st_mode & 0o111, words[0]


def test_every_file_it_names_is_there() -> None:
    named = set(re.findall(r"<([\w/.-]+)>`_|\b(docs/[\w/-]+\.rst|scripts/\w+|example\.py)\b", TEXT))
    for first, second in named:
        assert (ROOT / (first or second)).exists(), first or second


def test_it_is_short_and_has_no_link_that_an_index_page_breaks() -> None:
    assert len(TEXT.splitlines()) <= 150
    assert re.findall(r"<(?!https?:)[^>\s]+>`_", TEXT) == []
    named = set(re.findall(r"``hashring (\w+)``", TEXT))
    assert named
    assert named <= set(COMMANDS)


def test_every_option_of_example_it_names_is_one() -> None:
    told = printed(ROOT / "example.py", "--help")
    for option in re.findall(r"example\.py (--\w+)", TEXT):
        assert option in told


def test_every_extra_it_names_is_one() -> None:
    text = (ROOT / "setup.cfg").read_text().partition("[options.extras_require]")[2]
    extras = set(re.findall(r"^(\w+) =", text, re.M))
    for named in re.findall(r"hashring-fleet\[([\w,]+)\]", TEXT):
        assert extras.issuperset(named.split(","))
    listed = TEXT.partition("Extras of the package: ")[2].partition("\n\n")[0]
    assert extras - {"dev"} == set(re.findall(r"``(\w+)``", listed))
