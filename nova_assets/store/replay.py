"""Replay of a quarantine: records and files that may be valid by now are read again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from nova_assets.errors import BadRecord, CommitConflict, GroupSealed
from nova_assets.execution.retries import plan_again_after_conflict
from nova_assets.masking import get_logger
from nova_assets.model.arrival import Arrival, ArrivalOutcome
from nova_assets.model.arrow_types import to_arrow_schema
from nova_assets.model.provenance import READ_VERSIONS
from nova_assets.model.quarantine import QUARANTINE_COLUMNS, WHOLE_FILE_LINE, quarantine_channel_name
from nova_assets.model.receive_result import ReplayResult
from nova_assets.model.schema import DELETED, parse_ddl
from nova_assets.plan import modes
from nova_assets.sources.quarantined_records import reparse_record
from nova_assets.store.receive import FileReceiver

log = get_logger("nova_assets.replaying")

QuarantineRow = Mapping[str, Any]

Mend = Callable[[QuarantineRow], str | None]
"""Function from a quarantine row to the corrected text of the record. None leaves the record in quarantine."""


@dataclass(frozen=True)
class _ReplayPlan:
    """Planned result of a replay.

    Args:
        quarantine_head: head of the quarantine that the plan is based on.
        recovered_tables: rows for the channel.
        quarantine_changes: rows for the quarantine: deletions of recovered records, and new reasons for the others.
        file_outcomes: refused files that wait again.
        remaining_count: number of records and files that stay.
    """

    quarantine_head: int
    recovered_tables: tuple[pa.Table, ...]
    quarantine_changes: tuple[QuarantineRow, ...]
    file_outcomes: tuple[ArrivalOutcome, ...]
    remaining_count: int

    @property
    def recovered_row_count(self) -> int:
        return sum(t.num_rows for t in self.recovered_tables)


def preview_replay(receiver: FileReceiver, mend: Mend | None = None) -> ReplayResult:
    """Result that ``replay`` would have. Changes nothing."""
    plan = _plan_replay(receiver, mend)
    return ReplayResult(plan.recovered_row_count, len(plan.file_outcomes), plan.remaining_count)


def replay(receiver: FileReceiver, mend: Mend | None = None) -> ReplayResult:
    """Retry everything in a channel's quarantine. Valid records move to the channel in one commit."""

    def replay_once() -> ReplayResult:
        plan = _plan_replay(receiver, mend)
        return _commit_replay(receiver, plan) if plan.quarantine_changes else ReplayResult(left=plan.remaining_count)

    return plan_again_after_conflict(
        replay_once,
        f"the replay of {receiver.channel.name}",
        receiver.runtime.max_attempts,
        log,
        conflict_types=(CommitConflict, GroupSealed),
    )


def _commit_replay(receiver: FileReceiver, plan: _ReplayPlan) -> ReplayResult:
    rows = pa.concat_tables(plan.recovered_tables) if plan.recovered_tables else pa.table({})
    counts = {"rows": plan.recovered_row_count, "files": len(plan.file_outcomes), "left": plan.remaining_count}
    commit = receiver.commit_rows(
        rows,
        _quarantine_table(plan.quarantine_changes),
        plan.file_outcomes,
        {"replayed": counts, READ_VERSIONS: {quarantine_channel_name(receiver.channel.name): plan.quarantine_head}},
        expected_quarantine_head=plan.quarantine_head,
    )
    return ReplayResult(plan.recovered_row_count, len(plan.file_outcomes), plan.remaining_count, commit)


def _plan_replay(receiver: FileReceiver, mend: Mend | None) -> _ReplayPlan:
    channel, seal_times = receiver.channel, receiver.sealed_at_by_group()
    quarantine_head, quarantined_rows = _read_quarantine(receiver)
    schema = receiver.runtime.catalog.definitions.channel(channel.name).schema
    file_rows = [r for r in quarantined_rows if r["line"] == WHOLE_FILE_LINE]
    refused_keys = _still_refused_keys(receiver, file_rows)
    retried_file_rows = [r for r in file_rows if mend is None and _arrival_from_row(r).key in refused_keys]
    recovered_tables: list[pa.Table] = []
    quarantine_changes: list[QuarantineRow] = [{**r, DELETED: True} for r in retried_file_rows]
    remaining_count = len(file_rows) - len(retried_file_rows)
    for row in quarantined_rows:
        if row["line"] == WHOLE_FILE_LINE:
            continue
        text = row["raw"] if mend is None else mend(row)
        if text is None or schema is None:
            remaining_count += 1
            continue
        try:
            recovered_tables.append(reparse_record(row, text, channel, schema, seal_times).table)
            quarantine_changes.append({**row, DELETED: True})
        except BadRecord as error:
            remaining_count += 1
            if error.what != row["reason"]:
                quarantine_changes.append({**row, "reason": error.what, DELETED: False})
    file_outcomes = tuple(ArrivalOutcome(_arrival_from_row(r), "waiting") for r in retried_file_rows)
    return _ReplayPlan(
        quarantine_head, tuple(recovered_tables), tuple(quarantine_changes), file_outcomes, remaining_count
    )


def _read_quarantine(receiver: FileReceiver) -> tuple[int, list[dict[str, Any]]]:
    """Head and rows of the quarantine."""
    runtime = receiver.runtime
    history = runtime.catalog.histories.of(quarantine_channel_name(receiver.channel.name))
    if history.head == 0:
        return 0, []
    table = runtime.engine.frames.to_arrow(runtime.engine.reader.fetch(modes.snapshot(history)))
    rows: list[dict[str, Any]] = table.to_pylist()
    return history.head, rows


def _still_refused_keys(receiver: FileReceiver, file_rows: list[dict[str, Any]]) -> set[str]:
    """Keys of the files that are still refused."""
    path_keys = [_arrival_from_row(r).path_key for r in file_rows]
    versions_by_path = receiver.runtime.catalog.arrivals.by_path_key(receiver.channel.name, path_keys)
    return {s.arrival.key for versions in versions_by_path.values() for s in versions if s.state == "refused"}


def _arrival_from_row(row: QuarantineRow) -> Arrival:
    return Arrival(row["file"], row["version"], 0)


def _quarantine_table(rows: Sequence[QuarantineRow]) -> pa.Table:
    schema = to_arrow_schema(parse_ddl(QUARANTINE_COLUMNS).with_deleted())
    return pa.Table.from_pylist([dict(r) for r in rows], schema)
