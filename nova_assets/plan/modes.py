"""The table of modes (DESIGN §3): the reads of ``new``, ``all`` and ``old``, from a channel's history. Pure.

The table applies to each partition separately (R13). Reads of several partitions are combined: rows of different
partitions have different keys, so their bases form one base, and their deltas form one chain.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace

from nova_assets.errors import BlockCollected, VersionNotFound
from nova_assets.model.block import Block
from nova_assets.model.merge import Append, MergeModel
from nova_assets.model.reads import (
    Change,
    ChangeUnion,
    DeltaChain,
    EmptyRead,
    Snapshot,
    SnapshotAsInserts,
    SnapshotDiff,
    StagedBlockPlaceholder,
    has_own_models,
)
from nova_assets.model.schema import Schema
from nova_assets.model.timeline import History, PartitionHistory
from nova_assets.plan.delta_paths import chainable_path, last_number_up_to, shortest_delta_path


def snapshot(history: History, at: int | None = None) -> Snapshot:
    """``all``: the snapshot at ``at`` (the head by default), from the newest base with a path of deltas to ``at``.

    A base made by compaction is equivalent to any other base (R9).

    Raises:
        VersionNotFound: the channel has no such number.
        BlockCollected: the required blocks were collected.
    """
    at = history.head if at is None else at
    if not 0 <= at <= history.head:
        raise VersionNotFound.of(history.channel, at, history.head)
    return _snapshot_of_partitions(history, history.partition_histories, at)


def changes(history: History, since: int, at: int | None = None, *, has_run: bool = False) -> Change:
    """``new``: the change from ``since`` to ``at``, by the first row of the table that applies.

    A base that was committed together with its change (R15) does not interrupt the deltas. A partition that retention
    has dropped (R19) is not reported as deleted: its unread changes from before the drop, and later data, are still
    read.

    Args:
        history: history of the channel.
        since: position of the consumer.
        at: the head by default.
        has_run: for ``since`` 0: the consumer ran at number 0. It then still needs data that was dropped since.

    Raises:
        VersionNotFound: the channel has no such number.
        BlockCollected: the blocks after ``since`` were collected.
    """
    at = history.head if at is None else at
    if not 0 <= since <= at:
        raise VersionNotFound(
            f"channel {history.channel!r} has no changes since {since}",
            found=since,
            expected=f"0 to {at}",
            channel=history.channel,
            head=history.head,
        )
    if since == 0:
        return _changes_since_empty(history, at) if has_run else SnapshotAsInserts(snapshot(history, at))
    undropped_history = history_without_drops(history, since, at)
    changed_partitions = [t for t in undropped_history.partition_histories if any(since < n <= at for n in t.numbers)]
    if not changed_partitions:
        return EmptyRead(history.channel, schema_at_version(history, at), _merge_model_at(history, at), is_change=True)
    paths = {t.partition: chainable_path(t, since, at) for t in changed_partitions}
    replaced_partitions = [t for t in changed_partitions if paths[t.partition] is None]
    parts: list[DeltaChain | SnapshotDiff | SnapshotAsInserts] = []
    if undropped_history is not history and isinstance(_merge_model_at(history, at), Append):
        parts = [p for t in replaced_partitions for p in _changes_around_drops(history, t.partition, since, at)]
        replaced_partitions = []
    if any(deltas is not None for deltas in paths.values()):
        deltas = _sort_by_number(d for deltas in paths.values() for d in deltas or ())
        parts.append(DeltaChain(history.channel, since, at, deltas, schema_at_version(history, at), history.merge))
    if replaced_partitions:
        for partition_history in replaced_partitions:
            is_base_between = any(since < b.hi <= at for b in partition_history.blocks if is_user_written_base(b))
            if not is_base_between and shortest_delta_path(partition_history, since, at) is None:
                raise version_collected_error(history.channel, since)
        parts.append(
            SnapshotDiff(
                _snapshot_of_partitions(history, replaced_partitions, since),
                _snapshot_of_partitions(undropped_history, replaced_partitions, at),
            )
        )
    return parts[0] if len(parts) == 1 else ChangeUnion(history.channel, tuple(parts))


def _changes_since_empty(history: History, at: int) -> Change:
    """Changes of a channel that was empty when its consumer ran: the snapshot as if retention had dropped nothing
    (R19).

    A partition whose dropped data is already collected is read as it is now. This concerns data that was collected
    before such consumers retained it.
    """
    undropped_history = history_without_drops(history, 0, at)
    if undropped_history is history:
        return SnapshotAsInserts(snapshot(history, at))
    dropped = {b.partition for b in history.blocks if b.origin == "drop" and b.hi <= at}
    undropped_by_partition, parts, plain = (
        {t.partition: t for t in undropped_history.partition_histories},
        list[DeltaChain | SnapshotDiff | SnapshotAsInserts](),
        list[PartitionHistory](),
    )
    for partition_history in history.partition_histories:
        with suppress(BlockCollected):
            if isinstance(_merge_model_at(history, at), Append) and partition_history.partition in dropped:
                parts += list(_changes_around_drops(history, partition_history.partition, 0, at))
                continue
            if is_answerable(undropped_by_partition[partition_history.partition], at):
                partition_history = undropped_by_partition[partition_history.partition]
        plain.append(partition_history)
    if plain or not parts:
        parts.append(SnapshotAsInserts(_snapshot_of_partitions(history, plain, at)))
    return parts[0] if len(parts) == 1 else ChangeUnion(history.channel, tuple(parts))


def _changes_around_drops(
    history: History, partition: str, since: int, at: int
) -> Iterator[DeltaChain | SnapshotDiff | SnapshotAsInserts]:
    """Changes of a partition of an append-only channel, split at its drops: before, between and after them.

    A change of an append-only channel cannot express removed rows, so a base after a drop is compared with the rows
    that were left. All parts have the schema at ``at``.
    """
    schema = schema_at_version(history, at)
    partition_history = history.for_partitions({partition})
    drops = sorted(b.hi for b in partition_history.blocks if b.origin == "drop" and since < b.hi <= at)
    for start, end in zip((since, *drops), (*(n - 1 for n in drops), at), strict=True):
        change = changes(partition_history, start, end)
        if isinstance(change, ChangeUnion):
            yield from (_set_schema(part, schema) for part in change.parts)
        elif isinstance(change, DeltaChain | SnapshotDiff | SnapshotAsInserts):
            yield _set_schema(change, schema)


def _set_schema(
    read: DeltaChain | SnapshotDiff | SnapshotAsInserts, schema: Schema | None
) -> DeltaChain | SnapshotDiff | SnapshotAsInserts:
    if isinstance(read, DeltaChain):
        return replace(read, schema=schema)
    if isinstance(read, SnapshotAsInserts):
        return replace(read, snapshot=replace(read.snapshot, schema=schema))
    return replace(read, new=replace(read.new, schema=schema))


def history_without_drops(history: History, since: int, at: int) -> History:
    """The history for a consumer that has read ``since``, as if retention had dropped nothing after that (R19).

    Bases of compaction contain only the rows left after a drop. They are left out, up to the next base from a task, an
    insert or a restore. A delta that was committed together with such a base (R15) describes the change after the drop.
    It is left out, too, if the base can be compared with the snapshot at ``since``.
    """
    drops = [(b.partition, b.hi) for b in history.blocks if b.origin == "drop" and since < b.hi <= at]
    if not drops:
        return history

    comparable_partitions = {t.partition for t in history.partition_histories if is_answerable(t, since)}
    given_base_numbers = {(b.partition, b.hi) for b in history.blocks if is_user_written_base(b)}

    def is_kept(block: Block) -> bool:
        earlier_drops = [n for partition, n in drops if partition == block.partition and n <= block.hi]
        if not earlier_drops:
            return True
        if block.kind == "delta":
            return block.partition not in comparable_partitions or (block.partition, block.hi) not in given_base_numbers
        if block.origin == "compact":
            given = [b.hi for b in history.blocks if b.partition == block.partition and is_user_written_base(b)]
            return any(max(earlier_drops) < n <= block.hi for n in given)
        return block.origin != "drop"

    return replace(history, blocks=tuple(b for b in history.blocks if is_kept(b)))


def old(history: History, since: int) -> Snapshot | EmptyRead:
    """``old``: the snapshot at the cursor; empty for a consumer that has never run."""
    if since == 0:
        return EmptyRead(history.channel, history.schema, history.merge, is_change=False)
    return snapshot(history, since)


def with_staged_block(
    read: Snapshot | Change, staged: StagedBlockPlaceholder, history: History, since: int
) -> Snapshot | Change:
    """The read as if the block staged on a port were committed on top of the pins (R5).

    Args:
        read: the read without the staged block.
        staged: the staged block.
        history: history of the channel.
        since: the pinned cursor.
    """
    if isinstance(read, Snapshot):
        return _put_staged_on_top(read, staged)
    if isinstance(read, SnapshotAsInserts):
        return SnapshotAsInserts(_put_staged_on_top(read.snapshot, staged))
    staged_chain = DeltaChain(history.channel, history.head, history.head, (staged,), history.schema, history.merge)
    if staged.kind == "delta" and isinstance(history.merge, Append) and isinstance(read, SnapshotDiff | ChangeUnion):
        return ChangeUnion(history.channel, (*(read.parts if isinstance(read, ChangeUnion) else (read,)), staged_chain))
    if staged.kind == "base" or has_own_models([staged]) or isinstance(read, SnapshotDiff | ChangeUnion):
        # Which partitions the staged block touches is not known yet: all of them are compared.
        undropped_history = history_without_drops(history, since, history.head)
        return SnapshotDiff(snapshot(history, since), _put_staged_on_top(snapshot(undropped_history), staged))
    if isinstance(read, DeltaChain):
        return replace(read, deltas=(*read.deltas, staged))
    return staged_chain


def _put_staged_on_top(snapshot: Snapshot, staged: StagedBlockPlaceholder) -> Snapshot:
    """Snapshot with a staged block. A staged base replaces everything in the scope, because it was written in
    it (R13).
    """
    if staged.kind == "base":
        return replace(snapshot, bases=(staged,), deltas=())
    return replace(snapshot, deltas=(*snapshot.deltas, staged))


def _snapshot_of_partitions(history: History, partition_histories: Iterable[PartitionHistory], at: int) -> Snapshot:
    bases: list[Block] = []
    deltas: list[Block] = []
    for partition_history in partition_histories:
        base, base_deltas = base_and_deltas(history, partition_history, at)
        bases += [base] if base is not None else []
        deltas += base_deltas
    return Snapshot(
        history.channel,
        at,
        _sort_by_number(bases),
        _sort_by_number(deltas),
        schema_at_version(history, at),
        history.merge,
    )


def base_and_deltas(
    history: History, partition_history: PartitionHistory, at: int
) -> tuple[Block | None, tuple[Block, ...]]:
    """The newest base of a partition with a path of deltas to ``at``, and these deltas."""
    for base in _base_candidates(partition_history, at):
        deltas = shortest_delta_path(partition_history, base.hi if base is not None else 0, at)
        if deltas is not None:
            return base, deltas
    raise version_collected_error(history.channel, at)


def is_answerable(partition_history: PartitionHistory, at: int) -> bool:
    """Whether the content of a partition at a number can be answered."""
    return any(
        shortest_delta_path(partition_history, 0 if base is None else base.hi, at) is not None
        for base in _base_candidates(partition_history, at)
    )


def _base_candidates(partition_history: PartitionHistory, at: int) -> Iterator[Block | None]:
    """Bases up to a number, newest first, and of one number that of compaction first.

    The last candidate is None for B_0, unless the history is cut at a floor.
    """
    bases = (b for b in partition_history.blocks if b.kind == "base" and b.hi <= at)
    yield from sorted(bases, key=lambda b: (b.hi, b.origin == "compact"), reverse=True)
    if not partition_history.floor:
        yield None


def _sort_by_number(blocks: Iterable[Block]) -> tuple[Block, ...]:
    """Blocks sorted by number. Within a partition this order matters, between partitions any order will do."""
    return tuple(sorted(blocks, key=lambda b: b.hi))


def is_user_written_base(block: Block) -> bool:
    """Whether a block is a base from a task, an insert or a restore.

    Bases of compaction (R9) and of retention that drops a partition (R19) are not.
    """
    return block.kind == "base" and block.origin not in ("compact", "drop")


def schema_at_version(history: History, at: int) -> Schema | None:
    """Schema at a number (R18): the schema of the newest block up to it."""
    if at >= history.head:
        return history.schema
    if history.schema_at_first_version is not None:
        newer = [b for b in history.blocks if history.first_answerable_version < b.hi <= at and b.origin != "compact"]
        return (
            max(newer, key=lambda b: b.hi).manifest.schema.without_columns("_deleted")
            if newer
            else history.schema_at_first_version
        )
    older_blocks = [b for b in history.blocks if b.hi <= at]
    blocks = [b for b in older_blocks if b.origin != "compact"] or older_blocks
    return max(blocks, key=lambda b: b.hi).manifest.schema.without_columns("_deleted") if blocks else history.schema


def _merge_model_at(history: History, at: int) -> MergeModel:
    """Merge model at a number (R18). A change without rows has the columns that a change with rows would have."""
    blocks = [b for b in history.blocks if b.hi <= at and b.origin != "compact"]
    if blocks:
        return max(blocks, key=lambda b: b.hi).model_of_channel
    return (history.last_merge if at >= history.head else None) or history.merge


def oldest_answerable_version(history: History) -> int:
    """Oldest number from which on every snapshot can be answered."""
    oldest_version = 0
    for partition_history in history.partition_histories:
        answerable, numbers = answerable_versions(partition_history), (0, *partition_history.numbers)
        collected = [n for n in range(len(numbers)) if numbers[n] not in answerable]
        if collected:  # answerable from the next change of the partition on
            oldest_version = max(
                oldest_version, numbers[collected[-1] + 1] if collected[-1] + 1 < len(numbers) else history.head
            )
    return oldest_version


def answerable_versions(partition_history: PartitionHistory) -> frozenset[int]:
    """Numbers of a partition, including 0, at which its content can be answered.

    Equivalent to ``is_answerable`` for each number, in one pass.
    """
    numbers = {0} | {b.hi for b in partition_history.blocks if b.kind == "base"}
    for delta in sorted((b for b in partition_history.blocks if b.kind == "delta"), key=lambda b: (b.hi, b.lo)):
        if last_number_up_to(partition_history.numbers, delta.lo) in numbers:
            numbers.add(delta.hi)
    return frozenset(numbers)


def version_collected_error(channel: str, at: int, oldest_version: int | None = None) -> BlockCollected:
    """Error for a version whose blocks were collected.

    Args:
        channel: name of the channel.
        at: the requested version.
        oldest_version: oldest version that still exists; None if unknown.
    """
    return BlockCollected(
        f"version {at} of channel {channel!r} was collected",
        found=at,
        expected="a newer version" if oldest_version is None else f"{oldest_version} or later",
        next=f'nova timeline {channel} lists the versions; to keep more: nova.Channel("{channel}", retain="30d")',
        channel=channel,
        oldest=oldest_version,
    )
