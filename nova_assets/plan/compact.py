"""When a channel is worth compacting, and what is compacted (R14). Pure.

A base saves everybody who reads ``all`` the merging of the deltas before it, and costs a reading and a writing of the
whole. How many will read is not known; so one is made when what the readers since the last one have paid for merging
exceeds what it costs. In hindsight that is at most twice as dear as knowing, as when one rents until the rent paid
exceeds the price. And it is made in any case before deltas grow many, or large beside their base: for the sake of
space, and of the one who reads after a long time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from nova_assets.model.block import Block
from nova_assets.model.compacting import Compacting
from nova_assets.model.merge import Append
from nova_assets.model.timeline import History
from nova_assets.plan import modes

MERGE = 0.8
"""What merging adds to a bare scan of the same bytes (DESIGN §6: 1.8 times)."""

OPENING = 4 * 1024 * 1024
"""Bytes that opening a file is worth, as Spark reckons."""


@dataclass(frozen=True, slots=True)
class Compact:
    """A partition to be compacted.

    Args:
        at: its newest number, at which the base is added.
        why: for people.
    """

    partition: str
    at: int
    why: str


def due(history: History, policy: Compacting, reads: int) -> tuple[Compact, ...]:
    """The partitions that are worth compacting now.

    Args:
        history: all blocks, up to the head.
        reads: how often the channel was read whole since its newest base.
    """
    found = []
    for track in history.tracks:
        base, deltas = modes.state(history, track, history.head)
        why = _why(history, base, deltas, policy, reads)
        if why is not None:
            found.append(Compact(track.partition, track.numbers[-1], why))
    return tuple(found)


def forced(history: History) -> tuple[Compact, ...]:
    """Every partition that has deltas to be compacted: as a person asks for it."""
    states = {t: modes.state(history, t, history.head) for t in history.tracks}
    return tuple(Compact(t.partition, t.numbers[-1], "asked for") for t, (_, deltas) in states.items() if deltas)


def _why(history: History, base: Block | None, deltas: tuple[Block, ...], policy: Compacting, reads: int) -> str | None:
    if not deltas:
        return None
    if len(deltas) >= policy.deltas:
        return f"{len(deltas)} deltas"
    base_bytes, delta_bytes = (0 if base is None else base.bytes), sum(b.bytes for b in deltas)
    if isinstance(history.merge, Append):
        return _small_files(base, deltas, policy, reads)
    if base is not None and delta_bytes > policy.share * base_bytes and delta_bytes > policy.small:
        return f"deltas of {delta_bytes} bytes beside a base of {base_bytes}"
    total = base_bytes + delta_bytes
    files = sum(len(b.manifest.files) for b in deltas)
    saved = reads * (MERGE * total + files * OPENING)
    costs = 2 * total + files * OPENING
    return f"{reads} readings have paid for it" if saved > costs else None


def _small_files(base: Block | None, deltas: tuple[Block, ...], policy: Compacting, reads: int) -> str | None:
    """Of a channel that is only added to nothing is merged: what is saved is the opening of small files."""
    files = [f for b in (*([base] if base is not None else []), *deltas) for f in b.manifest.files]
    small = [f for f in files if f.bytes < policy.small]
    saved, costs = reads * len(small) * OPENING, 2 * sum(f.bytes for f in small) + len(small) * OPENING
    return f"{len(small)} small files" if len(small) > 1 and saved > costs else None


def kept_files(history: History, blocks: Mapping[str, Block], policy: Compacting, format: str) -> frozenset[str]:
    """Paths of files that the new base may list as they are: of a channel that is only added to, large enough, and
    written as they would be written now.

    Args:
        format: in which the engine writes.
    """
    if not isinstance(history.merge, Append):
        return frozenset()
    return frozenset(
        f.path
        for b in blocks.values()
        if b.manifest.format == format and b.manifest.schema == history.schema and isinstance(b.merge, Append)
        for f in b.manifest.files
        if f.bytes >= policy.small
    )
