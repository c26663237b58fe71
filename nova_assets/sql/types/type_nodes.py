"""Spark types as the parser of SQL has them, and back."""

from __future__ import annotations

from functools import lru_cache

from sqlglot import exp

from nova_assets.errors import DefinitionError
from nova_assets.model.schema import DataType, parse_type
from nova_assets.sql.parse.dialect import DIALECT
from nova_assets.sql.types.widening import VOID


@lru_cache(maxsize=4096)
def _parse_type_or_none(text: str) -> DataType | None:
    try:
        return parse_type(text)
    except DefinitionError:
        return None


def data_type_of_node(node: exp.DataType) -> DataType | None:
    """The parser's type as Spark calls it; None where it is not known."""
    if node.this == exp.DType.NULL:
        return VOID
    if node.this == exp.DType.UNKNOWN:
        return None
    if not any(value for key, value in node.args.items() if key not in ("this", "nested")):
        return _simple_type(node.this)
    return _parse_type_or_none(node.sql("spark"))


@lru_cache(maxsize=4096)
def _simple_type(kind: exp.DType) -> DataType | None:
    """A type without parameters. Writing it with the parser takes as long as reading a short query."""
    return _parse_type_or_none(exp.DataType(this=kind).sql("spark"))


@lru_cache(maxsize=4096)
def node_of_data_type(type_: DataType) -> exp.DataType:
    """A Spark type as the parser has it."""
    if type_ == VOID:
        return exp.DataType.build("NULL")
    return exp.DataType.build(str(type_), dialect=DIALECT)


def annotated_type(node: exp.Expr | None) -> DataType | None:
    """The type that was annotated to a part of a query; None where it is not known."""
    return None if node is None or node.type is None else data_type_of_node(node.type)
