"""What must hold of the catalog when all processes of a soak have ended."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import nova_assets as nova
from nova_assets.settings import load_settings
from nova_assets_tests.catalog_soak.project import EVENTS


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that must hold.

    Args:
        problems: what contradicts it; nothing, at best.
        text: what was seen.
    """

    what: str
    problems: Sequence[str]
    text: str = ""


def check_integrity(catalog: Path) -> Finding:
    """What SQLite itself says of the file."""
    try:
        with closing(sqlite3.connect(catalog)) as connection:
            lines = [str(row[0]) for row in connection.execute("PRAGMA integrity_check")]
    except sqlite3.DatabaseError as error:
        lines = [str(error)]
    return Finding("PRAGMA integrity_check is ok", [line for line in lines if line != "ok"][:5], "; ".join(lines[:3]))


def check_keys(
    catalog: Path, acknowledged: Mapping[str, list[str]], unacknowledged: Mapping[str, list[str]]
) -> Finding:
    """Each acknowledged key is in the catalog, and no key that nobody sent."""
    query = "SELECT key FROM nova_keys WHERE channel = ?"
    try:
        with closing(sqlite3.connect(catalog)) as connection:
            keys = Counter(str(row[0]) for row in connection.execute(query, (EVENTS,)))
    except sqlite3.DatabaseError as error:
        return Finding("each acknowledged key is there once", [str(error)])
    return Finding(
        "each acknowledged key is there once", _compare(keys, acknowledged, unacknowledged, "key"), f"{len(keys)} keys"
    )


def check_rows(folder: Path, acknowledged: Mapping[str, list[str]], unacknowledged: Mapping[str, list[str]]) -> Finding:
    """Each row of an acknowledged insert can be read once, each other row at most once."""
    what = "each acknowledged row is there once"
    try:
        with nova.open(settings=load_settings(folder)) as store:
            rows = Counter(map(str, store.read(EVENTS).to_arrow().column("id").to_pylist()))
    except nova.NovaError as error:
        return Finding(what, [f"{type(error).__name__}: {error}"])
    sure = [row for rows_of_insert in acknowledged.values() for row in rows_of_insert]
    unsure = [row for rows_of_insert in unacknowledged.values() for row in rows_of_insert]
    return Finding(what, _compare(rows, sure, unsure, "row"), f"{sum(rows.values())} rows, {len(sure)} acknowledged")


def check_counts(folder: Path) -> Finding:
    """The asset in Dagster has counted each event up to its cursor once, whoever was killed meanwhile.

    The events up to the cursor are those at the head without those that the asset has yet to read: the version at the
    cursor itself may be collected (R15).
    """
    what = "the asset counts each event once"
    try:
        with nova.open(settings=load_settings(folder)) as store:
            seq = next((c.seq for c in store.cursors() if c.channel == EVENTS and c.seq), None)
            if seq is None:
                return Finding(what, [], "no run has committed")
            unread = store.read(EVENTS, since=seq).to_arrow().column("client").to_pylist()
            expected = Counter(store.read(EVENTS).to_arrow().column("client").to_pylist())
            expected.subtract(unread)
            counts = store.read("counts").to_arrow().to_pylist()
    except nova.NovaError as error:
        return Finding(what, [f"{type(error).__name__}: {error}"])
    actual = Counter({row["client"]: row["events"] for row in counts})
    problems = [] if expected == actual else [f"{dict(actual)}, not {dict(expected)}"]
    return Finding(what, problems, f"{expected.total()} events, up to number {seq}; {len(unread)} unread")


def _compare(there: Counter[str], sure: Iterable[str], unsure: Iterable[str], noun: str) -> list[str]:
    expected, possible = set(sure), set(unsure)
    kinds = {
        f"{noun}s are acknowledged and missing": expected - there.keys(),
        f"{noun}s are there several times": {name for name, n in there.items() if n > 1},
        f"{noun}s are there that nobody sent": there.keys() - expected - possible,
    }
    return [f"{len(names)} {kind}: {', '.join(sorted(names)[:5])}" for kind, names in kinds.items() if names]
