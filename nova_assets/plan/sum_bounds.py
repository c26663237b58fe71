"""Remaining headroom of the sums of a channel before they overflow, and the blocks of each sum. Pure.

A snapshot adds up a base and the deltas after it. A consumer adds up the deltas since its cursor, without the earlier
sum. If a sum moves from one end of its type to the other, the consumer's sum overflows although each snapshot is valid.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction

from nova_assets.model.block import Block, Manifest
from nova_assets.model.schema import DataType
from nova_assets.model.sum_bounds import RequireSumHeadroom, greatest_symmetric_value, largest_recorded_magnitude
from nova_assets.model.timeline import History, PartitionHistory
from nova_assets.plan import modes
from nova_assets.plan.delta_paths import last_number_up_to

SMALL_SUM_DIVISOR = 1000
"""Sums of at most this fraction of their type's range are not compared with older versions."""


def sum_headrooms(
    history: History, delta: Manifest, type_by_column: Mapping[str, DataType]
) -> tuple[RequireSumHeadroom, ...]:
    """Remaining headroom of each summed column, for each partition that a delta touches.

    Args:
        history: history below the delta.
        delta: manifest of the delta.
        type_by_column: types of the summed columns.
    """
    headrooms: list[RequireSumHeadroom] = []
    for partition, part in delta.split_by_partition().items():
        blocks = [b for b in history.blocks if b.partition == partition]
        for column, type_ in type_by_column.items():
            room = _sum_headroom(blocks, part, column, type_)
            headrooms.append(RequireSumHeadroom(history.channel, history.head, partition, column, room))
    return tuple(headrooms)


def is_headroom_ample(headrooms: Iterable[RequireSumHeadroom], type_by_column: Mapping[str, DataType]) -> bool:
    """Whether every sum is so far from its limit that the difference between any two versions fits into the type."""
    return all(
        r.headroom is not None
        and r.headroom >= _greatest_value(type_by_column[r.column]) * (SMALL_SUM_DIVISOR - 1) / SMALL_SUM_DIVISOR
        for r in headrooms
    )


def _sum_headroom(blocks: Sequence[Block], delta: Manifest, column: str, type_: DataType) -> Fraction | None:
    """Remaining range of a type after all deltas are added to the largest base; None if the bounds do not suffice."""
    deltas = [
        largest_recorded_magnitude(m.files, column) for m in (delta, *(b.manifest for b in blocks if b.kind == "delta"))
    ]
    bases = [largest_recorded_magnitude(b.manifest.files, column) for b in blocks if b.kind == "base"]
    if None in deltas or None in bases:
        return None
    remaining = (
        _greatest_value(type_)
        - sum(d for d in deltas if d is not None)
        - max((b for b in bases if b is not None), default=0)
    )
    return remaining if remaining >= 0 else None


def _greatest_value(type_: DataType) -> Fraction:
    most = greatest_symmetric_value(type_)
    assert most is not None
    return most


def block_chains_to_sum(history: History, partition_history: PartitionHistory) -> Iterator[tuple[Block, ...]]:
    """Chains of blocks that a reader may add up, newest block first: the snapshot, and the changes since any version.

    Consumers do not read drops (R19), so their changes add up data from before and after a drop.
    """
    base, deltas = modes.base_and_deltas(history, partition_history, history.head)
    newest_first = tuple(reversed(deltas))
    yield newest_first if base is None else (*newest_first, base)
    undropped_histories = modes.history_without_drops(history, 0, history.head).partition_histories
    finest_deltas = _finest_deltas_to_head(
        next((t for t in undropped_histories if t.partition == partition_history.partition), partition_history)
    )
    # An int that goes from -2e9 to 0 and to 2e9 is right in each snapshot, but its last two deltas add up to 4e9.
    if finest_deltas != newest_first:
        yield finest_deltas


def _finest_deltas_to_head(partition_history: PartitionHistory) -> tuple[Block, ...]:
    """Shortest deltas that lead to the head, newest first, back to a gap or to a base that compaction did not add."""
    found: list[Block] = []
    newest_base = max((b.hi for b in partition_history.blocks if modes.is_user_written_base(b)), default=0)
    at = partition_history.numbers[-1] if partition_history.numbers else 0
    while at > newest_base:
        ending_deltas = [b for b in partition_history.blocks if b.kind == "delta" and b.hi == at]
        if not ending_deltas:
            break
        found.append(max(ending_deltas, key=lambda b: b.lo))
        at = last_number_up_to(partition_history.numbers, found[-1].lo)
    return tuple(found)
