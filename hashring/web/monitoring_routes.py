"""The addresses for whatever monitors the service: its health, and the metrics."""

from __future__ import annotations

from typing import Any

from flask import Blueprint, Response, request
from prometheus_client import (
    CollectorRegistry,
    GCCollector,
    PlatformCollector,
    ProcessCollector,
)
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from hashring.web.service import Service


class MonitoringRoutes:
    """Health and metrics."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._registry = metrics_registry(service.metrics)
        self.blueprint = Blueprint("monitoring", __name__)
        for rule, view in (
            ("/healthz", alive),
            ("/readyz", self._ready),
            ("/metrics", self._metrics),
        ):
            self.blueprint.add_url_rule(rule, view_func=view, methods=["GET"])

    def _ready(self) -> Any:
        if self._service.ready:
            return {"status": "ready", "redis": "answers"}
        failure = self._service.failure
        told: dict[str, Any] = {"status": "not ready", "redis": "has not answered yet"}
        if failure is not None:
            told |= {"redis": str(failure.error), "since": failure.since}
        elif self._service.fault:
            told |= {"redis": "answers", "fault": self._service.fault}
        return told, 503

    def _metrics(self) -> Response:
        return metrics_response(self._registry)


def alive() -> dict[str, str]:
    """Whether the process answers at all."""
    return {"status": "alive"}


def metrics_registry(collector: Collector) -> CollectorRegistry:
    """What the collector has, and what there is of any process."""
    registry = CollectorRegistry()
    registry.register(collector)
    for each in (ProcessCollector, PlatformCollector, GCCollector):
        each(registry=registry)
    return registry


def metrics_response(registry: CollectorRegistry) -> Response:
    """All metrics, in the form that the request asks for."""
    try:
        encode, content_type = choose_encoder(request.headers.get("Accept", ""))
    except (TypeError, ValueError):  # a version there that is none
        encode, content_type = choose_encoder("")
    return Response(encode(registry), content_type=content_type)
