"""What Dagster has been told of a channel: blocks as materializations, dropped partitions as observations (R19)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from dagster import AssetKey, AssetMaterialization, AssetObservation, AssetRecordsFilter, DagsterInstance

Event: TypeAlias = AssetMaterialization | AssetObservation

COMMIT = "nova/commit"

_PAGE = 500


def told(
    instance: DagsterInstance, of: AssetKey | AssetRecordsFilter, kinds: tuple[type[Event], ...]
) -> Iterator[Event]:
    """Events that name a commit, latest first of each kind."""
    for kind in kinds:
        fetch = instance.fetch_materializations if kind is AssetMaterialization else instance.fetch_observations
        cursor: str | None = None
        while True:
            page = fetch(of, limit=_PAGE, cursor=cursor)
            for record in page.records:
                event = record.asset_event
                if isinstance(event, AssetMaterialization | AssetObservation) and COMMIT in event.metadata:
                    yield event
            if not page.has_more:
                break
            cursor = page.cursor


def commit_of(event: Event) -> str:
    """The id of the commit that an event tells of."""
    return str(event.metadata[COMMIT].value)
