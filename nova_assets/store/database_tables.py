"""Refresh of channels that copy a database table: changed partitions as bases, or new rows as deltas (BigDataFlow 2).

All rows of a refresh come from one snapshot of the database. The version of each partition is committed together with
its rows. So an interrupted refresh copies nothing twice, and two refreshes at once commit one result.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from nova_assets.errors import CommitConflict, NotSupported, PartitionError, SourceUnavailable
from nova_assets.execution.commit_request import load_block_requirements
from nova_assets.execution.runtime import Runtime
from nova_assets.masking import get_logger
from nova_assets.model.block import Kind, Manifest
from nova_assets.model.channel import Channel
from nova_assets.model.commit import AddBlock, CommitRequest, RequireHead
from nova_assets.model.database_table import DatabaseRead, SetSourceVersion
from nova_assets.model.execution import Execution
from nova_assets.model.external_table import RefreshResult
from nova_assets.model.partitions import WHOLE
from nova_assets.nova_error import NovaError
from nova_assets.plan.external_changes import (
    ExternalChanges,
    LocationContents,
    contents_of_rows,
    detect_changes,
    unexpected_partitions,
)
from nova_assets.sources.postgres.marks import settled_mark
from nova_assets.sources.postgres.snapshot import PostgresSnapshot, open_snapshot
from nova_assets.user_code_errors import summarize_user_error

log = get_logger("nova_assets.external")

PARTITIONS_PER_COMMIT = 100
"""Number of partitions per commit. An interrupted refresh keeps the commits that it has made."""


class DatabaseTableRefresher:
    """Detects and commits changes in the tables of databases."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self.catalog = runtime.catalog
        self.engine = runtime.engine

    def refresh(
        self, channel: Channel, expected_partitions: Collection[str] | None, allow_vanished: bool, dry_run: bool = False
    ) -> RefreshResult:
        """Commit the changes of a table since the last refresh.

        Args:
            expected_partitions: partitions that the channel should have, if its dimensions do not determine them.
            allow_vanished: accept that partitions have vanished, however many.
            dry_run: only report the partitions that have changed.

        Raises:
            SourceUnavailable: the database does not answer, or a row cannot be represented.
            SchemaMismatch, DefinitionError: the definition contradicts the source.
            CommitConflict: another process refreshes the channel.
            NotSupported: the rows of the channel come from files, or were copied in the other way.
        """
        is_registered = channel.name in {c.channel.name for c in self.catalog.definitions.channels()}
        head = self.catalog.definitions.channel(channel.name).head if is_registered else 0
        versions = self.catalog.sources.versions(channel.name) if is_registered else {}
        self._check_rows_are_of_same_kind(channel, versions)
        assert channel.external is not None
        if channel.external.has_changes:
            return self._append_new_rows(channel, head, versions.get(WHOLE), dry_run)
        with open_snapshot(channel) as snapshot:
            contents = contents_of_rows(channel, snapshot.partition_versions(), expected_partitions)
            changes = detect_changes(contents, versions, allow_gone=allow_vanished)
            comparison = _Comparison(channel, head, expected_partitions is not None, contents, changes)
            seq = None if dry_run else self._copy_changed_partitions(snapshot, comparison)
        return comparison.to_refresh_result(seq)

    def _check_rows_are_of_same_kind(self, channel: Channel, versions: Mapping[str, str]) -> None:
        """Raise NotSupported if the channel has rows that this refresh would keep beside the rows that it copies."""
        assert channel.external is not None
        has_mark = versions.get(WHOLE, "").startswith("{")
        if bool(versions) and has_mark == channel.external.has_changes:
            return
        state = {s.channel.name: s for s in self.catalog.definitions.channels()}.get(channel.name)
        if state is not None and state.head and any(p.rows for p in self.catalog.histories.partitions(channel.name)):
            raise NotSupported(
                f"external channel {channel.name!r} has rows that its definition did not copy",
                found="rows of an incremental table" if has_mark else "rows of files, or of whole partitions",
                expected="a channel without rows, or the earlier definition",
                next="declare a channel with another name for the new definition",
                channel=channel.name,
            )

    def _copy_changed_partitions(self, snapshot: PostgresSnapshot, comparison: _Comparison) -> int | None:
        """Commit the changed partitions in slices. Returns the last sequence number; None without changes."""
        changed, head, seq = list(comparison.changes.changed), comparison.head, None
        for first in range(0, len(changed), PARTITIONS_PER_COMMIT):
            partitions = changed[first : first + PARTITIONS_PER_COMMIT]
            head = seq = self._copy_partitions(snapshot, comparison, partitions, head)
        if comparison.changes.gone:
            seq = self._empty_vanished_partitions(comparison, head)
        return seq

    def _copy_partitions(
        self, snapshot: PostgresSnapshot, comparison: _Comparison, partitions: Sequence[str], head: int
    ) -> int:
        channel = comparison.channel
        versions = tuple(SetSourceVersion(channel.name, p, comparison.changes.changed[p].version) for p in partitions)
        with self._write(channel, head) as execution:
            manifest, block_id = self._stage(execution, snapshot, "base", snapshot.read_partitions(partitions))
            by_partition = manifest.split_by_partition()
            if unrequested := unexpected_partitions(partitions, by_partition):
                raise PartitionError(
                    f"the database returns rows of other partitions of {channel.name!r} than requested",
                    found=", ".join(unrequested[:5]),
                    expected=", ".join(partitions[:5]),
                )
            for partition in partitions:
                by_partition.setdefault(partition, replace(manifest, files=(), deletes=0))
            return self._commit(execution, channel, "base", block_id, by_partition, versions)

    def _empty_vanished_partitions(self, comparison: _Comparison, head: int) -> int:
        """Commit that partitions have vanished, as for vanished folders of files.

        If the channel defines its expected partitions, they are dropped, so that readers wait for them. Otherwise they
        become empty, which their consumers see as a change.
        """
        channel, gone = comparison.channel, comparison.changes.gone
        versions = tuple(SetSourceVersion(channel.name, p, None) for p in gone)
        assert channel.schema is not None
        empty = Manifest((), channel.schema)
        origin = "drop" if comparison.has_expected_partitions else "insert"
        with self._write(channel, head) as execution:
            request = CommitRequest(
                id=uuid.uuid4().hex,
                execution_id=execution.id,
                epoch=execution.epoch,
                binding=None,
                added_blocks=tuple(
                    AddBlock(uuid.uuid4().hex, channel.name, "base", empty, channel.merge, p, origin)  # type: ignore[arg-type]
                    for p in gone
                ),
                required_heads=(RequireHead(channel.name, head),),
                source_versions=versions,
                details={"refreshed": len(gone)},
            )
            return self.runtime.channel_writer.commit(request).numbers[channel.name]

    def _append_new_rows(self, channel: Channel, head: int, committed: str | None, dry_run: bool) -> RefreshResult:
        """Commit the rows above the committed mark as a delta. A changed definition copies all rows again, as a base.

        Raises:
            NotSupported: the definition has changed, and consumers have read the earlier rows.
        """
        state = _Mark.from_text(committed)
        mark, has_settled = settled_mark(channel, state.mark)
        if not has_settled:
            return RefreshResult(channel.name, unfinished=(WHOLE,))
        with open_snapshot(channel) as snapshot:
            is_redefined = state.definition not in (None, snapshot.definition_digest)
            if mark is None and not is_redefined:
                return RefreshResult(channel.name, same=1)
            new_mark = mark if mark is not None else state.mark
            if dry_run or new_mark is None:
                return RefreshResult(channel.name, changed=(WHOLE,) if new_mark is not None else (), same=0)
            if is_redefined and self.catalog.cursors.has_consumers(channel.name):
                raise NotSupported(
                    f"the definition of incremental channel {channel.name!r} has changed, and consumers have read it",
                    expected="the definition under which the earlier rows were read",
                    next="declare a channel with another name for the new definition, and bind its consumers to it",
                    channel=channel.name,
                )
            version = _Mark(new_mark, snapshot.definition_digest).as_text()
            kind: Kind = "base" if is_redefined else "delta"
            read = snapshot.read_above(None if is_redefined else state.mark, new_mark)
            with self._write(channel, head) as execution:
                manifest, block_id = self._stage(execution, snapshot, kind, read)
                by_partition = manifest.split_by_partition() or {WHOLE: manifest}
                if kind == "base":
                    for state_of_partition in self.catalog.histories.partitions(channel.name):
                        by_partition.setdefault(state_of_partition.partition, replace(manifest, files=(), deletes=0))
                versions = (SetSourceVersion(channel.name, WHOLE, version),)
                seq = self._commit(execution, channel, kind, block_id, by_partition, versions)
        return RefreshResult(channel.name, changed=tuple(by_partition), seq=seq)

    @contextmanager
    def _write(self, channel: Channel, expected_head: int) -> Iterator[Execution]:
        """An execution on the state with which the source was compared. Raises CommitConflict for another state."""
        with self.runtime.channel_writer.write(channel.name) as execution, self.engine.computation_scope():
            if execution.pins[channel.name].head != expected_head:
                raise CommitConflict(
                    f"channel {channel.name!r} was refreshed by another process", reason="head", channel=channel.name
                )
            yield execution

    def _stage(
        self, execution: Execution, snapshot: PostgresSnapshot, kind: Kind, read: DatabaseRead
    ) -> tuple[Manifest, str]:
        """Copy rows into a staged block. Returns its manifest and its id."""
        channel = snapshot.channel
        name, head = channel.name, execution.pins[channel.name].head
        history = self.catalog.histories.of(name, head, WHOLE, head if kind == "delta" else None, back_to=head)
        try:
            frame = self.engine.inputs.read_database(read)
            block = self.runtime.staging.write(execution, name, kind, channel, history, frame)
        except NovaError:
            raise
        except Exception as error:
            raise SourceUnavailable(
                f"the rows of external channel {name!r} cannot be copied",
                found=snapshot.explain_failure(read) or summarize_user_error(error).message,
                expected="values that the types of the channel represent, and a database that Spark's workers reach",
                next="correct the rows or the declared types; the channel keeps its earlier state",
                channel=name,
            ) from error
        assert block.manifest is not None
        return block.manifest, block.id

    def _commit(
        self,
        execution: Execution,
        channel: Channel,
        kind: Kind,
        block_id: str,
        by_partition: dict[str, Manifest],
        versions: tuple[SetSourceVersion, ...],
    ) -> int:
        name, head = channel.name, execution.pins[channel.name].head
        history = self.catalog.histories.of(name, head, WHOLE, head, back_to=head)
        blocks = tuple(
            AddBlock(block_id if n == 0 else f"{block_id}-{n}", name, kind, m, channel.merge, p, "insert")
            for n, (p, m) in enumerate(by_partition.items())
        )
        requirements = load_block_requirements(self.catalog, blocks, {name: history})
        request = CommitRequest(
            id=uuid.uuid4().hex,
            execution_id=execution.id,
            epoch=execution.epoch,
            binding=None,
            added_blocks=blocks,
            required_heads=(RequireHead(name, head),),
            required_without_consumers=requirements.without_consumers,
            schema_changes=requirements.schema_changes,
            source_versions=versions,
            details={"refreshed": len(blocks)},
        )
        commit = self.runtime.channel_writer.commit(request)
        return commit.numbers.get(name, head)


@dataclass(frozen=True)
class _Comparison:
    """Partitions of a source, compared with the committed state.

    Args:
        head: head of the channel before the comparison.
        has_expected_partitions: whether the channel defines which partitions should exist.
    """

    channel: Channel
    head: int
    has_expected_partitions: bool
    contents: LocationContents
    changes: ExternalChanges

    def to_refresh_result(self, seq: int | None) -> RefreshResult:
        """Report for people."""
        return RefreshResult(
            self.channel.name,
            tuple(self.changes.changed),
            self.changes.gone,
            self.changes.unconfirmed_gone,
            (),
            self.contents.ignored,
            tuple(sorted(self.contents.unexpected)),
            {},
            self.changes.unchanged_count,
            seq,
        )


@dataclass(frozen=True)
class _Mark:
    """State of an incremental channel: the largest value read, under which definition."""

    mark: str | None = None
    definition: str | None = None

    def as_text(self) -> str:
        return json.dumps({"mark": self.mark, "definition": self.definition}, sort_keys=True)

    @staticmethod
    def from_text(text: str | None) -> _Mark:
        return _Mark() if text is None else _Mark(**json.loads(text))
