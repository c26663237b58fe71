"""Channels and their partitions, as the service tells of them."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from nova_assets.model.channel import Channel
from nova_assets.model.channel_state import ChannelState, PartitionState
from nova_assets.model.seal import Sealing
from nova_assets.model.timeline import Position
from nova_assets.service.shapes.shape import Column, Shape, columns, schema_of


class ChannelShape(Shape):
    """A channel as it stands. ``position`` says where its timeline is, ``head`` its highest sequence number."""

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
    def of(s: ChannelState) -> ChannelShape:
        return ChannelShape(
            name=s.channel.name,
            head=s.head,
            position=str(s.position),
            definition=s.channel.as_json(),
            columns=columns(s.schema),
            rows=s.rows,
            bytes=s.bytes,
            blocks=s.blocks,
            updated_at=s.updated_at,
            registered_at=s.since,
            bases=s.bases,
            news=s.news,
            retain=s.retain,
            keep=dict(s.keep),
            seal=None if s.seal is None else s.seal.as_json(),
        )

    def back(self) -> ChannelState:
        return ChannelState(
            Channel.from_json(self.definition),
            self.head,
            schema_of(self.columns),
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
            position=Position.parse(self.position),
        )


class PartitionShape(Shape):
    """A partition that holds something: ``seq`` is the number of its last change, ``news`` of the last that gave it
    something."""

    partition: str
    seq: int
    news: int
    rows: int
    bytes: int
    blocks: int

    @staticmethod
    def of(p: PartitionState) -> PartitionShape:
        return PartitionShape(
            partition=p.partition, seq=p.seq, news=p.news, rows=p.rows, bytes=p.bytes, blocks=p.blocks
        )

    def back(self) -> PartitionState:
        return PartitionState(self.partition, self.seq, self.rows, self.bytes, self.blocks, self.news)


class SchemaShape(Shape):
    """The columns of a channel at a number; null where nothing has given them yet."""

    channel: str
    at: int
    columns: list[Column] | None
