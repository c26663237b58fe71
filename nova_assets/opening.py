"""``nova.open()``: catalog, engine and project of one deployment, found and wired.

Spark is loaded when data is touched.
"""

from __future__ import annotations

import importlib
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from nova_assets.errors import SettingsError
from nova_assets.model.ports import Catalog
from nova_assets.model.project import Project
from nova_assets.model.way import WAYS
from nova_assets.settings import Settings, load_settings
from nova_assets.store import Store


def open(
    project: Project | str | None = None,
    catalog: str | None = None,
    warehouse: str | Path | None = None,
    spark: Any = None,
    *,
    lease: float | None = None,
    grace: float | None = None,
    service: str | None = None,
    settings: Settings | None = None,
    storage: Callable[[str], Any] | None = None,
) -> Store:
    """Open a deployment. Everything is optional: arguments, then ``NOVA_*``, then ``[tool.nova]`` in pyproject.toml.

    Args:
        project: a ``nova.Project`` or where it is: ``package.module:attribute``.
        catalog: a SQLAlchemy URL; SQLite under ``.nova/`` by default.
        warehouse: the folder for all blocks; under ``.nova/`` by default.
        spark: a session, or a function that gives one when it is needed; or where one is had from, as in
            ``Settings.spark``: ``local`` (the default), ``server`` or ``sc://host:port``.
        lease, grace: seconds; see ``Settings``.
        service: where views of channels come from: the address of ``nova serve``, or ``embedded``; see ``Settings``.
        storage: given the catalog's identity, where views of this process are kept; in its memory by default.

    Raises:
        SettingsError: a setting is wrong, or the project cannot be loaded.
        DefinitionError: the project is not sound.
        CatalogUnavailable: the catalog does not answer.
        CatalogVersion: it is of a newer version, or something else.
    """
    from nova_assets.catalog.catalog import open_catalog
    from nova_assets.crash import crash_point
    from nova_assets.engine.engine import SparkEngine
    from nova_assets.engine.session import build

    named = project if isinstance(project, str) else None
    where = spark if isinstance(spark, str) else None
    settings = settings or load_settings(
        catalog=catalog,
        warehouse=warehouse,
        project=named,
        lease=lease,
        grace=grace,
        spark=where,
        service=service,
    )
    loaded = project if isinstance(project, Project) else load_project(settings)
    truth = open_catalog(settings.catalog, on_before_commit=lambda: crash_point("commit.inside"))
    made, source = _seen(settings, truth, storage)
    session = (
        spark
        if spark is not None and where is None
        else partial(build, settings.spark, settings.home, settings.spark_config)
    )
    way = next((w for w in WAYS if w == settings.way), None)
    engine = SparkEngine(settings.warehouse, session, way)
    viewing = Viewed(settings, truth, engine.address, source)
    store = Store(settings, loaded, made, engine, viewing)
    viewing.store = store
    return store


def _seen(settings: Settings, catalog: Catalog, storage: Callable[[str], Any] | None) -> tuple[Catalog, Any]:
    """The catalog as the settings say that channels are looked at, and what they are looked at through."""
    if settings.service is None:
        return catalog, None
    with _needing_the_extra():
        from nova_assets.views.client import Client
        from nova_assets.views.desk import Desk
        from nova_assets.views.follower import Follower
        from nova_assets.views.served import served
        from nova_assets.views.storage import InMemory
    if settings.service == "embedded":
        kept = InMemory() if storage is None else storage(catalog.identity())
        source: Client | Desk = Desk(Follower(catalog, kept))
    else:
        source = Client(settings.service, settings.service_token, settings.service_timeout, catalog.identity())
    return served(catalog, source), source


@contextmanager
def _needing_the_extra() -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        raise SettingsError(
            f"what views of channels need is not installed: {error.name}", next="pip install 'nova-assets[service]'"
        ) from error


class Viewed:
    """Gives ``Views`` of channels at the numbers that are pinned.

    Args:
        source: of a service, its client; of an embedded one, its desk, which listens once somebody asks for views.
    """

    def __init__(self, settings: Settings, catalog: Catalog, warehouse: str, source: Any) -> None:
        self._settings = settings
        self._catalog = catalog
        self._warehouse = warehouse
        self._source = source
        self._stack = ExitStack()
        self._lock = threading.Lock()
        self.store: Store | None = None

    def __call__(self, heads: Mapping[str, int]) -> Any:
        with _needing_the_extra():
            from nova_assets.views.files import Pinned, Views

        known = {c: Pinned(head, self._catalog.channel(c).position) for c, head in heads.items()}
        return Views(self._warehouse, partial(_reopened, self._settings.catalog), self._client(), known)

    def _client(self) -> Any:
        from nova_assets.views.client import Client
        from nova_assets.views.desk import Desk

        with self._lock:
            if isinstance(self._source, Desk):
                from nova_assets.service.serving import embedded

                assert self.store is not None
                url, token = self._stack.enter_context(embedded(self.store, self._source))
                self._source = Client(url, token, self._settings.service_timeout, self._catalog.identity())
            return self._source

    def close(self) -> None:
        self._stack.close()


def _reopened(url: str) -> Catalog:
    """The catalog, in another process."""
    from nova_assets.catalog.catalog import open_catalog

    return open_catalog(url)


def load_project(settings: Settings) -> Project | None:
    """The project that the settings name, imported. Raises SettingsError when it cannot be, or is none."""
    if settings.project is None:
        return None
    module, _, attribute = settings.project.partition(":")
    if not module or not attribute:
        raise SettingsError(
            "the project is not named rightly", found=settings.project, expected="package.module:attribute"
        )
    root = str(settings.root)
    if root not in sys.path:
        sys.path.insert(0, root)
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ModuleNotFoundError, AttributeError) as error:
        raise SettingsError(
            f"the project {settings.project} cannot be loaded",
            found=str(error),
            expected="package.module:attribute, importable from " + root,
            next="nova doctor",
        ) from error
    if not isinstance(found, Project):
        raise SettingsError(f"{settings.project} is no nova.Project", found=type(found).__name__)
    return found
