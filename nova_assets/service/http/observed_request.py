"""A request in progress, as metrics and access log see it: its id, status, duration and byte counts."""

from __future__ import annotations

import re
import time
import uuid

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
