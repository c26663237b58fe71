"""Comparison of the schema that ``nova_assets.sql`` derives with the one of Spark's own parser and analyser.

nova needs partitions and schemas before Spark starts, so it derives them by its own rules. If Spark is available, Spark
decides: a query that Spark rejects is rejected, and different opinions on a column raise an error that names both.
Where nova has evaluated timestamps, the session's time zone has to be the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from sqlglot import exp

from nova_assets.errors import InputsMissing, QueryRefused, SettingsError, SqlError
from nova_assets.model.schema import Field, Schema
from nova_assets.model.task import Context
from nova_assets.sql.query.resolved_query import Query
from nova_assets.sql.text import Span, SqlText


@contextmanager
def convert_spark_rejections(text: SqlText) -> Iterator[None]:
    """Context manager in which Spark analyses a text. A rejection becomes a SqlError that shows the place in the
    file.
    """
    try:
        yield
    except QueryRefused as error:
        reason, fragment = str(error.fields["reason"]), error.fields.get("fragment")
        place = _find_fragment(text, fragment) if isinstance(fragment, str) else None
        raise text.error(f"Spark rejects the query: {reason}", place) from error


@contextmanager
def explain_waiting_columns(ctx: Context, name: str, datasets: Iterable[str]) -> Iterator[None]:
    """Context manager in which Spark runs a query. If the query is rejected while the columns of an input wait for a
    base, the error names this input.

    Args:
        name: name of the query.
        datasets: the inputs of the query.

    Raises:
        InputsMissing: instead of the SqlError.
    """
    try:
        yield
    except SqlError as error:
        waiting = [d for d in datasets if d in ctx.channels and ctx.channels[d].name in ctx.next_schemas]
        if not waiting:
            raise
        present, coming = ctx.schemas[ctx.channels[waiting[0]].name], ctx.next_schemas[ctx.channels[waiting[0]].name]
        raise InputsMissing(
            f"{name} reads {waiting[0]}, whose changed columns come with its next execution",
            found=str(present),
            expected=str(coming),
            next="nova tick, which computes datasets after their inputs",
        ) from error


def check_spark_columns(query: Query, inferred_schema: Schema, spark_schema: Schema) -> None:
    """Raise SqlError if Spark derives other columns for a query than nova.

    Args:
        inferred_schema: the columns that nova derives.
        spark_schema: the columns of the frame that Spark returns.

    Raises:
        SqlError: the columns differ. The error names both opinions.
    """
    ours, theirs = inferred_schema.names, spark_schema.names
    if [n.lower() for n in ours] != [n.lower() for n in theirs]:
        raise query.text.error(
            f"nova derives the columns {', '.join(ours)}, and Spark derives {', '.join(theirs)}",
            None,
            next="give each column a unique name: ... AS name",
        )
    for number, (own, spark) in enumerate(zip(inferred_schema.fields, spark_schema.fields, strict=True)):
        if str(own.type) != str(spark.type):
            raise query.text.error(
                f"nova derives type {own.type} for column {own.name!r}, and Spark derives {spark.type}",
                _select_expression(query, number),
                next=f"declare the type: {_cast_suggestion(spark)}",
            )


def _cast_suggestion(field: Field) -> str:
    return f"CAST(... AS {str(field.type).upper()}) AS {field.name}"


def _select_expression(query: Query, column_number: int) -> exp.Expr | None:
    """The expression of an output column. None for a column of the PARTITION clause."""
    selects = query.tree.selects
    return selects[column_number] if column_number < len(selects) else None


def _find_fragment(text: SqlText, fragment: str) -> Span | None:
    """Span of a fragment that Spark's error names. None if the text contains the fragment several times or not at
    all.
    """
    begin = text.sql.find(fragment)
    if begin < 0 or text.sql.find(fragment, begin + 1) >= 0:
        return None
    return begin, begin + len(fragment)


_NAMES_OF_UTC = ("UTC", "Etc/UTC", "GMT", "Z")


def check_session_is_utc(ctx: Context, user: str, advice: str = "") -> None:
    """Check that the time zone of the session is UTC.

    Args:
        user: what needs it, for example ``dataset 'sales' uses timestamps``.
        advice: what else can be done, after the advice to set the zone.

    Raises:
        SettingsError: the session has another time zone.
    """
    zone = ctx.spark.conf.get("spark.sql.session.timeZone")
    if zone not in _NAMES_OF_UTC:
        raise SettingsError(
            f"{user}, and the time zone of the Spark session is not UTC",
            found=zone,
            expected="spark.sql.session.timeZone = UTC",
            next=f"set it on the session that you pass to nova{advice}",
        )
