"""Assembly of a service from its parts: store, file views, routes, metrics, middleware and server."""

from __future__ import annotations

import secrets
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import timedelta

import anyio.to_thread
from fastapi import Depends, FastAPI, Security
from fastapi.security import HTTPBearer
from prometheus_client import Counter, Gauge

from nova_assets.catalog.catalog import Catalog
from nova_assets.errors import SettingsError
from nova_assets.file_views.query_handler import ViewQueryHandler
from nova_assets.file_views.timeline_follower import TimelineFollower
from nova_assets.file_views.view_updater import FollowerCounts
from nova_assets.model.token import Token, mint_token
from nova_assets.service.fast_lookups import FastFileLookups
from nova_assets.service.http import problems
from nova_assets.service.http.config import ServiceConfig
from nova_assets.service.http.exposure import Exposure, resolve_exposure
from nova_assets.service.http.metrics import ServiceMetrics
from nova_assets.service.http.server import GuardedApp, Server
from nova_assets.service.routes import data, definitions, health, maintenance, status, views
from nova_assets.service.routes.dependencies import check_query_parameters
from nova_assets.service.service_state import ServiceState
from nova_assets.store.store import Store
from nova_assets.version import __version__


def build_service(store: Store, config: ServiceConfig) -> ServiceState:
    """Service of a store with embedded file views (``service = "embedded"``).

    Raises:
        SettingsError: the store has no embedded file views.
    """
    query_handler = store.catalog.views
    if not isinstance(query_handler, ViewQueryHandler):
        raise SettingsError("the store has no embedded file views", expected='nova.open with service = "embedded"')
    return ServiceState(store, query_handler, config, store.catalog.identity.get())


def check_exposure(catalog: Catalog, config: ServiceConfig) -> Exposure:
    """Exposure of a service that would serve this catalog.

    Raises:
        ServiceRefused: the configuration would let others access everything, or read the traffic.
    """
    return resolve_exposure(config, any(t.is_valid(catalog.now()) for t in catalog.tokens.all()))


def build_server(service: ServiceState, listening_socket: socket.socket | None = None) -> Server:
    """Server for a service.

    Args:
        listening_socket: a socket that is already bound. By default, the server binds the configured port itself.

    Raises:
        ServiceRefused: the configuration would let others access everything, or read the traffic.
    """
    catalog, config = service.store.catalog, service.config
    guarded_app = GuardedApp(
        FastFileLookups(make_app(service), service),
        config,
        check_exposure(catalog, config),
        catalog.tokens.get,
        catalog.now,
    )
    ViewMetrics(service.query_handler.follower, guarded_app.metrics)
    service.metrics, service.active_requests = guarded_app.metrics, guarded_app.active_requests
    server = Server(guarded_app, listening_socket)
    server.before_forced_exit = service.query_handler.follower.save
    return server


@contextmanager
def serve_in_background(store: Store, config: ServiceConfig | None = None) -> Iterator[str]:
    """Serve a store from a thread of this process, for notebooks and tests. Yields the address.

    The store needs embedded file views (``service="embedded"``). ``nova serve`` does the same in a process of its own.
    """
    with build_server(build_service(store, config or ServiceConfig(port=0))).in_background() as url:
        yield url


@contextmanager
def serve_views_in_background(store: Store, query_handler: ViewQueryHandler) -> Iterator[tuple[str, str]]:
    """Serve only the file views from a thread of this process, for other processes of this machine.

    Yields the address, on a free port, and a token with read access for the duration of the context.
    """
    now = store.catalog.now()
    text, token = mint_token("embedded", {"read": ("*",)}, now, now + timedelta(days=365))
    config = ServiceConfig(port=0, auth="tokens")

    def find_token(token_id: str) -> Token | None:
        return token if secrets.compare_digest(token_id, token.id) else None

    service = ServiceState(store, query_handler, config, store.catalog.identity.get())
    guarded_app = GuardedApp(
        FastFileLookups(make_app(service, views_only=True), service),
        config,
        resolve_exposure(config, True),
        find_token,
        store.catalog.now,
    )
    with Server(guarded_app).in_background() as url:
        yield url, text


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


class ViewMetrics:
    """Copies the counts of a timeline follower to metrics of the service.

    Args:
        metrics: metrics of the service. They copy the counts before they are read.
    """

    def __init__(self, follower: TimelineFollower, metrics: ServiceMetrics) -> None:
        self._follower = follower
        self._counters = {
            name: Counter(f"nova_views_{name}", description, registry=metrics.registry)
            for name, description in _COUNTER_DESCRIPTIONS.items()
        }
        self._copied = dict.fromkeys(_COUNTER_DESCRIPTIONS, 0)
        size = Gauge(
            "nova_views_bytes", "Size of the file views.", registry=metrics.registry, multiprocess_mode="livesum"
        )
        metrics.before_each_read(lambda: size.set(follower.size()))
        metrics.before_each_read_by_any_instance(self.copy_counts)

    def copy_counts(self) -> None:
        """Add what was counted since the last call."""
        for name, counter in self._counters.items():
            count = getattr(self._follower.counts, name)
            counter.inc(count - self._copied[name])
            self._copied[name] = count


_COUNTER_DESCRIPTIONS = {
    "asked": "Queries of file views.",
    "met": "Queries that a file view answered without an update.",
    "applied": "Instants that were applied to file views.",
    "loaded": "Partitions that were loaded from the catalog.",
    "rebuilt": "Partitions that were loaded again because an instant could not be applied.",
    "restarted": "File views that were dropped because the timeline differed or was too far ahead.",
    "failed": "Failures of the storage of file views.",
}
assert set(_COUNTER_DESCRIPTIONS) == set(FollowerCounts.__dataclass_fields__)
