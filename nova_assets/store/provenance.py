"""Provenance of the data of a deployment."""

from __future__ import annotations

from collections.abc import Mapping

from nova_assets.execution.runtime import Runtime
from nova_assets.model.channel import Channel
from nova_assets.model.provenance import ProvenanceStep
from nova_assets.store.channel_registry import ChannelRegistry
from nova_assets.store.listings import ProvenanceListing
from nova_assets.store.provenance_query import ProvenanceQuery, slice_of_question


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

        The list contains every commit whose rows an execution may have used through its declared inputs. It may contain
        more, because reads are recorded by number and partition, not by row. It needs no files, so it also covers
        blocks that were collected. Other reads are not recorded: of ``store.read`` and ``ctx.views`` in a function, of
        checks, and of anything outside of channels. The result of a Dagster asset that is no channel is not listed.

        Args:
            at: the version. By default, the head.
            since: follow only the changes after this version, up to ``at``: of each input with a cursor, what was new.
                An input without a cursor is followed only if no input of the execution has one. With ``downstream``,
                ask about the numbers after this version instead of a whole version.
            partition: ask about this partition, or every partition with these values.
            downstream: list the commits that used the version, instead of those behind it.

        Raises:
            ChannelNotFound: no such channel.
            VersionNotFound: the channel has no such sequence number.
            DefinitionError: ``since`` is not before ``at``.
            PartitionError: the text names no partition of the channel.

        Source: Nova, section 1 ("capturing data provenance and making it easily queriable") and section 2.4.
        """
        name = self.registry.known(channel)
        catalog = self.runtime.catalog
        scope = catalog.channel(name).parse_scope(partition)
        asked = slice_of_question(catalog, name, at, since, scope)
        query = ProvenanceQuery(catalog)
        return ProvenanceListing(query.trace_results(asked) if downstream else query.trace_sources(asked))
