"""Turns a query with resolved columns into operators.

A query is either understood completely, or not at all: every clause, join and kind of expression that no operator
represents raises ``NotMaintainable``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from nova_assets.model.schema import Schema
from nova_assets.sql.incremental import unique_keys
from nova_assets.sql.incremental.clauses import (
    check_order,
    check_select_clauses,
    is_top_query,
    make_top_rows,
    name_merged_columns,
    split_qualify,
    used_clauses,
    without_limit,
)
from nova_assets.sql.incremental.expressions import find_outside_subqueries, flatten_columns, has_aggregate
from nova_assets.sql.incremental.groups import (
    KeySet,
    check_group_keys,
    key_sets,
    make_grouped_windows,
    make_grouping_sets,
    make_pivot,
    plain_group_keys,
    written_keys,
)
from nova_assets.sql.incremental.make_operators import (
    check_stable,
    make_aggregation,
    make_distinct,
    make_filter,
    make_join,
    make_projection,
    make_windowed,
)
from nova_assets.sql.incremental.operators import (
    Aggregation,
    Columns,
    JoinKind,
    LateralView,
    NotMaintainable,
    Operator,
    Outputs,
    Scan,
    SetKind,
    SetOperation,
    UnionAll,
    column_of,
)
from nova_assets.sql.incremental.repeatability import check_exact
from nova_assets.sql.incremental.subqueries import GROUP_SOURCE, SUBQUERY_SOURCE, SubqueryBuilder, split_conditions
from nova_assets.sql.query.column_lineage import used_column_names
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

_SET_CLAUSES = frozenset("this expression distinct order with_ by_name side kind on".split())
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


def build_operators(query: Query, sources: Mapping[str, SourceTable], *, adds_floats: bool = False) -> Operator:
    """The operators of a query.

    Args:
        query: the query.
        sources: the datasets that it reads, by name.
        adds_floats: as for ``Aggregation``.

    Raises:
        NotMaintainable: no operator represents a part of the query.
    """
    builder, tree = _Builder(query, sources), name_merged_columns(query.tree)
    if is_top_query(tree):
        root = make_top_rows(builder.build_query(without_limit(tree), {}), tree)
    else:
        root = builder.build_query(tree, {})
    check_stable(root)
    return replace(root, adds_floats=adds_floats) if isinstance(root, Aggregation) else root


class _Builder:
    def __init__(self, query: Query, sources: Mapping[str, SourceTable]) -> None:
        self.query = query
        self.sources = sources
        self.used_names = used_column_names(query.tree)
        self.scans: dict[str, Scan] = {}
        self.subqueries = SubqueryBuilder(self)

    def build_query(self, node: exp.Expr, ctes: Mapping[str, Operator]) -> Operator:
        if isinstance(node, exp.Subquery) and used_clauses(node) <= {"this", "order"}:
            check_order(node)
            return self.build_query(node.this, ctes)
        if not isinstance(node, exp.Select | exp.SetOperation):
            raise NotMaintainable("a source that is not a query", node)
        ctes = self.with_ctes(node, ctes)
        return self._build_select(node, ctes) if isinstance(node, exp.Select) else self._build_set(node, ctes)

    def with_ctes(self, node: exp.Query, ctes: Mapping[str, Operator]) -> dict[str, Operator]:
        """The sources of WITH that a query sees: its own, and those of the surrounding queries."""
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
        if extra := used_clauses(node) - _SET_CLAUSES or {c for c in ("by_name", "side", "on") if node.args.get(c)}:
            raise NotMaintainable(f"a set operation with {', '.join(sorted(extra))}", node)
        left, right = self.build_query(node.this, ctes), self.build_query(node.expression, ctes)
        check_order(node)
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
        operator, outer_conditions = self.build_rows(select, ctes)
        for condition in outer_conditions:
            flatten_columns(condition, operator)
            raise NotMaintainable("a column of the surrounding query", condition)
        return self.build_outputs(select, operator, ctes)

    def build_rows(self, select: exp.Select, ctes: Mapping[str, Operator]) -> tuple[Operator, list[exp.Expr]]:
        """The rows of FROM for which WHERE is true, without those conditions that refer to the surrounding query; and
        these conditions.
        """
        check_select_clauses(select)
        operator = self._build_from(select, ctes)
        for lateral in select.args.get("laterals") or ():
            operator = _lateral_view(operator, lateral)
        where = select.args.get("where")
        inner_conditions, outer_conditions = split_conditions(where, operator)
        return self.subqueries.filter_rows(operator, inner_conditions, ctes), outer_conditions

    def build_outputs(self, select: exp.Select, operator: Operator, ctes: Mapping[str, Operator]) -> Operator:
        """The output rows of a SELECT.

        Args:
            operator: the rows of FROM for which WHERE is true.
        """
        named, qualify = _named_outputs(select), select.args.get("qualify")
        added, condition = ([], None) if qualify is None else split_qualify(qualify, dict(named))
        operator = self._build_projection_or_groups(select, [*named, *added], operator, ctes)
        if condition is not None:
            kept = tuple((name, column_of(name)) for name, _ in named)
            operator = make_projection(make_filter(operator, condition), kept)
        return operator if select.args.get("distinct") is None else make_distinct(operator)

    def _build_projection_or_groups(
        self,
        select: exp.Select,
        named: Sequence[tuple[str, exp.Expr]],
        operator: Operator,
        ctes: Mapping[str, Operator],
    ) -> Operator:
        group, having = select.args.get("group"), select.args.get("having")
        condition = having.this if having is not None else None
        windows = [w for _, e in named for w in find_outside_subqueries(e, exp.Window)]
        is_aggregation = group is not None or having is not None or any(has_aggregate(e) for _, e in named)
        is_aggregation = is_aggregation or any(a is not w.this for w in windows for a in w.find_all(exp.AggFunc))
        if is_aggregation:
            if (sets := None if group is None else key_sets(group)) is not None:
                assert group is not None
                return _build_grouping_sets(operator, group, sets, named, condition)
            group_keys = plain_group_keys(group, [e for _, e in named])
            if any(e is not None and e.find(exp.Query) for e in (*(e for _, e in named), condition)):
                if windows:
                    raise NotMaintainable("window functions over groups beside a subquery", windows[0])
                return self.subqueries.build_groups(operator, group_keys, named, condition, ctes)
            flat_keys = tuple(flatten_columns(key, operator) for key in group_keys)
            flat_having = None if condition is None else flatten_columns(condition, operator)
            make = make_grouped_windows if windows else make_aggregation
            return make(operator, flat_keys, _flatten_outputs(named, operator), flat_having)
        joined, operator = self.subqueries.join_scalars(named, operator, ctes)
        outputs = _flatten_outputs(joined, operator)
        return make_windowed(operator, outputs) if windows else make_projection(operator, outputs)

    # FROM

    def _build_from(self, select: exp.Select, ctes: Mapping[str, Operator]) -> Operator:
        first = select.args.get("from_")
        if first is None:
            raise NotMaintainable("a SELECT without FROM", select)
        return self._build_joins(self._build_source(first.this, ctes), select, ctes)

    def _build_joins(self, operator: Operator, holder: exp.Expr, ctes: Mapping[str, Operator]) -> Operator:
        """The join of an operator with the sources that are joined to it by a SELECT or in parentheses."""
        for join in holder.args.get("joins") or ():
            operator = _join(operator, self._build_source(join.this, ctes), join)
        return operator

    def _build_source(self, node: exp.Expr, ctes: Mapping[str, Operator]) -> Operator:
        """A source of FROM, or a join in parentheses. Its columns are called ``source.column``."""
        if using := next(filter(is_using_or_natural, node.args.get("joins") or ()), None):
            raise NotMaintainable("USING or NATURAL in parentheses", using)
        if isinstance(node, exp.Subquery) and isinstance(node.this, exp.Table | exp.Subquery):
            if extra := used_clauses(node) - {"this", "joins"}:
                raise NotMaintainable(f"a join in parentheses with {', '.join(sorted(extra))}", node)
            operator = self._build_source(node.this, ctes)
        else:
            operator = self._build_single_source(node, ctes)
        return self._build_joins(operator, node, ctes)

    def _build_single_source(self, node: exp.Expr, ctes: Mapping[str, Operator]) -> Operator:
        if not isinstance(node, exp.Table | exp.Subquery):
            raise NotMaintainable(f"{node.key} in FROM", node)
        number = scan_number(node)
        if isinstance(node, exp.Subquery):
            if extra := used_clauses(node) - {"this", "alias", "pivots", "joins"}:
                raise NotMaintainable(f"a subquery with {', '.join(sorted(extra))}", node)
            operator = _rename_columns(self.build_query(node.this, ctes), node.args.get("alias"))
        elif extra := used_clauses(node) - {"this", "alias", "pivots", "joins"}:
            raise NotMaintainable(f"a source with {', '.join(sorted(extra))}", node)
        elif number is not None:
            operator = self._build_scan(number, node)
        elif isinstance(node.this, exp.Identifier) and node.name.lower() in ctes:
            operator = _rename_columns(ctes[node.name.lower()], node.args.get("alias"))
        else:
            raise NotMaintainable("a source that is not a dataset", node)
        operator = _with_qualified_names(operator, _source_name(node.alias_or_name, node))
        return make_pivot(operator, node.args["pivots"]) if node.args.get("pivots") else operator

    def _build_scan(self, number: int, node: exp.Table) -> Operator:
        scan = self.query.scans[number]
        assert scan.mode == "all", scan.mode
        if scan.dataset not in self.scans:
            source = self.sources[scan.dataset]
            columns: Columns = {f.name.lower(): f.type for f in source.schema.fields}
            if any(name.startswith(_RESERVED_PREFIX) for name in columns):
                raise NotMaintainable("a dataset with a column of a reserved name (nova_...)", node)
            columns = self._used(columns)
            key = frozenset(k.lower() for k in source.key)
            keys = frozenset({key}) if key and key <= columns.keys() else frozenset()
            self.scans[scan.dataset] = Scan(columns, scan.dataset, unique_keys=keys)
        return self.scans[scan.dataset]

    def _used(self, columns: Columns) -> Columns:
        """Those columns of a dataset that the query can use, and at least one."""
        if self.used_names is None:
            return columns
        used = {name: type_ for name, type_ in columns.items() if name in self.used_names}
        return used or dict(list(columns.items())[:1])


def _named_outputs(select: exp.Select) -> list[tuple[str, exp.Expr]]:
    named = [(e.alias_or_name.lower(), e.unalias().copy()) for e in select.expressions]
    names = [name for name, _ in named]
    if len(set(names)) < len(names) or not all(names):
        raise NotMaintainable("output columns without different names", select)
    if reserved := [n for n in names if n.startswith(_RESERVED_PREFIX)]:
        raise NotMaintainable(f"an output column with a reserved name ({reserved[0]})", select)
    return named


def _build_grouping_sets(
    operator: Operator,
    group: exp.Group,
    sets: Sequence[KeySet],
    named: Sequence[tuple[str, exp.Expr]],
    having: exp.Expr | None,
) -> Operator:
    """A SELECT with ROLLUP, CUBE or GROUPING SETS."""
    expressions = [*(e for _, e in named), *([having] if having is not None else [])]
    if any(e.find(exp.Window, exp.Query) for e in expressions):
        raise NotMaintainable("a window function or subquery beside ROLLUP, CUBE or GROUPING SETS", group)
    for keys in sets:
        check_group_keys(keys)
    flat_sets = [tuple(flatten_columns(key, operator) for key in keys) for keys in sets]
    flat_keys = tuple(flatten_columns(key, operator) for key in written_keys(group))
    flat_having = None if having is None else flatten_columns(having, operator)
    return make_grouping_sets(operator, flat_sets, flat_keys, _flatten_outputs(named, operator), flat_having)


def _flatten_outputs(outputs: Iterable[tuple[str, exp.Expr]], operator: Operator) -> Outputs:
    return tuple((name, flatten_columns(e, operator)) for name, e in outputs)


def _source_name(alias: str, node: exp.Expr) -> str:
    name = alias.lower()
    if name in (SUBQUERY_SOURCE, GROUP_SOURCE) or "." in name:
        raise NotMaintainable(f"a source that is called {name}", node)
    return name


def _with_qualified_names(operator: Operator, alias: str) -> Operator:
    return make_projection(operator, tuple((f"{alias}.{name}", column_of(name)) for name in operator.columns))


def _rename_columns(operator: Operator, alias: exp.Expr | None) -> Operator:
    """The operator with the column names of ``AS t(a, b)``."""
    names = [c.name.lower() for c in (alias.args.get("columns") or ())] if alias is not None else []
    if not names or names == list(operator.columns):
        return operator
    if len(names) != len(operator.columns) or len(set(names)) < len(names):
        assert alias is not None
        raise NotMaintainable("aliases of columns", alias)
    return make_projection(
        operator, tuple((new, column_of(old)) for new, old in zip(names, operator.columns, strict=True))
    )


def _lateral_view(operator: Operator, lateral: exp.Lateral) -> Operator:
    alias = lateral.args.get("alias")
    if not lateral.args.get("view") or alias is None or not alias.args.get("columns"):
        raise NotMaintainable("a lateral source without names of its columns", lateral)
    table = _source_name(alias.name, lateral)
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
    if kind is None or join.method or join.args.get("using"):
        raise NotMaintainable(f"this kind of join ({join.method or join.side} {join.kind})".replace("( ", "("), join)
    if extra := used_clauses(join) - {"this", "on", "side", "kind"}:
        raise NotMaintainable(f"a join with {', '.join(sorted(extra))}", join)
    on = join.args.get("on")
    if on is not None and on.find(exp.Query):
        raise NotMaintainable("a subquery in ON", on)
    condition = None if on is None else flatten_columns(on, Operator({**left.columns, **right.columns}))
    if condition is None and kind != "inner":
        raise NotMaintainable("an outer join without ON", join)
    return make_join(left, right, kind, condition)
