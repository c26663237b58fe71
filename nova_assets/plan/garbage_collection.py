"""What may be collected (R15): blocks that no retained answer needs. Pure: facts in, a verdict on every block out.

A block is held by whoever could still ask for something that is answered with it. What that is, is decided by the
very functions that answer reads (``plan/modes``): whatever they would open is held, so nothing asked for can be gone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial

from nova_assets.errors import BlockCollected
from nova_assets.model.block import Block
from nova_assets.model.maintenance import Facts, Verdict
from nova_assets.model.partitions import within
from nova_assets.model.reads import Chain, Read, sources
from nova_assets.model.timeline import History
from nova_assets.plan import modes

NEWEST = "the newest snapshot"


def judge(facts: Facts) -> tuple[Verdict, ...]:
    """A verdict on every block of the channel, oldest first."""
    holders: dict[str, dict[str, None]] = {b.id: {} for b in facts.history.blocks}
    for dropped in (b for b in facts.history.blocks if b.origin == "drop"):  # such a block has no files
        holders[dropped.id]["whoever reads on: it says that the partition was dropped"] = None
    for why, read in _wanted(facts):
        for block in sources(read):
            assert isinstance(block, Block)
            holders[block.id][why] = None
    return tuple(Verdict(b, tuple(holders[b.id])) for b in facts.history.blocks)


def _wanted(facts: Facts) -> Iterator[tuple[str, Read]]:
    """Every answer that has to stay possible, and for whom."""
    yield NEWEST, modes.snapshot(facts.history)
    yield from _further(facts)


def answers(facts: Facts) -> Iterator[str]:
    """For whom there are answers that have to stay possible, and are; each as often as it has some."""
    for why, _ in (*_answer(NEWEST, partial(modes.snapshot, facts.history)), *_further(facts)):
        yield why


def _further(facts: Facts) -> Iterator[tuple[str, Read]]:
    """Every answer but the newest snapshot."""
    history = facts.history
    head = history.head
    for reader in facts.readers:
        old = reader.old or facts.bases
        yield from _of_cursor(history, reader.who, reader.cursor, head, reader.scope, old, reader.has_run)
    for pin in facts.pins:
        seen = scoped(history, pin.scope)
        yield from _answer(f"{pin.who}, which has pinned {pin.head}", partial(modes.snapshot, seen, pin.head))
        if pin.cursor is not None:
            yield from _of_cursor(history, pin.who, pin.cursor, pin.head, pin.scope, True, pin.has_run)
            # What it has pinned is where its cursor will stand, and what came since is what it will ask for then.
            yield from _of_cursor(history, f"{pin.who}, once it commits", pin.head, head, pin.scope, True, True)
    if facts.keep_from is not None and facts.keep_from < head:
        yield from _time_travel(history, facts.keep_from)


def _of_cursor(
    history: History, who: str, cursor: int, head: int, scope: str, old: bool, has_run: bool
) -> Iterator[tuple[str, Read]]:
    if cursor == 0 and not has_run:
        return  # it will be given the snapshot of its head
    seen, why = scoped(history, scope), f"{who}, which has read {cursor}"
    yield from _answer(why, partial(modes.changes, seen, cursor, head, has_run=has_run))
    if cursor == 0:
        return  # there was nothing then, and all that it is given is a snapshot
    yield from ((why, _alone(base)) for base in _given(seen, cursor, head))
    if old:
        yield from _answer(f"{who}, for what was there at {cursor}", partial(modes.snapshot, seen, cursor))


def _given(history: History, since: int, at: int) -> Iterator[Block]:
    """The newest given base of each partition to which no deltas lead. It is not opened, where one of compaction comes
    after it; but it is what tells that snapshots are to be compared, and that no delta has been lost."""
    for track in history.tracks:
        if modes.path(track, since, at) is None:
            bases = [b for b in track.blocks if modes.replaces(b) and since < b.hi <= at]
            yield from sorted(bases, key=lambda b: b.hi)[-1:]


def _time_travel(history: History, oldest: int) -> Iterator[tuple[str, Read]]:
    """Of each partition the state from which on all can be told, no older than that number, and every given block
    since: with these, every number after it is answered."""
    why = f"time travel back to {oldest}"
    for track in history.tracks:
        alone = history.only({track.partition})
        yield from _answer(why, partial(modes.snapshot, alone, max(oldest, modes.oldest(alone))))
    later = [b for b in history.blocks if b.hi > oldest and b.origin != "compact"]
    for block in later:
        yield why, _alone(block)


def _answer(why: str, how: Callable[[], Read]) -> Iterator[tuple[str, Read]]:
    """An answer that is possible; one that is gone already holds nothing."""
    with suppress(BlockCollected):
        read = how()
        yield why, read


def _alone(block: Block) -> Read:
    return Chain(block.channel, block.lo, block.hi, (block,), block.manifest.schema, block.merge)


def scoped(history: History, scope: str) -> History:
    """The history of some partitions."""
    if not scope:
        return history
    return replace(
        history,
        scope=scope,
        blocks=tuple(b for b in history.blocks if within(b.partition, scope)),
        numbers={p: n for p, n in history.numbers.items() if within(p, scope)},
    )


def oldest_retained(facts: Facts) -> int:
    """The oldest number that somebody may still ask for, beside the newest snapshot. A partition that has not changed
    since then answers everything by its newest snapshot."""
    cursors = [r.cursor for r in facts.readers if r.cursor or r.has_run]
    pinned = [n for p in facts.pins for n in (p.head, p.cursor) if n]
    kept = [] if facts.keep_from is None else [facts.keep_from]
    return min([facts.history.head, *cursors, *pinned, *kept])


def collectable(verdicts: Sequence[Verdict]) -> tuple[Block, ...]:
    """The blocks that nobody holds."""
    return tuple(v.block for v in verdicts if not v.held_by)
