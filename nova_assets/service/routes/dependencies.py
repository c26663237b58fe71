"""Dependencies of the routes: the service, the caller and its rights, parameter types, and error responses."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Path, Query, Request

from nova_assets.errors import RequestRefused
from nova_assets.model.timeline import TimelinePosition
from nova_assets.model.token import Right
from nova_assets.service.http.guard import Caller
from nova_assets.service.service_state import ServiceState
from nova_assets.service.shapes import Problem


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
                "this route has no such query parameter", found=name[:100], expected=", ".join(allowed) or "none"
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
            for path, operations in app.openapi()["paths"].items()
            for method, operation in operations.items()
        }
    parameters: dict[tuple[str, str], dict[str, bool]] = app.state.parameters
    return parameters


# The dependencies are coroutines: FastAPI would run plain functions in a thread, and each call would wait for one.


async def get_service(request: Request) -> ServiceState:
    service: ServiceState = request.app.state.service
    return service


async def get_caller(request: Request) -> Caller:
    caller: Caller = request.state.caller
    return caller


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
            description="Position up to which the caller knows the timeline. The response continues from there.",
        ),
    ] = None,
) -> TimelinePosition | None:
    return None if known is None else TimelinePosition.parse(known)


ChannelName = Annotated[
    str, Path(max_length=128, pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", description="Name of the channel.")
]
ServiceDependency = Annotated[ServiceState, Depends(get_service)]
CallerDependency = Annotated[Caller, Depends(get_caller)]
ReaderDependency = Annotated[Caller, Depends(require_right("read"))]
KnownPosition = Annotated[TimelinePosition | None, Depends(get_known_position)]
Fresh = Annotated[
    bool,
    Query(description="Read the newest state. If false, any state at or after the position `known` may be returned."),
]
VersionNumber = Annotated[int | None, Query(ge=0, le=2**31 - 1)]
PartitionFilter = Annotated[
    str | None,
    Query(
        max_length=2000, description="COLUMN=VALUE, joined by /: one partition, or all partitions with these values."
    ),
]
Limit = Annotated[int, Query(ge=1, le=10_000)]


def problem_responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """OpenAPI responses for these error statuses and for those that every route may return."""
    common_statuses = (400, 401, 403, 404, 413, 414, 421, 429, 431, 500, 503, 504)
    return {
        status: {
            "model": Problem,
            "description": _STATUS_DESCRIPTIONS[status],
            "content": {"application/problem+json": {}},
        }
        for status in sorted({*common_statuses, *statuses})
    }


_STATUS_DESCRIPTIONS = {
    400: "The request is malformed.",
    401: "The request has no valid token.",
    403: "The token does not grant this right, or the request comes from a page of another site.",
    404: "There is no such channel, version or route.",
    405: "The route does not support this method.",
    406: "The route cannot produce a response of the requested type.",
    408: "The body did not arrive in time.",
    409: "The request conflicts with the state of the channel.",
    410: "The requested version was garbage-collected, or the definition was removed.",
    413: "The body is too large.",
    414: "The URL is too long.",
    415: "The body has an unsupported media type.",
    421: "The service has no such host name.",
    422: "The content of the request is invalid.",
    429: "Too many concurrent requests: retry later.",
    431: "The headers are too large.",
    500: "The service failed.",
    501: "The service does not support this.",
    503: "The catalog or another dependency does not answer: retry later.",
    504: "The request was not answered in time.",
}
