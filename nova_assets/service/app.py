"""The routes of a service, as one FastAPI app; what stands around them is in ``shell``."""

from __future__ import annotations

from collections.abc import Callable

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, PlainTextResponse
from fastapi.security import HTTPBearer

from nova_assets.service import problems
from nova_assets.service.deployment import Service
from nova_assets.service.routes import data, looking, upkeep, views

_ABOUT = """Channels of one deployment: their files from views that follow their timelines, their rows as Arrow streams,
and inserts. Positions (`known`, `position`) say how much of a timeline somebody knows: whoever gives one is answered
from there on, or later."""


def make_app(service: Service, is_ready: Callable[[], bool] = lambda: True) -> FastAPI:
    """The routes, over a deployment.

    Args:
        is_ready: whether more requests are welcome; not so while the service is told to stop.
    """
    import nova_assets

    app = FastAPI(
        title="nova_assets",
        version=nova_assets.__version__,
        description=_ABOUT,
        openapi_url="/v1/openapi.json",
        # Their pages would load scripts from elsewhere.
        docs_url=None,
        redoc_url=None,
    )
    app.state.service = service
    problems.install(app)
    for module in (views, looking, data, upkeep):
        app.include_router(module.router)
    _ = HTTPBearer, Request, JSONResponse, PlainTextResponse
    return app
