"""The options that every command has."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

import click
from click.core import ParameterSource

from hashring.store.ring.commands import Scoring

F = TypeVar("F", bound=Callable[..., Any])

DEFAULT_RING: Final = "ring"


class NumberRange(click.FloatRange):
    """A number within a range, in which ``nan`` is not."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """The number."""
        number: float = super().convert(value, param, ctx)
        if math.isnan(number):
            self.fail(f"{value} is not a number.", param, ctx)
        return number


class NewPath(click.Path):
    """Where to write. An empty text is none: to a shell's unset variable it would be here."""

    def convert(
        self,
        value: str | os.PathLike[str],
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> str | bytes | os.PathLike[str]:
        """The path."""
        if not os.fspath(value):
            self.fail("the name is empty.", param, ctx)
        return super().convert(value, param, ctx)


@dataclass
class Settings:
    """What the options say.

    Attributes:
        url: where Redis is; ``None`` for the shared embedded server.
        ring: the ring's name.
        wire: ``"redis-hashring"`` for a ring that nodes of redis-hashring 0.7 are on.
        json: whether to answer in JSON.
        given: the names of the options that were given, here or in the environment.
        typed: those that were given on the command line.
    """

    url: str | None = None
    ring: str = DEFAULT_RING
    wire: str | None = None
    json: bool = False
    given: set[str] = field(default_factory=set)
    typed: set[str] = field(default_factory=set)

    @property
    def scoring(self) -> Scoring:
        """What the scores in the ring's ZSET mean."""
        return Scoring.of_wire(self.wire)


def _remember(ctx: click.Context, parameter: click.Parameter, value: Any) -> None:
    settings = ctx.ensure_object(Settings)
    if value is not None and parameter.name is not None:
        setattr(settings, parameter.name, value)
        settings.given.add(parameter.name)
        if ctx.get_parameter_source(parameter.name) is ParameterSource.COMMANDLINE:
            settings.typed.add(parameter.name)


def ring_options(*, environment: bool = False) -> Callable[[F], F]:
    """Adds the options of a command about a ring, which fill the context's :class:`Settings`.

    Args:
        environment: whether the environment counts: for the group alone, since for a command it
            would win over what stands before the command.
    """
    return _options("--url", "--ring", "--wire", "--json", environment=environment)


def served_options() -> Callable[[F], F]:
    """The same for a command about several servers, which has its own ``--url``."""
    return _options("--ring", "--wire", "--json")


def server_options() -> Callable[[F], F]:
    """The same for a command about something else on the server: no ``--ring``, no ``--wire``."""
    return _options("--url", "--json")


def json_option() -> Callable[[F], F]:
    """The same for a command that asks no Redis: ``--json`` alone."""
    return _options("--json")


def combined(*options: Callable[[Any], Any]) -> Callable[[F], F]:
    """Adds several options, in this order."""

    def add(function: F) -> F:
        for option in reversed(options):
            function = option(function)
        return function

    return add


def _options(*wanted: str, environment: bool = False) -> Callable[[F], F]:
    def option(*names: str, variable: str | None = None, **more: Any) -> Callable[[F], F]:
        return click.option(
            *names,
            callback=_remember,
            expose_value=False,
            envvar=variable if environment else None,
            **more,
        )

    every = {
        "--url": option(
            "--url",
            metavar="URL",
            variable="HASHRING_REDIS_URL",
            help="Where Redis is: redis://user:password@host:port/db, rediss://… or unix:///path. "
            "[env: HASHRING_REDIS_URL]",
        ),
        "--ring": option(
            "--ring",
            metavar="NAME",
            variable="HASHRING_RING",
            help=f"The ring's name.  [env: HASHRING_RING; default: {DEFAULT_RING}]",
        ),
        "--wire": option(
            "--wire",
            type=click.Choice(["redis-hashring"]),
            help="For a ring that nodes of redis-hashring 0.7 are on.",
        ),
        "--json": option("--json", is_flag=True, default=None, help="Answer in JSON."),
    }
    return combined(*(every[name] for name in wanted))
