"""What whoever follows timelines asks: where a channel stands, what has happened since, and what there is to begin
with."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import TypeVar

from sqlalchemy import Connection, RowMapping, select

from nova_assets.catalog.block_rows import read_blocks
from nova_assets.catalog.database import Database, batched
from nova_assets.catalog.definitions import Definitions
from nova_assets.catalog.history import Histories, last_merge, schema_told
from nova_assets.catalog.history_excerpts import Part, narrowed, whole_of
from nova_assets.catalog.tables import blocks, channels, steps
from nova_assets.model.block import Block
from nova_assets.model.channel import Channel
from nova_assets.model.partitions import WHOLE, within
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

    def steps(self, channel: str, since: Position, limit: int = 10_000) -> tuple[Standing, list[Step] | None]:
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

    def passed(self, channel: str, since: Position, limit: int) -> list[Step] | None:
        """The first complete instants after a position, oldest first, without their blocks; None where the channel
        never was there.

        Raises:
            ChannelNotFound.
        """

        def work(c: Connection) -> tuple[list[Step] | None] | None:
            standing = _standing(c, channel)
            if standing is None:
                return None
            if not _is_on(c, channel, since):
                return (None,)
            query = select(steps).where(steps.c.channel == channel, steps.c.n > since.step).order_by(steps.c.n)
            rows = c.execute(query.limit(limit)).mappings()
            return ([Step(Position(r["n"], r["prefix"]), r["action"], r["commit_id"], r["at"]) for r in rows],)

        return self._found(channel, self.database.read(work))[0]

    def told(
        self, channel: str, after: int, limit: int
    ) -> list[tuple[int, str, str, str, str, int | None, tuple[str, ...]]]:
        """What is told of the first complete instants after one: number, hash, action, commit, moment, the newest
        sequence number that it touched, and the partitions."""
        query = select(steps).where(steps.c.channel == channel, steps.c.n > after).order_by(steps.c.n).limit(limit)

        def work(c: Connection) -> list[tuple[int, str, str, str, str, int | None, tuple[str, ...]]]:
            rows = c.execute(query).mappings().all()
            touched: dict[str, dict[str, int]] = {}
            ids = [r["commit_id"] for r in rows]
            for some in batched(ids, _AT_ONCE):
                for by in (blocks.c.commit_id, blocks.c.collected_by):
                    of = select(by, blocks.c.partition, blocks.c.hi).where(blocks.c.channel == channel, by.in_(some))
                    for commit, partition, hi in c.execute(of):
                        found = touched.setdefault(commit, {})
                        found[partition] = max(hi, found.get(partition, 0))
            return [
                (
                    *(r["n"], r["prefix"], r["action"], r["commit_id"], r["at"].isoformat()),
                    max(touched.get(r["commit_id"], {}).values(), default=None),
                    tuple(sorted(touched.get(r["commit_id"], {}))),
                )
                for r in rows
            ]

        return self.database.read(work)

    def named(self, channel: str, scope: str = WHOLE) -> tuple[Standing, list[str]]:
        """Where a channel stands, and the partitions within a scope of which anything was ever known, by name.

        Raises:
            ChannelNotFound.
        """

        def work(c: Connection) -> tuple[Standing, list[str]] | None:
            standing = _standing(c, channel)
            if standing is None:
                return None
            query = select(blocks.c.partition).where(blocks.c.channel == channel, *narrowed(scope)).distinct()
            return standing, sorted(p for p in c.execute(query).scalars() if within(p, scope))

        return self._found(channel, self.database.read(work))

    def bootstrap(self, channel: str, partitions: Collection[str]) -> tuple[Standing, History]:
        """Where a channel stands, and everything that is known of some of its partitions.

        Args:
            partitions: their names; ``""`` is that of a channel without any.

        Raises:
            ChannelNotFound.
        """

        def work(c: Connection) -> tuple[Standing, History] | None:
            standing = _standing(c, channel)
            return None if standing is None else (standing, _history(c, standing, partitions))

        return self._found(channel, self.database.read(work))

    def history_there(
        self, channel: str, at: int | None, scope: str, since: int, back_to: int
    ) -> tuple[Standing, History]:
        """Where a channel stands, and a history of that moment (``Histories.history``).

        Raises:
            ChannelNotFound, VersionNotFound.
        """

        def work(c: Connection) -> tuple[Standing, History] | None:
            standing, found = _standing(c, channel), self.histories.history_in(c, channel, at, scope, since, back_to)
            return None if standing is None or found is None else (standing, found)

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
        schema_told(c, channel, row["head"]),
    )


def whole_in(c: Connection, channel: str, partitions: Collection[str]) -> History | None:
    """Everything that is known of some partitions; None where there is no such channel."""
    standing = _standing(c, channel)
    return None if standing is None else _history(c, standing, partitions)


def _history(c: Connection, standing: Standing, partitions: Collection[str]) -> History:
    found = whole_of(c, Part(standing.channel, standing.head, WHOLE, standing.columns), partitions)
    return History(
        standing.channel,
        WHOLE,
        standing.head,
        tuple(sorted(found.blocks, key=lambda b: (b.hi, b.kind, b.id))),
        standing.schema,
        standing.merge,
        numbers={p: tuple(sorted(n)) for p, n in found.numbers.items()},
        last_merge=standing.last_merge,
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
    for some in batched(rows, _AT_ONCE):
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
