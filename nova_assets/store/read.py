"""Reads of channels: snapshots, changes, and pins that retain them (R15)."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from nova_assets.errors import BlockCollected, DefinitionError, SchemaMismatch
from nova_assets.execution.lease import heartbeat
from nova_assets.execution.runtime import Runtime
from nova_assets.model.argument_checks import check_public_method_arguments
from nova_assets.model.channel import Channel
from nova_assets.model.engine import Engine, Frame
from nova_assets.model.execution import BeginRequest, Execution
from nova_assets.model.reads import Read, Snapshot, describe_read, schema_of
from nova_assets.model.schema import DELETED
from nova_assets.model.schema_evolution import can_widen
from nova_assets.model.sum_bounds import name_channel_in_overflow_errors
from nova_assets.model.text_format import format_read, format_read_totals
from nova_assets.model.text_table import TextTable
from nova_assets.nova_error import NovaError
from nova_assets.plan import modes
from nova_assets.store.channel_registry import ChannelRegistry
from nova_assets.store.lost_numbers import check_number_not_lost

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

    def _rows_of_keys(self, computes_now: bool) -> Frame:
        """The rows with the requested keys."""
        read = self._engine.reader.fetch if computes_now else self._engine.reader.read
        rows = self.plan if isinstance(self.plan, Snapshot) else read(self.plan)
        frame = self._engine.reader.filter_by_keys(
            rows, self._keys_as_frame(), self._key_columns, in_process=computes_now
        )
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
        """Keys as a frame, converted to the types of the channel as far as possible.

        If the channel's schema is unknown or lacks a key column, the keys keep their types.

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
        frame: DataFrame
        if self._keys is not None:
            frame = self._rows_of_keys(computes_now=False)
        else:
            frame = self._engine.reader.read(self.plan)
            frame = frame if self._columns is None else self._engine.frames.select(frame, self._columns)
        return frame

    def to_arrow(self) -> pa.Table:
        """All rows, as a ``pyarrow.Table`` in memory."""
        with name_channel_in_overflow_errors(self.plan), self._engine.computation_scope():
            table: pa.Table
            if self._keys is not None:
                table = self._engine.frames.to_arrow(self._rows_of_keys(computes_now=True))
            else:
                table = self._engine.reader.read_table(self.plan, self._columns_to_read)
        return table.select(_deletion_mark(table.schema)) if self._selects_no_columns else table

    def to_batches(self) -> pa.RecordBatchReader:
        """The rows of ``to_arrow`` in batches, for tables that are larger than memory.

        A batch has at most 65,536 rows and about 16 MiB. Without Spark, memory holds one row group and the changes
        since the base, or one bucket of a keyed channel. If only Spark can merge the rows, memory holds a few
        partitions. Some reads cannot be divided into batches, for instance under ``Custom``. Memory then holds all
        rows. With ``keys=``, memory holds only the rows that match.

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


class ChannelReader:
    """Store methods that select rows, answered from the metadata of the catalog (R16)."""

    def __init__(self, runtime: Runtime, registry: ChannelRegistry) -> None:
        self.runtime = runtime
        self.registry = registry
        self.catalog = runtime.catalog

    def read(
        self,
        channel: Channel | str,
        at: int | None = None,
        *,
        since: int | None = None,
        partition: str | Mapping[str, object] | None = None,
        columns: Sequence[str] | None = None,
        keys: Any = None,
    ) -> Selection:
        """Select data of a channel.

        Args:
            channel: name of the channel.
            at: the version to read. By default, the head.
            since: read the changes after this version, up to ``at``, instead of a snapshot. On keyed channels, the rows
                have a column ``_deleted``.
            partition: the partition to read, such as ``"dt=2024-01-01/action=login"``. With values of only some
                dimensions, such as ``"action=login"``, every partition with these values is read.
            columns: names of the columns to read. By default, all. Changes always have ``_deleted`` as well (R11).
            keys: a frame or table that contains the channel's key columns. Only rows with these keys are read.

        Raises:
            ChannelNotFound: no such channel.
            VersionNotFound: the channel has no such sequence number.
            BlockCollected: the blocks of the version were collected (R15).
            PartitionError: the channel has no such partition.
        """
        state = self.registry.registered_state(channel)
        name = state.channel.name
        if since is not None:
            state.channel.refuse_changes()
        check_number_not_lost(self.catalog, name, at, since)
        if keys is not None and not state.channel.merge.key:
            raise DefinitionError(
                f"channel {name!r} has no key columns, so keys= cannot select rows",
                found=f"keys=, and merge={type(state.channel.merge).__name__}",
                next="filter the rows after the read, or define the channel with merge=nova.Upsert(key=...)",
            )
        scope = state.parse_scope(partition)
        history = self.catalog.histories.of(name, at, scope, since, back_to=state.head if at is None else at)
        try:
            read: Read = modes.snapshot(history, at) if since is None else modes.changes(history, since, at)
        except BlockCollected:
            full_history = self.catalog.histories.of(name, None, scope)
            requested_version = at if since is None and at is not None else since or 0
            raise modes.version_collected_error(
                name, requested_version, modes.oldest_answerable_version(full_history)
            ) from None
        return Selection(self.runtime.engine, read, columns, keys, history.merge.key)

    @contextmanager
    def pin(
        self,
        *channels: Channel | str,
        at: int | None = None,
        since: int | None = None,
        partition: str | Mapping[str, object] | None = None,
    ) -> Iterator[Pinned]:
        """Pin a consistent version of several channels for the duration of a ``with`` block (R15).

        All reads from the pin see the channels at the same moment. Later commits and garbage collection do not affect
        these reads.

            with store.pin("orders", "customers") as then:
                join(then.read("orders").to_spark(), then.read("customers").to_spark())

        The pin is a lease that this process renews. The pin ends when this process dies, or sleeps for longer than the
        lease. If a block is collected after the pin has ended, reading the block raises ``BlockCollected``. A lazy
        frame has to be evaluated within the ``with`` block.

        Args:
            channels: names of the channels.
            at: the version to pin. By default, the head. Only for a single channel.
            since: pin the changes after this version, too. Only for a single channel.
            partition: the partition that will be read. ``pin`` checks that the blocks for ``at`` and ``since`` still
                exist, in this partition only.

        Raises:
            ChannelNotFound: no such channel.
            VersionNotFound: the channel has no such sequence number.
            BlockCollected: the blocks of the version were collected already.
            DefinitionError: ``at`` or ``since`` is combined with several channels.
        """
        if (at is not None or since is not None) and len(channels) != 1:
            raise DefinitionError("at= and since= need exactly one channel", found=f"{len(channels)} channels")
        names = tuple(self.registry.known(c) for c in channels)
        execution = self.catalog.executions.begin(
            BeginRequest(
                uuid.uuid4().hex,
                binding=None,
                pinned_channels=names,
                owner=self.runtime.owner,
                lease_seconds=self.runtime.lease,
                purpose="read",
                pinned_version_by_channel={} if at is None else dict.fromkeys(names, at),
                changes_after_by_channel={} if since is None else dict.fromkeys(names, since),
            )
        )
        try:
            with heartbeat(self.catalog, execution, self.runtime.lease):
                pinned = Pinned(self, execution)
                for channel in names:  # checked after pinning: blocks that exist now cannot be collected
                    if at is not None:  # the head always exists and needs no check
                        pinned.read(channel, partition=partition)
                    if since is not None:
                        pinned.read(channel, since=since, partition=partition)
                yield pinned
        finally:
            with suppress(NovaError):
                self.catalog.executions.delete_reader(execution.id)

    def views(self, *channels: Channel | str) -> Any:
        """File views of channels at their current heads, for code that opens the files itself.

        The result (``Views``) can be sent to other processes, such as Spark's workers. ``views`` itself pins nothing.
        See ``pin``.

        Raises:
            ChannelNotFound: no such channel.
            DefinitionError: this store was not made by ``nova.open()`` with views configured.
        """
        if self.runtime.views_factory is None:
            raise DefinitionError("this store has no file views", expected="a store that nova.open() has returned")
        names = [self.registry.known(c) for c in channels]
        return self.runtime.views_factory({n: self.catalog.definitions.channel(n).head for n in names})


@check_public_method_arguments
class Pinned:
    """Channels at one moment, pinned for a reader (R15).

    Args:
        heads: channel -> pinned sequence number.
    """

    def __init__(self, reading: ChannelReader, execution: Execution) -> None:
        self._reader = reading
        self.heads: Mapping[str, int] = {c: p.head for c, p in execution.pins.items()}

    def read(
        self,
        channel: str,
        *,
        since: int | None = None,
        partition: str | Mapping[str, object] | None = None,
        columns: Sequence[str] | None = None,
        keys: Any = None,
    ) -> Selection:
        """Select data of a channel at its pinned number, like ``Store.read``.

        Args:
            since: read the changes after this version. The pin protects the blocks of these changes only if it was made
                with ``since``.

        Raises:
            BlockCollected: the version is not pinned, or the lease has expired.
        """
        return self._reader.read(
            channel, self.heads[channel], since=since, partition=partition, columns=columns, keys=keys
        )
