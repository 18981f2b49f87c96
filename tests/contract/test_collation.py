"""Texts are compared by their bytes, whatever order the locale of a server's process gives them.

Redis takes the locale for comparing texts from its environment, and so does Lua's ``<``. The nodes
compare by bytes. The servers here run in a locale that reverses the order of ASCII.
"""

from __future__ import annotations

import locale
import platform
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from redis import Redis

from hashring.core.own_ranges import OwnRanges
from hashring.core.ranges import bounds_of
from hashring.core.ring import Ring
from hashring.store.command import Command
from hashring.store.embedded_server import RedisServer
from hashring.store.lua_scripts import script
from hashring.store.redis_store import RedisStore
from hashring.store.ring.commands import owner
from hashring.store.ring.key_names import ring_keys
from tests.conftest import PATIENCE, servers
from tests.contract.places import MemoryPlace, Place, RealPlace

SESSION = "a" * 16
REVERSED = "reversed"
NAMES = ("9", "B", "a", "a1")
"""By their bytes."""


def _build_locale(directory: Path) -> None:
    """Compile a locale from this text alone: a machine may have no locale but C."""
    charmap, source = directory / "charmap", directory / "source"
    codes = "".join(f"<U{code:04X}> \\x{code:02x}\n" for code in range(128))
    charmap.write_text(f"<code_set_name> {REVERSED}\nCHARMAP\n{codes}END CHARMAP\n")
    order = "".join(f"<U{code:04X}>\n" for code in range(126, 31, -1))
    source.write_text(f"LC_COLLATE\norder_start forward\n{order}order_end\nEND LC_COLLATE\n")
    compile_ = ["localedef", "--quiet", "-c", "-f", charmap, "-i", source, directory / REVERSED]
    # It has no other categories, so localedef warns, writes it, and ends with 1.
    subprocess.run(compile_, capture_output=True, check=False)


@pytest.fixture(scope="module", autouse=True)
def _locale(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The environment of the servers, and the order in which this process compares."""
    if platform.libc_ver()[0] != "glibc" or shutil.which("localedef") is None:
        pytest.skip("only the localedef of glibc compiles the locale, and it is not here")
    directory = tmp_path_factory.mktemp("locales")
    _build_locale(directory)
    before = locale.setlocale(locale.LC_COLLATE)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LOCPATH", str(directory))
        patch.setenv("LC_COLLATE", REVERSED)
        patch.delenv("LC_ALL", raising=False)
        try:
            locale.setlocale(locale.LC_COLLATE, "")
            yield
        finally:
            locale.setlocale(locale.LC_COLLATE, before)


@pytest.fixture(scope="module", params=[*servers(), "memory"])
def _collated(request: pytest.FixtureRequest, _locale: None) -> Iterator[RedisServer | None]:
    if request.param == "memory":
        yield None
        return
    with RedisServer(servers()[request.param]) as server:
        yield server


@pytest.fixture
def ring_place(_collated: RedisServer | None) -> Iterator[Place]:
    """A ring in each of the stores, whose Lua compares texts in the reverse order."""
    keys = ring_keys("accounts")
    if _collated is None:
        assert locale.strcoll("a", "b") > 0
        yield MemoryPlace(keys)
        return
    with Redis(unix_socket_path=str(_collated.socket)) as client:
        client.flushall()
        assert client.eval("return 'a' > 'b'", 0) == 1
        store = RedisStore(client, PATIENCE)
        yield RealPlace(keys, client, store)
        store.close()


@pytest.mark.parametrize("full", [(), ("B",), ("a1",), ("9", "a"), NAMES])
def test_on_a_shared_point_the_last_name_by_bytes_owns(
    ring_place: Place, full: tuple[str, ...]
) -> None:
    place, points = ring_place, (10, 20)
    ring = Ring(dict.fromkeys(NAMES, points))
    assert ring.owner_of_point(10) == NAMES[-1]
    for node in NAMES:
        place.join(node, SESSION, *points, full=node in full, told={"ranges": ""})
    for node in NAMES:
        reply = place.beat(
            node, SESSION, *points, full=node in full, told={"ranges": ""}, digest=""
        )
        assert reply.ranges is not None
        near = OwnRanges(node, reply.ranges)
        assert near.ranges == ring.node_ranges(node)
        heir = ring if node in full else ring.without_nodes(*full)
        assert near.bounds == bounds_of(heir.node_ranges(node))
    assert place.store.run(owner(place.keys, 15)) == NAMES[-1]


def test_a_greater_token_is_a_later_one(ring_place: Place) -> None:
    def write(token: int) -> int:
        command = Command(
            script("fencing", "write"),
            (b"{account}:fence", b"{account}"),
            (str(token), 0, 3, "SET", "{account}", "written"),
            lambda raw: int(raw[0]),
        )
        return ring_place.store.run(command)

    assert [write(token) for token in (9, 10, 9, 10, 11)] == [1, 1, 0, 1, 1]
