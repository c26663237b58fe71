"""SQL of single operators, and parts from which statements are put together."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlglot import exp

from nova_assets.sql.incremental.operators import (
    Aggregation,
    Distinct,
    Filter,
    Join,
    LateralView,
    Operator,
    Projection,
    SetOperation,
    UnionAll,
    Windowed,
)
from nova_assets.sql.parse.dialect import DIALECT

WEIGHT = "nova_weight"
"""Column of a change: 1 for an added row, -1 for a removed one; after adding up, how often more or less often."""

FROZEN = "nova_is_frozen"
"""Column of a computed relation: whether a row is frozen, and is left out."""

KEY = "nova_key_"
"""Beginning of the names of key columns."""

REPETITIONS = f"explode(array_repeat(0, CAST({WEIGHT} AS INT))) nova_rows AS nova_row"
"""LATERAL VIEW that repeats each row as often as its weight says."""

_VALUE = re.compile(r":(\w+)\b")


def select_over(operator: Operator, inputs: Sequence[str], *, with_weight: bool = False) -> str:
    """SELECT of an operator over named relations.

    Args:
        with_weight: the relation is a change, whose weights are passed on.
    """
    first, weight = inputs[0], f", {WEIGHT}" if with_weight else ""
    match operator:
        case Projection():
            return f"SELECT {output_list(operator.outputs)}{weight} FROM {first}"
        case Filter():
            return f"SELECT * FROM {first} WHERE {to_sql(operator.condition)}"
        case LateralView():
            return f"SELECT {column_list(operator.columns)}{weight} FROM {first} {to_sql(operator.view)}"
        case Aggregation():
            group = f" GROUP BY {', '.join(map(to_sql, operator.group_keys))}" if operator.group_keys else ""
            having = f" HAVING {to_sql(operator.having)}" if operator.having is not None else ""
            return f"SELECT {output_list(operator.outputs)} FROM {first}{group}{having}"
        case Windowed():
            return f"SELECT {output_list(operator.outputs)} FROM {first}"
        case Distinct():
            return f"SELECT DISTINCT * FROM {first}"
        case UnionAll():
            return f"SELECT * FROM {first} UNION ALL SELECT * FROM {inputs[1]}"
        case SetOperation():
            return f"SELECT * FROM {first} {operator.kind.upper()} SELECT * FROM {inputs[1]}"
        case Join():
            word = "JOIN" if operator.kind == "inner" else f"{operator.kind.upper()} JOIN"
            on = f" ON {to_sql(operator.condition)}" if operator.condition is not None else ""
            joined = f"{first} {word if on else 'CROSS JOIN'} {inputs[1]}{on}"
            return f"SELECT {column_list(operator.columns)}{weight} FROM {joined}"
    raise NotImplementedError(type(operator).__name__)


def semi_join(rows: str, keys: str, pairs: Iterable[tuple[str, str]]) -> str:
    """FROM clause of the rows whose key expressions equal a row of ``keys``; nulls equal nulls."""
    condition = " AND ".join(f"{expression} <=> {keys}.{name}" for expression, name in pairs)
    return f"{rows} LEFT SEMI JOIN {keys} ON {condition}"


def frozen_column(is_frozen: str) -> str:
    """The column that says whether a row is frozen, after other columns of a SELECT.

    Args:
        is_frozen: condition for frozen rows; empty if there are none.
    """
    return f", {is_frozen} AS {FROZEN}" if is_frozen else ""


def sum_weights(columns: Iterable[str], change: str) -> str:
    """SELECT of a change, added up: each different row once, without rows whose weights cancel out."""
    names = column_list(columns)
    return f"SELECT {names}, SUM({WEIGHT}) AS {WEIGHT} FROM ({change}) GROUP BY {names} HAVING SUM({WEIGHT}) <> 0"


def select_with_weight(columns: Iterable[str], weight: int) -> str:
    """Beginning of a SELECT of columns with a constant weight."""
    return f"SELECT {column_list(columns)}, CAST({weight} AS BIGINT) AS {WEIGHT}"


def output_list(outputs: Iterable[tuple[str, exp.Expr]]) -> str:
    """Expressions of a SELECT with their names."""
    return ", ".join(f"{to_sql(e)} AS {quote_column(name)}" for name, e in outputs)


def column_list(columns: Iterable[str]) -> str:
    """Columns of a SELECT."""
    return ", ".join(map(quote_column, columns))


def quote_column(name: str) -> str:
    """A column's name in backticks."""
    return to_sql(exp.to_identifier(name, quoted=True))


def to_sql(expression: exp.Expr) -> str:
    """The expression in Spark's SQL. Braces would be taken for a frame."""
    return expression.sql(DIALECT).replace("{", "{{").replace("}", "}}")


def used_values(sql: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Those parameters that a statement contains."""
    return {name: values[name] for name in _VALUE.findall(sql) if name in values}  # or it is part of a text


RELATION_NAME = re.compile(r"\bnova_\w+\b(?!\.)")
"""Name of a relation, and not of the source of a column."""

MAX_EXPANDED_RELATIONS = 5_000
"""Relations of a statement. Spark plans a few thousand in seconds. The number can double with each outer join or
aggregate over another one, so that planning takes longer than computing everything.
"""


class StatementTooLarge(Exception):
    """A statement has more relations than Spark can plan in a short time."""


def expanded_size(select: str, relations: Mapping[str, str]) -> int:
    """Number of relations in a statement, counted as often as they are read.

    Args:
        relations: relation -> its SELECT.
    """
    sizes: dict[str, int] = {}

    def size_of(text: str) -> int:
        total = 0
        for name in RELATION_NAME.findall(text):
            if name in relations:
                if name not in sizes:
                    sizes[name] = 1 + size_of(relations[name])
                total += sizes[name]
        return total

    return size_of(select)
