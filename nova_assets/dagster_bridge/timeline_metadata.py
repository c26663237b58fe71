"""State of a channel as Dagster metadata: a timeline drawing, and the lag of each consumer as a plottable number.

A consumer that catches up does not materialize the channel that it read. The maintenance sensor therefore also reports
changed lags as observations.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Collection
from typing import Any

from dagster import AssetObservation, MetadataValue, SensorResult

from nova_assets.dagster_bridge.dagster_names import DagsterNames
from nova_assets.dagster_bridge.materializations import DATA_VERSION
from nova_assets.masking import get_logger
from nova_assets.model.binding import Binding
from nova_assets.model.channel_state import ChannelOutline
from nova_assets.plan.timeline_chart import SHOWN_NUMBERS, TimelineChart, build_chart, render_svg
from nova_assets.store.store import Store

log = get_logger("nova_assets.timeline")

LAGS_CURSOR_KEY = "nova/lags"
"""Key under which a sensor's cursor keeps the reported lags. No channel can have this name."""


def timeline_metadata_by_channel(store: Store, channels: Collection[str]) -> dict[str, dict[str, Any]]:
    """Metadata on the current state of each channel. Empty if a chart cannot be drawn, so that no commit fails."""
    try:
        return {name: build_timeline_metadata(seen) for name, seen in _charts_by_channel(store, channels).items()}
    except Exception as error:
        log.warning("timelines are not shown: %s", error)
        return {}


def build_timeline_metadata(chart: TimelineChart) -> dict[str, Any]:
    """Metadata ``nova/timeline``, and ``nova/lag/<consumer>`` and ``nova/unread_rows/<consumer>`` for each consumer."""
    image = base64.b64encode(render_svg(chart).encode()).decode()
    drawing = MetadataValue.md(f"![the newest numbers of {chart.channel}](data:image/svg+xml;base64,{image})")
    lags = {f"nova/lag/{who}": lag for who, lag in chart.lag_by_consumer.items()}
    unread_rows = {f"nova/unread_rows/{who}": rows for who, rows in chart.unread_rows_by_consumer.items()}
    return {"nova/timeline": drawing, **lags, **unread_rows}


def add_lag_observations(
    store: Store,
    previous_cursor: str | None,
    sensor_result: SensorResult,
    channels: Collection[str] | None = None,
    unchanged: Collection[str] = (),
) -> SensorResult:
    """Extend a sensor result by observations of the channels whose lags have changed since the previous tick.

    Args:
        previous_cursor: the sensor's cursor at the start of the tick. A channel that it lacks is reported.
        sensor_result: the result to extend.
        channels: channels that this sensor reports; by default all channels of the project.
        unchanged: channels whose head and cursors are those of the previous tick, and so the lags.
    """
    cursor = json.loads(previous_cursor or "{}")
    previous_lags: dict[str, dict[str, int]] = cursor.get(LAGS_CURSOR_KEY, {})
    skipped = set(unchanged) if LAGS_CURSOR_KEY in cursor else set()
    try:
        heads = store.catalog.scheduler.heads()
        own = [c.name for c in store.project.channels if channels is None or c.name in channels]
        names = [name for name in own if heads.get(name) and name not in skipped]
        charts = _charts_by_channel(store, names)
        lags = {name: found.lag_by_consumer for name, found in charts.items() if found.head and found.lag_by_consumer}
        changed = [name for name, found in lags.items() if found != previous_lags.get(name)]
        events = [build_lag_observation(charts[name], DagsterNames.of(store)) for name in changed]
        lags |= {name: previous_lags[name] for name in own if name in skipped and name in previous_lags}
    except Exception as error:  # lags must not cost the rest of the tick
        log.warning("lags are not reported: %s", error)
        lags, events = previous_lags, []
    new_cursor = {**json.loads(sensor_result.cursor or "{}"), LAGS_CURSOR_KEY: lags}
    return sensor_result._replace(asset_events=[*sensor_result.asset_events, *events], cursor=json.dumps(new_cursor))


def build_lag_observation(chart: TimelineChart, names: DagsterNames) -> AssetObservation:
    """Observation with the current state of a channel, at its head. It does not change the asset's data version."""
    tags = {DATA_VERSION: str(chart.head)}
    return AssetObservation(names.key(chart.channel), metadata=build_timeline_metadata(chart), tags=tags)


def _charts_by_channel(store: Store, channels: Collection[str]) -> dict[str, TimelineChart]:
    outlines: dict[str, ChannelOutline] = (
        store.catalog.histories.outlines(list(channels), SHOWN_NUMBERS) if channels else {}
    )
    consumers: dict[str, list[Binding]] = {}
    for binding in store.project.bindings:
        for channel in binding.cursor_channels:
            consumers.setdefault(channel.name, []).append(binding)
    return {name: build_chart(outline, consumers.get(name, ())) for name, outline in outlines.items()}
