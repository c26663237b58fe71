"""The table of modes (DESIGN §3): what ``new``, ``all`` and ``old`` read, from a channel's history. Pure.

The table holds for each partition by itself (R13). What is read of several is put together: rows of different
partitions have different keys, so their bases are one base, and their deltas one chain.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace

from nova_assets.errors import BlockCollected, VersionNotFound
from nova_assets.model.block import Block
from nova_assets.model.merge import Append
from nova_assets.model.reads import Chain, Change, Diff, Empty, FromPort, Inserts, Snapshot, Together
from nova_assets.model.schema import Schema
from nova_assets.model.timeline import History, Track


def snapshot(history: History, at: int | None = None) -> Snapshot:
    """``all``: the snapshot at ``at`` (the head by default): the newest base that deltas lead on from.

    A base made by compaction is as good as any (R9).

    Raises:
        VersionNotFound: the channel has no such number.
        BlockCollected: its blocks are gone.
    """
    at = history.head if at is None else at
    if not 0 <= at <= history.head:
        raise VersionNotFound.of(history.channel, at, history.head)
    return _snapshot(history, history.tracks, at)


def changes(history: History, since: int, at: int | None = None, *, has_run: bool = False) -> Change:
    """``new``: what leads from ``since`` to ``at``, by the first row of the table that fits.

    A base that was committed together with what it changes (R15) is no gap in the deltas. A partition that retention
    has dropped (R19) is not told of: what was unread in it before is still told, and what comes to it later.

    Args:
        has_run: of 0: a consumer asks that has run at that number, and so has not read what was dropped since.

    Raises:
        VersionNotFound: the channel has no such number.
        BlockCollected: what led on from there is gone.
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
        return _since_empty(history, at) if has_run else Inserts(snapshot(history, at))
    told = without_drops(history, since, at)
    moved = [t for t in told.tracks if any(since < n <= at for n in t.numbers)]
    if not moved:
        return Empty(history.channel, schema_at(history, at), history.merge, change=True)
    paths = {t.partition: path(t, since, at) for t in moved}
    replaced = [t for t in moved if paths[t.partition] is None]
    parts: list[Chain | Diff | Inserts] = []
    if told is not history and isinstance(history.merge, Append):
        parts = [p for t in replaced for p in _around_drops(history, t.partition, since, at)]
        replaced = []
    if any(deltas is not None for deltas in paths.values()):
        deltas = _in_order(d for deltas in paths.values() for d in deltas or ())
        parts.append(Chain(history.channel, since, at, deltas, schema_at(history, at), history.merge))
    if replaced:
        for track in replaced:
            if not any(since < b.hi <= at for b in track.blocks if replaces(b)):
                raise _collected(history, since)
        parts.append(Diff(_snapshot(history, replaced, since), _snapshot(told, replaced, at)))
    return parts[0] if len(parts) == 1 else Together(history.channel, tuple(parts))


def _since_empty(history: History, at: int) -> Change:
    """What came to a channel that was empty when its consumer ran: the snapshot as it would be had retention dropped
    nothing (R19). A partition of which that was collected, before such consumers held it, is told as it is."""
    told = without_drops(history, 0, at)
    if told is history:
        return Inserts(snapshot(history, at))
    dropped = {b.partition for b in history.blocks if b.origin == "drop" and b.hi <= at}
    as_told, parts, plain = {t.partition: t for t in told.tracks}, list[Chain | Diff | Inserts](), list[Track]()
    for track in history.tracks:
        with suppress(BlockCollected):
            if isinstance(history.merge, Append) and track.partition in dropped:
                parts += list(_around_drops(history, track.partition, 0, at))
                continue
            if is_told(as_told[track.partition], at):
                track = as_told[track.partition]
        plain.append(track)
    if plain or not parts:
        parts.append(Inserts(_snapshot(history, plain, at)))
    return parts[0] if len(parts) == 1 else Together(history.channel, tuple(parts))


def _around_drops(history: History, partition: str, since: int, at: int) -> Iterator[Chain | Diff | Inserts]:
    """What came to a partition of a bag before, between and after it was dropped: a bag cannot tell of rows that went,
    so a base that came later is compared with what was left. All of it has the columns of ``at``."""
    schema = schema_at(history, at)
    alone = history.only({partition})
    drops = sorted(b.hi for b in alone.blocks if b.origin == "drop" and since < b.hi <= at)
    for start, end in zip((since, *drops), (*(n - 1 for n in drops), at), strict=True):
        found = changes(alone, start, end)
        if isinstance(found, Together):
            yield from (_with_schema(part, schema) for part in found.parts)
        elif isinstance(found, Chain | Diff | Inserts):
            yield _with_schema(found, schema)


