"""The sensor that tells Dagster of commits that no step has reported (R17).

These are inserts from outside, and what a crash cut off. Its events are written before its tick is complete, so a
commit counts as published only once Dagster is seen to have it. On the way it tidies up: it sweeps what dead executions
left, and moves the cursors of users' assets whose runs have ended.
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
"""For how long a commit is left to the run that made it."""

_CLOCK_TOLERANCE = timedelta(hours=1)
"""By how much the clocks of two machines may differ."""

IsEventRecorded = Callable[[AssetEvent, Commit], bool]


def build_publisher_sensor(nova: NovaResource) -> SensorDefinition:
    """The sensor ``nova_publish``."""

    def on_tick(context: SensorEvaluationContext) -> SensorResult:
        store = nova.store()
        commit_or_abort_consumers(store, context.instance)  # before the sweep, which ends leases that have run out
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
    """Events for what Dagster lacks; what it has is marked in the catalog.

    Args:
        is_recorded: whether Dagster has an event of a commit, for who knows without asking.
        channels: only what was committed to these; by default ``own_channels``.
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
    """The channels whose commits a code location shows; of several locations that have a channel, one shows it.

    Args:
        code_location: None where there is only one.
    """
    if code_location is None:
        return channels_of_this_location(store)
    written_channels = {c.name for b in store.project.bindings for c in b.writes}
    return store.catalog.claim_channels(
        code_location, written_channels, _project_channel_names(store) - written_channels
    )


def channels_of_this_location(store: Store) -> frozenset[str]:
    """The project's channels, without those that a binding of another code location writes."""
    claims = store.catalog.publishers()
    written_elsewhere = {channel for channel, (_, written_channels) in claims.items() if written_channels}
    writes = {c.name for b in store.project.bindings for c in b.writes}
    return frozenset(_project_channel_names(store) - (written_elsewhere - writes))


def code_location_of_sensor(context: SensorEvaluationContext) -> str | None:
    """Name of the code location whose sensor is evaluated."""
    origin = context.code_location_origin
    return None if origin is None else origin.location_name


def _project_channel_names(store: Store) -> set[str]:
    """Channels of the project, with the quarantines of those that receive files."""
    channels = store.project.channels
    return {c.name for c in channels} | {quarantine_channel(c).name for c in channels if c.source is not None}


def build_commit_events(
    store: Store,
    commit: Commit,
    channels_by_name: Mapping[str, Channel],
    timeline_metadata: Mapping[str, Mapping[str, Any]],
) -> list[AssetEvent]:
    """One event for each partition that Dagster sees of a channel.

    Args:
        timeline_metadata: channel -> how it stands now.
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
    """Whether Dagster has an event of that kind, channel and partition by this commit."""
    return _has_event_of_commit(instance, event.asset_key, event.partition, commit, (type(event),))


def _has_channel_event(instance: DagsterInstance, channel: str, commit: Commit) -> bool:
    """Whether Dagster has any event of a channel by this commit; another location knows its partitions."""
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
