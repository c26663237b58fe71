"""Health routes: liveness, readiness and metrics."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import PlainTextResponse, Response

from nova_assets.service.http.request_limits import stopping_error
from nova_assets.service.routes.dependencies import ServiceDependency, problem_responses
from nova_assets.service.shapes import HealthShape

router = APIRouter(tags=["health"], responses=problem_responses())
metrics_router = APIRouter(tags=["health"], responses=problem_responses())
"""Router for routes that need a token, if the service uses tokens."""


@router.get("/healthz")
async def healthz(service: ServiceDependency, response: Response) -> HealthShape:
    """Whether the process is alive. The header ``nova-catalog`` identifies the deployment."""
    response.headers["nova-catalog"] = service.identity
    return HealthShape(status="alive")


@router.get("/readyz")
def readyz(service: ServiceDependency) -> HealthShape:
    """Whether the service accepts requests, the catalog answers and has the version of the service, and the file views
    are current.
    """
    if service.active_requests is not None and service.active_requests.is_draining:
        raise stopping_error()
    service.check_ready()
    return HealthShape(status="ready")


@metrics_router.get("/metrics", response_class=PlainTextResponse)
async def metrics(request: Request, service: ServiceDependency) -> Response:
    """Counters and gauges in Prometheus text format."""
    if service.metrics is None:
        return PlainTextResponse("")
    return await service.metrics.metrics_response(request)