def _with_schema(read: Chain | Diff | Inserts, schema: Schema | None) -> Chain | Diff | Inserts:
    if isinstance(read, Chain):
        return replace(read, schema=schema)
    if isinstance(read, Inserts):
        return replace(read, snapshot=replace(read.snapshot, schema=schema))
    return replace(read, new=replace(read.new, schema=schema))


def without_drops(history: History, since: int, at: int) -> History:
    """The history as it is told to who has read ``since``: as if retention had dropped nothing after that (R19).

    Bases made by compaction hold what was left after a drop, so they are left out as well, up to the next that is
    given. What was committed with a base that is given (R15) tells what this changed after the drop, so it is left out,
    too, where the base can be compared with what there was at ``since``.
    """
    drops = [(b.partition, b.hi) for b in history.blocks if b.origin == "drop" and since < b.hi <= at]
    if not drops:
        return history

    compared = {t.partition for t in history.tracks if is_told(t, since)}
    given_at = {(b.partition, b.hi) for b in history.blocks if replaces(b)}

    def told(block: Block) -> bool:
        before = [n for partition, n in drops if partition == block.partition and n <= block.hi]
        if not before:
            return True
        if block.kind == "delta":
            return block.partition not in compared or (block.partition, block.hi) not in given_at
        if block.origin == "compact":
            given = [b.hi for b in history.blocks if b.partition == block.partition and replaces(b)]
            return any(max(before) < n <= block.hi for n in given)
        return block.origin != "drop"

    return replace(history, blocks=tuple(b for b in history.blocks if told(b)))


def old(history: History, since: int) -> Snapshot | Empty:
    """``old``: the snapshot at the cursor; empty for a consumer that has never run."""
    if since == 0:
        return Empty(history.channel, history.schema, history.merge, change=False)
    return snapshot(history, since)


def with_staged(read: Snapshot | Change, port: FromPort, history: History, since: int) -> Snapshot | Change:
    """The read as if the block staged on a port were committed on top of the pins (R5).

    Args:
        since: the pinned cursor.
    """
    if isinstance(read, Snapshot):
        return _top(read, port)
    if isinstance(read, Inserts):
        return Inserts(_top(read.snapshot, port))
    staged = Chain(history.channel, history.head, history.head, (port,), history.schema, history.merge)
    if port.kind == "delta" and isinstance(history.merge, Append) and isinstance(read, Diff | Together):
        return Together(history.channel, (*(read.parts if isinstance(read, Together) else (read,)), staged))
    if port.kind == "base" or isinstance(read, Diff | Together):
        # Which partitions the staged block touches is not known yet: all of them are compared.
        told = without_drops(history, since, history.head)
        return Diff(snapshot(history, since), _top(snapshot(told), port))
    if isinstance(read, Chain):
        return replace(read, deltas=(*read.deltas, port))
    return staged


def _top(snapshot: Snapshot, port: FromPort) -> Snapshot:
    """A staged base replaces everything in the scope that is read: it was written in the same (R13)."""
    if port.kind == "base":
        return replace(snapshot, bases=(port,), deltas=())
    return replace(snapshot, deltas=(*snapshot.deltas, port))


def _snapshot(history: History, tracks: Iterable[Track], at: int) -> Snapshot:
    bases: list[Block] = []
    deltas: list[Block] = []
    for track in tracks:
        base, then = state(history, track, at)
        bases += [base] if base is not None else []
        deltas += then
    return Snapshot(history.channel, at, _in_order(bases), _in_order(deltas), schema_at(history, at), history.merge)


def state(history: History, track: Track, at: int) -> tuple[Block | None, tuple[Block, ...]]:
    """The newest base of a partition that deltas lead on from, and those deltas."""
    for base in _starts(track, at):
        deltas = path(track, base.hi if base is not None else 0, at)
        if deltas is not None:
            return base, deltas
    raise _collected(history, at)


def is_told(track: Track, at: int) -> bool:
    """Whether it can be told what was in a partition at a number."""
    return any(path(track, 0 if base is None else base.hi, at) is not None for base in _starts(track, at))


