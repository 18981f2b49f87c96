"""The parameters of queries, each declared once: to read it, to refuse it, and to describe it.

A query is a dataclass. Each field is a parameter of its name; a note beside its type says what it
may be::

    @dataclass(frozen=True)
    class NodesQuery:
        ring: Annotated[str, Name("The ring's name.")]
        count: Annotated[int, Whole("The most to return.", 1, 1000)] = 1000

A field without a default is required. :func:`read_query` makes a query of a request, and
:func:`described` says in OpenAPI what the request may have.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator
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
_NAME: Final = {"type": "string", "minLength": 1, "maxLength": LONGEST_QUERIED_NAME}
Q = TypeVar("Q")


@dataclass(frozen=True)
class Parameter(ABC):
    """What a parameter may be.

    Attributes:
        about: what it is, for the description.
    """

    about: str

    @property
    @abstractmethod
    def schema(self) -> dict[str, Any]:
        """Its values, as a JSON schema."""

    @abstractmethod
    def read(self, given: Given, name: str, *, lines: bool) -> Any:
        """Its value; ``None`` if it is not given.

        Args:
            lines: whether a field may have several values, one a line, as a form's has.

        Raises:
            ConfigError, HTTPException: it is not what it may be.
        """


@dataclass(frozen=True)
class TextParameter(Parameter):
    """Any text."""

    @property
    def schema(self) -> dict[str, Any]:
        """Any text."""
        return {"type": "string"}

    def read(self, given: Given, name: str, *, lines: bool) -> str | None:
        """The text as it is."""
        return given.get(name)


@dataclass(frozen=True)
class KeyParameter(TextParameter):
    """A key."""

    @property
    def schema(self) -> dict[str, Any]:
        """Any text but an empty one."""
        return {"type": "string", "minLength": 1}


@dataclass(frozen=True)
class NameParameter(TextParameter):
    """A name of something that there is."""

    @property
    def schema(self) -> dict[str, Any]:
        """A text of some length."""
        return _NAME


@dataclass(frozen=True)
class ChoiceParameter(TextParameter):
    """One of some words. An empty one is as none: forms send it so.

    What is none of the words, the plan refuses.
    """

    words: tuple[str, ...]

    @property
    def schema(self) -> dict[str, Any]:
        """The words."""
        return {"enum": list(self.words)}

    def read(self, given: Given, name: str, *, lines: bool) -> str | None:
        """The word."""
        return given.get(name) or None


@dataclass(frozen=True)
class WholeParameter(Parameter):
    """A whole number. An empty one is as none: forms send it so."""

    least: int
    most: int

    @property
    def schema(self) -> dict[str, Any]:
        """The range."""
        return {"type": "integer", "minimum": self.least, "maximum": self.most}

    def read(self, given: Given, name: str, *, lines: bool) -> int | None:
        """The number."""
        text = given.get(name)
        if not text:
            return None
        few = text.isascii() and text.isdigit() and len(text) <= 9
        if not (few and self.least <= int(text) <= self.most):
            what = f"give a whole number from {self.least} to {self.most}"
            abort(400, f"{name}={shown(text)!r}: {what}")
        return int(text)


@dataclass(frozen=True)
class WeightParameter(Parameter):
    """A weight. An empty one is as none: forms send it so."""

    @property
    def schema(self) -> dict[str, Any]:
        """A positive number."""
        return {"type": "number", "exclusiveMinimum": 0}

    def read(self, given: Given, name: str, *, lines: bool) -> float | None:
        """The number, which may be none that a weight can be."""
        return weight_of(given.get(name, ""))


@dataclass(frozen=True)
class NamesParameter(Parameter):
    """Several names, each a parameter of its own."""

    most: int

    @property
    def schema(self) -> dict[str, Any]:
        """The length of the list."""
        return {"type": "array", "items": _NAME, "maxItems": self.most}

    def read(self, given: Given, name: str, *, lines: bool) -> Any:
        """The names."""
        values = given.getlist(name)
        self._check(name, values)
        if lines:
            parts = (part.strip() for text in values for part in _LINES.split(text))
            values = [part for part in parts if part]
            self._check(name, values)
        return values or None

    def _check(self, name: str, values: list[str]) -> None:
        if len(values) > self.most:
            abort(422, f"{name}: at most {self.most} in one request, and these are {len(values)}")


@dataclass(frozen=True)
class WeightsParameter(NamesParameter):
    """Several weights, each with the name of whose it is."""

    def read(self, given: Given, name: str, *, lines: bool) -> dict[str, float] | None:
        """The weights by name."""
        texts = super().read(given, name, lines=lines) or ()
        return dict(_named_weight(text, spaced=lines) for text in texts) or None


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
        value = parameter.read(given, field.name, lines=lines)
        if _required(field) and not value:
            abort(400, f"say which {field.name}: {field.name}=…")
        if value is not None:
            found[field.name] = value
    return kind(**found)


def described(kind: type[Any]) -> list[dict[str, Any]]:
    """The parameters of a query, as OpenAPI has them."""
    return list(_described(kind))


def _described(kind: type[Any]) -> Iterator[dict[str, Any]]:
    for field, parameter in _parameters(kind):  # type: ignore[arg-type] # classes have a hash
        schema = parameter.schema
        if isinstance(field.default, int | str) and field.default != "":
            schema = {**schema, "default": field.default}
        yield {
            "name": field.name,
            "in": "query",
            "required": _required(field),
            "description": parameter.about,
            "schema": schema,
        }


@cache
def _parameters(kind: type[Any]) -> tuple[tuple[Field[Any], Parameter], ...]:
    hints = get_type_hints(kind, include_extras=True)
    return tuple((field, hints[field.name].__metadata__[0]) for field in fields(kind))


def _required(field: Field[Any]) -> bool:
    return field.default is MISSING and field.default_factory is MISSING


def weight_of(text: str) -> float | None:
    """A weight in a form or an address; ``None`` when it is empty.

    Raises:
        ConfigError: it is none.
    """
    if not text:
        return None
    try:
        return float(text)
    except ValueError:
        raise ConfigError("weight", shown(text), "give a number above 0") from None


def _named_weight(text: str, *, spaced: bool) -> tuple[str, float]:
    """A node and its weight.

    Args:
        spaced: whether there may be spaces around the equals sign; otherwise they are of the name.
    """
    # A node's name may hold an equals sign.
    name, _, number = text.rpartition("=")
    name = name.strip() if spaced else name
    try:
        weight = float(number)
    except ValueError:
        name = ""
    if not name:
        raise ConfigError("weight", text, "give a node and its weight, such as worker-3=2")
    return name, weight
