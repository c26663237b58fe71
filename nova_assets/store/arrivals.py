"""Arriving files: receive, follow, replay. What reads records is loaded when it is used."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from nova_assets.errors import DefinitionError
from nova_assets.execution.runtime import Runtime
from nova_assets.model.arrival import Arrival, ArrivalState, ArrivalStatus
from nova_assets.model.channel import Channel
from nova_assets.model.quarantine import quarantine_channel
from nova_assets.model.receive_result import ReceiveResult, ReplayResult
from nova_assets.store.channel_registry import ChannelRegistry

if TYPE_CHECKING:
    from nova_assets.sources.inbox import Inbox
    from nova_assets.store.receive import FileReceiver
    from nova_assets.store.replay import Mend


class StoreArrivals:
    """Store methods that ingest arriving files."""

    def __init__(self, runtime: Runtime, registry: ChannelRegistry, root: Path) -> None:
        self.runtime = runtime
        self.registry = registry
        self.root = root

    def receive(self, channel: Channel | str, *, look: bool = True, inbox: Inbox | None = None) -> ReceiveResult:
        """Ingest the files that have arrived for a channel, each exactly once.

        Valid records are inserted into the channel. Invalid records go to ``NAME_quarantine`` with their file, line,
        reason and text.

        Args:
            channel: a channel of the project with a ``source``, or such a ``Channel`` object.
            look: whether to list the source, too, to find files that were never announced.
            inbox: the queue that announces files. By default, this call opens the inbox of the source.

        Raises:
            DefinitionError: the channel has no source.
            SourceUnavailable: the source does not answer. Nothing is lost.
            TooManyBadRecords: a batch has more bad records than the source allows. Nothing of the batch was ingested.
        """
        with self._open_receiver(channel, inbox) as receiver:
            return receiver.receive_files(list_unannounced=look)

    def follow(
        self, channel: Channel | str, *, every: float = 1.0, look_every: float = 600.0
    ) -> Generator[ReceiveResult, None, None]:
        """Ingest files as they arrive, for as long as the caller iterates. Yields one result for each ingested batch.

            for received in store.follow("actions"):
                print(received.rows)

        Args:
            channel: as for ``receive``.
            every: seconds between two checks for announced files.
            look_every: seconds between two listings for files that were never announced.

        Raises:
            DefinitionError: the channel has no source.
            TooManyBadRecords: as for ``receive``.
        """
        with self._open_receiver(channel, watch_folder=True) as receiver:
            yield from receiver.follow_arrivals(every, look_every)

    def arriving(self, channel: Channel | str) -> list[Arrival]:
        """Dry run of ``receive``: the files that ``receive`` would ingest. These files are waiting already, or are
        found by a listing.
        """
        with self._open_receiver(channel) as receiver:
            return receiver.list_arriving()

    def replayable(self, channel: Channel | str, mend: Mend | None = None) -> ReplayResult:
        """Dry run of ``replay``: the result that ``replay`` would return."""
        from nova_assets.store.replay import preview_replay

        with self._open_receiver(channel) as receiver:
            return preview_replay(receiver, mend)

    def replay(self, channel: Channel | str, mend: Mend | None = None) -> ReplayResult:
        """Retry quarantined records and refused files.

        Records that are valid now move from the quarantine to the channel in one commit. Refused files are put back,
        and the next ``receive`` reads them again.

            store.replay("actions", lambda row: row["raw"].replace("N/A", "null"))

        Args:
            channel: as for ``receive``.
            mend: function that takes a row of the quarantine and returns the corrected text of the record. The row is a
                dict with ``file``, ``line``, ``reason``, ``raw`` and other columns. If the function returns None, the
                record stays in quarantine. With ``mend``, refused files also stay in quarantine. By default, every
                record is retried unchanged, since the channel's schema or partitions may accept the record by now.
        """
        from nova_assets.store.replay import replay

        with self._open_receiver(channel) as receiver:
            return replay(receiver, mend)

    def arrivals(
        self, channel: Channel | str, state: ArrivalState | None = None, limit: int = 100
    ) -> list[ArrivalStatus]:
        """Files that have arrived for a channel, latest first.

        Args:
            state: only files in this state: ``waiting``, ``taken``, ``refused`` or ``gone``.
        """
        return self.runtime.catalog.arrivals.find(self.registry.known(channel), state, limit)

    @contextmanager
    def _open_receiver(
        self, channel: Channel | str, inbox: Inbox | None = None, *, watch_folder: bool = False
    ) -> Iterator[FileReceiver]:
        """Receiver for a channel. Closes the inbox afterwards, unless the caller passed one."""
        # These imports load pyarrow, and a command that only prints its help must stay fast.
        from nova_assets.sources.open_inbox import open_inbox
        from nova_assets.store.receive import FileReceiver

        definition = self._register_channel_with_source(channel)
        assert definition.source is not None
        opened_inbox = inbox or open_inbox(definition.source, self.root, watch=watch_folder)
        try:
            yield FileReceiver(self.runtime, definition, opened_inbox)
        finally:
            if inbox is None:
                opened_inbox.close()

    def _register_channel_with_source(self, channel: Channel | str) -> Channel:
        """A channel with a source, registered together with its quarantine channel."""
        name = channel if isinstance(channel, str) else channel.name
        definition = self.registry.find_definition(channel)
        if definition is None or definition.source is None:
            self.registry.known(name)  # a missing channel is the better error
            raise DefinitionError(
                f"channel {name!r} has no source=, so no files can arrive for it",
                expected="a channel of the project that has source=nova.files(...)",
                next=f'nova.Channel("{name}", source=nova.files("landing/{name}"))',
                channel=name,
            )
        self.runtime.catalog.definitions.register([definition, quarantine_channel(definition)])
        return definition
