"""Turns a query with resolved columns into operators.

A query is either understood completely, or not at all: every clause, join and kind of expression that no operator
represents raises ``NotMaintainable``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from sqlglot import exp

from nova_assets.model.schema import DataType, Schema
from nova_assets.sql.incremental import unique_keys
from nova_assets.sql.incremental.expressions import column_of, flatten_columns, type_of
from nova_assets.sql.incremental.operators import (
    Aggregation,
    Columns,
    Distinct,
    Filter,
    Join,
    JoinKind,
    LateralView,
    NotMaintainable,
    Operator,
    Outputs,
    Projection,
    Scan,
    SetKind,
    SetOperation,
    UnionAll,
    Windowed,
)
from nova_assets.sql.incremental.repeatability import (
    check_aggregates,
    check_exact,
    check_windows,
    is_generator,
    is_rounded,
)
from nova_assets.sql.query.resolved_query import Query, is_using_or_natural
from nova_assets.sql.query.scans import scan_number


@dataclass(frozen=True)
class SourceTable:
    """A dataset that a query reads.

    Args:
        schema: its columns.
        key: columns that identify a row; empty for a multiset of rows.
    """

    schema: Schema
    key: tuple[str, ...] = ()


_RESERVED_PREFIX = "nova_"
"""Beginning of the names of columns that the statements add."""

_SELECT_CLAUSES = frozenset(
    "kind expressions from_ joins laterals where group having distinct with_ operation_modifiers".split()
)
_SET_CLAUSES = frozenset("this expression distinct with_ by_name side kind on".split())
_JOIN_KINDS: Mapping[tuple[str, str], JoinKind] = {
    ("", ""): "inner",
    ("", "INNER"): "inner",
    ("", "CROSS"): "inner",
    ("LEFT", ""): "left",
    ("LEFT", "OUTER"): "left",
    ("RIGHT", ""): "right",
    ("RIGHT", "OUTER"): "right",
    ("FULL", ""): "full",
    ("FULL", "OUTER"): "full",
    ("LEFT", "SEMI"): "left semi",
    ("LEFT", "ANTI"): "left anti",
    ("", "SEMI"): "left semi",
    ("", "ANTI"): "left anti",
}
_SET_KINDS: Mapping[tuple[type[exp.Expr], bool], SetKind] = {
    (exp.Union, True): "union",
    (exp.Intersect, True): "intersect",
    (exp.Intersect, False): "intersect all",
    (exp.Except, True): "except",
    (exp.Except, False): "except all",
}


def build_operators(query: Query, sources: Mapping[str, SourceTable]) -> Operator:
    """The operators of a query.

    Args:
        query: the query.
        sources: the datasets that it reads, by name.

    Raises:
        NotMaintainable: no operator represents a part of the query.
    """
    return _Builder(query, sources).build_query(query.tree, {})


class _Builder:
    def __init__(self, query: Query, sources: Mapping[str, SourceTable]) -> None:
        self.query = query
        self.sources = sources
        self.scans: dict[str, Scan] = {}

    def build_query(self, node: exp.Expr, ctes: Mapping[str, Operator]) -> Operator:
        if isinstance(node, exp.Subquery) and _set_clauses(node) <= {"this"}:
            return self.build_query(node.this, ctes)
        if not isinstance(node, exp.Select | exp.SetOperation):
            raise NotMaintainable("a source that is not a query", node)
        ctes = self._with_ctes(node, ctes)
        return self._build_select(node, ctes) if isinstance(node, exp.Select) else self._build_set(node, ctes)

    def _with_ctes(self, node: exp.Query, ctes: Mapping[str, Operator]) -> dict[str, Operator]:
        found, with_clause = dict(ctes), node.args.get("with_")
        if with_clause is None:
            return found
        if with_clause.args.get("recursive"):
            raise NotMaintainable("WITH RECURSIVE", with_clause)
        for cte in with_clause.expressions:
            operator = self.build_query(cte.this, found)
            found[cte.alias.lower()] = _rename_columns(operator, cte.args["alias"])
        return found

    # set operations

    def _build_set(self, node: exp.SetOperation, ctes: Mapping[str, Operator]) -> Operator:
        if extra := _set_clauses(node) - _SET_CLAUSES or {c for c in ("by_name", "side", "on") if node.args.get(c)}:
            raise NotMaintainable(f"a set operation with {', '.join(sorted(extra))}", node)
        left, right = self.build_query(node.this, ctes), self.build_query(node.expression, ctes)
        if len(left.columns) != len(right.columns):
            raise NotMaintainable("a set operation of different numbers of columns", node)
        pairs = list(zip(left.columns.items(), right.columns.items(), strict=True))
        columns: Columns = {name: a if a == b else None for (name, a), (_, b) in pairs}
        is_distinct = bool(node.args.get("distinct"))
        rounded = frozenset(name for (name, _), (other, _) in pairs if name in left.rounded or other in right.rounded)
        if isinstance(node, exp.Union) and not is_distinct:
            return UnionAll(columns, left, right, rounded=rounded)
        if rounded:
            raise NotMaintainable("a set operation over a rounded number", node)
        kind = _SET_KINDS[type(node), is_distinct]
        keys = unique_keys.of_set_operation(kind, columns, left)
        return SetOperation(columns, left, right, kind, all(columns.values()), unique_keys=keys)

    # SELECT

    def _build_select(self, select: exp.Select, ctes: Mapping[str, Operator]) -> Operator:
        _check_clauses(select)
        operator = self._build_from(select, ctes)
        for lateral in select.args.get("laterals") or ():
            operator = _lateral_view(operator, lateral)
        where = select.args.get("where")
        if where is not None:
            condition = flatten_columns(where.this, operator)
            check_exact([condition], operator)
            operator = Filter(
                operator.columns,
                operator,
                condition,
                unique_keys=unique_keys.of_filter(operator, condition),
                row_numbers=operator.row_numbers,
                rounded=operator.rounded,
            )
        operator = self._build_projection_or_groups(select, operator)
        if select.args.get("distinct") is not None:
            check_exact(map(column_of, operator.columns), operator)
            every_column = frozenset({frozenset(operator.columns)})
            operator = Distinct(operator.columns, operator, unique_keys=every_column | operator.unique_keys)
        return operator

    def _build_projection_or_groups(self, select: exp.Select, operator: Operator) -> Operator:
        outputs = tuple((e.alias_or_name.lower(), flatten_columns(e.unalias(), operator)) for e in select.expressions)
        names = [name for name, _ in outputs]
        if len(set(names)) < len(names) or not all(names):
            raise NotMaintainable("output columns without different names", select)
        if reserved := [n for n in names if n.startswith(_RESERVED_PREFIX)]:
            raise NotMaintainable(f"an output column with a reserved name ({reserved[0]})", select)
        columns: Columns = {name: type_of(e, operator) for name, e in outputs}
        group, having = select.args.get("group"), select.args.get("having")
        rounded = frozenset(name for name, e in outputs if is_rounded(e, operator))
        windows = [w for _, e in outputs for w in e.find_all(exp.Window)]
        is_aggregation = group is not None or having is not None or any(map(_has_aggregate, (e for _, e in outputs)))
        if windows and is_aggregation:
            raise NotMaintainable("window functions over aggregates in one SELECT", windows[0])
        if windows or is_aggregation:
            _check_inputs_of_groups(outputs, operator)
        if windows:
            check_windows(windows, operator)
            partition_keys = _common_partition_keys(windows)
            row_numbers = unique_keys.row_number_columns(outputs)
            keys = unique_keys.of_projection(operator, outputs)
            return Windowed(
                columns, operator, partition_keys, outputs, unique_keys=keys, row_numbers=row_numbers, rounded=rounded
            )
        if is_aggregation:
            group_keys = _plain_group_keys(group, operator)
            flat_having = None if having is None else flatten_columns(having.this, operator)
            decisions = [*group_keys, *([flat_having] if flat_having is not None else [])]
            check_exact(decisions, operator)
            check_aggregates([*(e for _, e in outputs), *decisions])
            keys = unique_keys.of_aggregation(group_keys, outputs)
            return Aggregation(columns, operator, group_keys, outputs, flat_having, unique_keys=keys, rounded=rounded)
        return _projection(columns, operator, outputs)

    # FROM

    def _build_from(self, select: exp.Select, ctes: Mapping[str, Operator]) -> Operator:
        first = select.args.get("from_")
        if first is None:
            raise NotMaintainable("a SELECT without FROM", select)
        operator = self._build_source(first.this, ctes)
        for join in select.args.get("joins") or ():
            operator = _join(operator, self._build_source(join.this, ctes), join)
        return operator

    def _build_source(self, node: exp.Expr, ctes: Mapping[str, Operator]) -> Operator:
        """A source of FROM, whose columns are called ``source.column``."""
        if not isinstance(node, exp.Table | exp.Subquery):
            raise NotMaintainable(f"{node.key} in FROM", node)
        number = scan_number(node)
        if isinstance(node, exp.Subquery):
            if extra := _set_clauses(node) - {"this", "alias"}:
                raise NotMaintainable(f"a subquery with {', '.join(sorted(extra))}", node)
            operator = _rename_columns(self.build_query(node.this, ctes), node.args.get("alias"))
        elif extra := _set_clauses(node) - {"this", "alias"}:
            raise NotMaintainable(f"a source with {', '.join(sorted(extra))}", node)
        elif number is not None:
            operator = self._build_scan(number, node)
        elif isinstance(node.this, exp.Identifier) and node.name.lower() in ctes:
            operator = _rename_columns(ctes[node.name.lower()], node.args.get("alias"))
        else:
            raise NotMaintainable("a source that is not a dataset", node)
        return _with_qualified_names(operator, node.alias_or_name.lower())

    def _build_scan(self, number: int, node: exp.Table) -> Operator:
        scan = self.query.scans[number]
        assert scan.mode == "all", scan.mode
        if scan.dataset not in self.scans:
            source = self.sources[scan.dataset]
            columns = {f.name.lower(): f.type for f in source.schema.fields}
            if any(name.startswith(_RESERVED_PREFIX) for name in columns):
                raise NotMaintainable("a dataset with a column of a reserved name (nova_...)", node)
            keys = frozenset({frozenset(k.lower() for k in source.key)}) if source.key else frozenset()
            self.scans[scan.dataset] = Scan(columns, scan.dataset, unique_keys=keys)
        return self.scans[scan.dataset]


def _set_clauses(node: exp.Expr) -> set[str]:
    return {name for name, value in node.args.items() if value not in (None, False, [], "")}


def _check_clauses(select: exp.Select) -> None:
    if extra := _set_clauses(select) - _SELECT_CLAUSES:
        name = sorted(extra)[0]
        node = select.args[name]
        raise NotMaintainable(f"{name.upper()} in a SELECT", node if isinstance(node, exp.Expr) else select)
    for name in ("kind", "operation_modifiers"):
        if select.args.get(name):
            raise NotMaintainable(f"{name} of a SELECT", select)
    distinct = select.args.get("distinct")
    if distinct is not None and distinct.args.get("on") is not None:
        raise NotMaintainable("DISTINCT ON", distinct)


def _with_qualified_names(operator: Operator, alias: str) -> Operator:
    outputs = tuple((f"{alias}.{name}", column_of(name)) for name in operator.columns)
    columns = {f"{alias}.{name}": type_ for name, type_ in operator.columns.items()}
    return _projection(columns, operator, outputs)


def _projection(columns: Columns, operator: Operator, outputs: Outputs) -> Projection:
    keys, row_numbers = unique_keys.of_projection(operator, outputs), unique_keys.row_numbers_after(operator, outputs)
    check_exact((e for _, e in outputs if is_generator(e)), operator)
    rounded = frozenset(name for name, e in outputs if is_rounded(e, operator))
    return Projection(columns, operator, outputs, unique_keys=keys, row_numbers=row_numbers, rounded=rounded)


def _rename_columns(operator: Operator, alias: exp.Expr | None) -> Operator:
    """The operator with the column names of ``AS t(a, b)``."""
    names = [c.name.lower() for c in (alias.args.get("columns") or ())] if alias is not None else []
    if not names or names == list(operator.columns):
        return operator
    if len(names) != len(operator.columns) or len(set(names)) < len(names):
        assert alias is not None
        raise NotMaintainable("aliases of columns", alias)
    outputs = tuple((new, column_of(old)) for new, old in zip(names, operator.columns, strict=True))
    columns = dict(zip(names, operator.columns.values(), strict=True))
    return _projection(columns, operator, outputs)


def _lateral_view(operator: Operator, lateral: exp.Lateral) -> Operator:
    alias = lateral.args.get("alias")
    if not lateral.args.get("view") or alias is None or not alias.args.get("columns"):
        raise NotMaintainable("a lateral source without names of its columns", lateral)
    table = alias.name.lower()
    added = [f"{table}.{c.name.lower()}" for c in alias.args["columns"]]
    if set(added) & set(operator.columns):
        raise NotMaintainable("a lateral source with a repeated name", lateral)
    view = lateral.copy()
    view.set("this", flatten_columns(lateral.this, operator))
    view.args["alias"].set("columns", [exp.to_identifier(name, quoted=True) for name in added])
    check_exact([view.this], operator)
    return LateralView({**operator.columns, **dict.fromkeys(added)}, operator, view, rounded=operator.rounded)


def _join(left: Operator, right: Operator, join: exp.Join) -> Operator:
    kind = _JOIN_KINDS.get((join.side.upper(), join.kind.upper()))
    if kind is None or join.method or join.args.get("using") or is_using_or_natural(join):
        raise NotMaintainable(f"this kind of join ({join.method or join.side} {join.kind})".replace("( ", "("), join)
    if extra := _set_clauses(join) - {"this", "on", "side", "kind"}:
        raise NotMaintainable(f"a join with {', '.join(sorted(extra))}", join)
    both: Columns = {**left.columns, **right.columns}
    pair = Join(both, left, right, kind, None)
    on = join.args.get("on")
    condition = None if on is None else flatten_columns(on, pair)
    if condition is None and kind != "inner":
        raise NotMaintainable("an outer join without ON", join)
    columns = left.columns if kind in ("left semi", "left anti") else both
    equal_keys = tuple(_equal_pairs(condition, left, right))
    keys, rounded = unique_keys.of_join(kind, left, right, equal_keys), left.rounded | right.rounded
    if condition is not None:
        check_exact([condition], Operator(both, rounded=rounded))
    return Join(columns, left, right, kind, condition, equal_keys, unique_keys=keys, rounded=rounded & columns.keys())


def _equal_pairs(condition: exp.Expr | None, left: Operator, right: Operator) -> Iterable[tuple[exp.Expr, exp.Expr]]:
    """Pairs of columns of equal, known type that the condition requires to be equal."""
    for part in condition.flatten() if isinstance(condition, exp.And) else [condition]:
        part = part.unnest() if part is not None else None
        if not isinstance(part, exp.EQ):
            continue
        a, b = part.this, part.expression
        if not isinstance(a, exp.Column) or not isinstance(b, exp.Column):
            continue
        if a.name in right.columns and b.name in left.columns:
            a, b = b, a
        if a.name in left.columns and b.name in right.columns and _same_type(left, a.name, right, b.name):
            yield a, b


def _same_type(left: Operator, a: str, right: Operator, b: str) -> bool:
    first: DataType | None = left.columns[a]
    return first is not None and first == right.columns[b]


def _check_inputs_of_groups(outputs: Outputs, operator: Operator) -> None:
    """Check the arguments of aggregates and window functions."""
    for _, expression in outputs:
        if is_generator(expression):
            raise NotMaintainable("a generator beside aggregates or window functions", expression)
        if any(c.name in operator.rounded for c in expression.find_all(exp.Column)):
            raise NotMaintainable("an aggregate or window function of a rounded number", expression)


def _has_aggregate(expression: exp.Expr) -> bool:
    return any(a.find_ancestor(exp.Window) is None for a in expression.find_all(exp.AggFunc))


def _plain_group_keys(group: exp.Group | None, operator: Operator) -> tuple[exp.Expr, ...]:
    if group is None:
        return ()
    if _set_clauses(group) - {"expressions"}:
        raise NotMaintainable("GROUPING SETS, ROLLUP or CUBE", group)
    keys = [key.unnest() for key in group.expressions]
    for key in keys:
        if isinstance(key, exp.Cube | exp.Rollup | exp.GroupingSets) or key.find(exp.AggFunc):
            raise NotMaintainable("this GROUP BY", key)
        if key.find(exp.Column) is None:  # a number is the position of an output column
            raise NotMaintainable("GROUP BY without a column", key)
    return tuple(flatten_columns(key, operator) for key in keys)


def _common_partition_keys(windows: Sequence[exp.Window]) -> tuple[exp.Expr, ...]:
    """Expressions by which all windows are partitioned."""
    first = {e.sql("spark"): e for e in windows[0].args.get("partition_by") or ()}
    for window in windows:
        names = {e.sql("spark") for e in window.args.get("partition_by") or ()}
        first = {name: e for name, e in first.items() if name in names}
    return tuple(first.values())
