"""Sensor that reports commits to Dagster that no step has reported (R17).

Such commits are inserts from outside Dagster, and commits whose report was cut off by a crash. Dagster writes the
sensor's events before the tick completes, so a commit counts as published only once Dagster is seen to have its events.
Each tick also deletes staged files of dead executions and moves the cursors of users' assets whose runs have ended.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from datetime import timedelta
from functools import partial
from typing import Any

from dagster import (
    AssetKey,
    AssetMaterialization,
    AssetObservation,
    AssetRecordsFilter,
    DagsterInstance,
    DefaultSensorStatus,
    SensorDefinition,
    SensorEvaluationContext,
    SensorResult,
)

from nova_assets.dagster_bridge.asset_consumers import commit_or_abort_consumers
from nova_assets.dagster_bridge.materializations import build_commit_event, build_seal_observation
from nova_assets.dagster_bridge.partitions import (
    add_partitions_of_blocks,
    dimensions_in_dagster,
    find_paired_columns,
    to_dagster_key,
)
from nova_assets.dagster_bridge.recorded_events import AssetEvent, commit_id_of_event, iterate_commit_events
from nova_assets.dagster_bridge.resources import NovaResource
from nova_assets.dagster_bridge.timeline_metadata import timeline_metadata_by_channel
from nova_assets.model.block import Block
from nova_assets.model.channel import Channel
from nova_assets.model.commit import Commit
from nova_assets.model.partitions import partition_values, scope_for_columns
from nova_assets.model.quarantine import quarantine_channel
from nova_assets.store.store import Store

LEAVE_TO_RUN = timedelta(seconds=60)
"""Time during which a commit is left to its own run to report."""

_CLOCK_TOLERANCE = timedelta(hours=1)
"""Largest expected difference between the clocks of two machines."""

IsEventRecorded = Callable[[AssetEvent, Commit], bool]


def build_publisher_sensor(nova: NovaResource) -> SensorDefinition:
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
        name="nova_publish",
        evaluation_fn=on_tick,
        minimum_interval_seconds=10,
        default_status=DefaultSensorStatus.RUNNING,
        description="Shows commits made outside of Dagster, or cut off by a crash, as materializations.",
    )


def collect_missing_events(
    store: Store,
    instance: DagsterInstance,
    is_recorded: IsEventRecorded | None = None,
    *,
    channels: Collection[str] | None = None,
) -> list[AssetEvent]:
    """Events of commits that Dagster lacks. Commits whose events Dagster has are marked as published in the catalog.

    Args:
        is_recorded: tells whether Dagster has an event of a commit. The default asks the instance.
        channels: report only commits to these channels; by default ``channels_of_this_location``.
    """
    events: list[AssetEvent] = []
    is_recorded = is_recorded or partial(is_event_in_dagster, instance)
    channel_filter = channels_of_this_location(store) if channels is None else frozenset(channels)
    commits = [c for c in store.catalog.unpublished(channels=channel_filter) if not _is_left_to_its_run(store, c)]
    definitions: dict[str, Channel] = {s.channel.name: s.channel for s in store.channels()}
    timeline_metadata = timeline_metadata_by_channel(
        store, {b.channel for c in commits for b in c.blocks} & channel_filter
    )
    claims, paired = store.catalog.publishers(), find_paired_columns(store.project)
    for commit in commits:
        add_partitions_of_blocks(instance, definitions, [(b.channel, b.partition) for b in commit.blocks], paired)
        own_events = [
            e
            for e in build_commit_events(store, commit, definitions, timeline_metadata)
            if e.asset_key.path[-1] in channel_filter
        ]
        missing = [e for e in own_events if not is_recorded(e, commit)]
        other_channels = {b.channel for b in commit.blocks if b.channel in claims} - channel_filter
        if not missing and all(_has_channel_event(instance, channel, commit) for channel in other_channels):
            store.catalog.mark_published(commit.id)
        events += missing
    return events


def claim_channels_for_location(store: Store, code_location: str | None) -> frozenset[str]:
    """Channels whose commits a code location reports. If several locations have a channel, only one reports it.

    Args:
        code_location: name of the location; None if there is only one.
    """
    if code_location is None:
        return channels_of_this_location(store)
    written_channels = {c.name for b in store.project.bindings for c in b.writes}
    return store.catalog.claim_channels(
        code_location, written_channels, _project_channel_names(store) - written_channels
    )


def channels_of_this_location(store: Store) -> frozenset[str]:
    """Channels of the project, except channels that a binding of another code location writes."""
    claims = store.catalog.publishers()
    written_elsewhere = {channel for channel, (_, written_channels) in claims.items() if written_channels}
    writes = {c.name for b in store.project.bindings for c in b.writes}
    return frozenset(_project_channel_names(store) - (written_elsewhere - writes))


def code_location_of_sensor(context: SensorEvaluationContext) -> str | None:
    """Name of the code location whose sensor is evaluated."""
    origin = context.code_location_origin
    return None if origin is None else origin.location_name


def _project_channel_names(store: Store) -> set[str]:
    """Names of the project's channels and of the quarantine channels of file sources."""
    channels = store.project.channels
    return {c.name for c in channels} | {quarantine_channel(c).name for c in channels if c.source is not None}


