"""Triggers as sensors: they decide by ``plan/due`` alone.

A firing is a row in the catalog before its run is requested, so a daemon that dies in between loses nothing and repeats
nothing: the next tick finds the row, and whether its run is known to Dagster. Nothing is kept in a sensor's cursor.
Times are sensors, too: the tick of a schedule comes once, and sees to no firing whose run failed or had to wait.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial

from dagster import (
    DagsterInstance,
    DagsterRunStatus,
    DefaultSensorStatus,
    JobDefinition,
    RunRecord,
    RunRequest,
    RunsFilter,
    SensorDefinition,
    SensorEvaluationContext,
    SkipReason,
)
from dagster._core.definitions.partitions.context import partition_loading_context
from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition

from nova_assets.crash import crash_point
from nova_assets.dagster_bridge.ops import FIRING_TAG
from nova_assets.dagster_bridge.owners import live_execution
from nova_assets.dagster_bridge.partitions import key_of, partitions_def
from nova_assets.dagster_bridge.resources import NovaResource
from nova_assets.dagster_bridge.sealed import sealed_of, sealing
from nova_assets.model.binding import Binding
from nova_assets.model.execution import Execution
from nova_assets.model.partitions import WHOLE, scope_of
from nova_assets.model.ports import Firing, Unread
from nova_assets.model.trigger import After, Trigger
from nova_assets.plan.due import Facts, decide, retry_at
from nova_assets.store import Store

log = logging.getLogger("nova_assets.triggers")

RUN_KEY_TAG = "dagster/run_key"
WHY_TAG = "nova/why"

AT_ONCE = 25
"""Runs requested by one tick, of as many partitions."""

ON_ITS_WAY = timedelta(seconds=10)
"""So long a firing's run may take until Dagster has it, whoever requested it."""

INTERVAL = 5  # seconds; Dagster's sensor loop is no faster


def sensor_name(binding: Binding) -> str:
    """What the sensor of a binding is called."""
    return f"{binding.name}_sensor"


def trigger_of(
    binding: Binding, job: JobDefinition | UnresolvedAssetJobDefinition, nova: NovaResource
) -> SensorDefinition | None:
    """The sensor of a binding; None when it runs by hand alone."""
    when = binding.when
    if when is None:
        return None

    def on_tick(context: SensorEvaluationContext) -> RunRequest | list[RunRequest] | SkipReason:
        return evaluate(binding, when, nova.store(), context.instance)

    return SensorDefinition(
        name=sensor_name(binding),
        job=job,
        evaluation_fn=on_tick,
        minimum_interval_seconds=INTERVAL,
        default_status=DefaultSensorStatus.RUNNING,
        description=str(when),
    )


def evaluate(
    binding: Binding, when: Trigger, store: Store, instance: DagsterInstance, now: datetime | None = None
) -> RunRequest | list[RunRequest] | SkipReason:
    """One tick: go on with the firing under way, or see whether the next is due; in each partition by itself.

    Args:
        now: what time it is; the catalog's clock by default.
    """
    now = now or store.catalog.now()
    store.runtime.register(binding)
    if not binding.dimensions:
        return _evaluate(binding, when, store, instance, WHOLE, facts_of(binding, store, now))
    if any(c.seq > 0 and not c.partition for c in store.catalog.cursors(binding.name)):
        return SkipReason("it has been executed whole; to trigger it so, bind it with partitions=[]")
    requests: list[RunRequest] = []
    for partition, facts in partition_facts(binding, store, now).items():
        if not _is_known(binding, partition, instance):
            continue  # Dagster would refuse all the others with it: a day to come, or one that is not announced yet
        answer = _evaluate(binding, when, store, instance, partition, facts)
        if isinstance(answer, RunRequest):
            requests.append(answer)
        if len(requests) == AT_ONCE:
            break
    return requests or SkipReason("nothing is due in any partition")


