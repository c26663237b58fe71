"""Result types of Spark's higher-order functions, such as ``TRANSFORM(a, x -> x + 1)``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from sqlglot import exp
from sqlglot.optimizer.annotate_types import TypeAnnotator

from nova_assets.model.schema import DataType
from nova_assets.sql.types.argument_dependent_types import TypedArgument
from nova_assets.sql.types.type_nodes import annotated_type, node_of_data_type
from nova_assets.sql.types.widening import array_type, element_type, key_type, map_type


def _transform_type(annotator: TypeAnnotator, arguments: Sequence[TypedArgument]) -> DataType | None:
    return (
        array_type(_lambda_result_type(annotator, arguments[1], [element_type(arguments[0].type), DataType("int")]))
        if len(arguments) == 2
        else None
    )


def _zip_with_type(annotator: TypeAnnotator, arguments: Sequence[TypedArgument]) -> DataType | None:
    parts = [element_type(a.type) for a in arguments[:2]]
    return array_type(_lambda_result_type(annotator, arguments[2], parts)) if len(arguments) == 3 else None


def _transform_keys_type(annotator: TypeAnnotator, arguments: Sequence[TypedArgument]) -> DataType | None:
    entry = [key_type(arguments[0].type), element_type(arguments[0].type)] if len(arguments) == 2 else []
    return map_type(_lambda_result_type(annotator, arguments[1], entry), entry[1]) if entry else None


def _transform_values_type(annotator: TypeAnnotator, arguments: Sequence[TypedArgument]) -> DataType | None:
    entry = [key_type(arguments[0].type), element_type(arguments[0].type)] if len(arguments) == 2 else []
    return map_type(entry[0], _lambda_result_type(annotator, arguments[1], entry)) if entry else None


def _map_zip_with_type(annotator: TypeAnnotator, arguments: Sequence[TypedArgument]) -> DataType | None:
    if len(arguments) != 3:
        return None
    key = key_type(arguments[0].type)
    return map_type(
        key,
        _lambda_result_type(
            annotator, arguments[2], [key, element_type(arguments[0].type), element_type(arguments[1].type)]
        ),
    )


def _aggregate_type(annotator: TypeAnnotator, arguments: Sequence[TypedArgument]) -> DataType | None:
    """The type of the start value, or the result type of the finish function."""
    if len(arguments) < 3:
        return None
    return (
        arguments[1].type if len(arguments) == 3 else _lambda_result_type(annotator, arguments[3], [arguments[1].type])
    )


HIGHER_ORDER_RULES: Mapping[str, Callable[[TypeAnnotator, Sequence[TypedArgument]], DataType | None]] = {
    "aggregate": _aggregate_type,
    "map_zip_with": _map_zip_with_type,
    "reduce": _aggregate_type,
    "transform": _transform_type,
    "transform_keys": _transform_keys_type,
    "transform_values": _transform_values_type,
    "zip_with": _zip_with_type,
}
"""Name of each higher-order function -> the rule of its result type."""


def _lambda_result_type(
    annotator: TypeAnnotator, lambda_argument: TypedArgument, parameter_types: Sequence[DataType | None]
) -> DataType | None:
    """Result type of a lambda, for given parameter types."""
    node = lambda_argument.node
    if not isinstance(node, exp.Lambda):
        return None
    by_name = dict(zip((p.name for p in node.expressions), parameter_types, strict=False))
    root = exp.Paren(this=node.this.copy())
    for part in list(root.find_all(exp.Identifier, exp.Column)):
        type_ = by_name.get(part.name) if isinstance(part, exp.Identifier) else annotated_type(part)
        is_name = isinstance(part, exp.Identifier) and (isinstance(part.parent, exp.Column) or part.arg_key != "this")
        if (is_name and part.arg_key not in ("expression", "expressions")) or type_ is None:
            continue
        if isinstance(part.parent, exp.Dot) and part.arg_key == "expression":
            continue
        part.replace(exp.Cast(this=exp.null(), to=node_of_data_type(type_)))
    annotator.annotate_expression(root)
    return annotated_type(root)
