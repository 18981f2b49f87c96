"""``hashring serve``: a page to watch rings and groups, an API, metrics."""

from __future__ import annotations

import ipaddress
import logging
import os
import re
import signal
import sys
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import click
from click.core import ParameterSource

from hashring.cli.common_options import NumberRange, Settings, served_options
from hashring.cli.connection import connected
from hashring.cli.output import json_line
from hashring.core.order_checks import checked_token
from hashring.core.safe_text import printable
from hashring.errors import ConfigError
from hashring.store.redis_url import client_of, without_password

TOKEN_VARIABLE: Final = "HASHRING_TOKEN"
_NAMED: Final = re.compile(r"([A-Za-z0-9_-]+)=(.*)")
_ENDS: Final = (signal.SIGINT, signal.SIGTERM)
_STOPPING: Final = 1.0  # seconds that open requests have to end when it stops


@click.command("serve")
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8765,
    show_default=True,
    help="The port; 0 for any free one.",
)
@click.option(
    "--base-path", default="", metavar="/PATH", help="What all paths begin with, behind a proxy."
)
@click.option(
    "--allowed-host",
    "allowed_hosts",
    multiple=True,
    metavar="NAME",
    help="A name that requests may ask for, besides IP addresses, localhost and this machine's "
    "name; may be given more than once; * for any.",
)
@click.option(
    "--trusted-proxy",
    "trusted_proxies",
    multiple=True,
    metavar="ADDRESS",
    help="The address or network of a proxy whose X-Forwarded-For, X-Forwarded-Proto and "
    "X-Forwarded-User are believed; may be given more than once.",
)
@click.option(
    "--view-user",
    "view_users",
    multiple=True,
    metavar="NAME",
    help="A user, named by a trusted proxy, who may look; may be given more than once; * for each "
    "user. Without it, everybody may look.",
)
@click.option(
    "--act-user",
    "act_users",
    multiple=True,
    metavar="NAME",
    help="A user, named by a trusted proxy, who may act without the token, and look; may be given "
    "more than once; * for each user.",
)
@click.option(
    "--forget-after",
    type=NumberRange(min=0),
    default=7.0,
    show_default=True,
    metavar="DAYS",
    help="Days for which a ring or group is shown that all have left; a ring that --ring names "
    "always is.",
)
@click.option(
    "--allow-actions",
    is_flag=True,
    help=f"Let everybody who knows the token in {TOKEN_VARIABLE} drain, weigh and remove nodes, "
    "release locks, forget rings and groups, and order about members of groups.",
)
@click.option(
    "--grafana",
    default="",
    metavar="URL",
    help="The address of the dashboard in Grafana, to which the pages of rings and groups link.",
)
@click.option(
    "--url",
    "urls",
    multiple=True,
    metavar="[NAME=]URL",
    help="Where Redis is, as for other commands; may be given more than once, each with a name of "
    "its own: eu=redis://eu.internal.",
)
@click.option(
    "--servers",
    type=click.Path(exists=True, dir_okay=False, readable=True),
    metavar="FILE",
    help="A file that has such a server a line; a line that begins with # is a comment.",
)
@served_options()
@click.pass_context
def command(
    ctx: click.Context,
    /,
    *,
    host: str,
    port: int,
    base_path: str,
    allowed_hosts: tuple[str, ...],
    trusted_proxies: tuple[str, ...],
    view_users: tuple[str, ...],
    act_users: tuple[str, ...],
    forget_after: float,
    allow_actions: bool,
    grafana: str,
    urls: tuple[str, ...],
    servers: str | None,
) -> int | None:
    """Serve a page to watch rings and groups, an API, and metrics.

    All rings and groups on this Redis are found and shown; the ring that --ring names is shown
    even while it has no nodes. Redis may go away, and come back. Of several Redis servers, or one
    with a name, each has its own pages, and the first page shows how each is. Needs the extra web.

    \b
    Examples:
      hashring serve
      hashring serve --url redis://redis.internal:6379/0 --port 8080
      hashring serve --url eu=redis://eu.internal --url us=redis://us.internal
      HASHRING_TOKEN=... hashring serve --allow-actions
      hashring serve --port 0 --json    # any free port; writes {"url": ...} once it listens
    """
    token = None
    if allow_actions:
        token = checked_token(os.environ.get(TOKEN_VARIABLE, ""), TOKEN_VARIABLE)
    if (view_users or act_users) and not trusted_proxies:
        raise ConfigError(
            "--act-user" if act_users else "--view-user",
            (act_users or view_users)[0],
            "give --trusted-proxy as well: only a trusted proxy can name users",
        )
    _check_host(host)
    _log_to_stderr()
    settings = ctx.ensure_object(Settings)
    found = [*(urls or _before(ctx, settings)), *(_servers(servers) if servers else ())]
    if not found and settings.url is not None:  # in the environment
        found = [settings.url]
    several = len(found) > 1 or any(map(_NAMED.fullmatch, found))
    with ExitStack() as stack:
        if found and not several:
            settings.url, found = found[0], []
        if not found:
            found = [f"redis={stack.enter_context(connected(settings)).url}"]
        from hashring.web import Access, Service, create_app  # noqa: PLC0415
        from hashring.web.several_servers import Site, create_sites  # noqa: PLC0415
        from hashring.web.waitress_server import Server  # noqa: PLC0415

        sites = []
        for number, text in enumerate(found, 1):
            named = _NAMED.fullmatch(text)
            name, url = (named[1], named[2]) if named else (f"redis-{number}", text)
            service = Service(
                client_of(url),
                rings=[settings.ring] if "ring" in settings.given else [],
                scoring=settings.scoring,
                forget_after=forget_after * 86_400,
            )
            sites.append(Site(name, service, without_password(url)))
        access = Access(
            allowed_hosts=[*allowed_hosts, host],
            trusted_proxies=trusted_proxies,
            token=token,
            view_users=view_users,
            act_users=act_users,
        )
        app: Any
        if several:
            app = create_sites(sites, base_path=base_path, grafana=grafana, access=access)
        else:
            [site] = sites
            app = create_app(
                site.service,
                redis_shown=site.redis_shown,
                base_path=base_path,
                grafana=grafana,
                access=access,
            )
        try:
            server = Server(app, host, port, servers=len(sites))
        except (OSError, UnicodeError) as error:
            raise ConfigError(
                "host:port", f"{host}:{port}", f"cannot listen there: {error}"
            ) from None
        # Waited for, never handled: every thread inherits it, and none is interrupted.
        signal.pthread_sigmask(signal.SIG_BLOCK, _ENDS)
        server.start()
        for site in sites:
            site.service.start()
        _say(server, base_path, json=settings.json)
        signal.sigwait(_ENDS)
        # Told twice, it ends at once.
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDS)
        # Each waits for an answer of its Redis, which may be gone.
        stopping = [threading.Thread(target=site.service.stop, daemon=True) for site in sites]
        for each in stopping:
            each.start()
        for each in stopping:
            each.join()
        server.stop(timeout=_STOPPING)
    return 0


