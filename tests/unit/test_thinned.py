"""Of a test with several sets of parameters, what runs unless all tests do."""

from __future__ import annotations

import pytest

from tests import conftest

pytest_plugins = ("pytester",)

CASES = """
import pytest

@pytest.fixture(params=["socket", "port"])
def client(request):
    return request.param

@pytest.mark.parametrize("_server", ["redis", "valkey", "memory"])
@pytest.mark.parametrize(("key", "owner"), [("a", "x"), ("a", "y"), ("b", "x"), ("b", "y")])
def test_owner(client, _server, key, owner):
    pass
"""


@pytest.fixture
def cases(pytester: pytest.Pytester) -> list[pytest.Item]:
    return pytester.getitems(CASES)


@pytest.fixture
def kept(cases: list[pytest.Item], monkeypatch: pytest.MonkeyPatch) -> list[dict[str, str]]:
    monkeypatch.setattr(conftest, "THINNED", {cases[0].path.parent})
    return [item.callspec.params for item in conftest._thinned(cases)]  # type: ignore[attr-defined]


def on_servers(cases: list[dict[str, str]]) -> list[dict[str, str]]:
    return [case for case in cases if case["_server"] != "memory"]


def test_each_value_of_each_set_has_its_turn(kept: list[dict[str, str]]) -> None:
    assert {case["client"] for case in on_servers(kept)} == {"socket", "port"}
    assert {case["_server"] for case in on_servers(kept)} == {"redis", "valkey"}
    # Values that are given together are one.
    assert len({(case["key"], case["owner"]) for case in on_servers(kept)}) == 4


def test_on_servers_not_each_runs_with_each(kept: list[dict[str, str]]) -> None:
    assert len(on_servers(kept)) <= 2 + 2 + 4


def test_in_memory_each_runs_with_each(kept: list[dict[str, str]]) -> None:
    assert len([case for case in kept if case["_server"] == "memory"]) == 2 * 4


def test_elsewhere_each_runs_with_each(cases: list[pytest.Item]) -> None:
    assert conftest._thinned(cases) == cases
