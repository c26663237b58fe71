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

    at: int | None = Field(None, ge=0, le=2**31 - 1, description="Version to read. The head by default.")
    since: int | None = Field(
        None, ge=0, le=2**31 - 1, description="Read the changes after this version instead of a snapshot."
    )
    partition: str | None = Field(
        None,
        max_length=2000,
        description="COLUMN=VALUE, joined by /: one partition, or all partitions with these values.",
    )
    columns: list[str] | None = Field(None, max_length=1000, description="Only these columns.")
    keys: list[dict[str, Any]] | None = Field(None, max_length=100_000, description="Only the rows with these keys.")


class CompactRequest(StrictRequest):
    """Options of a compaction."""

    force: bool = Field(True, description="Compact even if it saves less than it costs.")
    chained: bool = Field(False, description="Chain deltas into fewer deltas instead of adding bases.")
    partitions: list[str] | None = Field(None, max_length=10_000)
    dry_run: bool = False


class CollectRequest(StrictRequest):
    """Options of a garbage collection."""

    retain: str | None = Field(
        None, max_length=40, description="Retention of old versions, such as 30d. That of the channel by default."
    )
    dry_run: bool = False


class DropRequest(StrictRequest):
    """Partitions to drop."""

    partition: str = Field(min_length=1, max_length=2000)
    dry_run: bool = False


class RestoreRequest(StrictRequest):
    """Version to restore."""

    at: int = Field(ge=0, le=2**31 - 1)
    dry_run: bool = False


class DryRunRequest(StrictRequest):
    """A change without further options."""

    dry_run: bool = False
