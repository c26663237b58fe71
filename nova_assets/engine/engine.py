"""The Spark engine: the ``Engine`` protocol over Parquet files. Spark starts when a frame is first needed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from nova_assets.engine.buckets.partitioning import derived, value_of
from nova_assets.engine.inputs.inputs import take
from nova_assets.engine.inputs.large_parquet import LargeParquet
from nova_assets.engine.read.matching_keys import matched
from nova_assets.engine.read.strategies import Ways
from nova_assets.engine.read.streaming import Streaming
from nova_assets.engine.read.sum_checks import check_sums
from nova_assets.engine.session import shared_settings
from nova_assets.engine.session.session import Session
from nova_assets.engine.session.shared_settings import using
from nova_assets.engine.session.spark_config import READING
from nova_assets.engine.storage import external_files
from nova_assets.engine.storage.remote_warehouse import open_warehouse
from nova_assets.engine.tasks.function_shipping import ship_by_value
from nova_assets.engine.write.compaction import Rewriter
from nova_assets.engine.write.row_digest import digest_of, digest_of_frame
from nova_assets.engine.write.write import Writer
from nova_assets.errors import SchemaMismatch
from nova_assets.formats import schema_fit
from nova_assets.model.arrow_types import arrow_type, to_arrow
from nova_assets.model.block import Block, DataFile, Manifest, StagedBlock
from nova_assets.model.channel import Channel
from nova_assets.model.external_files import Seen
from nova_assets.model.external_table import Described
from nova_assets.model.partitions import partition_values
from nova_assets.model.read_strategy import Way
from nova_assets.model.reads import Chain, Read, Snapshot
from nova_assets.model.schema import DataType, Schema
from nova_assets.model.sum_bounds import explained_overflow
from nova_assets.model.warehouse_contents import Entry, Upload
from nova_assets.suggestions import did_you_mean

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import SparkSession


PROGRESS_EVERY = 5.0
"""Seconds between two words about what Spark is doing."""


class SparkEngine:
    """Carries out reads and writes with Spark; inserts of Arrow data without it.

    Args:
        warehouse: the folder of all blocks.
        spark: a session, a function that gives one when it is needed, or None for a local one of this process.
        way: the one that reads and rewriting take wherever it leads there; None for the cheapest.
    """

    format = "parquet"

    def __init__(
        self,
        warehouse: str | Path,
        spark: SparkSession | Callable[[], SparkSession] | None = None,
        way: Way | None = None,
    ) -> None:
        self.warehouse = open_warehouse(warehouse)
        self._session = Session(spark)
        self.way = way
        self._writer = Writer(self._session, self.warehouse)
        self._ways = Ways(self._session, self.warehouse, way)

    @property
    def address(self) -> str:
        return self.warehouse.address

    @property
    def session(self) -> SparkSession:
        """The session, started now if it was not. Raises EngineUnavailable."""
        return self._session.get()

    def close(self) -> None:
        """Give back the settings that were held for frames which were handed out."""
        self._ways.handed_out.end()

    @contextmanager
    def working(self) -> Iterator[None]:
        with self._session.guarded(), shared_settings.scope():
            yield

    def read(self, read: Read) -> Any:
        return self._ways.frame(read)

    def fetch(self, read: Read) -> Any:
        table = self._ways.here(read)
        return self.read(read) if table is None else table

    def batches(self, read: Read, columns: Sequence[str] | None = None) -> pa.RecordBatchReader:
        return Streaming(self, self._ways).reader(read, columns)

    def matching(self, snapshot: Any, keys: Any, on: Sequence[str], *, here: bool = False) -> Any:
        have = keys.column_names if isinstance(keys, pa.Table) else keys.columns
        lacking = [c for c in on if c not in have]
        if lacking:
            raise SchemaMismatch(
                f"keys to match lack the columns {', '.join(map(repr, lacking))}",
                found=", ".join(have),
                expected=", ".join(on),
                next="name the columns with matching(..., on=...)",
            )
        if isinstance(snapshot, Snapshot):
            if (
                set(on) == set(snapshot.merge.key)
                and (found := self._ways.found(snapshot, keys, here=here)) is not None
            ):
                return found
            snapshot = self.fetch(snapshot) if here else self.read(snapshot)
        both = isinstance(snapshot, pa.Table) and isinstance(keys, pa.Table)
        if both and (table := matched(snapshot, keys, on)) is not None:
            return table
        from nova_assets.engine.rows.columns import col

        snapshot, keys = self._frame(snapshot), self._frame(keys)
        wanted = keys.select(*map(col, on))
        if not snapshot.columns:  # a channel that nothing was ever put on: no row matches, and its keys are like these
            return wanted.limit(0)
        with using(self.session, READING):
            return snapshot.join(wanted, list(on), "left_semi").select(*map(col, snapshot.columns))

    def in_partition(self, frame: Any, channel: Channel, scope: str, schema: Schema | None) -> Any:
        names = frame.column_names if isinstance(frame, pa.Table) else frame.columns
        values = partition_values(scope)
        for dimension in channel.partitions:
            column = dimension.column
            if column not in values or (column in names and not _says_nothing(frame, column)):
                continue
            type_ = DataType("string") if schema is None or column not in schema else schema.field(column).type
            value = value_of(dimension, values[column], type_)
            if isinstance(frame, pa.Table):
                constant = pa.repeat(pa.scalar(value, arrow_type(type_)), frame.num_rows)
                frame = frame.drop_columns([column]) if column in names else frame
                frame = frame.append_column(column, constant)
            else:
                from pyspark.sql import functions as F

                from nova_assets.engine.rows.spark_types import to_spark

                frame = frame.withColumn(column, F.lit(value).cast(to_spark(type_)))
        return derived(frame, channel.partitions, schema)

    def select(self, frame: Any, columns: Sequence[str]) -> Any:
        have = list(frame.column_names if isinstance(frame, pa.Table) else frame.columns)
        lacking = [c for c in columns if c not in have]
        if lacking:
            raise SchemaMismatch(
                f"there are no columns {', '.join(map(repr, lacking))}{did_you_mean(lacking[0], have)}",
                found=", ".join(columns),
                expected=f"some of {', '.join(have)}",
            )
        if isinstance(frame, pa.Table):
            return frame.select(list(columns))
        from nova_assets.engine.rows.columns import col

        return frame.select(*map(col, columns))

    def to_arrow(self, frame: Any) -> pa.Table:
        if isinstance(frame, pa.Table):
            return frame
        return self._session.table_of(frame)

    def to_pandas(self, frame: Any) -> pd.DataFrame:
        """All rows of a frame, as a pandas DataFrame."""
        found: pd.DataFrame = self.to_arrow(frame).to_pandas()
        return found

    def is_empty(self, frame: Any) -> bool:
        return frame.num_rows == 0 if isinstance(frame, pa.Table) else bool(frame.isEmpty())

    def is_frame(self, data: Any) -> bool:
        return isinstance(data, pa.Table) or (hasattr(data, "schema") and type(data).__module__.startswith("pyspark."))

    def column_names(self, frame: Any) -> Sequence[str]:
        names: Sequence[str] = frame.column_names if isinstance(frame, pa.Table) else frame.columns
        return names

    def count(self, frame: Any) -> int:
        return int(frame.num_rows if isinstance(frame, pa.Table) else frame.count())

    def schema_of(self, frame: Any) -> Schema:
        if isinstance(frame, pa.Table):
            return schema_fit.schema_of(frame)
        if not self.is_frame(frame):
            raise SchemaMismatch(
                "a task gave something that is no frame", found=type(frame).__name__, expected="a Spark DataFrame"
            )
        from nova_assets.engine.rows.spark_types import from_struct

        return from_struct(frame.schema)

    def query(self, sql: str, values: Mapping[str, Any], frames: Mapping[str, Any]) -> Any:
        from nova_assets.engine.tasks.sql_query import query

        return query(self.session, sql, values, frames)

    @contextmanager
    def one_evaluation(self, frames: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
        from nova_assets.engine.tasks.single_evaluation import one_evaluation

        lazy = {p: f for p, f in frames.items() if not isinstance(f, pa.Table)}
        if len(lazy) < 2:
            yield frames
            return
        with one_evaluation(lazy) as once:
            yield {**frames, **once}

    def write(
        self, frame: Any, staged: StagedBlock, channel: Channel | None, schema: Schema, *, digest: bool = False
    ) -> Manifest:
        with self.working():
            return self._writer.write(frame, staged, channel, schema, digest=digest)

    def digest(self, frame: Any, schema: Schema | None) -> str:
        if isinstance(frame, pa.Table):
            return str(digest_of(frame, schema))
        return str(digest_of_frame(self._session, frame, schema))

    def rewrite(
        self, read: Snapshot | Chain, staged: StagedBlock, channel: Channel, schema: Schema
    ) -> tuple[Manifest, Way]:
        rewriter = Rewriter(self._session, self.warehouse, self._writer, self.read, self.way)
        with explained_overflow(read), self.working():
            return rewriter.rewrite(read, staged, channel, schema)

    @contextmanager
    def computing(self, name: str, function: Callable[..., Any], tell: Callable[[int, int], None]) -> Iterator[None]:
        from nova_assets.engine.tasks.progress import computing

        ship_by_value(function)
        with self.working(), computing(self.session, name, tell, PROGRESS_EVERY):
            yield

    def take(self, data: Any, schema: Schema | None, *, evolves: bool = False) -> Any:
        rows = take(data, schema, evolves=evolves)
        if isinstance(rows, pa.Table):
            return rows
        from nova_assets.engine.rows.conversion import convert_frame

        if isinstance(rows, LargeParquet):
            shared_settings.current(self._ways.handed_out).fit(self._session.get, rows.width)
            if self._session.has_workers:
                return rows.frame(self.session)
            # Spark's own reader refuses files that have one column in different types.
            rows = self.session.read.option("mergeSchema", "true").parquet(*map(str, rows.paths))
        return convert_frame(rows, schema, evolves=evolves)

    def frame(self, data: Any, schema: Schema) -> Any:
        nothing = isinstance(data, Sequence) and not data
        return self._frame(to_arrow(schema).empty_table() if nothing else self.take(data, schema))

    def take_folder(self, folder: Path, channel: Channel) -> Any:
        from nova_assets.engine.rows.columns import col
        from nova_assets.engine.rows.spark_types import to_spark

        with using(self.session, {"spark.sql.sources.partitionColumnTypeInference.enabled": "false"}):
            frame = self.session.read.option("mergeSchema", "true").parquet(str(folder))
        for dimension in channel.partitions:
            if dimension.column in frame.columns and channel.schema is not None:
                kind = to_spark(channel.schema.field(dimension.column).type)
                frame = frame.withColumn(dimension.column, col(dimension.column).cast(kind))
        return frame

    def dropped(self, old: Snapshot, new: Manifest) -> int:
        from nova_assets.engine.read.spark_diff import dropped

        block = Block("", old.channel, "", "base", old.at + 1, old.at + 1, new, old.merge)
        rows = self.read(Snapshot(old.channel, old.at + 1, (block,), (), new.schema, old.merge))
        return dropped(self.read(replace(old, schema=new.schema)), rows)

    def check_sums(self, where: str, staged: Block, older: Sequence[Block], types: Mapping[str, DataType]) -> None:
        key = staged.merge.key

        def rows_of(read: Read, keys: pa.Table | None) -> pa.Table:
            if keys is None:
                return self.to_arrow(self.fetch(read))
            rows = read if isinstance(read, Snapshot) else self.fetch(read)
            return self.to_arrow(self.matching(rows, keys, key, here=True))

        check_sums(where, staged, older, types, rows_of)

    def delete(self, folder: str) -> None:
        self.warehouse.delete(folder)

    def look(self, location: str) -> list[Seen]:
        return external_files.look(location)

    def described(self, channel: Channel, partition: str, files: Sequence[Seen]) -> Described:
        return external_files.described(channel, partition, files)

    def delete_files(self, paths: Iterable[str]) -> None:
        self.warehouse.delete_files(paths)

    def set_aside(self, path: str) -> None:
        self.warehouse.set_aside(path)

    def listing(self) -> list[Entry]:
        return self.warehouse.listing()

    def size(self, path: str) -> int | None:
        return self.warehouse.size(path)

    def uploads(self) -> list[Upload]:
        return self.warehouse.uploads()

    def abort_upload(self, upload: Upload) -> None:
        self.warehouse.abort(upload)

    def defect_of(self, file: DataFile, *, thorough: bool = False) -> str | None:
        return self.warehouse.defect_of(file, thorough=thorough)

    def where(self, files: Sequence[DataFile]) -> list[str]:
        return self.warehouse.paths(files)

    def mark(self, catalog: str, identity: str) -> None:
        self.warehouse.mark(catalog, identity)

    def mark_of(self, catalog: str) -> str | None:
        return self.warehouse.mark_of(catalog)

    def marks(self) -> frozenset[str]:
        return self.warehouse.marks()

    def check(self) -> str:
        return self.warehouse.check()

    def _frame(self, data: Any) -> Any:
        return self._session.frame_of(data) if isinstance(data, pa.Table) else data


def _says_nothing(frame: Any, column: str) -> bool:
    """Whether a column of rows that are here has no value, as where no line of a file has named it."""
    return isinstance(frame, pa.Table) and frame.column(column).null_count == frame.num_rows
