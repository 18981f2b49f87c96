"""The benchmarks run, and the pages are what they wrote."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.programs import printed, python

pytestmark = pytest.mark.one_server

ROOT = Path(__file__).resolve().parents[2]
BENCH = ROOT / "scripts" / "bench"

# The numbers of a machine are not a test's matter: what is looked at is that there are some.


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return python(BENCH / "main.py", *arguments)


def bench(program: str) -> str:
    """What a program says that may import the benchmarks' modules."""
    return printed("-c", program, cwd=BENCH)


def test_a_measure_tells_its_lines_and_what_they_were_measured_on() -> None:
    before = (ROOT / "docs" / "explanation" / "benchmarks.rst").read_text()
    done = run("contains", "--quick", "--json")
    assert done.returncode == 0, done.stderr
    (taken,) = json.loads(done.stdout)
    assert taken["measure"] == "contains"
    values = {line["target"]: line["value"] for line in taken["result"]["lines"]}
    assert all(values[key] > 0 for key in ("contains-peer", "contains-floor", "contains-1000"))
    assert {"cores", "load", "python", "server", "libraries"} <= taken["facts"].keys()
    # A quick run is no measurement: it leaves the pages alone.
    assert (ROOT / "docs" / "explanation" / "benchmarks.rst").read_text() == before


# Benchmarks use private parts of the package. Only a run shows when one of them was renamed.
LIVE = ["join", "own-live", "own-ranges-simulated", "simulated"]
LIVE_TOO = [
    "assignors",
    "balanced",
    "crash",
    "group-at-rest",
    "group-handoffs",
    "groups",
    "libraries",
    "locks",
    "memory",
    "own-ranges",
    "own-ranges-100k",
    "restart",
    "scaling",
    "select",
    "service",
    "steady",
    "thousand",
]


@pytest.mark.parametrize(
    "name", [*LIVE, *(pytest.param(name, marks=pytest.mark.long) for name in LIVE_TOO)]
)
def test_a_measure_runs(name: str) -> None:
    done = run(name, "--quick", "--json")
    assert done.returncode == 0, done.stderr
    (taken,) = json.loads(done.stdout)
    assert taken["result"]["lines"]


def test_every_measure_without_spark_is_run_by_a_test() -> None:
    told = bench(
        "from measures import BY_NAME; from targets import PIPELINE as far\n"
        "print(*sorted(name for name, it in BY_NAME.items() if it.room != far))"
    )
    assert told.split() == sorted(["contains", *LIVE, *LIVE_TOO])


def test_a_name_that_is_no_measure_is_refused_with_those_there_are() -> None:
    done = run("contain")
    assert done.returncode == 2
    assert "there is no measure contain; there are contains, " in done.stderr


def test_after_ctrl_c_the_pages_are_written_of_what_was_measured_until_then() -> None:
    told = bench(
        "import sys, main\n"
        "from dataclasses import replace\n"
        "from result import Result\n"
        "def interrupted(run):\n"
        "    raise KeyboardInterrupt\n"
        "one = main.BY_NAME['contains']\n"
        "for name, taken in (('first', lambda run: Result()), ('second', interrupted)):\n"
        "    main.BY_NAME[name] = replace(one, name=name, take=taken)\n"
        "main.pages.keep = lambda taken: print('kept', taken['measure'])\n"
        "main.pages.write = lambda: print('written') or []\n"
        "sys.argv = ['run', 'first', 'second', '--json']\n"
        "print(main.main())"
    )
    assert told.splitlines()[0] == "kept first"
    assert told.splitlines()[-2:] == ["written", "130"]


def test_the_pages_are_what_the_numbers_say() -> None:
    # `scripts/bench/run --pages` writes them anew.
    assert "same" in bench(
        "import pages\n"
        "results = pages.kept()\n"
        "assert pages.PAGE.read_text() == pages.page(results)\n"
        "others = [results.get(name) for name in pages.BESIDES]\n"
        "scaling = pages.scaling(results['scaling'], *others)\n"
        "assert pages.SCALING.read_text() == scaling\n"
        "readme = pages.README.read_text()\n"
        "assert readme == pages.readme(results, readme)\n"
        "for name, taken in results.items():\n"
        "    raw = pages.FOLDER / f'{name}.csv'\n"
        "    assert raw.read_text() == pages.table(taken), raw\n"
        "print('same')"
    )


def test_every_line_with_a_target_names_one_that_there_is() -> None:
    strangers = bench(
        "import pages\n"
        "from targets import BY_KEY\n"
        "print(sorted(pages.found(pages.kept()).keys() - BY_KEY.keys()))"
    )
    assert strangers == "[]"


def test_every_target_is_in_a_room_that_there_is() -> None:
    unknown = bench(
        "import targets as t\n"
        "rooms = (t.RING, t.LOCKS, t.GROUPS, t.SERVICE, t.PIPELINE, t.SCALE)\n"
        "print([target.key for target in t.TARGETS if target.room not in rooms])"
    )
    assert unknown == "[]"


def test_every_target_names_the_measure_that_takes_it() -> None:
    unknown = bench(
        "from measures import BY_NAME\n"
        "from targets import TARGETS\n"
        "print([t.key for t in TARGETS if t.measure not in BY_NAME])"
    )
    assert unknown == "[]"


def test_each_join_and_leave_of_the_assignors_is_that_of_one_member() -> None:
    changes = bench(
        "from itertools import pairwise\n"
        "from assignors import joins_and_leaves\n"
        "history = joins_and_leaves(39)\n"
        "print({len({*a} ^ {*b}) for a, b in pairwise(history)}, len(history))"
    )
    assert changes == "{1} 40"


def test_each_page_that_is_measured_is_whole_and_made_anew() -> None:
    told = bench(
        "import json, re\n"
        "from service import Redis, RedisServer, beat, fill, load, serving, version\n"
        "with RedisServer() as server, Redis(unix_socket_path=str(server.socket)) as client:\n"
        "    fill(client, 60)\n"
        "    with serving(server.url) as (port, _):\n"
        "        loads = []\n"
        "        for _ in range(3):\n"
        "            beat(client, port)\n"
        "            loads.append((load(port), version(port)))\n"
        "print(json.dumps([\n"
        "    [len(re.findall(b'<tr id=', body)), next(iter(re.findall(b'data-beat=.([\\\\d.]+)',"
        " body))).decode(), version] for body, version in loads\n"
        "]))\n"
    )
    rows, beats, versions = zip(*json.loads(told), strict=True)
    assert rows == (60, 60, 60)
    assert "" not in versions
    assert len(set(beats)) == len(set(versions)) == 3


def test_a_page_that_is_closed_is_closed_for_the_service_too() -> None:
    # Otherwise the pages of one round would still be open when one page is measured in the next.
    told = bench(
        "import service, gevent, socket\n"
        "server = socket.create_server(('127.0.0.1', 0))\n"
        "def answer():\n"
        "    connection, _ = server.accept()\n"
        "    connection.recv(65536)\n"
        "    connection.sendall(b'HTTP/1.1 200 OK\\r\\nConnection: close\\r\\n\\r\\n')\n"
        "    return connection.recv(1)\n"
        "answering = gevent.spawn(answer)\n"
        "page = service.Page(server.getsockname()[1], '')\n"
        "page.close()\n"
        "print('closed' if answering.get(timeout=10) == b'' else 'open')\n"
    )
    assert told == "closed"
