"""Dagster definitions of a project."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from dagster import (
    AssetsDefinition,
    AssetSelection,
    AutomationConditionSensorDefinition,
    BetaWarning,
    ConfigurableResource,
    DefaultSensorStatus,
    Definitions,
    ExecutorDefinition,
    JobDefinition,
    PreviewWarning,
    in_process_executor,
)
from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition

from nova_assets.dagster_bridge.arrivals import receive_sensor_job
from nova_assets.dagster_bridge.assets import build_binding_asset, build_sink_job, external_asset_specs
from nova_assets.dagster_bridge.binding_job import build_binding_job
from nova_assets.dagster_bridge.condition import has_own_condition, register_reader
from nova_assets.dagster_bridge.dataset_ticks import tick_sensor_job
from nova_assets.dagster_bridge.lost_runs import build_lost_runs_sensor
from nova_assets.dagster_bridge.maintenance import maintenance_sensor_job
from nova_assets.dagster_bridge.published_tables import publish_tables_sensor_job
from nova_assets.dagster_bridge.resources import (
    IO_MANAGER_KEY,
    RESOURCE_KEY,
    NovaResource,
    register_project,
    register_pyspark,
)
from nova_assets.dagster_bridge.sensor_job import SensorJob
from nova_assets.dagster_bridge.triggers import build_trigger_sensor
from nova_assets.dagster_bridge.unreported_commits import build_unreported_commits_sensor
from nova_assets.dagster_bridge.writing_assets import add_writing_assets, reading_binding
from nova_assets.model.binding import Binding
from nova_assets.model.partitions import partition_values
from nova_assets.model.project import Project
from nova_assets.store.arrival_watch import channels_with_source_or_seal


def build_definitions(
    project: Project,
    *,
    catalog: str | None = None,
    warehouse: str | None = None,
    spark: str | ConfigurableResource[Any] | None = None,
    spark_config: dict[str, Any] | None = None,
    executor: ExecutorDefinition = in_process_executor,
    assets: Sequence[AssetsDefinition] = (),
) -> Definitions:
    """Dagster definitions of a project: assets, jobs, sensors and resources.

    Bindings become graph-backed multi-assets. Channels that no binding writes become external assets. Merge the result
    with other definitions through ``dg.Definitions.merge``.

    Args:
        project: the project whose bindings and channels are defined.
        catalog: SQLAlchemy URL of the catalog, as for ``nova.open``.
        warehouse: folder or URL of the warehouse, as for ``nova.open``.
        spark: origin of the Spark session, as in ``Settings.spark``: ``local``, ``server`` or ``sc://host:port``. Or a
            resource of dagster-pyspark (``PySparkResource`` or ``LazyPySparkResource``), whose session does all work.
        spark_config: additional settings of the Spark session, unless ``spark`` is a resource.
        assets: users' own assets. Those whose metadata has ``nova/produces`` write channels of the project.
        executor: Dagster executor of the jobs. The in-process default keeps Spark warm from step to step (DESIGN §5).
    """
    with_assets, own_assets = add_writing_assets(project, assets)
    nova = NovaResource(
        catalog=catalog,
        warehouse=warehouse,
        project=register_project(with_assets),
        spark=spark if spark is None or isinstance(spark, str) else register_pyspark(spark),
        spark_config=spark_config or {},
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BetaWarning)  # from_graph and asset specs have beta parts
        warnings.simplefilter("ignore", PreviewWarning)
        has_data = partial(_scope_has_data, nova, with_assets)
        binding_assets = [build_binding_asset(b, with_assets, has_data) for b in project.bindings if b.writes]
        jobs = {b.name: _build_binding_job(b) for b in project.bindings}
        background_work = [sensor_job.build_definitions(nova) for sensor_job in _sensor_jobs(with_assets)]
        trigger_sensors = [build_trigger_sensor(b, jobs[b.name], nova) for b in project.bindings]
        conditions = _sensors_of_conditions(own_assets, with_assets, nova)
        return Definitions(
            assets=[*binding_assets, *own_assets, *external_asset_specs(with_assets)],
            jobs=[
                *jobs.values(),
                *(job for job, _ in background_work),
            ],
            sensors=[
                *(t for t in trigger_sensors if t is not None),
                build_unreported_commits_sensor(nova),
                build_lost_runs_sensor(nova),
                *(sensor for _, sensor in background_work),
                *conditions,
            ],
            resources={RESOURCE_KEY: nova, IO_MANAGER_KEY: nova},
            executor=executor,
        )


def _sensors_of_conditions(
    assets: Sequence[AssetsDefinition], project: Project, nova: NovaResource
) -> Iterator[AutomationConditionSensorDefinition]:
    """A sensor for the assets with a condition that only the process of the definitions can evaluate."""
    judged = [a for a in assets if any(has_own_condition(s.automation_condition) for s in a.specs)]
    for asset in judged:
        writers = [w for key in asset.keys if (w := project.writer(key.path[-1])) is not None]
        binding = writers[0] if writers else reading_binding(asset, project)
        if binding is not None:
            for key in asset.keys:
                register_reader(key, nova, binding)
    if judged:
        yield AutomationConditionSensorDefinition(
            "nova_automation",
            target=AssetSelection.assets(*(key for a in judged for key in a.keys)),
            use_user_code_server=True,
            default_status=DefaultSensorStatus.RUNNING,
            description="Requests runs of assets that have unread data.",
        )


def _sensor_jobs(project: Project) -> Iterator[SensorJob]:
    """Background work that the project needs."""
    yield maintenance_sensor_job()
    if channels_with_source_or_seal(project):
        yield receive_sensor_job()
    if any(c.publish for c in project.channels):
        yield publish_tables_sensor_job()
    if any(c.external for c in project.channels) or any(b.is_scoped for b in project.bindings):
        yield tick_sensor_job()


def _scope_has_data(nova: NovaResource, project: Project, scope: str) -> bool:
    """Whether any channel of the project has data in a partition or in a scope of partitions."""
    catalog, columns = nova.store().catalog, set(partition_values(scope))
    heads = catalog.heads()
    channels = [c.name for c in project.channels if columns <= set(c.partition_columns) and heads.get(c.name)]
    return any(catalog.partitions(channel, scope) for channel in channels)


def _build_binding_job(binding: Binding) -> JobDefinition | UnresolvedAssetJobDefinition:
    """Job that runs all steps of a binding. The job has the binding's name."""
    return build_binding_job(binding) if binding.writes else build_sink_job(binding)
