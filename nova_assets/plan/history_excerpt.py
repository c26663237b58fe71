"""Excerpts of a full history: the blocks that plans from some number on can need. Pure.

``catalog/history_excerpts`` computes the same excerpts with indexes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from nova_assets.model.reads import has_own_models
from nova_assets.model.schema import Schema
from nova_assets.model.timeline import History, PartitionHistory
from nova_assets.plan.delta_paths import shortest_delta_path
from nova_assets.plan.modes import is_answerable, is_user_written_base, schema_at_version


class IncompleteHistory(Exception):
    """The given history starts at bases, but older blocks are needed."""


def excerpt_history(
    history: History,
    changes_after: int = 0,
    snapshots_from: int = 0,
    schema_lookup: Callable[[int], Schema | None] | None = None,
) -> History:
    """Excerpt of a history for some kinds of reads.

    Args:
        history: the full history, or for each partition the blocks from its newest base at or before the number on.
        changes_after: only changes after this number will be read.
        snapshots_from: only snapshots from this number on, and changes after it, will be read.
        schema_lookup: returns the schema at a number; needed if the history is not full.

    Raises:
        IncompleteHistory: the history is not full, and older blocks are needed.
    """
    schema_at_number = schema_lookup or (
        lambda at: schema_at_version(history, at) if any(b.hi <= at for b in history.blocks) else None
    )
    if changes_after:
        return _changes_excerpt(history, changes_after, schema_at_number)
    return (
        _snapshots_excerpt(history, min(snapshots_from, history.head), schema_at_number) if snapshots_from else history
    )


def needs_comparison(partition_history: PartitionHistory, after_number: int, head: int) -> bool:
    """Whether the changes of a partition after a number require comparing snapshots.

    That is the case if a task, an insert or a restore wrote a base, a delta begins before the number or has a merge
    model of its own, or deltas were collected.

    Args:
        partition_history: blocks after the number.
        after_number: the number.
        head: head of the channel.
    """
    if any(is_user_written_base(b) or (b.kind == "delta" and b.lo < after_number) for b in partition_history.blocks):
        return True
    if has_own_models(partition_history.blocks):
        return True
    return shortest_delta_path(partition_history, after_number, head) is None


def needs_no_blocks_below_floor(
    partition_history: PartitionHistory, oldest_number: int, head: int, has_drop: bool
) -> bool:
    """Whether reads at two numbers, and between them, need no blocks below the floor of a partition.

    Args:
        partition_history: blocks from the floor on.
        oldest_number: the first of the two numbers.
        head: the second of the two numbers.
        has_drop: whether a partition was dropped after ``oldest_number``. Changes are computed as if it had not been
            dropped (R19), that is, without later bases of compaction and at numbers in between.
    """
    if has_drop and shortest_delta_path(partition_history, oldest_number, head) is None:
        return False
    has_later_drop = any(b.origin == "drop" and b.hi > oldest_number for b in partition_history.blocks)
    return (
        not has_later_drop
        and is_answerable(partition_history, oldest_number)
        and is_answerable(partition_history, head)
    )


def _snapshots_excerpt(
    history: History, oldest_number: int, schema_at_number: Callable[[int], Schema | None]
) -> History:
    partition_histories = _histories_from_base(history, history.partition_histories, oldest_number)
    earlier_schema = schema_at_number(oldest_number) if oldest_number < history.head else None
    return _build_excerpt(history, partition_histories, oldest_number, earlier_schema)


def _changes_excerpt(history: History, after_number: int, schema_at_number: Callable[[int], Schema | None]) -> History:
    later_histories = [_truncate_before(t, after_number + 1) for t in history.partition_histories]
    later_histories = [replace(t, floor=0) for t in later_histories if t.numbers]
    dropped = {t.partition for t in later_histories if any(b.origin == "drop" for b in t.blocks)}
    compared = {t.partition for t in later_histories if needs_comparison(t, after_number, history.head)} | dropped
    kept = [t for t in later_histories if t.partition not in compared]
    if not compared:
        return _build_excerpt(history, kept, after_number, history.schema_at_first_version)
    full_histories = [t for t in history.partition_histories if t.partition in compared]
    full_histories = (
        [_check_complete(history, t) for t in full_histories]
        if dropped
        else _histories_from_base(history, full_histories, after_number)
    )
    earlier_schema = schema_at_number(after_number)
    return _build_excerpt(history, [*kept, *full_histories], after_number, earlier_schema)


def _histories_from_base(
    history: History, partition_histories: Iterable[PartitionHistory], oldest_number: int
) -> list[PartitionHistory]:
    """History of each partition from its newest base at or before a number on."""
    pairs = [(t, _truncate_before(t, _newest_base_number(t, oldest_number))) for t in partition_histories]
    dropped = any(b.origin == "drop" and b.hi > oldest_number for _, truncated in pairs for b in truncated.blocks)
    return [
        _check_complete(history, partition_history)
        if truncated.floor and not needs_no_blocks_below_floor(truncated, oldest_number, history.head, dropped)
        else truncated
        for partition_history, truncated in pairs
    ]


def _check_complete(history: History, partition_history: PartitionHistory) -> PartitionHistory:
    if history.base_floors.get(partition_history.partition):
        raise IncompleteHistory
    return partition_history


def _newest_base_number(partition_history: PartitionHistory, oldest_number: int) -> int:
    return max((b.hi for b in partition_history.blocks if b.kind == "base" and b.hi <= oldest_number), default=0)


def _truncate_before(partition_history: PartitionHistory, first_number: int) -> PartitionHistory:
    if not first_number:
        return partition_history
    blocks = tuple(b for b in partition_history.blocks if b.hi >= first_number)
    return PartitionHistory(
        partition_history.partition,
        blocks,
        tuple(n for n in partition_history.numbers if n >= first_number),
        first_number,
    )


def _build_excerpt(
    history: History,
    partition_histories: Iterable[PartitionHistory],
    changes_after: int,
    schema_at_first_version: Schema | None,
) -> History:
    partition_histories = list(partition_histories)
    blocks = sorted((b for t in partition_histories for b in t.blocks), key=lambda b: (b.hi, b.kind, b.id))
    present_numbers = {(b.partition, b.hi) for b in blocks}
    collected_numbers = {
        t.partition: tuple(n for n in t.numbers if (t.partition, n) not in present_numbers) for t in partition_histories
    }
    return replace(
        history,
        blocks=tuple(blocks),
        collected_numbers={p: n for p, n in collected_numbers.items() if n},
        first_answerable_version=changes_after,
        base_floors={t.partition: t.floor for t in partition_histories if t.floor},
        schema_at_first_version=schema_at_first_version,
    )
