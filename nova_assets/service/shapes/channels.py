"""JSON shapes of channels and their partitions."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from nova_assets.model.channel import Channel
from nova_assets.model.channel_state import ChannelState, PartitionState
from nova_assets.model.seal import Sealing
from nova_assets.model.timeline import TimelinePosition
from nova_assets.service.shapes.shape import Column, Shape, columns_from_schema, schema_from_columns


class ChannelShape(Shape):
    """State of a channel. ``position`` is the position of its timeline, ``head`` its highest sequence number."""

    name: str
    head: int
    position: str
    definition: dict[str, Any]
    columns: list[Column] | None
    rows: int
    bytes: int
    blocks: int
    updated_at: datetime | None
    registered_at: datetime | None
    bases: bool
    news: int
    retain: str | None
    keep: dict[str, str]
    seal: dict[str, Any] | None

    @staticmethod
    def from_channel_state(state: ChannelState) -> ChannelShape:
        return ChannelShape(
            name=state.channel.name,
            head=state.head,
            position=str(state.position),
            definition=state.channel.as_json(),
            columns=columns_from_schema(state.schema),
            rows=state.rows,
            bytes=state.bytes,
            blocks=state.blocks,
            updated_at=state.updated_at,
            registered_at=state.registered_at,
            bases=state.may_get_base,
            news=state.last_data_seq,
            retain=state.retain,
            keep=dict(state.keep_by_column),
            seal=None if state.seal is None else state.seal.as_json(),
        )

    def to_channel_state(self) -> ChannelState:
        return ChannelState(
            Channel.from_json(self.definition),
            self.head,
            schema_from_columns(self.columns),
            self.rows,
            self.bytes,
            self.blocks,
            self.updated_at,
            self.bases,
            self.news,
            self.retain,
            self.keep,
            self.registered_at,
            seal=None if self.seal is None else Sealing.from_json(self.seal),
            position=TimelinePosition.parse(self.position),
        )


class PartitionShape(Shape):
    """State of a partition. ``seq`` is the number of its last change, ``news`` of the last change that added data."""

    partition: str
    seq: int
    news: int
    rows: int
    bytes: int
    blocks: int

    @staticmethod
    def from_partition_state(state: PartitionState) -> PartitionShape:
        return PartitionShape(
            partition=state.partition,
            seq=state.seq,
            news=state.last_data_seq,
            rows=state.rows,
            bytes=state.bytes,
            blocks=state.blocks,
        )

    def to_partition_state(self) -> PartitionState:
        return PartitionState(self.partition, self.seq, self.rows, self.bytes, self.blocks, self.news)


class SchemaShape(Shape):
    """Columns of a channel at a sequence number. Null if the channel has no schema yet."""

    channel: str
    at: int
    columns: list[Column] | None
