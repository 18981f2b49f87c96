"""The WSGI application."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, Final

from flask import Flask, Response, abort, jsonify, request
from werkzeug.exceptions import HTTPException

from hashring.drawing.charts import SMALL_CHART_CSS
from hashring.drawing.partition_grid import GRID_CSS
from hashring.drawing.ring_picture import PICTURE_CSS
from hashring.errors import HashringError, StoreError
from hashring.web.access import Access
from hashring.web.actions import Actions
from hashring.web.address_checks import check_base_path, check_grafana
from hashring.web.allowed_hosts import HEADERS, Hosts, TrustedProxies
from hashring.web.api_routes import ApiRoutes
from hashring.web.confirm_routes import ConfirmRoutes
from hashring.web.costly_requests import Turns
from hashring.web.error_status import status_of
from hashring.web.login_routes import Login
from hashring.web.monitoring_routes import MonitoringRoutes
from hashring.web.page_routes import PageRoutes
from hashring.web.page_templates import Templates, shown
from hashring.web.pages_by_watcher import LivePages
from hashring.web.plan_routes import PlanRoutes
from hashring.web.proxy_users import current_user
from hashring.web.request_checks import MAX_BODY, check_query
from hashring.web.server_sent_events import Streams
from hashring.web.service import Service
from hashring.web.sessions import Sessions
from hashring.web.token_guard import Guard

log = logging.getLogger("hashring.web")

_STATIC_AGE: Final = 3600
_LARGEST_FORM: Final = 1 << 16  # bytes: a key of 16 kB, escaped, fits
_OPEN: Final = ("/healthz", "/readyz", "/metrics", "/static/", "/icon/")
"""Where rights to look do not count: what programs ask for, and what is the same for everybody."""

Wsgi = Callable[..., Iterable[bytes]]


@dataclass(frozen=True)
class Limits:
    """What holds for all applications of a process together.

    Attributes:
        guard: knows the token, and who has to wait; ``None`` for no actions with a token.
        streams: all that are open, each of which takes a thread.
        turns: whose turn it is to do costly work.
        acting: the same for those who may act, so that no reader keeps them waiting.
    """

    guard: Guard | None
    streams: Streams = field(default_factory=Streams)
    turns: Turns = field(default_factory=Turns)
    acting: Turns = field(default_factory=Turns)


def create_app(
    service: Service,
    *,
    redis_shown: str = "",
    server: str = "",
    base_path: str = "",
    grafana: str = "",
    access: Access | None = None,
    above: str = "",
    limits: Limits | None = None,
) -> Flask:
    """The WSGI application that shows a service.

    Args:
        redis_shown: where Redis is, as pages may show it: without a password.
        server: the name of this Redis among several; empty when it is alone.
        base_path: what every path begins with, such as ``/hashring``; empty for nothing.
        grafana: the address of the dashboard in Grafana, to which pages link; empty for none.
        access: who may do what; by default everybody may look, and nobody act.
        above: the address of the page about all servers; empty when this one is alone.
        limits: those of the process, if it has several such applications; its own by default.

    Raises:
        ConfigError: an argument cannot work.
    """
    access = access or Access()
    check_base_path(base_path)
    check_grafana(grafana)
    limits, users = limits or Limits(access.guard()), access.users
    guard, streams, turns = limits.guard, limits.streams, limits.turns
    actions_possible = guard is not None or users.any_may_act
    templates = Templates(
        base_path,
        redis_shown,
        actions=actions_possible,
        server=server,
        grafana=grafana,
        above=above,
    )
    login = Login(templates, guard, Sessions(monotonic), users)
    app = application(templates, access, visitor=login.visitor)
    pages = LivePages(service, templates)
    service.listen(pages)
    actions = Actions(service, templates)
    for routes in (
        PageRoutes(service, templates, pages, login=login, streams=streams, turns=turns),
        ApiRoutes(service, actions, login, base_path, streams=streams, turns=turns),
        ConfirmRoutes(templates, actions, login, limits.acting),
        PlanRoutes(service, templates, login, turns),
        MonitoringRoutes(service),
        login,
    ):
        app.register_blueprint(routes.blueprint)
    return mounted(app, base_path, access)


def mounted(app: Flask, base_path: str, access: Access) -> Flask:
    """The application below its base path, behind its proxies."""
    if base_path:
        app.wsgi_app = _under(base_path, app.wsgi_app)  # type: ignore[method-assign]
    proxies = TrustedProxies(app.wsgi_app, access.trusted_proxies)
    app.wsgi_app = proxies  # type: ignore[method-assign]
    return app


def application(
    templates: Templates, access: Access, visitor: Callable[[], dict[str, Any]] = dict
) -> Flask:
    """An application without pages: it refuses what may not be, and answers errors.

    Args:
        visitor: what the page of an error shows of who has signed in.
    """
    app = Flask("hashring.web", template_folder=None)
    app.config.update(
        MAX_CONTENT_LENGTH=MAX_BODY,
        MAX_FORM_MEMORY_SIZE=_LARGEST_FORM,
        SEND_FILE_MAX_AGE_DEFAULT=_STATIC_AGE,
    )
    hosts, users = Hosts(access.allowed_hosts), access.users

    @app.before_request
    def _before() -> Any:
        host = request.environ.get("HTTP_HOST", "")
        if not host and request.environ.get("SERVER_PROTOCOL") != "HTTP/1.0":
            # RFC 9112, 3.2. Before HTTP/1.1 there was no such header.
            text = "Your request has no Host header: send one with the name of this service."
            return (jsonify(error=text), 400) if _is_api() else _plain(400, text)
        if host and not hosts.allows(host):
            text = (
                f"This service does not answer to the name {shown(host)!r}. If it should, start "
                "it with --allowed-host and the name."
            )
            # A foreign name gets no page.
            return (jsonify(error=text), 421) if _is_api() else _plain(421, text)
        check_query(request)
        if not _is_api() and (request.content_length or 0) > _LARGEST_FORM:
            # Read, its fields may take fifty times as much memory.
            abort(413)
        if not request.path.startswith(_OPEN) and not users.may_look(current_user()):
            abort(403, "You may not look: ask for your name to be among those of --view-user.")
        return None

    @app.after_request
    def _after(response: Response) -> Response:
        response.headers.update(HEADERS)
        response.headers.setdefault("Cache-Control", "no-store")
        return response

    @app.errorhandler(HTTPException)
    def _refused(error: HTTPException) -> Any:
        if error.code is None or error.code < 400:  # a redirection
            return error
        text = error.description or error.name
        headers = {
            name: value
            for name, value in error.get_headers()
            if name in ("Allow", "Retry-After", "WWW-Authenticate")
        }
        return _told(error.code, error.name, text, headers)

    @app.errorhandler(HashringError)
    def _wrong(error: HashringError) -> Any:
        title = "Redis does not respond" if isinstance(error, StoreError) else "No"
        return _told(status_of(error), title, str(error), {})

    @app.errorhandler(Exception)
    def _failed(error: Exception) -> Any:
        log.exception("%s %s", request.method, request.path)
        text = "Something went wrong in the service; its log says what."
        return _told(500, "Internal error", text, {})

    def _told(status: int, title: str, text: str, headers: dict[str, str]) -> Any:
        if _is_api():
            return jsonify(error=text), status, headers
        return templates.page("message.html", title=title, text=text, **visitor()), status, headers

    @app.get("/static/picture.css")
    def _picture_css() -> Response:
        age = {"Cache-Control": f"max-age={_STATIC_AGE}"}
        return Response(PICTURE_CSS + SMALL_CHART_CSS + GRID_CSS, mimetype="text/css", headers=age)

    return app


def _is_api() -> bool:
    return request.path.startswith(("/api/", "/openapi.json"))


def _plain(status: int, text: str) -> Response:
    return Response(text + "\n", status, mimetype="text/plain")


def _under(base_path: str, app: Wsgi) -> Wsgi:
    def under(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        path = environ.get("PATH_INFO", "")
        if path == base_path or path.startswith(f"{base_path}/"):
            environ["SCRIPT_NAME"] = base_path
            environ["PATH_INFO"] = path.removeprefix(base_path) or "/"
            return app(environ, start_response)
        headers = [("Content-Type", "text/plain; charset=utf-8"), *HEADERS.items()]
        start_response("404 Not Found", headers)
        return [f"Everything here is below {base_path}/\n".encode()]

    return under
