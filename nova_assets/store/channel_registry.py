"""Channels of a deployment: register them, look them up, list their state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from nova_assets.catalog.catalog import Catalog
from nova_assets.errors import ChannelNotFound
from nova_assets.execution.actor import current_actor
from nova_assets.execution.runtime import Runtime
from nova_assets.model.channel import Channel
from nova_assets.model.channel_state import ChannelState, PartitionState
from nova_assets.model.compaction import Compaction
from nova_assets.model.project import Project
from nova_assets.model.reads import Snapshot
from nova_assets.model.timeline import Instant
from nova_assets.plan import modes
from nova_assets.store.listings import ChannelListing, InstantListing


class ChannelRegistry:
    """Channels in the catalog and in the project."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime

    def register(self, what: Channel | Project | Sequence[Channel], *, replace: bool = False) -> None:
        """Register channels, or a project with its bindings, in the catalog.

        Registering the same definition again changes nothing.

        Args:
            what: a channel, several channels, or a project with its bindings.
            replace: accept a different definition of a registered channel. If the merge model changes, the new model
                takes effect with the next base (R18). A binding whose removal is final is registered anew.

        Raises:
            DefinitionConflict: the channel is registered with a different definition, and ``replace`` is false.
            DefinitionRemoved: a channel, binding or workflowette was removed.
        """
        if isinstance(what, Project):
            self.runtime.catalog.definitions.register(what.channels, what.bindings, replace, current_actor())
        else:
            channels = [what] if isinstance(what, Channel) else list(what)
            self.runtime.catalog.definitions.register(channels, (), replace, current_actor())

    def channels(self) -> list[ChannelState]:
        """Every registered channel with its head, rows and bytes."""
        catalog = self.runtime.catalog
        return ChannelListing(catalog.definitions.channels(), lambda state: head_snapshot(catalog, state))

    def partitions(
        self, channel: Channel | str, partition: str | Mapping[str, object] | None = None
    ) -> list[PartitionState]:
        """Partitions of a channel, sorted by name. Dropped partitions are included (``is_dropped``).

        Args:
            partition: values of one or more dimensions. Only partitions with these values are returned.
        """
        state = self.registered_state(channel)
        return self.runtime.catalog.histories.partitions(state.channel.name, state.parse_scope(partition))

    def timeline(self, channel: Channel | str, limit: int | None = None) -> list[Instant]:
        """Instants of a channel, oldest first.

        Args:
            limit: return only the latest ``limit`` instants. By default, all.
        """
        return InstantListing(self.runtime.catalog.instants.of(self.known(channel), limit))

    def known(self, channel: Channel | str) -> str:
        """Name of a registered channel.

        A channel of the project, or a ``Channel`` object, is registered on its first use.

        Raises:
            ChannelNotFound: neither the catalog nor the project has the channel.
        """
        if isinstance(channel, Channel):
            self.register(channel)
            return channel.name
        return self.registered_state(channel).channel.name

    def registered_state(self, channel: Channel | str) -> ChannelState:
        """State of a channel, which is registered on its first use. Raises ChannelNotFound, as ``known``."""
        catalog = self.runtime.catalog
        if isinstance(channel, Channel):
            self.register(channel)
            return catalog.definitions.channel(channel.name)
        try:
            return catalog.definitions.channel(channel)
        except ChannelNotFound:
            definition = self.find_definition(channel)
            if definition is None:
                raise
            self.register(definition)
            return catalog.definitions.channel(channel)

    def find_definition(self, channel: Channel | str) -> Channel | None:
        """Definition of a channel: the ``Channel`` object itself, or the project's definition. None without any."""
        if isinstance(channel, Channel):
            return channel
        return next((c for c in self.runtime.project.channels if c.name == channel), None)

    def compaction_policy(self, channel: str) -> Compaction:
        """Compaction policy of a channel in the project's definition."""
        definition = self.find_definition(channel)
        return Compaction() if definition is None else definition.compaction or Compaction()


def head_snapshot(catalog: Catalog, state: ChannelState) -> Snapshot:
    """Snapshot of a channel at its head, without the blocks of earlier versions."""
    return modes.snapshot(catalog.histories.of(state.channel.name, state.head, back_to=state.head))