def _starts(track: Track, at: int) -> Iterator[Block | None]:
    """Bases, newest first; and last the beginning, unless it is left out."""
    yield from sorted((b for b in track.blocks if b.kind == "base" and b.hi <= at), key=lambda b: b.hi, reverse=True)
    if not track.floor:
        yield None


def _in_order(blocks: Iterable[Block]) -> tuple[Block, ...]:
    """Of one partition the order is that of their numbers; between partitions any will do."""
    return tuple(sorted(blocks, key=lambda b: b.hi))


def replaces(block: Block) -> bool:
    """Whether a block is a base that was given: by a task, an insert or a restoration; not by compaction (R9), nor by
    retention that dropped the partition (R19)."""
    return block.kind == "base" and block.origin not in ("compact", "drop")


def path(track: Track, start: int, end: int) -> tuple[Block, ...] | None:
    """The fewest deltas whose ends meet exactly from ``start`` to ``end`` (R9); None when there are none.

    A number at which the partition did not change is the same as the last one at which it did: other partitions'
    commits take numbers, too (R13).
    """
    numbers = track.numbers
    first, last = effective(numbers, start), effective(numbers, end)
    steps = {first: 0}  # number -> with how many deltas it is reached
    by: dict[int, tuple[int, Block]] = {}  # number -> from which number, and with which delta
    for delta in sorted((b for b in track.blocks if b.kind == "delta" and b.hi <= end), key=lambda b: (b.hi, b.lo)):
        lo = effective(numbers, delta.lo)
        if lo in steps and (delta.hi not in steps or steps[lo] + 1 < steps[delta.hi]):
            steps[delta.hi], by[delta.hi] = steps[lo] + 1, (lo, delta)
    if last not in steps:
        return None
    found: list[Block] = []
    while last != first:
        last, delta = by[last]
        found.append(delta)
    return tuple(reversed(found))


def schema_at(history: History, at: int) -> Schema | None:
    """The schema of that number (R18): that of the newest block up to it."""
    if at >= history.head:
        return history.schema
    if history.earlier is not None:
        newer = [b for b in history.blocks if history.since < b.hi <= at and b.origin != "compact"]
        return max(newer, key=lambda b: b.hi).manifest.schema.without("_deleted") if newer else history.earlier
    there = [b for b in history.blocks if b.hi <= at]
    blocks = [b for b in there if b.origin != "compact"] or there
    return max(blocks, key=lambda b: b.hi).manifest.schema.without("_deleted") if blocks else history.schema


def oldest(history: History) -> int:
    """The oldest number from which on every snapshot can be answered."""
    found = 0
    for track in history.tracks:
        there, numbers = answered(track), (0, *track.numbers)
        gone = [n for n in range(len(numbers)) if numbers[n] not in there]
        if gone:  # from the next number on at which the partition changed
            found = max(found, numbers[gone[-1] + 1] if gone[-1] + 1 < len(numbers) else history.head)
    return found


def answered(track: Track) -> frozenset[int]:
    """The numbers of a partition, 0 included, at which it can be told what was in it: as ``state`` does, for all of
    them at once."""
    found = {0} | {b.hi for b in track.blocks if b.kind == "base"}
    for delta in sorted((b for b in track.blocks if b.kind == "delta"), key=lambda b: (b.hi, b.lo)):
        if effective(track.numbers, delta.lo) in found:
            found.add(delta.hi)
    return frozenset(found)


def effective(numbers: Sequence[int], at: int) -> int:
    """The last of these numbers that is no later; 0 where none is.

    Args:
        numbers: in order.
    """
    n = bisect_right(numbers, at)
    return numbers[n - 1] if n else 0


def _collected(history: History, at: int) -> BlockCollected:
    return gone(history.channel, at, None)


def gone(channel: str, at: int, oldest: int | None) -> BlockCollected:
    """The error for a version that is not there any more.

    Args:
        oldest: the oldest one that is; None where that is not known here.
    """
    return BlockCollected(
        f"version {at} of channel {channel!r} was collected",
        found=at,
        expected="a newer version" if oldest is None else f"{oldest} or later",
        next=f'nova timeline {channel} shows what is there; to keep more: nova.Channel("{channel}", retain="30d")',
        channel=channel,
        oldest=oldest,
    )
