"""Ingestion of files that have arrived for a channel, each exactly once.

    announced ─► recorded in the catalog ─► read ─► staged ─► committed, with the outcome of each file ─► acknowledged

An announced file is first recorded in the catalog under a key of path and version. So an inbox may announce a file
late, twice, or to several processes. The commit that publishes the rows also records the outcome of each file. The
commit is rejected if one of the files is no longer waiting. Only then is the file acknowledged, so that the inbox does
not announce it again. So wherever a process dies, the next process finds the file either waiting or taken.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING, Any

from nova_assets.crash_points import crash_point
from nova_assets.errors import (
    CatalogUnavailable,
    CommitConflict,
    GroupSealed,
    SourceUnavailable,
    TooManyBadRecords,
)
from nova_assets.execution.commit_request import BlockRequirements, load_block_requirements, split_staged_block
from nova_assets.execution.insert_checks import InsertChecks
from nova_assets.execution.retries import plan_again_after_conflict
from nova_assets.execution.runtime import Runtime
from nova_assets.masking import get_logger
from nova_assets.model.arrival import Arrival, ArrivalOutcome
from nova_assets.model.channel import Channel
from nova_assets.model.commit import AddBlock, Commit, CommitRequest, RequireHead
from nova_assets.model.execution import Execution
from nova_assets.model.quarantine import quarantine_channel
from nova_assets.model.receive_result import ReceiveResult
from nova_assets.sources.batch import ArrivalBatch, infer_schema
from nova_assets.sources.inbox import Inbox, Notice

if TYPE_CHECKING:
    import pyarrow as pa

log = get_logger("nova_assets.receiving")

_MAX_RETRY_PAUSE = 60.0
"""Longest pause between two attempts to reach a source that does not answer, in seconds."""

_ALL_WAITING_FILES = 1_000_000

_FILES_PER_ANNOUNCEMENT = 1000
"""Number of listed files that are recorded in the catalog at once."""


class FileReceiver:
    """Ingests the files of one channel.

    Args:
        channel: a channel with a source.
        inbox: the inbox of that source.
    """

    def __init__(self, runtime: Runtime, channel: Channel, inbox: Inbox) -> None:
        assert channel.source is not None
        self.runtime = runtime
        self.channel = channel
        self.source = channel.source
        self.inbox = inbox

    def receive_files(self, *, list_unannounced: bool = True) -> ReceiveResult:
        """Ingest every file that has arrived, with as few blocks as the limits of the source allow.

        Args:
            list_unannounced: also list the source for files that were never announced.

        Raises:
            TooManyBadRecords: a batch has more bad records than the source allows. Nothing of the batch was ingested.
            SourceUnavailable: the source does not answer.
        """
        catalog, name = self.runtime.catalog, self.channel.name
        notices = self.inbox.poll(self.source.batch_files)
        announced_count = len(catalog.arrivals.announce(name, [a for n in notices for a in n.arrivals]))
        if list_unannounced:
            listing_started = catalog.now()
            listed_arrivals = self.inbox.list_arrivals(
                listing_started, catalog.definitions.channel(name).last_listing_started_at
            )
            # A seal waits for the files that existed when the listing began, so they count as known since then.
            announced_count += sum(
                len(catalog.arrivals.announce(name, batch_of_arrivals, listing_started))
                for batch_of_arrivals in _split_into_batches(listed_arrivals)
            )
            catalog.arrivals.record_source_listing(name, listing_started)
        crash_point("receive.announced")
        result = ReceiveResult(announced_count)
        max_files = self.source.batch_files
        while (ingested := self._ingest_batch(max_files)) is not None:
            batch, commit = ingested
            # Files that had to be left are read again. If many have to be, few of them are read at once.
            max_files = min(2 * (len(batch.outcomes) if batch.has_left_files else max_files), self.source.batch_files)
            result += ReceiveResult(
                0, len(batch.outcomes), batch.row_count, batch.bad_record_count, (commit,), why=batch.reason_counts
            )
        self._acknowledge_finished_notices(notices)
        return replace(result, waiting=catalog.arrivals.counts(name).waiting)

    def list_arriving(self) -> list[Arrival]:
        """Files that ``receive_files`` would ingest: waiting files, and files found by listing. Changes nothing.

        Files that only a queue has announced are missing, since reading the queue would change it.
        """
        catalog, name = self.runtime.catalog, self.channel.name
        arriving = [s.arrival for s in catalog.arrivals.waiting(name, _ALL_WAITING_FILES)]
        for batch in _split_into_batches(
            self.inbox.list_arrivals(catalog.now(), catalog.definitions.channel(name).last_listing_started_at)
        ):
            recorded_by_path = catalog.arrivals.by_path_key(name, [a.path_key for a in batch])
            recorded_keys = {s.arrival.key for versions in recorded_by_path.values() for s in versions}
            arriving += [a for a in batch if a.key not in recorded_keys]
        return arriving

    def follow_arrivals(self, poll_interval: float, listing_interval: float) -> Iterator[ReceiveResult]:
        """Ingest files as they arrive, for as long as the caller iterates. A source that does not answer is retried.

        Args:
            poll_interval: seconds between two checks for announced files.
            listing_interval: seconds between two listings for files that were never announced.
        """
        last_listing, pause = -listing_interval, poll_interval
        while True:
            is_listing_due = time.monotonic() - last_listing >= listing_interval
            try:
                result = self.receive_files(list_unannounced=is_listing_due)
            except (SourceUnavailable, CatalogUnavailable, CommitConflict) as error:
                pause = min(max(2 * pause, poll_interval), _MAX_RETRY_PAUSE)
                log.warning("%s; retrying in %.0f s", error.what, pause)
            else:
                last_listing, pause = (time.monotonic() if is_listing_due else last_listing), poll_interval
                if result.files:
                    yield result
            time.sleep(pause)

    def _ingest_batch(self, max_files: int) -> tuple[ArrivalBatch, Commit] | None:
        """Ingest one batch. Returns the batch and its commit, or None if no file is waiting."""

        def ingest_once() -> tuple[ArrivalBatch, Commit] | None:
            waiting = self._next_waiting_files(max_files)
            if not waiting:
                return None
            batch = self._read_next_batch(waiting)
            return batch, self._commit_batch(batch)

        return plan_again_after_conflict(
            ingest_once,
            f"the ingestion of files for {self.channel.name}",
            self.runtime.max_attempts,
            log,
            conflict_types=(CommitConflict, GroupSealed),
        )

    def _next_waiting_files(self, max_files: int) -> list[Arrival]:
        """Waiting files for one commit, oldest first."""
        return [s.arrival for s in self.runtime.catalog.arrivals.waiting(self.channel.name, max_files)]

    def _read_next_batch(self, waiting_files: Sequence[Arrival]) -> ArrivalBatch:
        catalog = self.runtime.catalog
        schema = catalog.definitions.channel(self.channel.name).schema or infer_schema(
            self.inbox, self.channel, self.source, waiting_files
        )
        batch = ArrivalBatch(self.channel, self.source, schema, catalog.now(), self.sealed_at_by_group())
        versions_by_path = catalog.arrivals.by_path_key(self.channel.name, [a.path_key for a in waiting_files])
        for arrival in waiting_files:
            if batch.outcomes and batch.memory_bytes > self.source.batch_bytes:
                break  # the other files wait for the next batch
            other_versions = [b for b in versions_by_path.get(arrival.path_key, []) if b.arrival.key != arrival.key]
            batch.read_arrival(self.inbox, arrival, other_versions)
        batch.end_before_conflicting_file()
        if self.source.is_too_bad(batch.bad_record_count, batch.row_count + batch.bad_record_count):
            first_bad = batch.quarantine_rows[0]
            raise TooManyBadRecords(
                f"{batch.bad_record_count} of {batch.row_count + batch.bad_record_count} arrived records "
                f"for channel {self.channel.name!r} are invalid",
                found=f"{first_bad['file']}, line {first_bad['line']}: {first_bad['reason']}",
                expected=f"max_bad={self.source.max_bad}",
                next="correct the files or the schema, or raise max_bad; the files still wait, and no record "
                "of them was ingested",
                channel=self.channel.name,
                bad=batch.bad_record_count,
                records=batch.row_count + batch.bad_record_count,
            )
        return batch

    def sealed_at_by_group(self) -> dict[str, datetime]:
        """Sealed group -> time of its seal, if the channel quarantines late data."""
        if self.channel.seal is None or self.channel.seal.late != "quarantine":
            return {}
        seals = self.runtime.catalog.seals.latest(self.channel.name)
        return {group: s.at for group, s in seals.items() if s.state == "sealed"}

    def _commit_batch(self, batch: ArrivalBatch) -> Commit:
        counts = {"files": len(batch.outcomes), "rows": batch.row_count, "bad": batch.bad_record_count}
        return self.commit_rows(batch.accepted_rows, batch.quarantine_table, batch.outcomes, {"received": counts})

    def commit_rows(
        self,
        good_rows: pa.Table,
        quarantined_rows: pa.Table,
        file_outcomes: Sequence[ArrivalOutcome],
        details: Mapping[str, Any],
        expected_quarantine_head: int | None = None,
    ) -> Commit:
        """Commit rows to the channel and to its quarantine, together with the outcomes of files.

        Args:
            expected_quarantine_head: head that the quarantine must still have. Otherwise the commit conflicts.

        Raises:
            CommitConflict: another process committed first. Nothing was changed.
            CheckFailed: the rows violate a check that the project gives to the channel. Nothing was changed.
        """
        quarantine = quarantine_channel(self.channel)
        writer = self.runtime.channel_writer
        checks = InsertChecks(self.runtime, self.channel.name, "delta")
        with writer.write(self.channel.name, quarantine.name, *checks.channels) as execution:
            tables_by_channel = ((self.channel, good_rows), (quarantine, quarantined_rows))
            staged = [
                self._stage_rows(execution, channel, table) for channel, table in tables_by_channel if table.num_rows
            ]
            required = sum((requirements for _, requirements in staged), BlockRequirements())
            heads = (
                () if expected_quarantine_head is None else (RequireHead(quarantine.name, expected_quarantine_head),)
            )
            request = CommitRequest(
                id=uuid.uuid4().hex,
                execution_id=execution.id,
                epoch=execution.epoch,
                binding=None,
                added_blocks=tuple(block for blocks, _ in staged for block in blocks),
                required_heads=heads,
                schema_changes=required.schema_changes,
                required_without_consumers=required.without_consumers,
                required_sum_headrooms=required.sum_headrooms,
                arrival_outcomes=tuple((self.channel.name, t) for t in file_outcomes),
                details=details,
            )
            return writer.commit(checks.run(execution).added_to(request))

    def _stage_rows(
        self, execution: Execution, channel: Channel, table: pa.Table
    ) -> tuple[list[AddBlock], BlockRequirements]:
        """Stage rows for one of the two channels. Returns its blocks and the requirements of the commit."""
        staging, head = self.runtime.staging, execution.pins[channel.name].head
        history = self.runtime.catalog.histories.of(channel.name, head, since=head, back_to=head)
        frame = self.runtime.engine.inputs.convert(
            table, history.schema, allow_widening=channel.on_schema_change == "evolve"
        )
        staged = staging.write(execution, channel.name, "delta", channel, history, frame)
        added_blocks = split_staged_block(staged, history, "insert")
        return added_blocks, load_block_requirements(self.runtime.catalog, added_blocks, {channel.name: history})

    def _acknowledge_finished_notices(self, notices: Sequence[Notice]) -> None:
        """Acknowledge the notices whose files are no longer waiting."""
        crash_point("receive.acknowledging")
        path_keys = [a.path_key for n in notices for a in n.arrivals]
        versions_by_path = self.runtime.catalog.arrivals.by_path_key(self.channel.name, path_keys)
        waiting_keys = {
            s.arrival.key for versions in versions_by_path.values() for s in versions if s.state == "waiting"
        }
        finished_notices = [n for n in notices if not any(a.key in waiting_keys for a in n.arrivals)]
        if finished_notices:
            self.inbox.acknowledge(finished_notices)
        crash_point("receive.acknowledged")


def _split_into_batches(arrivals: Iterable[Arrival]) -> Iterable[list[Arrival]]:
    iterator = iter(arrivals)
    while batch := list(islice(iterator, _FILES_PER_ANNOUNCEMENT)):
        yield batch
