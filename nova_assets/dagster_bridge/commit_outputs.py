"""What commits have made of channels: outputs of the step that reports them, or events of its run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dagster import AssetKey, AssetMaterialization, OpExecutionContext, Output
from dagster._core.storage.tags import BACKFILL_ID_TAG

from nova_assets.crash_points import crash_point
from nova_assets.dagster_bridge.asset_checks import to_check_evaluation
from nova_assets.dagster_bridge.dagster_names import DagsterNames
from nova_assets.dagster_bridge.materializations import (
    DATA_VERSION,
    NO_EVENT,
    build_commit_events,
    build_commit_output,
    build_unchanged_output,
    newest_sequence_number,
    row_count_metadata,
)
from nova_assets.dagster_bridge.partitions import add_partitions_of_blocks
from nova_assets.dagster_bridge.timeline_metadata import timeline_metadata_by_channel
from nova_assets.model.binding import Binding
from nova_assets.model.channel import Channel
from nova_assets.model.commit import Commit, describe_commit
from nova_assets.model.execution import Execution
from nova_assets.store.store import Store


def report_commits(
    context: OpExecutionContext, store: Store, binding: Binding, commit_by_key: Mapping[str, Commit]
) -> Iterator[Output[None]]:
    """The outputs of a step, upstream first. Afterwards, the commits count as reported.

    Args:
        commit_by_key: Dagster's key of the partition -> commit of its execution; one empty key without partitions. If
            there are several, each partition has metadata of its own.
    """
    commits = list(commit_by_key.values())
    for commit in commits:
        context.log.info(describe_commit(commit))
    crash_point("publish.before")
    shown = prepare_report(context, store, binding.writes, commits)
    executions = [store.catalog.executions.get(commit.execution_id) for commit in commits]
    is_range = len(commits) > 1
    materialized = is_range or is_backfill(context)
    for channel in _write_order(binding):
        made = [
            output_of_commit(store, commit, execution, channel, shown.get(channel, {}), materialized=materialized)
            for commit, execution in zip(commits, executions, strict=True)
        ]
        if is_range:
            log_materializations(
                context, DagsterNames.of(store).key(channel), dict(zip(commit_by_key, made, strict=True))
            )
        yield Output(None, channel, metadata={NO_EVENT: True}) if is_range else made[0]
    crash_point("publish.after")
    for commit in commits:
        store.catalog.commits.mark_reported(commit.id)


def report_execution(context: OpExecutionContext, store: Store, execution: Execution) -> None:
    """Report what an execution has committed and checked as events of this run, whose op stands for several executions.
    Then the commit counts as reported.
    """
    commit = execution.commit
    if commit is None:
        return
    crash_point("publish.before")
    shown = prepare_report(context, store, store.project.channels, [commit])
    for event in build_commit_events(store, commit, {c.name: c for c in store.project.channels}, shown):
        context.log_event(event)
    for report in execution.checks:
        context.log_event(to_check_evaluation(report, DagsterNames.of(store)))  # type: ignore[arg-type]  # accepts it
    crash_point("publish.after")
    store.catalog.commits.mark_reported(commit.id)


def prepare_report(
    context: OpExecutionContext, store: Store, channels: Sequence[Channel], commits: Sequence[Commit]
) -> dict[str, dict[str, Any]]:
    """Add the dynamic partitions of the commits to Dagster. Returns metadata on the state of each channel that they
    have changed.
    """
    blocks = [b for commit in commits for b in commit.blocks]
    add_partitions_of_blocks(context.instance, {c.name: c for c in channels}, blocks, store.project)
    return timeline_metadata_by_channel(store, sorted({b.channel for b in blocks}))


def is_backfill(context: OpExecutionContext) -> bool:
    """Whether a run belongs to a backfill. Dagster counts its partitions as failed unless the run materializes them."""
    return BACKFILL_ID_TAG in context.run.tags


def output_of_commit(
    store: Store, commit: Commit, execution: Execution, channel: str, shown: Mapping[str, Any], *, materialized: bool
) -> Output[None]:
    """What a commit has made of a channel.

    Args:
        execution: the execution that was committed.
        shown: metadata on the current state of the channel.
        materialized: whether an unchanged channel counts as materialized, too.
    """
    blocks = [b for b in commit.blocks if b.channel == channel]
    if not blocks:
        version = newest_sequence_number(store, channel, execution.partition)
        return build_unchanged_output(channel, version, materialized=materialized)
    seconds = round((commit.at - execution.started_at).total_seconds(), 3)
    facts = {**shown, **row_count_metadata(store, blocks, execution.partition), "nova/seconds": seconds}
    return build_commit_output(store, commit, channel, facts)


def log_materializations(
    context: OpExecutionContext,
    asset_key: AssetKey,
    outputs: Mapping[str, Output[None]],
    metadata: Mapping[str, Any] | None = None,
) -> None:
    """Log a materialization for each partition of a channel's asset.

    Dagster would give the partitions of one output one data version. So the output of the step has no event then
    (``NO_EVENT``).

    Args:
        outputs: Dagster's key of the partition -> output.
        metadata: further metadata of all partitions.
    """
    for key, output in outputs.items():
        assert output.data_version is not None
        tags = {**(output.tags or {}), DATA_VERSION: output.data_version.value}
        shown = {**output.metadata, **(metadata or {})}
        context.log_event(AssetMaterialization(asset_key, metadata=shown, tags=tags, partition=key))


def _write_order(binding: Binding) -> list[str]:
    """Channels that a binding writes, upstream first."""
    ports = [e.port for t in binding.workflowette.in_order() for e in t.produces]
    return list(dict.fromkeys(binding.channels[p].name for p in ports if p in binding.channels))
