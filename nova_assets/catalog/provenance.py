"""Provenance: the numbered blocks of channels, and what their commits read. Collected blocks keep their rows."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence

from sqlalchemy import Connection, RowMapping, Select, String, cast, or_, select

from nova_assets.catalog.catalog_part import CatalogPart
from nova_assets.catalog.database.transactions import batched
from nova_assets.catalog.tables import blocks, commit_numbers, commits, executions, idempotency_keys
from nova_assets.model.partitions import WHOLE
from nova_assets.model.provenance import READ_VERSIONS, ChannelRead, CommitOrigin, NumberedBlock

_COMMITS_PER_QUERY = 300
"""Maximum number of commits in one query."""


class Provenance(CatalogPart):
    """Reads where blocks come from, and which commits read a channel."""

    def numbered_blocks(self, channel: str) -> list[NumberedBlock]:
        """Every block of a channel that took a sequence number, oldest first, also if it was collected."""
        columns = (blocks.c.partition, blocks.c.hi, blocks.c.kind, blocks.c.origin, blocks.c.commit_id)
        query = select(*columns).where(blocks.c.channel == channel, blocks.c.origin != "compact")
        query = query.order_by(blocks.c.hi, blocks.c.kind, blocks.c.partition)
        return [NumberedBlock(channel, *row) for row in self.database.read(lambda c: c.execute(query).all())]

    def commit_origins(self, commit_ids: Collection[str]) -> dict[str, CommitOrigin]:
        """Commits with what they read, by id."""

        def read_origins(c: Connection) -> dict[str, CommitOrigin]:
            rows: list[RowMapping] = []
            for batch in batched(sorted(commit_ids), _COMMITS_PER_QUERY):
                rows += c.execute(_commit_query().where(commits.c.id.in_(batch))).mappings()
            return {o.id: o for o in _origins_from_rows(c, rows)}

        return self.database.read(read_origins)

    def commits_that_read(self, channel: str) -> list[CommitOrigin]:
        """Commits whose executions read a channel, oldest first. A restore reads the version that it restores."""
        # Read channels have no index, so all commits are searched: 7 s of CPU for 100,000 commits with two inputs each.
        name = json.dumps(channel)
        is_mentioned = [
            cast(commits.c.consumed, String).contains(name, autoescape=True),
            cast(commits.c.details, String).contains(json.dumps(READ_VERSIONS), autoescape=True),
        ]
        restores = select(blocks.c.commit_id).where(blocks.c.channel == channel, blocks.c.origin == "restore")
        query = _commit_query().where(or_(*is_mentioned, commits.c.id.in_(restores)))
        query = query.order_by(commits.c.at, commits.c.id)

        def read_origins(c: Connection) -> list[CommitOrigin]:
            return _origins_from_rows(c, c.execute(query).mappings().all())

        return [o for o in self.database.read(read_origins) if any(r.channel == channel for r in o.reads)]


def _commit_query() -> Select[tuple[object, ...]]:
    columns = (commits.c.id, commits.c.binding, commits.c.at, commits.c.consumed)
    of_execution = (executions.c.partition, executions.c.run_id, executions.c.started_at)
    return select(*columns, *of_execution).join(executions, executions.c.id == commits.c.execution_id, isouter=True)


def _origins_from_rows(c: Connection, rows: Sequence[RowMapping]) -> list[CommitOrigin]:
    ids = [r["id"] for r in rows]
    numbers: dict[str, dict[str, int]] = {}
    more_reads: dict[str, list[ChannelRead]] = {}
    for batch in batched(ids, _COMMITS_PER_QUERY):
        numbers |= _numbers_by_commit(c, batch)
        _add_detailed_reads(c, batch, more_reads)
    _add_reads_of_same_step(c, rows, more_reads)
    keys = _keys_by_commit(c, {n for by_channel in numbers.values() for n in by_channel})
    return [
        CommitOrigin(
            row["id"],
            row["binding"],
            row["partition"] or WHOLE,
            row["at"],
            keys.get(row["id"]),
            tuple(dict.fromkeys([*_reads_from_row(row), *more_reads.get(row["id"], ())])),
            numbers.get(row["id"], {}),
        )
        for row in rows
    ]


def _reads_from_row(row: RowMapping) -> list[ChannelRead]:
    return [ChannelRead.from_json(channel, fields) for channel, fields in row["consumed"].items()]


def _numbers_by_commit(c: Connection, commit_ids: Collection[str]) -> dict[str, dict[str, int]]:
    """Commit -> the number that it took in each channel."""
    query = select(commit_numbers.c.commit_id, commit_numbers.c.channel, commit_numbers.c.seq)
    found: dict[str, dict[str, int]] = {}
    for commit_id, channel, seq in c.execute(query.where(commit_numbers.c.commit_id.in_(commit_ids))):
        found.setdefault(commit_id, {})[channel] = seq
    return found


def _keys_by_commit(c: Connection, channels: Collection[str]) -> dict[str, str]:
    """Commit -> the idempotency key of an insert."""
    query = select(idempotency_keys.c.commit_id, idempotency_keys.c.key)
    query = query.where(idempotency_keys.c.channel.in_(sorted(channels)))
    return {commit_id: key for commit_id, key in c.execute(query)}


def _add_detailed_reads(c: Connection, commit_ids: Collection[str], reads: dict[str, list[ChannelRead]]) -> None:
    """Add the versions that restores and replays used. A restore of an older catalog may have used any earlier one."""
    # They are in the details: the scheduler takes recorded reads for inputs of a dataset, and would find it stale.
    is_detailed = cast(commits.c.details, String).contains(json.dumps(READ_VERSIONS), autoescape=True)
    query = select(commits.c.id, commits.c.details).where(commits.c.id.in_(commit_ids), is_detailed)
    for commit_id, details in c.execute(query):
        versions = details.get(READ_VERSIONS, {})
        reads.setdefault(commit_id, []).extend(ChannelRead(n, None, at) for n, at in versions.items())
    restores = select(blocks.c.commit_id, blocks.c.channel, blocks.c.hi).where(
        blocks.c.commit_id.in_(commit_ids), blocks.c.origin == "restore", blocks.c.kind == "base"
    )
    for commit_id, channel, seq in c.execute(restores.distinct()):
        if commit_id not in reads:
            reads[commit_id] = [ChannelRead(channel, 0, seq - 1, is_new_only=True)]


def _add_reads_of_same_step(c: Connection, rows: Sequence[RowMapping], reads: dict[str, list[ChannelRead]]) -> None:
    """Add the reads of executions that overlap in one Dagster run.

    A Dagster asset with ``BackfillPolicy.single_run()`` gets the rows of all its partitions at once, and each partition
    is an execution of its own. A binding executes its partitions one after the other, so its executions do not overlap.
    """
    of_runs = [r for r in rows if r["run_id"] and r["partition"] and r["binding"]]
    for batch in batched(sorted({r["run_id"] for r in of_runs}), _COMMITS_PER_QUERY):
        query = _commit_query().where(executions.c.run_id.in_(batch), executions.c.partition != WHOLE)
        siblings: dict[tuple[str, str], list[RowMapping]] = {}
        for sibling in c.execute(query).mappings():
            siblings.setdefault((sibling["run_id"], sibling["binding"]), []).append(sibling)
        for row in (r for r in of_runs if r["run_id"] in batch):
            for other in siblings.get((row["run_id"], row["binding"]), ()):
                if other["id"] != row["id"] and other["started_at"] <= row["at"] and row["started_at"] <= other["at"]:
                    reads.setdefault(row["id"], []).extend(_reads_from_row(other))
