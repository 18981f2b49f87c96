"""print, nodes, owner, events, remove: on a real Redis, with real nodes."""

from __future__ import annotations

import json
import os
import re
import resource
import select
import signal
import subprocess
import sys
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from redis import Redis
from redis_hashring import HashAlgorithm as OldAlgorithm
from redis_hashring import RingNode as OldNode

from hashring import Ring, RingNode
from hashring.cli.connection import Connection
from hashring.store.embedded_server import RedisServer
from tests.cli.conftest import Run, ending, finished, line_with, nodes_on, put, spawn, until

REPLICA = re.compile(r" {0,9}\d{1,10} +\d+\.\d\d% +\d+s \S+")

# --- print --------------------------------------------------------------------------------------


def test_print_shows_the_tables_of_the_seed(client: Redis, run: Run) -> None:
    put(client, "mbp.local:80721", 706234936, 833679955, 2037338983, told={"ttl": 60})
    put(client, "mbp.local:80808", 4175523935, told={"ttl": 60})
    assert run("print").lines == [
        'Hash ring "ring" replicas:',
        "Start      Range  Delay   Node",
        " 706234936  2.97%      0s mbp.local:80721:0",
        " 833679955 28.02%      0s mbp.local:80721:1",
        "2037338983 49.78%      0s mbp.local:80721:2",
        "4175523935 19.22%      0s mbp.local:80808:0",
        "",
        'Hash ring "ring" nodes:',
        "Range    Replicas Delay   Hostname             PID   Node",
        "80.78%        3      0s mbp.local            80721 mbp.local:80721",
        "19.22%        1      0s mbp.local            80808 mbp.local:80808",
    ]


def test_print_marks_what_expired(client: Redis, run: Run) -> None:
    put(client, "a:1", 1000, expires_in=50, told={"ttl": 60})
    put(client, "b:2", 3000000000, expires_in=-5, told={"ttl": 60})
    replica, node = (line for line in run("print").lines if "EXPIRED" in line)
    assert replica == "3000000000 30.15%     65s b:2:0 (EXPIRED)"
    assert node == "30.15%        1     65s b                        2 b:2 (EXPIRED)"


def test_print_names_the_nodes_of_one_host(client: Redis, run: Run) -> None:
    put(client, "alder", 1000, told={"host": "vm", "pid": 7})
    put(client, "evil\x1b[2J", 3000000000, told={"host": "vm", "pid": 7})
    assert [line.split()[3:] for line in run("print").lines[-2:]] == [
        ["vm", "7", "alder"],
        ["vm", "7", "evil\\x1b[2J"],
    ]


def test_print_of_an_empty_ring_says_so(run: Run) -> None:
    assert run("print", "--ring", "other").lines == [
        'Hash ring "other" replicas:',
        "(no replicas)",
        "",
        'Hash ring "other" nodes:',
        "(no nodes)",
    ]


def test_print_of_real_nodes_adds_up_to_the_whole_ring(client: Redis, run: Run) -> None:
    with nodes_on(client, "alder", "birch", n_replicas=4):
        done = run("print")
    assert sum(1 for line in done.lines if REPLICA.fullmatch(line)) == 8
    shares = [float(line.split("%")[0]) for line in done.lines[-2:]]
    assert sum(shares) == pytest.approx(100, abs=0.02)


def test_print_mentions_garbage_beside_the_tables(client: Redis, run: Run) -> None:
    client.zadd("ring", {"abc": 1e12})
    assert run("print").err == (
        "hashring: 1 member of the ring not shown, being no replica: hashring doctor says why\n"
    )


def test_print_as_json_has_everything(client: Redis, run: Run) -> None:
    client.zadd("ring", {b"\xff": 1e12})
    with nodes_on(client, "alder", n_replicas=2) as (node,):
        told = run("print", "--json").json
        fingerprint = node.ring.fingerprint
    assert told["ring"] == "ring"
    assert told["epoch"] == 1
    assert told["fingerprint"] == fingerprint
    assert [row["replica"].rpartition(":")[0] for row in told["replicas"]] == ["alder"] * 2
    assert told["nodes"][0]["name"] == "alder"
    assert told["nodes"][0]["share"] == 1.0
    assert told["garbage"] == [
        {
            "member": "\\xff",
            "why": "ring member b'\\xff' is not UTF-8; expected start:node:id",
        }
    ]


def test_print_draws_the_ring_into_a_file(client: Redis, run: Run, tmp_path: Path) -> None:
    put(client, "<b>:1", 1000, expires_in=50)
    put(client, "gone:2", 3000000000, expires_in=-5)
    file = tmp_path / "ring.svg"
    assert run("print", "--svg", str(file)).out == ""
    picture = ElementTree.fromstring(file.read_text())
    titles = [title.text for title in picture.iter("{http://www.w3.org/2000/svg}title")]
    assert titles[0] == "Hash ring ring"
    assert "<b>:1: points 1000 to 999, 100.00% of the ring" in titles
    assert "gone:2: expired, owns nothing" in titles


NO_BYTECODE = {"PYTHONDONTWRITEBYTECODE": "1"}
"""For a program that may not write large files: Python would leave compiled modules cut short."""


