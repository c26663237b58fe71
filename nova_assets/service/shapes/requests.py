"""JSON shapes of request bodies."""

from __future__ import annotations

from typing import Any

from pydantic import ConfigDict, Field

from nova_assets.service.shapes.shape import Shape


class StrictRequest(Shape):
    """Request body with strict types: a string is no number, and 0 is not false."""

    model_config = ConfigDict(strict=True)


class ReadRequest(StrictRequest):
    """Selection of rows."""

    at: int | None = Field(None, ge=0, le=2**31 - 1, description="The version; the head by default.")
    since: int | None = Field(None, ge=0, le=2**31 - 1, description="The changes after this version, instead.")
    partition: str | None = Field(None, max_length=2000, description="COLUMN=VALUE, joined by /.")
    columns: list[str] | None = Field(None, max_length=1000, description="These columns only.")
    keys: list[dict[str, Any]] | None = Field(None, max_length=100_000, description="The rows of these keys only.")


class CompactRequest(StrictRequest):
    """Options of a compaction."""

    force: bool = Field(True, description="Also where it is not worth it.")
    chained: bool = Field(False, description="Chain deltas into fewer, instead of adding bases.")
    partitions: list[str] | None = Field(None, max_length=10_000)
    dry_run: bool = False


class CollectRequest(StrictRequest):
    """Options of a garbage collection."""

    retain: str | None = Field(None, max_length=40, description="How long old versions are kept, such as 30d.")
    dry_run: bool = False


class DropRequest(StrictRequest):
    """Partitions to drop."""

    partition: str = Field(min_length=1, max_length=2000)
    dry_run: bool = False


class RestoreRequest(StrictRequest):
    """Version to restore."""

    at: int = Field(ge=0, le=2**31 - 1)
    dry_run: bool = False
