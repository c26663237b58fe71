"""Window functions over the groups of the same SELECT, as two steps: first the groups, then the windows over them."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from nova_assets.sql.incremental.expressions import column_of
from nova_assets.sql.incremental.make_operators import make_aggregation, make_windowed
from nova_assets.sql.incremental.operators import NotMaintainable, Operator, Outputs, Windowed

_GROUP_KEY, _AGGREGATE = "nova_group_", "nova_aggregate_"


def make_grouped_windows(
    operator: Operator, group_keys: Sequence[exp.Expr], outputs: Outputs, having: exp.Expr | None
) -> Windowed:
    """Outputs with window functions over groups, such as ``RANK() OVER (ORDER BY SUM(x))``.

    Args:
        outputs: expressions over the operator's columns.
    """
    groups = {f"{_GROUP_KEY}{n}": key for n, key in enumerate(group_keys)}
    name_by_sql = {key.sql("spark"): name for name, key in groups.items()}
    windowed = tuple((name, _over_groups(e, name_by_sql, groups)) for name, e in outputs)
    return make_windowed(make_aggregation(operator, tuple(group_keys), tuple(groups.items()), having), windowed)


def _over_groups(expression: exp.Expr, name_by_sql: dict[str, str], groups: dict[str, exp.Expr]) -> exp.Expr:
    """An expression over the columns of groups. Aggregates are added to ``groups``."""
    tree = expression.copy()
    window_functions = {id(w.this) for w in tree.find_all(exp.Window)}

    def insert(node: exp.Expr) -> exp.Expr:
        sql = node.sql("spark")
        is_aggregate = isinstance(node, exp.AggFunc | exp.Filter) and id(node) not in window_functions
        if is_aggregate and sql not in name_by_sql:
            name_by_sql[sql] = f"{_AGGREGATE}{len(groups)}"
            groups[name_by_sql[sql]] = node.copy()
        if sql in name_by_sql:
            return column_of(name_by_sql[sql])
        if isinstance(node, exp.Column):
            raise NotMaintainable(f"the name {sql} beside aggregates", node)
        return node

    return tree.transform(insert, copy=False)
