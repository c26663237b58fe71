"""Partition mappings: how the partitions that a dataset reads follow from its own partitions, column by column. Other
schedulers accept such mappings (days, shifts, lists), but no queries.

The relation is inferred from sample tasks and verified against the partitions that each of them reads. If no relation
fits, the result is None.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import product
from typing import TypeAlias

from nova_assets.model.partitions import Dimension, partition_values

Values: TypeAlias = Mapping[str, str]
"""Column of a partition -> its value."""


@dataclass(frozen=True, slots=True)
class ShiftedPeriods:
    """Days or hours around the task's own period, from ``first_offset`` to ``last_offset`` in steps of the read column.

    Args:
        task_column: the task's column.
    """

    task_column: str
    first_offset: int = 0
    last_offset: int = 0


@dataclass(frozen=True, slots=True)
class HoursOfDay:
    """All hours of the task's day."""

    task_column: str


@dataclass(frozen=True, slots=True)
class SameValue:
    """The same value as in the task's partition."""

    task_column: str


@dataclass(frozen=True, slots=True)
class AllValues:
    """All values of the column."""


@dataclass(frozen=True, slots=True)
class FixedValues:
    """The same fixed values for all tasks."""

    values: tuple[str, ...]


@dataclass(frozen=True)
class MappedValues:
    """Values that depend on the value of a task's column.

    Args:
        values_by_task_value: value of the task's column -> values of the read column.
    """

    task_column: str
    values_by_task_value: Mapping[str, tuple[str, ...]]


ColumnRelation: TypeAlias = ShiftedPeriods | HoursOfDay | SameValue | AllValues | FixedValues | MappedValues

_NEWEST_SAMPLED = 40

MAX_SAMPLED_VALUES = 50
"""Most values of a static or dynamic column to sample."""


def newest_task_and_variants(dimensions: Sequence[Dimension], task_names: Collection[str]) -> list[str]:
    """Tasks that reveal the relation of each column: the newest task, and tasks that differ from it in one column."""
    names = list(task_names)
    if not names or not dimensions:
        return names[-1:]
    all_names = set(names)
    newest = {c: str(v) for c, v in partition_values(names[-1]).items()}
    sampled = {names[-1]: None}
    for d in dimensions:
        values = list(dict.fromkeys(str(partition_values(n)[d.column]) for n in names))
        sampled_values = values[-MAX_SAMPLED_VALUES:] if d.kind not in ("daily", "hourly") else _sample_periods(values)
        for value in sampled_values:
            name = "/".join(f"{c}={value if c == d.column else newest[c]}" for c in newest)
            if name in all_names:
                sampled[name] = None
    return list(sampled)


