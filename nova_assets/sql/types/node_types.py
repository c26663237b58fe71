"""Types of syntax nodes: Spark's rule for each class of nodes, in the form that sqlglot's type annotator takes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, TypeAlias

from sqlglot import exp
from sqlglot.optimizer.annotate_types import TypeAnnotator

from nova_assets.model.schema import DataType, parse_type
from nova_assets.sql.parse.dialect import DIALECT
from nova_assets.sql.types.argument_dependent_types import (
    RULES_BY_FUNCTION,
    TypedArgument,
    average_type,
    common_type,
    literal_type_beside_decimal,
    number_or_double,
    rounded_type,
    sum_type,
    type_of_call,
)
from nova_assets.sql.types.fixed_return_types import FUNCTIONS_BY_FIXED_TYPE
from nova_assets.sql.types.generator_types import generator_columns
from nova_assets.sql.types.higher_order_types import HIGHER_ORDER_RULES
from nova_assets.sql.types.nested_types import array_type, element_type
from nova_assets.sql.types.type_nodes import annotated_type, data_type_of_node, node_of_data_type
from nova_assets.sql.types.widening import VOID, arithmetic_type, decimal_up_to_max, is_integral

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


def _common_type(*parts: exp.Expr | None) -> DataType | None:
    return common_type([annotated_type(p) for p in parts if p is not None])


# function calls


def _annotate_call(annotator: TypeAnnotator, node: exp.Expr) -> exp.Expr:
    """Annotate a function call with its return type, for Spark's functions and user-defined functions."""
    declared_type = annotator.schema.get_udf_type(node) if isinstance(node, exp.Anonymous) else None
    if declared_type is not None and not declared_type.is_type(exp.DType.UNKNOWN):
        return annotator._set_type(node, declared_type)
    arguments = [TypedArgument(annotated_type(e), e) for e in node.expressions]
    higher_order_rule = HIGHER_ORDER_RULES.get(node.name.lower())
    if higher_order_rule is not None:
        return _set_node_type(annotator, node, higher_order_rule(annotator, arguments))
    return _set_node_type(annotator, node, type_of_call(node.name, arguments))


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


def _arithmetic_rule(symbol: str) -> NodeTypeRule:
    def rule(node: exp.Binary) -> DataType | None:
        moved = _date_arithmetic_type(symbol, node.left, node.right)
        if moved is not None:
            return moved
        a, b = annotated_type(node.left), annotated_type(node.right)
        if a is None or b is None:
            return None
        return arithmetic_type(
            symbol, literal_type_beside_decimal(node.left, a, b), literal_type_beside_decimal(node.right, b, a)
        )

    return rule


def _date_arithmetic_type(symbol: str, left: exp.Expr, right: exp.Expr) -> DataType | None:
    """The type of a date or timestamp plus or minus days or an interval. None for other operands."""
    if symbol not in ("+", "-"):
        return None
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


def _ceil_floor_type(node: exp.Ceil | exp.Floor) -> DataType | None:
    type_ = annotated_type(node.this)
    if type_ is None or node.args.get("decimals") is not None:
        return None
    return decimal_up_to_max(type_.args[0] - type_.args[1] + 1, 0) if type_.name == "decimal" else DataType("bigint")


def _operand_type(node: exp.Expr) -> DataType | None:
    return annotated_type(node.this)


def _distinct_type(node: exp.Distinct) -> DataType | None:
    """The type of the argument, as in ``SUM(DISTINCT price)``."""
    return annotated_type(node.expressions[0]) if len(node.expressions) == 1 else None


def _tuple_type(node: exp.Tuple) -> DataType | None:
    """The struct type of ``(a, b)``."""
    return type_of_call("struct", [TypedArgument(annotated_type(e), e) for e in node.expressions])


def _max_by_type(node: exp.ArgMax | exp.ArgMin) -> DataType | None:
    """The type of ``max_by`` and ``min_by``. With a count, an array."""
    type_ = annotated_type(node.this)
    return array_type(type_) if node.args.get("count") is not None else type_


def _case_type(node: exp.Case) -> DataType | None:
    return _common_type(*(b.args["true"] for b in node.args["ifs"]), node.args.get("default"))


def _if_type(node: exp.If) -> DataType | None:
    return _common_type(node.args["true"], node.args.get("false"))


