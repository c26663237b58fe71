"""The schema of what a query gives, from the schemas of what it reads: no data is touched, and no Spark asked.

The parser's own annotator walks the query; the rules are Spark's, where they differ from its own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from functools import lru_cache, reduce
from typing import Any, TypeAlias

from sqlglot import exp
from sqlglot.optimizer.annotate_types import TypeAnnotator

from nova_assets.errors import DefinitionError
from nova_assets.model.schema import DataType, Field, Schema, parse_type
from nova_assets.sql.calls import scalars_of
from nova_assets.sql.dialect import DIALECT
from nova_assets.sql.query import Query, mapping
from nova_assets.sql.widening import VOID, arithmetic, bounded, is_number, is_whole, wider

Rule: TypeAlias = Callable[[Any], DataType | None]


class _Annotator(TypeAnnotator):
    """The parser's, with Spark's idea of what two types have in common."""

    def _maybe_coerce(self, type1: Any, type2: Any) -> Any:
        one, other = (t if isinstance(t, exp.DataType) else exp.DataType.build(t) for t in (type1, type2))
        a, b = of_node(one), of_node(other)
        found = None if a is None or b is None else wider(a, b)
        return exp.DType.UNKNOWN if found is None else node_of(found)


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
    annotator.annotate(tree)
    names = spelled(query, schemas)
    types = _output_types(annotator, tree)
    fields = [_field(query, node, type_, names) for node, type_ in zip(tree.selects, types, strict=True)]
    try:
        return Schema(tuple(fields))
    except DefinitionError as error:
        raise query.text.error(error.what.replace("a schema", "what it gives"), None, expected=error.expected) from None


def _output_types(annotator: _Annotator, tree: exp.Query) -> Sequence[exp.DataType | None]:
    if isinstance(tree, exp.SetOperation):
        columns = annotator._get_setop_column_types(tree)
        return [t if isinstance(t, exp.DataType) else exp.DataType.build(t) for _, t in columns]
    return [s.type for s in tree.selects]


def _field(query: Query, node: exp.Expr, type_: exp.DataType | None, names: Mapping[str, str]) -> Field:
    name = _auto_name(node) if is_unnamed(node) else node.alias_or_name
    found = None if type_ is None else of_node(type_)
    if found is None:
        raise query.text.error(
            f"the type of column {name!r} does not follow from the query",
            node,
            next=f"say it: CAST({node.unalias().sql('spark')[:60]} AS ...)",
        )
    return Field(names.get(name, name), DataType("string") if found == VOID else found)


def is_unnamed(node: exp.Expr) -> bool:
    """Whether a column of the output has no name but the one that the parser gave it."""
    return isinstance(node, exp.Alias) and re.fullmatch(r"_col_\d+", node.alias) is not None


def _auto_name(node: exp.Expr) -> str:
    """What Spark calls a column without a name: ``sum(price)``."""
    plain = node.unalias().copy()
    for column in plain.find_all(exp.Column):
        column.set("table", None)
    return plain.sql("spark").lower()


def spelled(query: Query, schemas: Mapping[str, Schema]) -> dict[str, str]:
    """Names in small letters -> as they are written: by the query where it names a column, else by what it reads."""
    found = {n.lower(): n for table in query.tables for n in schemas[table].names}
    return found | {n.lower(): n for n in query.names}


@lru_cache(maxsize=4096)
def _parsed(text: str) -> DataType | None:
    try:
        return parse_type(text)
    except DefinitionError:
        return None


def of_node(node: exp.DataType) -> DataType | None:
    """The parser's type as Spark calls it; None where it is not known."""
    if node.this == exp.DType.NULL:
        return VOID
    if node.this == exp.DType.UNKNOWN:
        return None
    return _parsed(node.sql("spark"))


@lru_cache(maxsize=4096)
def node_of(type_: DataType) -> exp.DataType:
    if type_ == VOID:
        return exp.DataType.build("NULL")
    return exp.DataType.build(str(type_), dialect=DIALECT)


