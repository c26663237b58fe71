"""Channels of a code location: only one of several locations reports the commits of a channel to Dagster."""

from __future__ import annotations

from dagster import (
    SensorEvaluationContext,
)

from nova_assets.dagster_bridge.dagster_names import DagsterNames
from nova_assets.model.quarantine import quarantine_channel
from nova_assets.store.store import Store


def claim_channels_for_location(store: Store, code_location: str | None) -> frozenset[str]:
    """Channels whose commits a code location reports. If several locations have a channel, only one reports it.

    Args:
        code_location: name of the location; None if there is only one.
    """
    if code_location is None:
        return channels_not_written_elsewhere(store)
    written_channels = {c.name for b in store.project.bindings for c in b.writes}
    return store.catalog.dagster_publishers.claim(
        DagsterNames.of(store).publisher(code_location),
        written_channels,
        _project_channel_names(store) - written_channels,
    )


def channels_not_written_elsewhere(store: Store) -> frozenset[str]:
    """Channels of the project, except channels that a binding of another code location writes."""
    claims = store.catalog.dagster_publishers.all()
    written_elsewhere = {channel for channel, (_, written_channels) in claims.items() if written_channels}
    writes = {c.name for b in store.project.bindings for c in b.writes}
    return frozenset(_project_channel_names(store) - (written_elsewhere - writes))


def code_location_of_sensor(context: SensorEvaluationContext) -> str | None:
    """Name of the code location whose sensor is evaluated."""
    origin = context.code_location_origin
    return None if origin is None else origin.location_name


def _project_channel_names(store: Store) -> set[str]:
    """Names of the project's channels and of the quarantine channels of file sources."""
    # Not all channels of the catalog: a hundred commits on channels of no project would hold up those of all others.
    channels = store.project.channels
    return {c.name for c in channels} | {quarantine_channel(c).name for c in channels if c.source is not None}
