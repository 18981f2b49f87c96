"""The Lua of servers in memory: what a script may do, streams, and what happens without lupa."""

from __future__ import annotations

from hashring.store.lua_scripts import script
from hashring.store.memory_commands import Commands
from tests.programs import printed


def stream(*times: float, keep: int = 100) -> list[bytes]:
    """The ids of entries that were added at these times."""
    data = Commands(lambda channel, payload: 0)
    ids = []
    for data.now in times:
        ids.append(data.xadd(b"s", b"MAXLEN", b"~", b"%d" % keep, b"*", b"n", b"1"))
    assert data.xlen(b"s") == min(keep, len(times))
    return ids


def test_ids_count_within_a_millisecond() -> None:
    assert stream(1.0, 1.0, 1.0004, 1.001) == [b"1000-0", b"1000-1", b"1000-2", b"1001-0"]


def test_ids_go_on_when_the_clock_goes_back() -> None:
    assert stream(2.0, 1.0, 3.0) == [b"2000-0", b"2000-1", b"3000-0"]


def test_the_newest_entries_stay() -> None:
    assert stream(1.0, 2.0, 3.0, keep=2) == [b"1000-0", b"2000-0", b"3000-0"]


def test_a_scripts_name_says_its_protocol_unless_it_is_the_rings() -> None:
    assert script("ring", "beat").name == "beat"
    assert script("group", "beat").name == "group_beat"


def test_without_lupa_a_store_in_memory_names_the_extra() -> None:
    code = (
        "import sys; sys.modules['lupa'] = None\n"
        "from hashring import MissingDependencyError\n"
        "from hashring.testing import MemoryStore\n"
        "try: MemoryStore()\n"
        "except MissingDependencyError as error: print(error)\n"
    )
    told = "MemoryStore needs the package lupa: pip install 'hashring-fleet[testing]'"
    assert printed("-c", code) == told
