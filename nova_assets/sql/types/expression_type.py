"""Type of a single expression over columns of known types."""

from __future__ import annotations

from collections.abc import Mapping

from sqlglot import exp

from nova_assets.model.schema import DataType, Field, Schema
from nova_assets.sql.query.resolved_query import make_mapping_schema
from nova_assets.sql.types.node_types import NODE_TYPE_RULES
from nova_assets.sql.types.query_schema import SparkTypeAnnotator
from nova_assets.sql.types.type_nodes import data_type_of_node

_SOURCE = "t"


def type_of_expression(expression: exp.Expr, types: Mapping[str, DataType | None]) -> DataType | None:
    """Type that Spark gives to an expression; None if the type cannot be derived.

    Args:
        expression: an expression over plain columns, without a subquery.
        types: column -> its type; None if the type is not known.
    """
    names = list(dict.fromkeys(c.name for c in expression.find_all(exp.Column)))
    if any(types.get(name) is None for name in names):
        return None
    short = {name: f"c{n}" for n, name in enumerate(names)}
    fields = [Field("no_column", DataType("int"))]  # a source has at least one column
    fields += [Field(short[name], type_) for name in names if (type_ := types[name]) is not None]

    def rename(node: exp.Expr) -> exp.Expr:
        return exp.column(short[node.name], table=_SOURCE) if isinstance(node, exp.Column) else node

    tree = exp.select(exp.alias_(expression.copy().transform(rename), "value")).from_(_SOURCE)
    annotator = SparkTypeAnnotator(make_mapping_schema({_SOURCE: Schema(tuple(fields))}), NODE_TYPE_RULES)
    annotator.annotate(tree)
    node = tree.selects[0].type
    return None if node is None else data_type_of_node(node)
