"""The steps of a bound workflowette: begin, one per task, commit (R4).

All that passes between them is a small description of the execution, which Dagster keeps: a run that starts again from
its failure goes on with the same pins.

(Annotations are left as they are here: Dagster looks at the type of ``context`` when an op is made.)
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from dagster import (
    AssetCheckResult,
    Backoff,
    Failure,
    In,
    Nothing,
    OpDefinition,
    OpExecutionContext,
    Out,
    Output,
    RetryPolicy,
    op,
)
from dagster._core.storage.tags import BACKFILL_ID_TAG

from nova_assets.crash_points import crash_point
from nova_assets.dagster_bridge.asset_checks import check_specs, evaluation_of, result_of
from nova_assets.dagster_bridge.logs import forwarded
from nova_assets.dagster_bridge.materializations import describe, output_of, unchanged_output
from nova_assets.dagster_bridge.partitions import announce, paired_columns, partition_of
from nova_assets.dagster_bridge.resources import IO_MANAGER, RESOURCE
from nova_assets.dagster_bridge.run_liveness import is_gone, owner_of
from nova_assets.dagster_bridge.timeline_metadata import timelines
from nova_assets.errors import CommitConflict, ExecutionInProgress, ExecutionNotLive
from nova_assets.execution.data_checks import refusal
from nova_assets.execution.runtime import Runtime
from nova_assets.model.binding import Binding
from nova_assets.model.commit import Commit
from nova_assets.model.execution import Execution
from nova_assets.model.partitions import WHOLE, scope_of
from nova_assets.model.task import Task
from nova_assets.store.store import Store

FIRING_TAG = "nova/firing"
ATTEMPT_TAG = "nova/attempt"
"""Number of the run among those requested for its firing, from 1."""
WHOLE_TAG = "nova/whole"
"""A run with this tag set to ``true`` executes all partitions as one, as ``nova run --whole`` does."""

EXECUTION = "execution"


def step_name(binding: Binding, step: str) -> str:
    """Names of steps are unique in a code location, so they begin with the binding's."""
    return f"{binding.name}__{step}"


def begin_op(binding: Binding, upstream: list[str]) -> OpDefinition:
    """Pins heads and cursors. The channels that are read are inputs without data: the runtime reads by pins."""

    @op(
        name=step_name(binding, "begin"),
        ins={c: In(Nothing) for c in upstream},
        out={EXECUTION: Out(dict)},
        required_resource_keys={RESOURCE},
        description=f"Pin what {binding.name} reads.",
    )
    def begin(context: OpExecutionContext) -> Iterator[Output[dict[str, Any]]]:
        runtime = _runtime(context)
        runtime.sweep()
        execution = _begin(context, runtime, binding)
        pins = {c: {"head": p.head, "cursor": p.cursor} for c, p in execution.pins.items()}
        context.log.info(f"execution {execution.id} pins {pins}")
        yield Output(
            {"id": execution.id, "binding": binding.name},
            EXECUTION,
            metadata={"nova/execution": execution.id, "nova/pins": pins},
        )

    return begin


def task_op(binding: Binding, task: Task, after: tuple[str, ...]) -> OpDefinition:
    """Reads, calls and stages one task."""
    delay, grows = (task.retry_delay, Backoff.EXPONENTIAL) if task.retry_delay else (None, None)
    retries = RetryPolicy(max_retries=task.retries, delay=delay, backoff=grows) if task.retries else None

    @op(
        name=step_name(binding, task.name),
        ins={EXECUTION: In(dict), **{f"after_{t}": In(Nothing) for t in after}},
        out={"report": Out(dict)},
        required_resource_keys={RESOURCE},
        retry_policy=retries,
        description=task.description,
    )
    def run_task(context: OpExecutionContext, execution: dict[str, Any]) -> Iterator[Output[dict[str, Any]]]:
        runtime = _runtime(context)
        last_try = context.retry_number >= task.retries
        with forwarded(context.log), _live(context, runtime, execution) as live:
            report = runtime.run_task(live, task.name, last_try)
        known = report.as_json()
        shown = {fact: known[fact] for fact in ("read", "wrote", "skipped", "ways")}
        context.log.info(f"task {task.name}: {shown} in {report.seconds:.1f} s")
        rows = {f"rows in {port}": n for port, n in report.wrote.items() if n is not None}
        yield Output(shown, "report", metadata={"seconds": report.seconds, "nova/report": shown, **rows})

    return run_task


def checks_op(binding: Binding) -> OpDefinition:
    """Looks at what is staged. A failing check that blocks ends the execution; Dagster then goes no further."""
    specs = check_specs(binding)

    @op(
        name=step_name(binding, "checks"),
        ins={EXECUTION: In(dict), **{f"after_{t.name}": In(Nothing) for t in binding.tasks}},
        out={s.get_python_identifier(): Out(Nothing) for s in specs},
        required_resource_keys={RESOURCE},
        description=f"Look at what {binding.name} staged before it is published.",
    )
    def checks(context: OpExecutionContext, execution: dict[str, Any]) -> Iterator[AssetCheckResult]:
        runtime = _runtime(context)
        with forwarded(context.log), _live(context, runtime, execution) as live:
            reports = runtime.check(live)
            if any(r.blocks for r in reports):
                error = refusal(live, reports)
                runtime.fail(live, error)
                context.log.error(str(error))
        yield from map(result_of, reports)

    return checks


