"""The schema of what a query gives, from the schemas of what it reads: no data is touched, and no Spark asked.

The parser's own annotator walks the query; the rules are Spark's, where they differ from its own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any, TypeAlias

from sqlglot import exp
from sqlglot.optimizer.annotate_types import TypeAnnotator
from sqlglot.optimizer.scope import Scope

from nova_assets.errors import DefinitionError
from nova_assets.model.schema import DataType, Field, Schema, parse_type
from nova_assets.sql.parse.dialect import DIALECT, errors_of_parser
from nova_assets.sql.query.query import Query, has_no_name, mapping
from nova_assets.sql.query.table_function_calls import scalars_of
from nova_assets.sql.types.column_names import spark_name
from nova_assets.sql.types.function_types import (
    Argument,
    array_of,
    average,
    beside_decimal,
    common,
    element,
    number_or_double,
    rounded,
    total,
    type_of_call,
)
from nova_assets.sql.types.generator_types import generated
from nova_assets.sql.types.lambda_types import WITH_LAMBDAS
from nova_assets.sql.types.type_nodes import node_of, of_node, type_of
from nova_assets.sql.types.widening import VOID, arithmetic, bounded, is_whole, wider

Rule: TypeAlias = Callable[[Any], DataType | None]


class _Annotator(TypeAnnotator):
    """The parser's, with Spark's idea of what two types have in common."""

    def _maybe_coerce(self, type1: Any, type2: Any) -> Any:
        one, other = (t if isinstance(t, exp.DataType) else exp.DataType.build(t) for t in (type1, type2))
        a, b = of_node(one), of_node(other)
        found = None if a is None or b is None else wider(a, b)
        return exp.DType.UNKNOWN if found is None else node_of(found)

    def _get_source_scope_selects(self, source: Scope) -> dict[str, Any]:
        lateral = source.expression
        if not isinstance(lateral, exp.Lateral):
            return super()._get_source_scope_selects(source)
        given = generated(lateral.this)
        names = lateral.alias_column_names or [name for name, _ in given]
        return {n: node_of(t) for n, (_, t) in zip(names, given, strict=False) if t is not None}


def schema_of_query(query: Query, schemas: Mapping[str, Schema], functions: Mapping[str, str] | None = None) -> Schema:
    """The columns that a query gives, and their types.

    Args:
        schemas: of the datasets that it reads.
        functions: user-defined functions, by name, with the types that they give.

    Raises:
        SqlError: a column has no name, or its type does not follow.
    """
    known = mapping({name: schemas[name] for name in query.tables}, scalars_of(functions or {}))
    tree = query.tree.copy()
    annotator = _Annotator(known, _RULES)
    with errors_of_parser(query.text):
        annotator.annotate(tree)
        names = spelled(query, schemas)
        types = _output_types(annotator, tree)
        fields = [_field(query, node, type_, names) for node, type_ in zip(tree.selects, types, strict=True)]
    try:
        return Schema(tuple(fields))
    except DefinitionError as error:
        what = error.what.replace("a schema", "what it gives")
        raise query.text.error(what, _second(tree.selects), expected=error.expected) from None


def _second(selects: Sequence[exp.Expr]) -> exp.Expr | None:
    """The first column whose name stands before it already."""
    names: set[str] = set()
    for node in selects:
        if node.alias_or_name.lower() in names:
            return node
        names.add(node.alias_or_name.lower())
    return None


def _output_types(annotator: _Annotator, tree: exp.Query) -> Sequence[exp.DataType | None]:
    if isinstance(tree, exp.SetOperation):
        columns = annotator._get_setop_column_types(tree)
        return [t if isinstance(t, exp.DataType) else exp.DataType.build(t) for _, t in columns]
    return [s.type for s in tree.selects]


def _field(query: Query, node: exp.Expr, type_: exp.DataType | None, names: Mapping[str, str]) -> Field:
    name = spark_name(_without_tables(node.unalias())) if is_unnamed(node) else node.alias_or_name
    found = None if type_ is None else of_node(type_)
    if found is None:
        raise query.text.error(
            f"the type of column {name!r} does not follow from the query",
            node,
            next=f"say it: CAST({node.unalias().sql('spark')[:60]} AS ...)",
        )
    if found == VOID:
        raise query.text.error(
            f"column {name!r} holds nothing but nulls, and has no type", node, next="say it: CAST(NULL AS ...)"
        )
    return Field(names.get(name, name), found)


def is_unnamed(node: exp.Expr) -> bool:
    """Whether a column of the output has no name but the one that the parser gave it."""
    if not isinstance(node, exp.Alias):
        return False
    return has_no_name(node.this) or re.fullmatch(r"_col_\d+", node.alias) is not None


def _without_tables(node: exp.Expr) -> exp.Expr:
    found = node.copy()
    for column in found.find_all(exp.Column):
        column.set("table", None)
    return found


def spelled(query: Query, schemas: Mapping[str, Schema]) -> dict[str, str]:
    """Names in small letters -> as they are written: by the query where it names a column, else by what it reads."""
    found = {n.lower(): n for table in query.tables for n in schemas[table].names}
    return found | {n.lower(): n for n in query.names}


# the rules


def _by(rule: Rule) -> dict[str, Any]:
    def annotate(annotator: TypeAnnotator, node: exp.Expr) -> exp.Expr:
        return _typed(annotator, node, rule(node))

    return {"annotator": annotate}


def _typed(annotator: TypeAnnotator, node: exp.Expr, type_: DataType | None) -> exp.Expr:
    known = type_ is not None and not _has_void_within(type_)
    return annotator._set_type(node, node_of(type_) if known and type_ is not None else exp.DType.UNKNOWN)


def _has_void_within(type_: DataType) -> bool:
    return any(f.type == VOID or _has_void_within(f.type) for f in type_.fields)


def _fixed(name: str) -> dict[str, Any]:
    type_ = parse_type(name)
    return _by(lambda node: type_)


def _common(*parts: exp.Expr | None) -> DataType | None:
    return common([type_of(p) for p in parts if p is not None])


# calls


def _call(annotator: TypeAnnotator, node: exp.Expr) -> exp.Expr:
    """What a function gives: one of Spark, or one of users, as they say."""
    given = annotator.schema.get_udf_type(node) if isinstance(node, exp.Anonymous) else None
    if given is not None and not given.is_type(exp.DType.UNKNOWN):
        return annotator._set_type(node, given)
    arguments = [Argument(type_of(e), e) for e in node.expressions]
    with_lambda = WITH_LAMBDAS.get(node.name.lower())
    if with_lambda is not None:
        return _typed(annotator, node, with_lambda(annotator, arguments))
    return _typed(annotator, node, type_of_call(node.name, arguments))


# syntax


def _literal(node: exp.Literal) -> DataType:
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


def _signed(sign: str) -> Rule:
    def rule(node: exp.Binary) -> DataType | None:
        moved = _moved(sign, node.left, node.right)
        if moved is not None:
            return moved
        a, b = type_of(node.left), type_of(node.right)
        if a is None or b is None:
            return None
        return arithmetic(sign, beside_decimal(node.left, a, b), beside_decimal(node.right, b, a))

    return rule


def _moved(sign: str, left: exp.Expr, right: exp.Expr) -> DataType | None:
    """The type of a date or moment with days or an interval; None where it is something else."""
    if sign not in ("+", "-"):
        return None
    a, b = type_of(left), type_of(right)
    if isinstance(left, exp.Interval) and sign == "+":
        left, right, a, b = right, left, b, a
    if isinstance(right, exp.Interval):
        if a == DataType("date"):
            unit = (right.args.get("unit") or exp.var("")).name.upper().removesuffix("S")
            return DataType("date" if unit in ("DAY", "WEEK", "MONTH", "YEAR", "QUARTER") else "timestamp")
        return a
    if a == DataType("date") and b is not None and is_whole(b):
        return a
    return None


def _to_whole(node: exp.Ceil | exp.Floor) -> DataType | None:
    type_ = type_of(node.this)
    if type_ is None or node.args.get("decimals") is not None:
        return None
    return bounded(type_.args[0] - type_.args[1] + 1, 0) if type_.name == "decimal" else DataType("bigint")


def _same(node: exp.Expr) -> DataType | None:
    return type_of(node.this)


def _distinct(node: exp.Distinct) -> DataType | None:
    """Of ``SUM(DISTINCT price)``, the argument's."""
    return type_of(node.expressions[0]) if len(node.expressions) == 1 else None


