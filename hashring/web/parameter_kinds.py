"""The kinds of parameters of a query: each declared once, to read it, to refuse it, to describe it.

A query is a dataclass. Each field is a parameter of its name; a note beside its type says what it
may be::

    @dataclass(frozen=True)
    class NodesQuery:
        ring: Annotated[str, name_parameter("The ring's name.")]
        count: Annotated[int, whole_parameter("The most to return.", 1, 1000)] = 1000

A field without a default is required. :func:`read_query` makes a query of a request,
:func:`described` says in OpenAPI what the request may have, and :func:`schemas` gives a form its
limits.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, dataclass, fields
from functools import cache
from typing import Any, Final, TypeVar, get_type_hints

from flask import abort
from werkzeug.datastructures import MultiDict

from hashring.errors import ConfigError
from hashring.web.api_types import LONGEST_QUERIED_NAME
from hashring.web.page_templates import shown

Given = MultiDict[str, str]
"""What a request gives: its query, or a form."""

_LINES: Final = re.compile(r"[\r\n]+")
_NAME_LENGTH: Final = {"minLength": 1, "maxLength": LONGEST_QUERIED_NAME}
Q = TypeVar("Q")


@dataclass(frozen=True, eq=False)
class Parameter:
    """What a parameter may be. The functions below make the kinds there are.

    Attributes:
        about: what it is, for the description.
        schema: its values, as a JSON schema.
        read: its value; ``None`` if it is not given. Gets what the request gives, the parameter's
            name, and whether a field may have several values, one a line, as a form's has. Raises
            ConfigError or HTTPException when it is not what it may be.
    """

    about: str
    schema: Mapping[str, Any]
    read: Callable[[Given, str, bool], Any]


def text_parameter(about: str, **limits: int) -> Parameter:
    """A text.

    Args:
        limits: its length, as a JSON schema says it. Only the description names them.
    """
    return Parameter(about, {"type": "string", **limits}, lambda given, name, _: given.get(name))


def name_parameter(about: str) -> Parameter:
    """The name of something that there is."""
    return text_parameter(about, **_NAME_LENGTH)


def choice_parameter(about: str, *words: str) -> Parameter:
    """One of some words. An empty one is as none: forms send it so.

    What is none of the words, the plan refuses.
    """
    schema = {"enum": list(words)}
    return Parameter(about, schema, lambda given, name, _: given.get(name) or None)


def whole_parameter(about: str, least: int, most: int) -> Parameter:
    """A whole number. An empty one is as none: forms send it so."""

    def read(given: Given, name: str, _: bool) -> int | None:
        text = given.get(name)
        if not text:
            return None
        few = text.isascii() and text.isdigit() and len(text) <= 9
        if not (few and least <= int(text) <= most):
            what = f"give a whole number from {least} to {most}"
            abort(400, f"{name}={shown(text)!r}: {what}")
        return int(text)

    return Parameter(about, {"type": "integer", "minimum": least, "maximum": most}, read)


def weight_parameter(about: str) -> Parameter:
    """A weight. An empty one is as none: forms send it so."""

    def read(given: Given, name: str, _: bool) -> float | None:
        text = given.get(name)
        if not text:
            return None
        try:
            return float(text)
        except ValueError:
            raise ConfigError("weight", shown(text), "give a number above 0") from None

    return Parameter(about, {"type": "number", "exclusiveMinimum": 0}, read)


def names_parameter(about: str, most: int) -> Parameter:
    """Several names, each a parameter of its own."""

    def read(given: Given, name: str, lines: bool) -> list[str] | None:
        return _several(given, name, most, lines=lines) or None

    return Parameter(about, _several_schema(most), read)


def weights_parameter(about: str, most: int) -> Parameter:
    """Several weights, each with the name of whose it is."""

    def read(given: Given, name: str, lines: bool) -> dict[str, float] | None:
        texts = _several(given, name, most, lines=lines)
        found: dict[str, float] = {}
        for text in texts:
            node, weight = _named_weight(text, spaced=lines)
            if node in found:
                raise ConfigError("weight", shown(node), "has two weights: give one")
            found[node] = weight
        return found or None

    return Parameter(about, _several_schema(most), read)


def _several_schema(most: int) -> dict[str, Any]:
    return {"type": "array", "items": {"type": "string", **_NAME_LENGTH}, "maxItems": most}


def _several(given: Given, name: str, most: int, *, lines: bool) -> list[str]:
    """The values of a parameter that may come more than once."""
    values = given.getlist(name)
    _check_count(name, values, most)
    if lines:
        parts = (part.strip() for text in values for part in _LINES.split(text))
        values = [part for part in parts if part]
        _check_count(name, values, most)
    return values


def _check_count(name: str, values: list[str], most: int) -> None:
    if len(values) > most:
        abort(422, f"{name}: at most {most} in one request, and these are {len(values)}")


def read_query(kind: type[Q], given: Given, *, lines: bool = False) -> Q:
    """The query of a request.

    Args:
        kind: a dataclass whose fields are parameters.
        lines: whether names and weights come one a line, as from a form.

    Raises:
        ConfigError: a weight is none.
        HTTPException: a parameter is missing, or not what it may be.
    """
    found: dict[str, Any] = {}
    for field, parameter in _parameters(kind):  # type: ignore[arg-type] # classes have a hash
        value = parameter.read(given, field.name, lines)
        if _required(field) and not value:
            abort(400, f"say which {field.name}: {field.name}=…")
        if value is not None:
            found[field.name] = value
    return kind(**found)


def described(kind: type[Any]) -> list[dict[str, Any]]:
    """The parameters of a query, as OpenAPI has them."""
    found = []
    for field, parameter in _parameters(kind):  # type: ignore[arg-type] # classes have a hash
        schema = parameter.schema
        if isinstance(field.default, int | str) and field.default != "":
            schema = {**schema, "default": field.default}
        found.append(
            {
                "name": field.name,
                "in": "query",
                "required": _required(field),
                "description": parameter.about,
                "schema": schema,
            }
        )
    return found


def schemas(kind: type[Any]) -> dict[str, Mapping[str, Any]]:
    """The JSON schemas of a query's parameters, by name."""
    known = _parameters(kind)  # type: ignore[arg-type] # as above
    return {field.name: parameter.schema for field, parameter in known}


@cache
def _parameters(kind: type[Any]) -> tuple[tuple[Field[Any], Parameter], ...]:
    hints = get_type_hints(kind, include_extras=True)
    return tuple((field, hints[field.name].__metadata__[0]) for field in fields(kind))


def _required(field: Field[Any]) -> bool:
    return field.default is MISSING and field.default_factory is MISSING


def _named_weight(text: str, *, spaced: bool) -> tuple[str, float]:
    """A name and the weight of whose it is.

    Args:
        spaced: whether there may be spaces around the equals sign; otherwise they are of the name.
    """
    # A name may hold an equals sign.
    name, _, number = text.rpartition("=")
    name = name.strip() if spaced else name
    try:
        weight = float(number)
    except ValueError:
        name = ""
    if not name:
        raise ConfigError("weight", text, "give a name and its weight, such as worker-3=2")
    return name, weight
