"""The service: a page to watch rings and groups, a JSON API, metrics. Needs the extra ``web``.

::

    from hashring.web import Service, create_app

    service = Service(redis)
    app = create_app(service)     # a WSGI application; hashring serve runs it on waitress
    service.start()
    ...
    service.stop()
"""

from __future__ import annotations

from hashring.errors import MissingDependencyError

try:
    import flask  # noqa: F401
    import msgspec  # noqa: F401
    import prometheus_client  # noqa: F401
except ImportError as error:
    raise MissingDependencyError("hashring.web", str(error.name), "web") from error

from hashring.web.access import Access
from hashring.web.service import Service
from hashring.web.wsgi_app import create_app

__all__ = ["Access", "Service", "create_app"]
