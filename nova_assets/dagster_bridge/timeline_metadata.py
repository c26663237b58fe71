"""How a channel stands, for Dagster to show: a drawing, and the lag of each consumer as a number that plots itself.

A consumer that catches up makes no materialization of what it read, so lags that have changed are also reported as
observations, by the sensor that is there anyhow.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Collection
from typing import Any

from dagster import AssetKey, AssetObservation, MetadataValue, SensorResult

from nova_assets.dagster_bridge.materializations import DATA_VERSION
from nova_assets.masking import get_logger
from nova_assets.model.channel_outline import Outline
from nova_assets.plan.chart_svg import NUMBERS, svg
from nova_assets.plan.timeline_chart import Picture, picture
from nova_assets.store.store import Store

log = get_logger("nova_assets.timeline")

LAGS = "nova/lags"
"""Where a sensor's cursor keeps what was reported; no channel is called so."""


def timelines(store: Store, channels: Collection[str]) -> dict[str, dict[str, Any]]:
    """Channel -> metadata that shows how it stands now. What cannot be drawn is left out: no commit fails by it."""
    try:
        return {name: metadata_of(seen) for name, seen in _pictures(store, channels).items()}
    except Exception as error:
        log.warning("timelines are not shown: %s", error)
        return {}


def metadata_of(seen: Picture) -> dict[str, Any]:
    """``nova/timeline``, and ``nova/lag/<consumer>`` for each consumer."""
    image = base64.b64encode(svg(seen).encode()).decode()
    drawing = MetadataValue.md(f"![the newest numbers of {seen.channel}](data:image/svg+xml;base64,{image})")
    return {"nova/timeline": drawing, **{f"nova/lag/{who}": lag for who, lag in seen.lags.items()}}


def with_observations(
    store: Store, cursor: str | None, tick: SensorResult, channels: Collection[str] | None = None
) -> SensorResult:
    """A sensor's tick that also reports each channel whose lags have changed since the tick before.

    Args:
        cursor: what the tick began with. Where it knows nothing of a channel, the channel is reported.
        channels: those that are reported here; by default all of the project.
    """
    before: dict[str, dict[str, int]] = json.loads(cursor or "{}").get(LAGS, {})
    try:
        names = [c.name for c in store.project.channels if channels is None or c.name in channels]
        seen = _pictures(store, names)
        lags = {name: found.lags for name, found in seen.items() if found.head and found.lags}
        events = [observation_of(seen[name]) for name, found in lags.items() if found != before.get(name)]
    except Exception as error:  # the tick has other things to say
        log.warning("lags are not reported: %s", error)
        lags, events = before, []
    kept = {**json.loads(tick.cursor or "{}"), LAGS: lags}
    return tick._replace(asset_events=[*tick.asset_events, *events], cursor=json.dumps(kept))


def observation_of(seen: Picture) -> AssetObservation:
    """How a channel stands, as an event that changes nothing: it is of the version that Dagster knows."""
    tags = {DATA_VERSION: str(seen.head)}
    return AssetObservation(AssetKey(seen.channel), metadata=metadata_of(seen), tags=tags)


def _pictures(store: Store, channels: Collection[str]) -> dict[str, Picture]:
    outlines: dict[str, Outline] = store.catalog.outlines(list(channels), NUMBERS) if channels else {}
    return {name: picture(outline, store.project.bindings) for name, outline in outlines.items()}
