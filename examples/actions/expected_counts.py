"""Counts by date, hour and action, and their expected values."""

from __future__ import annotations

import csv
from collections import Counter
from pathlib import Path

import pyarrow as pa

EXPECTED_COUNTS_FILE = "truth_counts_by_date_hour_action.csv"

Key = tuple[str, int, str]


def count_by_date_hour_action(rows: pa.Table) -> Counter[Key]:
    """Number of rows for each date, hour (in UTC) and action."""
    times_and_actions = zip(rows.column("ts").to_pylist(), rows.column("action").to_pylist(), strict=True)
    return Counter((at.date().isoformat(), at.hour, action) for at, action in times_and_actions)


def read_expected_counts(folder: Path) -> Counter[Key]:
    """Expected counts, from a CSV file in the folder.

    Raises:
        OSError: the folder has no such file.
    """
    with (folder / EXPECTED_COUNTS_FILE).open(newline="") as lines:
        return Counter({(r["date"], int(r["hour"]), r["action"]): int(r["n"]) for r in csv.DictReader(lines)})


def describe_count_differences(actual: Counter[Key], expected: Counter[Key]) -> list[str]:
    """One line for each count that differs."""
    return [
        f"{key}: {actual[key]} instead of {expected[key]}"
        for key in sorted({*actual, *expected})
        if actual[key] != expected[key]
    ]
