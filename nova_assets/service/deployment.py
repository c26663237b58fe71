"""What the routes stand on: a store, and the views of its channels."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Path, Query, Request
from fastapi.responses import Response

from nova_assets.errors import RequestRefused, ServiceUnavailable
from nova_assets.file_views.query_handler import ViewQueryHandler
from nova_assets.model.channel import Channel
from nova_assets.model.partitions import WHOLE, parse_partition
from nova_assets.model.timeline import TimelinePosition
from nova_assets.model.token import Right
from nova_assets.service.decoders import BodyDecoders
from nova_assets.service.http.active_requests import ActiveRequests
from nova_assets.service.http.caller import Caller
from nova_assets.service.http.config import ServiceConfig
from nova_assets.service.http.media_types import JSON
from nova_assets.service.http.metrics import ServiceMetrics
from nova_assets.service.shapes.shape import Problem
from nova_assets.service.uploads import UploadSpool
from nova_assets.store.store import Store

_DEFINITION_CACHE_SECONDS = 5.0
"""Seconds for which a channel's definition is not looked up again."""


@dataclass
class Service:
    """One deployment, served.

    Args:
        identity: of its catalog: clients see by it that they ask the right one.
        metrics: what is counted of it.
        active_requests: what is at work, where it stops in good order.
        spool: where bodies lie meanwhile.
        decoders: what bodies are decoded by.
    """

    store: Store
    query_handler: ViewQueryHandler
    config: ServiceConfig
    identity: str
    metrics: ServiceMetrics | None = None
    active_requests: ActiveRequests | None = None
    spool: UploadSpool = field(default_factory=UploadSpool)
    decoders: BodyDecoders = field(default_factory=BodyDecoders)
    _cached_definitions: dict[str, tuple[float, Channel]] = field(default_factory=dict)
    _health_check_lock: threading.Lock = field(default_factory=threading.Lock)
    _last_health_check: float = float("-inf")

    def channel_definition(self, channel: str) -> Channel:
        """A channel as it was defined a moment ago. Raises ChannelNotFound."""
        found = self.cached_definition(channel)
        if found is None:
            now = time.monotonic()
            found = self.store.catalog.channel(channel).channel
            self._cached_definitions[channel] = now, found
        return found

    def cached_definition(self, channel: str) -> Channel | None:
        """The same, where it was looked up a moment ago."""
        kept = self._cached_definitions.get(channel)
        return None if kept is None or kept[0] < time.monotonic() - _DEFINITION_CACHE_SECONDS else kept[1]

    def parse_scope(self, channel: str, partition: str | None) -> str:
        """The scope that is meant. Raises ChannelNotFound, PartitionError."""
        dimensions = self.channel_definition(channel).partitions
        return parse_partition(dimensions, partition, allow_scope=True) if partition else WHOLE

    def check_catalog_answers(self) -> None:
        """Whoever asks, and however often: one at a time looks, once a second.

        Raises:
            CatalogUnavailable: it does not answer.
            ServiceUnavailable: it is damaged: a table is missing or unreadable, or its file is.
        """
        with self._health_check_lock:
            if time.monotonic() > self._last_health_check + 1.0:
                damage = self.store.catalog.catalog_damage()
                if damage is not None:
                    raise ServiceUnavailable(
                        "the catalog is damaged",
                        found=damage,
                        expected="a catalog with all of its tables",
                        next="restore a backup of the catalog; then: nova doctor --repair",
                        reason="catalog_damaged",
                    )
                self._last_health_check = time.monotonic()

    def json_response(self, body: bytes) -> Response:
        return Response(body, media_type=JSON, headers={"nova-catalog": self.identity})


async def check_query_parameters(request: Request) -> None:
    """Refuse parameters that the description does not know: who misspells one would be answered something else than
    they asked for. Raises RequestRefused."""
    query = request.query_params
    allowed = _query_parameters_by_route(request.app)[request.scope["route"].path, request.method] if query else {}
    for name in query:
        if name not in allowed:
            raise RequestRefused(
                "there is no such parameter at this address", found=name[:100], expected=", ".join(allowed) or "none"
            )
        if len(query.getlist(name)) > 1 and not allowed[name]:
            raise RequestRefused(f"the parameter {name!r} is given several times", expected="one value")


