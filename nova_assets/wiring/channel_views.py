"""File views of a store's channels, from a service, from this process, or from the catalog alone."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

from nova_assets.catalog.catalog import Catalog
from nova_assets.errors import SettingsError
from nova_assets.settings import Settings
from nova_assets.store.store import Store


def catalog_with_views(
    settings: Settings, catalog: Catalog, storage_factory: Callable[[str], Any] | None
) -> tuple[Catalog, Any]:
    """Catalog and view source that the settings choose. The view source is None for the catalog alone."""
    if settings.service is None:
        return catalog, None
    with require_service_extra("file views need"):
        from nova_assets.file_views.client import ViewServiceClient
        from nova_assets.file_views.query_handler import ViewQueryHandler
        from nova_assets.file_views.storage import MemoryStorage
        from nova_assets.file_views.timeline_follower import TimelineFollower
        from nova_assets.file_views.viewed_catalog import catalog_through_views
    if settings.service == "embedded":
        storage = MemoryStorage() if storage_factory is None else storage_factory(catalog.identity.get())
        view_source: ViewServiceClient | ViewQueryHandler = ViewQueryHandler(TimelineFollower(catalog, storage))
    else:
        view_source = ViewServiceClient(
            settings.service_addresses, settings.service_token, settings.service_timeout, catalog.identity.get()
        )
    return catalog_through_views(catalog, view_source), view_source


class StoreViewsFactory:
    """Creates ``Views`` of channels at pinned sequence numbers.

    Args:
        store: the store from which an embedded service answers. It reads the same catalog and warehouse.
        view_source: the client of a service, or the query handler of an embedded service. An embedded service starts to
            listen with the first request for views.
    """

    def __init__(self, settings: Settings, catalog: Catalog, store: Store, view_source: Any) -> None:
        self._settings = settings
        self._catalog = catalog
        self._store = store
        self._view_source = view_source
        self._stack = ExitStack()
        self._lock = threading.Lock()

    def __call__(self, heads: Mapping[str, int]) -> Any:
        with require_service_extra("file views need"):
            from nova_assets.file_views.file_lists import Pinned, Views

        pinned_channels = {c: Pinned(head, self._catalog.definitions.channel(c).position) for c, head in heads.items()}
        return Views(
            self._store.engine.warehouse.address,
            partial(_reopen_catalog, self._settings.catalog),
            self._view_client(),
            pinned_channels,
        )

    def _view_client(self) -> Any:
        from nova_assets.file_views.client import ViewServiceClient
        from nova_assets.file_views.query_handler import ViewQueryHandler

        with self._lock:
            if isinstance(self._view_source, ViewQueryHandler):
                from nova_assets.service.assembly import serve_views_in_background

                url, token = self._stack.enter_context(serve_views_in_background(self._store, self._view_source))
                self._view_source = ViewServiceClient(
                    url, token, self._settings.service_timeout, self._catalog.identity.get()
                )
            return self._view_source

    def close(self) -> None:
        self._stack.close()


def _reopen_catalog(url: str) -> Catalog:
    """Open the catalog in another process."""
    from nova_assets.catalog.open_catalog import open_catalog

    return open_catalog(url)


@contextmanager
def require_service_extra(who_needs: str) -> Iterator[None]:
    """Raise SettingsError if an import of the block fails, because the extra ``service`` is not installed."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise SettingsError(
            f"{who_needs} a package that is not installed: {error.name}", next="pip install 'nova-assets[service]'"
        ) from error