def _is_known(binding: Binding, partition: str, instance: DagsterInstance) -> bool:
    """Whether Dagster has this partition of the binding."""
    partitions = partitions_def(binding.dimensions)
    with partition_loading_context(dynamic_partitions_store=instance):
        return partitions is not None and partitions.has_partition_key(key_of(binding.dimensions, partition))


def _evaluate(
    binding: Binding, when: Trigger, store: Store, instance: DagsterInstance, partition: str, facts: Facts
) -> RunRequest | SkipReason:
    catalog = store.catalog
    last, ended = catalog.last_firing(binding.name, partition), ""
    if last is not None and last.state == "requested":
        answer = _under_way(binding, last, store, instance, facts.now)
        if not isinstance(answer, str):
            return answer
        ended = f"{answer}; "
    busy = live_execution(catalog, binding.name, instance, partition)
    if busy is not None:
        return SkipReason(ended + _wait(busy))
    decision = decide(when, last.positions if last is not None else {}, facts)
    if not decision.due:
        return SkipReason(ended + decision.why)
    crash_point("fire.before")
    firing = catalog.fire(binding.name, last.n if last is not None else 0, decision.positions, partition, decision.why)
    if firing is None:
        return SkipReason("another process has fired it")
    crash_point("fire.after")
    log.info("%s fires: %s", binding.name, decision.why)
    return _request(binding, firing)


def facts_of(binding: Binding, store: Store, now: datetime) -> Facts:
    """What the decision rests on, from the catalog; of a partitioned binding, for an execution of the whole."""
    catalog = store.catalog
    return Facts(
        now=now,
        since=catalog.registered_at(binding.name),
        heads={s.channel.name: s.news for s in catalog.channels()},
        cursors={c.channel: c.seq for c in catalog.cursors(binding.name)},
        finished=_finished(_counts(binding, store)),
        sealed={c: catalog.seal_count(c) for c in sealing(binding)},
        unread=catalog.unread,
    )


def _counts(binding: Binding, store: Store) -> dict[tuple[str, str, str], int]:
    """How often others were executed: counted over all executions there ever were, so only for who asks for it."""
    return store.catalog.finished() if any(isinstance(t, After) for t in binding.triggers) else {}


def _finished(counts: Mapping[tuple[str, str, str], int], partition: str = WHOLE) -> dict[tuple[str, str], int]:
    """(binding, status) -> how often, as one partition sees it: by executions for it, and by those for the whole."""
    found: dict[tuple[str, str], int] = {}
    for (binding, executed, status), n in counts.items():
        if partition == WHOLE or executed in (WHOLE, partition):
            found[binding, status] = found.get((binding, status), 0) + n
    return found


def partition_facts(binding: Binding, store: Store, now: datetime) -> dict[str, Facts]:
    """For each partition that has unread data on some input, or a firing under way, the facts as they are there.

    A channel without any of the binding's dimensions is read whole by all of its partitions: what comes there is new
    to every one that is known.
    """
    facts, counts = facts_of(binding, store, now), _counts(binding, store)
    columns = [d.column for d in binding.dimensions]
    cursors: dict[tuple[str, str], int] = {(c.partition, c.channel): c.seq for c in store.catalog.cursors(binding.name)}
    under_way = store.catalog.requested(binding.name)
    heads: dict[str, dict[str, int]] = {p: {} for p in (*(p for p, _ in cursors), *under_way)}
    inputs = [c for c in binding.reads if c not in binding.writes]
    for channel in inputs:
        for state in store.catalog.partitions(channel.name):
            scope = scope_of(columns, state.partition) if state.partition else ""
            if scope.count("/") == len(columns) - 1 and scope:
                of = heads.setdefault(scope, {})
                of[channel.name] = max(of.get(channel.name, 0), state.news)
    sealed = sealed_of(binding, store)
    for partition in sealed.partitions():
        heads.setdefault(partition, {})
    whole = {c.name: facts.heads.get(c.name, 0) for c in inputs if not set(columns) & set(c.partition_columns)}
    found = {}
    for partition, of in sorted(heads.items()):
        seen = {c.name: cursors.get((partition, c.name), 0) for c in inputs}
        now_at = {**facts.heads, **{c.name: 0 for c in inputs}, **whole, **of}
        seals = {**facts.sealed, **sealed.of(partition)}
        if partition in under_way or any(seals.values()) or any(now_at[c] > seen[c] for c in seen):
            found[partition] = replace(
                facts,
                heads=now_at,
                cursors=seen,
                finished=_finished(counts, partition),
                sealed=seals,
                unread=partial(_unread_in, store, columns, partition),
            )
    return found


