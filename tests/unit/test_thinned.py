"""Of a test's kinds of process and servers, and its sets of parameters, what runs unless all do."""

from __future__ import annotations

from collections import defaultdict

import pytest

from tests import conftest

pytest_plugins = ("pytester",)

Chosen = defaultdict[str, defaultdict[str, set[object]]]
SERVERS = {"redis", "valkey", "memory"}

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


IN_TURN = """
import pytest

@pytest.fixture(params=["thread", "greenlet", "asyncio"])
def host(request):
    return request.param

@pytest.mark.parametrize("_server", ["redis", "valkey", "memory"])
@pytest.mark.parametrize(("runner", "call"), [("thread", "stop"), ("task", "hold"), ("hub", "-")])
@pytest.mark.parametrize("number", range(3))
class TestAll:
"""
A_TEST = "    def test_{}(self, host, _server, runner, call, number): pass\n"


@pytest.fixture
def all_in_turn(pytester: pytest.Pytester) -> list[pytest.Item]:
    return pytester.getitems(IN_TURN + "".join(map(A_TEST.format, "abcdefgh")))


@pytest.fixture
def in_turn(all_in_turn: list[pytest.Item], monkeypatch: pytest.MonkeyPatch) -> Chosen:
    monkeypatch.setattr(conftest, "THINNED", {all_in_turn[0].path.parent})
    chosen: Chosen = defaultdict(lambda: defaultdict(set))
    for item in conftest._in_turn(all_in_turn):
        for name, value in item.callspec.params.items():  # type: ignore[attr-defined]
            chosen[item.originalname][name].add(value)  # type: ignore[attr-defined]
    return chosen


def test_a_test_has_some_kinds_of_process_and_a_server_beside_memory(in_turn: Chosen) -> None:
    for of_test in in_turn.values():
        assert len(of_test["host"]) == conftest.BY_TURNS["host"]
        assert len(of_test["_server"] - {"memory"}) == conftest.BY_TURNS["_server"]
        assert "memory" in of_test["_server"]


def test_each_kind_of_process_and_each_server_has_its_tests(in_turn: Chosen) -> None:
    for name, values in (("host", {"thread", "greenlet", "asyncio"}), ("_server", SERVERS)):
        assert set().union(*(of_test[name] for of_test in in_turn.values())) == values


def test_what_is_given_with_others_and_what_is_no_kind_all_run(in_turn: Chosen) -> None:
    for of_test in in_turn.values():
        assert of_test["runner"] == {"thread", "task", "hub"}
        assert of_test["number"] == set(range(3))


def test_elsewhere_all_kinds_run(all_in_turn: list[pytest.Item]) -> None:
    assert conftest._in_turn(all_in_turn) == all_in_turn
