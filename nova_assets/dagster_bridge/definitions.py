"""Dagster definitions of a project."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Literal

from dagster import (
    AssetsDefinition,
    AssetSelection,
    AutomationConditionSensorDefinition,
    BackfillPolicy,
    BetaWarning,
    ConfigurableResource,
    DefaultSensorStatus,
    Definitions,
    ExecutorDefinition,
    JobDefinition,
    PreviewWarning,
    ResourceDefinition,
    SensorDefinition,
    SupersessionWarning,
    in_process_executor,
)
from dagster._core.definitions.assets.graph.asset_graph import AssetGraph
from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition

from nova_assets.dagster_bridge.arrivals import receive_sensor_job
from nova_assets.dagster_bridge.asset_checks import build_channel_checks
from nova_assets.dagster_bridge.assets import StepLayout, build_binding_asset, build_external_assets, build_sink_job
from nova_assets.dagster_bridge.condition import has_own_condition, register_reader
from nova_assets.dagster_bridge.dagster_names import DagsterNames
from nova_assets.dagster_bridge.dataset_ticks import tick_sensor_job
from nova_assets.dagster_bridge.grouped_triggers import build_due_runs, build_grouped_sensors
from nova_assets.dagster_bridge.lost_runs import build_lost_runs_sensor
from nova_assets.dagster_bridge.maintenance import maintenance_sensor_job
from nova_assets.dagster_bridge.notify_sensor import build_notify_sensor
from nova_assets.dagster_bridge.published_tables import publish_tables_sensor_job
from nova_assets.dagster_bridge.resources import (
    NovaResource,
    register_project,
    register_pyspark,
)
from nova_assets.dagster_bridge.run_process import job_of_run_process
from nova_assets.dagster_bridge.sensor_job import SensorJob
from nova_assets.dagster_bridge.triggers import BindingJobDefinition, build_trigger_sensor
from nova_assets.dagster_bridge.unneeded_assets import build_unneeded_asset
from nova_assets.dagster_bridge.unreported_commits import build_unreported_commits_sensor
from nova_assets.dagster_bridge.writing_assets import add_writing_assets, reading_binding
from nova_assets.errors import DefinitionError
from nova_assets.key_prefix import parse_key_prefix
from nova_assets.model.binding import Binding
from nova_assets.model.partitions import partition_values
from nova_assets.model.project import Project
from nova_assets.settings import Settings, load_settings
from nova_assets.store.arrival_watch import channels_with_source_or_seal
from nova_assets.store.external_definitions import check_sources_once

SensorLayout = Literal["grouped", "per_binding", "together"]

MAX_SENSORS_OF_BINDINGS = 10
"""Number of bindings with a trigger up to which each trigger has a sensor of its own.

