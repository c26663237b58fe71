"""Datasets whose rows are kept up to date from the changes of their inputs: the decision, and the query."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from functools import cached_property, partial
from typing import Any

from nova_assets.errors import SqlError
from nova_assets.model.channel import Channel
from nova_assets.model.merge import Append, Multiset
from nova_assets.model.partition_rule import InputState
from nova_assets.model.partition_values import can_be_key
from nova_assets.model.schema import DataType, Schema, parse_type
from nova_assets.sql.datasets.dataset_query import DatasetQuery, Late, Refresh, RefreshDecision
from nova_assets.sql.datasets.graph import Dataset, Graph
from nova_assets.sql.incremental.build_operators import SourceTable, build_operators
from nova_assets.sql.incremental.frozen_rows import FrozenRows
from nova_assets.sql.incremental.incremental_task import IncrementalQuery
from nova_assets.sql.incremental.maintained_query import QueryScope
from nova_assets.sql.incremental.operators import Aggregation, NotMaintainable, Operator
from nova_assets.sql.incremental.result_channel import reason_without_exact_key
from nova_assets.sql.query.spark_confirmation import check_spark_columns
from nova_assets.sql.query.spark_query import make_runnable
from nova_assets.sql.text import SqlText


def decide_refresh(
    graph: Graph, name: str, refresh: Refresh, late: Late, *, adds_floats: bool = False
) -> RefreshDecision:
    """Decide how a dataset is brought up to date. No data is read.

    Args:
        adds_floats: whether changes of floating-point numbers may be added to stored sums, which then drift.

    Raises:
        SqlError: ``refresh`` is ``incremental``, or the dataset has frozen rows, and it cannot be maintained.
    """
    dataset = graph.dataset(name)
    frozen = _frozen_rows(dataset)
    if refresh == "full" and frozen is not None:
        raise frozen.text.error(
            "FROZEN WHERE in a dataset that is computed again", frozen.condition, expected='refresh="auto"'
        )
    if refresh == "full":
        return RefreshDecision()
    try:
        operators = _build_operators(graph, dataset, late, adds_floats=adds_floats)
        if frozen is not None:
            frozen.check_columns(dataset.schema.names)
            frozen.check_operators(operators, {column: column for column in operators.columns})
        _check_exact_key(dataset, operators)
    except SqlError as error:
        if refresh == "incremental" or frozen is not None:
            raise
        return RefreshDecision(reason=error.what, requested=refresh)
    return RefreshDecision(operators, requested=refresh)


def multiset_channel(channel: Channel) -> Channel:
    """The channel as a ``Multiset``, unless its author declared a merge model other than ``Append``."""
    return replace(channel, merge=Multiset()) if isinstance(channel.merge, Append) else channel


class MaintainedDataset(DatasetQuery):
    """The query of a maintained dataset.

    Without partitions, the task reads all partitions of the inputs, because a row that it left out would not be among
    the changes later. With partitions, each execution records which partitions it has read.
    """

    def input_partitions(self, partition: str, now: datetime, inputs: InputState) -> dict[str, frozenset[str]]:
        return {} if self.reads_all_partitions else super().input_partitions(partition, now, inputs)

    @cached_property
    def frozen(self) -> FrozenRows | None:
        """The rows that are never made again; None if there are none."""
        return _frozen_rows(self.graph.dataset(self.name))

    @property
    def frozen_where(self) -> str:
        return "" if self.frozen is None else self.frozen.written

    def is_frozen(self, partition: str, now: datetime) -> bool:
        """Whether all rows of a partition are frozen."""
        if self.frozen is None or not self.partition_columns:
            return False
        values = self.header.partition_values_of(self.scope(partition, now))
        types = self._partition_column_types
        return self.frozen.holds_for_all({n.lower(): (value, types[n.lower()]) for n, value in values.items()}, now)

    @property
    def depends_on_zone(self) -> bool:
        is_frozen_by_time = self.frozen is not None and self.frozen.depends_on_zone(self._partition_column_types)
        return super().depends_on_zone or is_frozen_by_time

    @property
    def _partition_column_types(self) -> dict[str, DataType]:
        return {name.lower(): parse_type(type_) for name, type_ in self.header.partition_column_types.items()}

    def as_json(self) -> dict[str, Any]:
        refresh = "incremental by partition" if self.partition_columns else "incremental"
        return {**super().as_json(), "refresh": refresh} | ({"frozen": self.frozen_where} if self.frozen else {})

    def make_task_function(self, *, prefers_changes: bool, readers: int) -> IncrementalQuery:
        """The function of the task. The arguments are those of ``IncrementalQuery``."""
        dataset = self.graph.dataset(self.name)
        scope = self._query_scope() if self.partition_columns else None
        adds_floats = isinstance(self.refresh.operators, Aggregation) and self.refresh.operators.adds_floats
        return _incremental_query(
            dataset, prefers_changes=prefers_changes, readers=readers, scope=scope, adds_floats=adds_floats
        )

    def _query_scope(self) -> QueryScope:
        return QueryScope(
            make_runnable(self.query, self.statement.query_start),
            self.header.variable_types,
            self.header.partition_column_types,
            self._values_of_scope,
            self.check_session_timezone_is_utc,
        )

    def _values_of_scope(self, partition: str, now: datetime) -> Mapping[str, Any]:
        return self.query_parameters(self.scope(partition, now))


def _incremental_query(
    dataset: Dataset,
    *,
    prefers_changes: bool = True,
    readers: int = 0,
    scope: QueryScope | None = None,
    adds_floats: bool = False,
) -> IncrementalQuery:
    """The function of the task of a maintained dataset.

    Raises:
        SqlError: the query depends on more than its data.
    """
    text, start = dataset.statement.text, dataset.statement.query_start
    blank = re.sub(r"[^\n]", " ", text.sql[:start])  # positions in errors stay
    columns = dataset.schema.without_columns(*dataset.statement.header.partition_columns)
    return IncrementalQuery(
        SqlText(text.name, blank + text.sql[start:]),
        dataset.name,
        prefers_changes=prefers_changes,
        is_incremental=prefers_changes,
        readers=readers,
        check_columns=partial(check_spark_columns, dataset.query, columns),
        scope=scope,
        frozen=_frozen_rows(dataset),
        adds_floats=adds_floats,
    )


def _frozen_rows(dataset: Dataset) -> FrozenRows | None:
    """The frozen rows of a dataset; None if there are none. Raises SqlError."""
    span = dataset.statement.options.frozen_span
    return None if span is None else FrozenRows.parse(dataset.statement.text, span)


def _build_operators(graph: Graph, dataset: Dataset, late: Late, *, adds_floats: bool) -> Operator:
    """The operators of a dataset. Raises SqlError with the reason if the dataset cannot be maintained."""
    _check_statement(graph, dataset, late)
    _check_no_reader_of_new_rows(graph, dataset)
    _incremental_query(dataset)
    sources = {name: _source_table(graph, name) for name in dataset.reads}
    try:
        operators = build_operators(dataset.query, sources, adds_floats=adds_floats)
    except NotMaintainable as error:
        reason = f"{error.reason} has no rule by which changes pass through it"
        raise dataset.statement.text.error(reason, error.node, expected='refresh="auto" or refresh="full"') from None
    return operators


def _check_exact_key(dataset: Dataset, operators: Operator) -> None:
    if reason := reason_without_exact_key(operators):
        raise dataset.statement.text.error(
            reason,
            None,
            expected='refresh="auto" or refresh="full"',
            next="select the columns of GROUP BY, or add decimals instead of doubles",
        )


def datasets_that_lose_rows(graph: Graph, names: Iterable[str]) -> list[str]:
    """Those of the names that are datasets of which a run may remove rows."""
    return [n for n in names if n in graph.datasets and graph.datasets[n].statement.kind == "base"]


def check_new_scans(graph: Graph) -> None:
    """Check that no dataset reads NEW of a channel whose rows can be removed. It would read removed rows as new rows.

    Raises:
        SqlError: with the place of the scan.
    """
    for dataset in graph.datasets.values():
        for scan in dataset.statement.scans:
            other = graph.datasets.get(scan.dataset)
            channel = other.channel if other is not None else graph.channels.get(scan.dataset)
            if scan.mode == "new" and channel is not None and channel.merge.has_deletions:
                raise dataset.statement.text.error(
                    f"NEW({scan.dataset}) would also read the rows that were removed from {scan.dataset!r}",
                    scan.span,
                    expected=f"a channel from which no row is removed; {scan.dataset!r} is {channel.merge!r}",
                    next=f'FROM {scan.dataset}, with nova.datasets(..., refresh="auto"), or a task in Python',
                )


def _check_no_reader_of_new_rows(graph: Graph, dataset: Dataset) -> None:
    """Check that no dataset reads NEW of a dataset that becomes a ``Multiset``. It would read removed rows as new."""
    multisets = {dataset.name, *datasets_that_lose_rows(graph, dataset.reads)}
    for reader in graph.datasets.values():
        for scan in reader.statement.scans:
            if scan.mode == "new" and scan.dataset in multisets:
                raise dataset.statement.text.error(
                    f"dataset {reader.name!r} reads NEW({scan.dataset}), and rows of {scan.dataset!r} can be removed",
                    None,
                    expected=f'FROM {scan.dataset} in {reader.name}, or refresh="full"',
                )


def _source_table(graph: Graph, name: str) -> SourceTable:
    channel = graph.channel(name)
    schema = graph.datasets[name].schema if name in graph.datasets else channel.schema
    return SourceTable(schema or Schema(()), channel.merge.key)


def _check_statement(graph: Graph, dataset: Dataset, late: Late) -> None:
    statement, text = dataset.statement, dataset.statement.text
    reasons = {
        "a dataset with FOR or LET and without PARTITION has variables that change with time": bool(
            statement.header.variables and not statement.header.partition_columns
        ),
        "the groups of its channel are sealed": dataset.channel.seal is not None,
        "INSERT INTO adds the rows of each run": statement.kind != "base",
        "a table function has no rule by which changes pass through it": statement.has_calls,
        'late="ignore" leaves changes out': late == "ignore",
        f"{dataset.channel.merge!r} of its channel is neither Multiset nor left out": not isinstance(
            dataset.channel.merge, Append | Multiset
        ),
    }
    reasons |= {
        f"column {f.name!r} of the result is a map, which Spark cannot compare": not can_be_key(f.type)
        for f in dataset.schema.fields
    }
    if reason := next((r for r, applies in reasons.items() if applies), None):
        raise text.error(reason, None, expected='refresh="full"')
    for scan in statement.scans:
        channel = graph.channels.get(scan.dataset)
        if scan.mode != "all":
            raise text.error(f"{scan.mode.upper()} reads a part of the changes itself", scan.span)
        if channel is not None and channel.external is not None and not channel.external.has_changes:
            raise text.error(f"external table {scan.dataset!r} has no changes to read", scan.span)
