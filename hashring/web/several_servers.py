"""Several Redis servers in one service: each below a path of its own, and one page about all."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec
from flask import Blueprint, Response
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from hashring.core.readable_numbers import counted
from hashring.errors import ConfigError
from hashring.health import exit_status, worst, worst_first
from hashring.web import answers_from_views as answers
from hashring.web.access import Access
from hashring.web.monitoring_routes import alive, metrics_registry, metrics_response
from hashring.web.page_templates import Templates
from hashring.web.service import Service
from hashring.web.state_signs import icon, sign
from hashring.web.watcher_health import verdict_on_all
from hashring.web.wsgi_app import Limits, Wsgi, application, create_app, mounted

PATH: Final = "/server"
"""Before the name of a server in every path of its pages."""


@dataclass(frozen=True)
class Site:
    """A Redis server that is shown.

    Attributes:
        name: a plain word, for paths and metrics.
        service: its watchers.
        redis_shown: where it is, without a password.
    """

    name: str
    service: Service
    redis_shown: str


def create_sites(
    sites: Iterable[Site], *, base_path: str = "", grafana: str = "", access: Access
) -> Wsgi:
    """The WSGI application that shows several servers.

    Args:
        base_path, grafana: see :func:`hashring.web.create_app`.
        access: who may do what, for all of them.

    Raises:
        ConfigError: two have one name, or a name or another argument cannot work.
    """
    known: dict[str, Site] = {}
    for site in sites:
        if not site.name.replace("-", "").replace("_", "").isalnum() or not site.name.isascii():
            raise ConfigError("server", site.name, "give a name of letters, digits, - and _")
        if site.name in known:
            raise ConfigError("server", site.name, "each server needs a name of its own")
        known[site.name] = site
    limits = Limits(access.guard())
    apps = {
        f"{base_path}{PATH}/{name}": create_app(
            site.service,
            redis_shown=site.redis_shown,
            server=name,
            base_path=f"{base_path}{PATH}/{name}",
            grafana=_narrowed(grafana, name),
            access=access,
            above=f"{base_path}/",
            limits=limits,
        )
        for name, site in known.items()
    }
    front = _front(known, base_path, access)

    def dispatch(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        path = environ.get("PATH_INFO", "")
        for prefix, app in apps.items():
            if path == prefix or path.startswith(f"{prefix}/"):
                return app(environ, start_response)
        return front(environ, start_response)

    return dispatch


def _narrowed(grafana: str, server: str) -> str:
    """The address of the dashboard, with the server chosen."""
    return f"{grafana}{'&' if '?' in grafana else '?'}var-server={server}" if grafana else ""


def _front(sites: Mapping[str, Site], base_path: str, access: Access) -> Wsgi:
    templates = Templates(base_path, counted(len(sites), "Redis server"), actions=False, api=False)
    app = application(templates, access)
    registry = metrics_registry(_Labelled(sites))
    routes = Blueprint("servers", __name__)

    @routes.get("/")
    def _servers() -> str:
        entries = [_entry(site, f"{base_path}{PATH}/{name}/") for name, site in sites.items()]
        entries.sort(key=lambda entry: entry["order"])
        state = worst(entry["health"] for entry in entries)
        return templates.page(
            "servers.html",
            entries=entries,
            state=state.value,
            mark=sign(state),
        )

    @routes.get("/api/status")
    def _status() -> Response:
        overviews = {
            name: msgspec.to_builtins(answers.overview(site.service))
            for name, site in sites.items()
        }
        found = [verdict_on_all(site.service) for site in sites.values()]
        told = {
            "state": worst(found).value,
            "exit_status": exit_status(found),
            "servers": overviews,
        }
        return Response(msgspec.json.encode(told), mimetype="application/json")

    @routes.get("/readyz")
    def _ready() -> Any:
        ready = {name: site.service.ready for name, site in sites.items()}
        # One server that is away must not take the others' pages from their readers.
        well = any(ready.values())
        told = {"status": "ready" if well else "not ready", "servers": ready}
        return told, 200 if well else 503

    @routes.get("/metrics")
    def _metrics() -> Response:
        return metrics_response(registry)

    routes.add_url_rule("/healthz", view_func=alive)
    routes.add_url_rule("/icon/<state>.svg", view_func=icon)
    app.register_blueprint(routes)
    return mounted(app, base_path, access)


def _entry(site: Site, link: str) -> dict[str, Any]:
    health = verdict_on_all(site.service)
    rings, groups = site.service.listed()
    return {
        "name": site.name,
        "redis": site.redis_shown,
        "link": link,
        "health": health,
        "state": health.state.value,
        "order": worst_first(health),
        "rings": len(rings),
        "groups": len(groups),
    }


class _Labelled(Collector):
    """The metrics of all servers, each with its server's name as a label."""

    def __init__(self, sites: Mapping[str, Site]) -> None:
        self._sites = sites

    def collect(self) -> Iterator[Metric]:
        found: dict[str, Metric] = {}
        for name, site in self._sites.items():
            for family in site.service.metrics.collect():
                into = found.setdefault(
                    family.name, Metric(family.name, family.documentation, family.type)
                )
                for sample in family.samples:
                    into.samples.append(sample._replace(labels={**sample.labels, "server": name}))
        yield from found.values()
