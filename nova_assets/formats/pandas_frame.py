"""Tables as pandas DataFrames, without rounding a value."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

import numpy as np
import pyarrow as pa

from nova_assets.errors import ArgumentRefused, NotSupported
from nova_assets.formats.python_values import map_entries, python_value_error

if TYPE_CHECKING:
    import pandas as pd

PandasTypes: TypeAlias = Literal["nullable", "numpy"]
"""Types of whole numbers and booleans in pandas: ``Int64``, ``boolean`` and so on, or those of NumPy."""


def to_pandas_frame(table: pa.Table, types: PandasTypes = "nullable") -> pd.DataFrame:
    """Table as a pandas DataFrame.

    Args:
        types: with ``nullable``, the type of a column depends on its type alone, and every whole number arrives. With
            ``numpy``, whole numbers become floats in a column that has nulls.

    Raises:
        NotSupported: with ``numpy``, a float would round a whole number; or Python cannot represent a value.
        ArgumentRefused: there are no such types.
    """
    if types not in get_args(PandasTypes):
        raise ArgumentRefused(
            "to_pandas() takes no such types=",
            found=repr(types),
            expected=" or ".join(map(repr, get_args(PandasTypes))),
            argument="types",
        )
    if types == "numpy":
        for name, column in zip(table.column_names, table.columns, strict=True):
            _check_not_rounded(column, name)
    options: dict[str, Any] = {} if types == "numpy" else _nullable_type_options()
    try:
        frame: pd.DataFrame = table.to_pandas(**options)
    except (ValueError, OverflowError, pa.ArrowException) as error:
        refusal = python_value_error(table)
        if refusal is None:
            raise
        raise refusal from error
    return frame


def _nullable_type_options() -> dict[str, Any]:
    """Options for pandas' nullable types. In a nested column with nulls, whole numbers are Python's numbers."""
    import pandas as pd

    type_by_arrow_type = {
        pa.bool_(): pd.BooleanDtype(),
        pa.int8(): pd.Int8Dtype(),
        pa.int16(): pd.Int16Dtype(),
        pa.int32(): pd.Int32Dtype(),
        pa.int64(): pd.Int64Dtype(),
    }
    return {"types_mapper": type_by_arrow_type.get, "integer_object_nulls": True}


def _check_not_rounded(column: pa.ChunkedArray, name: str) -> None:
    """Check that floats represent the whole numbers of a column that has nulls beside them.

    Raises:
        NotSupported: a float would round a number.
    """
    arrays_by_part: dict[str, list[pa.Array]] = {}
    for chunk in column.chunks:
        for part, array in _long_arrays(chunk, ""):
            arrays_by_part.setdefault(part, []).append(array)
    for arrays in arrays_by_part.values():
        if not any(array.null_count for array in arrays):
            continue
        for array in arrays:
            numbers = array.drop_null().to_numpy()
            floats = numbers.astype(np.float64)
            is_exact = floats < 2.0**63
            is_exact[is_exact] = floats[is_exact].astype(np.int64) == numbers[is_exact]
            if not is_exact.all():
                raise NotSupported(
                    f"column {name!r} has nulls, so its whole numbers would become floats, which round one of them",
                    found=str(numbers[~is_exact][0]),
                    expected="whole numbers that floats represent exactly",
                    next='to_pandas(), without types="numpy"',
                    column=name,
                )


def _long_arrays(array: pa.Array, part: str) -> Iterator[tuple[str, pa.Array]]:
    """Whole numbers of 64 bits at all levels of an array, each with its place in the array's type."""
    if pa.types.is_int64(array.type):
        yield part, array
    elif pa.types.is_struct(array.type):
        for n in range(array.type.num_fields):
            yield from _long_arrays(array.field(n), f"{part}/{n}")
    elif pa.types.is_map(array.type):
        for name, entries in map_entries(array)._asdict().items():
            yield from _long_arrays(entries, f"{part}/{name}")
    elif pa.types.is_list(array.type):
        yield from _long_arrays(array.flatten(), f"{part}/element")
