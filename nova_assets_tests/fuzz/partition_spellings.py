"""The ways in which a person may write one partition: each names the same rows."""

from __future__ import annotations

from datetime import date, datetime
from typing import Any
from urllib.parse import quote


def spell_partition(partition: tuple[Any] | None, variant: int) -> Any:
    """A partition of the column ``p`` as an argument of a verb, in one of its spellings; None for all partitions."""
    if partition is None:
        return None
    (value,) = partition
    return _spellings(value)[variant % len(_spellings(value))]


def _spellings(value: Any) -> list[Any]:
    if isinstance(value, date):
        return [{"p": value}, f"p={value}", {"p": datetime(value.year, value.month, value.day)}, {"p": str(value)}]
    if isinstance(value, int):
        sign = "-" if value < 0 else "+"
        return [{"p": value}, f"p={value}", f"p={sign}{abs(value)}", {"p": f"{sign.strip('+')}0{abs(value)}"}]
    return [{"p": value}, f"p={quote(value, safe=' ')}"]
