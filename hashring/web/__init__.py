"""The service: a page to watch rings and groups, a JSON API, metrics. Needs the extra ``web``.

::

    from hashring.web import Service

    service = Service(redis)
    service.start()
    app = service.app          # a WSGI application; hashring serve runs it on gevent's server
    ...
    service.stop()
"""

from __future__ import annotations

from hashring.errors import MissingDependencyError

try:
    import flask  # noqa: F401
    import prometheus_client  # noqa: F401
except ImportError as error:
    raise MissingDependencyError("hashring.web", str(error.name), "web") from error

from hashring.web.service import Service

__all__ = ["Service"]
