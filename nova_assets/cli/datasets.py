"""``nova show`` and ``nova tick``: inspect SQL datasets, and compute the partitions that they lack."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import click
from rich.console import Console

from nova_assets.cli.command import CommandResult, NovaCommand
from nova_assets.cli.deployment import Deployment
from nova_assets.cli.refresh import format_refreshed
from nova_assets.cli.rendering import TableGrid, print_progress
from nova_assets.errors import DefinitionError
from nova_assets.model.project import Project
from nova_assets.operations.datasets.tick import TaskOutcome
from nova_assets.plan.tick import Tick
from nova_assets.sql.datasets.dataset_bindings import dataset_queries_by_name
from nova_assets.sql.datasets.dataset_query import DatasetQuery
from nova_assets.sql.datasets.required_reads import RequiredRead
from nova_assets.sql.statement.header import ScopeValues, format_value
from nova_assets.store.store import Store
from nova_assets.suggestions import did_you_mean

MAX_LISTED = 40
"""Maximum number of rows in a list for a person. A longer list of scopes shows the latest."""


@click.command(cls=NovaCommand)
@click.argument("dataset", required=False)
@click.argument("partition", nargs=-1, metavar="[COLUMN=VALUE]...")
@click.option("--at", metavar="MOMENT", help="As of this moment, such as 2022-03-31T12:00; now by default.")
@click.pass_obj
def show(deployment: Deployment, dataset: str | None, partition: tuple[str, ...], at: str | None) -> CommandResult:
    """Show what follows from the query of DATASET; without one, which datasets there are.

    With the values of a partition, such as day=2022-03-31: the scope that writes it, its partition columns, and the
    partitions that it depends on, whether they are there or not; the schema, and the query as it will be run.
    Conditions on partitions that are not understood prune none: they are listed with the reason. Without, all of its
    scopes.

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


@click.command(cls=NovaCommand)
@click.option("--dry-run", is_flag=True, help="Say what would be run, what waits for what, and what would be dropped.")
@click.option("--all", "until_done", is_flag=True, help="Tick again until nothing is left that can be run.")
@click.pass_obj
def tick(deployment: Deployment, dry_run: bool, until_done: bool) -> CommandResult:
    """Make what the datasets in SQL lack, once.

    Every task whose partition is missing, marked to be made again, or older than what it was made of is run, as soon as
    all that it reads is there; and partitions that no task writes any more are dropped. External channels are looked at
    before, as by nova refresh; not so by a dry run. Ends with 1 if a task failed, or a channel could not be looked at.

    JSON: {"run": [{"dataset", "partition", "error": null or text}], "dropped": {dataset: [partition]}, "amiss":
    {channel: [text]}}; with --dry-run {"run": [{"dataset", "partition", "why"}], "waits": [{"dataset", "partition",
    "why", "waits_for"}], "drop": {dataset: [partition]}, "held": {dataset: [partition]}}
    """
    if dry_run:
        with deployment.open_read_only(with_project=True) as store:
            return _tick_preview_result(store.next_tick())
    with deployment.open() as store:
        refresh_problems = {r.channel: format_refreshed(r) for r in store.refresh_all() if r.needs_attention}
        runs: list[TaskOutcome] = []
        dropped: dict[str, list[str]] = {}
        while True:
            planned_tick = store.next_tick()
            dropped = {d: [*dropped.get(d, ()), *planned_tick.drop.get(d, ())] for d in (*dropped, *planned_tick.drop)}
            new_runs = store.tick(planned_tick, lambda one: print_progress(_format_task_run(one), deployment.quiet))
            runs += new_runs
            if not until_done or not new_runs or any(r.error for r in new_runs):
                break
    return _tick_result(runs, dropped, refresh_problems)


def _format_task_run(task_run: TaskOutcome) -> str:
    name = f"{task_run.dataset} {task_run.partition}".rstrip()
    return f"{name}: {'made' if task_run.error is None else task_run.error}"


def _tick_result(
    task_runs: Sequence[TaskOutcome], dropped_partitions: dict[str, list[str]], refresh_problems: dict[str, list[str]]
) -> CommandResult:
    failed = [r for r in task_runs if r.error is not None]
    run_rows = [
        {"dataset": r.dataset, "partition": r.partition, "error": None if r.error is None else str(r.error)}
        for r in task_runs
    ]

    def show(console: Console) -> None:
        for line in (line for said in refresh_problems.values() for line in said):
            console.print(line, markup=False, soft_wrap=True)
        for r in failed:
            console.print(f"{r.dataset} {r.partition} failed: {r.error}")
        gone = sum(map(len, dropped_partitions.values()))
        console.print(f"{len(task_runs) - len(failed)} made, {len(failed)} failed, {gone} dropped")

    return CommandResult(
        {"run": run_rows, "dropped": dropped_partitions, "amiss": refresh_problems},
        show,
        1 if failed or refresh_problems else 0,
    )


