"""``nova.open()``: find and connect the catalog, engine and project of one deployment.

Spark is loaded on the first access to data.
"""

# Not in ``store``, which the service imports: a store that opened an embedded service would close a cycle of imports.

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any, cast

from nova_assets.catalog.catalog import Catalog
from nova_assets.errors import ArgumentRefused, SettingsError
from nova_assets.execution.warehouse_identity import check_warehouse_identity
from nova_assets.key_prefix import parse_key_prefix
from nova_assets.masking import get_logger, mask_address
from nova_assets.model.address import parse_address
from nova_assets.model.channel import Channel
from nova_assets.model.engine import Engine
from nova_assets.model.project import Project
from nova_assets.model.published_table import HiveTable
from nova_assets.model.read_strategy import forced_strategy
from nova_assets.settings import Settings, load_settings
from nova_assets.store.store import Store
from nova_assets.wiring.channel_views import StoreViewsFactory, catalog_with_views


def lazy_engine(build: Callable[[], Engine]) -> Engine:
    """Engine that ``build`` makes when it is first used.

    An engine loads Arrow, which takes longer than everything else that a command does if it only reads the catalog.
    """
    return cast(Engine, _LazyEngine(build))


class _LazyEngine:
    """Forwards every access to the engine, and builds the engine first if necessary."""

    def __init__(self, build: Callable[[], Engine]) -> None:
        self._build = build
        self._lock = Lock()
        self._engine: Engine | None = None

    def __getattr__(self, name: str) -> Any:
        with self._lock:
            if self._engine is None:
                self._engine = self._build()
        return getattr(self._engine, name)

    def close(self) -> None:
        """Close the engine, if it was built."""
        if self._engine is not None:
            self._engine.close()


log = get_logger("nova_assets.catalog")


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
    """Open a deployment.

    Every argument is optional. An argument overrides the ``NOVA_*`` variable, and the variable overrides
    ``[tool.nova]`` in pyproject.toml. A missing catalog is created, and the log says where: as a warning if its address
    comes from a variable or from pyproject.toml, since a mistyped address would otherwise look like an empty
    deployment.

    Args:
        project: a ``nova.Project``, or its import path ``package.module:attribute``.
        catalog: SQLAlchemy URL of the catalog. By default, a SQLite file under ``.nova/``.
        warehouse: folder or address of all blocks. By default, a folder under ``.nova/``.
        spark: a session, a function that returns one on first use, or the kind of session as in ``Settings.spark``:
            ``local`` (the default), ``server``, ``sc://host:port`` or ``spark://host:port``.
        lease, grace: the lease and the grace period of executions, in seconds. See ``Settings``.
        service: source of file views: the address of ``nova serve``, or ``embedded``. See ``Settings``.
        settings: complete settings. The variables, pyproject.toml, and the arguments for single settings are then
            ignored.
        storage: function that takes the identity of the catalog, and returns the storage for the file views of this
            process. By default, the views are stored in memory.

    Raises:
        SettingsError: a setting is invalid, or the project cannot be loaded.
        NotSupported: the warehouse has an unknown address scheme.
        DefinitionError: the project is invalid, or a new definition of a database table contradicts the database.
        CatalogUnavailable: the catalog does not answer.
        CatalogVersion: the database has a newer catalog version, or is no catalog.
        WarehouseMismatch: the blocks of the catalog are in another warehouse.
    """
    if project is not None and not isinstance(project, Project | str):
        raise ArgumentRefused(
            "open() got project= of an unsupported type",
            found=type(project).__name__,
            expected='a nova.Project, or its import path "package.module:attribute"',
        )
    project_path = project if isinstance(project, str) else None
    spark_kind = spark if isinstance(spark, str) else None
    settings = settings or load_settings(
        catalog=catalog,
        warehouse=warehouse,
        project=project_path,
        lease=lease,
        grace=grace,
        spark=spark_kind,
        service=service,
    )
    parse_address(settings.warehouse)  # a bad address must fail before a catalog is created
    loaded_project = project if isinstance(project, Project) else load_project(settings)
    return _open_for_changes(
        loaded_project, settings, spark if spark_kind is None else None, storage, _log_created_catalog
    )