@pytest.mark.one_server
@pytest.mark.parametrize("command", [("print", "--svg"), ("plot",)], ids=lambda words: words[0])
def test_a_picture_that_does_not_fit_leaves_the_one_before(
    client: Redis, redis_server: RedisServer, tmp_path: Path, command: tuple[str, ...]
) -> None:
    put(client, "a:1", 1000)
    file = tmp_path / "ring.svg"
    file.write_text("the one before")

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))

    process = spawn(
        *("hashring", *command, str(file)), url=redis_server.url, preexec_fn=limit, env=NO_BYTECODE
    )
    status, _, err = finished(process)
    assert (status, "File too large" in err) == (2, True)
    assert [found.read_text() for found in tmp_path.iterdir()] == ["the one before"]


def test_a_picture_goes_into_a_pipe_that_is_there(client: Redis, run: Run, tmp_path: Path) -> None:
    put(client, "a:1", 1000)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    run("print", "--svg", str(pipe))
    assert os.read(reader, 4) == b"<svg"
    os.close(reader)


def test_print_draws_to_standard_output(client: Redis, run: Run) -> None:
    put(client, "a:1", 1000, expires_in=50)
    assert ElementTree.fromstring(run("print", "--svg", "-").out).tag.endswith("svg")


def test_print_refuses_a_picture_in_json(run: Run) -> None:
    done = run("print", "--svg", "-", "--json", status=2)
    assert "Error: --svg draws and --json writes: give one of them" in done.err


