"""Columns that ``JOIN ... USING`` merges."""

from __future__ import annotations

from sqlglot import exp

from nova_assets.sql.incremental.operators import NotMaintainable
from nova_assets.sql.query.resolved_query import is_merged_column, is_using_or_natural


def name_merged_columns(tree: exp.Query) -> exp.Query:
    """The query with the column of the left side in place of each column that USING merges, as in Spark.

    Raises:
        NotMaintainable: beside a RIGHT or FULL JOIN, the merged column is another one.
    """
    tree = tree.copy()
    for select in tree.find_all(exp.Select):
        joins = select.args.get("joins") or ()
        if any(map(is_using_or_natural, joins)):
            for join in joins:
                if join.side.upper() in ("RIGHT", "FULL"):
                    raise NotMaintainable(f"USING or NATURAL beside a {join.side.upper()} JOIN", join)
    for merged in list(tree.find_all(exp.Coalesce)):
        if is_merged_column(merged):
            merged.replace(merged.this.copy())
    return tree