def open_quietly(project: Project, settings: Settings, storage: Callable[[str], Any] | None = None) -> Store:
    """Open a deployment as ``open`` does, without a line of the log for a new catalog: the caller says it. Raises as
    ``open``.
    """
    parse_address(settings.warehouse)
    return _open_for_changes(project, settings, None, storage, lambda settings: None)


def _open_for_changes(
    loaded_project: Project | None,
    settings: Settings,
    session: Any,
    storage: Callable[[str], Any] | None,
    on_created: Callable[[Settings], None],
) -> Store:
    """Store over the catalog, which is created if it is missing.

    Args:
        on_created: called after a SQLite catalog was created.
    """
    creates_file = _is_missing_file(settings.catalog)
    catalog_of_settings = _open_catalog(settings)
    with ExitStack() as on_failure:
        on_failure.callback(catalog_of_settings.close)
        if creates_file:
            on_created(settings)
        if loaded_project is not None and any(c.external and c.external.database for c in loaded_project.channels):
            _check_sources(loaded_project, catalog_of_settings)
        engine = _build_checked_engine(settings, catalog_of_settings, session, loaded_project)
        store = _assemble_store(settings, loaded_project, catalog_of_settings, engine, storage)
        on_failure.pop_all()
        return store


def _is_missing_file(catalog_url: str) -> bool:
    """Whether a catalog is a SQLite file that does not exist."""
    path = catalog_url.removeprefix("sqlite:///").partition("?")[0]
    is_file = catalog_url.startswith("sqlite:///") and path not in ("", ":memory:")
    return is_file and not Path(path).exists()


def _log_created_catalog(settings: Settings) -> None:
    """Log the masked address of a new catalog; as a warning that names the setting, if the environment or
    ``pyproject.toml`` set it.
    """
    layer = settings.sources.get("catalog", "default")
    setting = {"environment": "NOVA_CATALOG", "pyproject.toml": "catalog in [tool.nova] of pyproject.toml"}.get(layer)
    if setting is None:
        log.info("created the catalog %s", mask_address(settings.catalog))
    else:
        log.warning("created the catalog %s, because %s names it", mask_address(settings.catalog), setting)


def _check_sources(project: Project, catalog: Catalog) -> None:
    """Compare definitions of database tables with their sources. Raises DefinitionError for new definitions."""
    from nova_assets.store.external_definitions import check_sources_once

    registered = {s.channel.name: s.channel for s in catalog.definitions.channels()}

    def is_refreshed(channel: Channel) -> bool:
        known = registered.get(channel.name)
        return (
            known is not None and known.as_json() == channel.as_json() and bool(catalog.sources.versions(channel.name))
        )

    check_sources_once(project.channels, is_refreshed)


def open_for_reading(project: Project, settings: Settings) -> Store:
    """Open a deployment for reading. Only the first read of data builds the engine and checks the warehouse.

    Raises:
        NotSupported, CatalogUnavailable, CatalogVersion: as ``open``.
    """
    parse_address(settings.warehouse)
    catalog = _open_catalog(settings)
    engine = lazy_engine(lambda: _build_checked_engine(settings, catalog, None, project))
    return _assemble_store(settings, project, catalog, engine, None)


def _open_catalog(settings: Settings) -> Catalog:
    from nova_assets.catalog.open_catalog import open_catalog
    from nova_assets.crash_points import crash_point

    return open_catalog(
        settings.catalog,
        on_before_commit=lambda: crash_point("commit.inside"),
        patience=settings.catalog_patience,
        timeout=settings.catalog_timeout,
    )


def _build_checked_engine(settings: Settings, catalog: Catalog, session: Any, project: Project | None) -> Engine:
    """Engine over the warehouse of the catalog.

    Args:
        session: a session, or a function that returns one; None for the session that the settings choose.
        project: a new session can write the formats of its published tables.

    Raises:
        WarehouseMismatch: the blocks of the catalog are in another warehouse.
    """
    from nova_assets.engine.session.lazy_session import SessionBuilder
    from nova_assets.engine.session.spark_session import get_or_build_session
    from nova_assets.engine.session.table_formats import table_format_settings
    from nova_assets.engine.spark_engine import SparkEngine

    if session is None:
        channels = () if project is None else project.channels
        formats = {t.format for c in channels for t in c.publish if isinstance(t, HiveTable) and t.format}
        spark_config = {**table_format_settings(formats, settings.spark_config), **settings.spark_config}
        build = partial(get_or_build_session, settings.spark, settings.default_data_folder, spark_config)
        session = SessionBuilder(build)
    engine = SparkEngine(settings.warehouse, session, forced_strategy(settings.strategy), settings.throttle_budget)
    check_warehouse_identity(catalog, engine)
    return engine


