"""How the partitions that a dataset reads follow from its own, said column by column: what a scheduler of others can be
told, where they know days, shifts and lists, and no queries.

It is found by looking at some tasks, and held against what each of them reads. What cannot be said so is not said.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import product
from typing import TypeAlias

from nova_assets.model.partitions import Dimension, partition_values

Values: TypeAlias = Mapping[str, str]
"""The values of a partition's columns."""


@dataclass(frozen=True, slots=True)
class Shifted:
    """Days or hours around the task's own: from ``first`` to ``last``, counted in the column's own steps.

    Args:
        of: the task's column.
    """

    of: str
    first: int = 0
    last: int = 0


@dataclass(frozen=True, slots=True)
class Within:
    """The hours of the task's day."""

    of: str


@dataclass(frozen=True, slots=True)
class Equal:
    """The same value as the task's."""

    of: str


@dataclass(frozen=True, slots=True)
class Every:
    """All values."""


@dataclass(frozen=True, slots=True)
class These:
    """The same values for all tasks."""

    values: tuple[str, ...]


@dataclass(frozen=True)
class ByValue:
    """Other values for each value of the task's.

    Args:
        values: of the task's column -> of the one that is read.
    """

    of: str
    values: Mapping[str, tuple[str, ...]]


Relation: TypeAlias = Shifted | Within | Equal | Every | These | ByValue

_NEWEST = 40

FEW = 50
"""Values of a list that are all looked at."""


def samples(dimensions: Sequence[Dimension], tasks: Collection[str]) -> list[str]:
    """Tasks that tell others apart: beside the newest, those that differ from it in one column."""
    names = list(tasks)
    if not names or not dimensions:
        return names[-1:]
    known = set(names)
    newest = {c: str(v) for c, v in partition_values(names[-1]).items()}
    found = {names[-1]: None}
    for d in dimensions:
        values = list(dict.fromkeys(str(partition_values(n)[d.column]) for n in names))
        some = values[-FEW:] if d.kind not in ("daily", "hourly") else _spread(values)
        for value in some:
            name = "/".join(f"{c}={value if c == d.column else newest[c]}" for c in newest)
            if name in known:
                found[name] = None
    return list(found)


def _spread(values: Sequence[str]) -> list[str]:
    """Of days or hours the first ones and one between, since at the ends what is read may be cut off; and the newest,
    so many that every day of the week and of the month is among them."""
    n = len(values)
    return [values[i] for i in sorted({0, min(1, n - 1), n // 2, *range(max(0, n - _NEWEST), n)})]


def relation(
    upstream: Sequence[Dimension],
    downstream: Sequence[Dimension],
    known: Collection[str],
    seen: Mapping[str, Collection[str]],
) -> dict[str, Relation] | None:
    """How what is read follows from who reads it.

    Args:
        upstream: the columns of what is read.
        downstream: those of the tasks.
        known: all partitions of what is read.
        seen: task -> the partitions that it reads.

    Returns:
        For each column that is read; None where columns do not tell it, each by itself.
    """
    if not upstream or not seen or not all(seen.values()):
        return None
    everything = _columns(known, upstream)
    each = [({c: str(v) for c, v in partition_values(t).items()}, _columns(read, upstream)) for t, read in seen.items()]
    there = set(known)
    for (_, columns), read in zip(each, seen.values(), strict=True):
        combined = (
            "/".join(f"{d.column}={v}" for d, v in zip(upstream, vs, strict=True)) for vs in _all_of(upstream, columns)
        )
        if {name for name in combined if name in there} != set(read):
            return None
    found = {}
    for d in upstream:
        pairs = [(task, columns[d.column]) for task, columns in each]
        told = _of_column(d, downstream, everything[d.column], pairs)
        if told is None:
            return None
        found[d.column] = told
    return found


def _all_of(upstream: Sequence[Dimension], columns: Mapping[str, Sequence[str]]) -> Iterable[tuple[str, ...]]:
    return product(*(columns[d.column] for d in upstream))


def _columns(partitions: Iterable[str], dimensions: Sequence[Dimension]) -> dict[str, tuple[str, ...]]:
    rows = [partition_values(p) for p in partitions]
    return {d.column: tuple(dict.fromkeys(str(r[d.column]) for r in rows)) for d in dimensions}


Pairs: TypeAlias = Sequence[tuple[Values, tuple[str, ...]]]
"""A task's values, and those that it reads of one column."""


def _of_column(
    column: Dimension, downstream: Sequence[Dimension], every: tuple[str, ...], pairs: Pairs
) -> Relation | None:
    if len(every) > 1 and all(set(read) == set(every) for _, read in pairs):
        return Every()
    makers: list[Callable[[], Relation | None]] = [lambda d=d: _following(column, d, every, pairs) for d in downstream]  # type: ignore[misc]
    for make in makers:
        found = make()
        if found is not None:
            return found
    if len({frozenset(read) for _, read in pairs}) == 1:
        return These(pairs[0][1])
    return next(filter(None, (_by_value(column, d, pairs) for d in downstream)), None)


def _following(column: Dimension, of: Dimension, every: tuple[str, ...], pairs: Pairs) -> Relation | None:
    """As days and hours follow from days and hours; or one value from another."""
    times = ("daily", "hourly")
    if column.kind in times and of.kind in times and column.tz == of.tz:
        if column.kind == of.kind:
            return _shifted(column, of.column, every, pairs)
        if column.kind == "hourly" and all(
            set(read) == {v for v in every if v.startswith(task[of.column])} for task, read in pairs
        ):
            return Within(of.column)
        return None
    distinct = len({task[of.column] for task, _ in pairs}) > 1
    if column.kind == of.kind == "static" and distinct and all(read == (task[of.column],) for task, read in pairs):
        return Equal(of.column)
    return None


def _shifted(column: Dimension, of: str, every: tuple[str, ...], pairs: Pairs) -> Shifted | None:
    step = timedelta(days=1) if column.kind == "daily" else timedelta(hours=1)
    if len({task[of] for task, _ in pairs}) < 2 and len(every) > 1:
        return None

    def at(value: str) -> datetime:
        return datetime.fromisoformat(value[:16])

    offsets = [[round((at(v) - at(task[of])) / step) for v in read] for task, read in pairs]
    first, last = min(map(min, offsets)), max(map(max, offsets))
    known = set(every)
    form = "%Y-%m-%d" if column.kind == "daily" else "%Y-%m-%dT%H:00"
    for task, read in pairs:
        wanted = (
            {(at(task[of]) + n * step).strftime(form) for n in range(first, last + 1)} if last - first < 5000 else known
        )
        if set(read) != wanted & known:
            return None
    return Shifted(of, first, last)


def _by_value(column: Dimension, of: Dimension, pairs: Pairs) -> ByValue | None:
    if column.kind != "static" or of.kind != "static":
        return None
    found: dict[str, tuple[str, ...]] = {}
    for task, read in pairs:
        value = task[of.column]
        if set(found.setdefault(value, read)) != set(read):
            return None
    return ByValue(of.column, found) if set(found) == set(of.values) else None
