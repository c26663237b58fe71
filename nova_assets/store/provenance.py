"""Provenance of the data of a deployment."""

from __future__ import annotations

from collections.abc import Mapping

from nova_assets.execution.runtime import Runtime
from nova_assets.model.channel import Channel
from nova_assets.model.partitions import WHOLE, parse_partition
from nova_assets.model.provenance import ProvenanceStep
from nova_assets.operations.provenance import ProvenanceQuery, check_extent
from nova_assets.store.channel_registry import ChannelRegistry
from nova_assets.store.listings import ProvenanceListing


class StoreProvenance:
    """Store method that says where data came from, and where it went."""

    def __init__(self, runtime: Runtime, registry: ChannelRegistry) -> None:
        self.runtime = runtime
        self.registry = registry

    def provenance(
        self,
        channel: Channel | str,
        at: int | None = None,
        *,
        since: int | None = None,
        partition: str | Mapping[str, object] | None = None,
        downstream: bool = False,
    ) -> list[ProvenanceStep]:
        """Commits that a version of a channel was computed from, through all channels, back to the inserts.

        The answer follows what each commit recorded of its reads. No commit whose rows were used is missing. The answer
        may contain commits whose rows had no effect, because reads are recorded by number and partition, not by row.
        It needs no files, so it also covers blocks that were collected. What a task reads outside of channels is not
        recorded. The result of a Dagster asset that is no channel is not listed either.

        Args:
            at: the version. By default, the head.
            since: follow only the changes after this version, up to ``at``: of each input, the numbers that were new to
                the binding. With ``downstream``, ask about the numbers after this version instead of a whole version.
            partition: ask about this partition, or every partition with these values.
            downstream: commits that were computed from the version instead.

        Raises:
            ChannelNotFound: no such channel.
            VersionNotFound: the channel has no such sequence number.
            DefinitionError: ``since`` is not before ``at``.
            PartitionError: the channel has no such partition.

        Source: Nova, section 1 ("capturing data provenance and making it easily queriable") and section 2.4.
        """
        name = self.registry.registered_name(channel)
        catalog = self.runtime.catalog
        dimensions = catalog.channel(name).channel.partitions
        scope = parse_partition(dimensions, partition, allow_scope=True) if partition else WHOLE
        extent = check_extent(catalog, name, at, since, scope)
        query = ProvenanceQuery(catalog)
        return ProvenanceListing(query.trace_results(extent) if downstream else query.trace_sources(extent))
