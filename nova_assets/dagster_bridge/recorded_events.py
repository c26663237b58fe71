"""Events that Dagster has of a channel: materializations of blocks, observations of dropped partitions (R19)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from dagster import AssetKey, AssetMaterialization, AssetObservation, AssetRecordsFilter, DagsterInstance

AssetEvent: TypeAlias = AssetMaterialization | AssetObservation

COMMIT_METADATA_KEY = "nova/commit"

_PAGE_SIZE = 500


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
