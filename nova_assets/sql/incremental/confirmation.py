"""Spark confirms that nova parses and resolves a query as Spark does: the SQL that nova writes from the syntax tree has
the same plan as the author's text. (``DataFrame.sameSemantics`` is false for equal queries with other aliases.)
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from sqlglot import exp

from nova_assets.errors import QueryRefused
from nova_assets.model.modes_view import View
from nova_assets.model.partition_values import can_be_key
from nova_assets.model.schema import HIDDEN_PREFIX, Schema
from nova_assets.model.task import Context
from nova_assets.sql.incremental.accumulation import Accumulation, StoredAccumulation
from nova_assets.sql.incremental.build_operators import SourceTable
from nova_assets.sql.incremental.clauses import break_ties, is_top_query, name_merged_columns, order_by_columns
from nova_assets.sql.incremental.dataset_change import DatasetChange
from nova_assets.sql.incremental.expressions import can_stand_for_current_time, replace_columns
from nova_assets.sql.incremental.maintained_query import MaintainedQuery
from nova_assets.sql.incremental.maintenance_sql import MaintenanceSql
from nova_assets.sql.incremental.operator_sql import StatementTooLarge, column_list, output_list
from nova_assets.sql.incremental.operators import Outputs, column_of
from nova_assets.sql.incremental.result_channel import MaintenancePlan
from nova_assets.sql.parse.dialect import DIALECT
from nova_assets.sql.query.resolved_query import Query, was_written_with_alias
from nova_assets.sql.query.scans import scan_number
from nova_assets.sql.query.spark_query import INNER_QUERY_ALIAS

_EXPRESSION_ID = re.compile(r"#(\d+)L?")
_PART_OF_NAME = re.compile(r"[\w.`]$")
_PROJECT_BELOW_WINDOW = re.compile(r"(Window \[.*\n *[ :]*\+- Project \[)((?:[^\[\](), ]+#\d+L?(?:, )?)+)(\]\n)")
_ROOT_PROJECT = re.compile(r"Project \[(?:[^\[\](), ]+#\d+L?(?:, )?)+\]")
_INVENTED_NAME = re.compile(r"_col_\d+")
_CROSS_JOIN = re.compile(r"^([ :]*(?:[+:]- )?)Join Cross\b", re.MULTILINE)
"""A join as Spark calls it after ``FROM a, b`` was written as ``CROSS JOIN``. An inner join gives the same rows."""

_ALIAS = re.compile(r" AS ((?:(?! AS ).)+?)#(\d+)")
_SOURCE_COLUMN = re.compile(r"[\[,]([^\[\],#]+)#(\d+)")
_SOURCE = re.compile(r"^[ :]*(?:[+:]- )?\w*(?:Relation|RDD|Scan|Range)")

_TRUNCATED = re.compile(r"\.\.\. \d+ more fields|\.\.\.$", re.MULTILINE)


@dataclass(eq=False)
class QueryExecution:
    """A maintained query in one execution.

    Args:
        views: dataset -> its view.
        sources: dataset -> its schema and key.
        values: values of the query's variables.
    """

    query: MaintainedQuery
    ctx: Context
    views: Mapping[str, View]
    sources: Mapping[str, SourceTable]
    values: Mapping[str, Any]

    @property
    def unconfirmed_plan(self) -> MaintenancePlan:
        """The plan of the query, as far as it is known without Spark."""
        return self.query.unconfirmed_plan(self.sources, self.values)

    @cached_property
    def rows_now(self) -> Any:
        """Frame of the query as it was written. If the query has LIMIT, the columns of the result decide between rows
        that are equal in ORDER BY.
        """
        runnable, ctx, tree = self.query.runnable, self.ctx, self.query.tree
        frames = {runnable.frame_by_scan[s.number]: self.views[s.dataset].all for s in self.query.scans}
        rows = ctx.query(runnable.sql, self._used_values, frames)
        if not is_top_query(tree):
            return rows
        operators = self.unconfirmed_plan.operators
        fields = ctx.schema_of(rows).fields
        exact = [True] * len(fields) if operators is None else [c not in operators.rounded for c in operators.columns]
        columns = [f.name for f, is_exact in zip(fields, exact, strict=False) if is_exact and can_be_key(f.type)]
        return ctx.query(break_ties(runnable.sql, tree, columns), self._used_values, frames)

    def plan(self, result: Schema) -> MaintenancePlan | None:
        """The plan of the query, confirmed by Spark; a plan without operators if Spark does not confirm them; None if
        Spark cannot judge now, because an input is empty.

        Args:
            result: columns of the result.
        """
        plan, ctx = self.unconfirmed_plan, self.ctx
        if plan.operators is None:
            return plan
        if clock_value := next((v for v in self.values.values() if can_stand_for_current_time(v)), None):
            return MaintenancePlan(None, f"{clock_value!r} can stand for the current day or time")
        frame_by_dataset = self.query.frame_by_dataset
        changes = {d: DatasetChange(f, f, None, f, is_changed=False) for d, f in frame_by_dataset.items()}
        query = self.query.resolve(self.sources, self.values)
        regenerated = regenerate(query, frame_by_dataset, rounded=plan.operators.rounded)
        try:
            regenerated_rows = self._query(regenerated)
            rows_by_operators = self._query(MaintenanceSql(plan.operators, changes).rows_statement())
        except (QueryRefused, StatementTooLarge):
            return MaintenancePlan(None, "Spark does not accept the query as nova writes it")
        verdict = compare_plans(ctx, self.rows_now, regenerated_rows, result.names)
        if verdict is None:
            return None
        if not verdict:
            return MaintenancePlan(None, "Spark does not confirm how nova understands the query")
        if not has_equal_columns(result, ctx.schema_of(rows_by_operators)):
            return MaintenancePlan(None, "the columns of the result have other types, or other names")
        return plan if plan.accumulation is None else self._with_hidden_types(plan, plan.accumulation, result)

    def _with_hidden_types(self, plan: MaintenancePlan, accumulation: Accumulation, result: Schema) -> MaintenancePlan:
        """The plan with its accumulation, if Spark confirms that hidden columns do not change the other columns."""
        names = {n: f"{HIDDEN_PREFIX}{n}" for n in accumulation.hidden}
        without_accumulation = MaintenancePlan(plan.operators)
        try:
            rows = self._query(self._sql_with_hidden(accumulation, names))
        except QueryRefused:
            return without_accumulation
        schema = self.ctx.schema_of(rows)
        visible_schema = schema.without_columns(*names.values())
        if not has_equal_columns(result, visible_schema):
            return without_accumulation
        visible_rows = self.ctx.query(f"SELECT {column_list(visible_schema.names)} FROM {{rows}}", {}, {"rows": rows})
        if not compare_plans(self.ctx, self.rows_now, visible_rows, result.names):
            return without_accumulation
        return replace(plan, hidden_types={n: schema.field(name).type for n, name in names.items()})

    def rows_with_hidden(self, stored: StoredAccumulation) -> Any:
        """Frame of the query with the hidden columns of an accumulation."""
        names = {n: f.name for n, f in stored.hidden.items()}
        visible = [(field.name, column_of(column)) for column, field in stored.fields.items()]  # as written
        columns = output_list([*visible, *((name, column_of(name)) for name in names.values())])
        sql = self._sql_with_hidden(stored.accumulation, names)
        return self._query(f"SELECT {columns} FROM ({sql}) AS {INNER_QUERY_ALIAS}")

    def _sql_with_hidden(self, accumulation: Accumulation, names: Mapping[int, str]) -> str:
        """SQL of the query with the hidden columns of an accumulation.

        Args:
            names: number of a hidden accumulator -> name of its column.
        """
        query = self.query.resolve(self.sources, self.values)
        return regenerate(query, self.query.frame_by_dataset, accumulation.hidden_outputs(names))

    @property
    def _used_values(self) -> dict[str, Any]:
        return {name: self.values[name] for name in self.query.runnable.variables}

    def _query(self, sql: str) -> Any:
        """Frame of a statement over all rows of the datasets."""
        frames = {frame: self.views[d].all for d, frame in self.query.frame_by_dataset.items()}
        return self.ctx.query(sql, self._used_values, frames)


def regenerate(
    query: Query, frame_by_dataset: Mapping[str, str], added_outputs: Outputs = (), rounded: Collection[str] = ()
) -> str:
    """SQL written from the syntax tree of a query, with ``{frame}`` in place of each dataset.

    Args:
        added_outputs: further outputs of the query, over the input of its last operator.
        rounded: output columns that are rounded numbers.
    """
    tree, frames = name_merged_columns(query.tree), set[str]()
    _remove_invented_names(tree)
    _remove_added_aliases(tree)
    _use_aliases_in_qualify(tree)
    if is_top_query(tree):
        order_by_columns(tree, [name for name in tree.named_selects if name.lower() not in rounded])
    for name, expression in added_outputs:
        assert isinstance(tree, exp.Select)
        tree.append("expressions", exp.alias_(replace_columns(expression, _with_table), name, quoted=True))
    for table in list(tree.find_all(exp.Table)):
        number = scan_number(table)
        if number is not None:
            frame = frame_by_dataset[query.scans[number].dataset]
            frames.add(frame)
            table.set("this", exp.to_identifier(frame))
            table.set("db", None)
            table.set("catalog", None)
    sql = tree.sql(DIALECT).replace("{", "{{").replace("}", "}}")
    for frame in frames:
        sql = re.sub(rf"\b{frame}\b", f"{{{frame}}}", sql)
    return sql


def _use_aliases_in_qualify(tree: exp.Query) -> None:
    """Refer to window functions of the outputs by their names in QUALIFY. Resolving has replaced such names."""
    for clause in list(tree.find_all(exp.Qualify)):
        assert isinstance(clause.parent, exp.Select)
        outputs = [e for e in clause.parent.expressions if isinstance(e, exp.Alias) and e.find(exp.Window)]
        name_by_sql = {e.this.sql(DIALECT): e.alias for e in reversed(outputs)}
        for node in list(clause.find_all(exp.Expression)):
            if (name := name_by_sql.get(node.sql(DIALECT))) is not None:
                node.replace(exp.column(exp.to_identifier(name, quoted=True)))


def _with_table(column: exp.Column) -> exp.Expr:
    """``t.x`` in place of an operator's column called ``t.x``."""
    table, _, name = column.name.partition(".")
    return exp.column(exp.to_identifier(name, quoted=True), table=exp.to_identifier(table, quoted=True))


