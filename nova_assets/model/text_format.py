"""Text of counts, sizes, times, merge models, blocks and reads, as commands and notebooks show them."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

from nova_assets.model.block import Block
from nova_assets.model.merge import Custom, Keyed, MergeModel, Upsert
from nova_assets.model.reads import (
    DeltaChain,
    EmptyRead,
    PrivatePortRead,
    Read,
    Snapshot,
    SnapshotAsInserts,
    SnapshotDiff,
    StagedBlockPlaceholder,
    describe_read,
    read_as_json,
    source_blocks,
)

_MAX_BLOCKS_SHOWN = 4
"""Maximum number of a read's blocks that a terminal names. A longer read shows its first and last block."""


def format_count(count: int | None) -> str:
    """Count with thousands separators, such as ``1,204``; a dash for None."""
    return "–" if count is None else f"{count:,}"


def format_number_ranges(numbers: Iterable[int], max_ranges: int = 4) -> str:
    """Numbers in ascending order, such as ``1–7, 9``. Of many ranges, the first ones and the last one."""
    ranges: list[tuple[int, int]] = []
    for number in sorted(set(numbers)):
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1] = (ranges[-1][0], number)
        else:
            ranges.append((number, number))
    texts = [str(first) if first == last else f"{first}–{last}" for first, last in ranges]
    if len(texts) > max_ranges:
        texts = [*texts[: max_ranges - 1], "…", texts[-1]]
    return ", ".join(texts)


def pluralize(count: int, noun: str) -> str:
    """Count with its noun, such as ``1 row`` or ``2 rows``."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def format_bytes(byte_count: int | None) -> str:
    """Size with a binary unit, such as ``12.3 KiB``; a dash for None."""
    if byte_count is None:
        return "–"
    value, units = float(byte_count), iter(("B", "KiB", "MiB", "GiB", "TiB"))
    unit = next(units)
    for larger in units:
        if value < 1023.95:
            break
        value, unit = value / 1024, larger
    return f"{byte_count} B" if unit == "B" else f"{value:.1f} {unit}"


def format_time(at: datetime | None) -> str:
    """Time in UTC, to the second; ``never`` for None."""
    return "never" if at is None else _to_utc(at).strftime("%Y-%m-%d %H:%M:%S")


def format_iso_time(at: datetime | None) -> str | None:
    """Time for JSON, in ISO 8601 and UTC."""
    return None if at is None else _to_utc(at).isoformat()


def _to_utc(at: datetime) -> datetime:
    return (at if at.tzinfo is not None else at.replace(tzinfo=UTC)).astimezone(UTC)


def format_merge_model(merge: MergeModel) -> str:
    """Short text of a merge model, such as ``Upsert(site, block)``."""
    order = f" by {', '.join(merge.order_by)}" if merge.order_by else ""
    if isinstance(merge, Upsert):
        return f"Upsert({', '.join(merge.key)}{order})"
    if isinstance(merge, Keyed):
        combined = ", ".join(f"{f.rpartition(':')[2]} {c}" for c, f in merge.combine)
        return f"Keyed({', '.join(merge.key)}{order}; {combined})"
    if isinstance(merge, Custom):
        return f"Custom({merge.merge_ref})"
    return merge.kind.capitalize()


def format_block_name(block: Block) -> str:
    """Range of a block, such as ``Δ(4→5)``, and its partition if it has one."""
    return f"{block.range} {escape_unprintable(block.partition)}".rstrip()


def format_read(read: Read, show_all_blocks: bool) -> str:
    """Read in Nova's notation. A long chain shows only its ends unless ``show_all_blocks``."""
    if isinstance(read, EmptyRead) and not read.is_change:
        return "no rows yet"
    if show_all_blocks:
        return describe_read(read)
    if isinstance(read, SnapshotAsInserts):
        return f"{format_read(read.snapshot, show_all_blocks)} as inserts"
    if isinstance(read, SnapshotDiff):
        return f"diff({format_read(read.old, show_all_blocks)}, {format_read(read.new, show_all_blocks)})"
    partitioned = any(isinstance(b, Block) and b.partition for b in source_blocks(read))
    if isinstance(read, Snapshot | DeltaChain) and len(read.deltas) > _MAX_BLOCKS_SHOWN and not partitioned:
        sign = " · " if isinstance(read, DeltaChain) else " ⊕ "
        base = [b.range for b in read.bases] if isinstance(read, Snapshot) else []
        left_out = f"({len(read.deltas) - 2} more)"
        return sign.join([*base, read.deltas[0].range, left_out, read.deltas[-1].range])
    return describe_read(read)


def format_read_totals(read: Read) -> tuple[str, str, str]:
    """Files, rows and bytes of the committed blocks of a read. A block to be staged has no totals yet."""
    sources = () if isinstance(read, PrivatePortRead) else source_blocks(read)
    staged = any(isinstance(s, StagedBlockPlaceholder) for s in sources)
    if isinstance(read, PrivatePortRead) or (staged and len(sources) == 1):
        return "", "", ""
    totals, incomplete_mark = read_as_json(read), "+" if staged else ""
    return (
        str(len(totals["files"])) + incomplete_mark,
        format_count(totals["rows"]) + incomplete_mark,
        format_bytes(totals["bytes"]) + incomplete_mark,
    )


def escape_unprintable(text: str) -> str:
    """Text with unprintable characters escaped, so that it cannot break a line or control a terminal."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
