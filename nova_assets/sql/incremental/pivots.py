"""``PIVOT`` as an aggregation: one column for each value and aggregate, over the rows that have the value."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sqlglot import exp

from nova_assets.model.schema import DataType
from nova_assets.sql.incremental.expressions import column_of, flatten_columns, type_of
from nova_assets.sql.incremental.make_operators import make_aggregation
from nova_assets.sql.incremental.operators import NotMaintainable, Operator
from nova_assets.sql.incremental.repeatability import function_names
from nova_assets.sql.parse import spark_functions

_TYPES = frozenset({"string", "boolean", "tinyint", "smallint", "int", "bigint", "date"})
"""Types of which equal values are the same in every respect."""

_TYPES_OF_CELLS = frozenset({"boolean", "tinyint", "smallint", "int", "bigint", "float", "double", "decimal"})
"""Types of aggregates that Spark computes per group and value first (PivotFirst)."""


def make_pivot(operator: Operator, pivots: Sequence[exp.Pivot]) -> Operator:
    """The rows of a source after ``PIVOT``. The groups are those of all columns that the clause does not name. A column
    is null for a group without rows of its value, also if it counts. Spark computes this differently if an aggregate is
    neither a number nor a boolean.

    Args:
        operator: the source, whose columns are called ``source.column``.

    Raises:
        NotMaintainable: the clause has a form without a rule.
    """
    pivot = pivots[0]
    if len(pivots) > 1 or pivot.args.get("unpivot") or len(pivot.args["fields"]) != 1 or not pivot.alias:
        raise NotMaintainable("UNPIVOT, or more than one PIVOT", pivot)
    field = pivot.args["fields"][0]
    if not isinstance(field, exp.In) or field.args.get("query") is not None:
        raise NotMaintainable("this form of PIVOT", field)
    columns = [flatten_columns(c, operator) for c in _parts(field.this)]
    aggregates = [flatten_columns(e.unalias(), operator) for e in pivot.expressions]
    for aggregate, node in zip(aggregates, pivot.expressions, strict=True):
        if not isinstance(aggregate, exp.AggFunc) or not function_names(aggregate) & spark_functions.AGGREGATES:
            raise NotMaintainable("PIVOT with an expression over aggregates", node)
        type_ = type_of(aggregate, operator)
        if type_ is None or type_.name not in _TYPES_OF_CELLS:
            raise NotMaintainable("PIVOT with an aggregate that is not known to be a number", node)
    used = {c.name for e in (*columns, *aggregates) for c in e.find_all(exp.Column)}
    source, prefix = next(iter(operator.columns)).partition(".")[0], f"{pivot.alias.lower()}."
    keys = [name for name in operator.columns if name not in used]
    outputs = [(prefix + name.removeprefix(f"{source}."), column_of(name)) for name in keys]
    names = [prefix + c.name.lower() for c in pivot.args.get("columns") or ()]
    cells = list(_cells(field, columns, aggregates, operator))
    if len(names) != len(cells) or len({*names, *(n for n, _ in outputs)}) < len(names) + len(outputs):
        raise NotMaintainable("PIVOT without different names of its columns", pivot)
    group_keys = tuple(column_of(name) for name in keys)
    return make_aggregation(operator, group_keys, (*outputs, *zip(names, cells, strict=True)))


def _cells(
    field: exp.In, columns: Sequence[exp.Expr], aggregates: Sequence[exp.Expr], operator: Operator
) -> Iterator[exp.Expr]:
    """The aggregates over the rows of each value, in the order of the clause."""
    written = [(n.this if isinstance(n, exp.PivotAlias | exp.Alias) else n).sql("spark") for n in field.expressions]
    if len(set(written)) < len(written):
        raise NotMaintainable("PIVOT with a value that is listed twice", field)
    for node in field.expressions:
        values = _parts(node.this if isinstance(node, exp.PivotAlias | exp.Alias) else node)
        if len(values) != len(columns):
            raise NotMaintainable("PIVOT with another number of values than of columns", node)
        has_value = exp.and_(*(_equals(c, v, operator) for c, v in zip(columns, values, strict=True)))
        for aggregate in aggregates:
            rows = _filtered(exp.Count(this=exp.Star(), big_int=True), has_value)
            condition = exp.GT(this=rows, expression=exp.Literal.number(0))
            yield exp.Case(ifs=[exp.If(this=condition, true=_filtered(aggregate, has_value))])


def _equals(column: exp.Expr, value: exp.Expr, operator: Operator) -> exp.Expr:
    type_: DataType | None = operator.columns[column.name] if isinstance(column, exp.Column) else None
    if type_ is None or type_.name not in _TYPES or value.find(exp.Column, exp.Query):
        raise NotMaintainable("PIVOT by an expression, or by a column of this type", value)
    return exp.NullSafeEQ(this=column.copy(), expression=exp.cast(value.copy(), str(type_), dialect="spark"))


def _filtered(aggregate: exp.Expr, condition: exp.Expr) -> exp.Expr:
    return exp.Filter(this=aggregate.copy(), expression=exp.Where(this=condition.copy()))


def _parts(node: exp.Expr) -> list[exp.Expr]:
    node = node.unnest()
    return [e.unnest() for e in node.expressions] if isinstance(node, exp.Tuple) else [node]
