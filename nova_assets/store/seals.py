"""Seals of complete days and hours."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from nova_assets.execution.runtime import Runtime
from nova_assets.model.channel import Channel
from nova_assets.model.seal import Seal
from nova_assets.plan.seal import IncompleteGroup, SealableGroup
from nova_assets.store.channel_registry import ChannelRegistry
from nova_assets.store.seal import GroupSealer


class StoreSeals:
    """Store methods that seal channels."""

    def __init__(self, runtime: Runtime, registry: ChannelRegistry, sealer: GroupSealer) -> None:
        self.runtime = runtime
        self.registry = registry
        self.sealer = sealer

    def seal(self, channel: Channel | str) -> list[Seal]:
        """Seal every complete day or hour of a channel. The files of a day or hour first get their final form. The seal
        is committed last.

        Raises:
            DefinitionError: the channel does not define when its days or hours are complete.
        """
        name = self.registry.registered_name(channel)
        return self._with_ends(name, self.sealer.seal_complete_groups(name, self.registry.compaction_policy(name)))

    def sealable(self, channel: Channel | str) -> tuple[list[SealableGroup], list[IncompleteGroup]]:
        """Dry run of ``seal``: the days or hours that ``seal`` would seal, and the incomplete days or hours with the
        reason.
        """
        return self.sealer.find_sealable_groups(self.registry.registered_name(channel))

    def seals(self, channel: Channel | str, limit: int = 1000) -> list[Seal]:
        """Seals of a channel, latest first. The state ``reopened`` means that more data arrived after the seal."""
        name = self.registry.registered_name(channel)
        return self._with_ends(name, self.runtime.catalog.seals(name, limit))

    def _with_ends(self, channel: str, seals: Iterable[Seal]) -> list[Seal]:
        state = self.runtime.catalog.channel(channel)
        by = None if state.seal is None else state.seal.by
        dimension = next((d for d in state.channel.partitions if d.column == by), None)
        return [s if dimension is None else replace(s, ended_at=dimension.partition_end(s.group)) for s in seals]
