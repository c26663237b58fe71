"""What a binding that waits for seals knows of them, partition by partition."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from nova_assets.model.binding import Binding
from nova_assets.model.partitions import partition_name, partition_values
from nova_assets.model.trigger import OnSealed
from nova_assets.store import Store


@dataclass(frozen=True)
class Sealed:
    """What a partitioned binding that waits for seals knows of them.

    Args:
        columns: of the binding's dimensions.
        channels: channel -> the column by which it is sealed.
        versions: channel -> group -> how often it was sealed.
    """

    columns: list[str]
    channels: Mapping[str, str]
    versions: Mapping[str, Mapping[str, int]]

    def partitions(self) -> set[str]:
        """Those that were sealed, whether they hold anything or not."""
        return {
            partition_name(self.columns, {by: group})
            for channel, by in self.channels.items()
            if self.columns == [by]
            for group in self.versions[channel]
        }

    def of(self, partition: str) -> dict[str, int]:
        """Channel -> how often the day or hour of a partition was sealed. Where the binding does not go by that, all
        seals count, as they do for the whole."""
        values = partition_values(partition)
        return {
            channel: self.versions[channel].get(values[by] or "", 0)
            for channel, by in self.channels.items()
            if by in values
        }


def sealed_of(binding: Binding, store: Store) -> Sealed:
    """The seals that a binding waits for."""
    how = {c: store.catalog.channel(c).seal for c in sealing(binding)}
    channels = {c: h.by for c, h in how.items() if h is not None}
    versions = {c: {g: s.version for g, s in store.catalog.latest_seals(c).items()} for c in channels}
    return Sealed([d.column for d in binding.dimensions], channels, versions)


def sealing(binding: Binding) -> list[str]:
    """The channels whose seals are waited for."""
    return [t.channel for t in binding.triggers if isinstance(t, OnSealed)]
