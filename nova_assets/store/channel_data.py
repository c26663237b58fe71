"""Data of channels: insert, read, pin, restore."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from nova_assets.errors import DefinitionError
from nova_assets.execution.runtime import Runtime
from nova_assets.model.block import Kind
from nova_assets.model.block_options import BlockFormat, options_from_arguments
from nova_assets.model.channel import Channel
from nova_assets.model.commit import Commit
from nova_assets.model.merge import MergeModel
from nova_assets.store.channel_registry import ChannelRegistry
from nova_assets.store.insert import DataInserter, InsertCheck
from nova_assets.store.read import ChannelReader, Pinned
from nova_assets.store.selection import Selection


class ChannelData:
    """Store methods that write and read rows."""

    def __init__(
        self, runtime: Runtime, registry: ChannelRegistry, reader: ChannelReader, inserter: DataInserter
    ) -> None:
        self.runtime = runtime
        self.registry = registry
        self.reader = reader
        self.inserter = inserter

    def insert(
        self,
        channel: Channel | str,
        data: Any,
        kind: Kind = "delta",
        idempotency_key: str | None = None,
        partition: str | Mapping[str, object] | None = None,
        *,
        merge: MergeModel | None = None,
        format: BlockFormat | None = None,
        keep_files: bool = False,
    ) -> Commit:
        """Insert one block into every partition of a channel that the data belongs to. The insert is atomic.

        Args:
            channel: name of the channel. A channel that the project defines is registered on its first use.
            data: an Arrow table, a pandas or Spark DataFrame, a list of dicts, or the paths of Parquet, ORC, Avro, CSV
                or JSON-lines files. CSV and JSON-lines files may be compressed (``.gz``, ``.zst``). On keyed channels,
                a row with ``_deleted`` true is a deletion.
            kind: ``delta`` adds the data to the channel. ``base`` replaces the rows of the channel. A base empties
                every partition that it does not contain, unless ``partition`` limits it to some partitions (R13).
            idempotency_key: a second insert of the same rows with the same key changes nothing and returns the first
                commit. The rows may come in another order, in other files, or as another kind of input.
            partition: the partition of all rows, such as ``"dt=2024-01-01"``. The data then need not contain the
                partition columns. By default, each row goes to the partition that its partition columns name.
            merge: merge model of this delta (Nova 3.1). By default, the channel's model. It needs the same key.
            format: file format of this block: ``parquet`` (default), ``orc``, ``avro``, ``csv`` or ``json``.
            keep_files: copy the files into the warehouse as they are, in place of writing their rows into new files.
                All files need the same format, and exactly the columns and types of the channel. On a partitioned
                channel, each file belongs to one partition.

        Returns:
            The commit. Its ``seq`` is the block's sequence number. An empty delta takes no number (R1).

        Raises:
            ChannelNotFound: no such channel.
            SchemaMismatch: the columns or types differ from the channel's.
            BadKey: a key is null, or one block holds several live rows of one key.
            BadRecord: a file is damaged, or its content does not fit its file name.
            EmptyInput: the input is empty.
            PartitionError: a row belongs to no partition, or to another partition than ``partition``.
            UnrepresentableChange: the base drops rows that consumers of an Append channel have read (R10).
            ModelChanged: the data is a delta, and no base was written since the merge model changed (R18).
            IdempotencyConflict: the key was used for different rows.
        """
        options = options_from_arguments(merge, format)
        name = self.registry.registered_name(channel)
        return self.inserter.insert(name, data, kind, idempotency_key, partition, options, keep_files)

    def check_insert(
        self,
        channel: Channel | str,
        data: Any,
        kind: Kind = "delta",
        partition: str | Mapping[str, object] | None = None,
        *,
        merge: MergeModel | None = None,
        format: BlockFormat | None = None,
        keep_files: bool = False,
    ) -> InsertCheck:
        """Dry run of ``insert``: validate the data without changing anything."""
        options = options_from_arguments(merge, format)
        name = self.registry.registered_name(channel)
        return self.inserter.check_insert(name, data, kind, partition, options, keep_files)

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
        return self.reader.read(self.registry.registered_name(channel), at, since, partition, columns, keys)

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
        with self.reader.pin([self.registry.registered_name(c) for c in channels], at, since, partition) as pinned:
            yield pinned

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
        names = [self.registry.registered_name(c) for c in channels]
        return self.runtime.views_factory({n: self.runtime.catalog.channel(n).head for n in names})

    def restore(self, channel: Channel | str, at: int) -> Commit:
        """Restore the content that a channel had at a sequence number. History is not rewritten (R19).

        The restored content is committed as a new base. Consumers see the differences as changes, as with every base.

        Raises:
            ChannelNotFound: no such channel.
            VersionNotFound: the channel has no such sequence number.
            BlockCollected: the blocks of the version were collected (R15).
            UnrepresentableChange: an Append channel with consumers would lose rows (R10).
        """
        return self.inserter.restore(self.registry.registered_name(channel), at)
