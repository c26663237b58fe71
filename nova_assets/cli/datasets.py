"""``nova show`` and ``nova tick``: what follows from the queries of datasets, and making what they lack."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import click
from rich.console import Console

from nova_assets.cli.command import Answer, NovaCommand
from nova_assets.cli.deployment import Deployment
from nova_assets.cli.refresh import lines
from nova_assets.cli.rendering import Grid, progress
from nova_assets.errors import DefinitionError
from nova_assets.model.project import Project
from nova_assets.operations.datasets.tick import Ran
from nova_assets.plan.tick import Tick
from nova_assets.sql.datasets.datasets import queries_of
from nova_assets.sql.datasets.graph import Need
from nova_assets.sql.datasets.task import InScope
from nova_assets.sql.statement.header import Scope, value_shown
from nova_assets.store.store import Store
from nova_assets.suggestions import did_you_mean

FEW = 40
"""So many scopes are listed for a person, the latest."""


@click.command(cls=NovaCommand)
@click.argument("dataset", required=False)
@click.argument("partition", nargs=-1, metavar="[COLUMN=VALUE]...")
@click.option("--at", metavar="MOMENT", help="As of this moment, such as 2022-03-31T12:00; now by default.")
@click.pass_obj
def show(deployment: Deployment, dataset: str | None, partition: tuple[str, ...], at: str | None) -> Answer:
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
    with deployment.look(with_project=True) as store:
        if dataset is None:
            return _of_project(store.project)
        found = _query(store.project, dataset)
        now = _moment(at)
        name = store.project.binding(dataset).partition("/".join(partition)) if partition else ""
        if not partition and found.partition_columns:
            return _of_dataset(found, now)
        existing = _existing(store)
        needs, not_pruned = found.needs(name, now, existing), found.not_pruned(name, now, existing)
        return _of_task(_Task(found, name, found.scope(name, now), needs, not_pruned))


@click.command(cls=NovaCommand)
@click.option("--dry-run", is_flag=True, help="Say what would be run, what waits for what, and what would be dropped.")
@click.option("--all", "until_done", is_flag=True, help="Tick again until nothing is left that can be run.")
@click.pass_obj
def tick(deployment: Deployment, dry_run: bool, until_done: bool) -> Answer:
    """Make what the datasets in SQL lack, once.

    Every task whose partition is missing, marked to be made again, or older than what it was made of is run, as soon as
    all that it reads is there; and partitions that no task writes any more are dropped. External channels are looked at
    before, as by nova refresh; not so by a dry run. Ends with 1 if a task failed, or a channel could not be looked at.

    JSON: {"run": [{"dataset", "partition", "error": null or text}], "dropped": {dataset: [partition]}, "amiss":
    {channel: [text]}}; with --dry-run {"run": [{"dataset", "partition", "why"}], "waits": [{"dataset", "partition",
    "why", "waits_for"}], "drop": {dataset: [partition]}, "held": {dataset: [partition]}}
    """
    if dry_run:
        with deployment.look(with_project=True) as store:
            return _of_tick(store.next_tick())
    with deployment.open() as store:
        amiss = {r.channel: lines(r) for r in store.refresh_all() if r.is_amiss}
        ran: list[Ran] = []
        dropped: dict[str, list[str]] = {}
        while True:
            found = store.next_tick()
            dropped = {d: [*dropped.get(d, ()), *found.drop.get(d, ())] for d in (*dropped, *found.drop)}
            some = store.tick(found, lambda one: progress(_said(one), deployment.quiet))
            ran += some
            if not until_done or not some or any(r.error for r in some):
                break
    return _of_ran(ran, dropped, amiss)


def _said(ran: Ran) -> str:
    name = f"{ran.dataset} {ran.partition}".rstrip()
    return f"{name}: {'made' if ran.error is None else ran.error}"


def _of_ran(ran: Sequence[Ran], dropped: dict[str, list[str]], amiss: dict[str, list[str]]) -> Answer:
    failed = [r for r in ran if r.error is not None]
    run = [
        {"dataset": r.dataset, "partition": r.partition, "error": None if r.error is None else str(r.error)}
        for r in ran
    ]

    def show(console: Console) -> None:
        for line in (line for said in amiss.values() for line in said):
            console.print(line, markup=False, soft_wrap=True)
        for r in failed:
            console.print(f"{r.dataset} {r.partition} failed: {r.error}")
        gone = sum(map(len, dropped.values()))
        console.print(f"{len(ran) - len(failed)} made, {len(failed)} failed, {gone} dropped")

    return Answer({"run": run, "dropped": dropped, "amiss": amiss}, show, 1 if failed or amiss else 0)


def _of_tick(found: Tick) -> Answer:
    run = [(b.dataset, p, w) for b in found.run for p, w in zip(b.partitions, b.why, strict=True)]
    waits = [(w.dataset, w.partition, w.why, w.waits_for) for w in found.waits]
    data = {
        "run": [dict(zip(("dataset", "partition", "why"), r, strict=True)) for r in run],
        "waits": [dict(zip(("dataset", "partition", "why", "waits_for"), w, strict=True)) for w in waits],
        "drop": {d: list(p) for d, p in found.drop.items()},
        "held": {d: list(p) for d, p in found.held.items()},
    }

    def show(console: Console) -> None:
        _title(console, f"To run: {len(run)}")
        _table(console, ("dataset", "partition", "why"), run)
        if waits:
            _title(console, f"Waiting: {len(waits)}")
            _table(console, ("dataset", "partition", "why", "waits for"), waits[:FEW])
        for what, gone in (("To drop", found.drop), ("Not dropped, since they are many", found.held)):
            if gone:
                _title(console, what)
                _table(console, ("dataset", "partition"), [(d, p) for d, ps in gone.items() for p in ps][:FEW])

    return Answer(data, show)


def _query(project: Project, name: str) -> InScope:
    known = queries_of(project)
    if name not in known:
        raise DefinitionError(
            f"no dataset in SQL is called {name!r}{did_you_mean(name, known)}",
            expected=", ".join(sorted(known)) or "the project has none: nova.datasets(FOLDER)",
        )
    return known[name]


def _existing(store: Store) -> Callable[[str], list[str]]:
    return lambda channel: [p.partition for p in store.partitions(channel) if not p.dropped]


def _moment(at: str | None) -> datetime:
    if at is None:
        return datetime.now(UTC)
    try:
        found = datetime.fromisoformat(at)
    except ValueError:
        raise click.BadParameter(f"{at!r} is no moment; write 2022-03-31T12:00", param_hint="--at") from None
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found


@dataclass(frozen=True)
class _Task:
    query: InScope
    partition: str
    scope: Scope
    needs: tuple[Need, ...]
    not_pruned: tuple[str, ...] = ()

    @property
    def variables(self) -> list[tuple[str, str, str]]:
        types = self.query.head.variable_types
        return [(n, value_shown(v), types[n].upper()) for n, v in sorted(self.scope.items())]

    @property
    def columns(self) -> list[tuple[str, str, str]]:
        values, types = self.query.head.partition_of(self.scope), self.query.head.column_types
        return [(c, value_shown(v), types[c].upper()) for c, v in values.items()]

    @property
    def dependencies(self) -> list[tuple[str, str, str]]:
        """(dataset, mode, partition), each once."""
        return list(dict.fromkeys((n.dataset, n.mode, p) for n in self.needs for p in n.partitions))


def _of_task(task: _Task) -> Answer:
    query = task.query
    data = {
        "dataset": query.name,
        "partition": task.partition,
        "scope": [dict(zip(("name", "value", "type"), v, strict=True)) for v in task.variables],
        "columns": [dict(zip(("column", "value", "type"), v, strict=True)) for v in task.columns],
        "dependencies": [dict(zip(("dataset", "mode", "partition"), d, strict=True)) for d in task.dependencies],
        "not_pruned": list(task.not_pruned),
        "schema": query.schema.as_json(),
        "query": query.runnable.shown,
    }
    return Answer(data, lambda console: _show_task(console, task))


def _show_task(console: Console, task: _Task) -> None:
    if task.variables:
        _title(console, "Evaluation scope")
        _table(console, ("name", "value", "type"), task.variables)
        _title(console, "Partition columns")
        _table(console, ("column", "value", "type"), task.columns)
    _title(console, "Dependencies")
    for need in task.needs:
        called = need.dataset if need.mode == "all" else f"{need.mode.upper()}({need.dataset})"
        for partition in need.partitions[:FEW]:
            console.print(f"- {called}/{partition}" if partition else f"- {called}")
        if len(need.partitions) > FEW:
            console.print(f"- {called}: and {len(need.partitions) - FEW} more")
        if not need.partitions:
            console.print(f"- {called}: none of its partitions meets the conditions")
    if not task.needs:
        console.print("(none)")
    if task.not_pruned:
        _title(console, "Conditions that prune no partition")
        for line in task.not_pruned:
            console.print(f"- {line}", markup=False, soft_wrap=True)
    _show_schema(console, task.query)
    _title(console, "Query")
    console.print(task.query.runnable.shown)


def _of_project(project: Project) -> Answer:
    queries = queries_of(project)
    data = [
        {"dataset": n, "file": q.source, "reads": list(q.reads), "partitioned_by": list(q.partition_columns)}
        for n, q in queries.items()
    ]

    def show(console: Console) -> None:
        rows = [(n, ", ".join(q.partition_columns), ", ".join(q.reads), q.source) for n, q in queries.items()]
        _table(console, ("dataset", "partitioned by", "reads", "file"), rows)
        if not rows:
            console.print("the project has no datasets in SQL: nova.datasets(FOLDER) makes some of a folder")

    return Answer({"datasets": data}, show)


def _of_dataset(query: InScope, now: datetime) -> Answer:
    tasks = query.graph.tasks(query.name, now)
    shown = {p: {n: value_shown(v) for n, v in scope.items()} for p, scope in tasks.items()}
    data: dict[str, Any] = {
        "dataset": query.name,
        "file": query.source,
        "reads": list(query.reads),
        "schema": query.schema.as_json(),
        "scopes": [{"partition": p, "variables": v} for p, v in shown.items()],
    }

    def show(console: Console) -> None:
        _title(console, f"Scopes: {len(shown)}")
        last = list(shown.items())[-FEW:]
        if len(last) < len(shown):
            console.print(f"(the last {FEW})")
        if shown:
            _table(console, ("partition", *query.head.variables), [(p, *v.values()) for p, v in last])
        _title(console, "Reads")
        for read in query.reads or ("(nothing)",):
            console.print(f"- {read}")
        _show_schema(console, query)

    return Answer(data, show)


def _show_schema(console: Console, query: InScope) -> None:
    _title(console, "Schema")
    _table(console, ("column", "type"), [(f.name, str(f.type).upper()) for f in query.schema.fields])


def _title(console: Console, text: str) -> None:
    console.print(f"\n{text}\n{'=' * len(text)}\n")


def _table(console: Console, columns: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> None:
    grid = Grid(*columns)
    for row in rows:
        grid.add(*row)
    console.print(grid)
