"""What ``store.read`` selected, and the frames that it can be had as."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from nova_assets.errors import SchemaMismatch
from nova_assets.model.engine import Engine, Frame
from nova_assets.model.reads import Read, Snapshot, describe_read
from nova_assets.model.schema import can_widen
from nova_assets.model.sum_bounds import translate_overflow_errors

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa
    from pyspark.sql import DataFrame


class Selection:
    """What ``store.read`` selected; nothing is opened until it is turned into a frame."""

    def __init__(self, engine: Engine, read: Read, columns: Sequence[str] | None, keys: Any, on: Sequence[str]) -> None:
        self._engine = engine
        self._columns = columns
        self._keys = keys
        self._key_columns = on
        self.plan = read

    def __repr__(self) -> str:
        return f"<Selection {describe_read(self.plan)}>"

    def _read_frame(self, in_process: bool) -> Frame:
        if self._keys is not None:
            read = self._engine.fetch if in_process else self._engine.read
            rows = self.plan if isinstance(self.plan, Snapshot) else read(self.plan)
            frame = self._engine.matching(rows, self._keys_as_frame(), self._key_columns, in_process=in_process)
        else:
            frame = self._engine.fetch(self.plan) if in_process else self._engine.read(self.plan)
        return frame if self._columns is None else self._engine.select(frame, self._columns)

    def _keys_as_frame(self) -> Frame:
        """The keys in the types of the channel. Raises SchemaMismatch for a type that none of its keys can have."""
        schema = getattr(self.plan, "schema", None)
        if schema is None or not all(c in schema for c in self._key_columns):
            return self._engine.convert_input(self._keys, None)
        keys = schema.select_columns(self._key_columns)
        frame = self._engine.convert_input(self._keys, keys)
        frame_schema = self._engine.schema_of(frame)
        for field in (f for f in keys.fields if f.name in frame_schema):
            actual = frame_schema.field(field.name).type
            if not (can_widen(actual, field.type) or can_widen(field.type, actual)):
                raise SchemaMismatch(
                    f"keys= has another type in column {field.name!r}",
                    found=str(actual),
                    expected=str(field.type),
                    column=field.name,
                )
        return frame

    def to_spark(self) -> DataFrame:
        """A lazy Spark DataFrame. Its files stay as they are: blocks are immutable."""
        frame: DataFrame = self._read_frame(in_process=False)
        return frame

    def to_arrow(self) -> pa.Table:
        """All rows, as a ``pyarrow.Table`` in memory."""
        with translate_overflow_errors(self.plan), self._engine.computation_scope():
            table: pa.Table = self._engine.to_arrow(self._read_frame(in_process=True))
        return table

    def to_batches(self) -> pa.RecordBatchReader:
        """The same rows as ``to_arrow`` gives, a piece at a time, for tables that are larger than memory.

        Batches have at most 65,536 rows, and about 16 MiB. What is in memory at once is a row group, or a cell of a
        keyed channel, without Spark; where only Spark knows how rows are put together, some partitions; and where
        nothing else is possible, the whole: under ``Custom``, for instance, and of ``keys=`` the rows that were found.

            with store.pin("orders") as pinned, pinned.read("orders").to_batches() as reader:
                for batch in reader: ...

        Files are opened as their rows are asked for, so a reader has to be used while what it reads is pinned
        (``store.pin``); between two batches none is open, and a reader can be left at any time.
        """
        if self._keys is not None:
            from nova_assets.formats.record_batches import stream_table

            return stream_table(self.to_arrow())
        reader: pa.RecordBatchReader = self._engine.read_batches(self.plan, self._columns)
        return reader

    def to_pandas(self) -> pd.DataFrame:
        """All rows, as a pandas DataFrame in memory."""
        table: pa.Table = self.to_arrow()
        frame: pd.DataFrame = table.to_pandas()
        return frame