def _row(node: exp.Tuple) -> DataType | None:
    """``(a, b)`` is a struct."""
    return type_of_call("struct", [Argument(type_of(e), e) for e in node.expressions])


def _greatest_by(node: exp.ArgMax | exp.ArgMin) -> DataType | None:
    """Of ``max_by``; an array of several where it is asked for so many."""
    type_ = type_of(node.this)
    return array_of(type_) if node.args.get("count") is not None else type_


def _case(node: exp.Case) -> DataType | None:
    return _common(*(b.args["true"] for b in node.args["ifs"]), node.args.get("default"))


def _if(node: exp.If) -> DataType | None:
    return _common(node.args["true"], node.args.get("false"))


def _several(node: exp.Expr) -> DataType | None:
    return _common(node.this, *node.expressions)


def _listed(node: exp.Expr) -> DataType | None:
    return array_of(type_of(node.this))


def _exploded(node: exp.Explode) -> DataType | None:
    given = generated(node)
    return given[0][1] if len(given) == 1 else None


def _joined(node: exp.DPipe) -> DataType | None:
    return type_of_call("concat", [Argument(type_of(p), p) for p in (node.this, node.expression)])


def _cut(node: exp.Expr) -> DataType | None:
    return type_of_call("substring", [Argument(type_of(node.this), node.this)])


