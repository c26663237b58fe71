"""Rows of channels."""

from __future__ import annotations

from typing import Any

from sqlalchemy import RowMapping, select

from nova_assets.catalog.database.transactions import Database
from nova_assets.catalog.tables import channels
from nova_assets.errors import ChannelNotFound
from nova_assets.model.channel import Channel
from nova_assets.model.channel_state import ChannelState
from nova_assets.model.schema import Schema
from nova_assets.model.seal import Sealing
from nova_assets.model.timeline import TimelinePosition
from nova_assets.suggestions import did_you_mean, format_valid_names


def load_channel_state(database: Database, name: str) -> ChannelState:
    """State of a channel, without its sizes. Raises ChannelNotFound."""
    query = select(channels).where(channels.c.name == name)
    row = database.read(lambda c: c.execute(query).mappings().first())
    if row is None:
        raise channel_not_found_error(database, name)
    return channel_state_from_row(row)


def channel_state_from_row(row: RowMapping) -> ChannelState:
    schema = None if row["schema"] is None else Schema.from_json(row["schema"])
    maintenance: dict[str, Any] = row["upkeep"]
    return ChannelState(
        Channel.from_json(row["definition"], maintenance),
        row["head"],
        schema,
        may_get_base=row["bases"],
        last_data_seq=row["news"],
        retain=maintenance.get("retain"),
        keep_by_column=maintenance.get("keep", {}),
        registered_at=row["registered_at"],
        last_listing_started_at=row["looked_at"],
        position=TimelinePosition(row["step"], row["prefix"]),
        seal=None if maintenance.get("seal") is None else Sealing.from_json(maintenance["seal"]),
    )


def channel_not_found_error(database: Database, name: str) -> ChannelNotFound:
    """Error for an unknown channel. It lists the registered names."""
    registered_names = database.read(
        lambda c: list(c.execute(select(channels.c.name).order_by(channels.c.name)).scalars())
    )
    return ChannelNotFound(
        f"no channel is called {name!r}{did_you_mean(name, registered_names)}",
        expected=format_valid_names(registered_names, "(none is registered yet)"),
        next="nova channels, or store.register(nova.Channel(...))",
        channel=name,
    )
