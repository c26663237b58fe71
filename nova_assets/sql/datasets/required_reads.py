"""Partitions that tasks of datasets read, kept between questions."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import is_
from threading import Lock
from typing import TypeAlias

from nova_assets.sql.pruning.partition_lookup import IndexedRows
from nova_assets.sql.pruning.sources import Partition
from nova_assets.sql.query.scans import Mode
from nova_assets.sql.statement.header import ScopeValues


@dataclass(frozen=True)
class RequiredRead:
    """What a task reads of one dataset, at one place of its query.

    Args:
        dataset: its name.
        mode: as the query says.
        partitions: their names; one that is not partitioned has ``""``.
    """

    dataset: str
    mode: Mode
    partitions: tuple[str, ...]


class ExpectedPartitions:
    """Those that a dataset or channel should have.

    Args:
        names: in order.
        value_rows: of their columns, by the columns' names in small letters.
    """

    def __init__(self, names: tuple[str, ...], values: Sequence[Partition]) -> None:
        self.names = names
        self.value_rows = IndexedRows(values)

    @cached_property
    def position_by_name(self) -> dict[str, int]:
        """Name -> where it is."""
        return {name: n for n, name in enumerate(self.names)}


_LOCK = Lock()


class RequiredReadsCache:
    """What tasks were found to read, for as long as there should be the same partitions of all that they read.

    Args:
        max_tasks: so many tasks are kept, those of the datasets that were asked for last.
    """

    def __init__(self, max_tasks: int = 200_000) -> None:
        self.max_tasks = max_tasks
        self.hits = 0
        self.misses = 0
        self._count = 0
        self._entries: OrderedDict[
            str, tuple[_InputPartitions, dict[str, tuple[ScopeValues, tuple[RequiredRead, ...]]]]
        ] = OrderedDict()

    def get_or_compute(
        self,
        dataset: str,
        partition: str,
        scope: ScopeValues,
        input_partitions: _InputPartitions,
        compute: Callable[[], tuple[RequiredRead, ...]],
    ) -> tuple[RequiredRead, ...]:
        """What the task reads that writes a partition.

        Args:
            scope: of the task. Of some heads, the same partition has another one later on.
            input_partitions: the partitions that there should be of what it reads.
        """
        with _LOCK:
            cached = self._valid_entries(dataset, input_partitions).get(partition)
            if cached is not None and cached[0] == scope:
                self.hits += 1
                return cached[1]
            self.misses += 1
        found = compute()
        with _LOCK:
            reads_by_partition = self._valid_entries(dataset, input_partitions)
            self._count += partition not in reads_by_partition
            reads_by_partition[partition] = (scope, found)
            while self._count > self.max_tasks and len(self._entries) > 1:
                self._count -= len(self._entries.popitem(last=False)[1][1])
        return found

    def _valid_entries(
        self, dataset: str, input_partitions: _InputPartitions
    ) -> dict[str, tuple[ScopeValues, tuple[RequiredRead, ...]]]:
        """What is known of a dataset; nothing any more, once other partitions should be there."""
        before, known = self._entries.pop(dataset, (input_partitions, {}))
        if len(before) != len(input_partitions) or not all(map(is_, before, input_partitions)):
            self._count -= len(known)
            known = {}
        self._entries[dataset] = (input_partitions, known)
        return known


_InputPartitions: TypeAlias = tuple[ExpectedPartitions, ...]