# the rules


def _of(node: exp.Expr | None) -> DataType | None:
    return None if node is None or node.type is None else of_node(node.type)


def _by(rule: Rule) -> dict[str, Any]:
    def annotate(annotator: TypeAnnotator, node: exp.Expr) -> exp.Expr:
        found = rule(node)
        annotator._set_type(node, exp.DType.UNKNOWN if found is None else node_of(found))
        return node

    return {"annotator": annotate}


def _fixed(name: str) -> dict[str, Any]:
    type_ = parse_type(name)
    return _by(lambda node: type_)


def _common(*parts: exp.Expr | None) -> DataType | None:
    """What all have in common."""
    found = [_of(p) for p in parts if p is not None]
    if any(t is None for t in found) or not found:
        return None
    return reduce(lambda a, b: None if a is None or b is None else wider(a, b), found)


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
        a, b = _of(node.left), _of(node.right)
        if a is None or b is None:
            return None
        return arithmetic(sign, _beside(node.left, a, b), _beside(node.right, b, a))

    return rule


def _beside(node: exp.Expr, type_: DataType, other: DataType) -> DataType:
    """A plain whole number beside a decimal has the digits that it needs."""
    plain = node.this if isinstance(node, exp.Neg | exp.Paren) else node
    if other.name == "decimal" and is_whole(type_) and isinstance(plain, exp.Literal):
        return DataType("decimal", (len(plain.name.lstrip("0")) or 1, 0))
    return type_


def _moved(sign: str, left: exp.Expr, right: exp.Expr) -> DataType | None:
    """The type of a date or moment with days or an interval; None where it is something else."""
    if sign not in ("+", "-"):
        return None
    a, b = _of(left), _of(right)
    if isinstance(left, exp.Interval) and sign == "+":
        left, right, a, b = right, left, b, a
    if isinstance(right, exp.Interval):
        if a == DataType("date"):
            unit = (right.args.get("unit") or exp.var("")).name.upper().removesuffix("S")
            return DataType("date" if unit in ("DAY", "WEEK", "MONTH", "YEAR", "QUARTER") else "timestamp")
        return DataType("timestamp") if a == DataType("string") else a
    if a == DataType("date") and b is not None and is_whole(b):
        return a
    return None


def _total(node: exp.Sum) -> DataType | None:
    type_ = _of(node.this)
    if type_ is None:
        return None
    if is_whole(type_):
        return DataType("bigint")
    return bounded(type_.args[0] + 10, type_.args[1]) if type_.name == "decimal" else DataType("double")


def _average(node: exp.Avg) -> DataType | None:
    type_ = _of(node.this)
    if type_ is None:
        return None
    return bounded(type_.args[0] + 4, type_.args[1] + 4) if type_.name == "decimal" else DataType("double")


def _rounded(node: exp.Round) -> DataType | None:
    type_ = _of(node.this)
    if type_ is None or type_.name != "decimal":
        return type_ if type_ is None or is_number(type_) else DataType("double")
    digits = node.args.get("decimals")
    (precision, scale), wanted = type_.args, 0 if digits is None else _whole_of(digits)
    if wanted is None:
        return None
    kept = min(max(wanted, 0), scale)
    return bounded(max(precision - scale + 1, 1 - wanted) + kept, kept)


def _whole_of(node: exp.Expr) -> int | None:
    if isinstance(node, exp.Neg):
        inner = _whole_of(node.this)
        return None if inner is None else -inner
    return int(node.name) if isinstance(node, exp.Literal) and node.is_int else None


def _to_whole(node: exp.Ceil | exp.Floor) -> DataType | None:
    type_ = _of(node.this)
    if type_ is None or node.args.get("decimals") is not None:
        return None
    return bounded(type_.args[0] - type_.args[1] + 1, 0) if type_.name == "decimal" else DataType("bigint")


