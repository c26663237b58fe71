"""Prometheus metrics of the service, and the middleware that observes each request.

Metrics and access log contain no tokens and no query strings, because keys of rows may be personal data.

If several instances serve behind one address (``nova serve --instances``), ``/metrics`` of any instance adds up the
metrics of all. The instances share them by files (``shared_metrics``).

prometheus_client counts. The middleware is hand-written for its labels: routes and reasons (decision 0044).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector
from starlette.requests import Request
from starlette.responses import Response

from nova_assets.service.http.access_log import log_request
from nova_assets.service.http.asgi import App, Receive, Scope, Send
from nova_assets.service.http.observed_request import ObservedRequest
from nova_assets.service.http.shared_metrics import shared_files

NO_ROUTE = "(none)"
"""Route label of requests that match no route, or that were refused before routing."""

_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_SECONDS = (0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


class ServiceMetrics:
    """Metrics of one service, in a registry of its own. With several instances, all their metrics are read together."""

    def __init__(self) -> None:
        if shared_files is not None:
            shared_files.ensure()
        self.registry = CollectorRegistry()
        self._in_flight_count = 0
        self._has_counted_request = False
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
        self._ensure_shared_files()

    def before_each_read(self, update: Callable[[], None]) -> None:
        """Call a function before the metrics are read from this instance."""
        self._updates.append(update)

    def before_each_read_by_any_instance(self, update: Callable[[], None]) -> None:
        """Call a fast function before the metrics are read, and about once per second if another instance may read
        them.
        """
        self._frequent_updates.append(update)

    def update_for_other_instances(self) -> None:
        """Update what other instances may read. Begin new shared files if files were deleted from outside."""
        with self._restoring_deleted_files():
            self._ensure_shared_files()
            for update in self._frequent_updates:
                update()

    def _ensure_shared_files(self) -> bool:
        """Whether the metrics are shared, and their folder can be used."""
        if shared_files is None or not shared_files.ensure():
            return False
        self.in_flight.set(self._in_flight_count)  # opens new files, which begin at zero
        shared_files.remember_files()
        return True

    @contextmanager
    def _restoring_deleted_files(self) -> Iterator[None]:
        """Tolerate that shared files are deleted while a metric is counted: a count is lost, but no request fails."""
        try:
            yield
        except OSError:
            if shared_files is None:
                raise
            shared_files.ensure()

    def request_began(self) -> None:
        """Count a request in progress."""
        self._in_flight_count += 1
        with self._restoring_deleted_files():
            self.in_flight.set(self._in_flight_count)

    def request_ended(self, request: ObservedRequest, route: str, method: str) -> None:
        """Count an answered request."""
        self._in_flight_count -= 1
        route_labels = (route, method)
        with self._restoring_deleted_files():
            self.in_flight.set(self._in_flight_count)
            self.requests.labels(*route_labels, str(request.status)).inc()
            self.seconds.labels(*route_labels).observe(request.seconds)
            self.received_bytes.labels(*route_labels).inc(request.received_bytes)
            self.sent_bytes.labels(*route_labels).inc(request.sent_bytes)
            if "refused" in request.state:
                self.refusals.labels(request.state["refused"]).inc()
            if not self._has_counted_request and shared_files is not None:
                self._has_counted_request = True
                shared_files.remember_files()

    def register(self, collector: Collector) -> None:
        """Add a collector with further metrics."""
        self.registry.register(collector)

    def prometheus_text(self) -> tuple[bytes, str]:
        """Metrics in Prometheus text format, and their content type."""
        with self._restoring_deleted_files():
            return self._updated_text(), CONTENT_TYPE_LATEST
        return self._updated_text(), CONTENT_TYPE_LATEST  # of the files that the process has begun now

    def _updated_text(self) -> bytes:
        registry = self.registry
        if self._ensure_shared_files() and shared_files is not None:
            registry = CollectorRegistry()
            MultiProcessCollector(registry, str(shared_files.folder))  # type: ignore[no-untyped-call]
        for update in (*self._updates, *self._frequent_updates):
            update()
        return generate_latest(registry)

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
