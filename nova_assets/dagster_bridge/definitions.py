"""A project as Dagster definitions."""

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

from nova_assets.dagster_bridge.arrivals import receiving_job, receiving_sensor
from nova_assets.dagster_bridge.assets import bound_asset, external_assets, sink_job
from nova_assets.dagster_bridge.io_manager import NovaIOManager
from nova_assets.dagster_bridge.janitor import janitor
from nova_assets.dagster_bridge.jobs import binding_job
from nova_assets.dagster_bridge.maintenance import upkeep_job, upkeep_sensor
from nova_assets.dagster_bridge.published_tables import tables_job, tables_sensor
from nova_assets.dagster_bridge.publisher import publisher
from nova_assets.dagster_bridge.resources import IO_MANAGER, RESOURCE, NovaResource, remember
from nova_assets.dagster_bridge.scheduler import tick_job, tick_sensor
from nova_assets.dagster_bridge.triggers import trigger_of
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
    """Everything that Dagster needs of a project: assets, jobs, sensors and resources.

    Args:
        project: its bindings become graph-backed multi-assets, its other channels external assets.
        catalog, warehouse: as for ``nova.open``.
        spark: where the session is had from, as in ``Settings.spark``: ``local``, ``server`` or ``sc://host:port``.
        spark_config: further settings of the Spark session.
        executor: in one process by default: Spark stays warm from step to step (DESIGN §5).

    Merge the result with definitions of your own by ``dg.Definitions.merge``.
    """
    nova = NovaResource(
        catalog=catalog,
        warehouse=warehouse,
        project=remember(project),
        spark=spark,
        spark_config=spark_config or {},
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BetaWarning)  # parts of from_graph and of asset specs that we use knowingly
        warnings.simplefilter("ignore", PreviewWarning)
        has_data = partial(_has_data, nova, project)
        assets = [bound_asset(b, project, has_data) for b in project.bindings if b.writes]
        jobs = {b.name: _job(b) for b in project.bindings}
        compaction, receives, publishes = upkeep_job(), receiving_job(), tables_job()
        fed = any(c.source is not None or c.seal is not None for c in project.channels)
        shown = any(c.publish for c in project.channels)
        looked_at = any(c.external for c in project.channels)
        ticks = [tick_job()] if looked_at or any(b.is_scoped for b in project.bindings) else []
        triggers = [trigger_of(b, jobs[b.name], nova) for b in project.bindings]
        return Definitions(
            assets=[*assets, *external_assets(project)],
            jobs=[*jobs.values(), compaction, *([receives] if fed else []), *([publishes] if shown else []), *ticks],
            sensors=[
                *(t for t in triggers if t is not None),
                publisher(nova),
                janitor(nova),
                upkeep_sensor(nova, compaction),
                *([receiving_sensor(nova, receives)] if fed else []),
                *([tables_sensor(nova, publishes)] if shown else []),
                *(tick_sensor(nova, job) for job in ticks),
            ],
            resources={RESOURCE: nova, IO_MANAGER: NovaIOManager(nova=nova)},
            executor=executor,
        )


def _has_data(nova: NovaResource, project: Project, scope: str) -> bool:
    """Whether some channel of the project has data in a partition, or in a scope of partitions."""
    catalog, columns = nova.store().catalog, set(partition_values(scope))
    heads = catalog.heads()
    channels = [c.name for c in project.channels if columns <= set(c.partition_columns) and heads.get(c.name)]
    return any(catalog.partitions(channel, scope) for channel in channels)


def _job(binding: Binding) -> JobDefinition | UnresolvedAssetJobDefinition:
    """The job that runs a binding whole; it has the binding's name."""
    return binding_job(binding) if binding.writes else sink_job(binding)
