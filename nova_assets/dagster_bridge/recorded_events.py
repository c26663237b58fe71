"""Events that Dagster has of a channel: materializations of blocks, observations of dropped partitions (R19)."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import TypeAlias

from dagster import (
    AssetKey,
    AssetMaterialization,
    AssetObservation,
    AssetRecordsFilter,
    DagsterInstance,
)

from nova_assets.model.commit import Commit

AssetEvent: TypeAlias = AssetMaterialization | AssetObservation

COMMIT_METADATA_KEY = "nova/commit"

_PAGE_SIZE = 500

_CLOCK_TOLERANCE = timedelta(hours=1)
"""Largest expected difference between the clocks of two machines."""


def iterate_commit_events(
    instance: DagsterInstance, asset_filter: AssetKey | AssetRecordsFilter, event_types: tuple[type[AssetEvent], ...]
) -> Iterator[AssetEvent]:
    """Iterate over the events that name a commit, one event type after the other, each latest first."""
    for kind in event_types:
        fetch = instance.fetch_materializations if kind is AssetMaterialization else instance.fetch_observations
        cursor: str | None = None
        while True:
            page = fetch(asset_filter, limit=_PAGE_SIZE, cursor=cursor)
            for record in page.records:
                event = record.asset_event
                if isinstance(event, AssetMaterialization | AssetObservation) and COMMIT_METADATA_KEY in event.metadata:
                    yield event
            if not page.has_more:
                break
            cursor = page.cursor


def commit_id_of_event(event: AssetEvent) -> str:
    """Id of the commit that an event reports."""
    return str(event.metadata[COMMIT_METADATA_KEY].value)


def is_event_in_dagster(instance: DagsterInstance, event: AssetEvent, commit: Commit) -> bool:
    """Whether Dagster has an event of the same type, channel and partition for this commit."""
    return _has_event_of_commit(instance, event.asset_key, event.partition, commit, (type(event),))


def has_channel_event(instance: DagsterInstance, asset_key: AssetKey, commit: Commit) -> bool:
    """Whether Dagster has any event of a channel's asset for this commit, in any partition.

    Only the code location that reports the channel knows its partitions.
    """
    return _has_event_of_commit(instance, asset_key, None, commit, (AssetMaterialization, AssetObservation))


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
