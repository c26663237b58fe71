"""The commit transaction: it checks preconditions, assigns numbers, publishes blocks, moves cursors.

Implements R1, R2, R5, R6 and R7.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from sqlalchemy import Connection, RowMapping, Select, delete, insert, select, update

from nova_assets.catalog.arrivals import insert_seals, record_arrival_outcomes, reopen_or_reject_sealed_groups
from nova_assets.catalog.catalog_part import CatalogPart
from nova_assets.catalog.commit_preconditions import check_preconditions, commit_conflict
from nova_assets.catalog.commit_rows import (
    block_row,
    blocks_with_same_range_condition,
    check_idempotency_key,
    read_commit,
    read_commit_by_idempotency_key,
)
from nova_assets.catalog.cursors import cursor_conditions
from nova_assets.catalog.database.transactions import Database
from nova_assets.catalog.execution_rows import delete_skip_markers, lock_execution, mark_aborted
from nova_assets.catalog.external_sources import set_source_versions
from nova_assets.catalog.notification_outbox import notify_finished, notify_set_aside
from nova_assets.catalog.published_versions import mark_versions_shown
from nova_assets.catalog.scheduler_state import delete_fulfilled_requests, mark_outputs_of_other_writers
from nova_assets.catalog.tables import (
    blocks,
    channels,
    commit_numbers,
    commits,
    cursors,
    executions,
    files,
    firings,
    idempotency_keys,
    seals,
    staged_blocks,
)
from nova_assets.catalog.timeline_steps import append_steps
from nova_assets.errors import ChannelNotFound
from nova_assets.model.commit import AddBlock, Commit, CommitRecord, CommitRequest, IdempotentCommit
from nova_assets.model.timeline import Action, action_of_block_origins
from nova_assets.nova_error import NovaError


class Commits(CatalogPart):
    """Publishes executions.

    Args:
        on_before_commit: called inside the transaction, right before COMMIT. Crash tests stop the process here.
    """

    def __init__(self, database: Database, on_before_commit: Callable[[], None] | None = None) -> None:
        super().__init__(database)
        self.on_before_commit = on_before_commit

    def commit(self, request: CommitRequest) -> Commit:
        """Publish everything in the request, or nothing.

        Returns:
            The commit. A request that repeats an idempotency key gets the first commit of that key, and its execution
            is aborted.

        Raises:
            CommitConflict: a precondition failed; nothing was changed.
            CommitOutcomeUnknown: look up the outcome with ``commit_or_abort`` (R7).
        """
        return self.database.write(
            lambda c: self._commit_in_transaction(c, request), self.on_before_commit, outcome_resolved_by_caller=True
        )

    def commit_or_abort(self, execution_id: str) -> Commit | None:
        """Commit of an execution, if it has one. Otherwise the execution is aborted, so that a late COMMIT fails (R7).

        Waits for a transaction that still holds the execution's row.

        Returns:
            None if the execution was not committed.
        """

        def find_commit_or_abort(c: Connection) -> Commit | None:
            row = lock_execution(c, execution_id)
            if row is None:
                return None
            if row["state"] == "committed":
                return read_commit(c, commits.c.execution_id == execution_id)
            if row["state"] != "aborted":
                mark_aborted(c, execution_id, "its COMMIT was lost", self.database, counts_as_failure=False)
            return None

        return self.database.write(find_commit_or_abort)

    def by_idempotency_key(self, channel: str, key: str) -> IdempotentCommit | None:
        """Commit that used an idempotency key; None if the key is unused.

        Raises:
            ValueRefused: the key cannot be stored.
        """
        check_idempotency_key(channel, key)
        return self.database.read(lambda c: read_commit_by_idempotency_key(c, channel, key))

    def by_id(self, commit_id: str) -> Commit:
        """Commit with an id. Raises NovaError if it does not exist."""
        result = self.database.read(lambda c: read_commit(c, commits.c.id == commit_id))
        if result is None:
            raise NovaError(f"there is no commit {commit_id!r}", commit_id=commit_id)
        return result

    def last(self, binding: str, partition: str) -> CommitRecord | None:
        """Record of the last commit of a binding's partition; None if there is none."""
        query = _last_commit_query(binding, partition)
        row = self.database.read(lambda c: c.execute(query).first())
        if row is None:
            return None
        return CommitRecord({n: read[1] for n, read in row.consumed.items()}, row.heads, row.details)

    def unreported(
        self, limit: int = 100, channels: Iterable[str] | None = None, max_blocks: int | None = None
    ) -> list[Commit]:
        """Commits not yet reported to Dagster that took a number or sealed a group, oldest first (R17).

        Args:
            limit: maximum number of commits.
            channels: only commits on at least one of these channels.
            max_blocks: number of blocks after which no further commit is read.
        """
        numbered, sealed = select(commit_numbers.c.commit_id), select(seals.c.commit_id)
        if channels is not None:
            names = sorted(channels)
            numbered, sealed = (
                numbered.where(commit_numbers.c.channel.in_(names)),
                sealed.where(seals.c.channel.in_(names)),
            )
        reportable_ids = numbered.union_all(sealed)
        query = select(commits.c.id).where(commits.c.published_at.is_(None), commits.c.id.in_(reportable_ids))
        query = query.order_by(commits.c.at, commits.c.id).limit(limit)

        def read_unpublished(c: Connection) -> list[Commit]:
            results: list[Commit] = []
            for commit_id in c.execute(query).scalars().all():
                if max_blocks is not None and sum(len(r.blocks) for r in results) >= max_blocks:
                    break
                if (found := read_commit(c, commits.c.id == commit_id)) is not None:
                    results.append(found)
            return results

        return self.database.read(read_unpublished)

    def mark_reported(self, commit_id: str) -> None:
        """Record that Dagster has the commit (R17)."""
        change = update(commits).where(commits.c.id == commit_id, commits.c.published_at.is_(None))
        self.database.write(lambda c: c.execute(change.values(published_at=self.database.clock())))

    def _commit_in_transaction(self, c: Connection, request: CommitRequest) -> Commit:
        execution = lock_execution(c, request.execution_id)
        channel_rows = lock_channels(c, request)
        repeated = self._abort_repeated_commit(c, request)
        if repeated is not None:
            return repeated
        check_preconditions(c, request, execution, channel_rows)
        reopen_or_reject_sealed_groups(c, request, channel_rows)
        new_numbers = self._assign_sequence_numbers(c, request, channel_rows)
        self._insert_published_blocks(c, request, channel_rows, new_numbers)
        append_steps(c, request.id, _actions_by_channel(request), channel_rows, self.database.clock())
        self._move_cursors(c, request, new_numbers)
        record_arrival_outcomes(c, request.arrival_outcomes, request.id)
        notify_set_aside(c, self.database.clock(), request.arrival_outcomes)
        insert_seals(c, request, self.database.clock())
        mark_versions_shown(c, request, self.database.clock())
        set_source_versions(c, request)
        started_at = None if execution is None else execution["started_at"]
        delete_fulfilled_requests(c, request, new_numbers, started_at, self.database.clock())
        mark_outputs_of_other_writers(c, request, self.database.clock())
        self._finish_execution(c, request, execution or {})
        if execution is not None:
            notify_finished(c, self.database.clock(), execution)
        result = read_commit(c, commits.c.id == request.id)
        assert result is not None
        return result

    def _abort_repeated_commit(self, c: Connection, request: CommitRequest) -> Commit | None:
        if request.idempotency is None:
            return None
        channel, key = request.idempotency
        keyed_commit = read_commit_by_idempotency_key(c, channel, key)
        if keyed_commit is None:
            return None
        repeated = keyed_commit.as_repeated(channel, request.rows_digest)
        mark_aborted(c, request.execution_id, f"repeats commit {repeated.id}", self.database)
        return repeated

    def _assign_sequence_numbers(
        self, c: Connection, request: CommitRequest, channel_rows: Mapping[str, Any]
    ) -> dict[str, int]:
        """Assign the next number of each channel that gets a block, and store the commit.

        Schemas are set under the same lock (R1).

        Returns:
            Channel -> its new number.
        """
        new_numbers = {
            p.channel: _next_number(channel_rows[p.channel]) for p in request.added_blocks if p.takes_sequence_number
        }
        based_channels = {
            p.channel for p in request.added_blocks if p.kind == "base" and p.span is None and p.origin != "drop"
        }
        # Data triggers look at the news instead of the head, because a drop fires none (R19).
        channels_with_news = {p.channel for p in request.added_blocks if p.takes_sequence_number and p.origin != "drop"}
        # Never set back: from now on, collection keeps the snapshots at cursors, to compare the next base with (R15).
        c.execute(
            update(channels).where(channels.c.name.in_(based_channels), channels.c.bases.is_(False)).values(bases=True)
        )
        new_schemas = {s.channel: s for s in request.schema_changes if s.channel in new_numbers}
        for name, seq in new_numbers.items():
            values: dict[str, Any] = {"head": seq, **({"news": seq} if name in channels_with_news else {})}
            if name in new_schemas:
                values["schema"] = new_schemas[name].to.as_json()
                values |= {"next_schema": None} if new_schemas[name].is_next else {}
            c.execute(update(channels).where(channels.c.name == name).values(**values))
        involved_channels = {p.channel for p in request.added_blocks} | {m.channel for m in request.cursors}
        heads = {n: new_numbers.get(n, channel_rows[n]["head"]) for n in sorted(involved_channels)}
        c.execute(
            insert(commits).values(
                id=request.id,
                execution_id=request.execution_id,
                binding=request.binding,
                at=self.database.clock(),
                heads=heads,
                consumed={r.channel: r.as_json() for r in request.reads},
                details=dict(request.details),
            )
        )
        if new_numbers:
            c.execute(
                insert(commit_numbers),
                [{"commit_id": request.id, "channel": n, "seq": s} for n, s in new_numbers.items()],
            )
        return new_numbers

    def _insert_published_blocks(
        self,
        c: Connection,
        request: CommitRequest,
        channel_rows: Mapping[str, RowMapping],
        new_numbers: Mapping[str, int],
    ) -> None:
        added = [p for p in request.added_blocks if p.is_committed]
        for p in added:
            if p.replaces_base:
                self._collect_replaced_base(c, p, request.id)
        if added:
            c.execute(
                insert(blocks),
                [
                    block_row(p, request.id, channel_rows[p.channel]["head"], new_numbers.get(p.channel, 0))
                    for p in added
                ],
            )
        rows = [
            {
                "block_id": p.block_id,
                "ordinal": n,
                "path": f.path,
                "rows": f.rows,
                "bytes": f.bytes,
                "ranges": {k: list(v) for k, v in f.ranges.items()},
                "place": None if f.key_placement is None else f.key_placement.as_json(),
                "digest": f.digest or None,
                "footer_digest": f.footer_digest or None,
                "unpacked": f.uncompressed_bytes or None,
            }
            for p in added
            for n, f in enumerate(p.manifest.files)
        ]
        if rows:
            c.execute(insert(files), rows)
        if added:
            c.execute(delete(staged_blocks).where(staged_blocks.c.id.in_([p.block_id for p in added])))

    def _collect_replaced_base(self, c: Connection, publish: AddBlock, commit_id: str) -> None:
        """Collect the base that maintenance added earlier at the same number. The new base gives the same answer (R9).

        Raises:
            CommitConflict: the earlier base no longer exists.
        """
        collected_values = {"collected_at": self.database.clock(), "collected_by": commit_id}
        conditions = (
            *blocks_with_same_range_condition(publish),
            blocks.c.origin == "compact",
            blocks.c.collected_at.is_(None),
        )
        if not c.execute(update(blocks).where(*conditions).values(**collected_values)).rowcount:
            raise commit_conflict(
                f"channel {publish.channel!r} was compacted meanwhile", "compacted", "no base", "one", publish.channel
            )

    def _move_cursors(self, c: Connection, request: CommitRequest, new_numbers: Mapping[str, int]) -> None:
        for cursor in request.cursors:
            new_position = new_numbers.get(cursor.channel, cursor.to) if cursor.follows_own_write else cursor.to
            values = {"seq": new_position, "commit_id": request.id, "moved_at": self.database.clock()}
            if not c.execute(update(cursors).where(*cursor_conditions(cursor)).values(**values)).rowcount:
                cursor_key = {"binding": cursor.binding, "partition": cursor.partition, "channel": cursor.channel}
                c.execute(insert(cursors).values(channel_partition=cursor.channel_partition, **cursor_key, **values))

    def _finish_execution(self, c: Connection, request: CommitRequest, execution: RowMapping | dict[str, Any]) -> None:
        if request.idempotency is not None:
            channel, key = request.idempotency
            c.execute(
                insert(idempotency_keys).values(
                    channel=channel, key=key, commit_id=request.id, digest=request.rows_digest
                )
            )
        finished_values = {"state": "committed", "finished_at": self.database.clock(), "commit_id": request.id}
        c.execute(update(executions).where(executions.c.id == request.execution_id).values(**finished_values))
        delete_skip_markers(c, request.execution_id)
        if execution.get("firing_id"):
            conditions = (firings.c.id == execution["firing_id"], firings.c.state == "requested")
            c.execute(update(firings).where(*conditions).values(state="committed"))


