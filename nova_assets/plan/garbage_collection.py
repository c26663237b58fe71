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
from nova_assets.model.maintenance import RetentionState, Verdict
from nova_assets.model.partitions import is_in_scope
from nova_assets.model.reads import Chain, Read, source_blocks
from nova_assets.model.timeline import History
from nova_assets.plan import modes

NEWEST_SNAPSHOT = "the newest snapshot"


def retention_verdicts(state: RetentionState) -> tuple[Verdict, ...]:
    """A verdict on every block of the channel, oldest first."""
    reasons_by_block: dict[str, dict[str, None]] = {b.id: {} for b in state.history.blocks}
    for dropped in (b for b in state.history.blocks if b.origin == "drop"):  # such a block has no files
        reasons_by_block[dropped.id]["whoever reads on: it says that the partition was dropped"] = None
    for reason, read in _retained_reads(state):
        for block in source_blocks(read):
            assert isinstance(block, Block)
            reasons_by_block[block.id][reason] = None
    return tuple(Verdict(b, tuple(reasons_by_block[b.id])) for b in state.history.blocks)


def _retained_reads(state: RetentionState) -> Iterator[tuple[str, Read]]:
    """Every answer that has to stay possible, and for whom."""
    yield NEWEST_SNAPSHOT, modes.snapshot(state.history)
    yield from _retained_reads_but_newest(state)


def retained_answers(state: RetentionState) -> Iterator[str]:
    """For whom there are answers that have to stay possible, and are; each as often as it has some."""
    for reason, _ in (
        *_read_if_possible(NEWEST_SNAPSHOT, partial(modes.snapshot, state.history)),
        *_retained_reads_but_newest(state),
    ):
        yield reason


def _retained_reads_but_newest(state: RetentionState) -> Iterator[tuple[str, Read]]:
    """Every answer but the newest snapshot."""
    history = state.history
    head = history.head
    for reader in state.consumers:
        reads_old_snapshot = reader.reads_old_snapshot or state.bases
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
            # What it has pinned is where its cursor will stand, and what came since is what it will ask for then.
            yield from _reads_of_cursor(
                history, f"{pin.holder}, once it commits", pin.head, head, pin.scope, True, True
            )
    if state.keep_from is not None and state.keep_from < head:
        yield from _time_travel_reads(history, state.keep_from)


def _reads_of_cursor(
    history: History, reader: str, cursor: int, head: int, scope: str, reads_old_snapshot: bool, has_run: bool
) -> Iterator[tuple[str, Read]]:
    if cursor == 0 and not has_run:
        return  # it will be given the snapshot of its head
    scoped_history, reason = history_in_scope(history, scope), f"{reader}, which has read {cursor}"
    yield from _read_if_possible(reason, partial(modes.changes, scoped_history, cursor, head, has_run=has_run))
    if cursor == 0:
        return  # there was nothing then, and all that it is given is a snapshot
    yield from ((reason, _read_of_block(base)) for base in _newest_replacing_bases(scoped_history, cursor, head))
    if reads_old_snapshot:
        yield from _read_if_possible(
            f"{reader}, for what was there at {cursor}", partial(modes.snapshot, scoped_history, cursor)
        )


def _newest_replacing_bases(history: History, since: int, at: int) -> Iterator[Block]:
    """The newest given base of each partition to which no deltas lead. It is not opened, where one of compaction comes
    after it; but it is what tells that snapshots are to be compared, and that no delta has been lost."""
    for track in history.partition_histories:
        if modes.shortest_delta_path(track, since, at) is None:
            bases = [b for b in track.blocks if modes.is_given_base(b) and since < b.hi <= at]
            yield from sorted(bases, key=lambda b: b.hi)[-1:]


def _time_travel_reads(history: History, oldest_version: int) -> Iterator[tuple[str, Read]]:
    """Of each partition the state from which on all can be told, no older than that number, and every given block
    since: with these, every number after it is answered."""
    reason = f"time travel back to {oldest_version}"
    for track in history.partition_histories:
        partition_history = history.for_partitions({track.partition})
        yield from _read_if_possible(
            reason,
            partial(
                modes.snapshot,
                partition_history,
                max(oldest_version, modes.oldest_answerable_version(partition_history)),
            ),
        )
    later = [b for b in history.blocks if b.hi > oldest_version and b.origin != "compact"]
    for block in later:
        yield reason, _read_of_block(block)


def _read_if_possible(reason: str, plan_read: Callable[[], Read]) -> Iterator[tuple[str, Read]]:
    """An answer that is possible; one that is gone already holds nothing."""
    with suppress(BlockCollected):
        read = plan_read()
        yield reason, read


def _read_of_block(block: Block) -> Read:
    return Chain(block.channel, block.lo, block.hi, (block,), block.manifest.schema, block.merge)


def history_in_scope(history: History, scope: str) -> History:
    """The history of some partitions."""
    if not scope:
        return history
    return replace(
        history,
        scope=scope,
        blocks=tuple(b for b in history.blocks if is_in_scope(b.partition, scope)),
        numbers={p: n for p, n in history.numbers.items() if is_in_scope(p, scope)},
    )


def oldest_retained_version(state: RetentionState) -> int:
    """The oldest number that somebody may still ask for, beside the newest snapshot. A partition that has not changed
    since then answers everything by its newest snapshot."""
    cursors = [r.cursor for r in state.consumers if r.cursor or r.has_run]
    pinned = [n for p in state.pins for n in (p.head, p.cursor) if n]
    kept = [] if state.keep_from is None else [state.keep_from]
    return min([state.history.head, *cursors, *pinned, *kept])


def blocks_to_collect(verdicts: Sequence[Verdict]) -> tuple[Block, ...]:
    """The blocks that nobody holds."""
    return tuple(v.block for v in verdicts if not v.held_by)
