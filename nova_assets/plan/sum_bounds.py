"""How far the sums of a channel are from overflowing, by what the catalog knows; and the blocks of each sum. Pure.

A snapshot adds up a base and the deltas since. A consumer adds up the deltas since its cursor, whatever there was
before: where a sum goes from one end of its type to the other, that is too much, though each snapshot is right.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction

from nova_assets.model.block import Block, Manifest
from nova_assets.model.schema import DataType
from nova_assets.model.sum_bounds import SumRoom, bound, limit
from nova_assets.model.timeline import History, Track
from nova_assets.plan import modes

SMALL = 1000
"""Sums of at most this part of their type are not compared with older versions."""


def rooms(history: History, new: Manifest, types: Mapping[str, DataType]) -> tuple[SumRoom, ...]:
    """For each partition that a delta touches, and each column, how far its sums can still grow.

    Args:
        history: what the delta comes on top of.
        types: of the summed columns.
    """
    found: list[SumRoom] = []
    for partition, part in new.by_partition().items():
        blocks = [b for b in history.blocks if b.partition == partition]
        for column, type_ in types.items():
            room = _room(blocks, part, column, type_)
            found.append(SumRoom(history.channel, history.head, partition, column, room))
    return tuple(found)


def are_small(found: Iterable[SumRoom], types: Mapping[str, DataType]) -> bool:
    """Whether all sums are so small that no two versions are too far apart."""
    return all(r.room is not None and r.room >= _most(types[r.column]) * (SMALL - 1) / SMALL for r in found)


def _room(blocks: Sequence[Block], new: Manifest, column: str, type_: DataType) -> Fraction | None:
    """What is left of a type once all deltas are added to the greatest base; None where bounds do not tell."""
    deltas = [bound(m.files, column) for m in (new, *(b.manifest for b in blocks if b.kind == "delta"))]
    bases = [bound(b.manifest.files, column) for b in blocks if b.kind == "base"]
    if None in deltas or None in bases:
        return None
    left = _most(type_) - sum(d for d in deltas if d is not None) - max((b for b in bases if b is not None), default=0)
    return left if left >= 0 else None


def _most(type_: DataType) -> Fraction:
    most = limit(type_)
    assert most is not None
    return most


def lines(history: History, track: Track) -> Iterator[tuple[Block, ...]]:
    """The blocks that sums are made of, the latest first: for the snapshot, and for changes since any version.

    Consumers are not told of drops (R19), so their changes add up what came before a drop and after it.
    """
    base, deltas = modes.state(history, track, history.head)
    later = tuple(reversed(deltas))
    yield later if base is None else (*later, base)
    without_drops = modes.without_drops(history, 0, history.head).tracks
    finest = _finest(next((t for t in without_drops if t.partition == track.partition), track))
    if finest != later:
        yield finest


def _finest(track: Track) -> tuple[Block, ...]:
    """The deltas that lead to the head, each the shortest there is, back to where none leads on or a base was given."""
    found: list[Block] = []
    given = max((b.hi for b in track.blocks if modes.replaces(b)), default=0)
    at = track.numbers[-1] if track.numbers else 0
    while at > given:
        ending = [b for b in track.blocks if b.kind == "delta" and b.hi == at]
        if not ending:
            break
        found.append(max(ending, key=lambda b: b.lo))
        at = modes.effective(track.numbers, found[-1].lo)
    return tuple(found)