def _tick_preview_result(planned_tick: Tick) -> CommandResult:
    run_rows = [(b.dataset, p, w) for b in planned_tick.run for p, w in zip(b.partitions, b.why, strict=True)]
    waiting_rows = [(w.dataset, w.partition, w.why, w.waits_for) for w in planned_tick.waits]
    data = {
        "run": [dict(zip(("dataset", "partition", "why"), r, strict=True)) for r in run_rows],
        "waits": [dict(zip(("dataset", "partition", "why", "waits_for"), w, strict=True)) for w in waiting_rows],
        "drop": {d: list(p) for d, p in planned_tick.drop.items()},
        "held": {d: list(p) for d, p in planned_tick.held.items()},
    }

    def show(console: Console) -> None:
        _print_title(console, f"To run: {len(run_rows)}")
        _print_table(console, ("dataset", "partition", "why"), run_rows)
        if waiting_rows:
            _print_title(console, f"Waiting: {len(waiting_rows)}")
            _print_table(console, ("dataset", "partition", "why", "waits for"), waiting_rows[:MAX_LISTED])
        for what, gone in (("To drop", planned_tick.drop), ("Not dropped, since they are many", planned_tick.held)):
            if gone:
                _print_title(console, what)
                _print_table(
                    console, ("dataset", "partition"), [(d, p) for d, ps in gone.items() for p in ps][:MAX_LISTED]
                )

    return CommandResult(data, show)


def _find_dataset_query(project: Project, name: str) -> DatasetQuery:
    queries_by_name = dataset_queries_by_name(project)
    if name not in queries_by_name:
        raise DefinitionError(
            f"no dataset in SQL is called {name!r}{did_you_mean(name, queries_by_name)}",
            expected=", ".join(sorted(queries_by_name)) or "the project has none: nova.datasets(FOLDER)",
        )
    return queries_by_name[name]


def _existing_partitions_lookup(store: Store) -> Callable[[str], list[str]]:
    return lambda channel: [p.partition for p in store.partitions(channel) if not p.dropped]


def _parse_moment(option_text: str | None) -> datetime:
    if option_text is None:
        return datetime.now(UTC)
    try:
        parsed = datetime.fromisoformat(option_text)
    except ValueError:
        raise click.BadParameter(f"{option_text!r} is no moment; write 2022-03-31T12:00", param_hint="--at") from None
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
        _print_title(console, "Evaluation scope")
        _print_table(console, ("name", "value", "type"), task.variables)
        _print_title(console, "Partition columns")
        _print_table(console, ("column", "value", "type"), task.partition_columns)
    _print_title(console, "Dependencies")
    for need in task.needs:
        called = need.dataset if need.mode == "all" else f"{need.mode.upper()}({need.dataset})"
        for partition in need.partitions[:MAX_LISTED]:
            console.print(f"- {called}/{partition}" if partition else f"- {called}")
        if len(need.partitions) > MAX_LISTED:
            console.print(f"- {called}: and {len(need.partitions) - MAX_LISTED} more")
        if not need.partitions:
            console.print(f"- {called}: none of its partitions meets the conditions")
    if not task.needs:
        console.print("(none)")
    if task.not_pruned:
        _print_title(console, "Conditions that prune no partition")
        for line in task.not_pruned:
            console.print(f"- {line}", markup=False, soft_wrap=True)
    _show_schema(console, task.query)
    _print_title(console, "Query")
    console.print(task.query.runnable.display_sql)


def _project_result(project: Project) -> CommandResult:
    queries = dataset_queries_by_name(project)
    data = [
        {"dataset": n, "file": q.source_file, "reads": list(q.reads), "partitioned_by": list(q.partition_columns)}
        for n, q in queries.items()
    ]

    def show(console: Console) -> None:
        rows = [(n, ", ".join(q.partition_columns), ", ".join(q.reads), q.source_file) for n, q in queries.items()]
        _print_table(console, ("dataset", "partitioned by", "reads", "file"), rows)
        if not rows:
            console.print("the project has no datasets in SQL: nova.datasets(FOLDER) makes some of a folder")

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
        _print_title(console, f"Scopes: {len(variables_by_partition)}")
        last = list(variables_by_partition.items())[-MAX_LISTED:]
        if len(last) < len(variables_by_partition):
            console.print(f"(the last {MAX_LISTED})")
        if variables_by_partition:
            _print_table(console, ("partition", *query.header.variables), [(p, *v.values()) for p, v in last])
        _print_title(console, "Reads")
        for read in query.reads or ("(nothing)",):
            console.print(f"- {read}")
        _show_schema(console, query)

    return CommandResult(data, show)


def _show_schema(console: Console, query: DatasetQuery) -> None:
    _print_title(console, "Schema")
    _print_table(console, ("column", "type"), [(f.name, str(f.type).upper()) for f in query.schema.fields])


def _print_title(console: Console, title: str) -> None:
    console.print(f"\n{title}\n{'=' * len(title)}\n")


def _print_table(console: Console, columns: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> None:
    grid = TableGrid(*columns)
    for row in rows:
        grid.add(*row)
    console.print(grid)
