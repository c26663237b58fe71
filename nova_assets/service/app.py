"""FastAPI app with the routes of a service. Its middleware is in ``http/middleware``."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio.to_thread
from fastapi import Depends, FastAPI, Security
from fastapi.security import HTTPBearer

from nova_assets.service.http import problems
from nova_assets.service.routes import data, definitions, health, maintenance, status, views
from nova_assets.service.routes.dependencies import check_query_parameters
from nova_assets.service.service_state import ServiceState
from nova_assets.version import __version__

_API_DESCRIPTION = """Channels of one deployment: file lists from file views, rows as Arrow streams, inserts,
maintenance and status. A position identifies a point of a channel's timeline. Responses return their `position`. A
request with `known` gets a response that continues from this position."""


def make_app(service: ServiceState, *, views_only: bool = False) -> FastAPI:
    """App with the routes of a deployment.

    Args:
        views_only: serve only the file views.
    """

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        # Enough threads that no handler waits for the thread of another request.
        anyio.to_thread.current_default_thread_limiter().total_tokens = 2 * service.config.max_requests
        try:
            yield
        finally:
            service.decoders.close()
            service.spool.close()

    app = FastAPI(
        title="nova_assets",
        version=__version__,
        description=_API_DESCRIPTION,
        openapi_url="/v1/openapi.json",
        # The documentation pages would load scripts from other sites.
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        lifespan=lifespan,
    )
    app.state.service = service
    problems.install_error_handlers(app)
    app.include_router(health.router)
    bearer = Security(HTTPBearer(auto_error=False, description="A token, as printed by nova token add."))
    route_modules = (views,) if views_only else (views, status, data, maintenance, definitions)
    for router in (health.metrics_router, *(module.router for module in route_modules)):
        app.include_router(router, dependencies=[bearer, Depends(check_query_parameters)])
    return app