Such a sensor costs about 0.1 s of CPU every five seconds.
"""


MIN_BINDINGS_TO_FREEZE = 100
"""Number of bindings from which the garbage collector leaves definitions out of its later work."""


def build_definitions(
    project: Project,
    *,
    catalog: str | None = None,
    warehouse: str | None = None,
    spark: str | ConfigurableResource[Any] | None = None,
    spark_config: dict[str, Any] | None = None,
    executor: ExecutorDefinition = in_process_executor,
    assets: Sequence[AssetsDefinition] = (),
    sensors: SensorLayout | None = None,
    steps: StepLayout = "per_task",
    backfill_policy: BackfillPolicy | None = None,
    key_prefix: str | Sequence[str] | None = None,
    root: str | Path | None = None,
) -> Definitions:
    """Dagster definitions of a project: assets, jobs, sensors and resources.

    Bindings become graph-backed multi-assets. Channels that no binding writes become external assets. Merge the result
    with other definitions through ``dg.Definitions.merge``.

    Args:
        project: the project whose bindings and channels are defined.
        catalog: SQLAlchemy URL of the catalog, as for ``nova.open``.
        warehouse: folder or URL of the warehouse, as for ``nova.open``.
        spark: origin of the Spark session, as in ``Settings.spark``: ``local``, ``server``, ``sc://host:port`` or
            ``spark://host:port``. Or a resource of dagster-pyspark (``PySparkResource`` or ``LazyPySparkResource``),
            whose session does all work.
        spark_config: additional settings of the Spark session, unless ``spark`` is a resource.
        assets: users' own assets. Those whose metadata has ``nova/produces`` write channels of the project.
        sensors: ``per_binding`` evaluates each trigger in a sensor of its own. ``grouped`` evaluates all triggers in
            one sensor, ``nova_triggers``. The default is ``grouped`` for more than 10 bindings with a trigger.
            ``together`` runs all bindings that are due in one run of the job ``nova_due``: they share common rows, and
            a binding follows another one without waiting for a sensor. In all cases, each binding has a sensor that
            switches the binding off.
        steps: ``per_task`` makes each task of a binding a step, between the steps ``begin`` and ``commit``. ``one``
            carries out an execution in one step, whose tasks are lines of the log. This saves Dagster's time for the
            other steps.
        backfill_policy: Dagster's policy for the backfills of bindings with partitions. With
            ``BackfillPolicy.single_run()``, one run carries out the executions of a range of partitions, one after the
            other, each with its own commit. It needs ``steps="one"``. By default, each partition has a run.
        executor: Dagster executor of the jobs. The in-process default keeps Spark warm from step to step (DESIGN §5).
        key_prefix: first parts of all asset keys of the project. The names of its jobs, sensors, steps and resources
            begin with them, too. Definitions with different prefixes can be merged. By default, the setting
            ``key_prefix``.
        root: folder where the search for pyproject.toml and its ``[tool.nova]`` starts, by default the current one.
    """
    _check_backfill_policy(backfill_policy, steps)
    check_sources_once(project.channels, is_refreshed=lambda channel: True)  # only warns
    settings = load_settings(None if root is None else Path(root))
    names = DagsterNames(settings.key_prefix if key_prefix is None else parse_key_prefix(key_prefix))
    with warnings.catch_warnings(), _without_garbage_collection(len(project.bindings)):
        warnings.simplefilter("ignore", BetaWarning)  # from_graph and asset specs have beta parts
        warnings.simplefilter("ignore", PreviewWarning)
        warnings.simplefilter("ignore", SupersessionWarning)  # multi-asset sensors (DESIGN §5)
        with_assets, own_assets = add_writing_assets(project, assets, names)
        nova = NovaResource(
            catalog=catalog,
            warehouse=warehouse,
            project=register_project(with_assets),
            spark=spark if spark is None or isinstance(spark, str) else register_pyspark(spark),
            spark_config=spark_config or {},
            key_prefix=list(names.prefix),
            root=None if root is None else str(root),
        )
        sensor_jobs = list(_sensor_jobs(with_assets))
        needed = _needed_bindings(project, sensor_jobs, names)
        has_data = partial(_scope_has_data, nova, with_assets)
        binding_assets = [
            build_binding_asset(b, with_assets, names, has_data, steps, backfill_policy)
            if b.name in needed
            else build_unneeded_asset(b, with_assets, names, has_data, backfill_policy)
            for b in project.bindings
            if b.writes
        ]
        jobs = {b.name: _build_binding_job(b, names, steps) for b in project.bindings}
        background_work = [sensor_job.build_definitions(nova) for sensor_job in sensor_jobs]
        triggered = [b for b in project.bindings if b.when is not None and b.name in needed]
        due_jobs, trigger_sensors = _build_trigger_sensors(triggered, jobs, nova, sensors)
        return Definitions(
            assets=[*binding_assets, *own_assets, *build_external_assets(with_assets, names)],
            asset_checks=build_channel_checks(project, names),
            jobs=[*jobs.values(), *due_jobs, *(job for job, _ in background_work)],
            sensors=[
                *trigger_sensors,
                *_reporting_sensors(nova, settings),
                *(sensor for _, sensor in background_work),
                *_sensors_of_conditions(own_assets, with_assets, nova),
            ],
            resources={names.resource: nova, names.io_manager: nova},
            executor=executor,
        )


def _check_backfill_policy(backfill_policy: BackfillPolicy | None, steps: StepLayout) -> None:
    """Raise DefinitionError if a run for several partitions would have several steps."""
    if backfill_policy is not None and backfill_policy.max_partitions_per_run != 1 and steps != "one":
        raise DefinitionError(
            "a run for several partitions of a binding is one step",
            found=f'{backfill_policy} and steps="{steps}"',
            next='build_definitions(..., steps="one")',
        )


def _needed_bindings(project: Project, sensor_jobs: Sequence[SensorJob], names: DagsterNames) -> set[str]:
    """Bindings whose steps and triggers this process needs: all of them, unless it carries out a run of another job."""
    job, bindings = job_of_run_process(), {names.name(b.name): b.name for b in project.bindings}
    if job in bindings:
        return {bindings[job]}
    return set() if job in {names.name(s.name) for s in sensor_jobs} else set(bindings.values())


@contextmanager
def _without_garbage_collection(bindings: int) -> Iterator[None]:
    """Definitions live as long as the process. Looking for garbage among them is a third of the time to build them.

    Dagster goes on to build jobs from them, and a run works beside them. So the collector leaves out the definitions of
    many bindings from then on. If a process builds such definitions again, it leaves out the first ones only.
    """
    freezes = bindings >= MIN_BINDINGS_TO_FREEZE and gc.get_freeze_count() == 0
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
        if freezes:
            gc.freeze()
    finally:
        if was_enabled:
            gc.enable()


def _build_trigger_sensors(
    triggered: list[Binding],
    jobs: Mapping[str, BindingJobDefinition],
    nova: NovaResource,
    layout: SensorLayout | None,
) -> tuple[list[JobDefinition], list[SensorDefinition]]:
    if layout == "together" and triggered:
        job, sensors = build_due_runs(triggered, jobs, nova)
        return [job], sensors
    if (layout or ("grouped" if len(triggered) > MAX_SENSORS_OF_BINDINGS else "per_binding")) == "grouped":
        return [], build_grouped_sensors(triggered, jobs, nova)
    return [], [s for b in triggered if (s := build_trigger_sensor(b, jobs[b.name], nova)) is not None]


def _sensors_of_conditions(
    assets: Sequence[AssetsDefinition], project: Project, nova: NovaResource
) -> Iterator[AutomationConditionSensorDefinition]:
    """A sensor for the assets with a condition that only the process of the definitions can evaluate."""
    judged = [a for a in assets if any(has_own_condition(s.automation_condition) for s in a.specs)]
    for asset in judged:
        channels = [c for key in asset.keys if (c := nova.names.channel(key)) is not None]
        writers = [w for c in channels if (w := project.writer(c)) is not None]
        binding = writers[0] if writers else reading_binding(asset, project, nova.names)
        if binding is not None:
            for key in asset.keys:
                register_reader(key, nova, binding)
    if judged:
        yield AutomationConditionSensorDefinition(
            nova.names.name("nova_automation"),
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


def _reporting_sensors(nova: NovaResource, settings: Settings) -> list[SensorDefinition]:
    """Sensors that report to Dagster, and to the notifiers of the settings if there are any."""
    notify = [build_notify_sensor(nova)] if settings.notify else []
    return [build_unreported_commits_sensor(nova), build_lost_runs_sensor(nova), *notify]


def _scope_has_data(nova: NovaResource, project: Project, scope: str) -> bool:
    """Whether any channel of the project has data in a partition or in a scope of partitions."""
    catalog, columns = nova.store().catalog, set(partition_values(scope))
    heads = catalog.scheduler.heads()
    channels = [c.name for c in project.channels if columns <= set(c.partition_columns) and heads.get(c.name)]
    return any(catalog.histories.partitions(channel, scope) for channel in channels)


def _build_binding_job(binding: Binding, names: DagsterNames, steps: StepLayout) -> BindingJobDefinition:
    """Job that runs all steps of a binding. The job has the binding's name."""
    if not binding.writes:
        return build_sink_job(binding, names, steps)
    selection = AssetSelection.assets(*(names.key(c.name) for c in binding.writes))
    return BindingJob(names.name(binding.name), selection, description=binding.description)


class BindingJob(UnresolvedAssetJobDefinition):
    """Job that materializes the channels that a binding writes.

    Dagster resolves each job against all assets of the code location, so the time to load a location grows with the
    square of the number of bindings. This job is resolved only against its own assets, their parents and their checks.
    """

    def resolve(
        self,
        asset_graph: AssetGraph,
        default_executor_def: ExecutorDefinition | None = None,
        resource_defs: Mapping[str, ResourceDefinition] | None = None,
    ) -> JobDefinition:
        return super().resolve(_subgraph_with_parents(asset_graph, self.selection), default_executor_def, resource_defs)


def _subgraph_with_parents(asset_graph: AssetGraph, selection: AssetSelection) -> AssetGraph:
    """Asset graph of the selected assets, their parents and their checks."""
    selected = [asset_graph.get(key) for key in selection.resolve(asset_graph)]
    parents = [asset_graph.get(key) for node in selected for key in node.parent_keys]
    checks = {key: asset_graph.assets_def_for_key(key) for node in selected for key in node.check_keys}
    return AssetGraph({node.key: node for node in (*parents, *selected)}, checks)
