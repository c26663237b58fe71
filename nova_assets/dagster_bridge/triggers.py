"""Triggers as sensors and schedules. They decide by ``plan/due`` alone; a firing is a row in the catalog before its run
is requested, so that a daemon that dies in between loses and repeats nothing."""

from __future__ import annotations

from datetime import UTC, datetime

from dagster import (
    DagsterInstance,
    DagsterRunStatus,
    DefaultScheduleStatus,
    DefaultSensorStatus,
    RunRequest,
    RunsFilter,
    ScheduleDefinition,
    ScheduleEvaluationContext,
    SensorDefinition,
    SensorEvaluationContext,
    SkipReason,
)
from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition

from nova_assets.dagster_bridge.ops import FIRING_TAG
from nova_assets.dagster_bridge.resources import NovaResource
from nova_assets.model.binding import Binding
from nova_assets.model.ports import Firing
from nova_assets.model.trigger import Cron, Trigger
from nova_assets.plan.due import Facts, decide
from nova_assets.store import Store

ATTEMPTS = 3
"""How many runs a firing is worth before it is abandoned."""

INTERVAL = 5  # seconds; Dagster's sensor loop is no faster


def trigger_of(
    binding: Binding, job: UnresolvedAssetJobDefinition, nova: NovaResource
) -> SensorDefinition | ScheduleDefinition | None:
    """The sensor or schedule of a binding; None when it runs by hand alone."""
    when = binding.when
    if when is None:
        return None

    def on_tick(context: SensorEvaluationContext) -> RunRequest | SkipReason:
        return evaluate(binding, when, nova.store(), context.instance)

    def on_schedule(context: ScheduleEvaluationContext) -> RunRequest | SkipReason:
        return evaluate(binding, when, nova.store(), context.instance, context.scheduled_execution_time)

    if isinstance(when, Cron):
        return ScheduleDefinition(
            name=f"{binding.name}_schedule",
            job=job,
            cron_schedule=when.expression,
            execution_timezone=when.tz,
            execution_fn=on_schedule,
            default_status=DefaultScheduleStatus.RUNNING,
            description=str(when),
        )
    return SensorDefinition(
        name=f"{binding.name}_sensor",
        job=job,
        evaluation_fn=on_tick,
        minimum_interval_seconds=INTERVAL,
        default_status=DefaultSensorStatus.RUNNING,
        description=str(when),
    )


def evaluate(
    binding: Binding, when: Trigger, store: Store, instance: DagsterInstance, now: datetime | None = None
) -> RunRequest | SkipReason:
    """One tick: finish with the firing under way, or see whether the next is due."""
    store.runtime.register(binding)
    catalog = store.catalog
    last = catalog.last_firing(binding.name)
    if last is not None and last.state == "requested":
        return _under_way(last, store, instance)
    decision = decide(when, last.positions if last is not None else {}, facts_of(binding, store, now))
    if not decision.due:
        return SkipReason(decision.why)
    firing = catalog.fire(binding.name, last.n if last is not None else 0, decision.positions)
    return SkipReason("another process has fired it") if firing is None else _request(firing)


def facts_of(binding: Binding, store: Store, now: datetime | None = None) -> Facts:
    """What the decision rests on, from the catalog."""
    catalog = store.catalog
    return Facts(
        now=now or datetime.now(UTC),
        since=catalog.registered_at(binding.name),
        heads={s.channel.name: s.head for s in catalog.channels()},
        cursors={c.channel: c.seq for c in catalog.cursors(binding.name)},
        finished=catalog.finished(),
    )


def _under_way(firing: Firing, store: Store, instance: DagsterInstance) -> RunRequest | SkipReason:
    """A firing whose run is not known to Dagster is requested again under the same key; a failed run counts an
    attempt."""
    runs = instance.get_runs(RunsFilter(tags={FIRING_TAG: firing.id}), limit=ATTEMPTS + 1)
    mine = [r for r in runs if r.tags.get("dagster/run_key") == firing.run_key]
    if not mine:
        return _request(firing)
    if not mine[0].is_finished:
        return SkipReason(f"run {mine[0].run_id} of firing {firing.n} is under way")
    if mine[0].status == DagsterRunStatus.SUCCESS:
        store.catalog.end_firing(firing.id, "committed")
        return SkipReason(f"firing {firing.n} is done")
    if firing.attempt >= ATTEMPTS:
        store.catalog.end_firing(firing.id, "abandoned")
        return SkipReason(
            f"firing {firing.n} is abandoned after {firing.attempt} failed runs; run it by hand once mended"
        )
    again = store.catalog.retry_firing(firing.id, firing.attempt)
    return SkipReason("another process tries it again") if again is None else _request(again)


def _request(firing: Firing) -> RunRequest:
    return RunRequest(run_key=firing.run_key, tags={FIRING_TAG: firing.id, "nova/binding": firing.binding})
