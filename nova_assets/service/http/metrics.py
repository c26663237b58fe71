"""Prometheus metrics of the service, and the middleware that observes each request.

Metrics and access log contain no tokens and no query strings, because keys of rows may be personal data.

If several instances serve behind one address (``nova serve --instances``), ``/metrics`` of any instance adds up the
metrics of all. The instances share them by the files of prometheus_client.

prometheus_client counts. The middleware is hand-written for its labels: routes and reasons (decision 0044).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector
from starlette.requests import Request
from starlette.responses import Response

from nova_assets.service.http.access_log import ObservedRequest, log_request
from nova_assets.service.http.asgi import App, Receive, Scope, Send
from nova_assets.service.own_folder import OwnFolder

NO_ROUTE = "(none)"
"""Route label of requests that match no route, or that were refused before routing."""

_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_SECONDS = (0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


class ServiceMetrics:
    """Metrics of one service, in a registry of its own. With several instances, all their metrics are read together."""

    def __init__(self) -> None:
        shared_folder = os.environ.get("PROMETHEUS_MULTIPROC_DIR")  # prometheus_client has read it when it was imported
        self._shared_folder = OwnFolder.share(Path(shared_folder)) if shared_folder else None
        self._shared_files: set[Path] = set()
        if self._shared_folder is not None:  # known by name: the file may be deleted before the first heartbeat
            self._shared_files.add(self._shared_folder.ensure() / f"gauge_livesum_{os.getpid()}.db")
        self.registry = CollectorRegistry()
        route_labels, registry = ("route", "method"), self.registry
        self.requests = Counter(
            "nova_service_requests", "Answered requests.", (*route_labels, "status"), registry=registry
        )
        self.seconds = Histogram(
            "nova_service_seconds",
            "Seconds until requests were answered.",
            route_labels,
            buckets=_SECONDS,
            registry=registry,
        )
        self.received_bytes = Counter(
            "nova_service_received_bytes", "Bytes of request bodies.", route_labels, registry=registry
        )
        self.sent_bytes = Counter(
            "nova_service_sent_bytes", "Bytes of response bodies.", route_labels, registry=registry
        )
        self.in_flight = Gauge(
            "nova_service_requests_in_flight", "Requests in progress.", registry=registry, multiprocess_mode="livesum"
        )
        self.refusals = Counter("nova_service_refusals", "Refused requests.", ("reason",), registry=registry)
        self._updates: list[Callable[[], None]] = []
        self._frequent_updates: list[Callable[[], None]] = []

    def before_each_read(self, update: Callable[[], None]) -> None:
        """Call a function before the metrics are read from this instance."""
        self._updates.append(update)

    def before_each_read_by_any_instance(self, update: Callable[[], None]) -> None:
        """Call a fast function before the metrics are read, and about once per second if another instance may read
        them.
        """
        self._frequent_updates.append(update)

    def update_for_other_instances(self) -> None:
        """Update what other instances may read."""
        for update in self._frequent_updates:
            update()

    def has_lost_shared_files(self) -> bool:
        """Whether files of this process were deleted from outside. prometheus_client never opens them again."""
        if self._shared_folder is None:
            return False
        existing = set(self._shared_folder.ensure().glob(f"*_{os.getpid()}.db"))
        is_lost = not self._shared_files <= existing
        self._shared_files |= existing
        return is_lost

    def request_began(self) -> None:
        """Raise the gauge of requests in progress. ``request_ended`` lowers it, and counts the request."""
        self.in_flight.inc()

    def request_ended(self, request: ObservedRequest, route: str, method: str) -> None:
        """Count an answered request."""
        self.in_flight.dec()
        route_labels = (route, method)
        with suppress(OSError):  # the shared files were deleted: a count is lost, but no request fails
            self.requests.labels(*route_labels, str(request.status)).inc()
            self.seconds.labels(*route_labels).observe(request.seconds)
            self.received_bytes.labels(*route_labels).inc(request.received_bytes)
            self.sent_bytes.labels(*route_labels).inc(request.sent_bytes)
            if "refused" in request.state:
                self.refusals.labels(request.state["refused"]).inc()

    def prometheus_text(self) -> tuple[bytes, str]:
        """Metrics in Prometheus text format, and their content type."""
        registry = self.registry
        if self._shared_folder is not None:
            registry = CollectorRegistry()
            MultiProcessCollector(registry, str(self._shared_folder.ensure()))  # type: ignore[no-untyped-call]
        for update in (*self._updates, *self._frequent_updates):
            update()
        return generate_latest(registry), CONTENT_TYPE_LATEST

    async def metrics_response(self, request: Request) -> Response:
        """The metrics as an HTTP response, for a ``/metrics`` route."""
        body, content_type = self.prometheus_text()
        return Response(body, headers={"cache-control": "no-store", "content-type": content_type})


class MetricsMiddleware:
    """ASGI middleware that counts and logs every request, and assigns its id."""

    def __init__(self, app: App, metrics: ServiceMetrics) -> None:
        self.app = app
        self.metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        request = ObservedRequest(scope, receive, send)
        self.metrics.request_began()
        try:
            await self.app(scope, request.receive, request.send)
        except Exception as error:
            await request.answer_unhandled_error(error)
        finally:
            self._record_request(request)

    def _record_request(self, request: ObservedRequest) -> None:
        method = request.scope["method"] if request.scope["method"] in _METHODS else "(other)"
        route = route_template(request.scope)
        self.metrics.request_ended(request, route, method)
        log_request(request, route, method)


def route_template(scope: Scope) -> str:
    """Template of the matched route: ``/v1/channels/{channel}``."""
    return str(getattr(scope.get("route"), "path", NO_ROUTE))
