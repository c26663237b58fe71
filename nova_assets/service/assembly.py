"""Assembly of a service from its parts: store, file views, routes, middleware and server."""

from __future__ import annotations

import secrets
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

from nova_assets.errors import SettingsError
from nova_assets.file_views.query_handler import ViewQueryHandler
from nova_assets.model.catalog import Catalog
from nova_assets.model.token import Token, mint_token
from nova_assets.service.app import make_app
from nova_assets.service.fast_lookups import FastFileLookups
from nova_assets.service.http.config import ServiceConfig
from nova_assets.service.http.exposure import Exposure, resolve_exposure
from nova_assets.service.http.middleware import GuardedApp
from nova_assets.service.http.server import Server
from nova_assets.service.service_state import ServiceState
from nova_assets.service.view_metrics import ViewMetrics
from nova_assets.store.store import Store


def build_service(store: Store, config: ServiceConfig) -> ServiceState:
    """Service of a store with embedded file views (``service = "embedded"``).

    Raises:
        SettingsError: the store has no embedded file views.
    """
    query_handler = getattr(store.catalog, "views", None)
    if not isinstance(query_handler, ViewQueryHandler):
        raise SettingsError("the store has no embedded file views", expected='nova.open with service = "embedded"')
    return ServiceState(store, query_handler, config, store.catalog.identity())


def check_exposure(catalog: Catalog, config: ServiceConfig) -> Exposure:
    """Exposure of a service that would serve this catalog.

    Raises:
        ServiceRefused: the configuration would let others access everything, or read the traffic.
    """
    return resolve_exposure(config, any(t.is_valid(catalog.now()) for t in catalog.tokens()))


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
        catalog.token,
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

    service = ServiceState(store, query_handler, config, store.catalog.identity())
    guarded_app = GuardedApp(
        FastFileLookups(make_app(service, views_only=True), service),
        config,
        resolve_exposure(config, True),
        find_token,
        store.catalog.now,
    )
    with Server(guarded_app).in_background() as url:
        yield url, text
