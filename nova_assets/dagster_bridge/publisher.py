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

from nova_assets.dagster_bridge.asset_consumers import settle_all
from nova_assets.dagster_bridge.materializations import event_of, seal_of
from nova_assets.dagster_bridge.partitions import announce, dimensions_shown, key_of, paired_columns
from nova_assets.dagster_bridge.recorded_events import Event, commit_of, told
from nova_assets.dagster_bridge.resources import NovaResource
from nova_assets.dagster_bridge.timeline_metadata import timelines
from nova_assets.model.block import Block
from nova_assets.model.channel import Channel
from nova_assets.model.commit import Commit
from nova_assets.model.partitions import partition_values, scope_of
from nova_assets.model.quarantine import quarantine_of
from nova_assets.store.store import Store

LEAVE_TO_RUN = timedelta(seconds=60)
"""For how long a commit is left to the run that made it."""

_CLOCKS = timedelta(hours=1)
"""By how much the clocks of two machines may differ."""

Has = Callable[[Event, Commit], bool]


def publisher(nova: NovaResource) -> SensorDefinition:
    """The sensor ``nova_publish``."""

    def on_tick(context: SensorEvaluationContext) -> SensorResult:
        store = nova.store()
        settle_all(store, context.instance)  # before the sweep, which ends leases that have run out
        store.runtime.sweep()
        events = publish(store, context.instance, channels=claimed_channels(store, location_of(context)))
        return SensorResult(asset_events=events, skip_reason=None if events else "every commit is published")

    return SensorDefinition(
        name="nova_publish",
        evaluation_fn=on_tick,
        minimum_interval_seconds=10,
        default_status=DefaultSensorStatus.RUNNING,
        description="Shows commits made outside of Dagster, or cut off by a crash, as materializations.",
    )


def publish(
    store: Store, instance: DagsterInstance, has: Has | None = None, *, channels: Collection[str] | None = None
) -> list[Event]:
    """Events for what Dagster lacks; what it has is marked in the catalog.

    Args:
        has: whether Dagster has an event of a commit, for who knows without asking.
        channels: only what was committed to these; by default ``own_channels``.
    """
    events: list[Event] = []
    has = has or partial(is_known, instance)
    own = own_channels(store) if channels is None else frozenset(channels)
    commits = [c for c in store.catalog.unpublished(channels=own) if not _left_to_its_run(store, c)]
    definitions: dict[str, Channel] = {s.channel.name: s.channel for s in store.channels()}
    standing = timelines(store, {b.channel for c in commits for b in c.blocks} & own)
    claims, paired = store.catalog.publishers(), paired_columns(store.project)
    for commit in commits:
        announce(instance, definitions, [(b.channel, b.partition) for b in commit.blocks], paired)
        mine = [e for e in events_of(store, commit, definitions, standing) if e.asset_key.path[-1] in own]
        missing = [e for e in mine if not has(e, commit)]
        others = {b.channel for b in commit.blocks if b.channel in claims} - own
        if not missing and all(_has_channel(instance, channel, commit) for channel in others):
            store.catalog.mark_published(commit.id)
        events += missing
    return events


def claimed_channels(store: Store, location: str | None) -> frozenset[str]:
    """The channels whose commits a code location shows; of several locations that have a channel, one shows it.

    Args:
        location: None where there is only one.
    """
    if location is None:
        return own_channels(store)
    writes = {c.name for b in store.project.bindings for c in b.writes}
    return store.catalog.claim_channels(location, writes, _of_project(store) - writes)


def own_channels(store: Store) -> frozenset[str]:
    """The project's channels, without those that a binding of another code location writes."""
    claims = store.catalog.publishers()
    written_by_claims = {channel for channel, (_, writes) in claims.items() if writes}
    writes = {c.name for b in store.project.bindings for c in b.writes}
    return frozenset(_of_project(store) - (written_by_claims - writes))


def location_of(context: SensorEvaluationContext) -> str | None:
    """Name of the code location whose sensor is evaluated."""
    origin = context.code_location_origin
    return None if origin is None else origin.location_name


def _of_project(store: Store) -> set[str]:
    """Channels of the project, with the quarantines of those that receive files."""
    channels = store.project.channels
    return {c.name for c in channels} | {quarantine_of(c).name for c in channels if c.source is not None}


def events_of(
    store: Store, commit: Commit, channels: Mapping[str, Channel], standing: Mapping[str, Mapping[str, Any]]
) -> list[Event]:
    """One event for each partition that Dagster sees of a channel.

    Args:
        standing: channel -> how it stands now.
    """
    grouped: dict[tuple[str, str | None], list[Block]] = {}
    paired = paired_columns(store.project)
    for block in commit.blocks:
        shown = dimensions_shown(store.project, channels[block.channel])
        scope = scope_of([d.column for d in shown], block.partition)
        key = key_of(shown, scope, paired) if scope and len(partition_values(scope)) == len(shown) else None
        grouped.setdefault((block.channel, key), []).append(block)
    events = [
        event_of(commit, blocks, store.settings.warehouse, store.project, standing.get(channel, {}), key)
        for (channel, key), blocks in grouped.items()
    ]
    sealed = commit.details.get("sealed")
    if sealed is not None:
        shown = dimensions_shown(store.project, channels[sealed["channel"]])
        whole = len(partition_values(sealed["group"])) == len(shown)
        events.append(seal_of(commit, sealed, key_of(shown, sealed["group"], paired) if whole else None))
    return events


def is_known(instance: DagsterInstance, event: Event, commit: Commit) -> bool:
    """Whether Dagster has an event of that kind, channel and partition by this commit."""
    return _has(instance, event.asset_key, event.partition, commit, (type(event),))


def _has_channel(instance: DagsterInstance, channel: str, commit: Commit) -> bool:
    """Whether Dagster has any event of a channel by this commit; another location knows its partitions."""
    return _has(instance, AssetKey(channel), None, commit, (AssetMaterialization, AssetObservation))


def _has(
    instance: DagsterInstance, key: AssetKey, partition: str | None, commit: Commit, kinds: tuple[type[Event], ...]
) -> bool:
    since = AssetRecordsFilter(
        key,
        after_timestamp=(commit.at - _CLOCKS).timestamp(),
        asset_partitions=None if partition is None else [partition],
    )
    return any(commit_of(e) == commit.id for e in told(instance, since, kinds))


def _left_to_its_run(store: Store, commit: Commit) -> bool:
    by_dagster = store.catalog.execution(commit.execution_id).run_id is not None
    return by_dagster and store.catalog.now() - commit.at < LEAVE_TO_RUN
