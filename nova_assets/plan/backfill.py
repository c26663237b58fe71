"""Partitions of a backfill: the requested ones, and dependent partitions that are to be recomputed too.

Pure (BigDataFlow, part 2).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from nova_assets.errors import DefinitionError, PartitionError
from nova_assets.model.partitions import partition_name, partition_values
from nova_assets.plan.staleness import TaskInputs

DatasetPartition: TypeAlias = tuple[str, str]
"""(dataset, partition)."""


@dataclass(frozen=True)
class BackfillScope:
    """Partitions that a backfill recomputes.

    Args:
        parts: partitions to recompute, each after its inputs.
        downstream_datasets: datasets that are recomputed only because they depend on the requested partitions.
        excluded_counts: dependent datasets that are not recomputed -> number of their affected partitions.
    """

    parts: tuple[DatasetPartition, ...]
    downstream_datasets: tuple[str, ...] = ()
    excluded_counts: Mapping[str, int] | None = None


def backfill_scope(
    partitions_by_dataset: Mapping[str, Collection[str]],
    task_inputs: TaskInputs,
    dataset: str,
    partitions: Collection[str],
    downstream: Collection[str] | None = None,
    can_rerun: Callable[[str], bool] = lambda name: True,
) -> BackfillScope:
    """Determine all partitions to recompute, so that the requested partitions and their dependents become correct.

    Args:
        partitions_by_dataset: dataset -> partitions that its tasks write; each dataset after its inputs.
        task_inputs: returns the inputs of a task.
        dataset: the requested dataset.
        partitions: the requested partitions.
        downstream: dependent datasets to recompute; None for all.
        can_rerun: whether partitions of a dataset may be recomputed. Other datasets are excluded.

    Raises:
        DefinitionError: a dataset of ``downstream`` depends on none of the recomputed partitions.
    """
    rerun: dict[DatasetPartition, None] = {(dataset, p): None for p in partitions}
    excluded_counts: dict[str, int] = {}
    order = list(partitions_by_dataset)
    for name in order[order.index(dataset) + 1 :]:
        dependent_partitions = [p for p in partitions_by_dataset[name] if _reads_any_rerun(task_inputs(name, p), rerun)]
        if not dependent_partitions:
            continue
        if can_rerun(name) and (downstream is None or name in downstream):
            rerun.update(((name, p), None) for p in dependent_partitions)
        else:
            excluded_counts[name] = len(dependent_partitions)
    downstream_datasets = tuple(dict.fromkeys(name for name, _ in rerun if name != dataset))
    unaffected = [n for n in downstream or () if n not in downstream_datasets]
    if unaffected:
        raise DefinitionError(
            f"{', '.join(map(repr, unaffected))}: depends on no partition of the backfill",
            expected=f"some of: {', '.join([*downstream_datasets, *excluded_counts]) or '(no dataset depends on it)'}",
            next="name the datasets in between, too, or use --downstream all",
        )
    return BackfillScope(tuple(rerun), downstream_datasets, excluded_counts)


def _reads_any_rerun(inputs: Sequence[tuple[str, Collection[str]]], rerun: Collection[DatasetPartition]) -> bool:
    return any((read, p) in rerun for read, partitions in inputs for p in partitions)


def select_partitions(
    dataset: str, partitions: Sequence[str], columns: Sequence[str], terms: Sequence[str]
) -> list[str]:
    """Partitions that match terms such as ``day=2022-03-01..2022-03-31`` and ``store=Paris``.

    Args:
        dataset: name of the dataset, for errors.
        partitions: existing partitions, in order. A range runs from its first value to its last in this order.
        columns: partition columns.
        terms: the terms, all of which must match.

    Raises:
        PartitionError: a term names no column, or matches no partition.
    """
    selected = list(partitions)
    for term in terms:
        column, _, value_or_range = term.partition("=")
        if column not in columns or not value_or_range:
            raise PartitionError(
                f"{term!r} selects no partition of {dataset!r}",
                expected=" or ".join(f"{c}=VALUE, {c}=FROM..TO" for c in columns)
                or "no term: the dataset has no partitions",
            )
        values = _values_in_range(
            list(dict.fromkeys(str(partition_values(p)[column]) for p in partitions)), value_or_range
        )
        matching = [p for p in selected if partition_values(p)[column] in values]
        if not matching:
            shown_partitions = partitions if len(partitions) < 4 else [*partitions[:1], "…", *partitions[-1:]]
            raise PartitionError(
                f"{term!r} selects no partition of {dataset!r}",
                found=partition_name([column], {column: value_or_range}),
                expected=", ".join(shown_partitions) or "(no task writes a partition)",
                next=f"nova show {dataset}",
            )
        selected = matching
    return selected


def _values_in_range(values: Sequence[str], value_or_range: str) -> Collection[str]:
    """A single value, or all values in a range. The ends of a range need not exist if the values are sorted."""
    first, dots, last = value_or_range.partition("..")
    if not dots:
        return {value_or_range}
    if first in values and last in values:
        return set(values[values.index(first) : values.index(last) + 1])
    ends = [e for e in (first, last) if e]
    if all(_is_integer_text(v) for v in (*values, *ends)):
        return {v for v in values if (not first or int(v) >= int(first)) and (not last or int(v) <= int(last))}
    if list(values) != sorted(values) and not set(ends) <= set(values):
        return set()
    end_positions = [values.index(e) if e in values else None for e in (first, last)]
    return {
        v
        for n, v in enumerate(values)
        if (not first or (v >= first if end_positions[0] is None else n >= end_positions[0]))
        and (not last or (v <= last if end_positions[1] is None else n <= end_positions[1]))
    }


def _is_integer_text(text: str) -> bool:
    return text.removeprefix("-").isdecimal()