def _coalesce_type(node: exp.Expr) -> DataType | None:
    return _common_type(node.this, *node.expressions)


def _array_agg_type(node: exp.Expr) -> DataType | None:
    return array_type(annotated_type(node.this))


def _explode_type(node: exp.Explode) -> DataType | None:
    columns = generator_columns(node)
    return columns[0][1] if len(columns) == 1 else None


def _concat_type(node: exp.DPipe) -> DataType | None:
    return type_of_call("concat", [TypedArgument(annotated_type(p), p) for p in (node.this, node.expression)])


def _substring_type(node: exp.Expr) -> DataType | None:
    return type_of_call("substring", [TypedArgument(annotated_type(node.this), node.this)])


def _cast_type(node: exp.Cast) -> DataType | None:
    return data_type_of_node(node.args["to"])


def _bracket_type(node: exp.Bracket) -> DataType | None:
    return element_type(annotated_type(node.this))


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

NODE_TYPE_RULES: dict[type[exp.Expr], dict[str, Any]] = {
    **DIALECT.EXPRESSION_METADATA,
    **{kind: _fixed_type_rule(name) for name, kinds in _CLASSES_BY_FIXED_TYPE.items() for kind in kinds},
    **{
        kind: _annotator_for_rule(_operand_type)
        for kind in (exp.Min, exp.Max, exp.Paren, exp.First, exp.Last, exp.AnyValue)
    },
    **{
        kind: _annotator_for_rule(_operand_type)
        for kind in (exp.FirstValue, exp.LastValue, exp.NthValue, exp.IgnoreNulls)
    },
    exp.Distinct: _annotator_for_rule(_distinct_type),
    exp.Tuple: _annotator_for_rule(_tuple_type),
    **{kind: _annotator_for_rule(_max_by_type) for kind in (exp.ArgMax, exp.ArgMin)},
    **{kind: _annotator_for_rule(_operand_type) for kind in (exp.Lag, exp.Lead, exp.Filter, exp.RespectNulls)},
    **{kind: _annotator_for_rule(_cast_type) for kind in (exp.Cast, exp.TryCast)},
    **{kind: _annotator_for_rule(_array_agg_type) for kind in (exp.ArrayAgg, exp.ArrayUniqueAgg)},
    **{kind: _annotator_for_rule(_ceil_floor_type) for kind in (exp.Ceil, exp.Floor)},
    **{kind: {"annotator": _annotate_call} for kind in (exp.Anonymous, exp.AnonymousAggFunc)},
    exp.Literal: _annotator_for_rule(literal_type),
    exp.Add: _annotator_for_rule(_arithmetic_rule("+")),
    exp.Sub: _annotator_for_rule(_arithmetic_rule("-")),
    exp.Mul: _annotator_for_rule(_arithmetic_rule("*")),
    exp.Div: _annotator_for_rule(_arithmetic_rule("/")),
    exp.Mod: _annotator_for_rule(_arithmetic_rule("%")),
    exp.Sum: _annotator_for_rule(lambda node: sum_type(annotated_type(node.this))),
    exp.Avg: _annotator_for_rule(lambda node: average_type(annotated_type(node.this))),
    exp.Round: _annotator_for_rule(lambda node: rounded_type(annotated_type(node.this), node.args.get("decimals"))),
    exp.Neg: _annotator_for_rule(lambda node: number_or_double(annotated_type(node.this))),
    exp.Case: _annotator_for_rule(_case_type),
    exp.If: _annotator_for_rule(_if_type),
    exp.Coalesce: _annotator_for_rule(_coalesce_type),
    exp.Explode: _annotator_for_rule(_explode_type),
    exp.Array: _annotator_for_rule(
        lambda node: type_of_call("array", [TypedArgument(annotated_type(e), e) for e in node.expressions])
    ),
    exp.Bracket: _annotator_for_rule(_bracket_type),
    exp.Dot: _annotator_for_rule(_struct_field_type),
    exp.DPipe: _annotator_for_rule(_concat_type),
    exp.Substring: _annotator_for_rule(_substring_type),
    exp.GroupConcat: _annotator_for_rule(_substring_type),
    exp.Overlay: _annotator_for_rule(_substring_type),
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
