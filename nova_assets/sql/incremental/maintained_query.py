"""Queries whose result is maintained: what they read, and how changes pass through them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any

from sqlglot import exp

from nova_assets.model.schema import Schema
from nova_assets.model.task import Context
from nova_assets.sql.incremental import repeatability
from nova_assets.sql.incremental.accumulation import accumulation_of
from nova_assets.sql.incremental.build_operators import SourceTable, build_operators
from nova_assets.sql.incremental.clauses import is_top_query
from nova_assets.sql.incremental.dataset_change import frame_name
from nova_assets.sql.incremental.expressions import PARAMETER_PREFIX
from nova_assets.sql.incremental.frozen_rows import FrozenRows
from nova_assets.sql.incremental.operators import NotMaintainable
from nova_assets.sql.incremental.result_channel import MaintenancePlan
from nova_assets.sql.parse.dialect import parse_statement
from nova_assets.sql.query.resolved_query import Query, mark_calls, resolve_query
from nova_assets.sql.query.scans import mark_scans
from nova_assets.sql.query.spark_query import RunnableSql, make_runnable_without_schemas
from nova_assets.sql.statement.header import spark_type_name
from nova_assets.sql.text import SqlText


@dataclass(frozen=True)
class QueryScope:
    """The scope of a query that is computed partition by partition.

    Args:
        runnable: the SQL that Spark runs, with the variables of the scope as parameters.
        variable_types: variable -> its Spark type.
        partition_column_types: partition column -> its Spark type.
        values_of: function of a partition and a time that returns the values of the variables, and of the partition
            columns as ``partition_`` + name.
        check_session: raises an error if the Spark session does not suit the scope.
    """

    runnable: RunnableSql
    variable_types: Mapping[str, str]
    partition_column_types: Mapping[str, str]
    values_of: Callable[[str, datetime], Mapping[str, Any]]
    check_session: Callable[[Context], None]


@dataclass
class QueryAnalysis:
    """What Spark says about a query over inputs with certain columns, under certain settings of the session, and for
    certain values of its variables.

    Args:
        schema: columns of the result, without those partition columns that are the same in all rows.
        plan: how the result is maintained; None if this is not known yet.
    """

    schema: Schema
    plan: MaintenancePlan | None = None


class MaintainedQuery:
    """A query whose result is maintained.

    Args:
        text: the query.
        output_port: port of the channel that holds the result.
        prefers_changes: whether changes are computed unless they are estimated to be several times as expensive as a
            replacement of the result.
        is_incremental: whether an execution fails if nova has no operators for the query. Otherwise, each execution
            computes the whole query.
        readers: known readers of the result's changes.
        check_columns: raises an error if the columns that Spark derives are not those that nova derived.
        scope: the scope of a dataset with partitions; None for a query without a scope.
        frozen: the rows of the result that are never made again; None if there are none.
        adds_floats: whether changes of floating-point numbers may be added to stored sums, which then drift.

    Attributes:
        analyses: analyses of earlier executions in this process, by the inputs' columns, the session's settings, and
            the values of the query's variables.

    Raises:
        SqlError: the query cannot be parsed, or depends on more than its data, such as a clock.
    """

    def __init__(
        self,
        text: SqlText,
        output_port: str,
        *,
        prefers_changes: bool = True,
        is_incremental: bool = False,
        readers: int = 0,
        check_columns: Callable[[Schema], None] = lambda schema: None,
        scope: QueryScope | None = None,
        frozen: FrozenRows | None = None,
        adds_floats: bool = False,
    ) -> None:
        self.check_columns = check_columns
        self.prefers_changes = prefers_changes
        self.is_incremental = is_incremental
        self.readers = readers
        self.scope = scope
        self.frozen = frozen
        self.adds_floats = adds_floats
        self.text = text
        self.output_port = output_port
        self.tree = tree = parse_query(text, "write INSERT in nova.datasets(folder)", "channels in FROM")
        if frozen is not None and is_top_query(tree):
            raise text.error("FROZEN WHERE in a query with LIMIT", tree.args["limit"], expected="a query without LIMIT")
        self.scans = mark_scans(text, tree)
        for scan in self.scans:
            if scan.mode != "all":
                raise text.error(
                    f"{scan.mode.upper()}({scan.dataset}) in a query whose changes nova derives",
                    scan.span,
                    expected=scan.dataset,
                )
        self.datasets = tuple(dict.fromkeys(s.dataset for s in self.scans))
        self.runnable = make_runnable_without_schemas(text, tree, self.scans) if scope is None else scope.runnable
        with _repeatability_errors(text):
            repeatability.check_query(tree)
        self.analyses: dict[object, QueryAnalysis] = {}
        self._unconfirmed_plans: dict[object, MaintenancePlan] = {}

    def values(self, partition: str, started: datetime | None, params: Mapping[str, Any]) -> Mapping[str, Any]:
        """Values of the query's variables in an execution.

        Args:
            params: parameters of the binding.
        """
        if self.scope is None:
            return {name: params[name] for name in self.runnable.variables}
        assert started is not None
        return self.scope.values_of(partition, started)

    def unconfirmed_plan(self, sources: Mapping[str, SourceTable], values: Mapping[str, Any]) -> MaintenancePlan:
        """The plan of the query, as far as it is known without Spark.

        Args:
            sources: dataset -> its schema and key.
            values: values of the query's variables.
        """
        key = (*sources.items(), *self._variable_types(sources, values).items())
        if key not in self._unconfirmed_plans:
            try:
                query = self.resolve(sources, values)
                operators = build_operators(query, sources, adds_floats=self.adds_floats)
                self._unconfirmed_plans[key] = MaintenancePlan(operators, "", accumulation_of(operators))
            except NotMaintainable as error:
                self._unconfirmed_plans[key] = MaintenancePlan(None, error.reason)
        return self._unconfirmed_plans[key]

    @property
    def frame_by_dataset(self) -> dict[str, str]:
        """Dataset -> frame of all its rows in the SQL."""
        return {d: frame_name("all", n) for n, d in enumerate(self.datasets)}

    def _variable_types(self, sources: Mapping[str, SourceTable], values: Mapping[str, Any]) -> dict[str, str]:
        """Types of the query's variables, as far as they are known. A parameter that has the name of a column is left
        out, since a name without a colon could be either.
        """
        if self.scope is not None:
            return dict(self.scope.variable_types)
        columns = {f.name.lower() for source in sources.values() for f in source.schema.fields}
        names = [name for name in self.runnable.variables if name.lower() not in columns]
        return {name: spark_type_name(values[name]) for name in names if _has_one_type(values[name])}

    def resolve(self, sources: Mapping[str, SourceTable], values: Mapping[str, Any]) -> Query:
        """The query with every column resolved. The arguments are those of ``unconfirmed_plan``."""
        tree = parse_statement(self.text)
        assert isinstance(tree, exp.Query)
        types = self._variable_types(sources, values)
        for parameter in tree.find_all(exp.Placeholder):
            if parameter.name not in types and self.scope is None:
                parameter.set("this", f"{PARAMETER_PREFIX}{parameter.name}")  # a name that no column has
                types[parameter.name] = "string"
        return resolve_query(self.text, tree, {d: s.schema for d, s in sources.items()}, types)


def parse_query(text: SqlText, not_a_query_next: str, instead_of_calls: str) -> exp.Query:
    """The syntax tree of a task's query, which calls no table function.

    Args:
        not_a_query_next: what to do with another statement, for its error.
        instead_of_calls: what to write instead of a table function, for its error.

    Raises:
        SqlError: the text cannot be parsed, is not a query, or calls a table function.
    """
    tree = parse_statement(text)
    if not isinstance(tree, exp.Query):
        raise text.error("is not a query", tree, expected="SELECT ...", next=not_a_query_next)
    if calls := mark_calls(text, tree):
        raise text.error(
            f"{calls[0].function}(...) is a table function, which this task cannot call",
            calls[0].call_span,
            expected=instead_of_calls,
        )
    return tree


def _has_one_type(value: object) -> bool:
    """Whether a parameter has one type in Spark. The type of a decimal depends on its digits, and the time zone of a
    time may be that of the session.
    """
    return isinstance(value, bool | int | str | date) and not isinstance(value, datetime)


@contextmanager
def _repeatability_errors(text: SqlText) -> Iterator[None]:
    """Context manager that raises NotRepeatable as SqlError with its place in the query."""
    try:
        yield
    except repeatability.NotRepeatable as error:
        message = f"{error.reason}, so the result cannot be maintained"
        raise text.error(message, error.node, expected=error.advice) from None
