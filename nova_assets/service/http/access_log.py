"""A request in progress as metrics and access log see it, and the log: one JSON line for each request, written by
python-json-logger.

Uvicorn's own access log is off, because it contains query strings and neither callers nor channels (decision 0044).
"""

from __future__ import annotations

import logging
import re
import sys
import time
import uuid
from typing import Any

from nova_assets.masking import get_logger
from nova_assets.nova_error import NovaError
from nova_assets.service.http.asgi import Message, Receive, Scope, Send, request_state, single_header_value
from nova_assets.service.http.problems import send_problem

_REQUEST_ID = re.compile(r"(?!.*nova_)[A-Za-z0-9._:-]{1,64}")


class ObservedRequest:
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

    async def answer_unhandled_error(self, error: Exception) -> None:
        """Answer an unhandled exception. If the response had begun, the server cuts it short."""
        self.state["failure"] = error
        if self.status == 0:
            await send_problem(self.scope, self.send, error)


def _request_id(scope: Scope) -> str:
    """Valid request id from the caller, or a new one."""
    caller_id = single_header_value(scope, b"x-request-id")
    is_valid = caller_id is not None and _REQUEST_ID.fullmatch(caller_id) is not None
    return caller_id if caller_id is not None and is_valid else uuid.uuid4().hex


LOGGER = get_logger("nova_assets.service")


def log_request(request: ObservedRequest, route: str, method: str) -> None:
    """Log an answered request with its caller, channel and duration. Failures have their error or traceback."""
    state, failure = request.state, request.state.get("failure")
    caller = state.get("caller")
    channel = state.get("channel") or request.scope.get("path_params", {}).get("channel")
    log_fields = {
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
    log_fields = {name: value for name, value in log_fields.items() if value is not None}
    if not request.is_answer_complete:
        log_fields["cut_short"] = True
    if failure is None or (isinstance(failure, NovaError) and request.status < 500):
        LOGGER.info("request", extra=log_fields)
    elif isinstance(failure, NovaError):
        LOGGER.error("request", extra={**log_fields, "error": failure.render()})
    else:
        LOGGER.error("request", extra=log_fields, exc_info=failure)


def configure_json_logging(level: int = logging.INFO, stream: Any = None) -> None:
    """Log JSON lines to standard error, for the service, for uvicorn, and for gunicorn's watchdog."""
    from pythonjsonlogger.orjson import OrjsonFormatter as JsonFormatter

    class Utc(JsonFormatter):
        def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:
            moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
            return f"{moment}.{int(record.msecs):03d}Z"

    handler = logging.StreamHandler(stream or sys.stderr)
    rename = {"asctime": "time", "levelname": "level", "name": "logger"}
    handler.setFormatter(Utc("%(asctime)s %(levelname)s %(name)s %(message)s", rename_fields=rename))
    least_levels = {"nova_assets.service": level, "gunicorn.error": level, "uvicorn.error": max(level, logging.WARNING)}
    for name, least_level in least_levels.items():
        logger = logging.getLogger(name)
        logger.handlers = [handler]
        logger.propagate = False
        logger.setLevel(least_level)
