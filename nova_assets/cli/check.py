"""``nova check``: what a change of datasets breaks, before anything runs."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from functools import cache
from typing import Any

import click
from rich.console import Console

from nova_assets.cli.command import Answer, NovaCommand
from nova_assets.cli.deployment import Deployment
from nova_assets.cli.rendering import plural
from nova_assets.errors import DefinitionError, NovaError
from nova_assets.model.project import Project
from nova_assets.sql.cache.disk_cache import Shelf
from nova_assets.sql.datasets.breaking_changes import Change, changes
from nova_assets.sql.datasets.datasets import queries_of
from nova_assets.sql.datasets.declared import Declared, deployed, listening
from nova_assets.sql.datasets.spark_analysis import Analysis, analyse
from nova_assets.sql.statement.statement import Written


@click.command(cls=NovaCommand, checks_project=False)
@click.option(
    "--against", metavar="REVISION", help="A revision of the Git repository, such as main; not what is deployed."
)
@click.option("--spark/--no-spark", default=True, help="Ask Spark's parser and analyser, too. It starts if need be.")
@click.pass_obj
def check(deployment: Deployment, against: str | None, spark: bool) -> Answer:
    """Compare the project's datasets in SQL with those that are deployed, and say what the change breaks.

    A column that is dropped, called otherwise or of another type breaks whoever names it, and what is made of that;
    each such place is shown, and whom to ask. Partitions that are cut otherwise have to be made again. A column that
    came, or one that got wider, breaks nothing. Deployed is what was registered by a run or by nova init.

    Columns and types follow from nova's own rules. Spark confirms them: it is asked about each dataset that is new, or
    whose inputs have other columns than before. It runs nothing for that.

    Ends with 1 if something breaks, or if Spark does not take a query or has other columns of it.

    JSON: {"against", "breaking": bool, "changes": [{"dataset", "kind", "column", "was", "becomes", "breaking",
    "breaks": [{"dataset", "columns", "file", "line", "column", "owner"}], "tasks": [name]}], "spark": {"asked": [name],
    "known": [name], "refused": {name: {"code", "what", ...}}, "not_asked": {name: reason}} or null}
    """
    deployment.require_project("nova check")
    declared, project, error = _declared(deployment)
    new = declared.in_order()
    old = _deployed(deployment, new) if against is None else _at(deployment, against)
    try:
        before = old.graph()
    except NovaError as wrong:
        raise DefinitionError(
            f"what is {'deployed' if against is None else f'at {against}'} cannot be understood",
            found=wrong.what,
            next="nova check --against REVISION compares with another state",
        ) from wrong
    found = changes(before, new, declared.others, declared.functions)
    if error is not None and not any(c.is_breaking for c in found):
        raise error
    analysis = _asked_of_spark(deployment, project) if spark and error is None else None
    return _answer(against or "deployed", found, project, bool(old.texts), analysis)


def _asked_of_spark(deployment: Deployment, project: Project) -> Analysis:
    with ExitStack() as opened:
        engine = cache(lambda: opened.enter_context(deployment.scratch(with_project=False)).engine)
        datasets = list(queries_of(project).values())
        settings = deployment.settings
        config = {**settings.spark_config, "spark": settings.spark or ""}  # another session may answer otherwise
        return analyse(datasets, engine, config, Shelf.default())


def _declared(deployment: Deployment) -> tuple[Declared, Project, NovaError | None]:
    """What the project declares, which need not be sound; and why it is not."""
    project, error = Project(), None
    with listening() as heard:
        try:
            project = deployment.load_project() or project
        except NovaError as wrong:
            error = wrong
    if heard.declared:
        return Declared.together(heard.declared), project, heard.error or error
    if error is not None:
        raise error
    graphs = {id(q.graph): q.graph for q in queries_of(project).values()}
    if not graphs:
        raise DefinitionError("the project has no datasets in SQL", expected="nova.datasets(FOLDER)")
    return Declared.together(map(Declared.of, graphs.values())), project, None


def _deployed(deployment: Deployment, new: Sequence[Written]) -> Declared:
    named = {w.name for w in new} | {r for w in new for r in w.reads}
    with deployment.look() as store:
        return deployed(store.catalog.bindings(), [s.channel for s in store.catalog.channels()], named)


def _at(deployment: Deployment, revision: str) -> Declared:
    from nova_assets.cli.git_revision import declared_at

    return declared_at(revision, deployment.settings)


def _answer(against: str, found: Sequence[Change], project: Project, known: bool, analysis: Analysis | None) -> Answer:
    breaking = any(c.is_breaking for c in found)
    data = {
        "against": against,
        "breaking": breaking,
        "changes": [_as_json(c, project) for c in found],
        "spark": None if analysis is None else _analysis_json(analysis),
    }

    def show(console: Console) -> None:
        if not known:
            where = "deployed" if against == "deployed" else f"at {against}"
            console.print(f"no dataset is {where} yet: there is nothing to compare with")
        for change in sorted(found, key=lambda c: not c.is_breaking):
            _show(console, change, project)
        number = sum(c.is_breaking for c in found)
        if known:
            of_them = f"{plural(len(found), 'change')}, {number or 'none'} of them breaking"
            console.print(of_them if found else "no changes")
        _show_analysis(console, analysis)

    return Answer(data, show, 1 if breaking or (analysis is not None and analysis.refused) else 0)


def _analysis_json(analysis: Analysis) -> dict[str, Any]:
    return {
        "asked": list(analysis.asked),
        "known": list(analysis.known),
        "refused": {name: error.as_dict() for name, error in analysis.refused.items()},
        "not_asked": dict(analysis.not_asked),
    }


def _show_analysis(console: Console, analysis: Analysis | None) -> None:
    if analysis is None:
        console.print("Spark was not asked: columns and types follow from nova's own rules")
        return
    for error in analysis.refused.values():
        console.print(error.render(), markup=False)
    for name, reason in analysis.not_asked.items():
        console.print(f"Spark was not asked about {name}: {reason}", markup=False)
    if analysis.confirmed:
        console.print(f"Spark confirms {plural(len(analysis.confirmed), 'dataset')}")


def _show(console: Console, change: Change, project: Project) -> None:
    said = str(change)
    if change.is_breaking and not change.breaks:
        said += ": its partitions have to be made again"
    elif change.is_breaking:
        said += f", which breaks {plural(len({b.dataset for b in change.breaks}), 'dataset')}"
    console.print(said)
    for b in change.breaks:
        columns = f"{b.dataset}.{', '.join(b.columns)}" if b.columns else b.dataset
        console.print(f"  {b.file}:{b.line}:{b.column}  {columns}{f'  owner: {b.owner}' if b.owner else ''}")
        console.print("\n".join(f"  {line}" for line in b.snippet.splitlines()))
    tasks = _tasks(change, project)
    if tasks and change.kind not in ("added", "widened"):
        console.print(f"  read in Python, too, where nothing tells what of it: {', '.join(tasks)}")
    if change.is_breaking or tasks:
        console.print()


def _tasks(change: Change, project: Project) -> list[str]:
    """The bindings in Python that read what changes."""
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


def _as_json(change: Change, project: Project) -> dict[str, Any]:
    return {
        "dataset": change.dataset,
        "kind": change.kind,
        "column": change.column,
        "was": change.was,
        "becomes": change.becomes,
        "breaking": change.is_breaking,
        "breaks": [
            {
                "dataset": b.dataset,
                "columns": list(b.columns),
                "file": b.file,
                "line": b.line,
                "column": b.column,
                "owner": b.owner,
            }
            for b in change.breaks
        ],
        "tasks": _tasks(change, project),
    }
