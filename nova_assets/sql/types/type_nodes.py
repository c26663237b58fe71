"""Conversion between Spark types and the parser's type nodes."""

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
