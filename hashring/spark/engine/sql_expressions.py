"""Expressions as pieces of SQL, put together as columns of Spark are."""

from __future__ import annotations

from functools import partial


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


def _call(name: str, *arguments: object) -> Sql:
    return Sql(f"{name}({', '.join(map(str, arguments))})")


class SqlFunctions:
    """The functions of ``pyspark.sql.functions`` that a lookup uses, for pieces of SQL."""

    call_function = staticmethod(_call)
    coalesce = staticmethod(partial(_call, "coalesce"))
    get = staticmethod(partial(_call, "get"))
    least = staticmethod(partial(_call, "least"))
    shiftright = staticmethod(partial(_call, "shiftright"))

    @staticmethod
    def lit(number: int) -> Sql:
        """A BIGINT."""
        return Sql(f"{number}L")
