"""The columns that generators such as ``EXPLODE`` give: their types, and their names where the query gives none."""

from __future__ import annotations

from sqlglot import exp

from nova_assets.model.schema import DataType
from nova_assets.sql.types.function_types import element, key_of
from nova_assets.sql.types.type_nodes import type_of
from nova_assets.sql.types.widening import VOID

Columns = list[tuple[str, DataType | None]]


def generated(node: exp.Expr) -> Columns:
    """The columns of a generator. Types that do not follow are None; of another generator nothing is known."""
    if isinstance(node, exp.Stack):
        return _stack(node)
    if isinstance(node, exp.Anonymous) and node.name.lower() == "json_tuple":
        return [(f"c{n}", DataType("string")) for n in range(len(node.expressions) - 1)]
    of = type_of(node.args.get("this") if not isinstance(node, exp.Anonymous) else next(iter(node.expressions), None))
    name = node.name.lower() if isinstance(node, exp.Anonymous) else type(node).__name__.lower()
    if of is None:
        return []
    if "inline" in name:
        row = element(of)
        return [(f.name, f.type) for f in row.fields] if row is not None and row.name == "struct" else []
    if "explode" not in name:
        return []
    item: Columns = [("key", key_of(of)), ("value", element(of))] if of.name == "map" else [("col", element(of))]
    return [("pos", DataType("int")), *item] if "pos" in name else item


def _stack(node: exp.Stack) -> Columns:
    """``STACK(2, a, b, c, d)``: two rows of two columns, each of the one type of its values."""
    if not isinstance(node.this, exp.Literal) or node.this.is_string or not node.this.name.isdigit():
        return []
    rows, values = int(node.this.name), node.expressions
    width = -(-len(values) // rows) if rows else 0
    columns = [values[n::width] for n in range(width)]
    return [(f"col{n}", _one({type_of(v) for v in column} - {VOID})) for n, column in enumerate(columns)]


def _one(types: set[DataType | None]) -> DataType | None:
    return types.pop() if len(types) == 1 else None
