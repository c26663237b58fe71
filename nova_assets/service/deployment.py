"""Shared state and dependencies of the routes: the store, its file views, and parameter types."""

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
"""Seconds for which a channel's definition is cached."""


@dataclass
class Service:
    """State of one served deployment.

    Args:
        identity: identity of the catalog, by which clients recognize the deployment.
        metrics: metrics of the service.
        active_requests: requests in progress, for an orderly shutdown.
        spool: temporary storage of request bodies.
        decoders: worker processes that decode request bodies.
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
        """Definition of a channel, cached for a few seconds.

        Raises:
            ChannelNotFound: no such channel.
        """
        found = self.cached_definition(channel)
        if found is None:
            now = time.monotonic()
            found = self.store.catalog.channel(channel).channel
            self._cached_definitions[channel] = now, found
        return found

    def cached_definition(self, channel: str) -> Channel | None:
        """Cached definition of a channel, or None."""
        kept = self._cached_definitions.get(channel)
        return None if kept is None or kept[0] < time.monotonic() - _DEFINITION_CACHE_SECONDS else kept[1]

    def parse_scope(self, channel: str, partition: str | None) -> str:
        """Scope of a partition parameter.

        Raises:
            ChannelNotFound: no such channel.
            PartitionError: the channel has no such partition.
        """
        dimensions = self.channel_definition(channel).partitions
        return parse_partition(dimensions, partition, allow_scope=True) if partition else WHOLE

    def check_catalog_answers(self) -> None:
        """Check the health of the catalog. Concurrent calls share one check per second.

        Raises:
            CatalogUnavailable: the catalog does not answer.
            ServiceUnavailable: the catalog is damaged: a table is missing or unreadable, or its file is.
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
    """Reject unknown query parameters, since a misspelt parameter would silently change the answer.

    Raises:
        RequestRefused: a parameter is unknown, or a single-valued one is repeated.
    """
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
    """(path, method) -> allowed query parameters, and whether each may be repeated."""
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


# The dependencies are coroutines: FastAPI would run plain functions in a thread, and each call would wait for one.


async def get_service(request: Request) -> Service:
    found: Service = request.app.state.service
    return found


async def get_caller(request: Request) -> Caller:
    found: Caller = request.state.caller
    return found


def require_right(right: Right) -> Callable[..., Awaitable[Caller]]:
    """Dependency that returns the caller if it has this right on the channel."""

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
    """OpenAPI responses for these error statuses and for those that every route may return."""
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
