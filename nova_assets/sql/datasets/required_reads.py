"""Partitions that the tasks of datasets read, and an in-memory cache of them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import is_
from threading import Lock
from typing import TypeAlias

from nova_assets.sql.pruning.select_source import IndexedRows, Row
from nova_assets.sql.query.scans import Mode
from nova_assets.sql.statement.header import ScopeValues


@dataclass(frozen=True)
class RequiredRead:
    """The partitions of one dataset that a task reads at one place of its query.

    Args:
        dataset: the dataset's name.
        mode: the read mode at that place.
        partitions: names of the partitions. An unpartitioned dataset has the single name ``""``.
    """

    dataset: str
    mode: Mode
    partitions: tuple[str, ...]


class ExpectedPartitions:
    """The partitions that a dataset or channel should have.

    Args:
        names: partition names, in order.
        values: for each partition, its column values by lower-case column name.
    """

    def __init__(self, names: tuple[str, ...], values: Sequence[Row]) -> None:
        self.names = names
        self.value_rows = IndexedRows(values)

    @cached_property
    def ordinal_by_name(self) -> dict[str, int]:
        """Partition name -> its index in ``names``."""
        return {name: n for n, name in enumerate(self.names)}


_LOCK = Lock()


class RequiredReadsCache:
    """Cache of required reads. A dataset's entries are valid while the expected partitions of all its inputs stay the
    same.

    Args:
        max_tasks: most tasks to keep. Least recently used datasets are evicted first.
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
        """The required reads of the task that writes a partition.

        Args:
            scope: the scope of the task. With some headers, the same partition gets another scope over time.
            input_partitions: the expected partitions of the inputs, and rows of small inputs.
        """
        with _LOCK:
            cached = self._valid_entries(dataset, input_partitions).get(partition)
            if cached is not None and cached[0] == scope:
                self.hits += 1
                return cached[1]
            self.misses += 1
        reads = compute()
        with _LOCK:
            reads_by_partition = self._valid_entries(dataset, input_partitions)
            self._count += partition not in reads_by_partition
            reads_by_partition[partition] = (scope, reads)
            while self._count > self.max_tasks and len(self._entries) > 1:
                self._count -= len(self._entries.popitem(last=False)[1][1])
        return reads

    def _valid_entries(
        self, dataset: str, input_partitions: _InputPartitions
    ) -> dict[str, tuple[ScopeValues, tuple[RequiredRead, ...]]]:
        """The cached entries of a dataset, or none if the expected partitions of an input have changed."""
        earlier_partitions, entries = self._entries.pop(dataset, (input_partitions, {}))
        if len(earlier_partitions) != len(input_partitions) or not all(map(is_, earlier_partitions, input_partitions)):
            self._count -= len(entries)
            entries = {}
        self._entries[dataset] = (input_partitions, entries)
        return entries


_InputPartitions: TypeAlias = tuple[ExpectedPartitions | IndexedRows, ...]
