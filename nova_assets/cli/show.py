"""``nova show``: show a dataset in SQL: its scopes, schema, query and dependencies."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import click
from rich.console import Console

from nova_assets.cli.command import CommandResult, NovaCommand
from nova_assets.cli.deployment import Deployment
from nova_assets.cli.rendering import MAX_LISTED_PARTITIONS, print_table, print_title
from nova_assets.errors import DefinitionError
from nova_assets.model.project import Project
from nova_assets.sql.datasets.dataset_bindings import dataset_queries_by_name
from nova_assets.sql.datasets.dataset_query import DatasetQuery
from nova_assets.sql.datasets.required_reads import RequiredRead
from nova_assets.sql.statement.header import ScopeValues, format_value
from nova_assets.store.store import Store
from nova_assets.suggestions import did_you_mean


@click.command(cls=NovaCommand)
@click.argument("dataset", required=False)
@click.argument("partition", nargs=-1, metavar="[COLUMN=VALUE]...")
@click.option("--at", metavar="MOMENT", help="Evaluate scopes at this time, such as 2022-03-31T12:00.  [default: now]")
@click.pass_obj
def show(deployment: Deployment, dataset: str | None, partition: tuple[str, ...], at: str | None) -> CommandResult:
    """Show the scopes, inputs and schema of DATASET. Without DATASET, list the datasets of the project.

    With the values of a partition, such as day=2022-03-31, show the scope that writes the partition, its partition
    columns, the partitions that it depends on (existing or not), the schema, and the query that runs. Conditions that
    nova cannot use for partition pruning are listed with the reason.

    JSON: {"dataset", "file", "reads", "schema", "scopes": [{"partition", "variables"}]}; with a partition: {"dataset",
    "partition", "scope": [{"name", "value", "type"}], "columns": [...], "dependencies": [{"dataset", "mode",
    "partition"}], "not_pruned": [text], "schema", "query"}; without a dataset: {"datasets": [{"dataset", "file",
    "reads", "partitioned_by"}]}
    """
    with deployment.open_read_only(with_project=True) as store:
        if dataset is None:
            return _project_result(store.project)
        query = _find_dataset_query(store.project, dataset)
        now = _parse_moment(at)
        name = store.project.binding(dataset).partition("/".join(partition)) if partition else ""
        if not partition and query.partition_columns:
            return _dataset_result(query, now)
        list_existing_partitions = _existing_partitions_lookup(store)
        needs, not_pruned = (
            query.required_reads(name, now, list_existing_partitions),
            query.unpruned_conditions(name, now, list_existing_partitions),
        )
        return _task_result(_DatasetTask(query, name, query.scope(name, now), needs, not_pruned))


def _find_dataset_query(project: Project, name: str) -> DatasetQuery:
    queries_by_name = dataset_queries_by_name(project)
    if name not in queries_by_name:
        raise DefinitionError(
            f"no dataset in SQL is called {name!r}{did_you_mean(name, queries_by_name)}",
            expected=", ".join(sorted(queries_by_name))
            or "no dataset: the project declares none with nova.datasets(FOLDER)",
        )
    return queries_by_name[name]


def _existing_partitions_lookup(store: Store) -> Callable[[str], list[str]]:
    return lambda channel: [p.partition for p in store.partitions(channel) if not p.is_dropped]


def _parse_moment(option_text: str | None) -> datetime:
    if option_text is None:
        return datetime.now(UTC)
    try:
        parsed = datetime.fromisoformat(option_text)
    except ValueError:
        raise click.BadParameter(f"{option_text!r} is not a time; write 2022-03-31T12:00", param_hint="--at") from None
    return parsed.replace(tzinfo=UTC) if parsed.tzinfo is None else parsed


@dataclass(frozen=True)
class _DatasetTask:
    query: DatasetQuery
    partition: str
    scope: ScopeValues
    needs: tuple[RequiredRead, ...]
    not_pruned: tuple[str, ...] = ()

    @property
    def variables(self) -> list[tuple[str, str, str]]:
        types = self.query.header.variable_types
        return [(n, format_value(v), types[n].upper()) for n, v in sorted(self.scope.items())]

    @property
    def partition_columns(self) -> list[tuple[str, str, str]]:
        values, types = self.query.header.partition_values_of(self.scope), self.query.header.partition_column_types
        return [(c, format_value(v), types[c].upper()) for c, v in values.items()]

    @property
    def dependencies(self) -> list[tuple[str, str, str]]:
        """Distinct (dataset, mode, partition) of all required reads."""
        return list(dict.fromkeys((n.dataset, n.mode, p) for n in self.needs for p in n.partitions))


def _task_result(task: _DatasetTask) -> CommandResult:
    query = task.query
    data = {
        "dataset": query.name,
        "partition": task.partition,
        "scope": [dict(zip(("name", "value", "type"), v, strict=True)) for v in task.variables],
        "columns": [dict(zip(("column", "value", "type"), v, strict=True)) for v in task.partition_columns],
        "dependencies": [dict(zip(("dataset", "mode", "partition"), d, strict=True)) for d in task.dependencies],
        "not_pruned": list(task.not_pruned),
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
    for need in task.needs:
        called = need.dataset if need.mode == "all" else f"{need.mode.upper()}({need.dataset})"
        for partition in need.partitions[:MAX_LISTED_PARTITIONS]:
            console.print(f"- {called}/{partition}" if partition else f"- {called}")
        if len(need.partitions) > MAX_LISTED_PARTITIONS:
            console.print(f"- {called}: and {len(need.partitions) - MAX_LISTED_PARTITIONS} more")
        if not need.partitions:
            console.print(f"- {called}: none of its partitions matches the conditions")
    if not task.needs:
        console.print("(none)")
    if task.not_pruned:
        print_title(console, "Conditions that prune no partition")
        for line in task.not_pruned:
            console.print(f"- {line}", markup=False, soft_wrap=True)
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
    variables_by_partition = {p: {n: format_value(v) for n, v in scope.items()} for p, scope in tasks.items()}
    data: dict[str, Any] = {
        "dataset": query.name,
        "file": query.source_file,
        "reads": list(query.reads),
        "schema": query.schema.as_json(),
        "scopes": [{"partition": p, "variables": v} for p, v in variables_by_partition.items()],
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
        _show_schema(console, query)

    return CommandResult(data, show)


def _show_schema(console: Console, query: DatasetQuery) -> None:
    print_title(console, "Schema")
    print_table(console, ("column", "type"), [(f.name, str(f.type).upper()) for f in query.schema.fields])