def _remove_added_aliases(tree: exp.Query) -> None:
    """Remove the aliases ``t.x AS x`` that resolving added. Below a UNION, Spark keeps them as columns of their own."""
    for select in list(tree.find_all(exp.Select)):
        for output in select.expressions:
            is_column = isinstance(output, exp.Alias) and isinstance(output.this, exp.Column)
            if is_column and output.alias == output.this.name and not was_written_with_alias(output):
                output.replace(output.this)


def _remove_invented_names(tree: exp.Query) -> None:
    """Remove the names that resolving gave to nameless columns of subqueries in expressions. These names have no effect
    on the result, but Spark shows them in its plan.
    """
    for select in list(tree.find_all(exp.Select)):
        holder = select.parent
        while isinstance(holder, exp.Subquery | exp.SetOperation):
            holder = holder.parent
        if holder is None or isinstance(holder, exp.From | exp.Join | exp.CTE):
            continue
        for output in select.expressions:
            if isinstance(output, exp.Alias) and _INVENTED_NAME.fullmatch(output.alias):
                output.replace(output.this)


def compare_plans(ctx: Context, rows: Any, other_rows: Any, columns: Iterable[str]) -> bool | None:
    """Whether Spark has the same optimised plan for two frames, apart from the names and numbers of its columns, and
    from other differences between plans of one query. Computes no rows.

    Args:
        columns: names of the columns of ``rows``.

    Returns:
        None if the plans say nothing, because an input is empty. False also if a plan is unknown or truncated.
    """
    plan, other = (ctx.optimized_plan(frame) for frame in (rows, other_rows))
    if plan is None or other is None:
        return False
    if "<empty>" in plan or "<empty>" in other:
        return None
    for name in columns:
        if " AS " in name:  # as Spark calls an expression with a cast; without_names would not find its beginning
            plan = plan.replace(f"{name}#", "nova_column#")
    return _normalized(plan) == _normalized(other) and not _TRUNCATED.search(plan)


