"""Shortcut for file lookups that a file view can answer from memory, in front of the routes.

A job may look up the files of thousands of partitions at a known position. Routing and threads would cost several times
as much as the answer. Any other request goes on to the route, which also reports all errors.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import parse_qsl

from nova_assets.model.partitions import WHOLE, parse_partition
from nova_assets.model.timeline import TimelinePosition
from nova_assets.nova_error import NovaError
from nova_assets.service.http.asgi import JSON, App, Receive, Scope, Send, request_state, send_response
from nova_assets.service.http.guard import Caller
from nova_assets.service.service_state import ServiceState

_PATH = re.compile(r"/v1/channels/([A-Za-z_][A-Za-z0-9_]{0,127})/files")
_POSITION = re.compile(r"[0-9]{1,9}-([0-9a-f]{64})?")
_NUMBER = re.compile(r"[0-9]{1,9}")
_MAX_PARTITION_LENGTH = 2000


@dataclass(frozen=True, slots=True)
class RouteLabel:
    """Route name for logs and metrics: that of the route that would have answered."""

    path: str


_FILES_ROUTE_LABEL = RouteLabel("/v1/channels/{channel}/files")


class FastFileLookups:
    """ASGI middleware between the guard and the routes."""

    def __init__(self, app: App, service: ServiceState) -> None:
        self.app = app
        self.service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer = self._cached_files_answer(scope) if scope["type"] == "http" and scope["method"] == "GET" else None
        if answer is None:
            await self.app(scope, receive, send)
            return
        scope["route"] = _FILES_ROUTE_LABEL
        await send_response(send, 200, answer, JSON, [("nova-catalog", self.service.identity)])

    def _cached_files_answer(self, scope: Scope) -> bytes | None:
        path = _PATH.fullmatch(scope["path"])
        parameters = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        query = dict(parameters)
        if path is None or len(query) < len(parameters) or not query.keys() <= {"partition", "at", "known", "fresh"}:
            return None
        channel, partition, at = path[1], query.get("partition", ""), query.get("at")
        if len(partition) > _MAX_PARTITION_LENGTH or not _POSITION.fullmatch(query.get("known", "")):
            return None
        if query.get("fresh") != "false":
            return None
        if at is not None and not _NUMBER.fullmatch(at):
            return None
        caller: Caller = request_state(scope)["caller"]
        definition = self.service.cached_definition(channel)
        if definition is None or not caller.has_right("read", channel):
            return None
        number, known_position = None if at is None else int(at), TimelinePosition.parse(query["known"])
        try:
            scope_of_answer = (
                parse_partition(definition.partitions, partition, allow_scope=True, schema=definition.schema)
                if partition
                else WHOLE
            )
            answer = self.service.query_handler.files_answer_if_current(
                channel, scope_of_answer, number, known_position
            )
        except NovaError:
            return None
        request_state(scope)["channel"] = channel
        return answer
