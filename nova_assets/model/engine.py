"""The protocol of an engine: how blocks are read, tasks run, and rows staged."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from nova_assets.model.block import Block, DataFile, Manifest, StagedBlock
from nova_assets.model.channel import Channel
from nova_assets.model.external_files import ExternalFileInfo
from nova_assets.model.external_table import ExternalFilesContent
from nova_assets.model.read_strategy import ReadStrategy
from nova_assets.model.schema import DataType, Schema
from nova_assets.model.warehouse_contents import UnfinishedUpload, WarehouseEntry

if TYPE_CHECKING:
    from nova_assets.model.reads import Chain, Read, Snapshot


Frame = Any
"""What an engine computes with: a Spark DataFrame, or a list of rows in the stub engine."""


class Engine(Protocol):
    """Carries out what plans say, over real data. It decides nothing and knows no catalog.

    Args:
        format: of the files that it writes.
        address: where the warehouse is: a path, or an address.
    """

    format: str

    @property
    def address(self) -> str: ...

    forced_strategy: ReadStrategy | None
    """The one that reads take wherever it leads there; None for the cheapest."""

    def read(self, read: Read) -> Frame:
        """The frame that a read describes; lazy where the engine is."""

    def fetch(self, read: Read) -> Frame:
        """The same, of which all rows are wanted in this process: computed now, where they are few."""

    def read_batches(self, read: Read, columns: Sequence[str] | None = None) -> Any:
        """The same as a ``pyarrow.RecordBatchReader``, a piece at a time: what is in memory at once is a row group, a
        cell, a portion of the partitions, or, where nothing else is possible, the whole.

        Its schema is that of ``to_arrow``. While nobody asks it for more, it has no file open.

        Args:
            columns: those of the rows that are wanted. Raises SchemaMismatch for one that they lack.
        """

    def check_sums(
        self, error_label: str, staged: Block, earlier_blocks: Sequence[Block], type_by_column: Mapping[str, DataType]
    ) -> None:
        """Refuse a delta with which the sum of a key leaves its column's type.

        Args:
            error_label: names the channel in errors.
            staged: the delta, of one partition.
            earlier_blocks: the deltas that it comes on top of, the latest first, and the base below them, if there is
                one.
            type_by_column: of the summed columns.

        Raises:
            SumOverflow: with key, column and value.
        """

    def matching(
        self, snapshot: Snapshot | Frame, keys: Frame, on: Sequence[str], *, in_process: bool = False
    ) -> Frame:
        """The rows of ``snapshot`` whose ``on`` columns occur in ``keys``.

        Args:
            in_process: all of them are wanted in this process.
        """

    def schema_of(self, frame: Frame) -> Schema:
        """The columns of a frame, ``_deleted`` included where it is there."""

    def evaluate_once(self, frames: Mapping[str, Frame]) -> AbstractContextManager[Mapping[str, Frame]]:
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

    def frame_digest(self, frame: Frame, schema: Schema | None) -> str:
        """The digest that ``write`` would give of a frame; the same for the same rows in any order."""

    def rewrite(
        self, read: Snapshot | Chain, staged: StagedBlock, channel: Channel, schema: Schema
    ) -> tuple[Manifest, ReadStrategy]:
        """Write what a channel holds already into the staged block's folder: a snapshot as a base, a chain as a delta.

        Files of the blocks that are read may be part of what is written as they are, where nothing in them changes.
        Gives by which way it was done, too.
        """

    def add_partition_columns(self, frame: Frame, channel: Channel, scope: str, schema: Schema | None) -> Frame:
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

    def computation_scope(self) -> AbstractContextManager[None]:
        """A block in which the engine computes. Its batches fit the widest rows that are read in the block.

        Raises:
            EngineUnavailable: the engine's own process has ended meanwhile.
        """

    def task_computation(
        self, job_name: str, function: Callable[..., Any], on_progress: Callable[[int, int], None]
    ) -> AbstractContextManager[None]:
        """A block in which a user's function is called and its rows are computed.

        The engine's jobs in it are marked with a name. Every few seconds ``on_progress`` hears how many of the
        engine's tasks are done, and known of; an interruption of the block stops its jobs.
        """

    def convert_input(self, data: Any, schema: Schema | None, *, allow_widening: bool = False) -> Frame:
        """A frame of this engine, or an Arrow table, out of what a user gives to ``insert``: frames, tables, paths.

        Args:
            data: what was given.
            schema: the channel's, to whose types values are converted; None to infer.
            allow_widening: the channel takes wider types than it has.

        Raises:
            BadRecord, EmptyInput, SchemaMismatch.
        """

    def to_frame(self, data: Any, schema: Schema) -> Frame:
        """The same as a frame of this engine; nothing at all is a frame without rows."""

    def read_parquet_folder(self, folder: Path, channel: Channel) -> Frame:
        """What a folder of Parquet files holds, in its own columns; those of partitions may be in the names of its
        folders, as Hive has them. It is listed for that: no read of a channel does so (R16)."""

    def count_dropped_rows(self, old: Snapshot, new: Manifest) -> int:
        """How many rows of ``old`` the staged base lacks, counted as bags (R10)."""

    def delete_staged_folder(self, folder: str) -> None:
        """Remove a staged folder; only ever under the warehouse root."""

    def list_external_files(self, location: str) -> list[ExternalFileInfo]:
        """All files below the location of an external channel. Raises SourceUnavailable, NotSupported."""

    def describe_external_files(
        self, channel: Channel, partition: str, files: Sequence[ExternalFileInfo]
    ) -> ExternalFilesContent:
        """What files of an external channel hold. Raises FileMissing, BadRecord, SchemaMismatch."""

    def delete_files(self, paths: Iterable[str]) -> None:
        """Remove files of collected blocks, and the folders that they leave empty; no matter if they are gone."""

    def move_to_orphans(self, path: str) -> None:
        """Move what nobody lists to ``orphans/`` in the warehouse."""

    def list_warehouse(self) -> list[WarehouseEntry]:
        """Everything that lies below ``blocks/``: for repair alone, which is no read (R16)."""

    def file_size(self, path: str) -> int | None:
        """The bytes of a listed file; None where it is not there."""

    def unfinished_uploads(self) -> list[UnfinishedUpload]:
        """Uploads in parts below ``blocks/`` that are not finished. Raises NotSupported where they cannot be told."""

    def abort_upload(self, upload: UnfinishedUpload) -> None:
        """Give the room of an unfinished upload back."""

    def file_defect(self, file: DataFile, *, thorough: bool = False) -> str | None:
        """What is wrong with a listed file, after its path; None where it is as it was written.

        Args:
            thorough: all its bytes are read, and compared with its digest.
        """

    def locate_files(self, files: Sequence[DataFile]) -> list[str]:
        """Where listed files are, each seen to be there. Raises FileMissing."""

    def write_catalog_marker(self, catalog_id: str, identity: str) -> None:
        """Leave a catalog's mark in the warehouse: that it writes here, and the warehouse's identity."""

    def read_catalog_marker(self, catalog_id: str) -> str | None:
        """The identity in a catalog's mark; None where it has left none, and empty in one of an older version."""

    def catalog_identities(self) -> frozenset[str]:
        """The identities of all catalogs that have left their mark."""

    def check_warehouse(self) -> str:
        """One line about the warehouse. Raises WarehouseUnavailable."""

    @property
    def session(self) -> Any:
        """What tasks get as ``ctx.spark``."""
