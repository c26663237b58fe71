"""Array, map and struct types, built from and split into the types of their parts."""

from __future__ import annotations

from collections.abc import Sequence

from nova_assets.model.schema import DataType, Field


def array_type(type_: DataType | None) -> DataType | None:
    return None if type_ is None else DataType("array", fields=(Field("element", type_),))


def map_type(key: DataType | None, value: DataType | None) -> DataType | None:
    if key is None or value is None:
        return None
    return DataType("map", fields=(Field("key", key), Field("value", value)))


def struct_type(fields: Sequence[tuple[str, DataType | None]]) -> DataType | None:
    known_fields = [Field(name, type_) for name, type_ in fields if type_ is not None]
    return DataType("struct", fields=tuple(known_fields)) if len(known_fields) == len(fields) and known_fields else None


def element_type(type_: DataType | None) -> DataType | None:
    """Element type of an array, or value type of a map."""
    return type_.fields[-1].type if type_ is not None and type_.name in ("array", "map") else None


def key_type(type_: DataType | None) -> DataType | None:
    return type_.fields[0].type if type_ is not None and type_.name == "map" else None