def commit_op(binding: Binding) -> OpDefinition:
    """Publishes everything in one transaction; then the blocks appear as materializations, upstream first."""
    ports = [e.port for t in binding.workflowette.in_order() for e in t.produces]
    order = {binding.channels[p].name: n for n, p in enumerate(ports) if p in binding.channels}

    @op(
        name=step_name(binding, "commit"),
        ins={
            EXECUTION: In(dict),
            **{f"after_{t.name}": In(Nothing) for t in binding.tasks},
            **({"after_checks": In(Nothing)} if binding.checks else {}),
        },
        out={c.name: Out(Nothing, io_manager_key=IO_MANAGER) for c in binding.writes},
        required_resource_keys={RESOURCE},
        description=f"Publish what {binding.name} staged, and move its cursors, at once or not at all.",
    )
    def commit(context: OpExecutionContext, execution: dict[str, Any]) -> Iterator[Output[None]]:
        store: Store = context.resources.nova.store()
        with forwarded(context.log):
            made = _commit(context, _runtime(context), store.catalog.execution(execution["id"]))
        context.log.info(describe(made))
        seconds = (made.at - store.catalog.execution(made.execution_id).started_at).total_seconds()
        crash_point("publish.before")
        paired = paired_columns(store.project)
        channels = {c.name: c for c in binding.writes}
        announce(context.instance, channels, [(b.channel, b.partition) for b in made.blocks], paired)
        written = sorted({b.channel for b in made.blocks}, key=lambda c: order[c])
        shown = timelines(store, written)
        for channel in sorted(order, key=lambda c: order[c]):
            if channel in written:
                facts = {**shown.get(channel, {}), "nova/seconds": round(seconds, 3)}
                yield output_of(made, channel, store.settings.warehouse, store.project, facts)
            else:
                version = _newest_in(store, channel, store.catalog.execution(made.execution_id).partition)
                yield unchanged_output(channel, version, materialized=BACKFILL_ID_TAG in context.run.tags)
        crash_point("publish.after")
        store.catalog.mark_published(made.id)

    return commit


def _newest_in(store: Store, channel: str, partition: str) -> int:
    """Sequence number of the newest block in the part of a channel that an execution writes; 0 if there is none."""
    state = store.catalog.channel(channel)
    scope = scope_of(state.channel.partition_columns, partition)
    return max((p.seq for p in store.catalog.partitions(channel, scope)), default=0) if scope else state.head


def _begin(context: OpExecutionContext, runtime: Runtime, binding: Binding) -> Execution:
    """Begin; an execution whose run has ended is not waited for."""
    firing = _firing(context, runtime)
    partition = partition_of(binding.dimensions, context.partition_key) if context.has_partition_key else WHOLE
    whole = context.run.tags.get(WHOLE_TAG) == "true"
    try:
        return runtime.begin(binding.name, partition, whole=whole, run_id=context.run_id, firing_id=firing)
    except ExecutionInProgress as busy:
        if not is_gone(busy.fields.get("owner", ""), context.instance):
            raise
        runtime.catalog.abort(busy.fields["execution_id"], f"its run has ended; superseded by run {context.run_id}")
        return runtime.begin(binding.name, partition, whole=whole, run_id=context.run_id, firing_id=firing)


def _firing(context: OpExecutionContext, runtime: Runtime) -> str | None:
    """The firing that this run is to answer. One that has ended is answered: who runs it again does so by hand."""
    firing_id = context.run.tags.get(FIRING_TAG)
    firing = None if firing_id is None else runtime.catalog.firing(firing_id)
    return firing.id if firing is not None and firing.state == "requested" else None


@contextmanager
def _live(context: OpExecutionContext, runtime: Runtime, execution: dict[str, Any]) -> Iterator[Execution]:
    """The execution that the begin step opened, in this run or in one that has ended, and is gone on with.

    Where another has taken over, trying again cannot help (R4).
    """
    try:
        yield runtime.attach(execution["id"], context.run_id, lambda owner: is_gone(owner, context.instance))
    except ExecutionNotLive as ended:
        ended.next = "run the binding again, whole"
        raise Failure(ended.render(), allow_retries=False) from ended


def _commit(context: OpExecutionContext, runtime: Runtime, execution: Execution) -> Commit:
    if execution.state == "committed" and execution.commit_id is not None:
        context.log.info("the commit was made before; it is reported again")
        return runtime.catalog.commit_by_id(execution.commit_id)
    try:
        with _live(context, runtime, {"id": execution.id}) as live:
            return runtime.commit(live)
    except CommitConflict as conflict:
        if conflict.reason == "execution":  # it was taken for lost: whoever did so runs the binding again
            raise Failure(conflict.render(), allow_retries=False) from conflict
        context.log.warning(f"{conflict}\nthe binding is planned and run again, within this step")
        again = runtime.run(
            execution.binding or "",
            execution.partition,
            whole=execution.partition == WHOLE,
            run_id=context.run_id,
            firing_id=_firing(context, runtime),
        )
        for report in again.checks:  # what was found before is not of what is published now
            context.log_event(evaluation_of(report))  # type: ignore[arg-type]  # takes these, too
        assert again.commit is not None
        return again.commit


def _runtime(context: OpExecutionContext) -> Runtime:
    """The store's runtime, signing for this run: its steps may be several processes."""
    store: Store = context.resources.nova.store()
    settings = store.settings
    return Runtime(
        store.catalog,
        store.engine,
        store.project,
        lease=settings.lease,
        grace=settings.grace,
        owner=owner_of(context.run_id, context.instance),
        frames=store.runtime.frames,
        viewing=store.runtime.viewing,
    )
