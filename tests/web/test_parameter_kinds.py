"""A parameter is declared once: that reads it, refuses it and describes it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Annotated, Any

import pytest
from werkzeug.datastructures import MultiDict
from werkzeug.exceptions import HTTPException

from hashring.errors import ConfigError
from hashring.web.openapi import GET_OPERATIONS, document
from hashring.web.parameter_kinds import (
    choice_parameter,
    described,
    name_parameter,
    names_parameter,
    read_query,
    schemas,
    text_parameter,
    weight_parameter,
    weights_parameter,
    whole_parameter,
)
from tests.web.conftest import TOKEN, Visit

pytestmark = pytest.mark.one_server


@dataclass(frozen=True)
class Shelf:
    """A query."""

    room: Annotated[str, name_parameter("Which room.")]
    book: Annotated[str, text_parameter("Which book.", minLength=1)]
    after: Annotated[str, text_parameter("The last one.")] = ""
    count: Annotated[int, whole_parameter("How many.", 1, 20)] = 5
    depth: Annotated[int | None, whole_parameter("How deep.", 1, 3)] = None
    order: Annotated[str, choice_parameter("Which order.", "by name", "by age")] = "by name"
    weight: Annotated[float | None, weight_parameter("How heavy.")] = None
    add: Annotated[Sequence[str], names_parameter("What is added.", 2)] = ()
    weights: Annotated[Mapping[str, float], weights_parameter("Of each.", 2)] = field(
        default_factory=dict
    )


def read(*given: tuple[str, str], lines: bool = False) -> Shelf:
    return read_query(Shelf, MultiDict([("room", "r"), ("book", "b"), *given]), lines=lines)


def test_what_is_not_given_is_as_the_query_has_it() -> None:
    assert read() == Shelf("r", "b")
    assert read(("depth", ""), ("order", ""), ("weight", "")) == Shelf("r", "b")


def test_what_is_given_is_read() -> None:
    given = [
        ("count", "20"),
        ("depth", "3"),
        ("order", "by age"),
        ("after", "x"),
        ("weight", "2.5"),
    ]
    several = [("add", "a"), ("add", "b"), ("weights", "a=b=2"), ("weights", "c=0.5")]
    assert read(*given, *several) == Shelf(
        "r", "b", "x", 20, 3, "by age", 2.5, ["a", "b"], {"a=b": 2.0, "c": 0.5}
    )


def test_a_form_sends_several_names_in_one_field() -> None:
    found = read(("add", " a \r\n\r\nb"), ("weights", "a = 2\nb=1"), lines=True)
    assert (found.add, found.weights) == (["a", "b"], {"a": 2.0, "b": 1.0})


@pytest.mark.parametrize(
    ("given", "status", "why"),
    [
        (("count", "21"), 400, "count='21': give a whole number from 1 to 20"),
        (("count", "x"), 400, "count='x': give a whole number from 1 to 20"),
        (("count", "²"), 400, "give a whole number"),
        (("add", "a\nb\nc"), 422, "add: at most 2 in one request, and these are 3"),
    ],
)
def test_what_cannot_be_is_refused(given: tuple[str, str], status: int, why: str) -> None:
    with pytest.raises(HTTPException) as refused:
        read(given, lines=True)
    assert refused.value.code == status
    assert why in str(refused.value.description)


@pytest.mark.parametrize("given", [("weight", "heavy"), ("weights", "a"), ("weights", "=2")])
def test_a_weight_that_is_none_is_refused(given: tuple[str, str]) -> None:
    with pytest.raises(ConfigError, match="weight"):
        read(given)


def test_two_weights_of_one_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"^weight='a': has two weights: give one$"):
        read(("weights", "a=1"), ("weights", "a=2"))


@pytest.mark.parametrize("missing", ["room", "book"])
def test_what_has_no_default_must_be_given(missing: str) -> None:
    given = {"room": "r", "book": "b", missing: ""}
    with pytest.raises(HTTPException) as refused:
        read_query(Shelf, MultiDict(given))
    assert refused.value.description == f"say which {missing}: {missing}=…"


def test_a_query_is_described_as_it_is_read() -> None:
    found = {each["name"]: each for each in described(Shelf)}
    assert list(found) == [each.name for each in fields(Shelf)]
    assert {name for name, each in found.items() if each["required"]} == {"room", "book"}
    assert found["count"] == {
        "name": "count",
        "in": "query",
        "required": False,
        "description": "How many.",
        "schema": {"type": "integer", "minimum": 1, "maximum": 20, "default": 5},
    }
    assert "default" not in found["depth"]["schema"]
    assert found["order"]["schema"] == {"enum": ["by name", "by age"], "default": "by name"}
    assert found["add"]["schema"]["maxItems"] == 2


def test_a_form_has_the_limits_that_its_fields_are_read_with() -> None:
    found = schemas(Shelf)
    assert (found["count"]["minimum"], found["count"]["maximum"]) == (1, 20)
    assert found["order"]["enum"] == ["by name", "by age"]


def test_every_reading_of_the_api_is_answered_as_it_is_described(visit: Visit) -> None:
    paths = document("")["paths"]
    for path, reading in GET_OPERATIONS.items():
        assert paths[path]["get"]["parameters"] == described(reading.query)
    served: set[Any] = {
        rule.rule
        for rule in visit(token=TOKEN).app.url_map.iter_rules()
        if rule.rule.startswith("/api/") and "GET" in (rule.methods or ())
    }
    assert served == set(GET_OPERATIONS)
