"""States of existing partitions during one check of the datasets, loaded on demand."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from nova_assets.catalog.catalog import Catalog
from nova_assets.model.partitions import WHOLE
from nova_assets.model.scheduler_state import MaterializedPartition
from nova_assets.plan.staleness import PartitionLookup

MAX_SINGLE_LOOKUPS = 300
"""Number of single partition lookups of a channel above which all its partitions are loaded."""

MAX_CACHED_CHANNELS = 256
"""Number of channels whose partitions are all cached during a check, most recently used.

A dataset is checked soon after the datasets that it reads, so evicted channels are seldom loaded again.
"""


class _LazyPartitionStates(PartitionLookup):
    """Existing partitions of a channel, loaded one by one or all at once on demand.

    Args:
        is_maintained: whether the channel is a maintained dataset. An execution may have read its inputs, and changed
            nothing.
        has_cursors: whether its cursors tell what it has read.
    """

    def __init__(
        self,
        catalog: Catalog,
        name: str,
        head: int | None,
        on_loaded: Callable[[str], None],
        *,
        is_maintained: bool,
        has_cursors: bool,
    ) -> None:
        self._catalog = catalog
        self._name = name
        self._is_maintained = is_maintained
        self._has_cursors = has_cursors
        self._on_loaded = on_loaded
        self._looked_up_states: dict[str, MaterializedPartition | None] = {}
        self._all_states: Mapping[str, MaterializedPartition] | None = None
        super().__init__(head)

    def load_all(self) -> Mapping[str, MaterializedPartition]:
        """States of all partitions."""
        states = self._all_states
        if states is None:
            states = self._all_states = self._load_states(None)
        self._on_loaded(self._name)
        return states

    def _load_states(self, partitions: Sequence[str] | None) -> Mapping[str, MaterializedPartition]:
        states: Mapping[str, MaterializedPartition] = self._catalog.partitions.materialized(self._name, partitions)
        if self._has_cursors:
            return self._with_cursor_positions(states)
        if not self._is_maintained:
            return states
        later_reads = self._catalog.partitions.read_versions_without_change(self._name, partitions)
        later = {p: _with_later_reads(states[p], later_reads[p]) for p in later_reads.keys() & states.keys()}
        return {**states, **later}

    def _with_cursor_positions(
        self, states: Mapping[str, MaterializedPartition]
    ) -> Mapping[str, MaterializedPartition]:
        positions = {channel: seq for (channel, _), seq in self._catalog.cursors.positions(self._name).items()}
        if not positions:
            return states
        state = states.get(WHOLE, MaterializedPartition(0))
        return {**states, WHOLE: replace(state, read_versions={**state.read_versions, **positions})}

    def evict_all(self) -> None:
        self._all_states = None

    def find(self, partitions: Collection[str]) -> Iterable[MaterializedPartition]:
        """States of the given partitions that exist."""
        all_states = self._all_states
        if all_states is not None:
            return [all_states[p] for p in partitions if p in all_states]
        missing = [p for p in partitions if p not in self._looked_up_states]
        if len(self._looked_up_states) + len(missing) > MAX_SINGLE_LOOKUPS:
            self.load_all()
            return self.find(partitions)
        if missing:
            loaded = self._load_states(missing)
            self._looked_up_states |= {p: loaded.get(p) for p in missing}
        return [made for p in partitions if (made := self._looked_up_states[p]) is not None]

    def __getitem__(self, partition: str) -> MaterializedPartition:
        for state in self.find((partition,)):
            return state
        raise KeyError(partition)

    def __iter__(self) -> Iterator[str]:
        return iter(self.load_all())

    def __len__(self) -> int:
        return len(self.load_all())


def _with_later_reads(state: MaterializedPartition, versions: Mapping[str, int]) -> MaterializedPartition:
    """The state of a partition, with the newer of both versions that were read of each channel."""
    newest = {channel: max(version, state.read_versions.get(channel, 0)) for channel, version in versions.items()}
    return replace(state, read_versions={**state.read_versions, **newest})


class PartitionStatesByChannel(Mapping[str, _LazyPartitionStates]):
    """Partition states by channel during one check."""

    def __init__(
        self,
        catalog: Catalog,
        heads: Mapping[str, int],
        maintained_datasets: Collection[str],
        datasets_with_cursors: Collection[str],
    ) -> None:
        self._catalog = catalog
        self._maintained_datasets = maintained_datasets
        self._datasets_with_cursors = datasets_with_cursors
        self._heads = heads
        self._states_by_channel: dict[str, _LazyPartitionStates] = {}
        self._fully_loaded_channels: dict[str, None] = {}  # in order of last use
        self._updated_since_cache: dict[tuple[str, int], list[str]] = {}

    def existing_partitions(self, channel: str) -> list[str]:
        return list(self[channel])

    def partitions_updated_since(self, channel: str, after_version: int) -> list[str]:
        """Partitions that got data after a sequence number, or were dropped."""
        if (channel, after_version) not in self._updated_since_cache:
            self._updated_since_cache[channel, after_version] = self._catalog.partitions.updated_since(
                channel, after_version
            )
        return self._updated_since_cache[channel, after_version]

    def __getitem__(self, name: str) -> _LazyPartitionStates:
        if name not in self._states_by_channel:
            self._states_by_channel[name] = _LazyPartitionStates(
                self._catalog,
                name,
                self._heads.get(name),
                self._record_fully_loaded,
                is_maintained=name in self._maintained_datasets,
                has_cursors=name in self._datasets_with_cursors,
            )
        return self._states_by_channel[name]

    def _record_fully_loaded(self, name: str) -> None:
        self._fully_loaded_channels.pop(name, None)
        self._fully_loaded_channels[name] = None

    def evict_least_recent(self) -> None:
        """Evict the least recently used channels. Called between two datasets."""
        for name in list(self._fully_loaded_channels)[: max(0, len(self._fully_loaded_channels) - MAX_CACHED_CHANNELS)]:
            del self._fully_loaded_channels[name]
            self._states_by_channel[name].evict_all()

    def __contains__(self, name: object) -> bool:
        return True

    def __iter__(self) -> Iterator[str]:
        return iter(self._states_by_channel)

    def __len__(self) -> int:
        return len(self._states_by_channel)