def _normalized(plan: str) -> str:
    """The plan without what differs between plans of the same query."""
    numbers: dict[str, str] = {}
    plan = _CROSS_JOIN.sub(r"\1Join Inner", plan)
    plan = _without_root_project_of_window(_PROJECT_BELOW_WINDOW.sub(_with_sorted_columns, plan))
    plan = without_names(plan)
    return _EXPRESSION_ID.sub(lambda m: f"#{numbers.setdefault(m[1], str(len(numbers)))}", plan).strip()


def without_names(plan: str) -> str:
    """The plan without the names of columns, which their numbers identify. Sources keep the names of their columns."""
    names_by_number: dict[str, set[str]] = {}
    for found in _ALIAS.finditer(plan):
        names_by_number.setdefault(found[2], set()).add(found[1])
    for line in filter(_SOURCE.search, plan.splitlines()):
        for found in _SOURCE_COLUMN.finditer(line):
            names_by_number.setdefault(found[2], set()).add(found[1])

    def name_removed(line: str) -> str:
        if _SOURCE.search(line):
            return line
        pieces, position = list[str](), 0
        for found in _EXPRESSION_ID.finditer(line):
            before = line[position : found.start()]
            names = names_by_number.get(found[1], ())  # only known columns: a text such as 'a#1' in a condition stays
            ends = [n for n in names if before.endswith(n) and not _PART_OF_NAME.search(before[: -len(n)])]
            pieces += [before[: -max(map(len, ends))] if ends else before, found[0]]
            position = found.end()
        return "".join([*pieces, line[position:]])

    return "\n".join(map(name_removed, plan.splitlines()))


