"""Tasks that run a query without a scope, as a workflowette in Python has them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from nova_assets.model.edge import Consumes, Produces
from nova_assets.model.names import check_name
from nova_assets.model.task import Context, Task
from nova_assets.sql.incremental.maintained_query import parse_query
from nova_assets.sql.query.scans import Mode, Scan, mark_scans
from nova_assets.sql.query.spark_confirmation import convert_spark_rejections
from nova_assets.sql.query.spark_query import RunnableSql, make_runnable_without_schemas
from nova_assets.sql.text import SqlText


def sql_task(
    name: str,
    sql: str,
    *,
    produces: Produces | Sequence[Produces] = (),
    retries: int = 0,
    retry_delay: float = 0.0,
    skip_if_no_new: bool = False,
) -> Task:
    """A task that runs a Spark SQL query, such as ``SELECT site, COUNT(*) AS n FROM tagged_articles GROUP BY site``.

    The query determines the inputs. ``FROM x`` reads all of port ``x``. ``FROM NEW(x)`` reads the rows that were added
    since the last successful execution. ``FROM OLD(x)`` reads the rows that existed before. A port is bound to the
    channel of the same name, unless the binding names another channel. The query refers to the binding's parameters as
    ``:name``.

    Args:
        name: the task's name.
        sql: one SELECT statement.
        produces: the one output edge.
        retries, retry_delay, skip_if_no_new: as for ``nova.task``.

    Raises:
        SqlError: the query cannot be parsed.
    """
    text = SqlText(f"task {name}", sql)
    tree = parse_query(
        text,
        "write scopes and INSERT in a SQL file: nova.datasets(folder)",
        "table functions in datasets: nova.datasets(folder, functions=[...])",
    )
    scans = mark_scans(text, tree)
    edges = [produces] if isinstance(produces, Produces) else list(produces)
    return Task(
        name=check_name(name, "a task"),
        function=_UnscopedQuery(text, make_runnable_without_schemas(text, tree, scans), input_by_frame(scans)),
        consumes=consumed_edges(scans),
        produces=tuple(edges),
        retries=retries,
        retry_delay=retry_delay,
        skip_if_no_new=skip_if_no_new,
        description=sql.strip(),
    )


class _UnscopedQuery:
    """Runs a query that has no scope, with the binding's parameters."""

    def __init__(self, text: SqlText, runnable: RunnableSql, input_by_frame: Mapping[str, str]) -> None:
        self.text = text
        self.runnable = runnable
        self.input_by_frame = input_by_frame

    def __call__(self, ctx: Context, **frames: Any) -> Any:
        values = {name: ctx.params[name] for name in self.runnable.variables}
        with convert_spark_rejections(self.text):
            return ctx.query(
                self.runnable.sql,
                values,
                {n: frames[self.input_by_frame[n]] for n in self.runnable.frame_by_scan.values()},
            )

    def as_json(self) -> dict[str, Any]:
        return {"sql": self.text.sql.strip()}


_EDGE_MODE_BY_SCAN_MODE: Mapping[Mode, str] = {"all": "all", "whole": "all", "new": "new", "old": "old"}


def consumed_edges(scans: Iterable[Scan]) -> tuple[Consumes, ...]:
    """Input edges of the scans, one for each dataset and mode. Scans of the same dataset in the same mode share an
    edge.
    """
    found = {
        (name := input_name(s)): Consumes(s.dataset, _EDGE_MODE_BY_SCAN_MODE[s.mode], name, by_name=True)  # type: ignore[arg-type]
        for s in scans
    }
    return tuple(found.values())


def input_by_frame(scans: Iterable[Scan]) -> Mapping[str, str]:
    """Name of each scan's frame in the SQL -> the name of its input."""
    return {f"scan_{s.number}": input_name(s) for s in scans}


def input_name(scan: Scan) -> str:
    return scan.dataset if scan.mode == "all" else f"{scan.mode}_{scan.dataset}"