class _OneLine(logging.Formatter):
    """Escapes what would move the cursor or begin a line: a request's path may hold anything."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        record.message = printable(record.message)
        return super().formatMessage(record)


def _check_host(host: str) -> None:
    """Refuse what is neither an address nor a name.

    Python would listen on every address for ``*``, and the service would answer to every name.

    Raises:
        ConfigError: as it says.
    """
    if not re.fullmatch(r"[A-Za-z0-9._-]+|[0-9A-Fa-f:.]+(%\w+)?", host):
        raise ConfigError(
            "host",
            host,
            "give an address or a name to listen on, without a scheme, port or brackets: 127.0.0.1 "
            "for this machine alone, 0.0.0.0 for every IPv4 address or :: for every IPv6 address",
        )


def _log_to_stderr() -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_OneLine("%(levelname)s %(message)s"))
    logging.basicConfig(handlers=[handler], level=logging.INFO)


def _before(ctx: click.Context, settings: Settings) -> list[str]:
    """The server that ``--url`` names before the command; none if only the environment does."""
    assert ctx.parent is not None
    of_command_line = ctx.parent.get_parameter_source("url") is ParameterSource.COMMANDLINE
    return [settings.url] if of_command_line and settings.url is not None else []


def _servers(path: str) -> list[str]:
    """The servers of a file.

    Raises:
        ConfigError: it names none, or cannot be read.
    """
    try:
        lines = [line.strip() for line in Path(path).read_text(encoding="utf-8").split("\n")]
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError("servers", path, f"cannot be read: {error}") from None
    found = [line for line in lines if line and not line.startswith("#")]
    if not found:
        raise ConfigError("servers", path, "names no server: write one a line")
    return found


def _say(server: Any, base_path: str, *, json: bool) -> None:
    host, port = server.host, server.port
    url = f"http://{f'[{host}]' if ':' in host else host}:{port}{base_path}/"
    click.echo(f"hashring: serving on {url}", err=True)
    if json:
        json_line({"url": url})
    if not _is_loopback(host):
        click.echo(
            f"hashring: {host} can be reached from other machines: everybody who can may see all "
            "rings, keys' owners and locks",
            err=True,
        )


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
