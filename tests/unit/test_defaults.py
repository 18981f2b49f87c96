"""What holds of what nobody gives: settings that users rely on, and records that say nothing."""

from __future__ import annotations

import dataclasses
import inspect
import math
import pkgutil
from collections.abc import Callable, Iterator
from importlib import import_module
from types import ModuleType
from typing import Any

import pytest

import hashring
from hashring import node, protocol
from hashring.core import groups
from hashring.core.groups.faithful_challenge import FaithfulChallengeSpans
from hashring.core.groups.lease_challenge import LeaseChallengeRules
from hashring.core.groups.state import Terms

GROUP = {
    "ttl": 10.0,
    "rebalance_delay": 5.0,
    "max_handoff_time": 3.0,
    "handoffs": 1,
    "leave_timeout": 30.0,
}
NOT_NOTHING = {
    # Weights are relative: who is given none counts once.
    "weight": 1.0,
    # A plan or a node that is not told otherwise.
    "at_rest": True,
    "follow": True,
}


def given(function: Callable[..., Any]) -> dict[str, float]:
    """The numbers that it goes by unless others are given."""
    return {
        name: parameter.default
        for name, parameter in inspect.signature(function).parameters.items()
        if type(parameter.default) in (int, float)
    }


@pytest.mark.parametrize(
    ("settings", "numbers"),
    [
        (
            hashring.RingNode,
            {"n_replicas": 16, "weight": 1.0, "ttl": 60.0, "heartbeat_interval": 10.0},
        ),
        (hashring.PartitionGroup, {"weight": 1.0, **GROUP}),
        (Terms, GROUP),
        (
            LeaseChallengeRules,
            {"ttl": 60.0, "interval": 15.0, "max_handoff_time": 10.0, "residency": 30.0},
        ),
        (
            FaithfulChallengeSpans,
            {
                "normal_lease": 60.0,
                "max_lease": 180.0,
                "max_shutdown": 2.0,
                "min_grab": 30.0,
                "held_delay": 0.25,
            },
        ),
    ],
)
def test_settings_that_are_not_given_stay_what_they_were(
    settings: type, numbers: dict[str, float]
) -> None:
    assert given(settings) == numbers


def records(package: ModuleType) -> Iterator[type]:
    """The dataclasses in all modules of a package."""
    for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        for each in vars(import_module(found.name)).values():
            if dataclasses.is_dataclass(each) and getattr(each, "__module__", "") == found.name:
                assert isinstance(each, type)
                yield each


@pytest.mark.parametrize("package", [groups, node, protocol])
def test_a_record_says_nothing_that_it_was_not_told(package: ModuleType) -> None:
    settings = (Terms, LeaseChallengeRules, FaithfulChallengeSpans)
    wrong = [
        f"{record.__qualname__}.{field.name} = {field.default}"
        for record in records(package)
        for field in dataclasses.fields(record)
        if isinstance(field.default, (int, float))
        and record not in settings
        and field.default != NOT_NOTHING.get(field.name, 0)
        and not math.isinf(field.default)
    ]
    assert wrong == []
