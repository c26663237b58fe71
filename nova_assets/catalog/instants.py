"""Instants of channels: their timelines for people, and short summaries for pages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from sqlalchemy import ColumnElement, Connection, func, select

from nova_assets.catalog.block_rows import load_blocks_with_files
from nova_assets.catalog.catalog_part import CatalogPart
from nova_assets.catalog.channel_rows import load_channel_state
from nova_assets.catalog.database.transactions import batched, query_as_dict
from nova_assets.catalog.rollbacks import requested_rollbacks, rollback_instants, rolled_back_by_commit
from nova_assets.catalog.tables import blocks, commit_numbers, commits, executions, staged_blocks, steps
from nova_assets.model.block import Block
from nova_assets.model.timeline import Instant, InstantSummary, action_of_block_origins

_COMMITS_PER_QUERY = 500
"""Maximum number of commits whose blocks one statement loads."""


class Instants(CatalogPart):
    """Reads the instants of channels. Each answer shows the state at one moment."""

    def of(self, channel: str, limit: int | None = None) -> list[Instant]:
        """Instants of a channel, oldest first; requested instants last.

        Args:
            limit: maximum number of instants, counted from the latest. No more are loaded.

        Raises:
            ChannelNotFound.
        """
        load_channel_state(self.database, channel)  # raises if the channel is not registered
        instants = self.database.read(
            lambda c: [
                *_completed_instants(c, channel, limit),
                *requested_rollbacks(c, channel),
                *_requested_instants(c, channel),
            ]
        )
        return instants if limit is None else instants[max(0, len(instants) - limit) :]

    def summaries(self, channel: str, after: int, limit: int) -> list[InstantSummary]:
        """Summaries of the first complete instants after a step."""
        query = select(steps).where(steps.c.channel == channel, steps.c.n > after).order_by(steps.c.n).limit(limit)

        def read_summaries(c: Connection) -> list[InstantSummary]:
            rows = c.execute(query).mappings().all()
            numbers_by_commit = _newest_numbers_by_commit(c, channel, [r["commit_id"] for r in rows])
            rolled_back = rolled_back_by_commit(c, [r["commit_id"] for r in rows if r["action"] == "rollback"])
            return [
                InstantSummary(
                    *(r["n"], r["prefix"], r["action"], r["commit_id"], r["at"].isoformat()),
                    max(numbers_by_commit.get(r["commit_id"], {}).values(), default=None),
                    tuple(
                        sorted(
                            {b.partition for b in rolled_back.get(r["commit_id"], ())}
                            | numbers_by_commit.get(r["commit_id"], {}).keys()
                        )
                    ),
                )
                for r in rows
            ]

        return self.database.read(read_summaries)


def _newest_numbers_by_commit(c: Connection, channel: str, commit_ids: Sequence[str]) -> dict[str, dict[str, int]]:
    """Commit -> partition -> newest number at which the commit added or collected a block."""
    numbers_by_commit: dict[str, dict[str, int]] = {}
    for batch in batched(commit_ids, _COMMITS_PER_QUERY):
        for commit_column in (blocks.c.commit_id, blocks.c.collected_by):
            blocks_query = select(commit_column, blocks.c.partition, blocks.c.hi).where(
                blocks.c.channel == channel, commit_column.in_(batch)
            )
            for commit, partition, hi in c.execute(blocks_query):
                newest_by_partition = numbers_by_commit.setdefault(commit, {})
                newest_by_partition[partition] = max(hi, newest_by_partition.get(partition, 0))
    return numbers_by_commit


def _completed_instants(c: Connection, channel: str, limit: int | None) -> list[Instant]:
    query = select(commits, commit_numbers.c.seq).join(commit_numbers, commit_numbers.c.commit_id == commits.c.id)
    query = query.where(commit_numbers.c.channel == channel).order_by(commit_numbers.c.seq.desc()).limit(limit)
    rows = c.execute(query).mappings().all()
    added = _blocks_by_commit(c, channel, blocks.c.commit_id, [r["id"] for r in rows])
    commit_instants = [
        Instant(
            action_of_block_origins(b.origin for b in added.get(r["id"], ())),
            "complete",
            r["seq"],
            r["at"],
            r["id"],
            r["binding"],
            tuple(added.get(r["id"], ())),
            r["details"],
        )
        for r in reversed(rows)
    ]
    maintenance = [
        *_maintenance_instants(c, channel, "compact", limit),
        *_maintenance_instants(c, channel, "collect", limit),
    ]
    return _sort_by_commit_order(c, channel, [*commit_instants, *maintenance, *rollback_instants(c, channel, limit)])


def _maintenance_instants(
    c: Connection, channel: str, action: Literal["compact", "collect"], limit: int | None
) -> list[Instant]:
    """Instants of compactions or collections, whose commits take no number."""
    commit_column = blocks.c.commit_id if action == "compact" else blocks.c.collected_by
    is_action = blocks.c.origin == "compact" if action == "compact" else commit_column.is_not(None)
    query = select(commits).where(commits.c.id.in_(select(commit_column).where(blocks.c.channel == channel, is_action)))
    rows = c.execute(query.order_by(commits.c.at.desc(), commits.c.id.desc()).limit(limit)).mappings().all()
    blocks_by_commit = _blocks_by_commit(c, channel, commit_column, [r["id"] for r in rows])
    return [
        Instant(action, "complete", max(b.hi for b in some), r["at"], r["id"], None, tuple(some), r["details"])
        for r, some in ((r, blocks_by_commit[r["id"]]) for r in reversed(rows))
    ]


def _requested_instants(c: Connection, channel: str) -> list[Instant]:
    query = select(executions).join(staged_blocks, staged_blocks.c.execution_id == executions.c.id).distinct()
    query = query.where(staged_blocks.c.channel == channel, executions.c.state == "running").order_by(
        executions.c.started_at
    )
    return [
        Instant(r["purpose"], "requested", None, r["started_at"], "", r["binding"]) for r in c.execute(query).mappings()
    ]


def _sort_by_commit_order(c: Connection, channel: str, instants: list[Instant]) -> list[Instant]:
    """Sort instants by commit order.

    Commit times do not give this order, since processes read the database's clock over connections of different speed.
    Commits without a step, from older versions of the catalog, come first, sorted by time.
    """
    positions: dict[str, int] = {}
    for batch in batched(sorted({i.commit_id for i in instants}), _COMMITS_PER_QUERY):
        query = select(steps.c.commit_id, func.min(steps.c.n)).where(steps.c.channel == channel)
        positions |= query_as_dict(c, query.where(steps.c.commit_id.in_(batch)).group_by(steps.c.commit_id))
    return sorted(instants, key=lambda i: (positions.get(i.commit_id, 0), i.at))


def _blocks_by_commit(
    c: Connection, channel: str, commit_column: ColumnElement[Any], commit_ids: Sequence[str]
) -> dict[str, list[Block]]:
    """Blocks of a channel that each commit added or collected, sorted by number.

    Args:
        commit_column: column that names the commit: ``commit_id`` or ``collected_by``.
    """
    blocks_by_commit: dict[str, list[Block]] = {}
    for batch in batched(commit_ids, _COMMITS_PER_QUERY):
        query = select(blocks, commit_column.label("whose")).where(
            blocks.c.channel == channel, commit_column.in_(batch)
        )
        rows = c.execute(query.order_by(blocks.c.hi, blocks.c.kind, blocks.c.id)).mappings().all()
        for row, block in zip(rows, load_blocks_with_files(c, rows), strict=True):
            blocks_by_commit.setdefault(row["whose"], []).append(block)
    return blocks_by_commit
