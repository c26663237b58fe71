"""What the service answers, as it is told in its OpenAPI description; and back, for ``nova.connect``."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from nova_assets.model.block import Block, DataFile, Kind, Manifest, Origin
from nova_assets.model.channel import Channel
from nova_assets.model.commit import Commit
from nova_assets.model.execution import Execution, Pin, State
from nova_assets.model.external import Outside
from nova_assets.model.layout import Layout
from nova_assets.model.merge import model_from_json
from nova_assets.model.ports import ChannelState, Cursor, Firing, PartitionState
from nova_assets.model.schema import Schema
from nova_assets.model.seal import Sealing
from nova_assets.model.timeline import Action, Instant, Position
from nova_assets.model.upkeep import Collection
from nova_assets.plan.compact import Compact
from nova_assets.service.problems import without_paths


class Shape(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Column(BaseModel):
    """One column of a channel; ``type`` is Spark's."""

    model_config = ConfigDict(extra="allow")
    name: str
    type: str
    nullable: bool


class Problem(BaseModel):
    """What is wrong (RFC 9457): ``code`` is stable, ``next`` says what to do."""

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


def columns(schema: Schema | None) -> list[Column] | None:
    return None if schema is None else [Column(**f) for f in schema.as_json()]


def schema_of(some: list[Column] | None) -> Schema | None:
    return None if some is None else Schema.from_json([c.model_dump() for c in some])


class ChannelShape(Shape):
    """A channel as it stands. ``position`` says where its timeline is, ``head`` its highest sequence number."""

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

    @staticmethod
    def of(s: ChannelState) -> ChannelShape:
        return ChannelShape(
            name=s.channel.name,
            head=s.head,
            position=str(s.position),
            definition=s.channel.as_json(),
            columns=columns(s.schema),
            rows=s.rows,
            bytes=s.bytes,
            blocks=s.blocks,
            updated_at=s.updated_at,
            registered_at=s.since,
            bases=s.bases,
            news=s.news,
            retain=s.retain,
            keep=dict(s.keep),
            seal=None if s.seal is None else s.seal.as_json(),
        )

    def back(self) -> ChannelState:
        return ChannelState(
            Channel.from_json(self.definition),
            self.head,
            schema_of(self.columns),
            self.rows,
            self.bytes,
            self.blocks,
            self.updated_at,
            self.bases,
            self.news,
            self.retain,
            self.keep,
            self.registered_at,
            seal=None if self.seal is None else Sealing.from_json(self.seal),
            position=Position.parse(self.position),
        )


class PartitionShape(Shape):
    """A partition that holds something: ``seq`` is the number of its last change, ``news`` of the last that gave it
    something."""

    partition: str
    seq: int
    news: int
    rows: int
    bytes: int
    blocks: int

    @staticmethod
    def of(p: PartitionState) -> PartitionShape:
        return PartitionShape(
            partition=p.partition, seq=p.seq, news=p.news, rows=p.rows, bytes=p.bytes, blocks=p.blocks
        )

    def back(self) -> PartitionState:
        return PartitionState(self.partition, self.seq, self.rows, self.bytes, self.blocks, self.news)


class FileShape(Shape):
    """A file. ``path`` is below the warehouse, or a whole address; ``ranges`` are the least and greatest values of key
    columns."""

    path: str
    rows: int
    bytes: int
    ranges: dict[str, list[Any]]
    place: dict[str, Any] | None = None
    partition: str = ""
    deletes: int = 0


class BlockShape(Shape):
    """A base, ``B5``, or a delta, ``Δ(4→5)``, with its files."""

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
    layout: dict[str, Any] | None
    outside: dict[str, Any] | None
    files: list[FileShape]

    @staticmethod
    def of(b: Block) -> BlockShape:
        m = b.manifest
        return BlockShape(
            id=b.id,
            channel=b.channel,
            partition=b.partition,
            kind=b.kind,
            lo=b.lo,
            hi=b.hi,
            range=b.range,
            origin=b.origin,
            commit=b.commit_id,
            rows=b.rows,
            bytes=b.bytes,
            deletes=m.deletes,
            format=m.format,
            keeps_all=m.keeps_all,
            columns=columns(m.schema) or [],
            merge=b.merge.as_json(),
            layout=None if m.layout is None else m.layout.as_json(),
            outside=None if m.outside is None else m.outside.as_json(),
            files=[FileShape(**f.as_json()) for f in m.files],
        )

    def without_content(self) -> BlockShape:
        """What of a block may be told to who may not read it: nothing of its columns and of what is in them."""
        nothing: dict[str, Any] = {"columns": [], "layout": None, "outside": None, "files": []}
        return self.model_copy(update=nothing)

    def back(self) -> Block:
        manifest = Manifest(
            tuple(DataFile.from_json(f.model_dump()) for f in self.files),
            schema_of(self.columns) or Schema(()),
            self.deletes,
            self.format,
            self.keeps_all,
            None if self.layout is None else Layout.from_json(self.layout),
            None if self.outside is None else Outside.from_json(self.outside),
        )
        where = (self.id, self.channel, self.partition, self.kind, self.lo, self.hi)
        return Block(*where, manifest, model_from_json(self.merge), self.origin, self.commit)


