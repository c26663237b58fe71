"""Replaying: what was set aside is tried again, as it stands or mended."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa

from nova_assets.errors import BadRecord, CommitConflict
from nova_assets.ingest.again import read_again
from nova_assets.model.arrival import Arrival, Replayed, Taken
from nova_assets.model.arrow_types import to_arrow
from nova_assets.model.quarantine import COLUMNS, WHOLE_FILE, quarantine_name
from nova_assets.model.schema import DELETED, parse_ddl
from nova_assets.plan import modes
from nova_assets.receiving import Receiving

log = logging.getLogger("nova_assets.replaying")

Row = Mapping[str, Any]

Mend = Callable[[Row], str | None]
"""From a row of the quarantine, the text of the record as it should be; None leaves it there."""


def replay(receiving: Receiving, mend: Mend | None = None) -> Replayed:
    """Try everything in a channel's quarantine again. What is right now moves onto the channel in one commit."""
    attempts = receiving.runtime.attempts
    for attempt in range(1, attempts + 1):
        try:
            return _once(receiving, mend or (lambda row: row["raw"]))
        except CommitConflict as conflict:
            log.info("the replay of %s is planned again: %s", receiving.channel.name, conflict.what)
            if attempt == attempts:
                raise
    raise AssertionError("unreachable")


def _once(receiving: Receiving, mend: Mend) -> Replayed:
    catalog, channel = receiving.runtime.catalog, receiving.channel
    at, held = _held(receiving)
    schema = catalog.channel(channel.name).schema
    files = [r for r in held if r["line"] == WHOLE_FILE]
    refused = _refused(receiving, files)
    tables: list[pa.Table] = []
    changed: list[Row] = [{**r, DELETED: True} for r in files if _arrival(r).key in refused]
    left = len(files) - len(changed)
    for row in held:
        if row["line"] == WHOLE_FILE:
            continue
        text = mend(row)
        if text is None or schema is None:
            left += 1
            continue
        try:
            tables.append(read_again(row, text, channel, schema, receiving.sealed()).table)
            changed.append({**row, DELETED: True})
        except BadRecord as error:
            left += 1
            if error.what != row["reason"]:
                changed.append({**row, "reason": error.what, DELETED: False})
    if not changed:
        return Replayed(left=left)
    rows = pa.concat_tables(tables) if tables else pa.table({})
    takes = [Taken(_arrival(r), "waiting") for r in files if _arrival(r).key in refused]
    counts = {"rows": rows.num_rows, "files": len(takes), "left": left}
    commit = receiving.publish(rows, _table(changed), takes, {"replayed": counts}, quarantine_at=at)
    return Replayed(rows.num_rows, len(takes), left, commit)


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


def _table(rows: list[Row]) -> pa.Table:
    schema = to_arrow(parse_ddl(COLUMNS).with_deleted())
    return pa.Table.from_pylist([dict(r) for r in rows], schema)
