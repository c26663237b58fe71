"""Fitting of Spark frames to a schema, column by column."""

from __future__ import annotations

from collections.abc import Collection

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from nova_assets.engine.rows.canonical_keys import canonicalize_spark_column
from nova_assets.engine.rows.spark_columns import col
from nova_assets.engine.rows.spark_types import from_struct, to_spark_type
from nova_assets.errors import SchemaMismatch
from nova_assets.model.schema import DELETED, DataType, Field, Schema
from nova_assets.model.schema_evolution import can_widen, has_other_fields, reconcile_schema

DELETION_IN_BASE = "nova: a base has no deletions"


def fit_frame(
    frame: DataFrame,
    schema: Schema,
    error_label: str,
    *,
    reject_deletions: bool = False,
    canonical_key_columns: Collection[str] = (),
) -> DataFrame:
    """Frame with exactly the columns of the schema, in its order and types. Missing columns are null.

    Args:
        schema: schema of the files. With ``_deleted``, a missing mark means false.
        error_label: name of the block in errors.
        reject_deletions: whether the evaluation fails at a row whose ``_deleted`` is true, with ``DELETION_IN_BASE`` in
            the message. A separate check would evaluate the frame twice, and might see other rows.
        canonical_key_columns: columns whose values are brought into canonical form (``model/value_comparison``).

    Raises:
        SchemaMismatch: a column is not in the schema, a required column is missing, or a type differs.
    """
    frame_schema = from_struct(frame.schema)
    extra = [n for n in frame_schema.names if n not in schema and not (n == DELETED and reject_deletions)]
    if extra:
        raise SchemaMismatch(
            f"{error_label}: the schema does not have these columns: {', '.join(map(repr, extra))}",
            found=str(frame_schema),
            expected=str(schema),
        )
    if reject_deletions and DELETED in frame_schema:
        is_deletion = _deleted_column(frame_schema)
        frame = frame.filter(F.when(is_deletion, F.raise_error(F.lit(DELETION_IN_BASE))).otherwise(F.lit(True)))
    rows = frame.select(*(_fitted_column(f, frame_schema, error_label) for f in schema.fields))
    for name in canonical_key_columns:
        rows = rows.withColumn(name, canonicalize_spark_column(col(name), schema.field(name).type))
    return rows


def cast_snapshot_to_schema(frame: DataFrame, schema: Schema) -> DataFrame:
    """Snapshot in the columns and types of a later schema of its channel."""
    frame_schema = from_struct(frame.schema)
    return frame.select(
        *(_fitted_column(f, frame_schema, "an older snapshot", allow_missing=True) for f in schema.fields)
    )


def cast_custom_merge_result(frame: DataFrame, schema: Schema, channel_name: str) -> DataFrame:
    """Result of a user's merge function, as a base of the channel.

    Raises:
        SchemaMismatch: the columns differ from those of the channel.
    """
    frame_schema = from_struct(frame.schema)
    reconcile_schema(channel_name, schema, frame_schema, "freeze")
    return cast_snapshot_to_schema(frame, schema)


def _fitted_column(field: Field, frame_schema: Schema, error_label: str, *, allow_missing: bool = False) -> Column:
    target_type = to_spark_type(field.type)
    if field.name == DELETED and DELETED not in frame_schema:
        return F.lit(False).alias(DELETED)
    if field.name == DELETED and not field.nullable:
        return F.coalesce(_deleted_column(frame_schema), F.lit(False)).alias(DELETED)
    if field.name not in frame_schema:
        if not field.nullable and not allow_missing:
            raise SchemaMismatch(
                f"{error_label}: column {field.name!r} is missing, but must not be null", column=field.name
            )
        return F.lit(None).cast(target_type).alias(field.name)
    frame_type = frame_schema.field(field.name).type
    if str(frame_type) == str(field.type):
        return col(field.name)
    if not can_widen(frame_type, field.type):
        raise SchemaMismatch(
            f"{error_label}: column {field.name!r} is {frame_type}, not {field.type}",
            found=str(frame_type),
            expected=str(field.type),
            next="cast the column first",
            column=field.name,
        )
    return widen_column(col(field.name), frame_type, field.type).alias(field.name)


def _deleted_column(frame_schema: Schema) -> Column:
    frame_type = frame_schema.field(DELETED).type
    if frame_type.name != "boolean":
        raise SchemaMismatch(
            f"column {DELETED!r} is {frame_type}", expected="boolean: true for a deletion", column=DELETED
        )
    return col(DELETED)


def widen_column(value: Column, from_type: DataType, to_type: DataType) -> Column:
    """Column in a type to which ``model.type_widening.can_widen`` allows to widen it.

    Spark casts structs by position, and only if they have equally many fields. So structs with other fields are built
    anew.
    """
    if not has_other_fields(from_type, to_type):
        return value.cast(to_spark_type(to_type))
    if to_type.name != "struct":
        parts = [(a.type, b.type) for a, b in zip(from_type.fields, to_type.fields, strict=True)]
        if to_type.name == "array":
            return F.transform(value, lambda element: widen_column(element, *parts[0]))
        with_keys = F.transform_keys(value, lambda key, _: widen_column(key, *parts[0]))
        return F.transform_values(with_keys, lambda _, item: widen_column(item, *parts[1]))
    types = {f.name: f.type for f in from_type.fields}
    fields = [
        (widen_column(value[f.name], types[f.name], f.type) if f.name in types else F.lit(None))
        .cast(to_spark_type(f.type))
        .alias(f.name)
        for f in to_type.fields
    ]
    return F.when(value.isNotNull(), F.struct(*fields))
