"""SQL over a source table. Names and values are quoted by psycopg; none is pasted into the text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from psycopg import sql

from nova_assets.model.database_table import DatabaseTable, SourceColumn
from nova_assets.model.schema import DataType, Schema

PARTITION_ALIAS = "nova_partition_"
SPLIT_ALIAS = "nova_split"
MARK_ALIAS = "nova_mark"
ROWS_ALIAS = "nova_rows"


def raw_sql(text: str) -> sql.SQL:
    """A query that a person wrote, as it is."""
    return sql.SQL(text)


def relation_sql(table: DatabaseTable, qualified_name: Sequence[str]) -> sql.Composable:
    """The table, or the query in parentheses, with the alias of the rows.

    Args:
        qualified_name: schema and name of the table; empty for a query.
    """
    alias = sql.Identifier("nova_source")
    if table.query is not None:
        return sql.SQL("({}\n) AS {}").format(raw_sql(table.query.rstrip().removesuffix(";")), alias)
    return sql.SQL("{} AS {}").format(sql.Identifier(*qualified_name), alias)


def rows_sql(
    relation: sql.Composable,
    schema: Schema,
    columns: Mapping[str, SourceColumn],
    partition_columns: Sequence[str],
    extra_columns: Mapping[str, str],
) -> sql.Composable:
    """Subquery with all columns as they travel, and the plain columns that conditions compare.

    Conditions compare the plain columns, so that the database can use its indexes and partitions.

    Args:
        columns: declared column -> the source's column.
        extra_columns: alias -> the source's column, for splitting and for incremental reads.
    """
    selected = [
        sql.SQL("{} AS {}").format(_encoded(columns[f.name], f.type), sql.Identifier(f.name)) for f in schema.fields
    ]
    selected += [
        sql.SQL("{} AS {}").format(sql.Identifier(columns[c].name), sql.Identifier(f"{PARTITION_ALIAS}{n}"))
        for n, c in enumerate(partition_columns)
    ]
    selected += [
        sql.SQL("{} AS {}").format(sql.Identifier(column), sql.Identifier(alias))
        for alias, column in extra_columns.items()
    ]
    return sql.SQL("(SELECT {} FROM {}) AS {}").format(
        sql.SQL(", ").join(selected), relation, sql.Identifier(ROWS_ALIAS)
    )


def _encoded(column: SourceColumn, declared: DataType) -> sql.Composable:
    """A column as it travels: dates and timestamps as numbers, other types as the type of the channel."""
    # Numbers do not pass through Java's calendar, so its time zone, Julian dates and clock changes have no effect.
    name = sql.Identifier(column.name)
    if declared.name == "string":
        return sql.SQL("{}::text").format(name)
    if declared.name == "date":  # a date without an end cannot be subtracted: the read fails
        return sql.SQL("({} - DATE '1970-01-01')").format(name)
    if declared.name in ("timestamp", "timestamp_ntz"):  # an infinite timestamp cannot be a bigint: the read fails
        return sql.SQL("(extract(epoch FROM {}) * 1000000)::bigint").format(name)
    if declared.name == "decimal":
        precision, scale = (declared.args or (10, 0))[:2]
        type_ = raw_sql(f"numeric({int(precision)},{int(scale)})")
        # NaN has no decimal, and a value with more digits would be rounded: both fail, as texts that are no number.
        return sql.SQL(
            "CASE WHEN {0} = 'NaN' THEN ({0}::text || ' is no decimal')::{2} WHEN {0} = round({0}, {1}) THEN {0}::{2} "
            "ELSE ({0}::text || ' has too many digits')::{2} END"
        ).format(name, sql.Literal(int(scale)), type_)
    return sql.SQL("{}::{}").format(name, raw_sql(_SOURCE_TYPES[declared.name]))


_SOURCE_TYPES = {
    "smallint": "smallint",
    "int": "integer",
    "bigint": "bigint",
    "float": "real",
    "double": "double precision",
    "boolean": "boolean",
    "binary": "bytea",
}


def partition_condition(values: Sequence[str | None], source_types: Sequence[str]) -> sql.Composable:
    """Condition of one partition over the rows of ``rows_sql``; true if the channel has no partitions."""
    parts = [
        sql.SQL("{} IS NULL").format(sql.Identifier(f"{PARTITION_ALIAS}{n}"))
        if value is None
        else sql.SQL("{} = {}").format(sql.Identifier(f"{PARTITION_ALIAS}{n}"), _typed(value, source_type))
        for n, (value, source_type) in enumerate(zip(values, source_types, strict=True))
    ]
    return sql.SQL(" AND ").join(parts) if parts else sql.SQL("TRUE")


def hash_conditions(parts: int) -> list[sql.Composable]:
    """Conditions that split rows by a hash of the split column. Nulls are in the first part."""
    hashed = sql.SQL("coalesce(hashtextextended({}::text, 0), 0)").format(sql.Identifier(SPLIT_ALIAS))
    return [sql.SQL("abs(({}) % {}) = {}").format(hashed, sql.Literal(parts), sql.Literal(n)) for n in range(parts)]


def range_conditions(bounds: Sequence[str], source_type: str) -> list[sql.Composable]:
    """Conditions that split rows at bounds of the split column. Nulls are in the first part.

    Args:
        bounds: the inner bounds, ascending and different.
    """
    column, typed = sql.Identifier(SPLIT_ALIAS), [_typed(b, source_type) for b in bounds]
    if not typed:
        return [sql.SQL("TRUE")]
    first = sql.SQL("({0} < {1} OR {0} IS NULL)").format(column, typed[0])
    inner = [sql.SQL("({0} >= {1} AND {0} < {2})").format(column, lower, upper) for lower, upper in pairwise(typed)]
    return [first, *inner, sql.SQL("{} >= {}").format(column, typed[-1])]


def mark_condition(after: str | None, up_to: str, source_type: str) -> sql.Composable:
    """Condition of rows above one mark and up to another."""
    column = sql.Identifier(MARK_ALIAS)
    upper = sql.SQL("{} <= {}").format(column, _typed(up_to, source_type))
    if after is None:
        return upper
    return sql.SQL("{} > {} AND {}").format(column, _typed(after, source_type), upper)


def both(*conditions: sql.Composable) -> sql.Composable:
    return sql.SQL(" AND ").join([sql.SQL("({})").format(c) for c in conditions])


def _typed(value: str, source_type: str) -> sql.Composable:
    """A value as a constant of a type that ``format_type`` of the database has named."""
    return sql.SQL("{}::{}").format(sql.Literal(value), raw_sql(source_type))


def as_text(composed: sql.Composable, connection: Any) -> str:
    return composed.as_string(connection)
