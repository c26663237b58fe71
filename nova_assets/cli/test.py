"""``nova test``: run the test cases of datasets in SQL."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from nova_assets.cli.command import CommandResult, NovaCommand
from nova_assets.cli.deployment import Deployment
from nova_assets.cli.rendering import pluralize, print_table
from nova_assets.errors import DefinitionError
from nova_assets.nova_error import NovaError
from nova_assets.sql.datasets.dataset_bindings import dataset_queries_by_name
from nova_assets.sql.datasets.dataset_query import DatasetQuery
from nova_assets.suggestions import did_you_mean
from nova_assets.testing.sql_cases import SUFFIX, SqlCase, read_sql_cases


@dataclass(frozen=True)
class _Outcome:
    """Result of one case.

    Args:
        problem: why the case failed; empty if it passed.
        is_maintained: whether the dataset was also maintained while the rows arrived in batches.
    """

    dataset: str
    case: str
    problem: str
    is_maintained: bool
    seconds: float

    def as_json(self) -> dict[str, Any]:
        return {
            "dataset": self.dataset,
            "test": self.case,
            "passed": not self.problem,
            "problem": self.problem or None,
            "maintained": self.is_maintained,
            "seconds": round(self.seconds, 1),
        }


@click.command("test", cls=NovaCommand)
@click.argument("datasets", nargs=-1, metavar="[DATASET]...")
def test(deployment: Deployment, datasets: tuple[str, ...]) -> CommandResult:
    """Run the test cases of DATASETs in SQL, or of all datasets of the project.

    The cases of totals.sql are in totals.test.yaml beside it: a list of cases with a name, the rows of the inputs, and
    the expected rows. For a partitioned dataset, a case also has a partition.

    \b
      - name: a refund is subtracted
        rows: {orders: [{order: 1, user: 7, amount: 10}, {order: 2, user: 7, amount: -4}]}
        expected: [{user: 7, total: 6}]

    The query runs in full. If nova can maintain the dataset, it is also maintained while the rows arrive in batches.
    The cases use a temporary folder. The catalog and the warehouse of the project are not opened.

    Exits with 1 if a case fails.

    JSON: {"tests": [{"dataset", "test", "passed": bool, "problem": text or null, "maintained": bool, "seconds"}]}
    """
    deployment.check_project_configured("nova test")
    project = deployment.load_project()
    queries = {} if project is None else dataset_queries_by_name(project)
    outcomes = list(_run_cases(_select(queries, datasets)))
    data = {"tests": [o.as_json() for o in outcomes]}
    return CommandResult(data, lambda console: _show(console, outcomes), 1 if any(o.problem for o in outcomes) else 0)


def _select(queries: dict[str, DatasetQuery], names: Sequence[str]) -> list[DatasetQuery]:
    for name in names:
        if name not in queries:
            raise DefinitionError(
                f"no dataset in SQL is called {name!r}{did_you_mean(name, queries)}",
                expected=", ".join(queries) or "datasets in SQL: nova.datasets(FOLDER)",
            )
        if not _case_file(queries[name]).exists():
            raise DefinitionError(
                f"dataset {name!r} has no test cases", expected=f"the file {_case_file(queries[name])}"
            )
    return [queries[name] for name in names or queries]


def _case_file(query: DatasetQuery) -> Path:
    return Path(query.source_file).with_suffix(SUFFIX)


def _run_cases(queries: Sequence[DatasetQuery]) -> Iterator[_Outcome]:
    cases = [(query, read_sql_cases(_case_file(query))) for query in queries if _case_file(query).exists()]
    for query, cases_of_query in cases:  # all files are read before a query runs
        for case in cases_of_query:
            yield _run_case(query, case)


def _run_case(query: DatasetQuery, case: SqlCase) -> _Outcome:
    from nova_assets.testing.sql import check_dataset_query

    started, problem, is_maintained = time.monotonic(), "", False
    try:
        is_maintained = check_dataset_query(query, case.rows, case.expected, partition=case.partition)
    except (AssertionError, NovaError) as error:
        problem = str(error)
    return _Outcome(query.name, case.name, problem, is_maintained, time.monotonic() - started)


def _show(console: Console, outcomes: Sequence[_Outcome]) -> None:
    if not outcomes:
        console.print(f"there are no test cases; write NAME{SUFFIX} beside NAME.sql")
        return
    rows = [
        (
            o.dataset,
            o.case,
            "failed" if o.problem else "passed",
            "also in batches" if o.is_maintained else "",
            f"{o.seconds:.1f} s",
        )
        for o in outcomes
    ]
    print_table(console, ("dataset", "case", "result", "", "took"), rows)
    for o in outcomes:
        if o.problem:
            console.print()
            console.print(f"{o.dataset}, {o.case}", style="bold")
            console.print(o.problem, soft_wrap=True)
    failed = sum(bool(o.problem) for o in outcomes)
    console.print()
    console.print(f"{pluralize(len(outcomes), 'case')}, {failed or 'none'} failed")
