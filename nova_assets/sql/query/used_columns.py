"""Names of the columns that a query can use."""

from __future__ import annotations

from sqlglot import exp


def used_column_names(tree: exp.Query) -> frozenset[str] | None:
    """Names that occur in a query, in lower case. A column with another name has no effect on the result.

    None if the query may use columns without their names: by a star, by a pivot, or by names that it gives to the
    columns of a dataset (``orders AS o(a, b)``).

    Args:
        tree: syntax tree with resolved columns.
    """
    if any(not isinstance(star.parent, exp.Count) for star in tree.find_all(exp.Star)) or tree.find(exp.Pivot):
        return None
    if any(isinstance(a.parent, exp.Table) and a.args.get("columns") for a in tree.find_all(exp.TableAlias)):
        return None
    return frozenset(node.name.lower() for node in tree.find_all(exp.Identifier, exp.Var))
