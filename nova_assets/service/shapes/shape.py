"""Base class of the JSON shapes, and shapes shared by several routes."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

from nova_assets.model.schema import Schema


class Shape(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Column(BaseModel):
    """A column of a channel. ``type`` is a Spark type."""

    model_config = ConfigDict(extra="allow")
    name: str
    type: str
    nullable: bool


class Problem(BaseModel):
    """An error (RFC 9457). ``code`` is stable, ``next`` names the next step."""

    model_config = ConfigDict(extra="allow")
    type: str
    title: str
    status: int
    detail: str
    code: str
    found: str | None = None
    expected: str | None = None
    next: str | None = None
    request_id: str | None = None


def columns_from_schema(schema: Schema | None) -> list[Column] | None:
    return None if schema is None else [Column(**f) for f in schema.as_json()]


def schema_from_columns(columns: list[Column] | None) -> Schema | None:
    return None if columns is None else Schema.from_json([c.model_dump() for c in columns])


class HealthShape(Shape):
    """Health of the service."""

    status: Literal["alive", "ready"]
