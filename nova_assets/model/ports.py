"""Protocols of the two things that the runtime stands on: a catalog and an engine.

``catalog/`` and ``engine/`` implement them; tests have a stub engine. Nothing here is imported at run time by them that
could make a cycle: only types.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from nova_assets.model.arrival import Arrival, ArrivalCounts, ArrivalState, ArrivalStatus
from nova_assets.model.backfill import Backfill, Cost, Part
from nova_assets.model.binding import Binding
from nova_assets.model.block import Block, DataFile, Manifest, StagedBlock
from nova_assets.model.channel import Channel
from nova_assets.model.channel_outline import Outline
from nova_assets.model.commit import Commit, CommitRequest, KeyedCommit
from nova_assets.model.cursor_switch import Switch
from nova_assets.model.execution import Begin, Execution, Pin, State
from nova_assets.model.external_table import Described, Seen
from nova_assets.model.maintenance import Collection, Facts
from nova_assets.model.partition_state import Failure, Made, Mark
from nova_assets.model.partitions import WHOLE
from nova_assets.model.published_version import Content, Edition
from nova_assets.model.read_strategy import Way
from nova_assets.model.schema import DataType, Schema
from nova_assets.model.seal import Seal, Sealing
from nova_assets.model.timeline import History, Instant, Position, Standing, Step
from nova_assets.model.token import Token
from nova_assets.model.warehouse_contents import Entry, Known, Upload
from nova_assets.short_repr import short_repr

if TYPE_CHECKING:
    from nova_assets.model.reads import Chain, Read, Snapshot

Frame = Any
"""What an engine computes with: a Spark DataFrame, or a list of rows in the stub engine."""


@dataclass(frozen=True, slots=True)
class ChannelState:
    """A registered channel as it stands: its definition, head and schema.

    Args:
        bases: it may be given a base (R15).
        news: the newest number at which it was given something; a dropped partition is no news (R19).
        retain: for how long old versions are kept.
        keep: partition column -> for how long its partitions are kept.
        since: when it was registered.
        looked: when the last look for files that were never announced began.
        seal: when its days or hours are complete.
        position: in its timeline.
    """

    __repr__ = short_repr

    channel: Channel
    head: int
    schema: Schema | None
    rows: int = 0
    bytes: int = 0
    blocks: int = 0
    updated_at: datetime | None = None
    bases: bool = False
    news: int = 0
    retain: str | None = None
    keep: Mapping[str, str] = field(default_factory=dict)
    since: datetime | None = None
    looked: datetime | None = None
    seal: Sealing | None = None
    position: Position = field(default_factory=Position)


@dataclass(frozen=True, slots=True)
class PartitionState:
    """One partition of a channel as it stands: the number of its last change, and what its blocks hold.

    Args:
        news: the newest number at which it was given something (R19).
        dropped: its last change is that it was dropped.
    """

    __repr__ = short_repr

    partition: str
    seq: int
    rows: int
    bytes: int
    blocks: int
    news: int = 0

    @property
    def dropped(self) -> bool:
        return self.seq > self.news


@dataclass(frozen=True, slots=True)
class Cursor:
    """How far a binding has read a channel: the pinned head of its last successful execution."""

    __repr__ = short_repr

    binding: str
    channel: str
    seq: int
    head: int
    partition: str = WHOLE
    channel_partition: str = WHOLE
    moved_at: datetime | None = None

    @property
    def lag(self) -> int:
        """Sequence numbers still unread."""
        return self.head - self.seq


@dataclass(frozen=True, slots=True)
class Unread:
    """What came to a channel, or to some of its partitions, after a number.

    Args:
        blocks, rows, bytes: of what was committed; a base that came together with what it changes counts by that.
        oldest: when the first of it was committed.
    """

    blocks: int = 0
    rows: int = 0
    bytes: int = 0
    oldest: datetime | None = None

    def said(self, now: datetime) -> str:
        """For people: how much, and since when."""
        waits = "" if self.oldest is None else f", the oldest for {(now - self.oldest).total_seconds():.0f} s"
        return f"{self.blocks} blocks, {self.rows} rows, {self.bytes} bytes{waits}"


@dataclass(frozen=True, slots=True)
class Firing:
    """A trigger that has fired: a row of the outbox, until an execution answers it.

    Args:
        n: counts the binding's firings in its partition, from 1.
        positions: trigger leaf -> the position up to which it has fired.
        attempt: counts runs requested for it, from 1.
        state: ``requested``, ``committed`` or ``abandoned``.
        why: it fired, for people; and why it was abandoned.
    """

    __repr__ = short_repr

    id: str
    binding: str
    n: int
    positions: Mapping[str, Any]
    attempt: int
    state: str
    at: datetime
    partition: str = WHOLE
    why: str = ""

    @property
    def run_key(self) -> str:
        where = f"[{self.partition}]" if self.partition else ""
        return f"{self.binding}{where}#{self.n}#{self.attempt}"


class Catalog(Protocol):
    """The transactional truth about channels (R17). Every method is one transaction; none lets a database error out."""

    url: str

    # definitions
    def register(
        self, channels: Sequence[Channel], bindings: Sequence[Binding] = (), replace: bool = False
    ) -> None: ...
    def check_registration(self, given: Sequence[Channel]) -> None: ...
    def channel(self, name: str) -> ChannelState: ...
    def channels(self, name: str | None = None) -> list[ChannelState]: ...
    def bindings(self) -> dict[str, dict[str, Any]]: ...

    # reading
    def history(
        self,
        channel: str,
        at: int | None = None,
        scope: str = WHOLE,
        since: int | None = None,
        *,
        back_to: int | None = None,
    ) -> History: ...
    def standing(self, channel: str) -> Standing: ...
    def steps(self, channel: str, since: Position, limit: int = 10_000) -> tuple[Standing, list[Step] | None]: ...
    def passed(self, channel: str, since: Position, limit: int) -> list[Step] | None: ...
    def told(
        self, channel: str, after: int, limit: int
    ) -> list[tuple[int, str, str, str, str, int | None, tuple[str, ...]]]: ...
    def named(self, channel: str, scope: str = WHOLE) -> tuple[Standing, list[str]]: ...
    def bootstrap(self, channel: str, partitions: Sequence[str]) -> tuple[Standing, History]: ...
    def partitions(self, channel: str, scope: str = WHOLE) -> list[PartitionState]: ...
    def unread(self, channel: str, after: int, scope: str = WHOLE) -> Unread: ...
    def history_there(
        self, channel: str, at: int | None, scope: str, since: int, back_to: int
    ) -> tuple[Standing, History]: ...
    def blocks(
        self, channel: str, at: int | None = None, scope: str = WHOLE, limit: int | None = None
    ) -> list[Block]: ...
    def timeline(self, channel: str, limit: int | None = None) -> list[Instant]: ...
    def cursors(self, binding: str | None = None) -> list[Cursor]: ...
    def positions(self, binding: str, partition: str = WHOLE) -> dict[tuple[str, str], int]: ...
    def lagging(self, channel: str, head: int) -> list[tuple[int, str]]: ...
    def has_consumers(self, channel: str) -> bool: ...

    def has_drops(self, channel: str) -> bool: ...
    def outlines(self, names: Sequence[str], numbers: int | None = None, scope: str = WHOLE) -> dict[str, Outline]: ...

    # upkeep
    def upkeep(self, channel: str, retain: float = 0.0, partitions: Sequence[str] | None = None) -> Facts: ...
    def collect(self, channel: str, retain: float = 0.0, partitions: Sequence[str] | None = None) -> Collection: ...
    def deletable(self, grace: float) -> list[tuple[str, str]]: ...
    def deleted(self, gone: Iterable[tuple[str, str]]) -> None: ...
    def reads_of_all(self, channel: str) -> int: ...

    # repair
    def identity(self) -> str: ...
    def warehouse(self) -> tuple[str | None, str | None]: ...
    def adopt_warehouse(self, identity: str, address: str) -> tuple[str, str]: ...
    def listed_file(self) -> str | None: ...
    def leftovers(self) -> list[tuple[Execution, tuple[StagedBlock, ...]]]: ...
    def known(self) -> Known: ...
    def give_up(self, channel: str, damaged: Iterable[str], retain: float = 0.0) -> Collection: ...
    def commits_on(self, channel: str) -> dict[str, bool]: ...
    def unmark_published(self, channel: str) -> None: ...

    # executions
    def begin(self, request: Begin) -> Execution: ...
    def preview(self, request: Begin) -> tuple[Pin, ...]: ...
    def switch(self, wanted: Switch) -> None: ...
    def execution(self, execution_id: str) -> Execution: ...
    def executions(
        self,
        binding: str | None = None,
        limit: int = 100,
        partition: str | None = None,
        *,
        run_id: str | None = None,
        state: State | None = None,
        among: Sequence[str] | None = None,
    ) -> list[Execution]: ...
    def at_work(self) -> list[Execution]: ...
    def finished(self) -> dict[tuple[str, str, str], int]: ...
    def renew(self, execution_id: str, epoch: int, lease: float) -> bool: ...
    def resume(
        self, execution_id: str, owner: str, lease: float, *, run_id: str | None = None, dead: Container[str] = ()
    ) -> Execution: ...
    def fail(self, execution_id: str, epoch: int, error: str, *, counts: bool = True) -> None: ...
    def abort(self, execution_id: str, reason: str, epoch: int | None = None, *, failed: bool = True) -> None: ...
    def end_read(self, execution_id: str) -> None: ...
    def damage(self) -> str | None: ...
    def settle(self, execution_id: str) -> Commit | None: ...

    # staging
    def stage(self, blocks: Sequence[StagedBlock]) -> None: ...
    def fill(self, block_id: str, manifest: Manifest) -> None: ...
    def drop_staged(self, execution_id: str, ports: Iterable[str]) -> None: ...
    def staged(self, execution_id: str) -> list[StagedBlock]: ...
    def sweepable(self, grace: float, again: float = 0.0) -> list[StagedBlock]: ...
    def swept(self, block_ids: Sequence[str], for_good: bool = False) -> None: ...

    # commits
    def commit(self, request: CommitRequest) -> Commit: ...
    def commit_of_key(self, channel: str, key: str) -> KeyedCommit | None: ...
    def commit_by_id(self, commit_id: str) -> Commit: ...
    def unpublished(self, limit: int = 100, channels: Iterable[str] | None = None) -> list[Commit]: ...
    def mark_published(self, commit_id: str) -> None: ...
    def claim_channels(self, location: str, writes: Iterable[str], reads: Iterable[str]) -> frozenset[str]: ...
    def publishers(self) -> dict[str, tuple[str, bool]]: ...

    # arrivals
    def announce(self, channel: str, found: Iterable[Arrival], at: datetime | None = None) -> list[Arrival]: ...
    def waiting(self, channel: str, limit: int) -> list[ArrivalStatus]: ...
    def arrivals(self, channel: str, state: ArrivalState | None = None, limit: int = 100) -> list[ArrivalStatus]: ...
    def versions(self, channel: str, places: Sequence[str]) -> dict[str, list[ArrivalStatus]]: ...
    def arrival_counts(self, channel: str) -> ArrivalCounts: ...

    def looked(self, channel: str, began: datetime) -> None: ...

    # seals
    def seals(self, channel: str, limit: int = 1000) -> list[Seal]: ...
    def latest_seals(self, channel: str) -> dict[str, Seal]: ...
    def seal_count(self, channel: str) -> int: ...

    # what a scheduler asks
    def heads(self) -> dict[str, int]: ...
    def given_since(self, channel: str, number: int) -> list[str]: ...
    def made(self, channel: str, partitions: Iterable[str] | None = None) -> dict[str, Made]: ...
    def mark(self, channel: str, partitions: Iterable[str], by: str = "", why: str = "", priority: int = 0) -> int: ...
    def unmark(self, channel: str | None = None, partitions: Sequence[str] | None = None) -> int: ...
    def marks(self) -> list[Mark]: ...
    def running(self) -> list[tuple[str, str]]: ...
    def failing(self) -> dict[tuple[str, str], Failure]: ...
    def spent(self, bindings: Iterable[str]) -> dict[tuple[str, str], Cost]: ...

    # backfills
    def start_backfill(self, asked: Backfill, parts: Sequence[tuple[str, str]]) -> Backfill: ...
    def backfill(self, backfill_id: str) -> Backfill: ...
    def backfills(self, limit: int = 100) -> list[Backfill]: ...
    def backfill_parts(self, backfill_id: str) -> list[Part]: ...
    def cancel_backfill(self, backfill_id: str) -> int: ...

    # editions
    def editions(self, channel: str, table: str | None = None) -> list[Edition]: ...
    def open_edition(
        self, execution_id: str, table: str, content: Content, fingerprint: str, after: int = 0
    ) -> Edition: ...
    def forget_editions(self, channel: str, table: str, numbers: Iterable[int]) -> None: ...

    # the outbox of triggers
    def last_firing(self, binding: str, partition: str = WHOLE) -> Firing | None: ...
    def firing(self, firing_id: str) -> Firing | None: ...
    def firings(
        self, binding: str | None = None, limit: int = 100, *, among: Sequence[str] | None = None
    ) -> list[Firing]: ...
    def requested(self, binding: str) -> frozenset[str]: ...
    def fire(
        self, binding: str, after_n: int, positions: Mapping[str, Any], partition: str = WHOLE, why: str = ""
    ) -> Firing | None: ...
    def retry_firing(self, firing_id: str, attempt: int) -> Firing | None: ...
    def end_firing(self, firing_id: str, state: str, why: str = "") -> None: ...
    def registered_at(self, binding: str) -> datetime: ...

    # who may do what through the service
    def add_token(self, token: Token) -> None: ...
    def token(self, token_id: str) -> Token | None: ...
    def tokens(self) -> list[Token]: ...
    def revoke_token(self, name: str) -> bool: ...

    def now(self) -> datetime: ...
    def check(self) -> str: ...
    def close(self) -> None: ...


class Engine(Protocol):
    """Carries out what plans say, over real data. It decides nothing and knows no catalog.

    Args:
        format: of the files that it writes.
        address: where the warehouse is: a path, or an address.
    """

    format: str

    @property
    def address(self) -> str: ...

    way: Way | None
    """The one that reads take wherever it leads there; None for the cheapest."""

    def read(self, read: Read) -> Frame:
        """The frame that a read describes; lazy where the engine is."""

    def fetch(self, read: Read) -> Frame:
        """The same, of which all rows are wanted in this process: computed now, where they are few."""

    def batches(self, read: Read, columns: Sequence[str] | None = None) -> Any:
        """The same as a ``pyarrow.RecordBatchReader``, a piece at a time: what is in memory at once is a row group, a
        cell, a portion of the partitions, or, where nothing else is possible, the whole.

        Its schema is that of ``to_arrow``. While nobody asks it for more, it has no file open.

        Args:
            columns: those of the rows that are wanted. Raises SchemaMismatch for one that they lack.
        """

    def check_sums(self, where: str, staged: Block, older: Sequence[Block], types: Mapping[str, DataType]) -> None:
        """Refuse a delta with which the sum of a key leaves its column's type.

        Args:
            where: names the channel in errors.
            staged: the delta, of one partition.
            older: the deltas that it comes on top of, the latest first, and the base below them, if there is one.
            types: of the summed columns.

        Raises:
            SumOverflow: with key, column and value.
        """

    def matching(self, snapshot: Snapshot | Frame, keys: Frame, on: Sequence[str], *, here: bool = False) -> Frame:
        """The rows of ``snapshot`` whose ``on`` columns occur in ``keys``.

        Args:
            here: all of them are wanted in this process.
        """

    def schema_of(self, frame: Frame) -> Schema:
        """The columns of a frame, ``_deleted`` included where it is there."""

    def one_evaluation(self, frames: Mapping[str, Frame]) -> AbstractContextManager[Mapping[str, Frame]]:
        """Frames such that what several of them share is evaluated once (R4)."""

    def write(
        self, frame: Frame, staged: StagedBlock, channel: Channel | None, schema: Schema, *, digest: bool = False
    ) -> Manifest:
        """Write a frame into the staged block's folder, fitted to ``schema``; checks keys and resolves ``order_by``
        (R11).

        ``channel`` is None for a private port, whose rows are written as they come. On a partitioned channel every
        file holds rows of one partition, which lies in ``staged.partition`` (R13). With ``digest``, the manifest has
        the digest of the rows.

        Raises:
            BadKey, SchemaMismatch, PartitionError: nothing of it is left.
        """

    def digest(self, frame: Frame, schema: Schema | None) -> str:
        """The digest that ``write`` would give of a frame; the same for the same rows in any order."""

    def rewrite(
        self, read: Snapshot | Chain, staged: StagedBlock, channel: Channel, schema: Schema
    ) -> tuple[Manifest, Way]:
        """Write what a channel holds already into the staged block's folder: a snapshot as a base, a chain as a delta.

        Files of the blocks that are read may be part of what is written as they are, where nothing in them changes.
        Gives by which way it was done, too.
        """

    def in_partition(self, frame: Frame, channel: Channel, scope: str, schema: Schema | None) -> Frame:
        """A frame with the partition columns that it lacks: as the scope says (R13), or as they follow from others."""

    def select(self, frame: Frame, columns: Sequence[str]) -> Frame:
        """Some columns of a frame. Raises SchemaMismatch for one that it lacks."""

    def to_arrow(self, frame: Frame) -> Any:
        """All rows of a frame, as a ``pyarrow.Table``."""

    def is_empty(self, frame: Frame) -> bool:
        """Whether a frame has no rows; evaluates as little as that takes."""

    def query(self, sql: str, values: Mapping[str, Any], frames: Mapping[str, Frame]) -> Frame:
        """The frame of a query in SQL, analysed and not computed.

        Args:
            sql: with ``{name}`` for each frame and ``:name`` for each value.

        Raises:
            QueryRefused: the engine's parser or analyser does not take it.
        """

    def is_frame(self, data: Any) -> bool:
        """Whether something is a frame of this engine, or an Arrow table."""

    def column_names(self, frame: Frame) -> Sequence[str]:
        """Names of a frame's columns, in their order."""

    def count(self, frame: Frame) -> int:
        """The rows of a frame, evaluated for it."""

    def close(self) -> None:
        """Let go of what is held for frames that were handed out."""

    def working(self) -> AbstractContextManager[None]:
        """A block in which the engine computes. Its batches fit the widest rows that are read in the block.

        Raises:
            EngineUnavailable: the engine's own process has ended meanwhile.
        """

    def computing(
        self, name: str, function: Callable[..., Any], tell: Callable[[int, int], None]
    ) -> AbstractContextManager[None]:
        """A block in which a user's function is called and its rows are computed.

        The engine's jobs in it are marked with a name. Every few seconds ``tell`` hears how many of the engine's tasks
        are done, and known of; an interruption of the block stops its jobs.
        """

    def take(self, data: Any, schema: Schema | None, *, evolves: bool = False) -> Frame:
        """A frame of this engine, or an Arrow table, out of what a user gives to ``insert``: frames, tables, paths.

        Args:
            data: what was given.
            schema: the channel's, to whose types values are converted; None to infer.
            evolves: the channel takes wider types than it has.

        Raises:
            BadRecord, EmptyInput, SchemaMismatch.
        """

    def frame(self, data: Any, schema: Schema) -> Frame:
        """The same as a frame of this engine; nothing at all is a frame without rows."""

    def take_folder(self, folder: Path, channel: Channel) -> Frame:
        """What a folder of Parquet files holds, in its own columns; those of partitions may be in the names of its
        folders, as Hive has them. It is listed for that: no read of a channel does so (R16)."""

    def dropped(self, old: Snapshot, new: Manifest) -> int:
        """How many rows of ``old`` the staged base lacks, counted as bags (R10)."""

    def delete(self, folder: str) -> None:
        """Remove a staged folder; only ever under the warehouse root."""

    def look(self, location: str) -> list[Seen]:
        """All files below the location of an external channel. Raises SourceUnavailable, NotSupported."""

    def described(self, channel: Channel, partition: str, files: Sequence[Seen]) -> Described:
        """What files of an external channel hold. Raises FileMissing, BadRecord, SchemaMismatch."""

    def delete_files(self, paths: Iterable[str]) -> None:
        """Remove files of collected blocks, and the folders that they leave empty; no matter if they are gone."""

    def set_aside(self, path: str) -> None:
        """Move what nobody lists to ``orphans/`` in the warehouse."""

    def listing(self) -> list[Entry]:
        """Everything that lies below ``blocks/``: for repair alone, which is no read (R16)."""

    def size(self, path: str) -> int | None:
        """The bytes of a listed file; None where it is not there."""

    def uploads(self) -> list[Upload]:
        """Uploads in parts below ``blocks/`` that are not finished. Raises NotSupported where they cannot be told."""

    def abort_upload(self, upload: Upload) -> None:
        """Give the room of an unfinished upload back."""

    def defect_of(self, file: DataFile, *, thorough: bool = False) -> str | None:
        """What is wrong with a listed file, after its path; None where it is as it was written.

        Args:
            thorough: all its bytes are read, and compared with its digest.
        """

    def where(self, files: Sequence[DataFile]) -> list[str]:
        """Where listed files are, each seen to be there. Raises FileMissing."""

    def mark(self, catalog: str, identity: str) -> None:
        """Leave a catalog's mark in the warehouse: that it writes here, and the warehouse's identity."""

    def mark_of(self, catalog: str) -> str | None:
        """The identity in a catalog's mark; None where it has left none, and empty in one of an older version."""

    def marks(self) -> frozenset[str]:
        """The identities of all catalogs that have left their mark."""

    def check(self) -> str:
        """One line about the warehouse. Raises WarehouseUnavailable."""

    @property
    def session(self) -> Any:
        """What tasks get as ``ctx.spark``."""


Clock = Callable[[], datetime]
