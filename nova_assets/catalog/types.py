"""How values are kept in columns, alike on both databases: moments, JSON, schemas and merge models."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from sqlalchemy import DateTime, Dialect, Text
from sqlalchemy.types import TypeDecorator

from nova_assets.model.merge import MergeModel, model_from_json
from nova_assets.model.schema import Schema


class UtcTime(TypeDecorator[datetime]):
    """A moment. Kept in UTC, in a form that compares rightly: SQLite has only texts, so theirs all have one width."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError(f"the catalog keeps moments with a zone only, not {value!r}")
        utc = value.astimezone(UTC)
        return utc if dialect.name == "postgresql" else utc.replace(tzinfo=None)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


class Json(TypeDecorator[Any]):
    """A JSON value as text: the database's own JSON types would lose the order of keys, or refuse NaN and NUL."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: Any | None, dialect: Dialect) -> str | None:
        return None if value is None else json.dumps(value, separators=(",", ":"), default=str)

    def process_result_value(self, value: str | None, dialect: Dialect) -> Any | None:
        return None if value is None else json.loads(value)


class SchemaText(TypeDecorator[Schema]):
    """A schema. Thousands of blocks share a few, so each text is parsed once."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: Schema | None, dialect: Dialect) -> str | None:
        return None if value is None else json.dumps(value.as_json(), separators=(",", ":"))

    def process_result_value(self, value: str | None, dialect: Dialect) -> Schema | None:
        return None if value is None else _schema(value)


class MergeText(TypeDecorator[MergeModel]):
    """A merge model; functions stay references (R18)."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: MergeModel | None, dialect: Dialect) -> str | None:
        return None if value is None else json.dumps(value.as_json(), separators=(",", ":"))

    def process_result_value(self, value: str | None, dialect: Dialect) -> MergeModel | None:
        return None if value is None else _model(value)


@lru_cache(maxsize=512)
def _schema(text: str) -> Schema:
    return Schema.from_json(json.loads(text))


@lru_cache(maxsize=512)
def _model(text: str) -> MergeModel:
    return model_from_json(json.loads(text))
