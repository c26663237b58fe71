"""Publishing of a channel to an external table, one published version (*edition*) after another.

    begin ─► open the version ─► show the version ─► commit
    (pin)    (catalog)           (table)             (catalog)

A published version is opened in the catalog before the table shows it. The version is deleted from the catalog after
the table no longer uses it. So wherever a process dies, no file is deleted that a table lists (R15).
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from datetime import timedelta

from nova_assets.crash_points import crash_point
from nova_assets.errors import CommitConflict, ExecutionInProgress, NotSupported
from nova_assets.execution.lease import is_owner_dead
from nova_assets.execution.runtime import Runtime
from nova_assets.masking import get_logger
from nova_assets.model.commit import CommitRequest
from nova_assets.model.compaction import Compaction
from nova_assets.model.engine import Engine
from nova_assets.model.execution import Execution
from nova_assets.model.period import period_seconds
from nova_assets.model.published_table import PublishedTable
from nova_assets.model.published_version import (
    PublicationPreview,
    PublishedContent,
    PublishedVersion,
    SetPublishedVersion,
    TableFile,
    TableFileLayout,
)
from nova_assets.model.timeline import History
from nova_assets.plan import modes
from nova_assets.plan.compaction import is_fully_compacted
from nova_assets.plan.published_versions import (
    certainly_shown_version,
    expired_versions,
    find_version_showing,
    partitions_to_compact,
    published_content,
    table_fingerprint,
    uncompacted_partitions,
)
from nova_assets.publish.target import Edition, PartitionConverter, PublishTarget
from nova_assets.store.compaction import ChannelCompaction, CompactionOptions
from nova_assets.store.insert import DataInserter

log = get_logger("nova_assets.publishing")

_MAX_ATTEMPTS = 4
"""Number of times that a channel is compacted for publishing while more data arrives."""


class TablePublisher:
    """Publishes a channel to a table.

    Args:
        compaction: compacts channels, since plain files cannot represent unmerged deltas.
        inserter: rewrites a channel in its current schema, with a sequence number of its own.
        outlet_factory: (table, channel) -> the target that writes the table.
        superseded_delay: seconds for which a published version stays readable after the table shows the next version.
    """

    def __init__(
        self,
        runtime: Runtime,
        compaction: ChannelCompaction,
        inserter: DataInserter,
        outlet_factory: Callable[[PublishedTable, str], PublishTarget],
        superseded_delay: float,
    ) -> None:
        self.runtime = runtime
        self.inserter = inserter
        self.catalog = runtime.catalog
        self.engine = runtime.engine
        self.compaction = compaction
        self.outlet_factory = outlet_factory
        self.superseded_delay = superseded_delay

    def needs_publish(self, channel: str, table: PublishedTable, history: History) -> bool:
        """Whether the table has newer content to show, or expired versions to remove, as far as the catalog knows.

        Args:
            history: history of the channel at its head.
        """
        content = self._load_publishable_content(channel, table, history, history.head)
        if content is None:
            return False
        published_versions = self.catalog.published_versions.find(channel, table.id)
        return find_version_showing(published_versions, table, content) is None or bool(
            expired_versions(published_versions, self.catalog.now(), self.superseded_delay)
        )

    def withdraw(self, channel: str, table: PublishedTable) -> None:
        """Unpublish a channel from a table. Files that the channel itself does not need are deleted.

        Raises:
            ExecutionInProgress: another process is publishing the channel.
            CopyUndecided: the catalog is a copy of another one, which may publish to the same tables.
        """
        self.runtime.staging.warehouse_check.check_may_delete("nothing is unpublished")
        published_versions = self.catalog.published_versions.find(channel, table.id)
        for published_version in published_versions:
            publishing_execution = (
                self.catalog.executions.get(published_version.execution_id)
                if published_version.state == "opening"
                else None
            )
            if (
                publishing_execution is not None
                and publishing_execution.state == "running"
                and not is_owner_dead(publishing_execution.owner)
            ):
                raise ExecutionInProgress(
                    f"channel {channel!r} is being published to {table.id}",
                    found=f"edition {published_version.number}, opened by {publishing_execution.owner}",
                    next="wait until that publication has ended, then run the command again",
                    owner=publishing_execution.owner,
                )
        self.outlet_factory(table, channel).withdraw()
        self.catalog.published_versions.delete(channel, table.id, [e.number for e in published_versions])

    def publish_in_table(
        self, channel: str, table: PublishedTable, policy: Compaction, take_over: bool
    ) -> PublishedVersion | None:
        """Publish the channel's current version to a table that shows another version. Returns the new version.

        Args:
            policy: target file sizes, if a compaction is necessary first.
            take_over: see ``PublishTarget.check_can_publish``.
        """
        outlet = self.outlet_factory(table, channel)
        outlet.check_can_publish(take_over=take_over)
        compacted_seq = 0  # sequence number of the last compaction, 0 for none
        for _ in range(_MAX_ATTEMPTS):
            with self.runtime.channel_writer.write(channel) as execution:
                head = execution.pins[channel].head
                history = self.catalog.histories.of(channel, head, back_to=compacted_seq or head)
                # The first version of a folder that is taken over has all days, sealed or not, as the folder had.
                include_open_days = take_over and outlet.published_version() is None
                contents = {
                    # A channel with constant writes is published at the number of its last compaction.
                    n: self._load_publishable_content(channel, table, history, n, include_open_days=include_open_days)
                    for n in ((head, compacted_seq) if compacted_seq else (head,))
                }
                uncompacted = {n: uncompacted_partitions(table, history, n, c) for n, c in contents.items()}
                publishable_seq = next((n for n in contents if not uncompacted[n]), None)
                if publishable_seq is not None and publishable_seq >= self._newest_published_seq(channel, table):
                    content = contents[publishable_seq]
                    if content is None or self._is_shown(channel, table, outlet, content):
                        self.runtime.staging.abort_and_delete_staged(
                            execution, "the table already shows the newest version"
                        )
                        return None
                    converter = _partition_converter(self.engine, history, content, policy.target)
                    return self._show_new_version(execution, table, outlet, content, take_over, converter)
                self.runtime.staging.abort_and_delete_staged(execution, "the channel must be compacted first")
            compaction = self.compaction.add_compacted_blocks(
                channel,
                CompactionOptions(policy, force=True, replace_own_bases=True, partitions=uncompacted[head]),
            )
            if compaction is None and self.catalog.definitions.channel(channel).head == head:
                compacted_seq = self._rewrite_in_current_schema(channel, head)
            else:
                compacted_seq = max((b.hi for b in compaction.blocks), default=0) if compaction is not None else 0
        raise CommitConflict(
            f"channel {channel!r} is still being written to after {_MAX_ATTEMPTS} attempts to publish it",
            reason="compacted",
            channel=channel,
        )

    def _show_new_version(
        self,
        execution: Execution,
        table: PublishedTable,
        outlet: PublishTarget,
        channel_content: PublishedContent,
        take_over: bool,
        convert: PartitionConverter,
    ) -> PublishedVersion:
        file_addresses = self.engine.warehouse.verified_addresses(channel_content.files)
        published_version = self._open_published_version(
            execution, table, channel_content, outlet.published_version() or 0
        )
        crash_point("edition.opened")
        outlet.publish(Edition(published_version.number, channel_content, file_addresses, take_over, convert))
        crash_point("edition.shown")
        self.runtime.channel_writer.commit(
            CommitRequest(
                id=uuid.uuid4().hex,
                execution_id=execution.id,
                epoch=execution.epoch,
                binding=None,
                added_blocks=(),
                published_versions=(SetPublishedVersion(channel_content.channel, table.id, published_version.number),),
                details={
                    "published": {"table": table.id, "edition": published_version.number, "seq": channel_content.seq}
                },
            )
        )
        crash_point("edition.known")
        log.info(
            "table %s shows channel %s at sequence number %d, in edition %d",
            table.id,
            channel_content.channel,
            channel_content.seq,
            published_version.number,
        )
        return next(
            e
            for e in self.catalog.published_versions.find(channel_content.channel, table.id)
            if e.number == published_version.number
        )

    def _open_published_version(
        self, execution: Execution, table: PublishedTable, channel_content: PublishedContent, after_number: int
    ) -> PublishedVersion:
        """Open the next published version. A version that a dead process left open is aborted first."""
        fingerprint = table_fingerprint(table, channel_content)
        try:
            return self.catalog.published_versions.open(
                execution.id, table.id, channel_content, fingerprint, after_number
            )
        except ExecutionInProgress as busy:
            if not is_owner_dead(busy.fields["owner"]):
                raise
            self.catalog.executions.abort(busy.fields["execution_id"], "its process has ended")
            return self.catalog.published_versions.open(
                execution.id, table.id, channel_content, fingerprint, after_number
            )

    def _is_shown(
        self, channel: str, table: PublishedTable, outlet: PublishTarget, channel_content: PublishedContent
    ) -> bool:
        newest = find_version_showing(self.catalog.published_versions.find(channel, table.id), table, channel_content)
        return newest is not None and outlet.published_version() == newest.number and outlet.is_complete(newest.number)

    def preview(self, channel: str, table: PublishedTable, history: History) -> PublicationPreview | None:
        """Changes that publishing would make to a table. None for a channel without a schema.

        Args:
            history: history of the channel at its head.
        """
        content = self._load_publishable_content(channel, table, history, history.head)
        if content is None:
            return None
        uncompacted = uncompacted_partitions(table, history, history.head, content)
        outlet = self.outlet_factory(table, channel)
        newest = max((e.number for e in self.catalog.published_versions.find(channel, table.id)), default=0)
        is_new = bool(uncompacted) or not self._is_shown(channel, table, outlet, content)
        number = 1 + max(newest, outlet.published_version() or 0) if is_new else None
        return PublicationPreview(table.id, content.seq, number, uncompacted, content.rows, len(content.files))

    def delete_expired_versions(self, channel: str, table: PublishedTable) -> None:
        """Remove expired versions: first from the table, then from the catalog."""
        expired = expired_versions(
            self.catalog.published_versions.find(channel, table.id), self.catalog.now(), self.superseded_delay
        )
        if expired:
            numbers = [e.number for e in expired]
            self.outlet_factory(table, channel).delete_versions(numbers)
            self.catalog.published_versions.delete(channel, table.id, numbers)

    def is_publish_interval_over(self, channel: str, table: PublishedTable) -> bool:
        newest = certainly_shown_version(self.catalog.published_versions.find(channel, table.id))
        shown_at = None if newest is None else newest.shown_at
        return shown_at is None or self.catalog.now() - shown_at >= timedelta(seconds=period_seconds(table.every) or 0)

    def _rewrite_in_current_schema(self, channel: str, head: int) -> int:
        """Rewrite the channel in its current schema after a column was dropped or widened.

        A compaction cannot do that, since a compacted block keeps the schema of its number (R18).

        Returns:
            The sequence number of the commit, or 0 if another process was faster.

        Raises:
            NotSupported: a partition holds a written base in an old schema, which stays unchanged.
        """
        history = self.catalog.histories.of(channel, head, back_to=head)
        outdated = partitions_to_compact(history, head)
        if not outdated:
            return 0
        has_hidden = any(b.manifest.schema.hidden for b in history.for_partitions(outdated).blocks)
        if not has_hidden and not is_fully_compacted(history.for_partitions(outdated)):
            raise _outdated_schema_error(channel, outdated, head)
        log.info("rewriting %s in its current schema, because a column was dropped, widened or hidden", channel)
        commit = self.inserter.restore(channel, head)
        return commit.seq or 0

    def _newest_published_seq(self, channel: str, table: PublishedTable) -> int:
        """Newest sequence number of the channel that the table shows or is about to show."""
        return max((e.seq for e in self.catalog.published_versions.find(channel, table.id)), default=0)

    def _load_publishable_content(
        self, channel: str, table: PublishedTable, history: History, seq: int, *, include_open_days: bool = False
    ) -> PublishedContent | None:
        """Files and seals that a table shows of a channel at a sequence number. None for a channel without a schema."""
        state = self.catalog.definitions.channel(channel)
        seals = self.catalog.seals.latest(channel) if state.seal is not None else {}
        seal_column = state.seal.by if state.seal is not None else None
        only_sealed = table.converts and not include_open_days
        return published_content(
            state.channel, history, seq, seals, seal_column, only_sealed=only_sealed, is_converted=table.converts
        )


def _outdated_schema_error(channel: str, partitions: Sequence[str], head: int) -> NotSupported:
    return NotSupported(
        f"channel {channel!r} cannot be published: columns were renamed, dropped or widened since its last base",
        found=", ".join(partitions[:3]) or "files with an older schema",
        expected="files with the current schema of the channel",
        next=f"nova restore {channel} --at {head} (rewrites the files in the current schema, at a new number)",
        channel=channel,
    )


def _partition_converter(
    engine: Engine, history: History, content: PublishedContent, target_bytes: int
) -> PartitionConverter:
    """Function that converts a partition of a channel at the number of a version.

    Args:
        engine: reads the rows and writes the files.
        history: history of the channel.
        content: content of the version.
        target_bytes: size of a file in bytes.
    """
    sizes: dict[str, tuple[int, int]] = {}
    for f in content.files:
        rows, size = sizes.get(f.partition, (0, 0))
        sizes[f.partition] = rows + f.rows, size + f.bytes

    def convert(partition: str, folder: str, layout: TableFileLayout) -> Sequence[TableFile]:
        rows, size = sizes[partition]
        return engine.table_files.write_files(
            modes.snapshot(history.for_partitions({partition}), content.seq),
            folder,
            layout,
            rows=rows,
            file_count=-(-size // target_bytes),
            target_bytes=target_bytes,
        )

    return convert
