"""Assembly of a service: store, file views, routes and middleware."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from nova_assets.errors import SettingsError
from nova_assets.file_views.follower_counts import FollowerCounts
from nova_assets.file_views.query_handler import ViewQueryHandler
from nova_assets.file_views.timeline_follower import TimelineFollower
from nova_assets.model.token import Token, mint_token
from nova_assets.service.app import make_app
from nova_assets.service.deployment import Service
from nova_assets.service.fast_lookups import FastFileLookups
from nova_assets.service.http.config import ServiceConfig
from nova_assets.service.http.exposure import resolve_exposure
from nova_assets.service.http.middleware import GuardedApp
from nova_assets.service.http.server import Server
from nova_assets.store.store import Store


def service_of_store(store: Store, config: ServiceConfig) -> Service:
    """Service of a store with embedded file views (``service = "embedded"``).

    Raises:
        SettingsError: the store has no embedded file views.
    """
    desk = getattr(store.catalog, "views", None)
    if not isinstance(desk, ViewQueryHandler):
        raise SettingsError("the store has no views of its own", expected='nova.open with service = "embedded"')
    return Service(store, desk, config, store.catalog.identity())


def server_of_service(service: Service) -> Server:
    """Server for a service.

    Raises:
        ServiceRefused: the configuration would let others access everything, or read the traffic.
    """
    catalog, config = service.store.catalog, service.config
    has_token = any(t.is_valid(catalog.now()) for t in catalog.tokens())
    shell = GuardedApp(
        FastFileLookups(make_app(service), service),
        config,
        resolve_exposure(config, has_token),
        catalog.token,
        catalog.now,
    )
    shell.metrics.register(_ViewMetrics(service.query_handler.follower))
    service.metrics, service.active_requests = shell.metrics, shell.active_requests
    made = Server(shell)
    made.before_forced_exit = service.query_handler.follower.save
    return made


@contextmanager
def beside(store: Store, config: ServiceConfig | None = None) -> Iterator[str]:
    """Serve a store from a thread of this process, for notebooks and tests. Yields the address.

    The store needs embedded file views (``service="embedded"``). ``nova serve`` does the same in a process of its own.
    """
    with server_of_service(service_of_store(store, config or ServiceConfig(port=0))).in_background() as url:
        yield url


@contextmanager
def serve_views_embedded(store: Store, query_handler: ViewQueryHandler) -> Iterator[tuple[str, str]]:
    """Serve only the file views from a thread of this process, for other processes of this machine.

    Yields the address, on a free port, and a token with read access for the duration of the context.
    """
    now = store.catalog.now()
    text, token = mint_token("embedded", {"read": ("*",)}, now, now + timedelta(days=365))
    config = ServiceConfig(port=0, auth="tokens")

    def find(token_id: str) -> Token | None:
        return token if secrets.compare_digest(token_id, token.id) else None

    service = Service(store, query_handler, config, store.catalog.identity())
    shell = GuardedApp(
        FastFileLookups(make_app(service, views_only=True), service),
        config,
        resolve_exposure(config, True),
        find,
        store.catalog.now,
    )
    with Server(shell).in_background() as url:
        yield url, text


class _ViewMetrics(Collector):
    """Prometheus metrics of a timeline follower."""

    def __init__(self, follower: TimelineFollower) -> None:
        self._follower = follower

    def collect(self) -> Iterable[Metric]:
        counts = self._follower.counts
        for name, what in _COUNTER_DESCRIPTIONS.items():
            yield CounterMetricFamily(f"nova_views_{name}", what, getattr(counts, name))
        size = GaugeMetricFamily("nova_views_bytes", "Bytes of views that are kept.", self._follower.size())
        yield size


_COUNTER_DESCRIPTIONS = {
    "asked": "Questions to views.",
    "met": "Questions that a view answered as it was.",
    "applied": "Instants that were applied to views.",
    "loaded": "Partitions that were loaded from the catalog.",
    "rebuilt": "Partitions that were loaded again, since an instant could not be applied.",
    "restarted": "Timelines that were another one, or too far ahead.",
    "failed": "Times that the storage of views failed.",
}
assert set(_COUNTER_DESCRIPTIONS) == set(FollowerCounts.__dataclass_fields__)
