"""Timeline reads for followers: head of a channel, instants since a position, and data to start a view with."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import TypeVar

from sqlalchemy import Connection, RowMapping, select

from nova_assets.catalog.block_rows import read_blocks
from nova_assets.catalog.catalog_part import CatalogPart
from nova_assets.catalog.channel_rows import channel_not_found_error
from nova_assets.catalog.database.transactions import batched
from nova_assets.catalog.history import newest_merge_model, read_history, schema_at_number
from nova_assets.catalog.history_excerpts import HistorySelection, load_whole_partitions, scope_conditions
from nova_assets.catalog.instants import rolled_back_by_commit
from nova_assets.catalog.tables import blocks, channels, steps
from nova_assets.model.block import Block
from nova_assets.model.channel import Channel
from nova_assets.model.partitions import WHOLE, is_in_scope
from nova_assets.model.schema import Schema
from nova_assets.model.timeline import ChannelHead, CollectedBlock, History, TimelinePosition, TimelineStep

T = TypeVar("T")

_COMMITS_PER_QUERY = 300
"""Maximum number of commits in one query."""


class Timelines(CatalogPart):
    """Reads timelines from an instant on. Each answer shows the state at one moment."""

    def head(self, channel: str) -> ChannelHead:
        """Head and timeline position of a channel. Raises ChannelNotFound."""
        return self._check_channel_found(channel, self.database.read(lambda c: _read_channel_head(c, channel)))

    def positions(self) -> dict[str, TimelinePosition]:
        """Timeline position of every channel, by name."""
        query = select(channels.c.name, channels.c.step, channels.c.prefix)
        rows = self.database.read(lambda c: c.execute(query).all())
        return {name: TimelinePosition(step, prefix) for name, step, prefix in rows}

    def steps(
        self, channel: str, since: TimelinePosition, limit: int = 10_000
    ) -> tuple[ChannelHead, list[TimelineStep] | None]:
        """Head of a channel, and its complete instants after a position, oldest first.

        Args:
            since: the position.
            limit: maximum number of instants.

        Returns:
            None instead of the instants if the position belongs to another timeline (another channel, or a restored
            backup), or if there are more instants than the limit.

        Raises:
            ChannelNotFound.
        """

        def read_steps(c: Connection) -> tuple[ChannelHead, list[TimelineStep] | None] | None:
            standing = _read_channel_head(c, channel)
            if standing is None:
                return None
            if standing.position == since:
                return standing, []
            if not _has_passed_position(c, channel, since) or standing.position.step - since.step > limit:
                return standing, None
            return standing, list(_read_steps(c, channel, since.step))

        return self._check_channel_found(channel, self.database.read(read_steps))

    def steps_without_blocks(self, channel: str, since: TimelinePosition, limit: int) -> list[TimelineStep] | None:
        """First complete instants after a position, oldest first, without their blocks.

        Returns:
            None if the channel was never at that position.

        Raises:
            ChannelNotFound.
        """

        def read_passed_steps(c: Connection) -> tuple[list[TimelineStep] | None] | None:
            standing = _read_channel_head(c, channel)
            if standing is None:
                return None
            if not _has_passed_position(c, channel, since):
                return (None,)
            query = select(steps).where(steps.c.channel == channel, steps.c.n > since.step).order_by(steps.c.n)
            rows = c.execute(query.limit(limit)).mappings()
            return (
                [
                    TimelineStep(TimelinePosition(r["n"], r["prefix"]), r["action"], r["commit_id"], r["at"])
                    for r in rows
                ],
            )

        return self._check_channel_found(channel, self.database.read(read_passed_steps))[0]

    def partition_names(self, channel: str, scope: str = WHOLE) -> tuple[ChannelHead, list[str]]:
        """Head of a channel, and the names of all partitions within a scope that ever had blocks.

        Raises:
            ChannelNotFound.
        """

        def read_partition_names(c: Connection) -> tuple[ChannelHead, list[str]] | None:
            standing = _read_channel_head(c, channel)
            if standing is None:
                return None
            query = select(blocks.c.partition).where(blocks.c.channel == channel, *scope_conditions(scope)).distinct()
            return standing, sorted(p for p in c.execute(query).scalars() if is_in_scope(p, scope))

        return self._check_channel_found(channel, self.database.read(read_partition_names))

    def head_and_full_history(self, channel: str, partitions: Collection[str]) -> tuple[ChannelHead, History]:
        """Head of a channel, and the full history of some of its partitions.

        Args:
            partitions: names of partitions; ``""`` for an unpartitioned channel.

        Raises:
            ChannelNotFound.
        """

        def read_partition_histories(c: Connection) -> tuple[ChannelHead, History] | None:
            standing = _read_channel_head(c, channel)
            return None if standing is None else (standing, _history_of_partitions(c, standing, partitions))

        return self._check_channel_found(channel, self.database.read(read_partition_histories))

    def head_and_history(
        self, channel: str, at: int | None, scope: str, since: int, back_to: int
    ) -> tuple[ChannelHead, History]:
        """Head of a channel, and a history at the same moment (see ``Histories.history``).

        Raises:
            ChannelNotFound, VersionNotFound.
        """

        def read_state_and_history(c: Connection) -> tuple[ChannelHead, History] | None:
            standing, result = (
                _read_channel_head(c, channel),
                read_history(c, channel, at, scope, since, back_to),
            )
            return None if standing is None or result is None else (standing, result)

        return self._check_channel_found(channel, self.database.read(read_state_and_history))

    def _check_channel_found(self, channel: str, result: T | None) -> T:
        if result is None:
            raise channel_not_found_error(self.database, channel)
        return result


def _read_channel_head(c: Connection, channel: str) -> ChannelHead | None:
    row = c.execute(select(channels).where(channels.c.name == channel)).mappings().first()
    if row is None:
        return None
    definition = Channel.from_json(row["definition"])
    return ChannelHead(
        channel,
        TimelinePosition(row["step"], row["prefix"]),
        row["head"],
        None if row["schema"] is None else Schema.from_json(row["schema"]),
        definition.merge,
        definition.partition_columns,
        newest_merge_model(c, channel, row["head"]),
        schema_at_number(c, channel, row["head"]),
    )


def read_history_of_partitions(c: Connection, channel: str, partitions: Collection[str]) -> History | None:
    """Full history of some partitions; None for an unknown channel."""
    standing = _read_channel_head(c, channel)
    return None if standing is None else _history_of_partitions(c, standing, partitions)


def _history_of_partitions(c: Connection, standing: ChannelHead, partitions: Collection[str]) -> History:
    loaded = load_whole_partitions(
        c, HistorySelection(standing.channel, standing.head, WHOLE, standing.columns), partitions
    )
    return History(
        standing.channel,
        WHOLE,
        standing.head,
        tuple(sorted(loaded.blocks, key=lambda b: (b.hi, b.kind, b.id))),
        standing.schema,
        standing.merge,
        collected_numbers={p: tuple(sorted(n)) for p, n in loaded.collected_numbers.items()},
        last_merge=standing.last_merge,
    )


def _has_passed_position(c: Connection, channel: str, position: TimelinePosition) -> bool:
    """Whether the channel is or was at a position."""
    if position.step == 0:
        return position.prefix == ""
    prefix_query = select(steps.c.prefix).where(steps.c.channel == channel, steps.c.n == position.step)
    return c.execute(prefix_query).scalar() == position.prefix


def _read_steps(c: Connection, channel: str, after_step: int) -> Iterator[TimelineStep]:
    query = select(steps).where(steps.c.channel == channel, steps.c.n > after_step).order_by(steps.c.n)
    rows = c.execute(query).mappings().all()
    for batch in batched(rows, _COMMITS_PER_QUERY):
        yield from _steps_from_rows(c, channel, batch)


def _steps_from_rows(c: Connection, channel: str, rows: Sequence[RowMapping]) -> Iterator[TimelineStep]:
    ids = [r["commit_id"] for r in rows]
    added_by_commit: dict[str, list[Block]] = {}
    # Includes blocks that were collected later. A later instant removes them.
    for block in read_blocks(c, select(blocks).where(blocks.c.channel == channel, blocks.c.commit_id.in_(ids))):
        added_by_commit.setdefault(block.commit_id, []).append(block)
    removed_by_commit: dict[str, list[CollectedBlock]] = {}
    removed_columns = (
        blocks.c.id,
        blocks.c.partition,
        blocks.c.kind,
        blocks.c.hi,
        blocks.c.origin,
        blocks.c.collected_by,
    )
    for *removed_fields, commit_id in c.execute(
        select(*removed_columns).where(blocks.c.channel == channel, blocks.c.collected_by.in_(ids))
    ):
        removed_by_commit.setdefault(commit_id, []).append(CollectedBlock(*removed_fields))
    rolled_back = rolled_back_by_commit(c, [r["commit_id"] for r in rows if r["action"] == "rollback"])
    for r in rows:
        step_commit_id = r["commit_id"]
        position = TimelinePosition(r["n"], r["prefix"])
        yield TimelineStep(
            position,
            r["action"],
            step_commit_id,
            r["at"],
            tuple(added_by_commit.get(step_commit_id, ())),
            tuple(removed_by_commit.get(step_commit_id, ())),
            rolled_back.get(step_commit_id, ()),
        )
