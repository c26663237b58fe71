"""Spark frames fitted to a schema, column by column."""

from __future__ import annotations

from collections.abc import Collection

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from nova_assets.engine.rows.canonical_keys import canonical_column
from nova_assets.engine.rows.columns import col
from nova_assets.engine.rows.spark_types import from_struct, to_spark
from nova_assets.errors import SchemaMismatch
from nova_assets.model.schema import DELETED, Field, Schema, widens
from nova_assets.model.schema_evolution import reconcile

DELETION_IN_BASE = "nova: a base has no deletions"


def fitted(
    frame: DataFrame, schema: Schema, where: str, *, refuse_deletions: bool = False, canonical: Collection[str] = ()
) -> DataFrame:
    """The frame with exactly the columns of the schema, in its order and types. Absent columns are null.

    Args:
        schema: of the files; with ``_deleted`` it is false wherever the frame does not say.
        where: names the block in errors.
        refuse_deletions: fail, when evaluated, at a row whose ``_deleted`` is true, with ``DELETION_IN_BASE`` in the
            message. (Looking first would evaluate the frame twice, and might see other rows.)
        canonical: columns whose values are brought into canonical form (``model/equality``).

    Raises:
        SchemaMismatch: a column of no place in the schema, one that is missing and may not be null, another type.
    """
    have = from_struct(frame.schema)
    extra = [n for n in have.names if n not in schema and not (n == DELETED and refuse_deletions)]
    if extra:
        raise SchemaMismatch(
            f"{where}: columns have no place: {', '.join(map(repr, extra))}", found=str(have), expected=str(schema)
        )
    if refuse_deletions and DELETED in have:
        mark = _mark(have)
        frame = frame.filter(F.when(mark, F.raise_error(F.lit(DELETION_IN_BASE))).otherwise(F.lit(True)))
    rows = frame.select(*(_column(f, have, where) for f in schema.fields))
    for name in canonical:
        rows = rows.withColumn(name, canonical_column(col(name), schema.field(name).type))
    return rows


def cast_to(frame: DataFrame, schema: Schema) -> DataFrame:
    """A snapshot in the columns and types of a later schema of its channel."""
    have = from_struct(frame.schema)
    return frame.select(*(_column(f, have, "an older snapshot", lenient=True) for f in schema.fields))


def custom_base(frame: DataFrame, schema: Schema, channel: str) -> DataFrame:
    """What a user's merge function gave, as the base that it has to be.

    Raises:
        SchemaMismatch: it has not the channel's columns.
    """
    given = from_struct(frame.schema)
    reconcile(channel, schema, given, "freeze")
    return cast_to(frame, schema)


def _column(field: Field, have: Schema, where: str, *, lenient: bool = False) -> Column:
    wanted = to_spark(field.type)
    if field.name == DELETED and DELETED not in have:
        return F.lit(False).alias(DELETED)
    if field.name == DELETED and not field.nullable:
        return F.coalesce(_mark(have), F.lit(False)).alias(DELETED)
    if field.name not in have:
        if not field.nullable and not lenient:
            raise SchemaMismatch(f"{where}: column {field.name!r} is missing and may not be null", column=field.name)
        return F.lit(None).cast(wanted).alias(field.name)
    given = have.field(field.name).type
    if str(given) == str(field.type):
        return col(field.name)
    if not widens(given, field.type):
        raise SchemaMismatch(
            f"{where}: column {field.name!r} is {given}, not {field.type}",
            found=str(given),
            expected=str(field.type),
            next="cast the column first",
            column=field.name,
        )
    return col(field.name).cast(wanted).alias(field.name)


def _mark(have: Schema) -> Column:
    given = have.field(DELETED).type
    if given.name != "boolean":
        raise SchemaMismatch(f"column {DELETED!r} is {given}", expected="boolean: true for a deletion", column=DELETED)
    return col(DELETED)
