"""Rows of channels."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, RowMapping, func, select

from nova_assets.catalog.database.transactions import Database
from nova_assets.catalog.tables import channels, commit_numbers
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
        used_until=row["used_until"],
        seal=None if maintenance.get("seal") is None else Sealing.from_json(maintenance["seal"]),
    )


def read_lost_numbers(c: Connection, channel: str) -> list[range]:
    """Sequence numbers that a restored channel leaves out, within a transaction (see ``Histories.lost_numbers``)."""
    row = c.execute(select(channels.c.head, channels.c.used_until).where(channels.c.name == channel)).first()
    if row is None or not row.used_until:
        return []
    number = commit_numbers.c.seq
    before = func.lag(number, 1, 0).over(order_by=number)
    pairs = select(before.label("before"), number.label("seq")).where(commit_numbers.c.channel == channel).subquery()
    gaps = c.execute(select(pairs).where(pairs.c.seq > pairs.c.before + 1).order_by(pairs.c.seq))
    return [range(g.before + 1, g.seq) for g in gaps] + [range(row.head + 1, row.used_until + 1)]


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
