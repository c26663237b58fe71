"""Conversion between Spark types and the parser's nodes, and the output columns of generators."""

from __future__ import annotations

from functools import lru_cache

from sqlglot import exp

from nova_assets.errors import DefinitionError
from nova_assets.model.schema import DataType, parse_type
from nova_assets.sql.parse.dialect import DIALECT
from nova_assets.sql.types.widening import VOID, element_type, key_type


@lru_cache(maxsize=4096)
def _parse_type_or_none(text: str) -> DataType | None:
    try:
        return parse_type(text)
    except DefinitionError:
        return None


def data_type_of_node(node: exp.DataType) -> DataType | None:
    """The Spark type of a type node. None if the type is unknown."""
    if node.this == exp.DType.NULL:
        return VOID
    if node.this == exp.DType.UNKNOWN:
        return None
    if not any(value for key, value in node.args.items() if key not in ("this", "nested")):
        return _simple_type(node.this)
    return _parse_type_or_none(node.sql("spark"))


@lru_cache(maxsize=4096)
def _simple_type(kind: exp.DType) -> DataType | None:
    """A type without parameters. Cached, because rendering it with the parser takes as long as parsing a short
    query.
    """
    return _parse_type_or_none(exp.DataType(this=kind).sql("spark"))


@lru_cache(maxsize=4096)
def node_of_data_type(type_: DataType) -> exp.DataType:
    """The type node of a Spark type."""
    if type_ == VOID:
        return exp.DataType.build("NULL")
    return exp.DataType.build(str(type_), dialect=DIALECT)


def annotated_type(node: exp.Expr | None) -> DataType | None:
    """The annotated type of a syntax node. None if the type is unknown."""
    return None if node is None or node.type is None else data_type_of_node(node.type)


# generators such as EXPLODE


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
