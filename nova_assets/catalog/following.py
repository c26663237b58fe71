"""What whoever follows timelines asks: where a channel stands, what has happened since, and what there is to begin
with."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

from sqlalchemy import Connection, RowMapping, select

from nova_assets.catalog.blocks import read_blocks
from nova_assets.catalog.database import Database
from nova_assets.catalog.definitions import Definitions
from nova_assets.catalog.history import Histories, last_merge
from nova_assets.catalog.tables import blocks, channels, steps
from nova_assets.model.block import Block
from nova_assets.model.channel import Channel
from nova_assets.model.schema import Schema
from nova_assets.model.timeline import Gone, History, Position, Standing, Step

T = TypeVar("T")

_AT_ONCE = 300
"""Commits asked for by one query."""


class Following:
    """Timelines, from some instant on. Every answer is of one moment."""

    def __init__(self, database: Database, definitions: Definitions, histories: Histories) -> None:
        self.database = database
        self.definitions = definitions
        self.histories = histories

    def standing(self, channel: str) -> Standing:
        """Where a channel stands. Raises ChannelNotFound."""
        return self._found(channel, self.database.read(lambda c: _standing(c, channel)))

    def steps(self, channel: str, since: Position, limit: int = 1000) -> tuple[Standing, list[Step] | None]:
        """Where a channel stands, and the complete instants after a position, oldest first.

        Returns:
            None instead of the instants, where the position is of another timeline: one that was set back, or is not
            this channel's; or where there are more of them than the limit.

        Raises:
            ChannelNotFound.
        """

        def work(c: Connection) -> tuple[Standing, list[Step] | None] | None:
            standing = _standing(c, channel)
            if standing is None:
                return None
            if standing.position == since:
                return standing, []
            if not _is_on(c, channel, since) or standing.position.step - since.step > limit:
                return standing, None
            return standing, list(_steps(c, channel, since.step))

        return self._found(channel, self.database.read(work))

    def bootstrap(self, channel: str, scopes: Sequence[str]) -> tuple[Standing, dict[str, History]]:
        """Where a channel stands, and scope -> everything that is known of the partitions in it.

        Raises:
            ChannelNotFound.
        """

        def work(c: Connection) -> tuple[Standing, dict[str, History]] | None:
            standing = _standing(c, channel)
            if standing is None:
                return None
            found = {scope: self.histories.history_in(c, channel, None, scope) for scope in scopes}
            return standing, {scope: history for scope, history in found.items() if history is not None}

        return self._found(channel, self.database.read(work))

    def _found(self, channel: str, answer: T | None) -> T:
        if answer is None:
            raise self.definitions.not_found(channel)
        return answer


def _standing(c: Connection, channel: str) -> Standing | None:
    row = c.execute(select(channels).where(channels.c.name == channel)).mappings().first()
    if row is None:
        return None
    definition = Channel.from_json(row["definition"])
    return Standing(
        channel,
        Position(row["step"], row["prefix"]),
        row["head"],
        None if row["schema"] is None else Schema.from_json(row["schema"]),
        definition.merge,
        definition.partition_columns,
        last_merge(c, channel, row["head"]),
    )


def _is_on(c: Connection, channel: str, position: Position) -> bool:
    """Whether the channel was at a position."""
    if position.step == 0:
        return position.prefix == ""
    found = select(steps.c.prefix).where(steps.c.channel == channel, steps.c.n == position.step)
    return c.execute(found).scalar() == position.prefix


def _steps(c: Connection, channel: str, since: int) -> Iterator[Step]:
    query = select(steps).where(steps.c.channel == channel, steps.c.n > since).order_by(steps.c.n)
    rows = c.execute(query).mappings().all()
    for some in (rows[n : n + _AT_ONCE] for n in range(0, len(rows), _AT_ONCE)):
        yield from _described(c, channel, some)


def _described(c: Connection, channel: str, rows: Sequence[RowMapping]) -> Iterator[Step]:
    ids = [r["commit_id"] for r in rows]
    added: dict[str, list[Block]] = {}
    # Those that were collected since are there, too: a later instant tells that.
    for block in read_blocks(c, select(blocks).where(blocks.c.channel == channel, blocks.c.commit_id.in_(ids))):
        added.setdefault(block.commit_id, []).append(block)
    gone: dict[str, list[Gone]] = {}
    of = (blocks.c.id, blocks.c.partition, blocks.c.kind, blocks.c.hi, blocks.c.origin, blocks.c.collected_by)
    for *what, by in c.execute(select(*of).where(blocks.c.channel == channel, blocks.c.collected_by.in_(ids))):
        gone.setdefault(by, []).append(Gone(*what))
    for r in rows:
        mine = r["commit_id"]
        position = Position(r["n"], r["prefix"])
        yield Step(position, r["action"], mine, r["at"], tuple(added.get(mine, ())), tuple(gone.get(mine, ())))