def _assemble_store(
    settings: Settings,
    project: Project | None,
    catalog: Catalog,
    engine: Engine,
    storage: Callable[[str], Any] | None,
) -> Store:
    viewed_catalog, view_source = catalog_with_views(settings, catalog, storage)
    views_factory = StoreViewsFactory(settings, catalog, Store(settings, project, viewed_catalog, engine), view_source)
    return Store(settings, project, viewed_catalog, engine, views_factory)


def load_project(settings: Settings) -> Project | None:
    """Import the project that the settings name.

    Raises:
        SettingsError: the project cannot be imported, or is neither a ``nova.Project`` nor Dagster definitions of one.
    """
    if settings.project is None:
        return None
    module, _, attribute = settings.project.partition(":")
    if not module or not attribute:
        raise SettingsError(
            "the project has an invalid import path", found=settings.project, expected="package.module:attribute"
        )
    root = str(settings.root)
    if root not in sys.path:
        sys.path.insert(0, root)
    try:
        imported = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is not None and not f"{module}.".startswith(f"{error.name}."):
            raise  # the project exists, but one of its own imports does not
        raise _project_load_error(settings, error) from error
    try:
        loaded = getattr(imported, attribute)
    except AttributeError as error:
        if getattr(imported.__spec__, "_initializing", False):
            raise _store_opened_on_import_error(settings, module) from error
        raise _project_load_error(settings, error) from error
    project = loaded if isinstance(loaded, Project) else _project_of_definitions(loaded, settings)
    if project is None:
        raise SettingsError(
            f"{settings.project} is not a nova.Project",
            found=type(loaded).__name__,
            expected="a nova.Project, or the Dagster definitions that build_definitions makes",
        )
    return project


def _project_of_definitions(loaded: Any, settings: Settings) -> Project | None:
    """The project of Dagster definitions, or of a function with ``@dg.definitions``; None for other objects. Does not
    import Dagster.

    Raises:
        SettingsError: the definitions have no project with the key prefix of the settings.
    """
    if callable(loaded) and type(loaded).__module__.startswith("dagster."):
        loaded = loaded()
    project_by_prefix: dict[tuple[str, ...], Project] = {}
    for resource in (getattr(loaded, "resources", None) or {}).values():
        project = getattr(resource, "defined_project", None)
        if isinstance(project, Project):
            project_by_prefix[parse_key_prefix(resource.key_prefix)] = project
    if project_by_prefix and settings.key_prefix not in project_by_prefix:
        prefixes = ["/".join(prefix) for prefix in project_by_prefix]
        raise SettingsError(
            f"{settings.project} has no project with the key prefix of the settings",
            found=f"key_prefix {'/'.join(settings.key_prefix)!r}",
            expected=" or ".join(map(repr, prefixes)),
            next=f'key_prefix = "{prefixes[0]}" below [tool.nova], or NOVA_KEY_PREFIX={prefixes[0]}',
        )
    return project_by_prefix.get(settings.key_prefix)


def _project_load_error(settings: Settings, error: Exception) -> SettingsError:
    return SettingsError(
        f"the project {settings.project} cannot be loaded",
        found=str(error),
        expected=f"package.module:attribute, importable from {settings.root}",
        next="nova doctor",
    )


def _store_opened_on_import_error(settings: Settings, module: str) -> SettingsError:
    return SettingsError(
        f"the project {settings.project} cannot be loaded while {module} is imported",
        found=f"{module} opens a store when it is imported, before the project is defined",
        expected="a module that only contains definitions",
        next='move nova.open() and the code that uses the store below: if __name__ == "__main__":',
    )
