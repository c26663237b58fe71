"""Observation of channels that are fed from outside and have no partitions. Dagster's button *Observe* starts it.

An observation looks at the source of the channel and at the catalog, and reads no rows. It reports the head of the
channel as the data version, and the commits that Dagster lacks. Nothing observes by itself.
"""

# No `from __future__ import annotations`: Dagster reads the annotation of the context.
from collections.abc import Iterator
from typing import Any

from dagster import (
    AssetExecutionContext,
    AssetObservation,
    AssetsDefinition,
    AssetSpec,
    Output,
    multi_observable_source_asset,
)

from nova_assets.dagster_bridge.code_locations import channels_not_written_elsewhere
from nova_assets.dagster_bridge.dagster_names import DagsterNames
from nova_assets.dagster_bridge.materializations import DATA_VERSION, NO_EVENT, channel_rows_metadata
from nova_assets.dagster_bridge.timeline_metadata import timeline_metadata_by_channel
from nova_assets.dagster_bridge.unreported_commits import collect_missing_events
from nova_assets.model.channel import Channel
from nova_assets.store.store import Store


def build_observable_asset(channel: Channel, spec: AssetSpec, names: DagsterNames) -> AssetsDefinition:
    """Asset of a channel that no binding writes. Dagster can observe it."""

    @multi_observable_source_asset(  # type: ignore[untyped-decorator]  # Dagster's decorator has no type
        specs=[spec], name=names.name(f"{channel.name}__observe"), required_resource_keys={names.resource}
    )
    def observe(context: AssetExecutionContext) -> Iterator[Output[None]]:
        store: Store = getattr(context.resources, names.resource).store()
        found = _look_at_source(store, channel)
        for event in collect_missing_events(
            store, context.instance, channels=channels_not_written_elsewhere(store) & {channel.name}
        ):
            context.log_event(event)
        context.log_event(build_observation(store, channel, found))
        [output_name] = context.op_def.output_dict
        yield Output(None, output_name, metadata={NO_EVENT: True})

    asset: AssetsDefinition = observe
    return asset


def build_observation(store: Store, channel: Channel, found: dict[str, Any]) -> AssetObservation:
    """Observation of a channel at its head.

    Args:
        found: metadata on the source of the channel.
    """
    head = store.catalog.definitions.channel(channel.name).head
    metadata = {
        "nova/seq": head,
        **channel_rows_metadata(store, channel.name, head),
        **found,
        **timeline_metadata_by_channel(store, [channel.name]).get(channel.name, {}),
    }
    return AssetObservation(DagsterNames.of(store).key(channel.name), metadata=metadata, tags={DATA_VERSION: str(head)})


def _look_at_source(store: Store, channel: Channel) -> dict[str, Any]:
    """Look at what feeds a channel, and return metadata on it.

    Changes of an external table are committed, as by ``nova refresh``. Files that have arrived are only counted.
    """
    store.register(channel)
    if channel.external is not None:
        refreshed = store.refresh(channel.name)
        return {
            "nova/changed_partitions": len(refreshed.changed),
            "nova/gone_partitions": len(refreshed.gone),
            **({"nova/problems": refreshed.problems_text} if refreshed.needs_attention else {}),
        }
    if channel.source is not None:
        return {"nova/waiting_files": len(store.arriving(channel.name))}
    return {}
