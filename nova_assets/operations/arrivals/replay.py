"""Replaying: what was set aside is tried again, as it stands or mended."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from nova_assets.errors import BadRecord, CommitConflict, GroupSealed
from nova_assets.masking import get_logger
from nova_assets.model.arrival import Arrival, Taken
from nova_assets.model.arrival_outcome import Replayed
from nova_assets.model.arrow_types import to_arrow
from nova_assets.model.quarantine import COLUMNS, WHOLE_FILE, quarantine_name
from nova_assets.model.schema import DELETED, parse_ddl
from nova_assets.operations.arrivals.receive import Receiving
from nova_assets.plan import modes
from nova_assets.sources.quarantined_records import read_again

log = get_logger("nova_assets.replaying")

Row = Mapping[str, Any]

Mend = Callable[[Row], str | None]
"""From a row of the quarantine, the text of the record as it should be; None leaves it there."""


@dataclass(frozen=True)
class _Plan:
    """What a replay would do.

    Args:
        at: the quarantine's number that this is about.
        tables: rows for the channel.
        changed: rows for the quarantine: deletions of what is right now, and other reasons for what is not.
        takes: whole files that wait again.
        left: so many stay.
    """

    at: int
    tables: tuple[pa.Table, ...]
    changed: tuple[Row, ...]
    takes: tuple[Taken, ...]
    left: int

    @property
    def rows(self) -> int:
        return sum(t.num_rows for t in self.tables)


def replayable(receiving: Receiving, mend: Mend | None = None) -> Replayed:
    """What ``replay`` would do. Changes nothing."""
    plan = _planned(receiving, mend)
    return Replayed(plan.rows, len(plan.takes), plan.left)


def replay(receiving: Receiving, mend: Mend | None = None) -> Replayed:
    """Try everything in a channel's quarantine again. What is right now moves onto the channel in one commit."""
    attempts = receiving.runtime.attempts
    for attempt in range(1, attempts + 1):
        plan = _planned(receiving, mend)
        if not plan.changed:
            return Replayed(left=plan.left)
        try:
            return _carried_out(receiving, plan)
        except (CommitConflict, GroupSealed) as conflict:
            log.info("the replay of %s is planned again: %s", receiving.channel.name, conflict.what)
            if attempt == attempts:
                raise
    raise AssertionError("unreachable")


def _carried_out(receiving: Receiving, plan: _Plan) -> Replayed:
    rows = pa.concat_tables(plan.tables) if plan.tables else pa.table({})
    counts = {"rows": plan.rows, "files": len(plan.takes), "left": plan.left}
    commit = receiving.publish(rows, _table(plan.changed), plan.takes, {"replayed": counts}, quarantine_at=plan.at)
    return Replayed(plan.rows, len(plan.takes), plan.left, commit)


def _planned(receiving: Receiving, mend: Mend | None) -> _Plan:
    channel, sealed = receiving.channel, receiving.sealed()
    at, held = _held(receiving)
    schema = receiving.runtime.catalog.channel(channel.name).schema
    files = [r for r in held if r["line"] == WHOLE_FILE]
    refused = _refused(receiving, files)
    again = [r for r in files if mend is None and _arrival(r).key in refused]
    tables: list[pa.Table] = []
    changed: list[Row] = [{**r, DELETED: True} for r in again]
    left = len(files) - len(again)
    for row in held:
        if row["line"] == WHOLE_FILE:
            continue
        text = row["raw"] if mend is None else mend(row)
        if text is None or schema is None:
            left += 1
            continue
        try:
            tables.append(read_again(row, text, channel, schema, sealed).table)
            changed.append({**row, DELETED: True})
        except BadRecord as error:
            left += 1
            if error.what != row["reason"]:
                changed.append({**row, "reason": error.what, DELETED: False})
    takes = tuple(Taken(_arrival(r), "waiting") for r in again)
    return _Plan(at, tuple(tables), tuple(changed), takes, left)


def _held(receiving: Receiving) -> tuple[int, list[dict[str, Any]]]:
    """The quarantine's number, and its rows."""
    runtime = receiving.runtime
    history = runtime.catalog.history(quarantine_name(receiving.channel.name))
    if history.head == 0:
        return 0, []
    found = runtime.engine.to_arrow(runtime.engine.fetch(modes.snapshot(history)))
    rows: list[dict[str, Any]] = found.to_pylist()
    return history.head, rows


def _refused(receiving: Receiving, files: list[dict[str, Any]]) -> set[str]:
    """The keys of those files that were refused, and not released meanwhile."""
    places = [_arrival(r).place for r in files]
    known = receiving.runtime.catalog.versions(receiving.channel.name, places)
    return {s.arrival.key for found in known.values() for s in found if s.state == "refused"}


def _arrival(row: Row) -> Arrival:
    return Arrival(row["file"], row["version"], 0)


def _table(rows: Sequence[Row]) -> pa.Table:
    schema = to_arrow(parse_ddl(COLUMNS).with_deleted())
    return pa.Table.from_pylist([dict(r) for r in rows], schema)
