"""Protocol of an engine, which reads blocks, runs tasks and stages rows, and of its parts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

from nova_assets.model.block import Block, Manifest, StagedBlock
from nova_assets.model.block_options import NO_OPTIONS, BlockOptions
from nova_assets.model.channel import Channel
from nova_assets.model.damage import WarehouseFiles
from nova_assets.model.database_table import DatabaseRead
from nova_assets.model.external_table import ExternalFilesContent, ExternalFormat
from nova_assets.model.file_source import ExternalFileInfo
from nova_assets.model.published_version import ExistingTableFile, TableFile, TableFileLayout, TableStore
from nova_assets.model.read_strategy import ReadStrategy
from nova_assets.model.resources import NO_PARALLELISM, Parallelism
from nova_assets.model.schema import DataType, Schema

if TYPE_CHECKING:
    from nova_assets.model.reads import DeltaChain, Read, Snapshot


Frame = Any
"""Table type of an engine: a Spark DataFrame, or a list of rows in the stub engine."""


class Reader(Protocol):
    """Reads rows of blocks."""

    forced_strategy: ReadStrategy | None
    """Read strategy to use wherever it is applicable; None for the cheapest strategy."""

    def read(self, read: Read) -> Frame:
        """Frame that a read describes; lazy if the engine is lazy."""

    def fetch(self, read: Read) -> Frame:
        """Frame whose rows this process needs completely; computed eagerly if the rows are few."""

    def read_table(self, read: Read, columns: Sequence[str] | None = None) -> Any:
        """``pyarrow.Table`` with all rows of a read, computed in this process if Arrow can merge them.

        Args:
            columns: as for ``read_batches``.
        """

    def read_batches(self, read: Read, columns: Sequence[str] | None = None) -> Any:
        """``pyarrow.RecordBatchReader`` over a read, batch by batch.

        Memory holds one row group, one merge unit, or one group of partitions at a time. Only a read that cannot be
        split is held as a whole. The schema is that of ``to_arrow``. No file stays open between requests for batches.

        Args:
            read: the read.
            columns: columns to return; None for all. Raises SchemaMismatch for a column that the rows lack.
        """

    def filter_by_keys(
        self,
        snapshot: Snapshot | Frame,
        keys: Frame,
        key_columns: Sequence[str],
        *,
        in_process: bool = False,
        may_be_table: bool = False,
    ) -> Frame:
        """Rows of ``snapshot`` whose ``key_columns`` columns occur in ``keys``.

        Args:
            snapshot: the rows to search.
            keys: frame with the ``key_columns`` columns.
            key_columns: the columns to compare; empty to compare all columns, with nulls equal to nulls.
            in_process: this process needs all resulting rows.
            may_be_table: whether rows that are in this process are returned as a table.
        """

    def count_dropped_rows(self, old: Snapshot, new: Manifest) -> int:
        """Number of rows of ``old`` that the staged base lacks, compared as multisets (R10)."""

    def check_no_sum_overflow(
        self, error_label: str, staged: Block, earlier_blocks: Sequence[Block], type_by_column: Mapping[str, DataType]
    ) -> None:
        """Reject a delta that makes the sum of a key exceed the type of its column.

        Args:
            error_label: name of the channel in errors.
            staged: the delta, of one partition.
            earlier_blocks: the deltas below it, newest first, then the base below those, if there is a base.
            type_by_column: types of the summed columns.

        Raises:
            SumOverflow: with key, column and value.
        """


class Writer(Protocol):
    """Writes rows as staged blocks."""

    def write(
        self,
        frame: Frame,
        staged: StagedBlock,
        channel: Channel | None,
        schema: Schema,
        *,
        digest: bool = False,
        options: BlockOptions = NO_OPTIONS,
    ) -> Manifest:
        """Write a frame into the folder of the staged block, converted to ``schema``.

        Checks keys and resolves ``order_by`` (R11). On a partitioned channel every file holds rows of one partition,
        which lies in ``staged.partition`` (R13).

        Args:
            frame: the rows.
            staged: the staged block.
            channel: None for a private port, whose rows are written unchanged.
            schema: the columns to write.
            options: merge model and file format of the block.
            digest: compute the hash of the rows for the manifest.

        Raises:
            BadKey, SchemaMismatch, PartitionError: and the engine removes the files that it wrote.
        """

    def frame_digest(self, frame: Frame, schema: Schema | None) -> str:
        """Hash that ``write`` would compute for a frame; independent of the order of rows."""


class Rewriter(Protocol):
    """Writes rows of a channel again, for compaction."""

    def rewrite(
        self, read: Snapshot | DeltaChain, staged: StagedBlock, channel: Channel, schema: Schema
    ) -> tuple[Manifest, ReadStrategy]:
        """Write existing data of a channel into the folder of the staged block: a snapshot as a base, a chain as a
        delta.

        The new block may reuse files of the blocks that are read, if nothing in those files changes.

        Returns:
            The manifest, and the strategy that was used.
        """


class Frames(Protocol):
    """Operations on frames of the engine, and on Arrow tables."""

    def is_frame(self, data: Any) -> bool:
        """Whether an object is a frame of this engine or an Arrow table."""

    def schema_of(self, frame: Frame) -> Schema:
        """Columns of a frame, including ``_deleted`` if present."""

    def column_names(self, frame: Frame) -> Sequence[str]:
        """Names of the columns of a frame, in order."""

    def count(self, frame: Frame) -> int:
        """Number of rows of a frame; evaluates the frame."""

    def is_empty(self, frame: Frame) -> bool:
        """Whether a frame has no rows; evaluates as little as possible."""

    def to_frame(self, rows: Frame) -> Frame:
        """Frame on which tasks compute, of rows that may be in this process."""

    def to_arrow(self, frame: Frame) -> Any:
        """All rows of a frame, as a ``pyarrow.Table``."""

    def select(self, frame: Frame, columns: Sequence[str]) -> Frame:
        """Frame with the given columns only. Changes keep ``_deleted``: without it, a deletion looks like a live row
        (R11). Raises SchemaMismatch for a missing column.
        """

    def drop_deletions(self, change: Frame) -> Frame:
        """Rows that a change adds, without the column ``_deleted``: a table if the change is one."""

    def evaluate_once(self, frames: Mapping[str, Frame]) -> AbstractContextManager[Mapping[str, Frame]]:
        """The same frames, with their common parts evaluated only once (R4)."""

    def persisted_rows(self, frame: Frame) -> AbstractContextManager[Frame]:
        """Context in which the rows of a frame are computed once, when they are first needed, and kept."""

    def runs_python(self, frame: Frame) -> bool:
        """Whether rows of a frame pass through Python functions in workers of the engine. Computes no rows."""


class Queries(Protocol):
    """Computes queries in SQL over frames."""

    def create_frame(self, sql: str, values: Mapping[str, Any], frames: Mapping[str, Frame]) -> Frame:
        """Frame of a SQL query, analysed but not computed.

        Args:
            sql: with ``{name}`` for each frame and ``:name`` for each value.
            values: the values by name.
            frames: the frames by name.

        Raises:
            QueryRefused: the parser or analyser of the engine rejects the query.
        """

    def compute(self, sql: str, values: Mapping[str, Any], frames: Mapping[str, Frame], max_rows: int) -> Frame | None:
        """Compute a SQL query now, and return its rows in this process; None if it has more rows, or if its types have
        no equal in this process. The query is that of ``create_frame``.
        """

    def optimized_plan(self, frame: Frame) -> str | None:
        """How the engine computes a frame, as text; None if the engine cannot tell. Computes no rows.

        The text is complete under any settings of the session.
        """


class Inputs(Protocol):
    """Makes frames of rows that come from outside."""

    def convert(self, data: Any, schema: Schema | None, *, allow_widening: bool = False) -> Frame:
        """Frame of this engine, or an Arrow table, from the input of ``insert``: frames, tables or paths.

        Args:
            data: the input.
            schema: schema of the channel, to whose types values are converted; None to infer the schema.
            allow_widening: the channel accepts wider types than it has.

        Raises:
            BadRecord, EmptyInput, SchemaMismatch.
        """

    def convert_kept_files(
        self, data: Any, schema: Schema | None, *, allow_widening: bool = False
    ) -> tuple[Frame, BlockOptions]:
        """Rows of files that become files of a block as they are, and the options of that block.

        Raises:
            BadRecord, EmptyInput, SchemaMismatch.
            DefinitionError: the data is no list of files.
        """

    def to_frame(self, data: Any, schema: Schema) -> Frame:
        """Frame on which tasks compute, from the input of ``insert``; empty input gives a frame without rows."""

    def add_partition_columns(self, frame: Frame, channel: Channel, scope: str, schema: Schema | None) -> Frame:
        """Frame with its missing partition columns added: from the scope (R13), or derived from other columns."""

    def read_database(self, read: DatabaseRead) -> Frame:
        """Rows of a database, in parallel. Raises EngineUnavailable without a driver, SchemaMismatch."""


class TableFiles(Protocol):
    """Files of published tables, and of folders that other tools have filled."""

    def store(self) -> TableStore:
        """Objects of published folders in S3 or HDFS."""

    def read_folder(
        self, folder: str, files: Sequence[ExistingTableFile], target: Channel, layout: TableFileLayout
    ) -> Frame:
        """Content of a folder that other tools have filled, with its own columns.

        Partition columns may be in the folder names, as in Hive. This lists the folder, which no read of a channel does
        (R16).

        Args:
            folder: path or address of the folder.
            files: its data files.
            target: channel that takes the folder over. For a format other than Parquet, it has a schema.
            layout: layout of the files.

        Raises:
            NotSupported: the engine cannot read the format.
        """

    def write_files(
        self, read: Snapshot, folder: str, layout: TableFileLayout, *, rows: int, file_count: int, target_bytes: int
    ) -> list[TableFile]:
        """Write the rows of a snapshot as files of a published table.

        Args:
            read: the rows, of one partition.
            folder: address of an empty folder.
            layout: layout of the files.
            rows: number of rows of the snapshot, which is compared with the number of written rows.
            file_count: number of files, for a format whose writer takes a number.
            target_bytes: size of a file in bytes, for other formats.

        Raises:
            NotSupported: the engine cannot write the format, or the format cannot hold a column.
            SchemaMismatch: the layout cannot represent a value.
            WarehouseUnavailable: not all rows were written.
        """


class ExternalFiles(Protocol):
    """Files that other systems write, of external channels."""

    def list_files(self, location: str) -> list[ExternalFileInfo]:
        """All files under the location of an external channel. Raises SourceUnavailable, NotSupported."""

    def describe_files(
        self, channel: Channel, partition: str, files: Sequence[ExternalFileInfo]
    ) -> ExternalFilesContent:
        """Content of files of an external channel. Raises FileMissing, BadRecord, SchemaMismatch."""

    def read_file_schema(self, path: str, format: ExternalFormat) -> Schema:
        """Columns of one file of an external location. Raises FileMissing, BadRecord."""


class Engine(Protocol):
    """Executes plans on real data. An engine makes no decisions and does not know the catalog.

    Args:
        format: format of the files that the engine writes.
    """

    format: str

    @property
    def reader(self) -> Reader: ...
    @property
    def writer(self) -> Writer: ...
    @property
    def rewriter(self) -> Rewriter: ...
    @property
    def frames(self) -> Frames: ...
    @property
    def queries(self) -> Queries: ...
    @property
    def inputs(self) -> Inputs: ...
    @property
    def table_files(self) -> TableFiles: ...
    @property
    def external_files(self) -> ExternalFiles: ...
    @property
    def warehouse(self) -> WarehouseFiles: ...

    @property
    def session(self) -> Any:
        """Session that tasks receive as ``ctx.spark``."""

    def limit_cores(self, max_cores: int | None) -> None:
        """Limit the tasks that run at once in this process. If the engine has not started, it starts with this limit.

        Raises:
            EngineUnavailable: the engine runs already, and has more cores.
        """

    def cpu_seconds(self) -> float | None:
        """CPU time that this process and its engine have used so far; None if the engine has not started, or does not
        tell.
        """

    def computation_scope(self) -> AbstractContextManager[None]:
        """Context in which the engine computes. Its batch size fits the widest rows that are read inside the context.

        Raises:
            EngineUnavailable: the process of the engine has ended.
        """

    def task_computation_scope(
        self,
        job_name: str,
        function: Callable[..., Any],
        on_progress: Callable[[int, int], None],
        parallelism: Parallelism = NO_PARALLELISM,
    ) -> AbstractContextManager[None]:
        """Context in which a user's function is called and its rows are computed.

        The jobs of the engine inside the context carry a name. Interrupting the context stops these jobs.

        Args:
            job_name: the name of the jobs.
            function: the user's function.
            on_progress: called every few seconds with the number of finished and of known tasks of the engine.
            parallelism: number of tasks at once, and of parts of a shuffle.

        Raises:
            EngineUnavailable: the engine has more cores than the execution may use.
        """

    def close(self) -> None:
        """Release the resources held for frames that were handed out."""
