"""Commits of a run whose op stands for several executions, as materializations of that run."""

from __future__ import annotations

from dagster import OpExecutionContext

from nova_assets.crash_points import crash_point
from nova_assets.dagster_bridge.asset_checks import to_check_evaluation
from nova_assets.dagster_bridge.dagster_names import DagsterNames
from nova_assets.dagster_bridge.materializations import build_commit_events
from nova_assets.dagster_bridge.partitions import add_partitions_of_blocks, find_multi_partition_columns
from nova_assets.dagster_bridge.timeline_metadata import timeline_metadata_by_channel
from nova_assets.model.channel import Channel
from nova_assets.model.execution import Execution
from nova_assets.store.store import Store


def report_execution(context: OpExecutionContext, store: Store, execution: Execution) -> None:
    """Report what an execution has committed and checked as events of this run. Then the commit counts as reported."""
    commit = execution.commit
    if commit is None:
        return
    channels: dict[str, Channel] = {c.name: c for c in store.project.channels}
    crash_point("publish.before")
    blocks = [(b.channel, b.partition) for b in commit.blocks]
    add_partitions_of_blocks(context.instance, channels, blocks, find_multi_partition_columns(store.project))
    timeline_metadata = timeline_metadata_by_channel(store, {b.channel for b in commit.blocks})
    for event in build_commit_events(store, commit, channels, timeline_metadata):
        context.log_event(event)
    for report in execution.checks:
        context.log_event(to_check_evaluation(report, DagsterNames.of(store)))  # type: ignore[arg-type]  # accepts it
    crash_point("publish.after")
    store.catalog.mark_commit_reported(commit.id)
