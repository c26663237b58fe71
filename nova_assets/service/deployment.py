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
from nova_assets.file_views.query_handler import Desk
from nova_assets.model.channel import Channel
from nova_assets.model.partitions import WHOLE, parse_partition
from nova_assets.model.timeline import Position
from nova_assets.model.token import Right
from nova_assets.service.decoders import Decoders
from nova_assets.service.http.active_requests import Work
from nova_assets.service.http.caller import Caller
from nova_assets.service.http.config import ServiceConfig
from nova_assets.service.http.media_types import JSON
from nova_assets.service.http.metrics import Observed
from nova_assets.service.shapes.shape import Problem
from nova_assets.service.uploads import Spool
from nova_assets.store.store import Store

_DEFINED = 5.0
"""Seconds for which a channel's definition is not looked up again."""


@dataclass
class Service:
    """One deployment, served.

    Args:
        identity: of its catalog: clients see by it that they ask the right one.
        observed: what is counted of it.
        work: what is at work, where it stops in good order.
        spool: where bodies lie meanwhile.
        decoders: what bodies are decoded by.
    """

    store: Store
    desk: Desk
    config: ServiceConfig
    identity: str
    observed: Observed | None = None
    work: Work | None = None
    spool: Spool = field(default_factory=Spool)
    decoders: Decoders = field(default_factory=Decoders)
    _defined: dict[str, tuple[float, Channel]] = field(default_factory=dict)
    _looking: threading.Lock = field(default_factory=threading.Lock)
    _answered: float = float("-inf")

    def definition(self, channel: str) -> Channel:
        """A channel as it was defined a moment ago. Raises ChannelNotFound."""
        found = self.definition_at_hand(channel)
        if found is None:
            now = time.monotonic()
            found = self.store.catalog.channel(channel).channel
            self._defined[channel] = now, found
        return found

    def definition_at_hand(self, channel: str) -> Channel | None:
        """The same, where it was looked up a moment ago."""
        kept = self._defined.get(channel)
        return None if kept is None or kept[0] < time.monotonic() - _DEFINED else kept[1]

    def scope(self, channel: str, partition: str | None) -> str:
        """The scope that is meant. Raises ChannelNotFound, PartitionError."""
        dimensions = self.definition(channel).partitions
        return parse_partition(dimensions, partition, partly=True) if partition else WHOLE

    def see_that_the_catalog_answers(self) -> None:
        """Whoever asks, and however often: one at a time looks, once a second.

        Raises:
            CatalogUnavailable: it does not answer.
            ServiceUnavailable: it is damaged: a table is missing or unreadable, or its file is.
        """
        with self._looking:
            if time.monotonic() > self._answered + 1.0:
                damage = self.store.catalog.damage()
                if damage is not None:
                    raise ServiceUnavailable(
                        "the catalog is damaged",
                        found=damage,
                        expected="a catalog with all of its tables",
                        next="restore a backup of the catalog; then: nova doctor --repair",
                        reason="catalog_damaged",
                    )
                self._answered = time.monotonic()

    def answer(self, text: bytes) -> Response:
        return Response(text, media_type=JSON, headers={"nova-catalog": self.identity})


async def described(request: Request) -> None:
    """Refuse parameters that the description does not know: who misspells one would be answered something else than
    they asked for. Raises RequestRefused."""
    given = request.query_params
    known = _parameters(request.app)[request.scope["route"].path, request.method] if given else {}
    for name in given:
        if name not in known:
            raise RequestRefused(
                "there is no such parameter at this address", found=name[:100], expected=", ".join(known) or "none"
            )
        if len(given.getlist(name)) > 1 and not known[name]:
            raise RequestRefused(f"the parameter {name!r} is given several times", expected="one value")


def _parameters(app: FastAPI) -> dict[tuple[str, str], dict[str, bool]]:
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


async def service_of(request: Request) -> Service:
    found: Service = request.app.state.service
    return found


async def caller_of(request: Request) -> Caller:
    found: Caller = request.state.caller
    return found


def with_right(right: Right) -> Callable[..., Awaitable[Caller]]:
    """Finds whoever asks, who has this right on the channel."""

    async def asking(request: Request, channel: ChannelName) -> Caller:
        request.state.channel = channel
        caller = await caller_of(request)
        caller.require(right, channel)
        return caller

    return asking


async def known_of(
    known: Annotated[
        str | None,
        Query(
            max_length=80,
            pattern=r"^[0-9]{1,9}-([0-9a-f]{64})?$",
            description="The position up to which the asker knows the timeline: what is answered goes on from there.",
        ),
    ] = None,
) -> Position | None:
    return None if known is None else Position.parse(known)


ChannelName = Annotated[
    str, Path(max_length=128, pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", description="The name of a channel.")
]
Served = Annotated[Service, Depends(service_of)]
Asking = Annotated[Caller, Depends(caller_of)]
Reading = Annotated[Caller, Depends(with_right("read"))]
Known = Annotated[Position | None, Depends(known_of)]
Fresh = Annotated[
    bool,
    Query(description="Whether it is looked what has happened since; otherwise what goes on from `known` is enough."),
]
Number = Annotated[int | None, Query(ge=0, le=2**31 - 1)]
Partition = Annotated[
    str | None,
    Query(max_length=2000, description="COLUMN=VALUE, joined by /: this partition, or all that agree with it."),
]
Limit = Annotated[int, Query(ge=1, le=10_000)]


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """How an OpenAPI description tells of what may go wrong, beside what may go wrong everywhere."""
    everywhere = (400, 401, 403, 404, 413, 414, 421, 429, 431, 500, 503, 504)
    return {
        status: {"model": Problem, "description": _MEANINGS[status], "content": {"application/problem+json": {}}}
        for status in sorted({*everywhere, *statuses})
    }


_MEANINGS = {
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
