"""What a store can do about files that arrive, and about days and hours that are complete."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from nova_assets.errors import DefinitionError
from nova_assets.execution.runtime import Runtime
from nova_assets.model.arrival import Arrival, ArrivalState, ArrivalStatus
from nova_assets.model.arrival_outcome import Received, Replayed
from nova_assets.model.catalog import Catalog
from nova_assets.model.channel import Channel
from nova_assets.model.compaction import Compaction
from nova_assets.model.project import Project
from nova_assets.model.quarantine import quarantine_channel
from nova_assets.model.seal import Seal
from nova_assets.operations.arrivals.seal import GroupSealer
from nova_assets.plan.seal import Due, Open
from nova_assets.settings import Settings

if TYPE_CHECKING:
    from nova_assets.operations.arrivals.receive import FileReceiver
    from nova_assets.operations.arrivals.replay import Mend
    from nova_assets.sources.inbox import Inbox


class ArrivalMethods(ABC):
    """This part of a store; the rest of it is in ``store.py``."""

    settings: Settings
    project: Project
    catalog: Catalog
    runtime: Runtime
    _sealer: GroupSealer

    @abstractmethod
    def known(self, channel: Channel | str) -> str: ...

    @abstractmethod
    def _compaction_policy(self, channel: str) -> Compaction: ...

    def receive(self, channel: Channel | str, *, look: bool = True, inbox: Inbox | None = None) -> Received:
        """Take the files that have arrived for a channel, each exactly once: what is right goes onto the channel, what
        is not into ``NAME_quarantine``, with its file, line, reason and text.

        Args:
            channel: one of the project that has a ``source``; or such a channel itself.
            look: also for files that were never announced.
            inbox: what announces them; by default that of the source, opened for this call.

        Raises:
            DefinitionError: the channel has no source.
            SourceUnavailable: it does not answer; nothing is lost.
            TooManyBadRecords: more of a batch is bad than the source allows; nothing of that batch was taken.
        """
        with self._open_receiver(channel, inbox) as receiving:
            return receiving.receive_files(list_unannounced=look)

    def follow(
        self, channel: Channel | str, *, every: float = 1.0, look_every: float = 600.0
    ) -> Generator[Received, None, None]:
        """Take files as they arrive, for as long as this is iterated over: what came of each time something was taken.

            for received in store.follow("actions"):
                print(received.rows)

        Args:
            channel: as for ``receive``.
            every: seconds between two looks at what was announced.
            look_every: seconds between two looks for what was not.

        Raises:
            DefinitionError: the channel has no source.
            TooManyBadRecords: as for ``receive``.
        """
        with self._open_receiver(channel, watch_folder=True) as receiving:
            yield from receiving.follow_arrivals(every, look_every)

    def arriving(self, channel: Channel | str) -> list[Arrival]:
        """The files that ``receive`` would take: those that wait, and those that are found by looking; its dry run."""
        with self._open_receiver(channel) as receiving:
            return receiving.list_arriving()

    def replayable(self, channel: Channel | str, mend: Mend | None = None) -> Replayed:
        """What ``replay`` would do: its dry run."""
        from nova_assets.operations.arrivals.replay import preview_replay

        with self._open_receiver(channel) as receiving:
            return preview_replay(receiving, mend)

    def replay(self, channel: Channel | str, mend: Mend | None = None) -> Replayed:
        """Try what was set aside again: records that are right now go onto the channel and leave its quarantine, at
        once; whole files wait to be received anew.

            store.replay("actions", lambda row: row["raw"].replace("N/A", "null"))

        Args:
            channel: as for ``receive``.
            mend: the text of a record as it should be, from its row of the quarantine (a dict with ``file``, ``line``,
                ``reason``, ``raw``, ...); None leaves it there, and whole files stay, too. By default everything is
                tried as it is: the channel's schema or partitions may have room for it by now.
        """
        from nova_assets.operations.arrivals.replay import replay

        with self._open_receiver(channel) as receiving:
            return replay(receiving, mend)

    def arrivals(
        self, channel: Channel | str, state: ArrivalState | None = None, limit: int = 100
    ) -> list[ArrivalStatus]:
        """Files that have arrived for a channel, latest first.

        Args:
            state: ``waiting``, ``taken``, ``refused`` or ``gone``.
        """
        return self.catalog.arrivals(self.known(channel), state, limit)

    @contextmanager
    def _open_receiver(
        self, channel: Channel | str, inbox: Inbox | None = None, *, watch_folder: bool = False
    ) -> Iterator[FileReceiver]:
        """What receives for a channel; its inbox is closed afterwards, unless it was given."""
        # These load pyarrow, which a command that only prints its help does without.
        from nova_assets.operations.arrivals.receive import FileReceiver
        from nova_assets.sources.open_inbox import open_inbox

        defined = self._channel_with_source(channel)
        assert defined.source is not None
        opened = inbox or open_inbox(defined.source, self.settings.root, watch=watch_folder)
        try:
            yield FileReceiver(self.runtime, defined, opened)
        finally:
            if inbox is None:
                opened.close()

    # seals

    def seal(self, channel: Channel | str) -> list[Seal]:
        """Seal every day or hour of a channel that is complete: it gets its final form first, and its seal last.

        Raises:
            DefinitionError: the channel does not say when its days or hours are complete.
        """
        name = self.known(channel)
        return self._sealer.seal_complete_groups(name, self._compaction_policy(name))

    def sealable(self, channel: Channel | str) -> tuple[list[Due], list[Open]]:
        """Which days or hours ``seal`` would seal; and which it would not, and why: its dry run."""
        return self._sealer.find_sealable_groups(self.known(channel))

    def seals(self, channel: Channel | str, limit: int = 1000) -> list[Seal]:
        """The seals of a channel, latest first. One that says ``reopened`` has been followed by more data."""
        return self.catalog.seals(self.known(channel), limit)

    def _channel_with_source(self, channel: Channel | str) -> Channel:
        """A channel with its source, registered together with its quarantine."""
        name = channel if isinstance(channel, str) else channel.name
        known = [c for c in self.project.channels if c.name == name]
        defined = channel if isinstance(channel, Channel) else next(iter(known), None)
        if defined is None or defined.source is None:
            self.known(name)  # says so if there is none
            raise DefinitionError(
                f"channel {name!r} has no source, from which files could arrive",
                expected="a channel of the project, with source=nova.files(...)",
                next=f'nova.Channel("{name}", source=nova.files("landing/{name}"))',
                channel=name,
            )
        self.catalog.register([defined, quarantine_channel(defined)])
        return defined