def _query_parameters_by_route(app: FastAPI) -> dict[tuple[str, str], dict[str, bool]]:
    """(address, method) -> the parameters that may stand in a query, and whether several times."""
    if not hasattr(app.state, "parameters"):
        app.state.parameters = {
            (path, method.upper()): {
                p["name"]: '"array"' in json.dumps(p["schema"])
                for p in operation.get("parameters", [])
                if p["in"] == "query"
            }
            for path, ways in app.openapi()["paths"].items()
            for method, operation in ways.items()
        }
    found: dict[tuple[str, str], dict[str, bool]] = app.state.parameters
    return found


# What routes are given is found at once: as plain functions, each would wait for a thread.


async def get_service(request: Request) -> Service:
    found: Service = request.app.state.service
    return found


async def get_caller(request: Request) -> Caller:
    found: Caller = request.state.caller
    return found


def require_right(right: Right) -> Callable[..., Awaitable[Caller]]:
    """Finds whoever asks, who has this right on the channel."""

    async def get_caller_with_right(request: Request, channel: ChannelName) -> Caller:
        request.state.channel = channel
        caller = await get_caller(request)
        caller.require_right(right, channel)
        return caller

    return get_caller_with_right


async def get_known_position(
    known: Annotated[
        str | None,
        Query(
            max_length=80,
            pattern=r"^[0-9]{1,9}-([0-9a-f]{64})?$",
            description="The position up to which the asker knows the timeline: what is answered goes on from there.",
        ),
    ] = None,
) -> TimelinePosition | None:
    return None if known is None else TimelinePosition.parse(known)


ChannelName = Annotated[
    str, Path(max_length=128, pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", description="The name of a channel.")
]
ServiceDependency = Annotated[Service, Depends(get_service)]
CallerDependency = Annotated[Caller, Depends(get_caller)]
ReaderDependency = Annotated[Caller, Depends(require_right("read"))]
KnownPosition = Annotated[TimelinePosition | None, Depends(get_known_position)]
Fresh = Annotated[
    bool,
    Query(description="Whether it is looked what has happened since; otherwise what goes on from `known` is enough."),
]
VersionNumber = Annotated[int | None, Query(ge=0, le=2**31 - 1)]
PartitionFilter = Annotated[
    str | None,
    Query(max_length=2000, description="COLUMN=VALUE, joined by /: this partition, or all that agree with it."),
]
Limit = Annotated[int, Query(ge=1, le=10_000)]


def problem_responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """How an OpenAPI description tells of what may go wrong, beside what may go wrong everywhere."""
    everywhere = (400, 401, 403, 404, 413, 414, 421, 429, 431, 500, 503, 504)
    return {
        status: {
            "model": Problem,
            "description": _STATUS_DESCRIPTIONS[status],
            "content": {"application/problem+json": {}},
        }
        for status in sorted({*everywhere, *statuses})
    }


_STATUS_DESCRIPTIONS = {
    400: "The request cannot be read.",
    401: "A token is needed, and none that is valid was given.",
    403: "The token gives no right to this, or a page of another site asks.",
    404: "There is no such channel, version, or address.",
    405: "This address is asked in another way.",
    406: "There is no such answer.",
    408: "The body did not come in time.",
    409: "It does not go together with what is there.",
    410: "What was asked for was collected.",
    413: "The body is too large.",
    414: "The address is too long.",
    415: "The body is of an unknown type.",
    421: "The service is not called by that name.",
    422: "What was given cannot be taken.",
    429: "Too much is asked at once: ask again.",
    431: "The headers are too large.",
    500: "The service failed.",
    501: "The service cannot do this.",
    503: "Something that the service stands on does not answer: ask again later.",
    504: "It took too long.",
}
