"""Schemas from user declarations: Spark DDL or a pyarrow schema."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nova_assets.errors import DefinitionError
from nova_assets.model.schema import parse_ddl

if TYPE_CHECKING:
    import pyarrow as pa
from nova_assets.model.schema import Schema


def schema_from_declaration(declaration: str | Schema | pa.Schema | None) -> Schema | None:
    """Schema from a declaration: Spark DDL, a ``pyarrow.Schema``, or None (the first block determines the schema).

    Raises:
        DefinitionError: the text is not Spark DDL, or Spark lacks one of the types.
    """
    if declaration is None or isinstance(declaration, Schema):
        return declaration
    if isinstance(declaration, str):
        return parse_ddl(declaration)
    import pyarrow as pa

    if isinstance(declaration, pa.Schema):
        from nova_assets.model.arrow_types import from_arrow_schema

        return from_arrow_schema(declaration)
    raise DefinitionError(
        "a schema has an unsupported type",
        found=type(declaration).__name__,
        expected="Spark DDL text or a pyarrow.Schema",
    )
