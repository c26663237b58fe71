"""Sensor that reports commits to Dagster that no step has reported (R17).

Such commits are inserts from outside Dagster, and commits whose report was cut off by a crash. Dagster writes the
sensor's events before the tick completes, so a commit counts as published only once Dagster is seen to have its events.
Each tick also deletes staged files of dead executions and moves the cursors of users' assets whose runs have ended.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from datetime import timedelta
from functools import partial

from dagster import (
    AssetCheckEvaluation,
    DagsterInstance,
    DefaultSensorStatus,
    SensorDefinition,
    SensorEvaluationContext,
    SensorResult,
)

from nova_assets.dagster_bridge.asset_checks import build_check_evaluations
from nova_assets.dagster_bridge.asset_consumers import commit_or_abort_consumers
from nova_assets.dagster_bridge.code_locations import (
    channels_not_written_elsewhere,
    claim_channels_for_location,
    code_location_of_sensor,
)
from nova_assets.dagster_bridge.dagster_names import DagsterNames
from nova_assets.dagster_bridge.materializations import build_commit_events
from nova_assets.dagster_bridge.partitions import (
    add_partitions_of_blocks,
    find_multi_partition_columns,
)
from nova_assets.dagster_bridge.recorded_events import (
    AssetEvent,
    has_channel_event,
    is_event_in_dagster,
)
from nova_assets.dagster_bridge.resources import NovaResource
from nova_assets.dagster_bridge.timeline_metadata import timeline_metadata_by_channel
from nova_assets.model.channel import Channel
from nova_assets.model.commit import Commit
from nova_assets.store.store import Store

LEAVE_TO_RUN = timedelta(seconds=60)
"""Time during which a commit is left to its own run to report."""

IsEventRecorded = Callable[[AssetEvent, Commit], bool]


def build_unreported_commits_sensor(nova: NovaResource) -> SensorDefinition:
    """Sensor ``nova_publish``: reports missing commits, settles users' assets and deletes dead staging."""

    def on_tick(context: SensorEvaluationContext) -> SensorResult:
        store = nova.store()
        commit_or_abort_consumers(store, context.instance)  # before the sweep, which ends expired leases
        store.runtime.delete_dead_staging()
        events = collect_missing_events(
            store, context.instance, channels=claim_channels_for_location(store, code_location_of_sensor(context))
        )
        return SensorResult(asset_events=events, skip_reason=None if events else "every commit is published")

    return SensorDefinition(
        name=nova.names.name("nova_publish"),
        evaluation_fn=on_tick,
        minimum_interval_seconds=10,
        default_status=DefaultSensorStatus.RUNNING,
        description="Reports commits that no run has reported: from outside Dagster, or after a crash.",
    )


def collect_missing_events(
    store: Store,
    instance: DagsterInstance,
    is_recorded: IsEventRecorded | None = None,
    *,
    channels: Collection[str] | None = None,
) -> list[AssetEvent | AssetCheckEvaluation]:
    """Events of commits that Dagster lacks. Commits whose events Dagster has are marked as published in the catalog.

    Args:
        is_recorded: tells whether Dagster has an event of a commit. The default asks the instance.
        channels: report only commits to these channels; by default ``channels_not_written_elsewhere``.
    """
    events: list[AssetEvent | AssetCheckEvaluation] = []
    is_recorded = is_recorded or partial(is_event_in_dagster, instance)
    channel_filter = channels_not_written_elsewhere(store) if channels is None else frozenset(channels)
    commits = [
        c for c in store.catalog.unreported_commits(channels=channel_filter) if not _is_left_to_its_run(store, c)
    ]
    if not commits:
        return []
    definitions: dict[str, Channel] = {s.channel.name: s.channel for s in store.channels()}
    timeline_metadata = timeline_metadata_by_channel(
        store, {b.channel for c in commits for b in c.blocks} & channel_filter
    )
    names, claims = DagsterNames.of(store), store.catalog.dagster_publishers()
    multi_partition_columns = find_multi_partition_columns(store.project)
    for commit in commits:
        add_partitions_of_blocks(
            instance, definitions, [(b.channel, b.partition) for b in commit.blocks], multi_partition_columns
        )
        own_events = [
            e
            for e in build_commit_events(store, commit, definitions, timeline_metadata)
            if names.channel(e.asset_key) in channel_filter
        ]
        missing = [e for e in own_events if not is_recorded(e, commit)]
        other_channels = {b.channel for b in commit.blocks if b.channel in claims} - channel_filter
        other_keys = [DagsterNames.of_publisher(claims[channel][0]).key(channel) for channel in other_channels]
        if not missing and all(has_channel_event(instance, key, commit) for key in other_keys):
            store.catalog.mark_commit_reported(commit.id)
        events += missing
        if missing:
            evaluations = build_check_evaluations(commit, names)
            events += [e for e in evaluations if names.channel(e.asset_key) in channel_filter]
    return events


def _is_left_to_its_run(store: Store, commit: Commit) -> bool:
    by_dagster = store.catalog.execution(commit.execution_id).run_id is not None
    return by_dagster and store.catalog.now() - commit.at < LEAVE_TO_RUN
