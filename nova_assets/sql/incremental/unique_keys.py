"""Unique keys: sets of columns that identify a row of a query's result, derived from the query and the keys of its
datasets."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import product

from sqlglot import exp

from nova_assets.sql.incremental.operators import Columns, JoinKind, Operator, Outputs, SetKind
from nova_assets.sql.incremental.repeatability import is_generator

Keys = frozenset[frozenset[str]]

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
    """Keys of the input; after ``ROW_NUMBER() ... = 1``, also the columns by which the window is partitioned."""
    row_numbers = operator.row_numbers
    found = set(operator.unique_keys)
    for part in condition.flatten() if isinstance(condition, exp.And) else [condition]:
        part = part.unnest()
        if isinstance(part, exp.EQ) and isinstance(part.this, exp.Column) and _is_one(part.expression):
            found |= {row_numbers[part.this.name]} if part.this.name in row_numbers else set()
    return _shortest(found)


def _is_one(node: exp.Expr) -> bool:
    return isinstance(node, exp.Literal) and not node.is_string and node.name == "1"


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
