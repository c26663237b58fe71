"""Output columns of generator functions such as ``EXPLODE``: their types and default names."""

from __future__ import annotations

from sqlglot import exp

from nova_assets.model.schema import DataType
from nova_assets.sql.types.type_nodes import annotated_type
from nova_assets.sql.types.widening import VOID, element_type, key_type

NamedTypes = list[tuple[str, DataType | None]]


def generator_columns(node: exp.Expr) -> NamedTypes:
    """Output columns of a generator. A type that cannot be derived is None. For unknown generators the list is
    empty.
    """
    if isinstance(node, exp.Stack):
        return _stack_columns(node)
    if isinstance(node, exp.Anonymous) and node.name.lower() == "json_tuple":
        return [(f"c{n}", DataType("string")) for n in range(len(node.expressions) - 1)]
    argument_type = annotated_type(
        node.args.get("this") if not isinstance(node, exp.Anonymous) else next(iter(node.expressions), None)
    )
    name = node.name.lower() if isinstance(node, exp.Anonymous) else type(node).__name__.lower()
    if argument_type is None:
        return []
    if "inline" in name:
        row = element_type(argument_type)
        return [(f.name, f.type) for f in row.fields] if row is not None and row.name == "struct" else []
    if "explode" not in name:
        return []
    item: NamedTypes = (
        [("key", key_type(argument_type)), ("value", element_type(argument_type))]
        if argument_type.name == "map"
        else [("col", element_type(argument_type))]
    )
    return [("pos", DataType("int")), *item] if "pos" in name else item


def _stack_columns(node: exp.Stack) -> NamedTypes:
    """Columns of ``STACK(2, a, b, c, d)``: two rows of two columns. The values of a column must have one type."""
    if not isinstance(node.this, exp.Literal) or node.this.is_string or not node.this.name.isdigit():
        return []
    rows, values = int(node.this.name), node.expressions
    width = -(-len(values) // rows) if rows else 0
    columns = [values[n::width] for n in range(width)]
    return [
        (f"col{n}", _single_type_or_none({annotated_type(v) for v in column} - {VOID}))
        for n, column in enumerate(columns)
    ]


def _single_type_or_none(types: set[DataType | None]) -> DataType | None:
    return types.pop() if len(types) == 1 else None
