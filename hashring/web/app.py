"""The WSGI application."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from datetime import timedelta
from time import monotonic
from typing import Any, Final

from flask import Flask, Response, jsonify, request
from werkzeug.exceptions import HTTPException

from hashring.core.picture import PICTURE_CSS
from hashring.errors import HashringError
from hashring.web.actions import Actions
from hashring.web.api import Api
from hashring.web.asking import check_query, status_of
from hashring.web.guard import HEADERS, Guard, Hosts
from hashring.web.pages import Templates
from hashring.web.service import Service
from hashring.web.site import Site
from hashring.web.streams import Streams
from hashring.web.text import shown

log = logging.getLogger("hashring.web")

MAX_BODY: Final = 1 << 20
"""Bytes that a request's body may have."""
_VISIT: Final = timedelta(hours=8)
_STATIC_AGE: Final = 3600

Wsgi = Callable[..., Iterable[bytes]]


def create_app(
    service: Service, templates: Templates, allowed_hosts: Iterable[str], token: str | None
) -> Flask:
    """The application; see :class:`hashring.web.Service` for the arguments."""
    app = Flask("hashring.web", template_folder=None)
    app.json.sort_keys = False  # type: ignore[attr-defined]
    app.config.update(
        MAX_CONTENT_LENGTH=MAX_BODY,
        MAX_FORM_MEMORY_SIZE=1 << 16,
        SEND_FILE_MAX_AGE_DEFAULT=_STATIC_AGE,
        SESSION_COOKIE_NAME="hashring",
        SESSION_COOKIE_SAMESITE="Strict",
        SESSION_COOKIE_PATH=f"{service.base_path}/",
        PERMANENT_SESSION_LIFETIME=_VISIT,
    )
    guard = None
    if token is not None:
        guard = Guard(token, monotonic)
        app.secret_key = guard.session_key
    hosts = Hosts(allowed_hosts)

    @app.before_request
    def _before() -> Response | None:
        host = request.environ.get("HTTP_HOST", "")
        if host and not hosts.allows(host):
            return _plain(
                421,
                f"This service does not answer to the name {shown(host)!r}. If it should, start "
                "it with --allowed-host and the name.",
            )
        check_query(request)
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
        status = status_of(error)
        return _told(status, "Redis does not answer" if status == 503 else "No", str(error), {})

    @app.errorhandler(Exception)
    def _failed(error: Exception) -> Any:
        log.exception("%s %s", request.method, request.path)
        text = "Something went wrong in the service; its log says what."
        return _told(500, "Internal error", text, {})

    def _told(status: int, title: str, text: str, headers: dict[str, str]) -> Any:
        if request.path.startswith(("/api/", "/openapi.json")):
            return jsonify(error=text), status, headers
        page = templates.page("message.html", title=title, text=text, live=None, by="", csrf="")
        return page, status, headers

    @app.get("/static/picture.css")
    def _picture_css() -> Response:
        age = {"Cache-Control": f"max-age={_STATIC_AGE}"}
        return Response(PICTURE_CSS, mimetype="text/css", headers=age)

    actions = Actions(service, templates, guard)
    streams = Streams()
    app.register_blueprint(Site(service, templates, actions, streams).blueprint)
    app.register_blueprint(Api(service, actions, streams).blueprint)
    app.register_blueprint(actions.blueprint)
    if service.base_path:
        app.wsgi_app = _under(service.base_path, app.wsgi_app)  # type: ignore[method-assign]
    return app


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
