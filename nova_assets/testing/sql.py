"""Checks of datasets in SQL: some input rows, and the rows that the dataset must have for them."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

from nova_assets.errors import DefinitionError
from nova_assets.model.channel import Channel
from nova_assets.model.project import Project
from nova_assets.model.schema import Schema
from nova_assets.sql.datasets.dataset_bindings import Datasets
from nova_assets.sql.datasets.dataset_query import DatasetQuery
from nova_assets.sql.datasets.graph_builder import build_graph
from nova_assets.suggestions import did_you_mean
from nova_assets.testing.incremental import check_incremental
from nova_assets.testing.world import Rows, World, canonical, difference, for_tiny_queries, rows_of

_MAX_BATCHES = 3
"""Batches into which the rows of an input are split."""


def check_sql(
    datasets: Datasets,
    dataset: str,
    rows: Mapping[str, Sequence[Mapping[str, Any]]],
    expected: Sequence[Mapping[str, Any]],
    *,
    partition: Mapping[str, object] | None = None,
    spark: Any = None,
) -> None:
    """Check that a dataset in SQL has the expected rows for some input rows.

        check_sql(nova.datasets("sql", channels=[orders]), "totals", {"orders": [{"order": 1, "amount": 5}]}, [...])

    The query runs in full. If the dataset can be maintained, it is also maintained while the input rows arrive in
    batches, under several schedules (R12). The check uses a temporary folder, and neither the catalog nor the warehouse
    of the project. Other datasets that the query reads are inputs like channels.

    Args:
        datasets: the datasets of the project.
        dataset: name of the dataset.
        rows: input -> its rows. An input that is left out is empty. A column that a row leaves out is null.
        expected: rows of the dataset, in any order. A column that a row leaves out is null.
        partition: values of the partition columns, if the dataset is partitioned.
        spark: a session to use. By default, the local session of this process.

    Raises:
        AssertionError: the dataset has other rows. The error lists rows that are missing, and rows that are extra.
        DefinitionError: an input is not an input of the dataset, or a partition is missing.
    """
    check_dataset_query(_find_query(datasets, dataset), rows, expected, partition=partition, spark=spark)


def check_dataset_query(
    query: DatasetQuery,
    rows: Mapping[str, Sequence[Mapping[str, Any]]],
    expected: Sequence[Mapping[str, Any]],
    *,
    partition: Mapping[str, object] | None = None,
    spark: Any = None,
) -> bool:
    """Check the query of a dataset, as ``check_sql`` does.

    Returns:
        Whether the dataset was also maintained.
    """
    _check_inputs(query, rows)
    _check_partition(query, partition)
    schemas = {c.name: c.schema for c in _inputs(query)}
    inputs = {name: [_fill(row, schemas[name]) for row in given] for name, given in rows.items() if given}
    full = _isolate(query, "full")
    with World(Project(full, channels=_inputs(query)), spark) as store, for_tiny_queries(store):
        for name, given in inputs.items():
            store.insert(name, given)
        store.run(query.name, partition)
        filled = [_fill(row, query.schema) for row in expected]
        table = store.engine.inputs.convert(filled, query.schema) if filled else None
        wanted: Rows = [] if table is None else canonical(table.to_pylist())
        _compare(rows_of(store, query.name), wanted, f"dataset {query.name!r}")
    if not inputs or not _isolate(query, "auto").refresh_decisions[query.name].is_incremental:
        return False
    maintained = _isolate(query, "incremental")  # with "auto", the result of a few rows would often be replaced
    batches = {name: _split(given) for name, given in inputs.items()}
    check_incremental(maintained[0], batches, spark, partition=partition)
    return True


def _fill(row: Mapping[str, Any], schema: Schema | None) -> dict[str, Any]:
    """The row with null in the columns that it leaves out."""
    return dict(row) if schema is None else {**dict.fromkeys(schema.names), **row}


def _compare(actual: Rows, expected: Rows, subject: str) -> None:
    if actual != expected:
        raise AssertionError(f"{subject} has other rows than expected: {difference(actual, expected)}")


def _find_query(datasets: Datasets, name: str) -> DatasetQuery:
    datasets.graph.dataset(name)  # raises an error for an unknown name
    return next(q for b in datasets for q in (b.tasks[0].scoped,) if isinstance(q, DatasetQuery) and q.name == name)


def _inputs(query: DatasetQuery) -> list[Channel]:
    """The inputs of a dataset as plain channels: same columns, partitions and merge model, and no other settings."""
    graph = query.graph
    channels = [graph.datasets[n].channel if n in graph.datasets else graph.channels[n] for n in query.reads]
    return [Channel(c.name, c.merge, c.schema, c.partitions) for c in channels]


def _isolate(query: DatasetQuery, refresh: Any) -> Datasets:
    """The dataset alone, without the options of its statement, and with its inputs as channels."""
    own = query.graph.dataset(query.name).channel
    text = query.statement.options.blank_out(query.statement.text)
    graph = build_graph([text], [*_inputs(query)], query.graph.function_types)
    assert graph.dataset(query.name).channel.partition_columns == own.partition_columns
    return Datasets(graph, {query.name: query.late}, query.sql_functions, refresh)


def _split(rows: Rows) -> list[Rows]:
    """The rows in batches, at random, but the same in every call."""
    rng = random.Random(len(rows))
    batches: list[Rows] = [[] for _ in range(min(_MAX_BATCHES, len(rows)))]
    for number, row in enumerate(rows):
        batch = number if number < len(batches) else rng.randrange(len(batches))
        batches[batch].append(row)
    return batches


def _check_inputs(query: DatasetQuery, rows: Mapping[str, Any]) -> None:
    for name in rows:
        if name not in query.reads:
            raise DefinitionError(
                f"dataset {query.name!r} does not read {name!r}{did_you_mean(name, query.reads)}",
                expected=f"rows of {', '.join(query.reads) or 'no input'}",
            )


def _check_partition(query: DatasetQuery, partition: Mapping[str, object] | None) -> None:
    columns, given = set(query.partition_columns), set(partition or {})
    if columns != given:
        raise DefinitionError(
            f"dataset {query.name!r} is partitioned by {', '.join(query.partition_columns) or 'no column'}",
            found=f"a partition of {', '.join(sorted(given)) or 'no column'}",
            expected=f"a value for each of {', '.join(query.partition_columns)}" if columns else "no partition",
        )
