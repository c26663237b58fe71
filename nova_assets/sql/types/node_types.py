"""Types of syntax nodes: Spark's rule for each class of nodes, in the form that sqlglot's type annotator takes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any, TypeAlias

from sqlglot import exp
from sqlglot.optimizer.annotate_types import TypeAnnotator

from nova_assets.model.schema import DataType, parse_type
from nova_assets.sql.parse.dialect import DIALECT
from nova_assets.sql.types.argument_dependent_types import (
    RULES_BY_FUNCTION,
    TypedArgument,
    common_type,
    number_or_double,
    type_of_call,
)
from nova_assets.sql.types.fixed_return_types import FUNCTIONS_BY_FIXED_TYPE
from nova_assets.sql.types.type_nodes import annotated_type, data_type_of_node, generator_columns, node_of_data_type
from nova_assets.sql.types.widening import VOID, array_type, element_type, is_integral, key_type, map_type

NodeTypeRule: TypeAlias = Callable[[Any], DataType | None]
"""Derives the type of a node whose parts are annotated already. None if the type is unknown."""


def _annotator_for_rule(rule: NodeTypeRule) -> dict[str, Any]:
    def annotate(annotator: TypeAnnotator, node: exp.Expr) -> exp.Expr:
        return _set_node_type(annotator, node, rule(node))

    return {"annotator": annotate}


def _set_node_type(annotator: TypeAnnotator, node: exp.Expr, type_: DataType | None) -> exp.Expr:
    is_complete = type_ is not None and not _has_void_within(type_)
    return annotator._set_type(
        node, node_of_data_type(type_) if is_complete and type_ is not None else exp.DType.UNKNOWN
    )


def _has_void_within(type_: DataType) -> bool:
    return any(f.type == VOID or _has_void_within(f.type) for f in type_.fields)


def _fixed_type_rule(type_name: str) -> dict[str, Any]:
    type_ = parse_type(type_name)
    return _annotator_for_rule(lambda node: type_)


# function calls


def _annotate_call(annotator: TypeAnnotator, node: exp.Expr) -> exp.Expr:
    """Annotate a function call with its return type, for Spark's functions and user-defined functions."""
    declared_type = annotator.schema.get_udf_type(node) if isinstance(node, exp.Anonymous) else None
    if declared_type is not None and not declared_type.is_type(exp.DType.UNKNOWN):
        return annotator._set_type(node, declared_type)
    arguments = _typed_arguments(node.expressions)
    higher_order_rule = _HIGHER_ORDER_RULES.get(node.name.lower())
    if higher_order_rule is not None:
        return _set_node_type(annotator, node, higher_order_rule(annotator, arguments))
    return _set_node_type(annotator, node, type_of_call(node.name, arguments))


# higher-order functions, such as ``TRANSFORM(a, x -> x + 1)``


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
    key, value = _entry_types(arguments)
    return map_type(_lambda_result_type(annotator, arguments[1], [key, value]), value) if len(arguments) == 2 else None


def _transform_values_type(annotator: TypeAnnotator, arguments: Sequence[TypedArgument]) -> DataType | None:
    key, value = _entry_types(arguments)
    return map_type(key, _lambda_result_type(annotator, arguments[1], [key, value])) if len(arguments) == 2 else None


def _entry_types(arguments: Sequence[TypedArgument]) -> tuple[DataType | None, DataType | None]:
    """Types of the keys and values of a map, which is the first argument."""
    type_ = arguments[0].type if arguments else None
    return key_type(type_), element_type(type_)


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


