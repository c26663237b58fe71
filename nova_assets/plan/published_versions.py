"""What an edition of a channel shows, and which editions can go. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from nova_assets.model.block import Block
from nova_assets.model.channel import Channel
from nova_assets.model.merge import Append
from nova_assets.model.partitions import partition_name, partition_values
from nova_assets.model.published_version import Content, Edition
from nova_assets.model.schema import Schema
from nova_assets.model.seal import Seal
from nova_assets.model.timeline import History
from nova_assets.plan import modes


def uncompacted(history: History, at: int) -> tuple[str, ...]:
    """Partitions whose rows at a number are not those of their files: deltas that are no plain additions have to be
    merged first, and columns that were renamed, dropped or widened since have to be written anew."""
    read = modes.snapshot(history, at)
    blocks = [b for b in (*read.bases, *read.deltas) if isinstance(b, Block) and b.rows]
    merged = {b.partition for b in blocks if b.kind == "delta" and not _is_plain(b)}
    return tuple(sorted(merged | {b.partition for b in blocks if not _is_current(b.manifest.schema, read.schema)}))


def _is_current(own: Schema, newest: Schema | None) -> bool:
    """Whether files of a schema can be read under a newer one by whoever goes by names: they may lack columns that came
    since, and that is all."""
    if newest is None:
        return False
    now = {f.name: (f.identity, f.type) for f in newest.fields}
    return all(now.get(f.name) == (f.identity, f.type) for f in own.fields)


def _is_plain(delta: Block) -> bool:
    return isinstance(delta.merge, Append) and not delta.manifest.deletes


def content(channel: Channel, history: History, at: int, seals: Mapping[str, Seal], by: str | None) -> Content | None:
    """What an edition made now would show; None of a channel that has no columns yet.

    Args:
        at: the number that it shows; nothing there is ``uncompacted``.
        seals: group -> its latest seal.
        by: the column by which the channel is sealed.
    """
    read = modes.snapshot(history, at)
    if read.schema is None:
        return None
    blocks = [b for b in (*read.bases, *read.deltas) if isinstance(b, Block)]
    files = [replace(f, partition=b.partition) for b in blocks for f in b.manifest.files]
    gone = _dropped(history, at, by) if by else frozenset()
    groups = sorted(g for g, s in seals.items() if s.state == "sealed" and s.seq <= at and g not in gone)
    sealed = [partition_name([by], {by: g}) for g in groups] if by else []
    return Content(channel.name, read.at, read.schema, channel.partitions, tuple(files), tuple(sealed))


def _dropped(history: History, at: int, by: str) -> frozenset[str | None]:
    """Groups that retention has dropped: they were complete once, and are not there any more."""
    states = {t.partition: modes.state(history, t, at) for t in history.tracks}
    gone = {p for p, (base, deltas) in states.items() if base is not None and base.origin == "drop" and not deltas}
    left = {partition_values(p)[by] for p in states.keys() - gone}
    return frozenset(partition_values(p)[by] for p in gone) - left


def forgettable(editions: Sequence[Edition], now: datetime, grace: float) -> tuple[Edition, ...]:
    """Editions that nobody may be reading any more: superseded longer than the grace ago."""
    before = now - timedelta(seconds=grace)
    return tuple(e for e in editions if e.superseded_at is not None and e.superseded_at < before)


def shown(editions: Sequence[Edition]) -> Edition | None:
    """The edition that a table certainly shows: the newest, if it is known to be shown."""
    newest = max(editions, key=lambda e: e.number, default=None)
    return newest if newest is not None and newest.state == "shown" else None
