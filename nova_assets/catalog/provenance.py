"""Provenance: the numbered blocks of channels, and what their commits read. Collected blocks keep their rows."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import replace

from sqlalchemy import Connection, RowMapping, Select, String, cast, or_, select

from nova_assets.catalog.catalog_part import CatalogPart
from nova_assets.catalog.database.transactions import batched
from nova_assets.catalog.tables import blocks, commit_numbers, commits, executions, idempotency_keys
from nova_assets.model.partitions import WHOLE
from nova_assets.model.provenance import RESTORED_VERSION, ChannelRead, CommitOrigin, NumberedBlock

_COMMITS_PER_QUERY = 300
"""Maximum number of commits in one query."""


class Provenance(CatalogPart):
    """Reads where blocks come from, and which commits read a channel."""

    def numbered_blocks(self, channel: str) -> list[NumberedBlock]:
        """Every block of a channel that took a sequence number, oldest first, also if it was collected."""
        columns = (blocks.c.partition, blocks.c.hi, blocks.c.kind, blocks.c.origin, blocks.c.commit_id)
        query = select(*columns).where(blocks.c.channel == channel, blocks.c.origin != "compact")
        query = query.order_by(blocks.c.hi.desc(), blocks.c.kind, blocks.c.partition)
        found: list[NumberedBlock] = []
        next_bases: dict[str, tuple[int | None, int | None]] = {}  # partition -> numbers of the next two bases
        for row in self.database.read(lambda c: c.execute(query).all()):
            block = NumberedBlock(channel, *row)
            following, second = next_bases.get(block.partition, (None, None))
            # A base and its change have the same number.
            found.append(replace(block, replaced_at=second if following == block.seq else following))
            if block.kind == "base" and following != block.seq:
                next_bases[block.partition] = (block.seq, following)
        return found[::-1]

    def commit_origins(self, commit_ids: Collection[str]) -> dict[str, CommitOrigin]:
        """Commits with what they read, by id."""

        def read_origins(c: Connection) -> dict[str, CommitOrigin]:
            found: dict[str, CommitOrigin] = {}
            for batch in batched(sorted(commit_ids), _COMMITS_PER_QUERY):
                rows = c.execute(_origin_query().where(commits.c.id.in_(batch))).mappings().all()
                found |= {o.id: o for o in _origins_from_rows(c, rows)}
            return found

        return self.database.read(read_origins)

    def commits_that_read(self, channel: str) -> list[CommitOrigin]:
        """Commits whose executions read a channel, oldest first. A restore reads the version that it restores."""
        is_mentioned = cast(commits.c.consumed, String).contains(json.dumps(channel), autoescape=True)
        restores = select(blocks.c.commit_id).where(blocks.c.channel == channel, blocks.c.origin == "restore")
        query = _origin_query().where(or_(is_mentioned, commits.c.id.in_(restores)))
        query = query.order_by(commits.c.at, commits.c.id)

        def read_origins(c: Connection) -> list[CommitOrigin]:
            rows = c.execute(query).mappings().all()
            return [o for b in batched(rows, _COMMITS_PER_QUERY) for o in _origins_from_rows(c, b)]

        return [o for o in self.database.read(read_origins) if any(r.channel == channel for r in o.reads)]


def _origin_query() -> Select[tuple[object, ...]]:
    columns = (commits.c.id, commits.c.binding, commits.c.at, commits.c.consumed)
    return (
        select(*columns, executions.c.partition, idempotency_keys.c.key)
        .join(executions, executions.c.id == commits.c.execution_id, isouter=True)
        .join(idempotency_keys, idempotency_keys.c.commit_id == commits.c.id, isouter=True)
    )


def _origins_from_rows(c: Connection, rows: Sequence[RowMapping]) -> list[CommitOrigin]:
    ids = [r["id"] for r in rows]
    restored, numbers = _restored_reads(c, ids), _numbers_by_commit(c, ids)
    return [
        CommitOrigin(
            row["id"],
            row["binding"],
            row["partition"] or WHOLE,
            row["at"],
            row["key"],
            (
                *(ChannelRead.from_json(n, fields) for n, fields in row["consumed"].items()),
                *restored.get(row["id"], ()),
            ),
            numbers.get(row["id"], {}),
        )
        for row in rows
    ]


def _numbers_by_commit(c: Connection, commit_ids: Collection[str]) -> dict[str, dict[str, int]]:
    """Commit -> the number that it took in each channel."""
    query = select(commit_numbers.c.commit_id, commit_numbers.c.channel, commit_numbers.c.seq)
    found: dict[str, dict[str, int]] = {}
    for commit_id, channel, seq in c.execute(query.where(commit_numbers.c.commit_id.in_(commit_ids))):
        found.setdefault(commit_id, {})[channel] = seq
    return found


def _restored_reads(c: Connection, commit_ids: Collection[str]) -> dict[str, tuple[ChannelRead, ...]]:
    """Commit -> the version of the channel that it restored."""
    query = (
        select(blocks.c.commit_id, blocks.c.channel, commits.c.details)
        .join(commits, commits.c.id == blocks.c.commit_id)
        .where(blocks.c.commit_id.in_(commit_ids), blocks.c.origin == "restore", blocks.c.kind == "base")
    )
    return {
        commit_id: (ChannelRead(channel, None, details[RESTORED_VERSION]),)
        for commit_id, channel, details in c.execute(query)
        if RESTORED_VERSION in details
    }