def _sample_periods(periods: Sequence[str]) -> list[str]:
    """A sample of days or hours: the first two and one from the middle, because reads may be truncated at the ends,
    and enough of the newest to cover every day of the week and of the month.
    """
    n = len(periods)
    return [periods[i] for i in sorted({0, min(1, n - 1), n // 2, *range(max(0, n - _NEWEST_SAMPLED), n)})]


def infer_column_relations(
    upstream: Sequence[Dimension],
    downstream: Sequence[Dimension],
    upstream_partitions: Collection[str],
    partitions_read_by_task: Mapping[str, Collection[str]],
) -> dict[str, ColumnRelation] | None:
    """Relations between the partitions that tasks read and the tasks' own partitions.

    Args:
        upstream: partition columns of the dataset that is read.
        downstream: partition columns of the tasks.
        upstream_partitions: all partitions of the dataset that is read.
        partitions_read_by_task: task -> the partitions that it reads.

    Returns:
        Relation of each upstream column. None if the columns do not determine the partitions independently.
    """
    if not upstream or not partitions_read_by_task or not all(partitions_read_by_task.values()):
        return None
    all_values_by_column = _distinct_values_by_column(upstream_partitions, upstream)
    each = [
        ({c: str(v) for c, v in partition_values(t).items()}, _distinct_values_by_column(read, upstream))
        for t, read in partitions_read_by_task.items()
    ]
    existing = set(upstream_partitions)
    for (_, columns), read in zip(each, partitions_read_by_task.values(), strict=True):
        combined = (
            "/".join(f"{d.column}={v}" for d, v in zip(upstream, values, strict=True))
            for values in product(*(columns[d.column] for d in upstream))
        )
        if existing.intersection(combined) != set(read):
            return None
    relation_by_column = {}
    for d in upstream:
        pairs = [(task, columns[d.column]) for task, columns in each]
        possible = _possible_relations(d, downstream, all_values_by_column[d.column], pairs)
        column_relation = next((relation for relation in possible if relation is not None), None)
        if column_relation is None:
            return None
        relation_by_column[d.column] = column_relation
    return relation_by_column


def _distinct_values_by_column(
    partitions: Iterable[str], dimensions: Sequence[Dimension]
) -> dict[str, tuple[str, ...]]:
    rows = [partition_values(p) for p in partitions]
    return {d.column: tuple(dict.fromkeys(str(r[d.column]) for r in rows)) for d in dimensions}


TaskReads: TypeAlias = Sequence[tuple[Values, tuple[str, ...]]]
"""For each task, its partition values and the values of one upstream column that it reads."""


def _possible_relations(
    read_dimension: Dimension, task_dimensions: Sequence[Dimension], all_values: tuple[str, ...], task_reads: TaskReads
) -> Iterator[ColumnRelation | None]:
    """Relations that fit the reads of all tasks, the simplest first. None for a relation that does not fit."""
    if len(all_values) > 1 and all(set(read) == set(all_values) for _, read in task_reads):
        yield AllValues()
    for d in task_dimensions:
        yield _calendar_or_same_value(read_dimension, d, all_values, task_reads)
    if len({frozenset(read) for _, read in task_reads}) == 1:
        yield FixedValues(task_reads[0][1])
    for d in task_dimensions:
        yield _infer_mapped_values(read_dimension, d, task_reads)


def _calendar_or_same_value(
    read_dimension: Dimension, task_dimension: Dimension, all_values: tuple[str, ...], task_reads: TaskReads
) -> ColumnRelation | None:
    """A shift or the hours of a day between calendar columns, or equality between static columns. None if neither
    fits.
    """
    times = ("daily", "hourly")
    if read_dimension.kind in times and task_dimension.kind in times and read_dimension.tz == task_dimension.tz:
        if read_dimension.kind == task_dimension.kind:
            return _infer_shift(read_dimension, task_dimension.column, all_values, task_reads)
        if read_dimension.kind == "hourly" and all(
            set(read) == {v for v in all_values if v.startswith(task[task_dimension.column])}
            for task, read in task_reads
        ):
            return HoursOfDay(task_dimension.column)
        return None
    distinct = len({task[task_dimension.column] for task, _ in task_reads}) > 1
    if (
        read_dimension.kind == task_dimension.kind == "static"
        and distinct
        and all(read == (task[task_dimension.column],) for task, read in task_reads)
    ):
        return SameValue(task_dimension.column)
    return None


def _infer_shift(
    read_dimension: Dimension, task_column: str, all_values: tuple[str, ...], task_reads: TaskReads
) -> ShiftedPeriods | None:
    step = timedelta(days=1) if read_dimension.kind == "daily" else timedelta(hours=1)
    if len({task[task_column] for task, _ in task_reads}) < 2 and len(all_values) > 1:
        return None

    def parse_period(value: str) -> datetime:
        return datetime.fromisoformat(value[:16])

    offsets = [
        [round((parse_period(v) - parse_period(task[task_column])) / step) for v in read] for task, read in task_reads
    ]
    first, last = min(map(min, offsets)), max(map(max, offsets))
    all_periods = set(all_values)
    period_format = "%Y-%m-%d" if read_dimension.kind == "daily" else "%Y-%m-%dT%H:00"
    for task, read in task_reads:
        expected = (
            {(parse_period(task[task_column]) + n * step).strftime(period_format) for n in range(first, last + 1)}
            if last - first < 5000
            else all_periods
        )
        if set(read) != expected & all_periods:
            return None
    return ShiftedPeriods(task_column, first, last)


def _infer_mapped_values(
    read_dimension: Dimension, task_dimension: Dimension, task_reads: TaskReads
) -> MappedValues | None:
    if read_dimension.kind != "static" or task_dimension.kind != "static":
        return None
    values_by_task_value: dict[str, tuple[str, ...]] = {}
    for task, read in task_reads:
        value = task[task_dimension.column]
        if set(values_by_task_value.setdefault(value, read)) != set(read):
            return None
    return (
        MappedValues(task_dimension.column, values_by_task_value)
        if set(values_by_task_value) == set(task_dimension.values)
        else None
    )
