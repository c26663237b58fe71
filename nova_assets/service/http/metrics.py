"""Observability of the service: Prometheus metrics, and one line of JSON in the log for each request.

Neither contains tokens or query strings, since keys of rows may be personal data.
"""

from __future__ import annotations

import logging
import re
import sys
import time
import uuid
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector
from starlette.requests import Request
from starlette.responses import Response

from nova_assets.masking import get_logger
from nova_assets.nova_error import NovaError
from nova_assets.service.http.asgi import App, Message, Receive, Scope, Send, request_state, single_header_value
from nova_assets.service.http.problems import send_problem

LOGGER = get_logger("nova_assets.service")

NO_ROUTE = "(none)"
"""Route label of requests that match no route, or that were refused before routing."""

_REQUEST_ID = re.compile(r"(?!.*nova_)[A-Za-z0-9._:-]{1,64}")
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_SECONDS = (0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


class ServiceMetrics:
    """Metrics of one service, in a registry of its own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        on, of = ("route", "method"), self.registry
        self.requests = Counter("nova_service_requests", "Requests that were answered.", (*on, "status"), registry=of)
        self.seconds = Histogram("nova_service_seconds", "Until they were answered.", on, buckets=_SECONDS, registry=of)
        self.received_bytes = Counter("nova_service_received_bytes", "Bytes of bodies of requests.", on, registry=of)
        self.sent_bytes = Counter("nova_service_sent_bytes", "Bytes of bodies of answers.", on, registry=of)
        self.in_flight = Gauge("nova_service_requests_in_flight", "Requests that are not answered yet.", registry=of)
        self.refusals = Counter("nova_service_refusals", "Requests that were refused.", ("reason",), registry=of)

    def register(self, collector: Collector) -> None:
        """Add a collector with further metrics."""
        self.registry.register(collector)

    def prometheus_text(self) -> tuple[bytes, str]:
        """Metrics in Prometheus text format, and their content type."""
        return generate_latest(self.registry), CONTENT_TYPE_LATEST

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
        request = _ObservedRequest(scope, receive, send)
        self.metrics.in_flight.inc()
        try:
            await self.app(scope, request.receive, request.send)
        except Exception as error:
            await request.answer_failure(error)
        finally:
            self.metrics.in_flight.dec()
            self._record_request(request)

    def _record_request(self, request: _ObservedRequest) -> None:
        method = request.scope["method"] if request.scope["method"] in _METHODS else "(other)"
        on = (route_template(request.scope), method)
        self.metrics.requests.labels(*on, str(request.status)).inc()
        self.metrics.seconds.labels(*on).observe(request.seconds)
        self.metrics.received_bytes.labels(*on).inc(request.received_bytes)
        self.metrics.sent_bytes.labels(*on).inc(request.sent_bytes)
        if "refused" in request.state:
            self.metrics.refusals.labels(request.state["refused"]).inc()
        _log_request(request, *on)


class _ObservedRequest:
    """A request in progress, with its status and byte counts."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.scope = scope
        self.state = request_state(scope)
        self.state["request_id"] = self.id = _request_id(scope)
        self.status = 0
        self.received_bytes = self.sent_bytes = 0
        self.is_answer_complete = False
        self._receive = receive
        self._send = send
        self._began = time.perf_counter()
        self.seconds = 0.0

    async def receive(self) -> Message:
        message = await self._receive()
        self.received_bytes += len(message.get("body", b""))
        return message

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            message = {**message, "headers": [*message.get("headers", ()), (b"x-request-id", self.id.encode())]}
        else:
            self.sent_bytes += len(message.get("body", b""))
            self.is_answer_complete = not message.get("more_body", False)
        self.seconds = time.perf_counter() - self._began
        await self._send(message)

    async def answer_failure(self, error: Exception) -> None:
        """Answer an unhandled exception. If the response had begun, the server cuts it short."""
        self.state["failure"] = error
        if self.status == 0:
            await send_problem(self.scope, self.send, error)


def route_template(scope: Scope) -> str:
    """Template of the matched route: ``/v1/channels/{channel}``."""
    return str(getattr(scope.get("route"), "path", NO_ROUTE))


def _request_id(scope: Scope) -> str:
    """Valid request id from the caller, or a new one."""
    given = single_header_value(scope, b"x-request-id")
    sane = given is not None and _REQUEST_ID.fullmatch(given) is not None
    return given if given is not None and sane else uuid.uuid4().hex


def _log_request(request: _ObservedRequest, route: str, method: str) -> None:
    state, failure = request.state, request.state.get("failure")
    caller = state.get("caller")
    channel = state.get("channel") or request.scope.get("path_params", {}).get("channel")
    told = {
        "request_id": request.id,
        "method": method,
        "route": route,
        "status": request.status,
        "ms": round(request.seconds * 1000, 1),
        "bytes_in": request.received_bytes,
        "bytes_out": request.sent_bytes,
        "caller": getattr(caller, "name", None) or None,
        "channel": channel,
        "execution_id": state.get("execution_id"),
        "refused": state.get("refused"),
    }
    told = {name: value for name, value in told.items() if value is not None}
    if not request.is_answer_complete:
        told["cut_short"] = True
    if failure is None or (isinstance(failure, NovaError) and request.status < 500):
        LOGGER.info("request", extra=told)
    elif isinstance(failure, NovaError):
        LOGGER.error("request", extra={**told, "error": failure.render()})
    else:
        LOGGER.error("request", extra=told, exc_info=failure)


def log_as_json(level: int = logging.INFO, stream: Any = None) -> None:
    """Log lines of JSON to stderr, for the service and for the server below it."""
    from pythonjsonlogger.orjson import OrjsonFormatter as JsonFormatter

    class Utc(JsonFormatter):
        def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:
            moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
            return f"{moment}.{int(record.msecs):03d}Z"

    handler = logging.StreamHandler(stream or sys.stderr)
    rename = {"asctime": "time", "levelname": "level", "name": "logger"}
    handler.setFormatter(Utc("%(asctime)s %(levelname)s %(name)s %(message)s", rename_fields=rename))
    for name in ("nova_assets.service", "uvicorn.error"):
        logger = logging.getLogger(name)
        logger.handlers = [handler]
        logger.propagate = False
        logger.setLevel(level if name == "nova_assets.service" else max(level, logging.WARNING))
