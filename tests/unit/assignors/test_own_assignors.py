"""Assignors that users bring, and what is refused."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

from hashring.core.assignors import (
    ASSIGNORS,
    Assignor,
    FunctionAssignor,
    GroupMember,
    GroupSituation,
    LearnerAssignor,
    LoadAssignor,
    MemberState,
    RingAssignor,
    TargetAssignment,
    as_assignor,
    assignor_named,
    checked_target,
)
from hashring.errors import AssignorError, ConfigError, HashringError

from .situations import members

TWO = GroupSituation(members("a", "b"), 3)


def answering(answer: Any) -> FunctionAssignor:
    return FunctionAssignor(lambda situation: answer, name="mine")


def test_a_function_can_be_an_assignor() -> None:
    def everything_to_the_first(situation: GroupSituation) -> Mapping[str, list[int]]:
        return {situation.candidates()[0].name: list(range(situation.partitions))}

    assignor = as_assignor(everything_to_the_first)
    assert assignor.name == "everything_to_the_first"
    assert checked_target(assignor, TWO).owners == ("a", "a", "a")


def test_an_object_with_a_name_and_assign_is_taken_as_it_is() -> None:
    class Mine:
        name = "mine"

        def assign(self, situation: GroupSituation) -> TargetAssignment:
            return TargetAssignment.at_once("aba")

    mine = Mine()
    assert as_assignor(mine) is mine
    assert checked_target(mine, TWO).owners == ("a", "b", "a")


@pytest.mark.parametrize("name", sorted(ASSIGNORS))
def test_the_projects_own_assignors_are_found_by_name(name: str) -> None:
    assert as_assignor(name).name.startswith(name)


@pytest.mark.parametrize(
    "assignor",
    [
        *(as_assignor(name) for name in sorted(ASSIGNORS)),
        LearnerAssignor(1.25, warmups=7, standbys=2, acceptable_lag=1e4),
        LearnerAssignor(acceptable_lag=math.inf),
        LearnerAssignor(1 + 1e-9, acceptable_lag=1_048_576),
        LoadAssignor(1.2345678),
        RingAssignor(3),
    ],
    ids=lambda assignor: assignor.name,
)
def test_an_assignor_can_be_made_from_its_name(assignor: Assignor) -> None:
    assert assignor_named(assignor.name).name == assignor.name
    assert type(assignor_named(assignor.name)) is type(assignor)
    assert vars(assignor_named(assignor.name)) == vars(assignor)


@pytest.mark.parametrize("name", ["mine", "learner()", "ring(x)", "mine(1)"])
def test_a_name_of_ones_own_assignor_says_where_to_ask(name: str) -> None:
    with pytest.raises(
        ConfigError, match=r"with PartitionGroup\.plan\(\) in a program that has it"
    ):
        assignor_named(name)


@pytest.mark.parametrize(
    ("answer", "partition", "member", "text"),
    [
        ({"a": [0, 1], "x": [2]}, 2, "x",
         "gave partition 2 to 'x', which is not a member; the members are a, b"),
        ({"a": [0], "b": [1]}, 2, None, "left partition 2 without a member"),
        ({"a": [0, 1], "b": [1, 2]}, 1, "b", "gave partition 1 twice, to 'a' and to 'b'"),
        ({"a": [0, 1, 2, 3]}, None, "a",
         "gave partition 3 to 'a', but partitions are numbered 0 to 2"),
        ({"a": ["0"]}, None, "a", "gave partition '0' to 'a', but partitions are numbered 0 to 2"),
        ([0, 1, 2], None, None, "returned list, not a mapping of members"),
    ],
)  # fmt: skip
def test_a_wrong_answer_is_refused_and_says_what_is_wrong(
    answer: Any, partition: int | None, member: str | None, text: str
) -> None:
    with pytest.raises(AssignorError) as raised:
        checked_target(answering(answer), TWO)
    error = raised.value
    assert (error.assignor, error.partition, error.member) == ("mine", partition, member)
    assert str(error) == f"assignor 'mine' {text}"
    assert isinstance(error, HashringError)
    assert isinstance(error, ValueError)


@pytest.mark.parametrize(
    ("target", "text"),
    [
        (TargetAssignment.at_once("ab"), "assigned 2 partitions, but there are 3"),
        (TargetAssignment(("a", "a", "a"), ("a", "x", "a")), "gave partition 1 to 'x'"),
        (TargetAssignment.at_once("aba"), None),
        (TargetAssignment(("a",) * 3, ("a",) * 3, {1: "x"}), "gave partition 1 to 'x'"),
        (TargetAssignment(("a",) * 3, ("a",) * 3, {}, {2: ("b", "x")}), "gave partition 2 to 'x'"),
        ("aba", "returned str, not a TargetAssignment"),
        (TargetAssignment(None, None), "returned a TargetAssignment that is none: TypeError"),  # type: ignore[arg-type]
        (TargetAssignment((["a"],) * 3, "aba"), "returned a TargetAssignment that is none"),  # type: ignore[arg-type]
        (TargetAssignment("aba", "aba", [1]), "returned a TargetAssignment that is none"),  # type: ignore[arg-type]
        (TargetAssignment("aba", "aba", for_load=None), "returned a TargetAssignment that is"),  # type: ignore[arg-type]
        # In Redis they would be what nobody could read.
        (TargetAssignment("aba", "aba", {True: "b"}), "wants partition True warm"),  # type: ignore[arg-type]
        (TargetAssignment("aba", "aba", {}, {1.0: ("b",)}), "wants partition 1.0 warm"),  # type: ignore[dict-item, arg-type]
    ],
)
def test_a_whole_target_is_checked_too(target: Any, text: str | None) -> None:
    class Mine:
        name = "mine"

        def assign(self, situation: GroupSituation) -> TargetAssignment:
            return target

    if text is None:
        assert checked_target(Mine(), TWO) is target
        return
    with pytest.raises(AssignorError) as raised:
        checked_target(Mine(), TWO)
    assert text in str(raised.value)


class Answers:
    """An assignor with a fixed answer."""

    name = "mine"
    lasting = True

    def __init__(self, target: TargetAssignment) -> None:
        self.target = target

    def assign(self, situation: GroupSituation) -> TargetAssignment:
        return self.target


A_B_A: Any = ["a", "b", "a"]

PLAIN: Any = TargetAssignment(
    ("a", "b", "a"), ("a", "b", "a"), {0: "b"}, {1: ("a",)}, for_load=frozenset({2})
)


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        # JSON has them, but as what nobody could read.
        (
            {"standbys": {0: {"b": 3.0}}},
            "names the standbys of partition 0 in a dict: give a list or tuple of members",
        ),
        ({"standbys": {0: "b"}}, "the standbys of partition 0 in a str: give a list or tuple"),
        # A set has another order in each process.
        ({"standbys": {0: {"a", "b"}}}, "the standbys of partition 0 in a set: give a list"),
        ({"owners": {"a"}}, "names the owners in a set: give a list or tuple of members"),
        ({"interim": dict.fromkeys("ab")}, "names the interim owners in a dict: give a list"),
        ({"standbys": {0: None}}, "returned a TargetAssignment that is none: TypeError"),
        ({"for_load": ["a"]}, "moves partition 'a' for its load, but partitions are numbered"),
        ({"for_load": [3]}, "moves partition 3 for its load, but partitions are numbered 0 to 2"),
    ],
)
def test_an_answer_that_nobody_could_read_or_follow_is_refused(
    wrong: dict[str, Any], text: str
) -> None:
    with pytest.raises(AssignorError) as raised:
        checked_target(Answers(replace(PLAIN, **wrong)), TWO)
    assert text in str(raised.value)


@pytest.mark.parametrize(
    "target",
    [
        TargetAssignment(A_B_A, deque(A_B_A), {0: "b"}, {1: ("a",)}, frozenset({2})),  # type: ignore[arg-type]
        TargetAssignment(np.array(A_B_A), np.array(A_B_A), {0: "b"}, {1: ("a",)}, frozenset({2})),  # type: ignore[arg-type]
        replace(PLAIN, standbys={1: ["a"]}),
        replace(PLAIN, standbys={np.int64(1): np.array(["a"])}),
        replace(PLAIN, warmups=MappingProxyType({np.int64(0): "b"})),
        replace(PLAIN, for_load=[2]),
        replace(PLAIN, for_load={np.int64(2)}),
    ],
)
def test_an_answer_in_other_collections_is_taken_in_plain_ones(target: TargetAssignment) -> None:
    found = checked_target(Answers(target), TWO)
    assert found == PLAIN
    kinds = (found.owners, found.interim, found.warmups, found.standbys, found.for_load)
    assert [*map(type, kinds)] == [tuple, tuple, dict, dict, frozenset]
    assert [*map(type, (*found.warmups, *found.standbys, *found.for_load))] == [int, int, int]
    assert [*map(type, found.standbys.values())] == [tuple]


def test_an_assignor_cannot_change_an_answer_that_it_has_given() -> None:
    owners, warmups, standbys = ["a", "b", "a"], {0: "b"}, {1: ["a"]}
    given: Any = TargetAssignment(owners, owners, warmups, standbys, {2})  # type: ignore[arg-type]
    found = checked_target(Answers(given), TWO)
    owners[0] = "x"
    warmups[0] = "x"
    standbys[1][0] = "x"
    given.for_load.clear()
    assert found == PLAIN


def test_a_partition_cannot_be_given_to_a_member_that_leaves() -> None:
    leaving = GroupSituation(
        (GroupMember("a"), GroupMember("b", 1, state=MemberState.LEAVING)), 2, ("a", "b")
    )
    assert checked_target(answering({"a": [0], "b": [1]}), leaving).owners == ("a", "b")
    with pytest.raises(AssignorError, match="gave partition 0 to 'b', which must get nothing new"):
        checked_target(answering({"b": [0], "a": [1]}), leaving)


def test_a_function_may_number_partitions_by_numpys_numbers() -> None:
    halves = np.array_split(np.arange(3), 2)
    answer = {"a": halves[0], "b": halves[1]}
    assert checked_target(answering(answer), TWO).owners == ("a", "a", "b")


@pytest.mark.parametrize("name", ["balanced", "ring(64)", "load"])
def test_an_assignor_of_ones_own_cannot_have_the_name_of_another(name: str) -> None:
    with pytest.raises(
        ConfigError,
        match=rf"has the name {name!r} of an assignor of this".replace("(", r"\(").replace(
            ")", r"\)"
        ),
    ):
        as_assignor(FunctionAssignor(lambda situation: {}, name=name))


def test_a_function_cannot_have_the_name_of_another_assignor() -> None:
    def balanced(situation: GroupSituation) -> Mapping[str, list[int]]:
        return {}

    with pytest.raises(ConfigError, match="has the name 'balanced' of an assignor of this package"):
        as_assignor(balanced)


@pytest.mark.parametrize("given", ["roundrobin", 3, None])
def test_what_is_no_assignor_is_refused_with_the_choices(given: Any) -> None:
    with pytest.raises(ConfigError, match=f"choose one of {', '.join(sorted(ASSIGNORS))}, or pass"):
        as_assignor(given)


@pytest.mark.parametrize("weight", [0, -1, math.nan, math.inf, 5e-324, 1e308])
def test_a_weight_must_be_one_that_assignors_can_count_with(weight: float) -> None:
    with pytest.raises(ConfigError, match=r"'a' must be a number from 0\.001 to 1000"):
        GroupMember("a", weight=weight)


@pytest.mark.parametrize("kind", [np.int64, np.float32])
def test_weights_and_settings_may_be_numbers_of_numpys(kind: Any) -> None:
    assert repr(GroupMember("a", weight=kind(2)).weight) == repr(kind(2).item())
    assert LoadAssignor(kind(3), np.int64(4)).name == "load(factor=3, moves=4)"
    learner = LearnerAssignor(kind(3), np.int64(4), np.int64(1), kind(2))
    assert learner.name == "learner(balancing_factor=3, warmups=4, standbys=1, acceptable_lag=2)"


def test_a_member_has_a_name() -> None:
    with pytest.raises(ConfigError, match="name=''"):
        GroupMember("")


@pytest.mark.parametrize(
    ("pair", "what"), [((GroupMember("a", 0), GroupMember("a", 1)), "name"),
                       ((GroupMember("a", 3), GroupMember("b", 3)), "joined")]
)  # fmt: skip
def test_two_members_cannot_share_a_name_or_a_place(
    pair: tuple[GroupMember, ...], what: str
) -> None:
    with pytest.raises(ConfigError, match=f"two members have this {what}"):
        GroupSituation(pair, 3)


@pytest.mark.parametrize("partitions", [0, -1])
def test_a_group_has_at_least_one_partition(partitions: int) -> None:
    with pytest.raises(ConfigError, match=f"partitions={partitions}"):
        GroupSituation(members("a"), partitions)


@pytest.mark.parametrize("wrong", [0, -1, 2.0, math.nan, True, "3", None])
def test_what_is_no_number_of_partitions_is_refused(wrong: Any) -> None:
    with pytest.raises(ConfigError, match=f"partitions={wrong!r}: "):
        GroupSituation(members("a"), wrong)


def test_a_number_of_numpy_is_a_number_of_partitions() -> None:
    assert type(GroupSituation(members("a"), np.int64(3)).partitions) is int  # type: ignore[arg-type]
