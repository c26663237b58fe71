"""What the service is asked in bodies."""

from __future__ import annotations

from typing import Any

from pydantic import ConfigDict, Field

from nova_assets.service.shapes.shape import Shape


class StrictRequest(Shape):
    """What is asked for, in the very types: a text is no number, and 0 no false."""

    model_config = ConfigDict(strict=True)


class ReadRequest(StrictRequest):
    """Which rows are wanted."""

    at: int | None = Field(None, ge=0, le=2**31 - 1, description="The version; the head by default.")
    since: int | None = Field(None, ge=0, le=2**31 - 1, description="The changes after this version, instead.")
    partition: str | None = Field(None, max_length=2000, description="COLUMN=VALUE, joined by /.")
    columns: list[str] | None = Field(None, max_length=1000, description="These columns only.")
    keys: list[dict[str, Any]] | None = Field(None, max_length=100_000, description="The rows of these keys only.")


class CompactRequest(StrictRequest):
    """What is to be compacted."""

    force: bool = Field(True, description="Also where it is not worth it.")
    chained: bool = Field(False, description="Chain deltas into fewer, instead of adding bases.")
    partitions: list[str] | None = Field(None, max_length=10_000)
    dry_run: bool = False


class CollectRequest(StrictRequest):
    """What is to be collected."""

    retain: str | None = Field(None, max_length=40, description="How long old versions are kept, such as 30d.")
    dry_run: bool = False


class DropRequest(StrictRequest):
    """Which partitions are to be dropped."""

    partition: str = Field(min_length=1, max_length=2000)
    dry_run: bool = False


class RestoreRequest(StrictRequest):
    """Which version is to be restored."""

    at: int = Field(ge=0, le=2**31 - 1)
    dry_run: bool = False
