"""Paths of deltas from one number of a partition to another. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence

from nova_assets.model.block import Block
from nova_assets.model.merge import Append, Multiset
from nova_assets.model.reads import has_own_models
from nova_assets.model.timeline import PartitionHistory


def chainable_path(partition_history: PartitionHistory, start: int, end: int) -> tuple[Block, ...] | None:
    """The shortest path of deltas, if chaining them gives the change in the channel's merge model.

    None also if a delta has another model (Nova 3.1), or if the channel's model changed on the path (R14, R18). The
    change is then the difference of the snapshots.
    """
    path = shortest_delta_path(partition_history, start, end)
    return None if path is None or has_own_models(path) or _has_several_channel_models(path) else path


def _has_several_channel_models(path: Iterable[Block]) -> bool:
    """Whether the merge model of the channel changed between deltas. Without a key, all rows are one multiset."""
    models = [b.model_of_channel for b in path]
    # Chained across a change of the key, a row whose new key had changed before it would never be deleted.
    has_keys = any(not isinstance(m, Append | Multiset) for m in models)
    return has_keys and any(m.as_json() != models[0].as_json() for m in models)


def shortest_delta_path(partition_history: PartitionHistory, start: int, end: int) -> tuple[Block, ...] | None:
    """Fewest deltas whose ends meet exactly from ``start`` to ``end`` (R9); None if no path exists.

    Commits to other partitions take numbers, too (R13). A number without a change of this partition is therefore
    equivalent to the last number with one.
    """
    numbers = partition_history.numbers
    first, last = last_number_up_to(numbers, start), last_number_up_to(numbers, end)
    delta_counts = {first: 0}  # number -> length of the shortest path to it
    reached_by: dict[int, tuple[int, Block]] = {}  # number -> previous number and last delta of its path
    for delta in sorted(
        (b for b in partition_history.blocks if b.kind == "delta" and b.hi <= end), key=lambda b: (b.hi, b.lo)
    ):
        lo = last_number_up_to(numbers, delta.lo)
        if lo in delta_counts and (delta.hi not in delta_counts or delta_counts[lo] + 1 < delta_counts[delta.hi]):
            delta_counts[delta.hi], reached_by[delta.hi] = delta_counts[lo] + 1, (lo, delta)
    if last not in delta_counts:
        return None
    found: list[Block] = []
    while last != first:
        last, delta = reached_by[last]
        found.append(delta)
    return tuple(reversed(found))


def last_number_up_to(numbers: Sequence[int], at: int) -> int:
    """The last of these numbers that is not greater than ``at``; 0 if there is none.

    Args:
        numbers: in ascending order.
        at: the upper limit.
    """
    count = bisect_right(numbers, at)
    return numbers[count - 1] if count else 0
