"""Metrics for Prometheus: of the nodes of a process, and of whole rings as a service reads them.

In the process that runs nodes, or members of partition groups::

    from prometheus_client import start_http_server

    import hashring.metrics

    hashring.metrics.register(node)
    start_http_server(9100)

What each metric means is in docs/reference/metrics.rst. Needs the extra ``metrics``.
"""

from __future__ import annotations

from hashring.errors import MissingDependencyError

try:
    import prometheus_client  # noqa: F401
except ImportError as error:
    raise MissingDependencyError("hashring.metrics", "prometheus-client", "metrics") from error

from hashring.metrics.fleet_collector import FleetCollector, GroupReading, RingReading
from hashring.metrics.process_collector import ProcessCollector, register, unregister

__all__ = [
    "FleetCollector",
    "GroupReading",
    "ProcessCollector",
    "RingReading",
    "register",
    "unregister",
]
