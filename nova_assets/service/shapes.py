"""JSON shapes of request bodies, and of answers for the description of the API.

The model's own JSON forms fill the shapes of answers.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field

from nova_assets.model.block import Kind, Origin
from nova_assets.model.execution import Execution, ExecutionState
from nova_assets.model.json_form import JsonForm
from nova_assets.model.timeline import Action
from nova_assets.service.http.problems import redact_paths


class Shape(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    @classmethod
    def of(cls, value: JsonForm) -> Self:
        """Shape of an object of the model."""
        return cls.model_validate(value.as_json())


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


class HealthShape(Shape):
    """Health of the service."""

    status: Literal["alive", "ready"]


class FileShape(Shape):
    """A file. ``path`` is relative to the warehouse, or a full address. ``ranges`` are minimum and maximum of key
    columns.
    """

    path: str
    rows: int
    bytes: int
    ranges: dict[str, list[Any]]
    place: dict[str, Any] | None = None
    partition: str = ""
    deletes: int = 0
    digest: str = ""
    footer_digest: str = ""
    unpacked: int = 0


class BlockShape(Shape):
    """A base ``B5`` or a delta ``Δ(4→5)``, with its files. ``channel_merge`` is the channel's merge model, if ``merge``
    belongs to this block alone.
    """

    id: str
    channel: str
    partition: str
    kind: Kind
    lo: int
    hi: int
    range: str
    origin: Origin
    commit: str
    rows: int
    bytes: int
    deletes: int
    format: str
    keeps_all: bool
    columns: list[Column]
    merge: dict[str, Any]
    channel_merge: dict[str, Any] | None = None
    layout: dict[str, Any] | None
    outside: dict[str, Any] | None
    files: list[FileShape]

    def without_content(self) -> BlockShape:
        """The block without columns, layout and files, for callers who may not read the channel."""
        nothing: dict[str, Any] = {"columns": [], "layout": None, "outside": None, "files": []}
        return self.model_copy(update=nothing)


class CommitShape(Shape):
    """A commit. ``numbers`` are the sequence numbers that channels took, ``heads`` their heads after the commit.

    ``repeated`` says that the idempotency key had been used before, and nothing was changed.
    """

    id: str
    execution: str
    binding: str | None
    at: datetime
    numbers: dict[str, int]
    heads: dict[str, int]
    repeated: bool
    blocks: list[BlockShape]
    details: dict[str, Any]


class CheckedShape(Shape):
    """Result of an insert's dry run."""

    channel: str
    kind: Kind
    head: int
    columns: list[Column]


class ChannelShape(Shape):
    """State of a channel. ``position`` is the position of its timeline, ``head`` its highest sequence number."""

    name: str
    head: int
    position: str
    definition: dict[str, Any]
    columns: list[Column] | None
    rows: int
    bytes: int
    blocks: int
    updated_at: datetime | None
    registered_at: datetime | None
    bases: bool
    news: int
    retain: str | None
    keep: dict[str, str]
    seal: dict[str, Any] | None


class PartitionShape(Shape):
    """State of a partition. ``seq`` is the number of its last change, ``news`` of the last change that added data."""

    partition: str
    seq: int
    news: int
    rows: int
    bytes: int
    blocks: int


class SchemaShape(Shape):
    """Columns of a channel at a sequence number. Null if the channel has no schema yet."""

    channel: str
    at: int
    columns: list[Column] | None


class CursorShape(Shape):
    """Cursor of a binding: the position up to which it has read a channel."""

    binding: str
    channel: str
    seq: int
    head: int
    lag: int
    partition: str
    channel_partition: str
    moved_at: datetime | None


class PinShape(Shape):
    """Pin of an execution on a channel."""

    channel: str
    head: int
    cursor: int | None
    partition: str
    has_run: bool = False


class ExecutionShape(Shape):
    """An execution. ``purpose`` is the kind of change for an execution without a binding."""

    id: str
    binding: str | None
    partition: str
    state: ExecutionState
    purpose: str
    epoch: int
    pins: list[PinShape]
    started_at: datetime
    lease_until: datetime
    finished_at: datetime | None
    error: str | None
    commit: str | None
    run_id: str | None
    firing: str | None
    version: int | None = None

    @classmethod
    def of_execution(cls, execution: Execution) -> Self:
        """Shape of an execution, whose error tells no paths of the service."""
        shape = cls.of(execution)
        return shape.model_copy(update={"error": None if shape.error is None else redact_paths(shape.error)})


class PendingShape(Shape):
    """Executions in progress that will change a channel, with compactions listed separately."""

    channel: str
    compactions: list[ExecutionShape]
    executions: list[ExecutionShape]


class FiringShape(Shape):
    """A firing of a trigger."""

    id: str
    binding: str
    partition: str
    n: int
    attempt: int
    state: str
    at: datetime
    why: str
    positions: dict[str, Any]


class CompactShape(Shape):
    """A block that compaction adds to a partition at a number: a base, or with ``since`` a chained delta."""

    partition: str
    at: int
    why: str
    since: int | None
    anew: bool
    range: str


class CompactedShape(Shape):
    """Result of a compaction or of its dry run. ``commit`` is null if nothing was added."""

    channel: str
    wanted: list[CompactShape]
    commit: CommitShape | None


class CollectedShape(Shape):
    """Blocks that were collected, or would be."""

    channel: str
    blocks: list[BlockShape]
    commit: str


class PlanShape(Shape):
    """Maintenance that a channel needs now."""

    channel: str
    compact: list[CompactShape]
    collect: list[BlockShape]


class RolledBackShape(Shape):
    """Removed files of a staged block. If its writing was cut off, ``partition`` is the scope of the write."""

    id: str
    partition: str
    folder: str
    files: list[str]


class InstantShape(Shape):
    """An action on a channel, ``requested`` or ``complete``. ``seq`` is the number that it took or at which it added a
    block. ``rolled_back`` has what a rollback removed.
    """

    action: Action
    state: Literal["requested", "complete"]
    seq: int | None
    at: datetime
    commit: str
    binding: str | None
    blocks: list[BlockShape]
    details: dict[str, Any]
    rolled_back: tuple[RolledBackShape, ...] = ()


class StepShape(Shape):
    """A complete instant with its ordinal ``n``. Actions without a sequence number have an ordinal, too.

    ``prefix`` is a hash of the timeline up to and including this instant.
    """

    n: int
    prefix: str
    action: str
    commit: str
    at: str
    seq: int | None
    partitions: list[str]


class InstantsShape(Shape):
    """Complete instants after a given one, oldest first. ``behind`` is the number of instants that the caller did not
    know.
    """

    channel: str
    after: int
    position: str
    behind: int
    instants: list[StepShape]


class TouchedShape(Shape):
    """Partitions touched by the instants after a given one, up to ``until``."""

    channel: str
    after: int
    until: int
    position: str
    partitions: list[str]


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
