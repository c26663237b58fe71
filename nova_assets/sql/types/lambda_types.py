"""The types of Spark's functions that take functions, such as ``TRANSFORM(a, x -> x + 1)``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from sqlglot import exp
from sqlglot.optimizer.annotate_types import TypeAnnotator

from nova_assets.model.schema import DataType
from nova_assets.sql.types.function_types import Argument, array_of, element, key_of, map_of
from nova_assets.sql.types.type_nodes import node_of, type_of


def _transform(annotator: TypeAnnotator, of: Sequence[Argument]) -> DataType | None:
    return array_of(_result(annotator, of[1], [element(of[0].type), DataType("int")])) if len(of) == 2 else None


def _zip_with(annotator: TypeAnnotator, of: Sequence[Argument]) -> DataType | None:
    parts = [element(a.type) for a in of[:2]]
    return array_of(_result(annotator, of[2], parts)) if len(of) == 3 else None


def _transform_keys(annotator: TypeAnnotator, of: Sequence[Argument]) -> DataType | None:
    entry = [key_of(of[0].type), element(of[0].type)] if len(of) == 2 else []
    return map_of(_result(annotator, of[1], entry), entry[1]) if entry else None


def _transform_values(annotator: TypeAnnotator, of: Sequence[Argument]) -> DataType | None:
    entry = [key_of(of[0].type), element(of[0].type)] if len(of) == 2 else []
    return map_of(entry[0], _result(annotator, of[1], entry)) if entry else None


def _map_zip_with(annotator: TypeAnnotator, of: Sequence[Argument]) -> DataType | None:
    if len(of) != 3:
        return None
    key = key_of(of[0].type)
    return map_of(key, _result(annotator, of[2], [key, element(of[0].type), element(of[1].type)]))


def _aggregate(annotator: TypeAnnotator, of: Sequence[Argument]) -> DataType | None:
    """The type of the start, or of what the last function makes of it."""
    if len(of) < 3:
        return None
    return of[1].type if len(of) == 3 else _result(annotator, of[3], [of[1].type])


WITH_LAMBDAS: Mapping[str, Callable[[TypeAnnotator, Sequence[Argument]], DataType | None]] = {
    "aggregate": _aggregate,
    "map_zip_with": _map_zip_with,
    "reduce": _aggregate,
    "transform": _transform,
    "transform_keys": _transform_keys,
    "transform_values": _transform_values,
    "zip_with": _zip_with,
}
"""Functions that take functions."""


def _result(annotator: TypeAnnotator, function: Argument, types: Sequence[DataType | None]) -> DataType | None:
    """The type that a lambda gives for arguments of some types."""
    node = function.node
    if not isinstance(node, exp.Lambda):
        return None
    by_name = dict(zip((p.name for p in node.expressions), types, strict=False))
    root = exp.Paren(this=node.this.copy())
    for part in list(root.find_all(exp.Identifier, exp.Column)):
        type_ = by_name.get(part.name) if isinstance(part, exp.Identifier) else type_of(part)
        is_name = isinstance(part, exp.Identifier) and (isinstance(part.parent, exp.Column) or part.arg_key != "this")
        if (is_name and part.arg_key not in ("expression", "expressions")) or type_ is None:
            continue
        if isinstance(part.parent, exp.Dot) and part.arg_key == "expression":
            continue
        part.replace(exp.Cast(this=exp.null(), to=node_of(type_)))
    annotator.annotate_expression(root)
    return type_of(root)
