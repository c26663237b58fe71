"""Unique keys: sets of columns that identify a row of a query's result, derived from the query and the keys of its
datasets."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import product

from sqlglot import exp

from nova_assets.model.schema import DataType
from nova_assets.sql.incremental.operators import Columns, JoinKind, Operator, Outputs, SetKind
from nova_assets.sql.incremental.repeatability import is_generator

Keys = frozenset[frozenset[str]]

_DIGITS = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 20, "decimal": 38, "boolean": 1, "date": 0, "string": 0}
"""Types of columns that a comparison with a constant of their kind does not convert -> most digits of a value."""

_MAX_DECIMAL_DIGITS = 38

_MAX_KEYS = 8
"""Most keys that are kept for one operator, shortest first."""


def exact_unique_key(operator: Operator) -> frozenset[str] | None:
    """The shortest unique key without rounded numbers; None if there is none."""
    exact = [key for key in operator.unique_keys if not key & operator.rounded]
    return min(exact, key=lambda key: (len(key), sorted(key)), default=None)


def _shortest(keys: Collection[frozenset[str]]) -> Keys:
    minimal = [k for k in keys if not any(other < k for other in keys)]
    return frozenset(sorted(minimal, key=lambda k: (len(k), sorted(k)))[:_MAX_KEYS])


def _names_by_column(outputs: Outputs) -> dict[str, str]:
    """Input column -> the first output column that is a copy of it."""
    found: dict[str, str] = {}
    for name, expression in outputs:
        if isinstance(expression, exp.Column):
            found.setdefault(expression.name, name)
    return found


def of_projection(operator: Operator, outputs: Outputs) -> Keys:
    """Keys of the input of which every column is copied. A generator repeats rows, so no key is left."""
    if any(is_generator(e) for _, e in outputs):
        return frozenset()
    renamed = _names_by_column(outputs)
    return frozenset(frozenset(renamed[c] for c in k) for k in operator.unique_keys if k <= renamed.keys())


def of_filter(operator: Operator, condition: exp.Expr) -> Keys:
    """Keys of the input without the columns that the filter equates with a constant: ``WHERE id = 1`` leaves at most
    one row, whose key is empty. After ``ROW_NUMBER() ... = 1``, also the columns by which the window is partitioned.
    """
    row_numbers = operator.row_numbers
    found, constant = set(operator.unique_keys), set[str]()
    for part in condition.flatten() if isinstance(condition, exp.And) else [condition]:
        for column, value in _equated_literals(part.unnest()):
            constant |= {column.name} if _have_one_value(operator.columns.get(column.name), value) else set()
            if column.name in row_numbers and value.name == "1" and not value.is_string:
                found.add(row_numbers[column.name])
    return _shortest({key - constant for key in found})


def _equated_literals(condition: exp.Expr) -> list[tuple[exp.Column, exp.Literal]]:
    if not isinstance(condition, exp.EQ):
        return []
    sides = [(condition.this, condition.expression), (condition.expression, condition.this)]
    return [(a, b) for a, b in sides if isinstance(a, exp.Column) and isinstance(b, exp.Literal)]


def _have_one_value(type_: DataType | None, literal: exp.Literal) -> bool:
    """Whether all values of a type that equal a literal are one value.

    It is not so where Spark converts the column: ``'1'`` and ``'01'`` equal the number 1, and several long decimals
    equal the double of a string or a decimal with more places than both fit in.
    """
    if type_ is None or type_.name not in _DIGITS:
        return False
    if literal.is_string:
        return type_.name != "decimal"
    digits = type_.args[0] if type_.name == "decimal" else _DIGITS[type_.name]
    is_exact = literal.name.replace(".", "", 1).isdecimal()  # 1e18 is a double
    return type_.name != "string" and is_exact and digits + len(literal.name) <= _MAX_DECIMAL_DIGITS


def of_aggregation(group_keys: Sequence[exp.Expr], group_columns: Sequence[str]) -> Keys:
    """The group keys, if all of them are output columns. One row, without group keys, has the empty key."""
    return frozenset({frozenset(group_columns)}) if len(group_columns) == len(group_keys) else frozenset()


def of_join(kind: JoinKind, left: Operator, right: Operator, equal_keys: Sequence[tuple[exp.Expr, exp.Expr]]) -> Keys:
    """A row's key is the key of one side, if the row of that side has at most one partner; else the keys of both."""
    if kind in ("left semi", "left anti"):
        return left.unique_keys
    if kind == "full":  # a row without a left partner and one without a right partner can agree in nulls
        return frozenset()
    left_equal, right_equal = {a.name for a, _ in equal_keys}, {b.name for _, b in equal_keys}
    one_right_partner = any(k <= right_equal for k in right.unique_keys)
    one_left_partner = any(k <= left_equal for k in left.unique_keys)
    found = {a | b for a, b in product(left.unique_keys, right.unique_keys)}
    if one_right_partner and kind in ("inner", "left"):
        found |= left.unique_keys
    if one_left_partner and kind in ("inner", "right"):
        found |= right.unique_keys
    return _shortest(found)


def of_set_operation(kind: SetKind, columns: Columns, left: Operator) -> Keys:
    """All columns for operations that remove duplicates. INTERSECT and EXCEPT keep the keys of their left side, unless
    a column of the key is converted to another type, in which different values can be equal.
    """
    every_column = frozenset({frozenset(columns)}) if not kind.endswith("all") else frozenset()
    kept = {k for k in left.unique_keys if all(columns[c] is not None for c in k)}
    return every_column if kind == "union" else _shortest(every_column | kept)


def row_number_columns(outputs: Outputs) -> dict[str, frozenset[str]]:
    """Output column with ``ROW_NUMBER()`` -> output columns by which its window is partitioned, if there are all."""
    renamed, found = _names_by_column(outputs), dict[str, frozenset[str]]()
    for name, expression in outputs:
        if not isinstance(expression, exp.Window) or not isinstance(expression.this, exp.RowNumber):
            continue
        keys = expression.args.get("partition_by") or ()
        if all(isinstance(k, exp.Column) and k.name in renamed for k in keys):
            found[name] = frozenset(renamed[k.name] for k in keys)
    return found


def row_numbers_after(operator: Operator, outputs: Outputs) -> dict[str, frozenset[str]]:
    """The row numbers of an operator after a projection that copies them and the columns of their windows."""
    if any(is_generator(e) for _, e in outputs):
        return {}
    renamed, found = _names_by_column(outputs), dict[str, frozenset[str]]()
    for name, columns in operator.row_numbers.items():
        if name in renamed and columns <= renamed.keys():
            found[renamed[name]] = frozenset(renamed[c] for c in columns)
    return found
