"""The types that are declared of a file's columns."""

from __future__ import annotations

from nova_assets.model.schema import DELETED, DataType, Schema


def declared_types(schema: Schema | None) -> dict[str, DataType]:
    """Column -> its type; a file may say ``_deleted``, too."""
    fields = {f.name: f.type for f in schema.fields} if schema is not None else {}
    return {**fields, DELETED: DataType("boolean")}
