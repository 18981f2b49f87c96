"""Expressions as pieces of SQL, put together as columns of Spark are."""

from __future__ import annotations

from typing import Any, Protocol


class Expression(Protocol):
    """What a column of Spark and a piece of SQL have in common."""

    def __add__(self, other: Any, /) -> Any: ...
    def __lt__(self, other: Any, /) -> Any: ...
    def __mul__(self, other: Any, /) -> Any: ...

    def bitwiseAND(self, other: Any, /) -> Any:  # noqa: N802 - Spark's name
        """Its bits that the other has, too."""

    def cast(self, kind: str, /) -> Any:
        """It, as another type."""


class Sql(str):
    """A piece of SQL, with the operators of a column."""

    __slots__ = ()

    def __add__(self, other: object) -> Sql:
        return Sql(f"({self} + {other})")

    def __lt__(self, other: object) -> Sql:  # type: ignore[override]
        return Sql(f"({self} < {other})")

    def __mul__(self, other: object) -> Sql:
        return Sql(f"({self} * {other})")

    def bitwiseAND(self, other: object) -> Sql:  # noqa: N802 - as of a column
        """Its bits that the other has, too."""
        return Sql(f"({self} & {other})")

    def cast(self, kind: str) -> Sql:
        """It, as another type."""
        return Sql(f"CAST({self} AS {kind})")


class SqlFunctions:
    """The functions of ``pyspark.sql.functions`` that a lookup uses, for pieces of SQL."""

    @staticmethod
    def get(array: object, index: object) -> Sql:
        """An element of an array, null beyond its end."""
        return Sql(f"get({array}, {index})")

    @staticmethod
    def shiftright(number: object, bits: int) -> Sql:
        """The number without its low bits."""
        return Sql(f"shiftright({number}, {bits})")

    @staticmethod
    def call_function(name: str, *arguments: object) -> Sql:
        """Any function, by its name."""
        return Sql(f"{name}({', '.join(map(str, arguments))})")

    @staticmethod
    def least(*numbers: object) -> Sql:
        """The least of them."""
        return Sql(f"least({', '.join(map(str, numbers))})")

    @staticmethod
    def coalesce(*values: object) -> Sql:
        """The first that is not null."""
        return Sql(f"coalesce({', '.join(map(str, values))})")

    @staticmethod
    def lit(number: int) -> Sql:
        """A BIGINT."""
        return Sql(f"{number}L")
