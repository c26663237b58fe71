"""Column types that both databases store in the same way."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any

from sqlalchemy import (
    JSON,
    BigInteger,
)
from sqlalchemy.engine import Dialect
from sqlalchemy.types import TypeDecorator

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class UtcMicroseconds(TypeDecorator[datetime]):
    """A time as microseconds since 1970 in UTC: equal in every database, and compared as a number."""

    impl = BigInteger
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> int | None:
        return None if value is None else (value - EPOCH) // timedelta(microseconds=1)

    def process_result_value(self, value: Any, dialect: Dialect) -> datetime | None:
        return None if value is None else EPOCH + timedelta(microseconds=int(value))


class CachedJson(TypeDecorator[Any]):
    """JSON that many rows share, such as a schema. It is decoded once, so readers must not modify it."""

    impl = JSON
    cache_ok = True

    def result_processor(self, dialect: Dialect, coltype: Any) -> Callable[[Any], Any] | None:
        decode = super().result_processor(dialect, coltype)
        return None if decode is None else lru_cache(maxsize=512)(decode)
