"""Selected data of a channel, convertible to frames of several libraries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from nova_assets.errors import SchemaMismatch
from nova_assets.model.engine import Engine, Frame
from nova_assets.model.reads import Read, Snapshot, describe_read, schema_of
from nova_assets.model.schema import DELETED
from nova_assets.model.sum_bounds import name_channel_in_overflow_errors
from nova_assets.model.text_format import format_read, format_read_totals
from nova_assets.model.text_table import TextTable
from nova_assets.model.type_widening import can_widen

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from nova_assets.formats.pandas_frame import PandasTypes


class Selection:
    """Data that ``store.read`` has selected. The files are opened when the selection is converted to a frame."""

    def __init__(self, engine: Engine, read: Read, columns: Sequence[str] | None, keys: Any, on: Sequence[str]) -> None:
        self._engine = engine
        self._columns = columns
        self._keys = keys
        self._key_columns = on
        self.plan = read

    def __repr__(self) -> str:
        return f"<Selection {describe_read(self.plan)}>"

    def _repr_html_(self) -> str:
        """The blocks and columns of the selection, for a notebook. No data is read."""
        blocks = TextTable(("blocks", "files", "rows", "bytes"), right_aligned=("files", "rows", "bytes"))
        blocks.add(format_read(self.plan, show_all_blocks=False), *format_read_totals(self.plan))
        columns = TextTable(("column", "type"), caption="to_pandas(), to_arrow() and to_spark() read the rows")
        schema = schema_of(self.plan)
        for field in () if schema is None else schema.fields:
            if self._columns is None or field.name in self._columns:
                columns.add(field.name, str(field.type))
        return blocks.to_html() + columns.to_html()

    def _build_frame(self, computes_now: bool) -> Frame:
        if self._keys is not None:
            read = self._engine.reader.fetch if computes_now else self._engine.reader.read
            rows = self.plan if isinstance(self.plan, Snapshot) else read(self.plan)
            frame = self._engine.reader.filter_by_keys(
                rows, self._keys_as_frame(), self._key_columns, in_process=computes_now
            )
        else:
            frame = self._engine.reader.fetch(self.plan) if computes_now else self._engine.reader.read(self.plan)
        columns = self._columns_to_read if computes_now else self._columns
        return frame if columns is None else self._engine.frames.select(frame, columns)

    @property
    def _columns_to_read(self) -> Sequence[str] | None:
        """Columns to read. If none are requested, the first one is read and then left out, because tables without
        columns lose their rows when they are concatenated, or sent by Spark.
        """
        schema = schema_of(self.plan)
        return self._columns if schema is None or not self._selects_no_columns else schema.names[:1]

    @property
    def _selects_no_columns(self) -> bool:
        return self._columns is not None and not self._columns

    def _keys_as_frame(self) -> Frame:
        """Keys in the types of the channel.

        Raises:
            SchemaMismatch: a key column has a type that cannot match any key of the channel.
        """
        schema = getattr(self.plan, "schema", None)
        if schema is None or not all(c in schema for c in self._key_columns):
            return self._engine.inputs.convert(self._keys, None)
        keys = schema.select_columns(self._key_columns)
        frame = self._engine.inputs.convert(self._keys, keys)
        frame_schema = self._engine.frames.schema_of(frame)
        for field in (f for f in keys.fields if f.name in frame_schema):
            actual = frame_schema.field(field.name).type
            if not (can_widen(actual, field.type) or can_widen(field.type, actual)):
                raise SchemaMismatch(
                    f"column {field.name!r} of keys= has a type that matches no key of the channel",
                    found=str(actual),
                    expected=str(field.type),
                    column=field.name,
                )
        return frame

    def to_spark(self) -> DataFrame:
        """Lazy Spark DataFrame. Its files do not change, since blocks are immutable."""
        frame: DataFrame = self._build_frame(computes_now=False)
        return frame

    def to_arrow(self) -> pa.Table:
        """All rows, as a ``pyarrow.Table`` in memory."""
        with name_channel_in_overflow_errors(self.plan), self._engine.computation_scope():
            table: pa.Table = self._engine.frames.to_arrow(self._build_frame(computes_now=True))
        return table.select(_deletion_mark(table.schema)) if self._selects_no_columns else table

    def to_batches(self) -> pa.RecordBatchReader:
        """The rows of ``to_arrow`` in batches, for tables that are larger than memory.

        A batch has at most 65,536 rows and about 16 MiB. Without Spark, memory holds one row group, or one bucket of a
        keyed channel. If only Spark can merge the rows, memory holds a few partitions. Some reads cannot be divided
        into batches, for instance under ``Custom``. Memory then holds all rows. With ``keys=``, memory holds only the
        rows that match.

            with store.pin("orders") as pinned, pinned.read("orders").to_batches() as reader:
                for batch in reader: ...

        A file is opened only when its rows are requested. So the data has to stay pinned (``store.pin``) while the
        reader is in use. Between two batches, no file is open. So the reader can be abandoned at any time.
        """
        if self._keys is not None:
            from nova_assets.formats.record_batches import stream_table

            return stream_table(self.to_arrow())
        reader: pa.RecordBatchReader = self._engine.reader.read_batches(self.plan, self._columns_to_read)
        if not self._selects_no_columns:
            return reader
        import pyarrow as pa

        names = _deletion_mark(reader.schema)
        schema = pa.schema([reader.schema.field(name) for name in names])
        return pa.RecordBatchReader.from_batches(schema, (batch.select(names) for batch in reader))

    def to_pandas(self, *, types: PandasTypes = "nullable") -> pd.DataFrame:
        """All rows, as a pandas DataFrame in memory.

        Args:
            types: with ``nullable``, whole numbers and booleans have pandas' nullable types (``Int64``, ``boolean``),
                whatever the values. With ``numpy``, they have the types of NumPy: in a column that has nulls, whole
                numbers become floats.

        Raises:
            NotSupported: with ``numpy``, a float would round a whole number; or Python cannot represent a value. The
                error names the column.
        """
        from nova_assets.formats.pandas_frame import to_pandas_frame

        return to_pandas_frame(self.to_arrow(), types)


def _deletion_mark(schema: pa.Schema) -> list[str]:
    return [name for name in schema.names if name == DELETED]