def _without_root_project_of_window(plan: str) -> str:
    """The plan without a first step that only puts the columns of a window in order. ``has_equal_columns`` compares the
    order of the result's columns."""
    first, _, rest = plan.partition("\n")
    if not _ROOT_PROJECT.fullmatch(first) or not rest.startswith("+- Window ["):
        return plan
    return "\n".join(line[3:] for line in rest.splitlines())


def _with_sorted_columns(found: re.Match[str]) -> str:
    """The columns that a window reads, in the order of their names: Spark adds them in an order without a meaning."""
    before, columns, after = found.groups()

    def name_and_number(column: str) -> tuple[str, int]:
        name, _, number = column.rpartition("#")
        return name, int(number.removesuffix("L"))

    return f"{before}{', '.join(sorted(columns.split(', '), key=name_and_number))}{after}"


def has_equal_columns(schema: Schema, other: Schema) -> bool:
    """Whether two results have the same columns and types. The case of a column's name does not matter, nor does a name
    that resolving gave to a nameless column of ``other``.
    """
    return len(schema.fields) == len(other.fields) and all(
        column.type == field.type
        and (column.name.lower() == field.name.lower() or bool(_INVENTED_NAME.fullmatch(field.name)))
        for column, field in zip(schema.fields, other.fields, strict=True)
    )
