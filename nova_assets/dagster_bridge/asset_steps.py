"""The executions of one step of a user's asset that writes channels: one for each partition that the run is for.

    inputs ─► begin (pin) ─► the function ─► stage ─► blocking checks ─► commit ─► outputs and their materializations

Dagster loads the inputs of a step before it calls the function. So the first input begins the executions, and each
later part of the step attaches to them. A retry of the step has the same pins (R4).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import pyarrow as pa
from dagster import DagsterRun
from dagster._core.definitions.partitions.context import partition_loading_context
from dagster._core.storage.tags import ASSET_RESUME_RETRY_TAG, RESUME_RETRY_TAG

from nova_assets.dagster_bridge.partitions import parse_dagster_key
from nova_assets.dagster_bridge.run_liveness import begin_for_run, execution_owner_of_run
from nova_assets.errors import ExecutionInProgress, NotSupported, SchemaMismatch
from nova_assets.execution.data_checks import check_failed_error
from nova_assets.execution.runtime import Runtime
from nova_assets.model.binding import Binding
from nova_assets.model.channel import Channel
from nova_assets.model.commit import Commit
from nova_assets.model.execution import CheckReport, Execution
from nova_assets.model.modes_view import View
from nova_assets.model.partitions import WHOLE
from nova_assets.store.store import Store


@dataclass
class AssetStep:
    """The execution of a step for one partition.

    Args:
        partition_key: Dagster's key of the partition; empty if the asset has no partitions.
        commit: the commit, if an earlier attempt of the step has made it.
    """

    runtime: Runtime
    binding: Binding
    execution: Execution
    partition_key: str
    commit: Commit | None = None

    @property
    def _task(self) -> str:
        return self.binding.tasks[0].name

    def load_input(self, name: str, *, may_be_table: bool) -> Any:
        """Frame or ``View`` of an input.

        Args:
            may_be_table: whether few rows are read in this process, as a table.
        """
        return self.runtime.task_run(self.execution).load_input(self._task, name, may_be_table=may_be_table)

    def to_frame(self, channel: str, rows: Any) -> Any:
        """Rows that the function returned for a channel, as a frame or a table."""
        return self.runtime.task_run(self.execution).to_frame(channel, rows)

    def stage(self, rows_by_channel: Mapping[str, Any]) -> None:
        """Stage what the function returned. Channels whose rows are missing or None do not change."""
        self.runtime.task_run(self.execution).stage_rows(self._task, rows_by_channel)

    def publish(self) -> None:
        """Publish the staged rows, and move the cursors, in one transaction (R2), unless that is done already.

        Raises:
            CommitConflict: another commit has changed what this execution relied on. The execution is aborted (R6).
        """
        if self.commit is None:
            self.commit = self.runtime.commit(self.execution)


def begin_or_attach(
    store: Store, binding: Binding, step_context: Any, scope_by_channel: Mapping[str, str] | None = None
) -> list[AssetStep]:
    """Attach to the executions that an earlier part or attempt of the step has begun, or begin them.

    Args:
        step_context: Dagster's context of the step.
        scope_by_channel: partitions that are read of each channel, if they do not follow from the asset's partition.

    Raises:
        ExecutionInProgress: another active run of the asset has an execution.
    """
    runtime = store.runtime.with_owner(execution_owner_of_run(step_context.run_id, step_context.instance))
    return [
        _begin_or_attach_partition(runtime, binding, step_context, key, scope_by_channel)
        for key in partition_keys_of_step(binding, step_context)
    ]


def _begin_or_attach_partition(
    runtime: Runtime, binding: Binding, step_context: Any, key: str, scope_by_channel: Mapping[str, str] | None
) -> AssetStep:
    run_id, catalog = step_context.run_id, runtime.catalog
    partition = parse_dagster_key(binding.dimensions, key) if key else WHOLE
    for known in catalog.executions.find(binding.name, 1, partition):
        if known.run_id not in (run_id, run_before_failure(step_context.dagster_run)):
            continue
        if known.state == "committed" and known.commit_id is not None and known.run_id == run_id:
            return AssetStep(runtime, binding, known, key, catalog.commits.by_id(known.commit_id))
        if known.state in ("running", "failed"):
            return AssetStep(runtime, binding, runtime.attach_to_execution(known.id, run_id), key)

    execution = begin_for_run(
        runtime,
        binding.name,
        partition,
        step_context.instance,
        run_id=run_id,
        whole=partition == WHOLE,
        scope_by_channel=scope_by_channel,
    )
    return AssetStep(runtime, binding, execution, key)


def run_before_failure(run: DagsterRun) -> str | None:
    """The failed run that a run continues; None if it does not continue another run."""
    is_continued = RESUME_RETRY_TAG in run.tags or ASSET_RESUME_RETRY_TAG in run.tags or run.step_keys_to_execute
    return run.parent_run_id if is_continued else None


def partition_keys_of_step(binding: Binding, step_context: Any) -> Sequence[str]:
    """Dagster's keys of the partitions that the step of an asset writes; one empty key if it has no partitions."""
    if not binding.dimensions:
        return [""]
    if not step_context.has_partition_key_range:
        return [step_context.partition_key]
    return keys_of_range(step_context)


