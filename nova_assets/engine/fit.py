"""Spark frames fitted to a schema, column by column."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from nova_assets.engine.columns import col
from nova_assets.engine.types import to_spark
from nova_assets.errors import SchemaMismatch
from nova_assets.model.schema import DELETED, Schema


def fitted(frame: DataFrame, schema: Schema, keep_deleted_of: str | None) -> DataFrame:
    """The frame with exactly these columns, in order; absent ones are null, ``_deleted`` is false where it is not said.

    Args:
        keep_deleted_of: ``base`` keeps a column ``_deleted`` that the schema lacks, so that it can be looked at.
    """
    have = {f.name: f.dataType for f in frame.schema.fields}
    chosen = []
    for f in schema.fields:
        wanted = to_spark(f.type)
        if f.name == DELETED and DELETED in have:
            if have[DELETED].simpleString() not in ("boolean", "void"):
                raise SchemaMismatch(f"column {DELETED!r} is {have[DELETED].simpleString()}", expected="boolean")
            chosen.append(F.coalesce(col(DELETED).cast("boolean"), F.lit(False)).alias(DELETED))
        elif f.name == DELETED:
            chosen.append(F.lit(False).alias(DELETED))
        elif f.name not in have:
            chosen.append(F.lit(None).cast(wanted).alias(f.name))
        else:
            same = have[f.name].simpleString() == wanted.simpleString()
            chosen.append(col(f.name) if same else col(f.name).cast(wanted).alias(f.name))
    if keep_deleted_of == "base" and DELETED in have and DELETED not in schema:
        chosen.append(F.coalesce(col(DELETED).cast("boolean"), F.lit(False)).alias(DELETED))
    return frame.select(*chosen)
