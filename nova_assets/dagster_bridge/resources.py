"""Dagster resource with one open store per process. The Spark session starts on the first access to data.

The resource is the IO manager of channels, too: it loads channels into users' assets, and users' assets write channels
under its name.

    @dg.asset(
        key="totals",
        io_manager_key="nova",
        metadata={"nova/produces": "delta"},
        ins={"orders": dg.AssetIn("orders", metadata={"nova/mode": "new"})},
    )
    def totals(orders: pa.Table) -> pa.Table: ...

``build_definitions(project, assets=[totals])`` makes such an asset a writer of its channel (``writing_assets.py``).
Other assets only read: their cursors belong to the consumer ``asset:<key>`` (``asset_consumers.py``).
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from dagster import ConfigurableIOManager, ConfigurableResource, InputContext, OutputContext

from nova_assets.dagster_bridge.channel_inputs import accept_output, load_channel
from nova_assets.dagster_bridge.dagster_names import DagsterNames
from nova_assets.engine.session.lazy_session import SessionBuilder
from nova_assets.errors import DefinitionError
from nova_assets.key_prefix import parse_key_prefix
from nova_assets.model.channel_registration import definition_fingerprint
from nova_assets.model.project import Project
from nova_assets.settings import Settings, load_settings
from nova_assets.store.store import Store
from nova_assets.wiring.open_store import open as open_store

_projects: dict[str, Project] = {}
_pyspark_resources: dict[str, ConfigurableResource[Any]] = {}
_stores: dict[tuple[str, ...], Store] = {}
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


def register_pyspark(resource: ConfigurableResource[Any]) -> str:
    """Register dagster-pyspark's resource in this process, and return the name under which ``NovaResource`` finds it.

    Raises:
        DefinitionError: the resource has no ``spark_session``.
    """
    if not hasattr(type(resource), "spark_session"):
        raise DefinitionError(
            "spark= is no resource with a Spark session",
            found=type(resource).__name__,
            expected="dagster_pyspark.PySparkResource or LazyPySparkResource, or a text such as 'local'",
        )
    fields = {name: str(value) for name, value in resource}
    name = f"pyspark-{definition_fingerprint({'type': type(resource).__qualname__, **fields})}"
    _pyspark_resources[name] = resource
    return name


class NovaResource(ConfigurableIOManager):
    """Dagster resource that opens the store. Omitted fields come from ``NOVA_*`` variables and ``[tool.nova]``.

    The resource is also the IO manager of channels. It loads channels into users' assets, in mode ``all`` (default),
    ``new``, ``old`` or ``changes``. The annotation of an input selects the type of its value: a Spark DataFrame (the
    default), a ``pyarrow.Table``, a ``pandas.DataFrame``, a ``polars.DataFrame``, or a ``nova.View``. A ``nova.View``
    offers all modes under one pin. If all inputs of an asset use mode ``all``, and the asset writes no channel, the
    asset pins nothing and reads the head of each channel.

    An asset whose metadata has ``nova/produces`` writes the channel of its name, if ``build_definitions`` gets it in
    ``assets=``. The rows become visible, and the cursors of the asset move, in one commit at the end of the step (R2).

    Args:
        catalog: SQLAlchemy URL of the catalog.
        warehouse: folder of the warehouse.
        project: ``package.module:attribute``, or the name of a registered project. ``build_definitions`` sets this
            name.
        spark: ``local``, ``server``, ``sc://host:port`` or ``spark://host:port``, as in ``Settings.spark``. Use
            ``server`` or ``sc://host:port`` with an executor that runs each step in its own process, so that the steps
            share a warm Spark. If ``build_definitions`` gets a resource of dagster-pyspark, it sets the name of this
            resource.
        spark_config: additional settings of the Spark session. dagster-pyspark's lazy resource builds this session.
        key_prefix: first parts of the project's asset keys, as for ``build_definitions``.
        root: folder in which the search for pyproject.toml starts, by default the current folder.
    """

    catalog: str | None = None
    warehouse: str | None = None
    project: str | None = None
    spark: str | None = None
    spark_config: dict[str, Any] = {}  # noqa: RUF012  a field of a pydantic model
    key_prefix: list[str] | None = None
    root: str | None = None

    def handle_output(self, context: OutputContext, obj: Any) -> None:
        """Accept the value of an asset that writes a channel: its step has committed the rows. Outside a run, as with
        ``dg.build_output_context()``, insert the rows into the channel.

        Raises:
            NotSupported: the asset returned a value, and writes no channel.
        """
        accept_output(context, obj, self.store)

    def load_input(self, context: InputContext) -> Any:
        """Load a channel as the annotated type. The metadata ``nova/mode`` of the input names the mode.

        Raises:
            DefinitionError: the mode or the annotation is not supported.
            ChannelNotFound: the upstream asset is not a channel.
            ExecutionInProgress: another run of the asset is reading.
            NotSupported: this run has pinned other channels but not this channel, or the step makes no asset.
        """
        return load_channel(self.store(), context)

    @property
    def defined_project(self) -> Project | None:
        """The project of ``build_definitions``, with a binding for each asset that writes channels."""
        return _projects.get(self.project or "")

    def store(self) -> Store:
        """The open store of this process. Opening a store does not start Spark."""
        registered_project, pyspark = self.defined_project, _pyspark_resources.get(self.spark or "")
        project_name = None if registered_project is not None else self.project
        spark = self.spark if pyspark is None else None
        settings = self._load_settings(project=project_name, spark=spark)
        key = (settings.catalog, settings.warehouse, *settings.key_prefix, self.project or "")
        session: Any = SessionBuilder(partial(self._build_spark_session, settings))
        if pyspark is not None:
            session = partial(_session_of, pyspark)
        with _lock:
            store = _stores.get(key)
            if store is None or (
                registered_project is not None and store.project is not registered_project
            ):  # the definitions were reloaded
                store = _stores[key] = open_store(registered_project, spark=session, settings=settings)
            return store

    @property
    def names(self) -> DagsterNames:
        """Names in Dagster of the project."""
        prefix = self.key_prefix if self.key_prefix is not None else self._load_settings().key_prefix
        return DagsterNames(parse_key_prefix(prefix))

    @cached_property
    def _settings(self) -> dict[tuple[str | None, str | None], Settings]:
        return {}

    def _load_settings(self, project: str | None = None, spark: str | None = None) -> Settings:
        """Settings of this resource, loaded once, since every tick of every sensor asks for the store."""
        if (project, spark) not in self._settings:
            self._settings[project, spark] = load_settings(
                None if self.root is None else Path(self.root),
                catalog=self.catalog,
                warehouse=self.warehouse,
                key_prefix=self.key_prefix,
                project=project,
                spark=spark,
            )
        return self._settings[project, spark]

    def _build_spark_session(self, settings: Settings, max_cores: int | None) -> Any:
        from dagster_pyspark import LazyPySparkResource

        from nova_assets.engine.session.spark_session import create_session

        def make(config: Mapping[str, str]) -> Any:
            return LazyPySparkResource(spark_config=dict(config)).spark_session

        spark_config = {**settings.spark_config, **self.spark_config}
        return create_session(make, settings.spark, settings.default_data_folder, spark_config, max_cores)


class NovaIOManager(ConfigurableIOManager):
    """IO manager that loads channels into users' assets, for definitions that name their resources themselves.

    ``NovaResource`` is such an IO manager, too, and describes what it does.

    Args:
        nova: the resource that opens the store.
    """

    nova: NovaResource

    def handle_output(self, context: OutputContext, obj: Any) -> None:
        """Accept the value of an asset that writes a channel. Raises NotSupported for other assets."""
        accept_output(context, obj, self.nova.store)

    def load_input(self, context: InputContext) -> Any:
        """Load a channel as the annotated type, as ``NovaResource.load_input`` does."""
        return load_channel(self.nova.store(), context)


def _session_of(resource: ConfigurableResource[Any]) -> Any:
    """The session of a user's own resource, which decides all settings."""
    from nova_assets.engine.session.spark_session import prepare_environment

    prepare_environment()
    return resource.process_config_and_initialize().spark_session
