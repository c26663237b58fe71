"""Counts by date, hour and action, beside those that are known to be right."""

from __future__ import annotations

import csv
from collections import Counter
from pathlib import Path

import pyarrow as pa

TRUTH = "truth_counts_by_date_hour_action.csv"

Key = tuple[str, int, str]


def counts(rows: pa.Table) -> Counter[Key]:
    """How many rows there are of each date, hour (in UTC) and action."""
    found = zip(rows.column("ts").to_pylist(), rows.column("action").to_pylist(), strict=True)
    return Counter((at.date().isoformat(), at.hour, action) for at, action in found)


def truth(folder: Path) -> Counter[Key]:
    """The same as it should be. Raises OSError where nobody has said."""
    with (folder / TRUTH).open(newline="") as lines:
        return Counter({(r["date"], int(r["hour"]), r["action"]): int(r["n"]) for r in csv.DictReader(lines)})


def problems(found: Counter[Key], right: Counter[Key]) -> list[str]:
    """Where the two differ."""
    return [
        f"{key}: {found[key]} instead of {right[key]}" for key in sorted({*found, *right}) if found[key] != right[key]
    ]