def keys_of_range(step_context: Any) -> Sequence[str]:
    """Dagster's keys of the partitions for which a run of several partitions is."""
    with partition_loading_context(dynamic_partitions_store=step_context.instance):
        partitions = step_context.assets_def.partitions_def
        keys: Sequence[str] = partitions.get_partition_keys_in_range(step_context.partition_key_range)
        return keys


def load_input(steps: Sequence[AssetStep], store: Store, name: str, *, may_be_table: bool) -> Any:
    """Frame or ``View`` of an input, with the rows of all partitions that the step is for.

    Raises:
        NotSupported: the step is for several partitions, and the input cannot be read for all of them together.
    """
    if len(steps) == 1:
        return steps[0].load_input(name, may_be_table=may_be_table)
    binding = steps[0].binding
    [edge] = [e for e in binding.tasks[0].consumes if e.name == name]
    channel = binding.channels[edge.port]
    is_shared = not set(channel.partition_columns) & {d.column for d in binding.dimensions}
    if edge.mode == "changes" or (is_shared and edge.mode != "all"):
        raise NotSupported(
            f"input {name!r} reads {edge.mode}({channel.name}), and this run is for {len(steps)} partitions",
            expected="mode all, or mode new of a channel with the same partitions",
            next="@dg.asset(backfill_policy=dg.BackfillPolicy.multi_run())",
        )
    if is_shared:
        heads = {s.execution.pins[channel.name].head for s in steps}
        if len(heads) > 1:
            raise ExecutionInProgress(
                f"channel {channel.name!r} has changed while {binding.name!r} began", next="materialize the asset again"
            )
        return steps[0].load_input(name, may_be_table=may_be_table)
    parts = [s.load_input(name, may_be_table=may_be_table) for s in steps]
    if all(isinstance(p, pa.Table) for p in parts):
        return pa.concat_tables(parts, promote_options="default")
    assert not any(isinstance(p, View) for p in parts)
    frames = [store.engine.frames.to_frame(p) for p in parts]
    return reduce(lambda a, b: a.unionByName(b, allowMissingColumns=True), frames)


def stage(steps: Sequence[AssetStep], store: Store, rows_by_channel: Mapping[str, Any]) -> None:
    """Stage what the function returned, in the partition to which each row belongs.

    Raises:
        SchemaMismatch: the step is for several partitions, and a row belongs to none of them.
    """
    if len(steps) == 1:
        if steps[0].commit is None:
            steps[0].stage(rows_by_channel)
        return
    frames = {c: steps[0].to_frame(c, rows) for c, rows in rows_by_channel.items() if rows is not None}
    channels = {c.name: c for c in steps[0].binding.writes}
    read_again = {
        f"{c} counted": frame for c, frame in frames.items()
    }  # a frame is read to count it, and for each part
    with store.engine.frames.evaluate_once({**frames, **read_again}) as once:
        splits = {c: _split_by_partition(store, steps, channels[c], once[c]) for c in frames}
        for number, step in enumerate(steps):
            if step.commit is None:
                step.stage({channel: parts[number] for channel, parts in splits.items()})


def run_checks(steps: Sequence[AssetStep]) -> Iterator[CheckReport]:
    """Run the checks of the channels on the staged rows, and return their results.

    Raises:
        CheckFailed: a blocking check failed. It is raised after the last result.
    """
    failed: tuple[AssetStep, tuple[CheckReport, ...]] | None = None
    for step in steps:
        if step.commit is None:
            reports = step.runtime.run_data_checks(step.execution)
            yield from reports
            failed = (step, reports) if failed is None and any(r.blocks_commit for r in reports) else failed
    if failed is not None:
        raise check_failed_error(failed[0].execution, failed[1])


def _split_by_partition(store: Store, steps: Sequence[AssetStep], channel: Channel, rows: Any) -> list[Any]:
    """The rows of each step's partition. Raises SchemaMismatch if a row belongs to none of them."""
    engine, columns = store.engine, [d.column for d in steps[0].binding.dimensions]
    schema = engine.frames.schema_of(rows)
    if missing := [c for c in columns if c not in schema]:
        raise SchemaMismatch(
            f"the rows for channel {channel.name!r} do not tell their partition, and this run is for several",
            found=", ".join(schema.names),
            expected=f"column {missing[0]!r}",
        )

    def keys(partition: str) -> Any:
        one_row = pa.table({"nova_row": [0]})
        return engine.inputs.add_partition_columns(one_row, channel, partition, schema).select(columns)

    parts = [engine.reader.filter_by_keys(rows, keys(s.execution.partition), columns, may_be_table=True) for s in steps]
    counted, expected = sum(map(engine.frames.count, parts)), engine.frames.count(rows)
    if counted != expected:
        raise SchemaMismatch(
            f"{expected - counted} rows for channel {channel.name!r} belong to none of the partitions of this run",
            expected=f"rows of {steps[0].partition_key} to {steps[-1].partition_key}",
        )
    return parts
