"""How far the sums of a channel are from overflowing, by what the catalog knows; and the blocks of each sum. Pure.

A snapshot adds up a base and the deltas since. A consumer adds up the deltas since its cursor, whatever there was
before: where a sum goes from one end of its type to the other, that is too much, though each snapshot is right.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction

from nova_assets.model.block import Block, Manifest
from nova_assets.model.schema import DataType
from nova_assets.model.sum_bounds import SumHeadroom, greatest_number, largest_magnitude
from nova_assets.model.timeline import History, PartitionHistory
from nova_assets.plan import modes

SMALL_SUM_DIVISOR = 1000
"""Sums of at most this part of their type are not compared with older versions."""


def sum_headrooms(history: History, delta: Manifest, type_by_column: Mapping[str, DataType]) -> tuple[SumHeadroom, ...]:
    """For each partition that a delta touches, and each column, how far its sums can still grow.

    Args:
        history: what the delta comes on top of.
        type_by_column: of the summed columns.
    """
    headrooms: list[SumHeadroom] = []
    for partition, part in delta.split_by_partition().items():
        blocks = [b for b in history.blocks if b.partition == partition]
        for column, type_ in type_by_column.items():
            room = _sum_headroom(blocks, part, column, type_)
            headrooms.append(SumHeadroom(history.channel, history.head, partition, column, room))
    return tuple(headrooms)


def are_sums_small(headrooms: Iterable[SumHeadroom], type_by_column: Mapping[str, DataType]) -> bool:
    """Whether all sums are so small that no two versions are too far apart."""
    return all(
        r.headroom is not None
        and r.headroom >= _greatest_number(type_by_column[r.column]) * (SMALL_SUM_DIVISOR - 1) / SMALL_SUM_DIVISOR
        for r in headrooms
    )


def _sum_headroom(blocks: Sequence[Block], delta: Manifest, column: str, type_: DataType) -> Fraction | None:
    """What is left of a type once all deltas are added to the greatest base; None where bounds do not tell."""
    deltas = [largest_magnitude(m.files, column) for m in (delta, *(b.manifest for b in blocks if b.kind == "delta"))]
    bases = [largest_magnitude(b.manifest.files, column) for b in blocks if b.kind == "base"]
    if None in deltas or None in bases:
        return None
    remaining = (
        _greatest_number(type_)
        - sum(d for d in deltas if d is not None)
        - max((b for b in bases if b is not None), default=0)
    )
    return remaining if remaining >= 0 else None


def _greatest_number(type_: DataType) -> Fraction:
    most = greatest_number(type_)
    assert most is not None
    return most


def summed_blocks(history: History, partition_history: PartitionHistory) -> Iterator[tuple[Block, ...]]:
    """The blocks that sums are made of, the latest first: for the snapshot, and for changes since any version.

    Consumers are not told of drops (R19), so their changes add up what came before a drop and after it.
    """
    base, deltas = modes.base_and_deltas(history, partition_history, history.head)
    newest_first = tuple(reversed(deltas))
    yield newest_first if base is None else (*newest_first, base)
    undropped_histories = modes.history_without_drops(history, 0, history.head).partition_histories
    finest_deltas = _finest_deltas_to_head(
        next((t for t in undropped_histories if t.partition == partition_history.partition), partition_history)
    )
    if finest_deltas != newest_first:
        yield finest_deltas


def _finest_deltas_to_head(partition_history: PartitionHistory) -> tuple[Block, ...]:
    """The deltas that lead to the head, each the shortest there is, back to where none leads on or a base was given."""
    found: list[Block] = []
    newest_base = max((b.hi for b in partition_history.blocks if modes.is_given_base(b)), default=0)
    at = partition_history.numbers[-1] if partition_history.numbers else 0
    while at > newest_base:
        ending_deltas = [b for b in partition_history.blocks if b.kind == "delta" and b.hi == at]
        if not ending_deltas:
            break
        found.append(max(ending_deltas, key=lambda b: b.lo))
        at = modes.last_number_up_to(partition_history.numbers, found[-1].lo)
    return tuple(found)
