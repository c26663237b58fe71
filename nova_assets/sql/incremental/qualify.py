"""``QUALIFY`` as a filter over further outputs of the SELECT, which are left out after it."""

from __future__ import annotations

from collections.abc import Mapping

from sqlglot import exp

from nova_assets.sql.incremental.expressions import column_of
from nova_assets.sql.incremental.operators import NotMaintainable

_OUTPUT = "nova_qualify_"


def split_qualify(
    clause: exp.Expr, output_by_name: Mapping[str, exp.Expr]
) -> tuple[list[tuple[str, exp.Expr]], exp.Expr]:
    """The outputs that the condition of a clause needs, with their names; and the condition over these outputs.

    Args:
        output_by_name: output column of the SELECT -> its expression. The condition can refer to output columns.

    Raises:
        NotMaintainable: the condition has a subquery.
    """
    if subquery := clause.find(exp.Query):
        raise NotMaintainable("a subquery in QUALIFY", subquery)
    added: dict[str, tuple[str, exp.Expr]] = {}

    def insert(node: exp.Expr) -> exp.Expr:
        if not isinstance(node, exp.Window | exp.AggFunc | exp.Filter | exp.Column):
            return node
        is_output = isinstance(node, exp.Column) and not node.table and node.name.lower() in output_by_name
        needed = output_by_name[node.name.lower()] if is_output else node
        name, _ = added.setdefault(needed.sql("spark"), (f"{_OUTPUT}{len(added)}", needed.copy()))
        return column_of(name)

    condition = clause.this.copy().transform(insert)
    return list(added.values()), condition
