"""Garbage collection decisions: blocks that no retained answer needs may be collected (R15), and calendar partitions
whose retention period is over are dropped (R19). Pure.

The planner takes the retention state of a channel and returns a verdict on every block. The functions that answer reads
(``plan/modes``) also determine which blocks a possible reader would open. All these blocks are retained, so a legal
read never finds its blocks collected.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial

from nova_assets.errors import BlockCollected
from nova_assets.model.block import Block
from nova_assets.model.channel_state import RetentionState, RetentionVerdict
from nova_assets.model.partitions import Dimension, is_in_scope, partition_values
from nova_assets.model.period import period_seconds
from nova_assets.model.reads import DeltaChain, Read, has_own_models, source_blocks
from nova_assets.model.timeline import History
from nova_assets.plan import modes
from nova_assets.plan.delta_paths import chainable_path, shortest_delta_path
from nova_assets.plan.modes import base_and_deltas

NEWEST_SNAPSHOT = "the newest snapshot"


def retention_verdicts(state: RetentionState) -> tuple[RetentionVerdict, ...]:
    """Verdict on every block of the channel, oldest first."""
    reasons_by_block: dict[str, dict[str, None]] = {b.id: {} for b in state.history.blocks}
    for dropped in (b for b in state.history.blocks if b.origin == "drop"):  # a block of a drop has no files
        reasons_by_block[dropped.id]["readers of later changes: the block records that the partition was dropped"] = (
            None
        )
    # What a read needs is not described a second time. Reads open the newest base and the fewest deltas, so without the
    # blocks that they do not open, they still open the same blocks.
    for reason, read in _retained_reads(state):
        for block in source_blocks(read):
            assert isinstance(block, Block)
            reasons_by_block[block.id][reason] = None
    return tuple(RetentionVerdict(b, tuple(reasons_by_block[b.id])) for b in state.history.blocks)


def _retained_reads(state: RetentionState) -> Iterator[tuple[str, Read]]:
    """(reason, read) of every read that must stay possible."""
    yield NEWEST_SNAPSHOT, modes.snapshot(state.history)
    yield from _retained_reads_but_newest(state)


def reasons_of_possible_reads(state: RetentionState) -> Iterator[str]:
    """Reasons of the retained reads that are still possible, one for each read."""
    for reason, _ in (
        *_read_if_possible(NEWEST_SNAPSHOT, partial(modes.snapshot, state.history)),
        *_retained_reads_but_newest(state),
    ):
        yield reason


def _retained_reads_but_newest(state: RetentionState) -> Iterator[tuple[str, Read]]:
    """(reason, read) of every retained read except the newest snapshot."""
    history = state.history
    head = history.head
    for reader in state.consumers:
        reads_old_snapshot = reader.reads_old_snapshot or state.may_get_base
        yield from _reads_of_cursor(
            history, reader.name, reader.cursor, head, reader.scope, reads_old_snapshot, reader.has_run
        )
    for pin in state.pins:
        scoped_history = history_in_scope(history, pin.scope)
        yield from _read_if_possible(
            f"{pin.holder}, which has pinned {pin.head}", partial(modes.snapshot, scoped_history, pin.head)
        )
        if pin.cursor is not None:
            yield from _reads_of_cursor(history, pin.holder, pin.cursor, pin.head, pin.scope, True, pin.has_run)
            # After its commit the cursor is at the pinned head, and the next run reads the changes after it.
            yield from _reads_of_cursor(
                history, f"{pin.holder} after its commit", pin.head, head, pin.scope, True, True
            )
    if state.oldest_kept_version is not None and state.oldest_kept_version < head:
        yield from _time_travel_reads(history, state.oldest_kept_version)


def _reads_of_cursor(
    history: History, reader: str, cursor: int, head: int, scope: str, reads_old_snapshot: bool, has_run: bool
) -> Iterator[tuple[str, Read]]:
    if cursor == 0 and not has_run:
        return  # its first run reads the snapshot at the head
    scoped_history, reason = history_in_scope(history, scope), f"{reader}, whose cursor is at {cursor}"
    yield from _read_if_possible(reason, partial(modes.changes, scoped_history, cursor, head, has_run=has_run))
    if cursor == 0:
        return  # the channel was empty at 0: no old snapshot and no comparison
    yield from ((reason, _read_of_block(base)) for base in _newest_replacing_bases(scoped_history, cursor, head))
    yield from ((reason, _read_of_block(delta)) for delta in _paths_with_own_models(scoped_history, cursor, head))
    if reads_old_snapshot:
        yield from _read_if_possible(
            f"{reader}, for the snapshot at its cursor {cursor}", partial(modes.snapshot, scoped_history, cursor)
        )


def _newest_replacing_bases(history: History, since: int, at: int) -> Iterator[Block]:
    """Newest base of each partition without a path of chainable deltas, from a task, an insert or a restore.

    A read does not open that base if a later base of compaction exists. It still proves that the change must be
    computed by comparing snapshots, and that no delta was lost.
    """
    for partition_history in history.partition_histories:
        if chainable_path(partition_history, since, at) is None:
            bases = [b for b in partition_history.blocks if modes.is_user_written_base(b) and since < b.hi <= at]
            yield from sorted(bases, key=lambda b: b.hi)[-1:]


def _paths_with_own_models(history: History, since: int, at: int) -> Iterator[Block]:
    """Deltas of partitions in which a delta has a merge model of its own (Nova 3.1).

    The change is the difference of two snapshots, which may not open these deltas. Like replacing bases, the deltas
    prove that no delta was lost.
    """
    for partition_history in history.partition_histories:
        path = shortest_delta_path(partition_history, since, at) or ()
        if has_own_models(path):
            yield from path


def _time_travel_reads(history: History, oldest_version: int) -> Iterator[tuple[str, Read]]:
    """Reads that keep every number from ``oldest_version`` on answerable.

    For each partition these are the snapshot at that number, or the oldest answerable snapshot after it, and every
    later block that compaction did not add.
    """
    reason = f"time travel back to {oldest_version}"
    for partition_history in history.partition_histories:
        history_of_partition = history.for_partitions({partition_history.partition})
        yield from _read_if_possible(
            reason,
            partial(
                modes.snapshot,
                history_of_partition,
                max(oldest_version, modes.oldest_answerable_version(history_of_partition)),
            ),
        )
    later = [b for b in history.blocks if b.hi > oldest_version and b.origin != "compact"]
    for block in later:
        yield reason, _read_of_block(block)


def _read_if_possible(reason: str, plan_read: Callable[[], Read]) -> Iterator[tuple[str, Read]]:
    """A retained read, if it is still possible. A read that is already impossible retains nothing."""
    with suppress(BlockCollected):
        read = plan_read()
        yield reason, read


def _read_of_block(block: Block) -> Read:
    return DeltaChain(block.channel, block.lo, block.hi, (block,), block.manifest.schema, block.merge)


def history_in_scope(history: History, scope: str) -> History:
    """The history restricted to a scope."""
    if not scope:
        return history
    return replace(
        history,
        scope=scope,
        blocks=tuple(b for b in history.blocks if is_in_scope(b.partition, scope)),
        collected_numbers={p: n for p, n in history.collected_numbers.items() if is_in_scope(p, scope)},
    )


def oldest_retained_version(state: RetentionState) -> int:
    """Oldest number that a reader may still request, besides the newest snapshot.

    A partition without changes since then answers every request with its newest snapshot.
    """
    cursors = [r.cursor for r in state.consumers if r.cursor or r.has_run]
    pinned = [n for p in state.pins for n in (p.head, p.cursor) if n]
    kept = [] if state.oldest_kept_version is None else [state.oldest_kept_version]
    return min([state.history.head, *cursors, *pinned, *kept])


def blocks_to_collect(verdicts: Sequence[RetentionVerdict]) -> tuple[Block, ...]:
    """Blocks that no reader needs."""
    return tuple(v.block for v in verdicts if not v.held_by)


# partitions whose retention period is over


def expired_partitions(
    dimensions: Sequence[Dimension], keep_by_column: Mapping[str, str], partitions: Iterable[str], now: datetime
) -> tuple[str, ...]:
    """Partitions whose retention period is over.

    Args:
        dimensions: dimensions of the channel.
        keep_by_column: column -> how long a partition is kept after its end.
        partitions: partitions with data.
        now: current time, with a zone.
    """
    dimensions_with_period = [
        (d, period_seconds(keep_by_column[d.column])) for d in dimensions if d.column in keep_by_column
    ]

    def is_expired(partition: str) -> bool:
        values = partition_values(partition)
        end_times = [(d.partition_end(values.get(d.column)), seconds) for d, seconds in dimensions_with_period]
        return any(e is not None and s is not None and e + timedelta(seconds=s) <= now for e, s in end_times)

    return tuple(p for p in partitions if is_expired(p))


def nonempty_partitions(history: History, partitions: Collection[str]) -> tuple[str, ...]:
    """The partitions of a collection that may have rows."""
    found = []
    for partition_history in history.partition_histories:
        if partition_history.partition in partitions:
            base, deltas = base_and_deltas(history, partition_history, history.head)
            if deltas or (base is not None and base.rows):
                found.append(partition_history.partition)
    return tuple(found)
