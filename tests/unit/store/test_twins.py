"""Every script has its twin in memory, and every twin its script."""

from __future__ import annotations

from inspect import isfunction

import pytest

from hashring.store.lua_scripts import actions, script
from hashring.store.memory_store import TWINS
from hashring.store.twin_keyspace import Twin

# A fenced write runs commands of the user's, which a store in memory does not know.
WITHOUT_TWIN = {("fencing", "write")}


def test_every_script_has_a_twin_and_every_twin_a_script() -> None:
    twins = {
        (protocol, name)
        for protocol, twin in TWINS.items()
        for name, member in vars(twin).items()
        if isfunction(member) and not name.startswith("_")
    }
    assert twins == set(actions()) - WITHOUT_TWIN


@pytest.mark.parametrize("protocol", TWINS)
def test_a_twin_stands_beside_its_scripts(protocol: str) -> None:
    assert TWINS[protocol].__module__ == f"hashring.store.{protocol}.twin"
    assert issubclass(TWINS[protocol], Twin)


def test_a_scripts_name_says_its_protocol_unless_it_is_the_rings() -> None:
    assert script("ring", "beat").name == "beat"
    assert script("group", "beat").name == "group_beat"
