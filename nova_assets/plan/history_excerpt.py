"""Excerpts of a whole history: what plans from some number on can need of it. Pure.

``catalog/excerpts`` finds the same by indexes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from nova_assets.model.schema import Schema
from nova_assets.model.timeline import History, Track
from nova_assets.plan.modes import is_told, path, replaces, schema_at


class NotEnough(Exception):
    """What was given begins with bases, and more is needed."""


def excerpt(
    given: History, since: int = 0, back_to: int = 0, earlier: Callable[[int], Schema | None] | None = None
) -> History:
    """Of a history what is asked for.

    Args:
        given: all of it; or of each partition what came from the newest base on that is no later than the number.
        since: only the changes after this number.
        back_to: only snapshots at this number and later, and changes after it.
        earlier: what the schema was at a number, where not all of the history is given.

    Raises:
        NotEnough: not all of it was given, and is needed.
    """
    told = earlier or (lambda at: schema_at(given, at) if any(b.hi <= at for b in given.blocks) else None)
    if since:
        return _after(given, since, told)
    return _back_to(given, min(back_to, given.head), told) if back_to else given


def is_compared(track: Track, since: int, head: int) -> bool:
    """Whether what came to a partition after a number cannot be told by that alone: a base was given, a delta begins
    earlier, or some are gone.

    Args:
        track: what came after the number.
    """
    if any(replaces(b) or (b.kind == "delta" and b.lo < since) for b in track.blocks):
        return True
    return path(track, since, head) is None


def is_enough(track: Track, oldest: int, head: int, dropped: bool) -> bool:
    """Whether what is asked for at two numbers, and between them, does not need what is older than a floor.

    Args:
        dropped: a partition was, after the first. That is told of as if it had not been (R19): without bases that would
            do otherwise, and at numbers in between.
    """
    if dropped and path(track, oldest, head) is None:
        return False
    ends = any(b.origin == "drop" and b.hi > oldest for b in track.blocks)
    return not ends and is_told(track, oldest) and is_told(track, head)


def _back_to(whole: History, oldest: int, told: Callable[[int], Schema | None]) -> History:
    found = _reaching(whole, whole.tracks, oldest)
    return _of(whole, found, oldest, earlier=told(oldest) if oldest < whole.head else None)


def _after(whole: History, since: int, told: Callable[[int], Schema | None]) -> History:
    later = [_from(t, since + 1) for t in whole.tracks]
    later = [replace(t, floor=0) for t in later if t.numbers]
    dropped = {t.partition for t in later if any(b.origin == "drop" for b in t.blocks)}
    compared = {t.partition for t in later if is_compared(t, since, whole.head)} | dropped
    kept = [t for t in later if t.partition not in compared]
    if not compared:
        return _of(whole, kept, since)
    again = [t for t in whole.tracks if t.partition in compared]
    again = [_all_of(whole, t) for t in again] if dropped else _reaching(whole, again, since)
    return _of(whole, [*kept, *again], since, earlier=told(since))


def _reaching(whole: History, tracks: Iterable[Track], oldest: int) -> list[Track]:
    """Of each partition what came from the newest base on that is no later than a number."""
    pairs = [(t, _from(t, _floor(t, oldest))) for t in tracks]
    dropped = any(b.origin == "drop" and b.hi > oldest for _, short in pairs for b in short.blocks)
    return [
        _all_of(whole, track) if short.floor and not is_enough(short, oldest, whole.head, dropped) else short
        for track, short in pairs
    ]


def _all_of(given: History, track: Track) -> Track:
    if given.floors.get(track.partition):
        raise NotEnough
    return track


def _floor(track: Track, oldest: int) -> int:
    return max((b.hi for b in track.blocks if b.kind == "base" and b.hi <= oldest), default=0)


def _from(track: Track, floor: int) -> Track:
    if not floor:
        return track
    blocks = tuple(b for b in track.blocks if b.hi >= floor)
    return Track(track.partition, blocks, tuple(n for n in track.numbers if n >= floor), floor)


def _of(whole: History, tracks: Iterable[Track], since: int, **more: object) -> History:
    tracks = list(tracks)
    blocks = sorted((b for t in tracks for b in t.blocks), key=lambda b: (b.hi, b.kind, b.id))
    there = {(b.partition, b.hi) for b in blocks}
    gone = {t.partition: tuple(n for n in t.numbers if (t.partition, n) not in there) for t in tracks}
    return replace(
        whole,
        blocks=tuple(blocks),
        numbers={p: n for p, n in gone.items() if n},
        since=since,
        floors={t.partition: t.floor for t in tracks if t.floor},
        **more,  # type: ignore[arg-type]
    )
