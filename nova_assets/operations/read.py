"""Reading channels: snapshots and changes, and pins that hold them (R15)."""

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
from nova_assets.model.partitions import WHOLE, parse_partition
from nova_assets.model.reads import Read
from nova_assets.nova_error import NovaError
from nova_assets.operations.selection import Selection
from nova_assets.plan import modes


class Reading:
    """Answers reads from the catalog's metadata (R16)."""

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
        """Select data of a channel; see ``Store.read``."""
        state = self.catalog.channel(channel)
        if since is not None:
            state.channel.refuse_changes()
        if keys is not None and not state.channel.merge.key:
            raise DefinitionError(
                f"channel {channel!r} has no key to look for",
                found=f"keys=, and merge={type(state.channel.merge).__name__}",
                next="filter what is read of it, or declare the channel with merge=nova.Upsert(key=...)",
            )
        scope = parse_partition(state.channel.partitions, partition, allow_scope=True) if partition else WHOLE
        history = self.catalog.history(channel, at, scope, since, back_to=state.head if at is None else at)
        try:
            read: Read = modes.snapshot(history, at) if since is None else modes.changes(history, since, at)
        except BlockCollected:
            full_history = self.catalog.history(channel, None, scope)
            wanted = at if since is None and at is not None else since or 0
            raise modes.version_collected_error(
                channel, wanted, modes.oldest_answerable_version(full_history)
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
        """Hold channels for as long as the block lasts; see ``Store.pin``."""
        execution = self.catalog.begin(
            BeginRequest(
                uuid.uuid4().hex,
                binding=None,
                pinned_channels=tuple(channels),
                owner=self.runtime.owner,
                lease=self.runtime.lease,
                purpose="read",
                pinned_version_by_channel={} if at is None else {c: at for c in channels},
                changes_after_by_channel={} if since is None else {c: since for c in channels},
            )
        )
        try:
            with heartbeat(self.catalog, execution, self.runtime.lease):
                pinned = Pinned(self, execution)
                for channel in channels:  # pinned first, looked at then: what is there now stays
                    if at is not None:  # else the newest, which is there for sure
                        pinned.read(channel, partition=partition)
                    if since is not None:
                        pinned.read(channel, since=since, partition=partition)
                yield pinned
        finally:
            with suppress(NovaError):
                self.catalog.end_read(execution.id)


@check_public_method_arguments
class Pinned:
    """Channels as they were at one moment, held for a reader (R15).

    Args:
        heads: channel -> the number at which it is held.
    """

    def __init__(self, reading: Reading, execution: Execution) -> None:
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
        """What ``Store.read`` would select at the number that is held.

        Args:
            since: changes after that version; certain to be there only if the pin was made with it.

        Raises:
            BlockCollected: it is not held, or the lease has run out.
        """
        return self._reader.read(channel, self.heads[channel], since, partition, columns, keys)