def _negative(node: exp.Neg) -> DataType | None:
    return _of(node.this)


def _same(node: exp.Expr) -> DataType | None:
    return _of(node.this)


def _case(node: exp.Case) -> DataType | None:
    return _common(*(b.args["true"] for b in node.args["ifs"]), node.args.get("default"))


def _if(node: exp.If) -> DataType | None:
    return _common(node.args["true"], node.args.get("false"))


def _several(node: exp.Expr) -> DataType | None:
    return _common(node.this, *node.expressions)


def _shifted(node: exp.Expr) -> DataType | None:
    """``lag`` and ``lead``."""
    return _common(node.this, node.args.get("default"))


def _listed(node: exp.Expr) -> DataType | None:
    inner = _of(node.this)
    return None if inner is None else DataType("array", fields=(Field("element", inner),))


def _array(node: exp.Array) -> DataType | None:
    inner = _common(*node.expressions) if node.expressions else VOID
    return None if inner is None else DataType("array", fields=(Field("element", inner),))


def _sequence(node: exp.GenerateSeries) -> DataType | None:
    inner = _common(node.args["start"], node.args["end"])
    return None if inner is None else DataType("array", fields=(Field("element", inner),))


def _exploded(node: exp.Explode) -> DataType | None:
    of = _of(node.this)
    return of.fields[0].type if of is not None and of.name == "array" else None


_CASTING = (
    "bigint",
    "binary",
    "boolean",
    "date",
    "double",
    "float",
    "int",
    "smallint",
    "string",
    "timestamp",
    "tinyint",
)


def _of_user(annotator: TypeAnnotator, node: exp.Anonymous) -> exp.Expr:
    """What a function of users gives, as they say; Spark's own that are called as types give that type."""
    name = node.name.lower()
    given = exp.DataType.build(name, dialect=DIALECT) if name in _CASTING else annotator.schema.get_udf_type(node)
    return annotator._set_type(node, given)


def _texts(node: exp.Expr) -> DataType | None:
    """Texts put together; arrays are put together likewise."""
    parts = node.expressions if isinstance(node, exp.Concat) else [node.this, node.expression]
    found = [_of(p) for p in parts]
    arrays = [t for t in found if t is not None and t.name == "array"]
    return arrays[0] if arrays else DataType("string")


def _cast(node: exp.Cast) -> DataType | None:
    return of_node(node.args["to"])


def _element(node: exp.Bracket) -> DataType | None:
    of = _of(node.this)
    if of is None or of.name not in ("array", "map"):
        return None
    return of.fields[-1].type


def _member(node: exp.Dot) -> DataType | None:
    of = _of(node.this)
    if of is None or of.name != "struct":
        return None
    return next((f.type for f in of.fields if f.name.lower() == node.expression.name.lower()), None)


def _subquery(node: exp.Subquery) -> DataType | None:
    inner = node.this.unnest()
    selects = inner.selects if isinstance(inner, exp.Query) else []
    return _of(selects[0]) if len(selects) == 1 else None


def _date_step(node: exp.Expr) -> DataType:
    return DataType("date")


def _extracted(node: exp.Extract) -> DataType:
    return DataType("decimal", (8, 6)) if node.name.upper() in ("SECOND", "SECONDS") else DataType("int")