class InstantShape(Shape):
    """One action on a channel, ``requested`` or ``complete``; ``seq`` is the number that it took, or at which it added
    a block."""

    action: Action
    state: Literal["requested", "complete"]
    seq: int | None
    at: datetime
    commit: str
    binding: str | None
    blocks: list[BlockShape]
    details: dict[str, Any]

    @staticmethod
    def of(i: Instant) -> InstantShape:
        return InstantShape(
            action=i.action,
            state=i.state,
            seq=i.seq,
            at=i.at,
            commit=i.commit_id,
            binding=i.binding,
            blocks=[BlockShape.of(b) for b in i.blocks],
            details=dict(i.details),
        )

    def back(self) -> Instant:
        blocks = tuple(b.back() for b in self.blocks)
        return Instant(self.action, self.state, self.seq, self.at, self.commit, self.binding, blocks, self.details)


class StepShape(Shape):
    """A complete instant as it is counted: every action has a number ``n``, those that take no sequence number too.
    ``prefix`` is a hash of it and all before it."""

    n: int
    prefix: str
    action: str
    commit: str
    at: str
    seq: int | None
    partitions: list[str]


class InstantsShape(Shape):
    """Complete instants after one, oldest first; ``behind`` is how many there are that the asker did not know."""

    channel: str
    after: int
    position: str
    behind: int
    instants: list[StepShape]


class TouchedShape(Shape):
    """The partitions that the instants after one have touched, up to ``until``."""

    channel: str
    after: int
    until: int
    position: str
    partitions: list[str]


class CursorShape(Shape):
    """How far a binding has read a channel."""

    binding: str
    channel: str
    seq: int
    head: int
    lag: int
    partition: str
    channel_partition: str
    moved_at: datetime | None

    @staticmethod
    def of(c: Cursor) -> CursorShape:
        return CursorShape(
            binding=c.binding,
            channel=c.channel,
            seq=c.seq,
            head=c.head,
            lag=c.lag,
            partition=c.partition,
            channel_partition=c.channel_partition,
            moved_at=c.moved_at,
        )

    def back(self) -> Cursor:
        where = (self.partition, self.channel_partition)
        return Cursor(self.binding, self.channel, self.seq, self.head, *where, self.moved_at)


class PinShape(Shape):
    """What an execution reads of a channel."""

    channel: str
    head: int
    cursor: int | None
    partition: str


class ExecutionShape(Shape):
    """An execution; ``purpose`` is what it does to a channel, where it does not execute a binding."""

    id: str
    binding: str | None
    partition: str
    state: State
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

    @staticmethod
    def of(e: Execution) -> ExecutionShape:
        pins = [
            PinShape(channel=p.channel, head=p.head, cursor=p.cursor, partition=p.partition) for p in e.pins.values()
        ]
        return ExecutionShape(
            id=e.id,
            binding=e.binding,
            partition=e.partition,
            state=e.state,
            purpose=e.purpose,
            epoch=e.epoch,
            pins=sorted(pins, key=lambda p: p.channel),
            started_at=e.started_at,
            lease_until=e.lease_until,
            finished_at=e.finished_at,
            error=None if e.error is None else without_paths(e.error),
            commit=e.commit_id,
            run_id=e.run_id,
            firing=e.firing_id,
        )

    def back(self) -> Execution:
        return Execution(
            self.id,
            self.binding,
            self.partition,
            self.state,
            self.epoch,
            {p.channel: Pin(p.channel, p.head, p.cursor, p.partition) for p in self.pins},
            "",
            self.started_at,
            self.lease_until,
            self.finished_at,
            self.error,
            self.commit,
            self.run_id,
            self.firing,
            self.purpose,
        )


class PendingShape(Shape):
    """What is under way on a channel: compactions apart from whatever else will change it."""

    channel: str
    compactions: list[ExecutionShape]
    executions: list[ExecutionShape]


class FiringShape(Shape):
    """A trigger that has fired."""

    id: str
    binding: str
    partition: str
    n: int
    attempt: int
    state: str
    at: datetime
    why: str
    positions: dict[str, Any]

    @staticmethod
    def of(f: Firing) -> FiringShape:
        return FiringShape(
            id=f.id,
            binding=f.binding,
            partition=f.partition,
            n=f.n,
            attempt=f.attempt,
            state=f.state,
            at=f.at,
            why=f.why,
            positions=dict(f.positions),
        )

    def back(self) -> Firing:
        return Firing(
            self.id, self.binding, self.n, self.positions, self.attempt, self.state, self.at, self.partition, self.why
        )


