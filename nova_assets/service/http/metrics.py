"""What a service tells of itself: metrics for Prometheus, and a line of JSON for each request.

Neither holds a token, nor what stands in a query: keys of rows may be personal.
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

from nova_assets.errors import NovaError
from nova_assets.masking import get_logger
from nova_assets.service.http.asgi import App, Message, Receive, Scope, Send, header, state_of
from nova_assets.service.http.problems import send_problem

LOGGER = get_logger("nova_assets.service")

NO_ROUTE = "(none)"
"""The route of requests that no route takes, or that were refused before."""

_ID = re.compile(r"(?!.*nova_)[A-Za-z0-9._:-]{1,64}")
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_SECONDS = (0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


class Observed:
    """The metrics of one service, in a registry of its own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        on, of = ("route", "method"), self.registry
        self.requests = Counter("nova_service_requests", "Requests that were answered.", (*on, "status"), registry=of)
        self.seconds = Histogram("nova_service_seconds", "Until they were answered.", on, buckets=_SECONDS, registry=of)
        self.taken = Counter("nova_service_received_bytes", "Bytes of bodies of requests.", on, registry=of)
        self.sent = Counter("nova_service_sent_bytes", "Bytes of bodies of answers.", on, registry=of)
        self.open = Gauge("nova_service_requests_in_flight", "Requests that are not answered yet.", registry=of)
        self.refusals = Counter("nova_service_refusals", "Requests that were refused.", ("reason",), registry=of)

    def register(self, collector: Collector) -> None:
        """Have further metrics shown beside these."""
        self.registry.register(collector)

    def page(self) -> tuple[bytes, str]:
        """What Prometheus is answered, and its content type."""
        return generate_latest(self.registry), CONTENT_TYPE_LATEST

    async def metrics(self, request: Request) -> Response:
        """The same as a route: ``app.add_route("/metrics", observed.metrics)``."""
        body, content_type = self.page()
        return Response(body, headers={"cache-control": "no-store", "content-type": content_type})


class Observe:
    """Counts and logs every request, whoever answers it, and gives each its id."""

    def __init__(self, app: App, observed: Observed) -> None:
        self.app = app
        self.observed = observed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        request = _Request(scope, receive, send)
        self.observed.open.inc()
        try:
            await self.app(scope, request.receive, request.send)
        except Exception as error:
            await request.failed(error)
        finally:
            self.observed.open.dec()
            self._note(request)

    def _note(self, request: _Request) -> None:
        method = request.scope["method"] if request.scope["method"] in _METHODS else "(other)"
        on = (route_of(request.scope), method)
        self.observed.requests.labels(*on, str(request.status)).inc()
        self.observed.seconds.labels(*on).observe(request.seconds)
        self.observed.taken.labels(*on).inc(request.taken)
        self.observed.sent.labels(*on).inc(request.sent)
        if "refused" in request.state:
            self.observed.refusals.labels(request.state["refused"]).inc()
        _log(request, *on)


class _Request:
    """One request on its way through."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.scope = scope
        self.state = state_of(scope)
        self.state["request_id"] = self.id = _id_of(scope)
        self.status = 0
        self.taken = self.sent = 0
        self.whole = False
        self._receive = receive
        self._send = send
        self._began = time.perf_counter()
        self.seconds = 0.0

    async def receive(self) -> Message:
        message = await self._receive()
        self.taken += len(message.get("body", b""))
        return message

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            message = {**message, "headers": [*message.get("headers", ()), (b"x-request-id", self.id.encode())]}
        else:
            self.sent += len(message.get("body", b""))
            self.whole = not message.get("more_body", False)
        self.seconds = time.perf_counter() - self._began
        await self._send(message)

    async def failed(self, error: Exception) -> None:
        """Something was raised that nobody has answered. An answer that had begun is cut short by the server."""
        self.state["failure"] = error
        if self.status == 0:
            await send_problem(self.scope, self.send, error)


def route_of(scope: Scope) -> str:
    """The template of the route that took a request: ``/v1/channels/{channel}``."""
    return str(getattr(scope.get("route"), "path", NO_ROUTE))


def _id_of(scope: Scope) -> str:
    """The id that a caller has given to its request, if it can be one; a new one otherwise."""
    given = header(scope, b"x-request-id")
    sane = given is not None and _ID.fullmatch(given) is not None
    return given if given is not None and sane else uuid.uuid4().hex


def _log(request: _Request, route: str, method: str) -> None:
    state, failure = request.state, request.state.get("failure")
    caller = state.get("caller")
    channel = state.get("channel") or request.scope.get("path_params", {}).get("channel")
    told = {
        "request_id": request.id,
        "method": method,
        "route": route,
        "status": request.status,
        "ms": round(request.seconds * 1000, 1),
        "bytes_in": request.taken,
        "bytes_out": request.sent,
        "caller": getattr(caller, "name", None) or None,
        "channel": channel,
        "execution_id": state.get("execution_id"),
        "refused": state.get("refused"),
    }
    told = {name: value for name, value in told.items() if value is not None}
    if not request.whole:
        told["cut_short"] = True
    if failure is None or (isinstance(failure, NovaError) and request.status < 500):
        LOGGER.info("request", extra=told)
    elif isinstance(failure, NovaError):
        LOGGER.error("request", extra={**told, "error": failure.render()})
    else:
        LOGGER.error("request", extra=told, exc_info=failure)


def log_as_json(level: int = logging.INFO, stream: Any = None) -> None:
    """Have the service log lines of JSON on stderr: its own, and those of the server below it."""
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
