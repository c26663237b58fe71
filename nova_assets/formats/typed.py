"""Text as values of declared types, one by one, where something is wrong with a file."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from nova_assets.formats.file import File, bad
from nova_assets.model.arrow_types import arrow_type
from nova_assets.model.schema import DELETED, DataType, Schema
from nova_assets.model.values import coerced


def declared_types(schema: Schema | None) -> dict[str, DataType]:
    """Column -> its type; a file may say ``_deleted``, too."""
    fields = {f.name: f.type for f in schema.fields} if schema is not None else {}
    return {**fields, DELETED: DataType("boolean")}


def typed(values: list[Any], type_: DataType, file: File, unit: str, numbers: list[int] | int) -> pa.Array:
    """A column. Raises BadRecord for the first value that is of another type.

    Args:
        unit: ``line`` or ``row``.
        numbers: of the values; or of the first.
    """
    found = []
    for index, value in enumerate(values):
        try:
            found.append(coerced(value, type_))
        except ValueError as error:
            number = numbers + index if isinstance(numbers, int) else numbers[index]
            raise bad(
                file,
                f"{unit} {number} has a value of another type",
                found=str(error),
                expected=str(type_),
                next="mend the line, or insert the file without it",
                **{unit: number},
            ) from error
    return pa.array(found, arrow_type(type_))