def _cast(node: exp.Cast) -> DataType | None:
    return of_node(node.args["to"])


def _element(node: exp.Bracket) -> DataType | None:
    return element(type_of(node.this))


def _member(node: exp.Dot) -> DataType | None:
    of = type_of(node.this)
    if of is None or of.name != "struct":
        return None
    return next((f.type for f in of.fields if f.name.lower() == node.expression.name.lower()), None)


def _subquery(node: exp.Subquery) -> DataType | None:
    inner = node.this.unnest()
    selects = inner.selects if isinstance(inner, exp.Query) else []
    return type_of(selects[0]) if len(selects) == 1 else None


def _extracted(node: exp.Extract) -> DataType:
    return DataType("decimal", (8, 6)) if node.name.upper() in ("SECOND", "SECONDS") else DataType("int")


def _quantile(node: exp.Quantile) -> DataType | None:
    asked = type_of(node.args.get("quantile"))
    if asked is None:
        return None
    return array_of(DataType("double")) if asked.name == "array" else DataType("double")


def _approximate_quantile(node: exp.ApproxQuantile) -> DataType | None:
    asked, type_ = type_of(node.args.get("quantile")), type_of(node.this)
    type_ = number_or_double(type_)
    return None if asked is None else array_of(type_) if asked.name == "array" else type_


_TYPES: Mapping[str, tuple[type[exp.Expr], ...]] = {
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

_RULES: dict[type[exp.Expr], dict[str, Any]] = {
    **DIALECT.EXPRESSION_METADATA,
    **{kind: _fixed(name) for name, kinds in _TYPES.items() for kind in kinds},
    **{kind: _by(_same) for kind in (exp.Min, exp.Max, exp.Paren, exp.First, exp.Last, exp.AnyValue)},
    **{kind: _by(_same) for kind in (exp.FirstValue, exp.LastValue, exp.NthValue, exp.IgnoreNulls)},
    exp.Distinct: _by(_distinct),
    exp.Tuple: _by(_row),
    **{kind: _by(_greatest_by) for kind in (exp.ArgMax, exp.ArgMin)},
    **{kind: _by(_same) for kind in (exp.Lag, exp.Lead, exp.Filter, exp.RespectNulls)},
    **{kind: _by(_cast) for kind in (exp.Cast, exp.TryCast)},
    **{kind: _by(_listed) for kind in (exp.ArrayAgg, exp.ArrayUniqueAgg)},
    **{kind: _by(_to_whole) for kind in (exp.Ceil, exp.Floor)},
    **{kind: {"annotator": _call} for kind in (exp.Anonymous, exp.AnonymousAggFunc)},
    exp.Literal: _by(_literal),
    exp.Add: _by(_signed("+")),
    exp.Sub: _by(_signed("-")),
    exp.Mul: _by(_signed("*")),
    exp.Div: _by(_signed("/")),
    exp.Mod: _by(_signed("%")),
    exp.Sum: _by(lambda node: total(type_of(node.this))),
    exp.Avg: _by(lambda node: average(type_of(node.this))),
    exp.Round: _by(lambda node: rounded(type_of(node.this), node.args.get("decimals"))),
    exp.Neg: _by(lambda node: number_or_double(type_of(node.this))),
    exp.Case: _by(_case),
    exp.If: _by(_if),
    exp.Coalesce: _by(_several),
    exp.Explode: _by(_exploded),
    exp.Array: _by(lambda node: type_of_call("array", [Argument(type_of(e), e) for e in node.expressions])),
    exp.Bracket: _by(_element),
    exp.Dot: _by(_member),
    exp.DPipe: _by(_joined),
    exp.Substring: _by(_cut),
    exp.GroupConcat: _by(_cut),
    exp.Overlay: _by(_cut),
    exp.Subquery: _by(_subquery),
    exp.Extract: _by(_extracted),
    exp.Quantile: _by(_quantile),
    exp.ApproxQuantile: _by(_approximate_quantile),
}