_TYPES: Mapping[str, tuple[type[exp.Expr], ...]] = {
    "bigint": (exp.Count, exp.CountIf, exp.ApproxDistinct, exp.IntDiv, exp.StrToUnix, exp.TimestampDiff, exp.Factorial),
    "int": (
        exp.Year,
        exp.Quarter,
        exp.Month,
        exp.Week,
        exp.WeekOfYear,
        exp.Day,
        exp.DayOfMonth,
        exp.DayOfWeek,
        exp.DayOfYear,
        exp.Hour,
        exp.Minute,
        exp.Second,
        exp.DateDiff,
        exp.Length,
        exp.StrPosition,
        exp.ArraySize,
        exp.RowNumber,
        exp.Rank,
        exp.DenseRank,
        exp.Ntile,
        exp.Levenshtein,
        exp.Ascii,
    ),
    "double": (
        exp.Pow,
        exp.Sqrt,
        exp.Exp,
        exp.Ln,
        exp.Log,
        exp.Stddev,
        exp.StddevPop,
        exp.StddevSamp,
        exp.Variance,
        exp.VariancePop,
        exp.Corr,
        exp.CumeDist,
        exp.PercentRank,
        exp.Sign,
        exp.MonthsBetween,
        exp.Rand,
        exp.Quantile,
    ),
    "date": (
        exp.TsOrDsToDate,
        exp.TsOrDsAdd,
        exp.DateTrunc,
        exp.LastDay,
        exp.NextDay,
        exp.AddMonths,
        exp.CurrentDate,
        exp.Date,
        exp.StrToDate,
    ),
    "timestamp": (exp.TimestampTrunc, exp.StrToTime, exp.TimeStrToTime, exp.CurrentTimestamp, exp.UnixToTime),
    "string": (
        exp.Substring,
        exp.Upper,
        exp.Lower,
        exp.Trim,
        exp.Left,
        exp.Right,
        exp.Replace,
        exp.RegexpReplace,
        exp.RegexpExtract,
        exp.TimeToStr,
        exp.UnixToStr,
        exp.ConcatWs,
        exp.Initcap,
        exp.Repeat,
        exp.Translate,
        exp.SplitPart,
        exp.GroupConcat,
        exp.SHA2,
        exp.MD5,
        exp.Hex,
        exp.Pad,
        exp.ToChar,
        exp.JSONExtractScalar,
    ),
    "boolean": (exp.And, exp.Or, exp.Not, exp.LogicalAnd, exp.LogicalOr, exp.ArrayContains),
    "array<string>": (exp.Split, exp.RegexpSplit),
}

_RULES: dict[type[exp.Expr], dict[str, Any]] = {
    **DIALECT.EXPRESSION_METADATA,
    **{kind: _fixed(name) for name, kinds in _TYPES.items() for kind in kinds},
    **{kind: _by(_same) for kind in (exp.Min, exp.Max, exp.Paren, exp.Abs, exp.First, exp.Last, exp.AnyValue)},
    **{kind: _by(_same) for kind in (exp.FirstValue, exp.LastValue, exp.NthValue, exp.Nullif, exp.Distinct)},
    **{kind: _by(_several) for kind in (exp.Coalesce, exp.Greatest, exp.Least)},
    **{kind: _by(_shifted) for kind in (exp.Lag, exp.Lead)},
    **{kind: _by(_cast) for kind in (exp.Cast, exp.TryCast)},
    **{kind: _by(_listed) for kind in (exp.ArrayAgg, exp.ArrayUniqueAgg)},
    **{kind: _by(_to_whole) for kind in (exp.Ceil, exp.Floor)},
    **{kind: _by(_texts) for kind in (exp.Concat, exp.DPipe)},
    exp.Anonymous: {"annotator": _of_user},
    exp.Literal: _by(_literal),
    exp.Add: _by(_signed("+")),
    exp.Sub: _by(_signed("-")),
    exp.Mul: _by(_signed("*")),
    exp.Div: _by(_signed("/")),
    exp.Mod: _by(_signed("%")),
    exp.Sum: _by(_total),
    exp.Avg: _by(_average),
    exp.Round: _by(_rounded),
    exp.Neg: _by(_negative),
    exp.Case: _by(_case),
    exp.If: _by(_if),
    exp.Array: _by(_array),
    exp.GenerateSeries: _by(_sequence),
    exp.Explode: _by(_exploded),
    exp.Bracket: _by(_element),
    exp.Dot: _by(_member),
    exp.Subquery: _by(_subquery),
    exp.Extract: _by(_extracted),
}
