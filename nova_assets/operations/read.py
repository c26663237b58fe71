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
from nova_assets.model.execution import BeginRequest, Execution
from nova_assets.model.reads import Read
from nova_assets.nova_error import NovaError
from nova_assets.operations.lost_numbers import check_number_not_lost
from nova_assets.operations.selection import Selection
from nova_assets.plan import modes


class ChannelReader:
    """Answers reads from the metadata of the catalog (R16)."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self.catalog = runtime.catalog

    def read(
        self,
        channel: str,
        at: int | None = None,
        since: int | None = None,
        partition: str | Mapping[str, object] | None = None,
        columns: Sequence[str] | None = None,
        keys: Any = None,
    ) -> Selection:
        """Select data of a channel. See ``Store.read``."""
        state = self.catalog.channel(channel)
        if since is not None:
            state.channel.refuse_changes()
        check_number_not_lost(self.catalog, channel, at, since)
        if keys is not None and not state.channel.merge.key:
            raise DefinitionError(
                f"channel {channel!r} has no key columns, so keys= cannot select rows",
                found=f"keys=, and merge={type(state.channel.merge).__name__}",
                next="filter the rows after the read, or define the channel with merge=nova.Upsert(key=...)",
            )
        scope = state.parse_scope(partition)
        history = self.catalog.history(channel, at, scope, since, back_to=state.head if at is None else at)
        try:
            read: Read = modes.snapshot(history, at) if since is None else modes.changes(history, since, at)
        except BlockCollected:
            full_history = self.catalog.history(channel, None, scope)
            requested_version = at if since is None and at is not None else since or 0
            raise modes.version_collected_error(
                channel, requested_version, modes.oldest_answerable_version(full_history)
            ) from None
        return Selection(self.runtime.engine, read, columns, keys, history.merge.key)

    @contextmanager
    def pin(
        self,
        channels: Sequence[str],
        at: int | None,
        since: int | None,
        partition: str | Mapping[str, object] | None = None,
    ) -> Iterator[Pinned]:
        """Pin channels for the duration of a ``with`` block. See ``Store.pin``."""
        execution = self.catalog.begin(
            BeginRequest(
                uuid.uuid4().hex,
                binding=None,
                pinned_channels=tuple(channels),
                owner=self.runtime.owner,
                lease_seconds=self.runtime.lease,
                purpose="read",
                pinned_version_by_channel={} if at is None else {c: at for c in channels},
                changes_after_by_channel={} if since is None else {c: since for c in channels},
            )
        )
        try:
            with heartbeat(self.catalog, execution, self.runtime.lease):
                pinned = Pinned(self, execution)
                for channel in channels:  # checked after pinning: blocks that exist now cannot be collected
                    if at is not None:  # the head always exists and needs no check
                        pinned.read(channel, partition=partition)
                    if since is not None:
                        pinned.read(channel, since=since, partition=partition)
                yield pinned
        finally:
            with suppress(NovaError):
                self.catalog.delete_reader(execution.id)


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
        return self._reader.read(channel, self.heads[channel], since, partition, columns, keys)
