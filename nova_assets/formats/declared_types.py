"""Declared types of a file's columns."""

from __future__ import annotations

from nova_assets.model.schema import DELETED, DataType, Schema


def declared_types(schema: Schema | None) -> dict[str, DataType]:
    """Type of each declared column, including ``_deleted``, which any file may have."""
    fields = {f.name: f.type for f in schema.fields} if schema is not None else {}
    return {**fields, DELETED: DataType("boolean")}
