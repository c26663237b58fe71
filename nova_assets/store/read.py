"""Reads of channels: snapshots, changes, and pins that retain them (R15)."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from nova_assets.errors import BlockCollected, DefinitionError
from nova_assets.execution.lease import heartbeat
from nova_assets.execution.runtime import Runtime
from nova_assets.model.argument_checks import check_public_method_arguments
from nova_assets.model.channel import Channel
from nova_assets.model.execution import BeginRequest, Execution
from nova_assets.model.reads import Read
from nova_assets.nova_error import NovaError
from nova_assets.plan import modes
from nova_assets.store.channel_registry import ChannelRegistry
from nova_assets.store.lost_numbers import check_number_not_lost
from nova_assets.store.selection import Selection


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