def test_a_picture_that_cannot_be_written_is_said(run: Run, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = run("print", "--svg", str(tmp_path / "file" / "ring.svg"), status=2)
    assert "Invalid value for --svg: " in done.err
    assert "file/ring.svg: " in done.err


@pytest.mark.parametrize("command", [("print", "--svg"), ("plot",), ("export",)])
def test_the_directory_of_a_file_that_is_written_is_made(
    client: Redis, run: Run, tmp_path: Path, command: tuple[str, ...]
) -> None:
    put(client, "alder", 5)
    file = tmp_path / "new" / "folder" / "ring"
    run(*command, str(file))
    assert file.read_text()


def test_names_on_the_ring_cannot_write_into_the_terminal(client: Redis, run: Run) -> None:
    put(client, "evil\x1b[2J\u202e:1", 5)
    for command in ("print", "nodes", "doctor"):
        out = run(command).out
        assert "\x1b" not in out
        assert "\u202e" not in out
        assert "evil\\x1b[2J\\u202e" in out


@pytest.mark.parametrize("command", ["nodes", "locks", "events", "doctor"])
def test_a_name_with_control_characters_is_escaped_once(run: Run, command: str) -> None:
    assert r"ring 'o\x1b[31m'" in run(command, "--ring", "o\x1b[31m").out


def test_numbers_that_only_a_hand_writes_do_no_harm(client: Redis, run: Run) -> None:
    put(client, "far:1", 5, told={"ttl": 1e400, "weight": "x", "started": True})
    client.zadd("ring", {"7:far:2": "inf", "9:gone:1": "-inf"})
    client.hset("{ring}:nodes", "far:1", "x" * 16 + '{"ttl": NaN, "sees": 3, "started": -1e300}')
    for command in ("print", "nodes"):
        run(command)
        json.loads(run(command, "--json").out, parse_constant=pytest.fail)


# --- plot ---------------------------------------------------------------------------------------


def test_plot_draws_the_balance(client: Redis, run: Run, tmp_path: Path) -> None:
    put(client, "a:1", 0, expires_in=50)
    put(client, "b:2", 3 * 2**30, expires_in=50)
    file = tmp_path / "balance.svg"
    assert run("plot", str(file)).out == ""
    picture = ElementTree.fromstring(file.read_text())
    assert picture[0].text == "Balance of ring ring"
    assert ElementTree.fromstring(run("plot").out)[0].text == "Balance of ring ring"


def test_plot_as_json_has_the_numbers(client: Redis, run: Run) -> None:
    put(client, "a:1", 0, expires_in=50)
    put(client, "b:2", 3 * 2**30, expires_in=50)
    told = run("plot", "--json").json
    assert [(each["node"], each["load"]) for each in told["nodes"]] == [("b:2", 0.5), ("a:1", 1.5)]
    assert (told["peak_to_mean"], told["cv"]) == (1.5, 0.5)
    assert told["expected_peak_to_mean"] == pytest.approx(1.5, abs=1e-3)


def test_plot_of_an_empty_ring_is_a_problem(run: Run) -> None:
    assert "hashring: the ring has no nodes" in run("plot", status=1).err


# --- nodes --------------------------------------------------------------------------------------


def test_nodes_lists_each_with_its_share_and_what_it_sees(client: Redis, run: Run) -> None:
    with nodes_on(client, "alder", "birch", "ceder:[::1]", n_replicas=4) as nodes:
        for node in nodes:
            node.heartbeat()
        done = run("nodes")
    assert done.lines[0].split() == [
        "Share",
        "Replicas",
        "Heartbeat",
        "Expires",
        "Sees",
        "Since",
        "Node",
    ]
    assert {line.split()[-1] for line in done.lines[1:]} == {"alder", "birch", "ceder:[::1]"}
    assert all(" current " in line for line in done.lines[1:])


def test_nodes_shows_and_counts_zones(client: Redis, run: Run) -> None:
    put(client, "a:1", 1, told={"zone": "eu-1a"})
    put(client, "b:1", 2, told={"zone": "eu-1b"})
    put(client, "c:1", 3, told={"zone": "eu-1a"})
    put(client, "d:1", 4)
    put(client, "gone:1", 5, told={"zone": "eu-1c"}, expires_in=-5)
    done = run("nodes")
    assert done.lines[0].split()[0] == "Zone"
    assert sorted(line.split()[0] for line in done.lines[1:6]) == [
        "-",
        "eu-1a",
        "eu-1a",
        "eu-1b",
        "eu-1c",
    ]
    assert done.lines[-1] == "eu-1a: 2 nodes; eu-1b: 1 node; no zone: 1 node"
    assert run("nodes", "--json").json["zones"] == {"eu-1a": 2, "eu-1b": 1}


def test_nodes_shows_the_loads_that_are_reported(client: Redis, run: Run) -> None:
    for number, load in enumerate([0.81234, None, "much", -1]):
        put(client, f"{number}:1", number, told={"load": load})
    lines = [line.split() for line in run("nodes").lines]
    assert [line[0] for line in lines] == ["Load", "0.812", "-", "-", "-"]
    told = run("nodes", "--json").json["nodes"]
    assert [node["load"] for node in told] == [0.81234, None, None, None]


def test_a_node_that_is_drained_does_not_count_in_its_zone(client: Redis, run: Run) -> None:
    with nodes_on(client, "alder", "birch", zone="eu-1a") as (alder, _):
        alder.drain()
        assert "\neu-1a: 1 node\n" in run("nodes").out
        assert run("nodes", "--json").json["zones"] == {"eu-1a": 1}


def test_a_node_reports_its_zone(client: Redis, run: Run) -> None:
    with nodes_on(client, "alder", zone="eu-1a") as (alder,):
        assert alder.zone == "eu-1a"
        assert run("nodes", "--json").json["nodes"][0]["zone"] == "eu-1a"


def test_nodes_tell_their_hash_algorithm(client: Redis, run: Run) -> None:
    with nodes_on(client, "alder", hash_algorithm="crc-32c"):
        assert run("nodes", "--json").json["nodes"][0]["hash_algorithm"] == "crc-32c"


def test_nodes_says_who_has_not_confirmed_the_last_change(client: Redis, run: Run) -> None:
    with nodes_on(client, "alder") as (alder,):
        alder.heartbeat()
        with nodes_on(client, "birch") as (birch,):
            birch.heartbeat()
            sees = {node["name"]: node["sees"] for node in run("nodes", "--json").json["nodes"]}
            assert sees == {"alder": "older", "birch": "current"}


def test_an_expired_node_has_no_share(client: Redis, run: Run) -> None:
    put(client, "a:1", 1000)
    put(client, "b:2", 3000000000, expires_in=-5)
    shares = {node["name"]: node["share"] for node in run("nodes", "--json").json["nodes"]}
    assert shares == {"a:1": 1.0, "b:2": 0.0}
    assert "EXPIRED" in run("nodes").lines[2]


def test_nodes_of_an_empty_ring_says_so(run: Run) -> None:
    assert run("nodes").out == "no nodes on ring 'ring'\n"


def test_nodes_of_a_ring_that_is_not_there_says_which_there_are(client: Redis, run: Run) -> None:
    for name in ("feeds", "accounts", "evil\x1b[2J"):
        client.set(f"{{{name}}}:epoch", "1 ab")
    client.set("{orders}:group:state", "no ring")
    there = "rings here: accounts, evil\\x1b[2J, feeds"
    assert run("nodes").out == f"no nodes on ring 'ring'; {there}\n"
    assert run("nodes", "--json").json["nodes"] == []
    client.set("{ring}:epoch", "1 ab")
    assert run("nodes").out == "no nodes on ring 'ring'\n"


def test_nodes_of_a_ring_that_is_not_there_does_not_look_for_others_for_long(
    client: Redis, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hashring.cli.rings_on_server._PATIENCE", -1.0)
    client.set("{accounts}:epoch", "1 ab")
    assert run("nodes").out == "no nodes on ring 'ring'; rings here: accounts, and perhaps more\n"


def test_nodes_of_a_ring_that_is_not_there_works_without_the_right_to_look_for_others(
    client: Redis, redis_server: RedisServer, run: Run
) -> None:
    client.set("{accounts}:epoch", "1 ab")
    client.execute_command("ACL", "SETUSER", "limited", "on", ">pw", "~*", "+@all", "-scan")
    url = redis_server.url.replace("unix://", "unix://limited:pw@")
    assert run("nodes", url=url).out == "no nodes on ring 'ring'\n"
    empty = {"ring": "ring", "nodes": [], "zones": {}, "drains": {}, "weights": {}}
    assert run("nodes", "--json").json == empty


# --- owner --------------------------------------------------------------------------------------


def test_owner_answers_as_the_nodes_do(client: Redis, run: Run) -> None:
    keys = [f"account:{number}" for number in range(50)]
    with nodes_on(client, "alder", "birch") as nodes:
        done = run("owner", *keys)
        owners = dict(line.split("\t") for line in done.lines)
        assert list(owners) == keys
        for node in nodes:
            for key in keys:
                assert node.contains(key) == (owners[key] == node.name)


def test_owner_of_the_worked_example(client: Redis, run: Run) -> None:
    put(client, "first", 1_000_000_000)
    put(client, "second", 2_000_000_000)
    assert run("owner", "hello", "--json").json == {
        "key": "hello",
        "point": 907060870,
        "owner": "second",
    }


def test_owner_lists_nodes_in_different_zones(client: Redis, run: Run) -> None:
    zones = {"a:1": "eu-1a", "b:1": "eu-1a", "c:1": "eu-1b"}
    for number, (name, zone) in enumerate(zones.items(), 1):
        put(client, name, number * 10**9, told={"zone": zone})
    # The point of account:2 is above all of them, so the walk is c, b, a.
    assert run("owner", "--owners", "2", "account:2").out == "account:2\tc:1\tb:1\n"
    told = run("owner", "--owners", "3", "--json", "account:2").json
    assert told["owners"] == [
        {"node": "c:1", "zone": "eu-1b"},
        {"node": "b:1", "zone": "eu-1a"},
        {"node": "a:1", "zone": "eu-1a"},
    ]


def test_owner_reads_keys_from_standard_input_and_reports_bad_lines(
    client: Redis, run: Run
) -> None:
    put(client, "only", 5)
    lines = "\ufeffä\r\n\nb\tc\n".encode() + b"\xff\xfe\n" + b"x" * 70000 + b"\nlast"
    done = run("owner", "-", stdin=lines, status=1)
    assert done.out == "ä\tonly\nb\\tc\tonly\nlast\tonly\n"
    assert done.err.splitlines() == [
        "hashring: standard input: line 2 is empty: skipped",
        "hashring: standard input: line 4 is not UTF-8: skipped",
        "hashring: standard input: line 5 is longer than 65536 bytes: skipped",
    ]
    answers = run("owner", "-", "--json", stdin=lines, status=1).json_lines
    assert [answer["key"] for answer in answers] == ["ä", "b\tc", "last"]


def test_owner_counts_bad_lines_instead_of_listing_thousands(client: Redis, run: Run) -> None:
    put(client, "only", 5)
    done = run("owner", "-", stdin=b"\n" * 5000, status=1)
    assert done.out == ""
    assert done.err.count("skipped\n") == 3
    assert done.err.endswith("standard input: 5,000 lines skipped in all\n")


def test_owner_follows_the_hash_algorithm_that_the_nodes_tell(client: Redis, run: Run) -> None:
    with nodes_on(client, "alder", "birch", hash_algorithm="crc-32c") as (alder, _):
        ring = alder.ring
        for number in range(20):
            assert run("owner", f"k{number}").out == f"k{number}\t{ring.owner(f'k{number}')}\n"
        points = {name: ring.points_of(name) for name in ring.nodes}
        other = Ring(points, "crc-32")
        done = run("owner", "--hash-algorithm", "crc-32", *(f"k{n}" for n in range(20)))
        assert done.lines == [f"k{n}\t{other.owner(f'k{n}')}" for n in range(20)]
        assert done.err == (
            "hashring: the nodes hash with crc-32c, not crc-32: they own other keys than this "
            "answer says\n"
        )


def test_owner_does_not_guess_when_nodes_hash_differently(client: Redis, run: Run) -> None:
    put(client, "a", 5, told={"hash_algorithm": "crc-32"})
    put(client, "b", 6, told={"hash_algorithm": "xxh32"})
    err = run("owner", "k", status=2).err
    assert "hash_algorithm='crc-32 and xxh32': the nodes do not agree" in err
    assert run("owner", "k", "--hash-algorithm", "xxh32").err == ""
    assert "hash with crc-32 and xxh32, not" in run("owner", "k", "--hash-algorithm", "crc-32c").err


def test_owner_on_an_empty_ring_is_a_problem(run: Run) -> None:
    assert run("owner", "k", status=1).err == (
        "hashring: the ring has no nodes, so no key has an owner: start a node first\n"
    )


def test_a_key_may_begin_with_a_dash(client: Redis, run: Run) -> None:
    put(client, "only", 5)
    assert run("owner", "--", "-k").out == "-k\tonly\n"
    assert run("owner", "--", "-", "a").out == "-\tonly\na\tonly\n"


# --- events -------------------------------------------------------------------------------------


def test_events_tell_who_joined_left_and_expired(client: Redis, run: Run) -> None:
    with nodes_on(client, "alder", n_replicas=3):
        put(client, "gone", 7, 9, expires_in=-1)
        RingNode(client, "ring", name="sweeper").cleanup()
    lines = [line.split("  ", 1) for line in run("events").lines]
    assert [rest for _, rest in lines] == [
        "join    alder (start, 3 points, epoch 1)",
        "expire  gone (by sweeper, epoch 2)",
        "leave   alder (stop, epoch 3)",
    ]
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}", at) for at, _ in lines)


def test_events_as_json_lines_with_times_in_utc(client: Redis, run: Run) -> None:
    with nodes_on(client, "alder", n_replicas=3) as (alder,):
        points = list(alder.ring.points_of("alder"))
    first, last = run("events", "--json").json_lines
    assert (first["kind"], first["nodes"], first["points"]) == ("join", ["alder"], points)
    assert (last["kind"], last["reason"], last["epoch"]) == ("leave", "stop", 2)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+00:00", first["at"])


def test_events_count_takes_the_last_ones_in_order(client: Redis, run: Run) -> None:
    for number in range(2500):
        client.xadd("{ring}:events", {"kind": "note", "by": str(number)}, id=f"{number + 1}-0")
    assert [event["by"] for event in run("events", "-n", "2", "--json").json_lines] == [
        "2498",
        "2499",
    ]
    everything = run("events", "-n", "99999", "--json").json_lines
    assert [event["by"] for event in everything] == [str(number) for number in range(2500)]
    assert run("events", "-n", "0", "--json").out == run("events", "-n", "0").out == ""


def test_an_event_of_a_time_beyond_the_calendar_is_shown(client: Redis, run: Run) -> None:
    client.xadd("{ring}:events", {"kind": "note"}, id=f"{2**64 - 1}-0")
    assert run("events").out.startswith("9999-12-3")
    assert run("events", "--json").json["at"] == "9999-12-31T00:00:00.000+00:00"


def test_events_of_a_ring_in_the_form_of_redis_hashring_are_said_to_lack_some(
    client: Redis, run: Run, tmp_path: Path
) -> None:
    with nodes_on(client, "a"):
        pass
    for more in ((), ("--archive", str(tmp_path))):
        found = run("events", "--wire", "redis-hashring", *more)
        assert found.err == "hashring: nodes of redis-hashring write no events: these lack theirs\n"
        assert found.out


def test_events_are_archived_once_and_in_a_chain(client: Redis, run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "a" / "events"
    with RingNode(client, "ring", name="a"):
        assert run("events", "--archive", str(folder)).out == f"1 event archived in {folder}\n"
        with RingNode(client, "ring", name="b"):
            pass
    told = run("events", "--archive", str(folder), "--json").json
    assert told == {"archived": 3, "directory": str(folder)}
    assert run("events", "--archive", str(folder), "--json").json["archived"] == 0
    files = [file.read_text().splitlines() for file in sorted(folder.iterdir())]
    found = [json.loads(line) for lines in files for line in lines]
    assert [len(lines) for lines in files] == [1, 3]
    assert [(e["kind"], e["nodes"]) for e in found] == [
        ("join", ["a"]), ("join", ["b"]), ("leave", ["b"]), ("leave", ["a"]),
    ]  # fmt: skip
    assert [e["prev"] for e in found[1:]] == [e["tag"] for e in found[:-1]]
    assert sorted(file.name for file in folder.iterdir())[1] == f"{found[0]['id']}.json"


def test_archived_changes_have_the_very_time_of_the_change(
    client: Redis, run: Run, tmp_path: Path
) -> None:
    with RingNode(client, "ring", name="a"):
        pass
    run("events", "--archive", str(tmp_path))
    found = [json.loads(line) for line in (tmp_path / "0-0.json").read_text().splitlines()]
    stamps = [
        int(json.loads(fields[b"data"])["at"]) for _, fields in client.xrange("{ring}:events")
    ]
    begin = datetime(1970, 1, 1, tzinfo=timezone.utc)
    times = [datetime.fromisoformat(event["at"]) for event in found]
    assert [(time - begin) // timedelta(microseconds=1) for time in times] == stamps


def test_an_archive_whose_events_are_dropped_as_they_are_read_is_refused(
    client: Redis, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(1, 1501):
        client.xadd("{ring}:events", {"kind": "note"}, id=f"{number}-0")
    call = Connection.call

    def then_cut(connection: Connection, *command: Any) -> Any:
        found = call(connection, *command)
        if command[0] == "XRANGE":
            client.xtrim("{ring}:events", maxlen=400, approximate=False)
        return found

    monkeypatch.setattr(Connection, "call", then_cut)
    lost = run("events", "--archive", str(tmp_path), status=2).err
    assert "after 1000-0 are gone (the oldest left is 1101-0): they were dropped while" in lost
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("separator", ["\u0085", "\u2028", "\u2029"])
def test_an_archive_goes_on_after_a_name_with_a_separator_of_lines(
    client: Redis, run: Run, tmp_path: Path, separator: str
) -> None:
    with RingNode(client, "ring", name=f"x{separator}y"):
        pass
    assert run("events", "--archive", str(tmp_path), "--json").json["archived"] == 2
    assert run("events", "--archive", str(tmp_path), "--json").json["archived"] == 0


def test_an_archive_with_a_gap_or_a_damaged_file_is_refused(
    client: Redis, run: Run, tmp_path: Path
) -> None:
    client.xadd("{ring}:events", {"kind": "note"}, id="1-0")
    run("events", "--archive", str(tmp_path))
    (tmp_path / "0-0 (copy).json").write_text("of no concern")
    assert run("events", "--archive", str(tmp_path), "--json").json["archived"] == 0
    client.xadd("{ring}:events", {"kind": "note"}, id="7-0")
    client.xtrim("{ring}:events", maxlen=1, approximate=False)
    lost = run("events", "--archive", str(tmp_path), status=2)
    assert "events of ring 'ring' after 1-0 are gone (the oldest left is 7-0): arch" in lost.err
    (tmp_path / "0-0.json").write_text('{"id": "1-')
    assert "0-0.json cannot be read" in run("events", "--archive", str(tmp_path), status=2).err
    (tmp_path / "0-0.json").write_text('{"id": "1-x"}')
    damaged = run("events", "--archive", str(tmp_path), status=2).err
    assert "0-0.json cannot be read ('1-x' is no id of an event)" in damaged
    counted = run("events", "-n", "1", "--archive", str(tmp_path), status=2).err
    assert "--count: --archive writes every event that is not there yet" in counted
    assert "run it by a timer" in run("events", "-f", "--archive", str(tmp_path), status=2).err


@pytest.mark.parametrize(
    ("kept", "left"), [((), "none is left"), (("5-0",), "the oldest left is 5-0")]
)
def test_an_archive_of_events_that_redis_lost_says_so(
    client: Redis, run: Run, tmp_path: Path, kept: tuple[str, ...], left: str
) -> None:
    client.xadd("{ring}:events", {"kind": "note"}, id="17-0")
    run("events", "--archive", str(tmp_path))
    client.delete("{ring}:events")
    for id_ in kept:
        client.xadd("{ring}:events", {"kind": "note"}, id=id_)
    lost = run("events", "--archive", str(tmp_path), status=2).err
    assert f"after 17-0 are gone ({left}): Redis lost its data" in lost
    assert "or the directory is of a ring on another Redis; archive into another dir" in lost
    assert "more often" not in lost


def test_an_archive_takes_no_events_of_another_ring(
    client: Redis, run: Run, tmp_path: Path
) -> None:
    for ring, id_ in (("accounts", "5-0"), ("feeds", "3-0"), ("feeds", "7-0")):
        client.xadd(f"{{{ring}}}:events", {"kind": "note"}, id=id_)
    run("events", "--ring", "accounts", "--archive", str(tmp_path))
    other = run("events", "--ring", "feeds", "--archive", str(tmp_path), status=2).err
    assert other == (
        f"hashring: archive='{tmp_path}': has events of ring 'accounts', not of 'feeds': "
        "give each ring its own directory\n"
    )
    assert [file.name for file in tmp_path.iterdir()] == ["0-0.json"]


def test_no_events_is_said(run: Run) -> None:
    assert run("events").out == "no events on ring 'ring'\n"


def test_events_follow_goes_on_through_a_restart_of_redis() -> None:
    with (
        RedisServer() as redis_server,
        Redis(unix_socket_path=str(redis_server.socket)) as client,
        ending(spawn("hashring", "events", "--follow", "-n", "0", url=redis_server.url)) as process,
    ):
        until(lambda: client.pubsub_numsub("ring")[0][1], "it subscribes")
        with nodes_on(client, "alder"):
            assert "join    alder" in line_with(process, "")
        assert "leave   alder" in line_with(process, "")
        redis_server.kill()
        assert "hashring: " in line_with(process, "", "stderr")
        redis_server.start()
        with nodes_on(client, "birch"):
            assert "Redis answers again" in line_with(process, "", "stderr")
            assert "join    birch" in line_with(process, "")
        process.send_signal(signal.SIGINT)
        assert process.stderr is not None
        # Through the same buffer as the lines before: else what it holds would be missing.
        rest = process.stderr.read().strip().splitlines()
        assert process.wait() == 130
        # On a busy machine Redis may have gone away, and answered again, once more.
        assert rest[1::2] == ["hashring: Redis answers again"] * (len(rest) // 2)
        assert len(rest) % 2 == 0
        assert all(line.startswith("hashring: ") for line in rest)


# --- remove -------------------------------------------------------------------------------------


def test_remove_takes_a_node_off_and_says_that_a_live_one_comes_back(
    client: Redis, run: Run
) -> None:
    put(client, "dead", 5, 7, told={})
    put(client, "other", 9)
    done = run("remove", "dead", "--yes")
    assert done.out == "removed dead (2 replicas) of ring 'ring'\n"
    assert done.err == (
        "hashring: dead has not expired: if its process lives, "
        "it comes back with its next heartbeat\n"
    )
    assert client.zrange("ring", 0, -1) == [b"9:other:0"]
    assert client.hkeys("{ring}:nodes") == [b"other"]
    (event,) = run("events", "--json").json_lines
    assert (event["kind"], event["nodes"], event["reason"]) == ("leave", ["dead"], "removed")
    assert event["by"].startswith("hashring remove on ")


def test_a_removed_live_node_does_come_back(client: Redis, run: Run) -> None:
    with nodes_on(client, "alder", n_replicas=2) as (alder,):
        run("remove", "alder", "--yes")
        until(lambda: client.zcard("ring") == 2, "it comes back")
        until(lambda: alder.contains("k"), "it owns again")


def test_remove_of_an_expired_node_gives_no_warning(client: Redis, run: Run) -> None:
    put(client, "dead", 5, expires_in=-5)
    assert run("remove", "dead", "-y").err == ""


def test_remove_takes_a_stray_entry_away(client: Redis, run: Run) -> None:
    client.hset("{ring}:nodes", "stray", "x" * 16 + "{}")
    assert run("remove", "stray", "-y", "--json").json == {
        "ring": "ring",
        "node": "stray",
        "removed": True,
    }
    assert not client.exists("{ring}:nodes")


def test_remove_of_an_unknown_node_names_a_near_one(client: Redis, run: Run) -> None:
    put(client, "worker-3", 5)
    assert run("remove", "woker-3", "-y", status=1).err.splitlines() == [
        "hashring: node 'woker-3' is not on ring 'ring'; did you mean 'worker-3'?",
    ]
    assert client.zcard("ring") == 1


def test_remove_without_yes_and_without_a_terminal_changes_nothing(client: Redis, run: Run) -> None:
    put(client, "dead", 5)
    assert "nobody is there to confirm the removal of dead (1 replica)" in (
        run("remove", "dead", status=2).err
    )
    assert client.zcard("ring") == 1


# --- a ring shared with redis-hashring ------------------------------------------------------------


def test_wire_reads_a_ring_of_redis_hashring(client: Redis, run: Run) -> None:
    old = OldNode(client, "ring", n_replicas=4)
    old.start()
    try:
        assert "EXPIRED" in run("print").out  # without the option its scores look like that
        done = run("--wire", "redis-hashring", "print")
        assert "EXPIRED" not in done.out
        assert sum(1 for line in done.lines if REPLICA.fullmatch(line)) == 4
        (node,) = run("nodes", "--wire", "redis-hashring", "--json").json["nodes"]
        assert (node["share"], node["expired"]) == (1.0, False)
    finally:
        old.stop()


def test_wire_owner_agrees_with_old_and_new_nodes(client: Redis, run: Run) -> None:
    old = OldNode(client, "ring", n_replicas=4, hash_algorithm=OldAlgorithm.XXHASH)
    old.start()
    keys = [f"k{number}" for number in range(50)]
    try:
        asked = run("owner", "--wire", "redis-hashring", *keys).lines
        assert len({line.split("\t")[1] for line in asked}) == 1
        with nodes_on(client, "new:1", wire="redis-hashring", n_replicas=4) as (new,):
            until(lambda: new.get_node_count() == 2, "it sees both")
            until(lambda: old.get_node_count() == 2, "they see each other")
            done = run("owner", "--wire", "redis-hashring", *keys)
            for line in done.lines:
                key, owner = line.split("\t")
                assert new.contains(key) == (owner == "new:1")
                assert old.contains(key) == (owner != "new:1")
    finally:
        old.stop()


# --- all of them ----------------------------------------------------------------------------------


def test_options_stand_before_the_command_or_after_it_and_the_nearer_wins(
    client: Redis, run: Run
) -> None:
    with nodes_on(client, "alder", ring="accounts"):
        for arguments in (
            ("--ring", "accounts", "nodes", "--json"),
            ("--json", "nodes", "--ring", "accounts"),
            ("--ring", "other", "--json", "nodes", "--ring", "accounts"),
        ):
            told = run(*arguments).json
            assert (told["ring"], [node["name"] for node in told["nodes"]]) == (
                "accounts",
                ["alder"],
            )


@pytest.mark.one_server
def test_the_environment_names_ring_and_redis(client: Redis, redis_server: RedisServer) -> None:
    put(client, "only", 5)
    client.rename("ring", "accounts")
    client.rename("{ring}:nodes", "{accounts}:nodes")
    environment = {"HASHRING_REDIS_URL": redis_server.url, "HASHRING_RING": "accounts"}
    done = finished(spawn("hashring", "owner", "k", env=environment))
    assert done == (0, "k\tonly\n", "")


@pytest.mark.one_server
def test_without_a_url_commands_share_the_machines_own_server(client: Redis) -> None:
    with ending(spawn("example.py")) as example:
        line_with(example, "100 keys", "stderr")
        status, out, err = finished(spawn("hashring", "nodes"))
        assert (status, err) == (0, "")
        assert out.splitlines()[1].endswith(f":{example.pid}")
    status, out, err = finished(spawn("hashring", "nodes"))
    assert status == 0
    assert err == (
        "hashring: no --url, and no hashring program of yours runs on this machine: "
        "looking at a new, empty Redis\n"
    )


UNBUFFERED = pytest.mark.parametrize("unbuffered", ["", "1"], ids=["buffered", "unbuffered"])


@pytest.mark.one_server
@UNBUFFERED
def test_an_answer_that_a_full_disk_cuts_short_is_an_error(
    client: Redis, redis_server: RedisServer, tmp_path: Path, unbuffered: str
) -> None:
    put(client, "only", *range(0, 2**32, 2**18))

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))

    with (tmp_path / "ring.json").open("wb") as out:
        process = spawn(
            *("hashring", "export", "-"),
            url=redis_server.url,
            stdout=out,
            preexec_fn=limit,
            env={"PYTHONUNBUFFERED": unbuffered, **NO_BYTECODE},
        )
        assert finished(process) == (2, "", "hashring: standard output: File too large\n")


@pytest.mark.one_server
@UNBUFFERED
def test_a_full_pipe_that_refuses_to_wait_is_waited_for(
    client: Redis, redis_server: RedisServer, unbuffered: str
) -> None:
    put(client, "only", *range(0, 2**32, 2**18))
    read, write = os.pipe()
    os.set_blocking(write, False)  # as another program of the terminal may leave it
    environment = {"PYTHONUNBUFFERED": unbuffered}
    process = spawn("hashring", "print", url=redis_server.url, env=environment, stdout=write)
    waits = select.poll()
    waits.register(write, select.POLLOUT)
    until(lambda: not waits.poll(0) or process.poll() is not None, "the pipe is full")
    os.close(write)
    with open(read, encoding="utf-8") as output:
        lines = output.read().splitlines()
    assert finished(process) == (0, "", "")
    assert len(lines) == 2**14 + 6


@pytest.mark.one_server
def test_an_empty_pipe_that_refuses_to_wait_is_waited_for(
    client: Redis, redis_server: RedisServer
) -> None:
    put(client, "only", 5)
    read, write = os.pipe()
    os.set_blocking(read, False)
    process = spawn("hashring", "owner", "-", url=redis_server.url, stdin=read)
    os.write(write, b"alice\nbo")
    waits = select.poll()
    waits.register(read, select.POLLIN)
    until(lambda: not waits.poll(0), "all of it is read")
    os.write(write, b"b\ncarol\n")
    os.close(write)
    os.close(read)
    assert finished(process) == (0, "alice\tonly\nbob\tonly\ncarol\tonly\n", "")


@pytest.mark.one_server
@UNBUFFERED
def test_a_reader_that_goes_away_is_no_error(
    client: Redis, redis_server: RedisServer, unbuffered: str
) -> None:
    put(client, "only", *range(0, 2**32, 2**18))
    environment = {"PYTHONUNBUFFERED": unbuffered}
    process = spawn("hashring", "print", url=redis_server.url, env=environment)
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.close()
    assert process.stderr is not None
    assert process.wait() == 141
    assert process.stderr.read() == ""
    process.stderr.close()


@pytest.mark.one_server
@pytest.mark.parametrize(
    ("command", "status"),
    [
        ("nodes >&-", 0),
        ("owner only >&-", 0),
        ("owner - <&-", 0),
        ("remove only <&-", 2),
        ("nodes >&- 2>&- <&-", 0),
        ("nodes >/dev/full", 2),
        ("nodes --json >/dev/full", 2),
        ("plot >/dev/full", 2),
        ("--help >/dev/full", 2),
    ],
)
def test_standard_streams_that_are_closed_or_full(
    client: Redis, redis_server: RedisServer, command: str, status: int
) -> None:
    put(client, "only", 5)
    program = f"{sys.executable} -c 'from hashring.cli import main; main()'"
    done = subprocess.run(
        f"{program} {command}",
        shell=True,
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, "HASHRING_REDIS_URL": redis_server.url},
    )
    assert done.returncode == status
    assert "Traceback" not in done.stderr
    full = "hashring: standard output: No space left on device\n"
    assert done.stderr == (full if "full" in command else done.stderr)


FULL_OR_UNREAD = pytest.mark.parametrize("errors", ["/dev/full", "a pipe that nobody reads"])


def _says_to(errors: str, *command: str, url: str) -> tuple[int, str]:
    if errors == "/dev/full":
        write = os.open(errors, os.O_WRONLY)
    else:
        read, write = os.pipe()
        os.close(read)
    process = spawn("hashring", *command, url=url, stderr=write)
    os.close(write)
    return finished(process)[:2]


@pytest.mark.one_server
@FULL_OR_UNREAD
@UNBUFFERED
def test_an_error_that_cannot_be_told_keeps_its_status(
    client: Redis,
    redis_server: RedisServer,
    errors: str,
    unbuffered: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PYTHONUNBUFFERED", unbuffered)
    put(client, "only", 5)
    for command, status in (
        (("nodes", "--bogus"), 2),
        (("drain", "nobody"), 1),
        (("nodes", "--url", "redis://127.0.0.1:1"), 3),
    ):
        assert _says_to(errors, *command, url=redis_server.url) == (status, "")


@pytest.mark.one_server
@FULL_OR_UNREAD
def test_a_notice_that_cannot_be_told_keeps_nobody_from_acting(
    client: Redis, redis_server: RedisServer, errors: str
) -> None:
    put(client, "only", 5)
    assert _says_to(errors, "remove", "only", "--yes", url=redis_server.url) == (
        0,
        "removed only (1 replica) of ring 'ring'\n",
    )
    assert not client.exists("ring")


@pytest.mark.one_server
def test_help_that_nobody_reads_is_no_error() -> None:
    read, write = os.pipe()
    os.close(read)
    process = spawn("hashring", "--help", stdout=write)
    os.close(write)
    assert finished(process) == (141, "", "")


@pytest.mark.one_server
def test_in_a_pipe_into_head_nothing_is_said(client: Redis, redis_server: RedisServer) -> None:
    put(client, "only", *range(0, 2**32, 2**18))
    done = subprocess.run(
        "yes key | hashring owner - | head -n 2; hashring print | head -n 1",
        shell=True,
        check=False,
        capture_output=True,
        text=True,
        env={"HASHRING_REDIS_URL": redis_server.url, "PATH": _path()},
    )
    assert done.stdout == 'key\tonly\nkey\tonly\nHash ring "ring" replicas:\n'
    assert done.stderr == ""


def _path() -> str:
    return f"{Path(sys.executable).parent}:{os.environ['PATH']}"


def test_an_option_before_a_command_of_spark_wins_over_the_environment(
    run: Run, redis_server: RedisServer
) -> None:
    plan = ("spark", "plan", "--input", "x", "--leave", "n")
    done = run("--url", redis_server.url, *plan, url="redis://127.0.0.1:1", status=1)
    assert done.err.startswith("hashring: the ring has no nodes")


# Ctrl-C just after the line was written.
INTERRUPTED = """
import sys
from hashring.cli import standard_streams

def interrupt(frame, event, result):
    if event == "return" and frame.f_code is standard_streams._Errors.write.__code__:
        raise KeyboardInterrupt
    return interrupt

standard_streams.prepare_streams()
sys.settrace(interrupt)
try:
    sys.stderr.write("said\\n")
except KeyboardInterrupt:
    sys.settrace(None)
"""


def test_a_line_that_was_written_before_an_interrupt_is_not_written_again() -> None:
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED], check=True, capture_output=True, text=True
    )
    assert done.stderr == "said\n"


FULL = """
import os
import sys
from hashring.cli import standard_streams

os.set_blocking(2, False)
standard_streams.prepare_streams()
print("x" * 1_000_000, file=sys.stderr)
print("ended")
"""


def test_standard_error_that_takes_nothing_more_stops_nobody() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", FULL], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.read() == "ended\n"
    status, _, errors = finished(process)
    assert status == 0
    assert 0 < len(errors) < 1_000_000
