"""Dagster resource with one open store per process. The Spark session starts on the first access to data."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from functools import partial
from typing import Any

from dagster import ConfigurableResource

from nova_assets.model.channel_registration import definition_fingerprint
from nova_assets.model.project import Project
from nova_assets.settings import Settings, load_settings
from nova_assets.store.store import Store
from nova_assets.wiring.open_store import open as open_store

RESOURCE_KEY = "nova"
"""Key of the ``NovaResource`` in the definitions."""

IO_MANAGER_KEY = "nova_io_manager"
"""Key of the IO manager that reads channels."""

_projects: dict[str, Project] = {}
_stores: dict[tuple[str, str, str], Store] = {}
_lock = threading.Lock()


def register_project(project: Project) -> str:
    """Register a project in this process and return the name under which a resource finds the project.

    Dagster resources carry configuration, not objects, so a resource refers to the project by name. The name is a hash
    of the definitions alone. Every process that loads the same definitions computes the same name.
    """
    content = {
        "bindings": [b.as_json() for b in project.bindings],
        "channels": sorted((c.as_json() for c in project.channels), key=lambda c: str(c["name"])),
    }
    name = f"project-{definition_fingerprint(content)}"
    _projects[name] = project
    return name


class NovaResource(ConfigurableResource):  # type: ignore[type-arg]
    """Dagster resource that opens the store. Omitted fields come from ``NOVA_*`` variables and ``[tool.nova]``.

    Args:
        catalog: SQLAlchemy URL of the catalog.
        warehouse: folder of the warehouse.
        project: ``package.module:attribute``, or the name of a registered project. ``build_definitions`` sets this
            name.
        spark: ``local``, ``server`` or ``sc://host:port``, as in ``Settings.spark``. Use ``server`` or
            ``sc://host:port`` with an executor that runs each step in its own process, so that the steps share a warm
            Spark.
        spark_config: additional settings of the Spark session. dagster-pyspark's lazy resource builds this session.
    """

    catalog: str | None = None
    warehouse: str | None = None
    project: str | None = None
    spark: str | None = None
    spark_config: dict[str, Any] = {}  # noqa: RUF012  a field of a pydantic model

    def store(self) -> Store:
        """The open store of this process. Opening a store does not start Spark."""
        registered_project = _projects.get(self.project or "")
        project_name = None if registered_project is not None else self.project
        settings = load_settings(catalog=self.catalog, warehouse=self.warehouse, project=project_name, spark=self.spark)
        key = (settings.catalog, settings.warehouse, self.project or "")
        with _lock:
            store = _stores.get(key)
            if store is None or (
                registered_project is not None and store.project is not registered_project
            ):  # the definitions were reloaded
                store = _stores[key] = open_store(
                    registered_project, spark=partial(self._get_spark_session, settings), settings=settings
                )
            return store

    def _get_spark_session(self, settings: Settings) -> Any:
        from dagster_pyspark import LazyPySparkResource

        from nova_assets.engine.session.spark_session import create_session

        def make(config: Mapping[str, str]) -> Any:
            return LazyPySparkResource(spark_config=dict(config)).spark_session

        return create_session(
            make, settings.spark, settings.default_data_folder, {**settings.spark_config, **self.spark_config}
        )
