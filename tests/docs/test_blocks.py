"""Blocks of code in the documentation run, and the commands it names are commands."""

from __future__ import annotations

import logging
import os
import re
import shlex
import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from textwrap import dedent
from typing import Any

import click
import pytest
from click.testing import CliRunner
from redis import Redis

import hashring
from hashring.cli import main
from hashring.fencing import RedisFence
from hashring.store.embedded_server import RedisServer
from hashring.testing import ring_of
from tests.conftest import ROOT, eventually

pytestmark = pytest.mark.one_server

PAGES = sorted((ROOT / "docs").rglob("*.rst"))
GUIDES = [page for page in PAGES if page.parent.name != "reference"]
PYTHON = re.compile(r"^( *)\.\. code:: python\n\n((?:\1  .*\n|\n)+)", re.M)
SHELL = re.compile(r"^ *\$ (hashring (?:.*\\\n)*.*)", re.M)
LITERAL = re.compile(r"``(hashring [a-z][^`]*)``")


def blocks(page: Path) -> list[str]:
    """The page's blocks of Python, but those that need Spark or another library."""
    found = [dedent(block) for _, block in PYTHON.findall(page.read_text())]
    return [block for block in found if "spark." not in block and "redis_hashring" not in block]


def of_pages(pages: Iterable[Path], has: Callable[[Path], Any]) -> pytest.MarkDecorator:
    """Run the test for each of these pages that has some of it."""
    return pytest.mark.parametrize(
        "page",
        [page for page in pages if has(page)],
        ids=lambda page: str(page.relative_to(ROOT / "docs")),
    )


@pytest.fixture
def around(redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """What the pages' readers have already."""
    monkeypatch.setenv("NODE_NAME", "node-1")
    handler = signal.getsignal(signal.SIGTERM)
    with ExitStack() as stack:
        stack.callback(signal.signal, signal.SIGTERM, handler)
        redis = stack.enter_context(Redis(unix_socket_path=str(redis_server.socket)))
        redis.flushall()
        node = stack.enter_context(hashring.RingNode(redis, "locked", lock=True))
        group, _ = (
            stack.enter_context(hashring.PartitionGroup(redis, "a group", 8, member=member))
            for member in ("worker-3", "worker-4")
        )
        yield {
            **{name: getattr(hashring, name) for name in hashring.__all__},
            "Redis": Redis,
            "RedisFence": RedisFence,
            "RedisServer": RedisServer,
            "group": group,
            "keys": ["alice", "bob"],
            "logging": logging,
            "node": node,
            "os": os,
            "pinned_first": hashring.BalancedAssignor(),
            "pytest": pytest,
            "redis": redis,
            "requests_a_minute": {17: 310.0, 42: 20.0},
            "ring": ring_of("worker-1: 1e9\nworker-3: 2e9\nworker-5: 3e9"),
            "secret": "secret",
        }
        hidden = logging.getLogger("hashring")
        hidden.setLevel(logging.NOTSET)


@of_pages(GUIDES, blocks)
def test_blocks_of_python_run(page: Path, around: dict[str, Any]) -> None:
    for block in blocks(page):
        names = dict(around)
        exec(compile(block, str(page), "exec"), names)
        node = names["node"]
        if node is not around["node"]:
            node.stop()


def console_lines(page: Path) -> list[str]:
    """The lines of the page's consoles that call the program, in their order."""
    return [re.sub(r"\s*\\\n\s*", " ", line) for line in SHELL.findall(page.read_text())]


def commands(page: Path) -> set[str]:
    literals = LITERAL.findall(page.read_text())
    return {*console_lines(page), *(" ".join(literal.split()) for literal in literals)}


def words_of(line: str) -> list[str]:
    """A line's words after the program's name, up to a pipe or a file."""
    return shlex.split(line.partition(" | ")[0].partition(" > ")[0], comments=True)[1:]


def command_of(line: str) -> tuple[click.Command, list[str]]:
    """The command that a line calls, and its words."""
    words = words_of(line)
    while words[0].startswith("-"):
        words = words[2:]
    found: click.Command | None = main
    context = click.Context(main, **main.context_settings)
    while isinstance(found, click.Group) and words and words[0].islower():
        name, *words = words
        found = found.get_command(context, name)
        assert found is not None, f"{name!r} of {line!r} is no command"
    assert found is not None
    return found, words


@of_pages(PAGES, commands)
def test_the_commands_it_names_have_these_options(page: Path) -> None:
    for line in commands(page):
        command, words = command_of(line)
        options = {word.partition("=")[0] for word in words if word.startswith("-")}
        known = {name for each in command.params for name in (*each.opts, *each.secondary_opts)}
        assert options <= known | {"--help", "-h"}, line


@of_pages(PAGES, console_lines)
def test_the_lines_of_consoles_can_be_typed_as_they_are(page: Path) -> None:
    for line in console_lines(page):
        command, words = command_of(line)
        # Raises what a user would read.
        command.make_context(command.name, words, **main.context_settings)


def runs_here(line: str) -> bool:
    """Whether a line needs only Redis, and ends by itself."""
    return not re.search("--url|--wire|--follow|--every|hashring (spark|serve|demo)", line)


@of_pages(GUIDES, lambda page: any(map(runs_here, console_lines(page))))
def test_the_lines_of_consoles_run(
    page: Path, redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)  # a line may write a file
    monkeypatch.setenv("HASHRING_REDIS_URL", redis_server.url)
    monkeypatch.setenv("HASHRING_RING", "accounts")
    names = ("worker-3", "worker-4")
    with ExitStack() as stack:
        redis = stack.enter_context(Redis(unix_socket_path=str(redis_server.socket)))
        redis.flushall()
        nodes = [stack.enter_context(hashring.RingNode(redis, "accounts", name=n)) for n in names]
        groups = [
            stack.enter_context(hashring.PartitionGroup(redis, "orders", 8, member=name))
            for name in names
        ]
        eventually(lambda: nodes[0].get_node_count() == 2, "the nodes see each other")
        eventually(lambda: len(groups[0].status().members) == 2, "the members see each other")
        for line in filter(runs_here, console_lines(page)):
            done = CliRunner().invoke(main, words_of(line))
            assert done.exit_code == 0, f"{line}: {done.output}"