def _unread_in(store: Store, columns: list[str], partition: str, channel: str, after: int) -> Unread:
    """Of a channel, what a partition of the binding reads of it: its own part; all, where they share no dimension."""
    shared = [c for c in store.catalog.channel(channel).channel.partition_columns if c in columns]
    return store.catalog.unread(channel, after, scope_of(shared, partition))


def _under_way(
    binding: Binding, firing: Firing, store: Store, instance: DagsterInstance, now: datetime
) -> RunRequest | SkipReason | str:
    """What a requested firing needs; or how it has ended, and then the next may be judged.

    A firing whose run is not known to Dagster is requested again under the same key; one whose run came to nothing
    under the next, some time later, once the execution of that run is out of the way.
    """
    records = instance.get_run_records(RunsFilter(tags={FIRING_TAG: firing.id, RUN_KEY_TAG: firing.run_key}), limit=1)
    if not records:
        if now - firing.at < ON_ITS_WAY:
            return SkipReason(f"the run of firing {firing.n} has just been requested")
        return _request(binding, firing)
    run = records[0].dagster_run
    if not run.is_finished:
        return SkipReason(f"run {run.run_id} of firing {firing.n} is under way")
    if run.status == DagsterRunStatus.SUCCESS:
        store.catalog.end_firing(firing.id, "committed")
        return f"firing {firing.n} is done"
    if run.status == DagsterRunStatus.CANCELED:  # by a person, who would not have it begin again
        what = f"firing {firing.n} of {firing.binding} is abandoned: run {run.run_id} was canceled"
        log.warning("%s; to run it by hand: nova run %s", what, firing.binding)
        store.catalog.end_firing(firing.id, "abandoned", f"run {run.run_id} was canceled")
        return what
    if firing.attempt >= binding.attempts:
        what = f"firing {firing.n} of {firing.binding} is abandoned after {firing.attempt} failed runs"
        log.error("%s, the last of them %s; once mended, run it by hand: nova run %s", what, run.run_id, firing.binding)
        store.catalog.end_firing(firing.id, "abandoned", f"{firing.attempt} runs failed, the last of them {run.run_id}")
        return f"{what}, the last of them {run.run_id}; once mended, run it by hand"
    again_at = retry_at(binding, firing, _ended(records[0]))
    if now < again_at:
        return SkipReason(f"run {run.run_id} of firing {firing.n} failed; the next comes at {again_at:%H:%M:%S} UTC")
    busy = live_execution(store.catalog, firing.binding, instance, firing.partition)
    if busy is not None:
        return SkipReason(_wait(busy))
    again = store.catalog.retry_firing(firing.id, firing.attempt)
    return SkipReason("another process tries it again") if again is None else _request(binding, again)


def _ended(record: RunRecord) -> datetime:
    return record.update_timestamp if record.end_time is None else datetime.fromtimestamp(record.end_time, UTC)


def _wait(busy: Execution) -> str:
    return f"execution {busy.id} of {busy.owner} is alive, until {busy.lease_until:%H:%M:%S} UTC if it says no more"


def _request(binding: Binding, firing: Firing) -> RunRequest:
    return RunRequest(
        run_key=firing.run_key,
        tags={FIRING_TAG: firing.id, "nova/binding": firing.binding, **({WHY_TAG: firing.why} if firing.why else {})},
        partition_key=key_of(binding.dimensions, firing.partition) if firing.partition else None,
    )
