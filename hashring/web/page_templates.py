"""The templates of the pages, and how they write values."""

from __future__ import annotations

from datetime import datetime, timezone
from types import CodeType
from typing import Any, Final
from urllib.parse import urlencode

from jinja2 import BytecodeCache, Environment, PackageLoader, StrictUndefined, pass_context
from jinja2.bccache import Bucket
from jinja2.runtime import Context
from markupsafe import Markup

from hashring._version import __version__
from hashring.core import readable_numbers
from hashring.core.safe_text import printable
from hashring.health import command_at
from hashring.web.decision_effects import happenings

LONGEST: Final = 300
"""Characters of a text that anybody may have written; more are cut."""

_PLAIN_PAGE: Final = {"by": "", "csrf": "", "notice": None, "known": False, "live": None}


def shown(text: object) -> str:
    """A name or a key for a page: printable, and of bounded length. HTML is escaped elsewhere."""
    value = printable(str(text))
    if value and not value.strip():
        return repr(value)  # of spaces alone nothing would be seen
    return value if len(value) <= LONGEST else value[:LONGEST] + "…"


def field(value: str) -> str:
    """A text for a form's field: whole, but for NUL, which no page can hold."""
    return value.replace("\0", "\ufffd")


def duration(value: float) -> str:
    """Seconds from or until now: ``0.4 s``, ``12 s``, ``5 min``, ``3 h``, ``2 d``."""
    return readable_numbers.duration(abs(value))


def clock(at: float, now: float) -> str:
    """A time of day, UTC; with the date when that is not the day of now."""
    return _utc(at).strftime("%H:%M:%S") if _utc(at).date() == _utc(now).date() else day(at)


def day(at: float) -> str:
    """Date and time, UTC."""
    return _utc(at).strftime("%Y-%m-%d %H:%M:%S")


def iso(at: float) -> str:
    """For the ``datetime`` of a ``time`` element."""
    return _utc(at).isoformat(timespec="milliseconds")


def _utc(at: float) -> datetime:
    return datetime.fromtimestamp(readable_numbers.in_calendar(at), timezone.utc)


def ratio(value: float | None) -> str:
    """``1.42``."""
    return "-" if value is None else f"{value:.2f}"


class _Compiled(BytecodeCache):
    """The templates that this process has compiled: the pages of all its servers are made of them.

    A filter that depends on the server needs the context, or Jinja would apply it to a constant
    when it compiles.
    """

    def __init__(self) -> None:
        self._codes: dict[tuple[str, str], CodeType | None] = {}

    def load_bytecode(self, bucket: Bucket) -> None:
        bucket.code = self._codes.get((bucket.key, bucket.checksum))

    def dump_bytecode(self, bucket: Bucket) -> None:
        self._codes[bucket.key, bucket.checksum] = bucket.code


_COMPILED: Final = _Compiled()


class Templates:
    """Renders. Needs no request, so that what a page is made of is made once for everybody.

    Args:
        base_path: what every path of the service begins with; empty or ``/like/this``.
        redis: where Redis is, for people: without a password.
        server: the name of this Redis among several; empty when it is alone.
        actions: whether there are buttons to act with.
        grafana: the address of the dashboard in Grafana; empty for none.
        above: the address of the page about all servers; empty for none.
        api: whether there is a description of an API to link to.
    """

    def __init__(
        self,
        base_path: str,
        redis: str,
        *,
        actions: bool,
        server: str = "",
        grafana: str = "",
        above: str = "",
        api: bool = True,
    ) -> None:
        self.base_path = base_path
        self._grafana = grafana

        @pass_context
        def asked_here(_: Context, command: str) -> str:
            return printable(command_at(command, redis) if redis else command)

        self._environment = Environment(
            loader=PackageLoader("hashring.web"),
            bytecode_cache=_COMPILED,
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._environment.filters.update(
            shown=shown,
            duration=duration,
            clock=clock,
            day=day,
            field=field,
            iso=iso,
            percent=readable_numbers.percent,
            ratio=ratio,
            asked_here=asked_here,
            spans=readable_numbers.spans,
            happenings=happenings,
        )
        self._environment.globals.update(
            link=self.link,
            redis=redis,
            server=server,
            actions=actions,
            above=above,
            api=api,
            package_version=__version__,
        )
        # With the globals in them, which an import into a template would not have.
        modules = [
            self._environment.get_template(f"{name}.html").module
            for name in ("parts", "index_parts", "ring_parts", "group_parts")
        ]
        self._parts = {
            name: part
            for module in modules
            for name, part in vars(module).items()
            if callable(part)
        }

    def link(self, path: str, /, **query: str) -> str:
        """A path of the service, with a query, which may have any names."""
        return f"{self.base_path}{path}" + (f"?{urlencode(query)}" if query else "")

    def dashboard(self, **variables: str) -> str:
        """The dashboard in Grafana, with its variables; empty when there is none."""
        if not self._grafana:
            return ""
        query = urlencode({f"var-{name}": value for name, value in variables.items()})
        return f"{self._grafana}{'&' if '?' in self._grafana else '?'}{query}"

    def part(self, name: str, *values: Any) -> Markup:
        """A part of a page."""
        return Markup(self._parts[name](*values).strip())

    def page(self, template: str, **values: Any) -> str:
        """A whole page; as nobody in particular sees it, and without a stream, unless given."""
        return self._environment.get_template(template).render(**{**_PLAIN_PAGE, **values})
