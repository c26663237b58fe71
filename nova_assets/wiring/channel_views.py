"""What a store looks at its channels through: views of a service, of this process, or none."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

from nova_assets.errors import SettingsError
from nova_assets.model.catalog import Catalog
from nova_assets.settings import Settings
from nova_assets.store.store import Store


def seen(settings: Settings, catalog: Catalog, storage: Callable[[str], Any] | None) -> tuple[Catalog, Any]:
    """The catalog as the settings say that channels are looked at, and what they are looked at through."""
    if settings.service is None:
        return catalog, None
    with _needing_the_extra():
        from nova_assets.file_views.client import Client
        from nova_assets.file_views.query_handler import Desk
        from nova_assets.file_views.storage import InMemory
        from nova_assets.file_views.timeline_follower import Follower
        from nova_assets.file_views.viewed_catalog import served
    if settings.service == "embedded":
        kept = InMemory() if storage is None else storage(catalog.identity())
        source: Client | Desk = Desk(Follower(catalog, kept))
    else:
        source = Client(settings.service, settings.service_token, settings.service_timeout, catalog.identity())
    return served(catalog, source), source


class Viewed:
    """Gives ``Views`` of channels at the numbers that are pinned.

    Args:
        store: the store that an embedded service answers from. It reads the same catalog and warehouse.
        source: the client of a service, or the query handler of an embedded one. An embedded service listens from the
            first request for views on.
    """

    def __init__(self, settings: Settings, catalog: Catalog, store: Store, source: Any) -> None:
        self._settings = settings
        self._catalog = catalog
        self._store = store
        self._source = source
        self._stack = ExitStack()
        self._lock = threading.Lock()

    def __call__(self, heads: Mapping[str, int]) -> Any:
        with _needing_the_extra():
            from nova_assets.file_views.file_lists import Pinned, Views

        known = {c: Pinned(head, self._catalog.channel(c).position) for c, head in heads.items()}
        return Views(self._store.engine.address, partial(_reopened, self._settings.catalog), self._client(), known)

    def _client(self) -> Any:
        from nova_assets.file_views.client import Client
        from nova_assets.file_views.query_handler import Desk

        with self._lock:
            if isinstance(self._source, Desk):
                from nova_assets.service.serving import embedded

                url, token = self._stack.enter_context(embedded(self._store, self._source))
                self._source = Client(url, token, self._settings.service_timeout, self._catalog.identity())
            return self._source

    def close(self) -> None:
        self._stack.close()


def _reopened(url: str) -> Catalog:
    """The catalog, in another process."""
    from nova_assets.catalog.catalog import open_catalog

    return open_catalog(url)


@contextmanager
def _needing_the_extra() -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        raise SettingsError(
            f"what views of channels need is not installed: {error.name}", next="pip install 'nova-assets[service]'"
        ) from error
