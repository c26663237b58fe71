"""Schemas from whatever users declare them as: Spark DDL or a pyarrow schema."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nova_assets.errors import DefinitionError
from nova_assets.model.schema import parse_ddl

if TYPE_CHECKING:
    import pyarrow as pa
from nova_assets.model.schema import Schema


def schema_of(given: str | Schema | pa.Schema | None) -> Schema | None:
    """A schema from what a user may write: Spark DDL, a ``pyarrow.Schema``, or nothing (the first block gives it).

    Raises:
        DefinitionError: the text is not Spark DDL, or a type is not one that Spark has.
    """
    if given is None or isinstance(given, Schema):
        return given
    if isinstance(given, str):
        return parse_ddl(given)
    import pyarrow as pa

    if isinstance(given, pa.Schema):
        from nova_assets.model.arrow_types import from_arrow

        return from_arrow(given)
    raise DefinitionError(
        "a schema is of no known kind", found=type(given).__name__, expected="Spark DDL text or a pyarrow.Schema"
    )