def lock_channels(c: Connection, request: CommitRequest) -> dict[str, RowMapping]:
    """Lock all channels of a request, in the order of their names, so that two commits never deadlock.

    Returns:
        Channel -> its row.

    Raises:
        ChannelNotFound.
    """
    names = {p.channel for p in request.added_blocks} | {m.channel for m in request.cursors}
    names |= {h.channel for h in request.required_heads} | {n.channel for n in request.required_without_consumers}
    names |= {s.channel for s in request.schema_changes} | {s.channel for s in request.seals}
    names |= {channel for channel, _ in request.recomputed_without_change}
    names |= {r.channel for r in request.required_sum_headrooms} | {e.channel for e in request.published_versions}
    query = select(channels).where(channels.c.name.in_(sorted(names))).order_by(channels.c.name).with_for_update()
    rows_by_name = {r["name"]: r for r in c.execute(query).mappings()}
    for name in sorted(names - set(rows_by_name)):
        raise ChannelNotFound(f"no channel is called {name!r}", next="nova channels", channel=name)
    return rows_by_name


def _next_number(channel_row: RowMapping) -> int:
    """Next sequence number of a channel. A restored channel leaves out the numbers that others may have seen (R1)."""
    return int(max(channel_row["head"], channel_row["used_until"])) + 1


def _last_commit_query(binding: str, partition: str) -> Select[Any]:
    """Query for the last commit of a binding's partition."""
    of_partition = (executions.c.binding == binding, executions.c.partition == partition)
    query = select(commits.c.consumed, commits.c.heads, commits.c.details).join(
        executions, executions.c.id == commits.c.execution_id
    )
    query = query.where(*of_partition, executions.c.state == "committed")
    return query.order_by(executions.c.started_at.desc()).limit(1)


def _actions_by_channel(request: CommitRequest) -> dict[str, Action]:
    """Timeline action of the commit on each channel that gets a block."""
    origins: dict[str, set[str]] = {}
    for p in request.added_blocks:
        if p.is_committed:
            origins.setdefault(p.channel, set()).add(p.origin)
    return {channel: action_of_block_origins(channel_origins) for channel, channel_origins in sorted(origins.items())}