class CommitShape(Shape):
    """What was committed: ``numbers`` are those that channels took, ``heads`` where they stand; ``repeated`` says that
    the idempotency key had been used, and nothing was done."""

    id: str
    execution: str
    binding: str | None
    at: datetime
    numbers: dict[str, int]
    heads: dict[str, int]
    repeated: bool
    blocks: list[BlockShape]
    details: dict[str, Any]

    @staticmethod
    def of(c: Commit) -> CommitShape:
        return CommitShape(
            id=c.id,
            execution=c.execution_id,
            binding=c.binding,
            at=c.at,
            numbers=dict(c.numbers),
            heads=dict(c.heads),
            repeated=c.repeated,
            blocks=[BlockShape.of(b) for b in c.blocks],
            details=dict(c.details),
        )

    def back(self) -> Commit:
        return Commit(
            self.id,
            self.execution,
            self.binding,
            self.at,
            self.numbers,
            tuple(b.back() for b in self.blocks),
            self.heads,
            repeated=self.repeated,
            details=self.details,
        )


class CheckedShape(Shape):
    """What an insert would do."""

    channel: str
    kind: Kind
    head: int
    columns: list[Column]


class CompactShape(Shape):
    """What upkeep adds to a partition at a number: a base, or with ``since`` a chained delta."""

    partition: str
    at: int
    why: str
    since: int | None
    anew: bool
    range: str

    @staticmethod
    def of(c: Compact) -> CompactShape:
        return CompactShape(partition=c.partition, at=c.at, why=c.why, since=c.since, anew=c.anew, range=c.range)

    def back(self) -> Compact:
        return Compact(self.partition, self.at, self.why, self.since, self.anew)


class CompactedShape(Shape):
    """What was added, or would be; ``commit`` is null where nothing was."""

    channel: str
    wanted: list[CompactShape]
    commit: CommitShape | None


class CollectedShape(Shape):
    """The blocks that were taken, or would be."""

    channel: str
    blocks: list[BlockShape]
    commit: str

    @staticmethod
    def of(c: Collection) -> CollectedShape:
        return CollectedShape(channel=c.channel, blocks=[BlockShape.of(b) for b in c.blocks], commit=c.commit_id)

    def back(self) -> Collection:
        return Collection(self.channel, tuple(b.back() for b in self.blocks), self.commit)


class PlanShape(Shape):
    """What upkeep would do to a channel now."""

    channel: str
    compact: list[CompactShape]
    collect: list[BlockShape]


class KeptBlock(BaseModel):
    """A block of a view, and its files. ``schema``, ``merge`` and ``layout`` are hashes."""

    model_config = ConfigDict(extra="allow")
    block: dict[str, Any]
    files: list[FileShape]


class SnapshotFiles(BaseModel):
    """The files of a snapshot: of each partition the newest base, and the deltas that lead on. ``links`` lead from the
    position that was given to the one that is answered."""

    channel: str
    partition: str
    at: int
    position: str
    links: list[list[str]]
    kind: Literal["snapshot"]
    blocks: list[KeptBlock]


class ChangedPart(BaseModel):
    """How some partitions changed: by a ``chain`` of deltas, by whatever is in a ``snapshot``, or by the ``diff`` of
    what there was and what there is."""

    how: Literal["chain", "diff", "snapshot"]
    old: list[KeptBlock]
    new: list[KeptBlock]


class ChangedFiles(BaseModel):
    """The files that tell what changed after ``since``, up to ``at``."""

    channel: str
    partition: str
    at: int
    since: int
    position: str
    links: list[list[str]]
    kind: Literal["changes"]
    parts: list[ChangedPart]


class HistoryShape(BaseModel):
    """What a plan needs of a channel."""

    model_config = ConfigDict(extra="allow")
    channel: str
    scope: str
    head: int
    position: str
    links: list[list[str]]
    blocks: list[KeptBlock]


class HealthShape(Shape):
    """How the service is."""

    status: Literal["alive", "ready"]


class SchemaShape(Shape):
    """The columns of a channel at a number; null where nothing has given them yet."""

    channel: str
    at: int
    columns: list[Column] | None


class Asked(Shape):
    """What is asked for, in the very types: a text is no number, and 0 no false."""

    model_config = ConfigDict(strict=True)


class ReadRequest(Asked):
    """Which rows are wanted."""

    at: int | None = Field(None, ge=0, le=2**31 - 1, description="The version; the head by default.")
    since: int | None = Field(None, ge=0, le=2**31 - 1, description="The changes after this version, instead.")
    partition: str | None = Field(None, max_length=2000, description="COLUMN=VALUE, joined by /.")
    columns: list[str] | None = Field(None, max_length=1000, description="These columns only.")
    keys: list[dict[str, Any]] | None = Field(None, max_length=100_000, description="The rows of these keys only.")


class CompactRequest(Asked):
    """What is to be compacted."""

    force: bool = Field(True, description="Also where it is not worth it.")
    chained: bool = Field(False, description="Chain deltas into fewer, instead of adding bases.")
    partitions: list[str] | None = Field(None, max_length=10_000)
    dry_run: bool = False


class CollectRequest(Asked):
    """What is to be collected."""

    retain: str | None = Field(None, max_length=40, description="How long old versions are kept, such as 30d.")
    dry_run: bool = False


class DropRequest(Asked):
    """Which partitions are to be dropped."""

    partition: str = Field(min_length=1, max_length=2000)
    dry_run: bool = False


class RestoreRequest(Asked):
    """Which version is to be restored."""

    at: int = Field(ge=0, le=2**31 - 1)
    dry_run: bool = False
