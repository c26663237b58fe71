"""The Dagster resource: one open store per process, with a Spark session that starts when data is touched."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from functools import partial
from typing import Any

from dagster import ConfigurableResource

from nova_assets.model.channel import definition_fingerprint
from nova_assets.model.project import Project
from nova_assets.settings import Settings, load_settings
from nova_assets.store.store import Store
from nova_assets.wiring.open_store import open as open_store

RESOURCE_KEY = "nova"
"""The key of the ``NovaResource`` in the definitions."""

IO_MANAGER_KEY = "nova_io_manager"
"""The key of the IO manager that channels are read by."""

_projects: dict[str, Project] = {}
_stores: dict[tuple[str, str, str], Store] = {}
_lock = threading.Lock()


def register_project(project: Project) -> str:
    """A name under which a resource finds the project again: resources carry configuration, not objects.

    It comes from the definitions alone, so that each process that loads them gives the same one.
    """
    content = {
        "bindings": [b.as_json() for b in project.bindings],
        "channels": sorted((c.as_json() for c in project.channels), key=lambda c: str(c["name"])),
    }
    name = f"project-{definition_fingerprint(content)}"
    _projects[name] = project
    return name


class NovaResource(ConfigurableResource):  # type: ignore[type-arg]
    """Where catalog and warehouse are. What is left out comes from ``NOVA_*`` and ``[tool.nova]``.

    Args:
        catalog: SQLAlchemy URL.
        warehouse: folder.
        project: ``package.module:attribute``; ``build_definitions`` fills it in.
        spark: ``local``, ``server`` or ``sc://host:port``, as in ``Settings.spark``. With an executor that runs
            steps in processes of their own, one of the latter two, so that they share a warm Spark.
        spark_config: further settings of the Spark session, built by dagster-pyspark's lazy resource.
    """

    catalog: str | None = None
    warehouse: str | None = None
    project: str | None = None
    spark: str | None = None
    spark_config: dict[str, Any] = {}  # noqa: RUF012  a field of a pydantic model

    def store(self) -> Store:
        """The open store of this process. Opening one starts no Spark."""
        registered_project = _projects.get(self.project or "")
        project_name = None if registered_project is not None else self.project
        settings = load_settings(catalog=self.catalog, warehouse=self.warehouse, project=project_name, spark=self.spark)
        key = (settings.catalog, settings.warehouse, self.project or "")
        with _lock:
            store = _stores.get(key)
            if store is None or (
                registered_project is not None and store.project is not registered_project
            ):  # definitions were loaded again
                store = _stores[key] = open_store(
                    registered_project, spark=partial(self._get_spark_session, settings), settings=settings
                )
            return store

    def _get_spark_session(self, settings: Settings) -> Any:
        from dagster_pyspark import LazyPySparkResource

        from nova_assets.engine.session.session import create_session

        def make(config: Mapping[str, str]) -> Any:
            return LazyPySparkResource(spark_config=dict(config)).spark_session

        return create_session(make, settings.spark, settings.home, {**settings.spark_config, **self.spark_config})
