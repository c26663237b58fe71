"""``nova show``: show a dataset in SQL: its scopes, schema, query and dependencies."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple

import click
from rich.console import Console

from nova_assets.cli.command import CommandResult, NovaCommand
from nova_assets.cli.deployment import Deployment
from nova_assets.cli.rendering import MAX_LISTED_PARTITIONS, print_table, print_title
from nova_assets.errors import DefinitionError
from nova_assets.model.partition_rule import InputState
from nova_assets.model.project import Project
from nova_assets.sql.datasets.dataset_bindings import dataset_queries_by_name
from nova_assets.sql.datasets.dataset_query import DatasetQuery
from nova_assets.sql.datasets.required_reads import RequiredRead
from nova_assets.sql.incremental.operator_text import describe_operators
from nova_assets.sql.statement.header import ScopeValues, display_text
from nova_assets.store.store import Store
from nova_assets.suggestions import did_you_mean


@click.command(cls=NovaCommand)
@click.argument("dataset", required=False)
@click.argument("partition", nargs=-1, metavar="[COLUMN=VALUE]...")
@click.option("--at", metavar="MOMENT", help="Evaluate scopes at this time, such as 2022-03-31T12:00.  [default: now]")
def show(deployment: Deployment, dataset: str | None, partition: tuple[str, ...], at: str | None) -> CommandResult:
    """Show the scopes, inputs and schema of DATASET. Without DATASET, list the datasets of the project.

    With the values of a partition, such as day=2022-03-31, show the scope that writes the partition, its partition
    columns, the partitions that it depends on (existing or not), the schema, and the query that runs. Conditions that
    nova cannot use for partition pruning are listed with the reason.

    JSON: {"dataset", "file", "reads", "schema", "scopes": [{"partition", "variables"}], "refresh": {"refresh",
    "reason", "steps": [{"depth", "step", "rule"}]}, "freshness", "frozen_where"}; with a partition: {"dataset",
    "partition", "scope": [{"name", "value", "type"}], "columns": [...], "dependencies": [{"dataset", "mode",
    "partition"}], "not_pruned": [text], "refresh", "freshness", "frozen_where", "schema", "query"}; without a dataset:
    {"datasets": [{"dataset", "file", "reads", "partitioned_by"}]}
    """
    if dataset is not None:
        deployment.check_project_configured(f"nova show {dataset}")
    with deployment.open_read_only(with_project=True, needs_catalog=False) as store:
        if dataset is None:
            return _project_result(store.project)
        query = _find_dataset_query(store.project, dataset)
        now = _parse_moment(at)
        name = store.project.binding(dataset).partition("/".join(partition)) if partition else ""
        if not partition and query.partition_columns:
            return _dataset_result(query, now)
        inputs = _input_state(store)
        required_reads = query.required_reads(name, now, inputs)
        not_pruned = query.unpruned_conditions(name, now, inputs)
        return _task_result(_DatasetTask(query, name, query.scope(name, now), required_reads, not_pruned))


def _find_dataset_query(project: Project, name: str) -> DatasetQuery:
    queries_by_name = dataset_queries_by_name(project)
    if name not in queries_by_name:
        raise DefinitionError(
            f"no dataset in SQL is called {name!r}{did_you_mean(name, queries_by_name)}",
            expected=", ".join(sorted(queries_by_name))
            or "no dataset: the project declares none with nova.datasets(FOLDER)",
        )
    return queries_by_name[name]


def _input_state(store: Store) -> InputState:
    return InputState(
        lambda channel: [p.partition for p in store.partitions(channel) if not p.is_dropped],
        store.runtime.few_rows.at_newest_heads(),
    )


def _parse_moment(option_text: str | None) -> datetime:
    if option_text is None:
        return datetime.now(UTC)
    try:
        parsed = datetime.fromisoformat(option_text)
    except ValueError:
        raise click.BadParameter(f"{option_text!r} is not a time; write 2022-03-31T12:00", param_hint="--at") from None
    return parsed.replace(tzinfo=UTC) if parsed.tzinfo is None else parsed


class _TypedValue(NamedTuple):
    """Value of a variable or partition column, as text."""

    name: str
    value: str
    type: str


class _Dependency(NamedTuple):
    """A partition that a task reads, and the mode of the read."""

    dataset: str
    mode: str
    partition: str


@dataclass(frozen=True)
class _DatasetTask:
    query: DatasetQuery
    partition: str
    scope: ScopeValues
    required_reads: tuple[RequiredRead, ...]
    not_pruned: tuple[str, ...] = ()

    @property
    def variables(self) -> list[_TypedValue]:
        types = self.query.header.variable_types
        return [_TypedValue(n, display_text(v), types[n].upper()) for n, v in sorted(self.scope.items())]

    @property
    def partition_columns(self) -> list[_TypedValue]:
        values, types = self.query.header.partition_values_of(self.scope), self.query.header.partition_column_types
        return [_TypedValue(c, display_text(v), types[c].upper()) for c, v in values.items()]

    @property
    def dependencies(self) -> list[_Dependency]:
        """Partitions that the task reads, without duplicates."""
        return list(dict.fromkeys(_Dependency(n.dataset, n.mode, p) for n in self.required_reads for p in n.partitions))


def _task_result(task: _DatasetTask) -> CommandResult:
    query = task.query
    data = {
        "dataset": query.name,
        "partition": task.partition,
        "scope": [v._asdict() for v in task.variables],
        "columns": [dict(zip(("column", "value", "type"), v, strict=True)) for v in task.partition_columns],
        "dependencies": [d._asdict() for d in task.dependencies],
        "not_pruned": list(task.not_pruned),
        "refresh": query.refresh.as_json(),
        "freshness": query.freshness,
        "frozen_where": query.frozen_where,
        "schema": query.schema.as_json(),
        "query": query.runnable.display_sql,
    }
    return CommandResult(data, lambda console: _show_task(console, task))


def _show_task(console: Console, task: _DatasetTask) -> None:
    if task.variables:
        print_title(console, "Evaluation scope")
        print_table(console, ("name", "value", "type"), task.variables)
        print_title(console, "Partition columns")
        print_table(console, ("column", "value", "type"), task.partition_columns)
    print_title(console, "Dependencies")
    for read in task.required_reads:
        dependency_text = read.dataset if read.mode == "all" else f"{read.mode.upper()}({read.dataset})"
        for partition in read.partitions[:MAX_LISTED_PARTITIONS]:
            console.print(f"- {dependency_text}/{partition}" if partition else f"- {dependency_text}")
        if len(read.partitions) > MAX_LISTED_PARTITIONS:
            console.print(f"- {dependency_text}: and {len(read.partitions) - MAX_LISTED_PARTITIONS} more")
        if not read.partitions:
            console.print(f"- {dependency_text}: none of its partitions matches the conditions")
    if not task.required_reads:
        console.print("(none)")
    if task.not_pruned:
        print_title(console, "Conditions that prune no partition")
        for line in task.not_pruned:
            console.print(f"- {line}", soft_wrap=True)
    if not task.variables:
        _show_refresh(console, task.query)
        _show_limits(console, task.query)
    _show_schema(console, task.query)
    print_title(console, "Query")
    console.print(task.query.runnable.display_sql)


def _project_result(project: Project) -> CommandResult:
    queries = dataset_queries_by_name(project)
    data = [
        {"dataset": n, "file": q.source_file, "reads": list(q.reads), "partitioned_by": list(q.partition_columns)}
        for n, q in queries.items()
    ]

    def show(console: Console) -> None:
        rows = [(n, ", ".join(q.partition_columns), ", ".join(q.reads), q.source_file) for n, q in queries.items()]
        print_table(console, ("dataset", "partitioned by", "reads", "file"), rows)
        if not rows:
            console.print("the project has no datasets in SQL; nova.datasets(FOLDER) declares those of a folder")

    return CommandResult({"datasets": data}, show)


def _dataset_result(query: DatasetQuery, now: datetime) -> CommandResult:
    tasks = query.graph.scopes_by_partition(query.name, now)
    variables_by_partition = {p: {n: display_text(v) for n, v in scope.items()} for p, scope in tasks.items()}
    data: dict[str, Any] = {
        "dataset": query.name,
        "file": query.source_file,
        "reads": list(query.reads),
        "schema": query.schema.as_json(),
        "scopes": [{"partition": p, "variables": v} for p, v in variables_by_partition.items()],
        "refresh": query.refresh.as_json(),
        "freshness": query.freshness,
        "frozen_where": query.frozen_where,
    }

    def show(console: Console) -> None:
        print_title(console, f"Scopes: {len(variables_by_partition)}")
        last = list(variables_by_partition.items())[-MAX_LISTED_PARTITIONS:]
        if len(last) < len(variables_by_partition):
            console.print(f"(only the last {MAX_LISTED_PARTITIONS} are listed)")
        if variables_by_partition:
            print_table(console, ("partition", *query.header.variables), [(p, *v.values()) for p, v in last])
        print_title(console, "Reads")
        for read in query.reads or ("(nothing)",):
            console.print(f"- {read}")
        _show_refresh(console, query)
        _show_limits(console, query)
        _show_schema(console, query)

    return CommandResult(data, show)


def _show_refresh(console: Console, query: DatasetQuery) -> None:
    refresh = query.refresh
    if refresh.operators is None and not refresh.reason:
        return
    print_title(console, "Refresh")
    if refresh.operators is None:
        console.print(f"full: {refresh.reason}", soft_wrap=True)
        return
    console.print("incremental: the changes of the inputs pass through these steps, from the last line to the first")
    lines = describe_operators(refresh.operators)
    print_table(console, ("step", "how a change passes through"), [("  " * n + step, rule) for n, step, rule in lines])


def _show_limits(console: Console, query: DatasetQuery) -> None:
    if query.freshness:
        print_title(console, "Freshness")
        console.print(query.freshness)
    if query.frozen_where:
        print_title(console, "Rows that are never made again")
        console.print(query.frozen_where, soft_wrap=True)


def _show_schema(console: Console, query: DatasetQuery) -> None:
    print_title(console, "Schema")
    print_table(console, ("column", "type"), [(f.name, str(f.type).upper()) for f in query.schema.fields])
