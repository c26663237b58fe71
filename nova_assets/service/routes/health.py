"""How the service is: alive, ready, and in numbers."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import PlainTextResponse, Response

from nova_assets.service.deployment import Served, problems
from nova_assets.service.http.active_requests import stopping
from nova_assets.service.shapes.shape import HealthShape

router = APIRouter(tags=["health"], responses=problems())
counted = APIRouter(tags=["health"], responses=problems())
"""What takes a token, where any is asked for."""


@router.get("/healthz")
async def healthz() -> HealthShape:
    """The process is alive."""
    return HealthShape(status="alive")


@router.get("/readyz")
def readyz(service: Served) -> HealthShape:
    """The catalog answers, and requests are welcome."""
    if service.work is not None and service.work.draining:
        raise stopping()
    service.see_that_the_catalog_answers()
    return HealthShape(status="ready")


@counted.get("/metrics", response_class=PlainTextResponse)
async def metrics(request: Request, service: Served) -> Response:
    """Counters and gauges, as Prometheus reads them."""
    if service.observed is None:
        return PlainTextResponse("")
    return await service.observed.metrics(request)
