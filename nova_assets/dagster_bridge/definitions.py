"""Dagster definitions of a project."""

from __future__ import annotations

import warnings
from functools import partial
from typing import Any

from dagster import (
    BetaWarning,
    Definitions,
    ExecutorDefinition,
    JobDefinition,
    PreviewWarning,
    in_process_executor,
)
from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition

from nova_assets.dagster_bridge.arrivals import build_receive_job, build_receive_sensor
from nova_assets.dagster_bridge.assets import build_binding_asset, build_sink_job, external_asset_specs
from nova_assets.dagster_bridge.io_manager import NovaIOManager
from nova_assets.dagster_bridge.janitor import build_janitor_sensor
from nova_assets.dagster_bridge.jobs import build_binding_job
from nova_assets.dagster_bridge.maintenance import build_maintenance_job, build_maintenance_sensor
from nova_assets.dagster_bridge.published_tables import build_publish_tables_job, build_publish_tables_sensor
from nova_assets.dagster_bridge.publisher import build_publisher_sensor
from nova_assets.dagster_bridge.resources import IO_MANAGER_KEY, RESOURCE_KEY, NovaResource, register_project
from nova_assets.dagster_bridge.scheduler import build_tick_job, build_tick_sensor
from nova_assets.dagster_bridge.triggers import build_trigger_sensor
from nova_assets.model.binding import Binding
from nova_assets.model.partitions import partition_values
from nova_assets.model.project import Project


def build_definitions(
    project: Project,
    *,
    catalog: str | None = None,
    warehouse: str | None = None,
    spark: str | None = None,
    spark_config: dict[str, Any] | None = None,
    executor: ExecutorDefinition = in_process_executor,
) -> Definitions:
    """Dagster definitions of a project: assets, jobs, sensors and resources.

    Bindings become graph-backed multi-assets. Channels that no binding writes become external assets. Merge the result
    with other definitions through ``dg.Definitions.merge``.

    Args:
        project: the project whose bindings and channels are defined.
        catalog: SQLAlchemy URL of the catalog, as for ``nova.open``.
        warehouse: folder or URL of the warehouse, as for ``nova.open``.
        spark: origin of the Spark session, as in ``Settings.spark``: ``local``, ``server`` or ``sc://host:port``.
        spark_config: additional settings of the Spark session.
        executor: Dagster executor of the jobs. The in-process default keeps Spark warm from step to step (DESIGN §5).
    """
    nova = NovaResource(
        catalog=catalog,
        warehouse=warehouse,
        project=register_project(project),
        spark=spark,
        spark_config=spark_config or {},
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BetaWarning)  # from_graph and asset specs have beta parts
        warnings.simplefilter("ignore", PreviewWarning)
        has_data = partial(_scope_has_data, nova, project)
        assets = [build_binding_asset(b, project, has_data) for b in project.bindings if b.writes]
        jobs = {b.name: _build_binding_job(b) for b in project.bindings}
        compaction_job, receive_job, publish_job = (
            build_maintenance_job(),
            build_receive_job(),
            build_publish_tables_job(),
        )
        has_receiving_channels = any(c.source is not None or c.seal is not None for c in project.channels)
        has_published_channels = any(c.publish for c in project.channels)
        has_external_channels = any(c.external for c in project.channels)
        tick_jobs = [build_tick_job()] if has_external_channels or any(b.is_scoped for b in project.bindings) else []
        trigger_sensors = [build_trigger_sensor(b, jobs[b.name], nova) for b in project.bindings]
        return Definitions(
            assets=[*assets, *external_asset_specs(project)],
            jobs=[
                *jobs.values(),
                compaction_job,
                *([receive_job] if has_receiving_channels else []),
                *([publish_job] if has_published_channels else []),
                *tick_jobs,
            ],
            sensors=[
                *(t for t in trigger_sensors if t is not None),
                build_publisher_sensor(nova),
                build_janitor_sensor(nova),
                build_maintenance_sensor(nova, compaction_job),
                *([build_receive_sensor(nova, receive_job)] if has_receiving_channels else []),
                *([build_publish_tables_sensor(nova, publish_job)] if has_published_channels else []),
                *(build_tick_sensor(nova, job) for job in tick_jobs),
            ],
            resources={RESOURCE_KEY: nova, IO_MANAGER_KEY: NovaIOManager(nova=nova)},
            executor=executor,
        )


def _scope_has_data(nova: NovaResource, project: Project, scope: str) -> bool:
    """Whether any channel of the project has data in a partition or in a scope of partitions."""
    catalog, columns = nova.store().catalog, set(partition_values(scope))
    heads = catalog.heads()
    channels = [c.name for c in project.channels if columns <= set(c.partition_columns) and heads.get(c.name)]
    return any(catalog.partitions(channel, scope) for channel in channels)


def _build_binding_job(binding: Binding) -> JobDefinition | UnresolvedAssetJobDefinition:
    """Job that runs all steps of a binding. The job has the binding's name."""
    return build_binding_job(binding) if binding.writes else build_sink_job(binding)
