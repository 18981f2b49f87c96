"""hashring export: what it writes owns every key as the live ring does."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from redis import Redis

from hashring import Ring
from hashring.ring_files import read_ring
from tests.cli.conftest import Run, nodes_on, put


@pytest.mark.parametrize("name", ["ring.json", "ring.parquet"])
def test_the_file_owns_as_the_live_nodes_do(
    client: Redis, run: Run, tmp_path: Path, name: str
) -> None:
    with nodes_on(client, "a", "b", hash_algorithm="crc-32c") as nodes:
        told = run("export", str(tmp_path / name), "--json").json
        found = read_ring(tmp_path / name)
        assert found.ring == nodes[0].ring
        assert found.ring.hash_algorithm.name == "crc-32c"
        assert (found.name, found.epoch) == ("ring", 2)
        assert (told["nodes"], told["fingerprint"]) == (2, found.ring.fingerprint)


def test_a_dash_writes_to_standard_output(client: Redis, run: Run) -> None:
    put(client, "a", 7, 9)
    put(client, "gone", 8, expires_in=-1)
    assert Ring.load(io.StringIO(run("export", "-").out)) == Ring({"a": [7, 9]})


def test_a_ring_of_redis_hashring_is_hashed_as_its_nodes_do(client: Redis, run: Run) -> None:
    put(client, "a", 7, expires_in=0)
    found = Ring.load(io.StringIO(run("export", "-", "--wire", "redis-hashring").out))
    assert found.hash_algorithm.name == "xxh32"


def test_another_hash_algorithm_than_the_nodes_report_is_a_warning(client: Redis, run: Run) -> None:
    put(client, "a", 7)
    assert run("export", "-", "--hash-algorithm", "crc-32c").err == ""
    put(client, "b", 8, told={"hash_algorithm": "crc-32"})
    done = run("export", "-", "--hash-algorithm", "crc-32c")
    assert Ring.load(io.StringIO(done.out)).hash_algorithm.name == "crc-32c"
    assert done.err.startswith("hashring: the nodes hash with crc-32, not crc-32c: ")


def test_an_empty_ring_is_no_file(run: Run, tmp_path: Path) -> None:
    assert "no nodes" in run("export", str(tmp_path / "ring.json"), status=1).err
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_exists_is_not_touched(client: Redis, run: Run, tmp_path: Path) -> None:
    put(client, "a", 7)
    path = tmp_path / "ring.json"
    path.write_text("mine")
    assert "ring.json exists: name another" in run("export", str(path), status=2).err
    assert path.read_text() == "mine"
