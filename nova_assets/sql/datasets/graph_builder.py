"""Building the graph of datasets: parse the statements, sort them by dependency, and analyse them in that order."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

from nova_assets.errors import DefinitionError, SqlError
from nova_assets.model.channel import Channel
from nova_assets.model.schema import Field, Schema, parse_type
from nova_assets.sql.datasets.analysis_cache import AnalysisCache, DatasetAnalysis
from nova_assets.sql.datasets.disk_cache import DiskCache
from nova_assets.sql.datasets.graph import Dataset, Graph
from nova_assets.sql.datasets.local_time import check_local_times
from nova_assets.sql.pruning.prune import PartitionPruner
from nova_assets.sql.pruning.select_source import Row
from nova_assets.sql.query.resolved_query import Query, resolve_query
from nova_assets.sql.query.table_function_calls import table_function_schemas
from nova_assets.sql.statement.dataset_statement import (
    DatasetStatement,
    parse_dataset_statement,
    parse_without_options,
)
from nova_assets.sql.statement.external_table import ExternalView, is_external_view, parse_external_view
from nova_assets.sql.statement.header import partition_dimensions
from nova_assets.sql.text import SqlText
from nova_assets.sql.types.query_schema import schema_of_query, typed_tree


def build_graph(
    texts: Sequence[SqlText],
    channels: Sequence[Channel] = (),
    function_types: Mapping[str, str] | None = None,
    disk_cache: DiskCache | None = None,
) -> Graph:
    """Analyse datasets together.

    Args:
        texts: one statement each.
        channels: channels that the statements may read. A channel with the name of a dataset sets how that dataset is
            stored.
        function_types: return types of the user-defined functions, by function name.
        disk_cache: cache of earlier analyses.

    Raises:
        SqlError: exactly one problem was found.
        DefinitionError: several problems were found, and the error lists them all.
    """
    with _reduced_garbage_collection(), _open_analysis_cache(disk_cache, function_types or {}) as analysis_cache:
        return _build_graph(texts, channels, function_types or {}, analysis_cache)


@contextmanager
def _open_analysis_cache(
    disk_cache: DiskCache | None, function_types: Mapping[str, str]
) -> Iterator[AnalysisCache | None]:
    if disk_cache is None or disk_cache.file is None:
        yield None
        return
    with disk_cache.open_session() as session:
        yield AnalysisCache(session, function_types)


@contextmanager
def _reduced_garbage_collection() -> Iterator[None]:
    """Make garbage collection of old objects rare within the block. Scanning the trees of thousands of queries again
    and again is slow, and most garbage is recent.
    """
    old_thresholds = gc.get_threshold()
    gc.set_threshold(max(old_thresholds[0], 50_000) if old_thresholds[0] else 0, old_thresholds[1], 1_000_000)
    try:
        yield
    finally:
        gc.set_threshold(*old_thresholds)


def _build_graph(
    texts: Sequence[SqlText],
    channels: Sequence[Channel],
    function_types: Mapping[str, str],
    analysis_cache: AnalysisCache | None,
) -> Graph:
    problems: list[SqlError] = []
    statements, views = _read_statements(texts, problems, analysis_cache)
    _check_function_name_clashes([*statements, *views, *(c.name for c in channels)], function_types)
    unparsed_datasets = {Path(p.file).stem for p in problems}
    channel_by_name = {c.name: c for c in channels}
    _check_view_channel_clashes(views, channel_by_name)
    other_channels = {n: c for n, c in channel_by_name.items() if n not in statements} | {
        n: v.channel for n, v in views.items()
    }
    schemas = {n: c.schema for n, c in other_channels.items() if c.schema is not None}
    columns = {n: [c.lower() for c in x.partition_columns] for n, x in other_channels.items()}
    datasets: dict[str, Dataset] = {}
    for name in _order_by_dependencies(statements, problems):
        if any((r in statements and r not in datasets) or r in unparsed_datasets for r in statements[name].reads):
            continue  # the input's own error is reported already
        try:
            _check_external_read_modes(statements[name], other_channels)
            datasets[name] = analyse_dataset(
                statements[name], schemas, channel_by_name.get(name), function_types, columns, analysis_cache
            )
        except SqlError as error:
            problems.append(error)
        else:
            schemas[name] = datasets[name].schema
            columns[name] = [c.lower() for c in datasets[name].channel.partition_columns]
    _raise_problems(problems)
    reads = {r for d in datasets.values() for r in d.reads}
    channels_in_graph = {n: c for n, c in other_channels.items() if n in reads or n in views}
    return Graph(datasets, channels_in_graph, dict(function_types), views, analysis_cache.hits if analysis_cache else 0)


def _check_function_name_clashes(dataset_names: Sequence[str], function_types: Mapping[str, str]) -> None:
    shared_names = sorted(set(dataset_names) & set(table_function_schemas(function_types)))
    if shared_names:
        raise DefinitionError(
            f"a function and a dataset have the same name: {', '.join(shared_names)}", expected="different names"
        )


def _check_view_channel_clashes(views: Mapping[str, ExternalView], channels: Mapping[str, Channel]) -> None:
    for name, view in views.items():
        if name in channels and channels[name] != view.channel:
            raise DefinitionError(
                f"{name!r} is a declared channel, and an external table in {view.text.name}", expected="one of the two"
            )


def _check_external_read_modes(statement: DatasetStatement, channels: Mapping[str, Channel]) -> None:
    for scan in statement.scans:
        external = channels[scan.dataset].external if scan.dataset in channels else None
        if scan.mode in ("new", "old") and external is not None and not external.has_changes:
            raise statement.text.error(
                f"external table {scan.dataset!r} has no history, which NEW and OLD would read",
                scan.span,
                expected=f"FROM {scan.dataset}",
            )


def parse_statements_in_order(texts: Sequence[SqlText], disk_cache: DiskCache | None = None) -> list[DatasetStatement]:
    """The dataset statements among some texts, ordered so that each follows the datasets that it reads. Schemas are not
    analysed.

    Args:
        disk_cache: cache of earlier analyses.

    Raises:
        SqlError: exactly one problem was found.
        DefinitionError: several problems were found, and the error lists them all.
    """
    problems: list[SqlError] = []
    with _open_analysis_cache(disk_cache, {}) as analysis_cache:
        statements, _ = _read_statements(texts, problems, analysis_cache)
    names = _order_by_dependencies(statements, problems)
    _raise_problems(problems)
    return [statements[n] for n in names]


def parse_external_views(texts: Sequence[SqlText], disk_cache: DiskCache | None = None) -> list[ExternalView]:
    """The external tables among some texts. Texts that cannot be parsed are skipped."""
    with _open_analysis_cache(disk_cache, {}) as analysis_cache:
        return list(_read_statements(texts, [], analysis_cache)[1].values())


def _read_statements(
    texts: Sequence[SqlText], problems: list[SqlError], analysis_cache: AnalysisCache | None = None
) -> tuple[dict[str, DatasetStatement], dict[str, ExternalView]]:
    datasets: dict[str, DatasetStatement] = {}
    views: dict[str, ExternalView] = {}
    for text in texts:
        try:
            parsed = _read_statement(text, analysis_cache)
        except SqlError as error:
            problems.append(error)
            continue
        earlier = datasets.get(parsed.name) or views.get(parsed.name)
        if earlier is not None:
            earlier_file = earlier.text.name
            problems.append(
                text.error(
                    f"dataset {parsed.name!r} is already defined in {earlier_file}",
                    None,
                    expected="one statement for each dataset",
                )
            )
        elif isinstance(parsed, ExternalView):
            views[parsed.name] = parsed
        else:
            datasets[parsed.name] = parsed
    return datasets, views


def _read_statement(text: SqlText, analysis_cache: AnalysisCache | None) -> DatasetStatement | ExternalView:
    cached = None if analysis_cache is None else analysis_cache.get_statement(text)
    if cached is not None:
        return cached
    statement = parse_without_options(text)
    if is_external_view(statement):
        return parse_external_view(text, statement)
    dataset_statement = parse_dataset_statement(text, statement)
    if analysis_cache is not None:
        analysis_cache.put_statement(dataset_statement)
    return dataset_statement


def _order_by_dependencies(statements: Mapping[str, DatasetStatement], problems: list[SqlError]) -> list[str]:
    """Names of the datasets, each after the datasets that it reads. A cycle is added to ``problems``."""
    order = {n: [r for r in w.reads if r in statements] for n, w in statements.items()}
    try:
        return list(TopologicalSorter(order).static_order())
    except CycleError as error:
        cycle = list(reversed(error.args[1]))
        first = statements[cycle[0]]
        scan = next(s for s in first.scans if s.dataset in cycle)
        what = "a dataset reads itself" if len(set(cycle)) == 1 else "datasets read each other"
        problems.append(
            first.text.error(
                f"{what}: {' → '.join(cycle)}",
                scan.span,
                expected="dependencies without a cycle",
                next="move the shared part into a dataset of its own",
            )
        )
        return []


def analyse_dataset(
    statement: DatasetStatement,
    schemas: Mapping[str, Schema],
    declared_channel: Channel | None,
    function_types: Mapping[str, str],
    partition_columns: Mapping[str, Sequence[str]] | None = None,
    analysis_cache: AnalysisCache | None = None,
) -> Dataset:
    """Analyse one dataset, given the schemas of its inputs.

    Args:
        declared_channel: the channel that the author declared for the dataset, if any.
        partition_columns: lower-case partition columns of each input.
        analysis_cache: cache of earlier analyses.

    Raises:
        SqlError: the query cannot be analysed.
    """
    columns = partition_columns or {}
    analysis = None if analysis_cache is None else analysis_cache.get_analysis(statement, schemas, columns)
    if analysis is None:
        analysis = _compute_analysis(statement, schemas, function_types, columns)
        if analysis_cache is not None:
            analysis_cache.put_analysis(statement, schemas, columns, analysis)
    return Dataset(
        statement, analysis.schema, _make_channel(statement, analysis, declared_channel), analysis.load_query
    )


def _compute_analysis(
    statement: DatasetStatement,
    schemas: Mapping[str, Schema],
    function_types: Mapping[str, str],
    partition_columns: Mapping[str, Sequence[str]],
) -> DatasetAnalysis:
    tables = table_function_schemas(function_types)
    query = resolve_query(statement.text, statement.query, schemas, statement.header.variable_types, tables)
    input_schemas = {**tables, **{r: schemas[r] for r in query.reads}}
    output_schema = schema_of_query(query, input_schemas, function_types)
    check_local_times(query, lambda: typed_tree(query, input_schemas, function_types), statement.header)
    types = statement.header.partition_column_types
    for column in types:
        if column.lower() in (n.lower() for n in output_schema.names):
            raise statement.text.error(
                f"column {column!r} is in PARTITION and in SELECT",
                None,
                next=f"remove {column} from SELECT: its value is the same in all rows of a scope",
            )
    schema = Schema((*output_schema.fields, *(Field(c, parse_type(t)) for c, t in types.items())))
    _check_partition_conditions(query, statement, partition_columns)
    return DatasetAnalysis(schema, partition_dimensions(statement.header), lambda: query)


def _check_partition_conditions(
    query: Query, statement: DatasetStatement, partition_columns: Mapping[str, Sequence[str]]
) -> None:
    """Evaluate the conditions on partitions for one sample partition of each input, so that errors surface before any
    run.
    """
    sample_partitions: dict[str, list[Row]] = {n: [dict.fromkeys(partition_columns.get(n, ()))] for n in query.reads}
    try:
        PartitionPruner(query).required_partitions(sample_partitions, statement.header.sample_scope)
    except SqlError as error:
        if not error.of_values:
            raise


def _make_channel(statement: DatasetStatement, analysis: DatasetAnalysis, declared_channel: Channel | None) -> Channel:
    if declared_channel is not None:
        return declared_channel.redefined(analysis.schema, analysis.dimensions)
    return Channel(
        statement.name,
        schema=analysis.schema,
        partitions=analysis.dimensions,
        description=statement.description or None,
        owners=[statement.owner] if statement.owner else (),
    )


def _raise_problems(problems: Sequence[SqlError]) -> None:
    if len(problems) == 1:
        raise problems[0]
    if problems:
        messages = [p.render().split("] ", 1)[1] for p in problems]
        raise DefinitionError.of(messages, "the datasets cannot be analysed")
