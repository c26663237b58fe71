"""``nova check``: report what a change of SQL datasets breaks, before anything runs."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from functools import cache
from typing import Any

import click
from rich.console import Console

from nova_assets.cli.columns_by_base import columns_by_base_json, show_columns_by_base
from nova_assets.cli.command import CommandResult, NovaCommand
from nova_assets.cli.deployment import Deployment
from nova_assets.cli.rendering import pluralize
from nova_assets.errors import DefinitionError
from nova_assets.model.channel_registration import ReplacementPreview
from nova_assets.model.project import Project
from nova_assets.nova_error import NovaError
from nova_assets.sql.datasets.breaking_changes import Change, find_changes
from nova_assets.sql.datasets.dataset_bindings import dataset_queries_by_name
from nova_assets.sql.datasets.declarations import DatasetDeclarations, deployed_declarations, record_declarations
from nova_assets.sql.datasets.disk_cache import DiskCache
from nova_assets.sql.datasets.spark_analysis import SparkAnalysis, analyse_with_spark
from nova_assets.sql.statement.dataset_statement import DatasetStatement


@click.command(cls=NovaCommand, checks_project=False)
@click.option(
    "--against",
    metavar="REVISION",
    help="Compare with this Git revision, such as main, instead of the deployed datasets.",
)
@click.option(
    "--spark/--no-spark",
    default=True,
    help="Also analyse new and changed queries with Spark, which starts if necessary.",
)
def check(deployment: Deployment, against: str | None, spark: bool) -> CommandResult:
    """Compare the project's datasets in SQL with the deployed datasets, and list the breaking changes.

    A column that is dropped, renamed or changes its type breaks every query that names it, and the datasets below that
    query. The command shows each such place with the owner of its dataset. Changed partition columns mean that
    partitions have to be computed again. A new column or a wider type breaks nothing. A dataset is deployed once a run
    or nova init has registered it.

    nova infers columns and types by its own rules. Spark analyses each dataset that is new or whose inputs have changed
    their columns, and confirms the inference. Spark runs no query for this.

    Exits with 1 if a change is breaking, if Spark rejects a query or infers other columns, or if stored rows cannot
    have the new columns or partitions, so that nova init --replace would refuse them.

    An unpartitioned dataset takes dropped and renamed columns with a base: nova init --replace registers them, and the
    next tick computes all its rows.

    JSON: {"against", "breaking": bool, "changes": [{"dataset", "kind", "column", "was", "becomes", "breaking",
    "breaks": [{"dataset", "columns", "file", "line", "column", "owner"}], "tasks": [name]}], "refused": {name: {"code",
    "what", ...}}, "by_base": {name: {"dropped": [column], "added": [{"name", "type"}], "readers": [binding]}},
    "spark": {"asked": [name], "known": [name], "refused", "not_asked": {name: reason}} or null}
    """
    deployment.check_project_configured("nova check")
    declared, project, error = _load_declared_project(deployment)
    new_statements = declared.ordered_statements()
    old_declared = (
        _load_deployed_datasets(deployment, _names_with_inputs(new_statements))
        if against is None
        else _load_datasets_at_revision(deployment, against)
    )
    try:
        before = old_declared.to_graph()
    except NovaError as error_before:
        raise DefinitionError(
            f"the datasets {'that are deployed' if against is None else f'at {against}'} cannot be analysed",
            found=error_before.what,
            next="nova check --against REVISION compares with another state",
        ) from error_before
    changes = find_changes(before, new_statements, declared.channels_with_views, declared.function_types)
    if error is not None and not any(c.is_breaking for c in changes):
        raise error
    analysis = _analyse_with_spark(deployment, project) if spark and error is None else None
    replacements = _preview_replacements(deployment, project) if against is None else ReplacementPreview({}, {})
    return _comparison_result(against or "deployed", changes, project, bool(old_declared.texts), analysis, replacements)


def _analyse_with_spark(deployment: Deployment, project: Project) -> SparkAnalysis:
    with ExitStack() as exit_stack:
        engine = cache(lambda: exit_stack.enter_context(deployment.open_with_empty_catalog(with_project=False)).engine)
        datasets = list(dataset_queries_by_name(project).values())
        settings = deployment.settings
        config = {
            **settings.spark_config,
            "spark": settings.spark or "",
        }  # the analysis depends on the session's configuration
        return analyse_with_spark(datasets, engine, config, DiskCache.default())


def _load_declared_project(deployment: Deployment) -> tuple[DatasetDeclarations, Project, NovaError | None]:
    """Declarations of the project, the project, and its error.

    The declarations are available even if the project is invalid. The error is then the reason, otherwise None.

    Raises:
        NovaError: the project cannot be loaded and declares no datasets.
        DefinitionError: the project has no SQL datasets.
    """
    project, error = Project(), None
    with record_declarations() as recorded:
        try:
            project = deployment.load_project() or project
        except NovaError as load_error:
            error = load_error
    if recorded.declarations:
        return DatasetDeclarations.merge(recorded.declarations), project, recorded.first_error or error
    if error is not None:
        raise error
    graphs = {id(q.graph): q.graph for q in dataset_queries_by_name(project).values()}
    if not graphs:
        raise DefinitionError("the project has no datasets in SQL", expected="nova.datasets(FOLDER)")
    return DatasetDeclarations.merge(map(DatasetDeclarations.from_graph, graphs.values())), project, None


def _load_deployed_datasets(deployment: Deployment, dataset_names: set[str]) -> DatasetDeclarations:
    with deployment.open_read_only(needs_catalog=False) as store:
        return deployed_declarations(
            store.catalog.definitions.bindings(),
            [s.channel for s in store.catalog.definitions.channels()],
            dataset_names,
        )


def _preview_replacements(deployment: Deployment, project: Project) -> ReplacementPreview:
    """What ``nova init --replace`` would do to channels with data."""
    with deployment.open_read_only(needs_catalog=False) as store:
        return store.catalog.definitions.preview_replacements(project.channels, project.bindings)


def _names_with_inputs(statements: Sequence[DatasetStatement]) -> set[str]:
    return {s.name for s in statements} | {name for s in statements for name in s.reads}


def _load_datasets_at_revision(deployment: Deployment, revision: str) -> DatasetDeclarations:
    from nova_assets.cli.git_revision import load_datasets_at_revision

    return load_datasets_at_revision(revision, deployment.settings)


def _comparison_result(
    against: str,
    changes: Sequence[Change],
    project: Project,
    has_previous_datasets: bool,
    analysis: SparkAnalysis | None,
    replacements: ReplacementPreview,
) -> CommandResult:
    breaking = any(c.is_breaking for c in changes)
    data = {
        "against": against,
        "breaking": breaking,
        "changes": [_change_json(c, project) for c in changes],
        "refused": {name: error.as_dict() for name, error in replacements.refused.items()},
        "by_base": {n: columns_by_base_json(n, c, project) for n, c in replacements.by_base.items()},
        "spark": None if analysis is None else _spark_validation_json(analysis),
    }

    def show(console: Console) -> None:
        if not has_previous_datasets:
            where = "deployed" if against == "deployed" else f"at {against}"
            console.print(f"no dataset is {where} yet, so there is nothing to compare with")
        for change in sorted(changes, key=lambda c: not c.is_breaking):
            _show_change(console, change, project)
        number = sum(c.is_breaking for c in changes)
        if has_previous_datasets:
            of_them = f"{pluralize(len(changes), 'change')}, {number or 'none'} of them breaking"
            console.print(of_them if changes else "no changes")
        for error in replacements.refused.values():
            console.print(error.render())
        if replacements.by_base:
            show_columns_by_base(console, replacements.by_base, project)
            console.print("next: nova init --replace, then nova tick")
        _show_analysis(console, analysis)

    has_errors = bool(replacements.refused) or (analysis is not None and bool(analysis.error_by_dataset))
    return CommandResult(data, show, 1 if breaking or has_errors else 0)


def _spark_validation_json(analysis: SparkAnalysis) -> dict[str, Any]:
    return {
        "asked": list(analysis.newly_analysed),
        "known": list(analysis.cached),
        "refused": {name: error.as_dict() for name, error in analysis.error_by_dataset.items()},
        "not_asked": dict(analysis.skip_reason_by_dataset),
    }


def _show_analysis(console: Console, analysis: SparkAnalysis | None) -> None:
    if analysis is None:
        console.print("Spark has not analysed the queries: nova inferred columns and types by its own rules")
        return
    for error in analysis.error_by_dataset.values():
        console.print(error.render())
    for name, reason in analysis.skip_reason_by_dataset.items():
        console.print(f"Spark has not analysed {name}: {reason}")
    if analysis.confirmed:
        console.print(f"Spark confirms {pluralize(len(analysis.confirmed), 'dataset')}")


def _show_change(console: Console, change: Change, project: Project) -> None:
    summary = str(change)
    if change.is_breaking and not change.breaks:
        summary += ": its partitions have to be computed again"
    elif change.is_breaking:
        summary += f", which breaks {pluralize(len({b.dataset for b in change.breaks}), 'dataset')}"
    console.print(summary)
    for b in change.breaks:
        columns = f"{b.dataset}.{', '.join(b.affected_columns)}" if b.affected_columns else b.dataset
        console.print(f"  {b.file}:{b.line}:{b.column}  {columns}{f'  owner: {b.owner}' if b.owner else ''}")
        console.print("\n".join(f"  {line}" for line in b.snippet.splitlines()))
    tasks = _python_bindings_reading(change, project)
    if tasks and change.kind not in ("added", "widened"):
        console.print(f"  also read in Python by bindings whose columns are unknown: {', '.join(tasks)}")
    if change.is_breaking or tasks:
        console.print()


def _python_bindings_reading(change: Change, project: Project) -> list[str]:
    """Names of the Python bindings that read the changed dataset."""
    return [
        b.name
        for b in project.bindings
        if any(
            c.name == change.dataset and e.port == port and t.scoped is None
            for port, c in b.channels.items()
            for t in b.tasks
            for e in t.consumes
        )
    ]


def _change_json(change: Change, project: Project) -> dict[str, Any]:
    return {
        "dataset": change.dataset,
        "kind": change.kind,
        "column": change.column,
        "was": change.old_value,
        "becomes": change.new_value,
        "breaking": change.is_breaking,
        "breaks": [
            {
                "dataset": b.dataset,
                "columns": list(b.affected_columns),
                "file": b.file,
                "line": b.line,
                "column": b.column,
                "owner": b.owner,
            }
            for b in change.breaks
        ],
        "tasks": _python_bindings_reading(change, project),
    }