def build_commit_events(
    store: Store,
    commit: Commit,
    channels_by_name: Mapping[str, Channel],
    timeline_metadata: Mapping[str, Mapping[str, Any]],
) -> list[AssetEvent]:
    """Events of a commit: one per channel and Dagster partition, and an observation if the commit seals a group.

    Args:
        channels_by_name: definitions of the commit's channels.
        timeline_metadata: metadata on the current state of each channel, by channel.
    """
    blocks_by_partition_key: dict[tuple[str, str | None], list[Block]] = {}
    paired = find_paired_columns(store.project)
    for block in commit.blocks:
        shown = dimensions_in_dagster(store.project, channels_by_name[block.channel])
        scope = scope_for_columns([d.column for d in shown], block.partition)
        key = to_dagster_key(shown, scope, paired) if scope and len(partition_values(scope)) == len(shown) else None
        blocks_by_partition_key.setdefault((block.channel, key), []).append(block)
    events = [
        build_commit_event(
            commit, blocks, store.settings.warehouse, store.project, timeline_metadata.get(channel, {}), key
        )
        for (channel, key), blocks in blocks_by_partition_key.items()
    ]
    sealed = commit.details.get("sealed")
    if sealed is not None:
        shown = dimensions_in_dagster(store.project, channels_by_name[sealed["channel"]])
        whole = len(partition_values(sealed["group"])) == len(shown)
        events.append(
            build_seal_observation(commit, sealed, to_dagster_key(shown, sealed["group"], paired) if whole else None)
        )
    return events


def is_event_in_dagster(instance: DagsterInstance, event: AssetEvent, commit: Commit) -> bool:
    """Whether Dagster has an event of the same type, channel and partition for this commit."""
    return _has_event_of_commit(instance, event.asset_key, event.partition, commit, (type(event),))


def _has_channel_event(instance: DagsterInstance, channel: str, commit: Commit) -> bool:
    """Whether Dagster has any event of a channel for this commit, in any partition.

    Only the code location that reports the channel knows its partitions.
    """
    return _has_event_of_commit(instance, AssetKey(channel), None, commit, (AssetMaterialization, AssetObservation))


def _has_event_of_commit(
    instance: DagsterInstance,
    asset_key: AssetKey,
    partition_key: str | None,
    commit: Commit,
    event_types: tuple[type[AssetEvent], ...],
) -> bool:
    records_filter = AssetRecordsFilter(
        asset_key,
        after_timestamp=(commit.at - _CLOCK_TOLERANCE).timestamp(),
        asset_partitions=None if partition_key is None else [partition_key],
    )
    return any(commit_id_of_event(e) == commit.id for e in iterate_commit_events(instance, records_filter, event_types))


def _is_left_to_its_run(store: Store, commit: Commit) -> bool:
    by_dagster = store.catalog.execution(commit.execution_id).run_id is not None
    return by_dagster and store.catalog.now() - commit.at < LEAVE_TO_RUN
