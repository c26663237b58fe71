"""A project as Dagster definitions."""

from __future__ import annotations

import warnings
from typing import Any

from dagster import (
    AssetSelection,
    Definitions,
    ExecutorDefinition,
    ScheduleDefinition,
    SensorDefinition,
    define_asset_job,
    in_process_executor,
)
from dagster._utils.warnings import BetaWarning, PreviewWarning

from nova_assets.dagster_bridge.assets import IO_MANAGER, bound_asset, external_assets
from nova_assets.dagster_bridge.io_manager import NovaIOManager
from nova_assets.dagster_bridge.publisher import publisher
from nova_assets.dagster_bridge.resources import NovaResource, remember
from nova_assets.dagster_bridge.triggers import trigger_of
from nova_assets.model.project import Project


def build_definitions(
    project: Project,
    *,
    catalog: str | None = None,
    warehouse: str | None = None,
    spark_config: dict[str, Any] | None = None,
    executor: ExecutorDefinition = in_process_executor,
) -> Definitions:
    """Everything that Dagster needs of a project: assets, jobs, sensors, schedules and resources.

    Args:
        project: its bindings become graph-backed multi-assets, its other channels external assets.
        catalog, warehouse: as for ``nova.open``.
        spark_config: further settings of the Spark session.
        executor: in one process by default: Spark stays warm from step to step (DESIGN §5).

    Merge the result with definitions of your own by ``dg.Definitions.merge``.
    """
    nova = NovaResource(
        catalog=catalog, warehouse=warehouse, project=remember(project), spark_config=spark_config or {}
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BetaWarning)  # parts of from_graph and of asset specs that we use knowingly
        warnings.simplefilter("ignore", PreviewWarning)
        assets = {b.name: bound_asset(b) for b in project.bindings}
        jobs = {
            b.name: define_asset_job(
                f"{b.name}_job", AssetSelection.assets(*(c.name for c in b.writes)), description=b.description
            )
            for b in project.bindings
            if b.writes
        }
        triggers = [trigger_of(b, jobs[b.name], nova) for b in project.bindings if b.name in jobs]
        return Definitions(
            assets=[*assets.values(), *external_assets(project)],
            jobs=list(jobs.values()),
            sensors=[*(t for t in triggers if isinstance(t, SensorDefinition)), publisher(nova)],
            schedules=[t for t in triggers if isinstance(t, ScheduleDefinition)],
            resources={"nova": nova, IO_MANAGER: NovaIOManager(nova=nova)},
            executor=executor,
        )