_HIGHER_ORDER_RULES: Mapping[str, Callable[[TypeAnnotator, Sequence[TypedArgument]], DataType | None]] = {
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


# syntax


def literal_type(node: exp.Expr) -> DataType:
    """Spark type of a literal text or number."""
    if node.is_string:
        return DataType("string")
    text = node.name
    if "e" in text.lower():
        return DataType("double")
    if "." not in text:
        value = int(text)
        if value < 2**31:
            return DataType("int")
        return DataType("bigint") if value < 2**63 else DataType("decimal", (len(text.lstrip("0")), 0))
    digits = Decimal(text).as_tuple()
    scale = max(0, -int(digits.exponent))
    return DataType("decimal", (max(len(digits.digits), scale), scale))


def _call_rule(function: str, *argument_names: str) -> NodeTypeRule:
    """The rule of a node that means the same as a call of a function with these arguments of the node."""

    def rule(node: exp.Expr) -> DataType | None:
        values = [value for name in argument_names if (value := node.args.get(name)) is not None]
        arguments = [part for value in values for part in (value if isinstance(value, list) else [value])]
        return type_of_call(function, _typed_arguments(arguments))

    return rule


def _typed_arguments(nodes: Iterable[exp.Expr]) -> list[TypedArgument]:
    return [TypedArgument(annotated_type(node), node) for node in nodes]


def _sum_or_difference_rule(symbol: str, function: str) -> NodeTypeRule:
    plain_rule = _call_rule(function, "this", "expression")
    return lambda node: _date_arithmetic_type(symbol, node.left, node.right) or plain_rule(node)


def _date_arithmetic_type(symbol: str, left: exp.Expr, right: exp.Expr) -> DataType | None:
    """The type of a date or timestamp plus or minus days or an interval. None for other operands."""
    left_type, right_type = annotated_type(left), annotated_type(right)
    if isinstance(left, exp.Interval) and symbol == "+":
        left, right, left_type, right_type = right, left, right_type, left_type
    if isinstance(right, exp.Interval):
        if left_type == DataType("date"):
            unit = (right.args.get("unit") or exp.var("")).name.upper().removesuffix("S")
            return DataType("date" if unit in ("DAY", "WEEK", "MONTH", "YEAR", "QUARTER") else "timestamp")
        return left_type
    if left_type == DataType("date") and right_type is not None and is_integral(right_type):
        return left_type
    return None


def _operand_type(node: exp.Expr) -> DataType | None:
    return annotated_type(node.this)


def _distinct_type(node: exp.Distinct) -> DataType | None:
    """The type of the argument, as in ``SUM(DISTINCT price)``."""
    return annotated_type(node.expressions[0]) if len(node.expressions) == 1 else None


def _max_by_type(node: exp.ArgMax | exp.ArgMin) -> DataType | None:
    """The type of ``max_by`` and ``min_by``. With a count, an array."""
    type_ = annotated_type(node.this)
    return array_type(type_) if node.args.get("count") is not None else type_


def _case_type(node: exp.Case) -> DataType | None:
    results = [*(b.args["true"] for b in node.args["ifs"]), node.args.get("default")]
    return common_type([annotated_type(r) for r in results if r is not None])


def _explode_type(node: exp.Explode) -> DataType | None:
    columns = generator_columns(node)
    return columns[0][1] if len(columns) == 1 else None


def _cast_type(node: exp.Cast) -> DataType | None:
    return data_type_of_node(node.args["to"])


def _struct_field_type(node: exp.Dot) -> DataType | None:
    struct_type = annotated_type(node.this)
    if struct_type is None or struct_type.name != "struct":
        return None
    return next((f.type for f in struct_type.fields if f.name.lower() == node.expression.name.lower()), None)


def _subquery_type(node: exp.Subquery) -> DataType | None:
    inner = node.this.unnest()
    selects = inner.selects if isinstance(inner, exp.Query) else []
    return annotated_type(selects[0]) if len(selects) == 1 else None


def _extract_type(node: exp.Extract) -> DataType:
    return DataType("decimal", (8, 6)) if node.name.upper() in ("SECOND", "SECONDS") else DataType("int")


def _quantile_type(node: exp.Quantile) -> DataType | None:
    percentage_type = annotated_type(node.args.get("quantile"))
    if percentage_type is None:
        return None
    return array_type(DataType("double")) if percentage_type.name == "array" else DataType("double")


def _approximate_quantile_type(node: exp.ApproxQuantile) -> DataType | None:
    percentage_type, type_ = annotated_type(node.args.get("quantile")), annotated_type(node.this)
    type_ = number_or_double(type_)
    return None if percentage_type is None else array_type(type_) if percentage_type.name == "array" else type_


_CLASSES_BY_FIXED_TYPE: Mapping[str, tuple[type[exp.Expr], ...]] = {
    "bigint": (exp.Count, exp.CountIf, exp.ApproxDistinct, exp.IntDiv),
    "int": (exp.StrPosition, exp.RowNumber, exp.Rank, exp.DenseRank, exp.Ntile),
    "double": (
        exp.Stddev,
        exp.StddevPop,
        exp.StddevSamp,
        exp.Variance,
        exp.VariancePop,
        exp.Corr,
        exp.CumeDist,
        exp.PercentRank,
    ),
    "date": (exp.CurrentDate,),
    "timestamp": (exp.CurrentTimestamp,),
    "string": (exp.Trim, exp.Concat),
    "boolean": (exp.And, exp.Or, exp.Not, exp.LogicalAnd, exp.LogicalOr),
}

_CLASSES_WITH_TYPE_OF_OPERAND = (
    *(exp.Min, exp.Max, exp.Paren, exp.First, exp.Last, exp.AnyValue, exp.FirstValue, exp.LastValue, exp.NthValue),
    *(exp.IgnoreNulls, exp.RespectNulls, exp.Lag, exp.Lead, exp.Filter),
)

_CALL_BY_CLASS: Mapping[type[exp.Expr], tuple[str, ...]] = {
    exp.Array: ("array", "expressions"),
    exp.ArrayAgg: ("array", "this"),
    exp.ArrayUniqueAgg: ("array", "this"),
    exp.Avg: ("mean", "this"),
    exp.Bracket: ("element_at", "this"),
    exp.Ceil: ("ceiling", "this", "decimals"),
    exp.Coalesce: ("coalesce", "this", "expressions"),
    exp.Div: ("try_divide", "this", "expression"),
    exp.DPipe: ("concat", "this", "expression"),
    exp.Floor: ("ceiling", "this", "decimals"),
    exp.GroupConcat: ("substring", "this"),
    exp.If: ("if", "this", "true", "false"),
    exp.Mod: ("mod", "this", "expression"),
    exp.Mul: ("try_multiply", "this", "expression"),
    exp.Neg: ("negative", "this"),
    exp.Overlay: ("substring", "this"),
    exp.Round: ("round", "this", "decimals"),
    exp.Substring: ("substring", "this"),
    exp.Sum: ("try_sum", "this"),
    exp.Tuple: ("struct", "expressions"),
}
"""Class of nodes -> a function whose calls have the same type, and the arguments of the node that it takes."""

NODE_TYPE_RULES: dict[type[exp.Expr], dict[str, Any]] = {
    **DIALECT.EXPRESSION_METADATA,
    **{kind: _fixed_type_rule(name) for name, kinds in _CLASSES_BY_FIXED_TYPE.items() for kind in kinds},
    **{kind: _annotator_for_rule(_operand_type) for kind in _CLASSES_WITH_TYPE_OF_OPERAND},
    **{kind: _annotator_for_rule(_call_rule(*call)) for kind, call in _CALL_BY_CLASS.items()},
    **{kind: _annotator_for_rule(_max_by_type) for kind in (exp.ArgMax, exp.ArgMin)},
    **{kind: _annotator_for_rule(_cast_type) for kind in (exp.Cast, exp.TryCast)},
    **{kind: {"annotator": _annotate_call} for kind in (exp.Anonymous, exp.AnonymousAggFunc)},
    exp.Distinct: _annotator_for_rule(_distinct_type),
    exp.Literal: _annotator_for_rule(literal_type),
    exp.Add: _annotator_for_rule(_sum_or_difference_rule("+", "try_add")),
    exp.Sub: _annotator_for_rule(_sum_or_difference_rule("-", "try_subtract")),
    exp.Case: _annotator_for_rule(_case_type),
    exp.Explode: _annotator_for_rule(_explode_type),
    exp.Dot: _annotator_for_rule(_struct_field_type),
    exp.Subquery: _annotator_for_rule(_subquery_type),
    exp.Extract: _annotator_for_rule(_extract_type),
    exp.Quantile: _annotator_for_rule(_quantile_type),
    exp.ApproxQuantile: _annotator_for_rule(_approximate_quantile_type),
}

_FUNCTIONS_WITH_OWN_NODES: Mapping[str, str] = {
    "boolean": "between in not bool_and bool_or",
    "tinyint": "grouping",
    "int": "dense_rank ntile position rank row_number",
    "bigint": "approx_count_distinct count count_if",
    "double": """
        corr covar_pop covar_samp cume_dist kurtosis percent_rank skewness stddev stddev_pop stddev_samp var_pop
        var_samp variance
        """,
    "string": "trim",
    "binary": "bitmap_construct_agg",
    "": """
        any_value approx_percentile array_agg avg bit_and bit_or bit_xor ceil collect_list collect_set first first_value
        floor last last_value listagg max max_by min min_by nth_value overlay percentile percentile_approx string_agg
        substr sum
        """,
}
"""Functions that the parser turns into nodes of their own, by return type. An empty type follows from the arguments."""


def describe_function_types() -> dict[str, str]:
    """Name of each function whose type is known without Spark -> a short description of its type."""
    names_by_type = (*FUNCTIONS_BY_FIXED_TYPE.items(), *_FUNCTIONS_WITH_OWN_NODES.items())
    fixed_types = {name: f"`{type_}`" for type_, names in names_by_type if type_ for name in names.split()}
    own_nodes = [name for names in _FUNCTIONS_WITH_OWN_NODES.values() for name in names.split()]
    return {name: fixed_types.get(name, "follows from its arguments") for name in (*RULES_BY_FUNCTION, *own_nodes)}
