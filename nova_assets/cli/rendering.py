"""Text output shared by all commands: tables, sizes, times and blocks.

On a terminal, a table may shorten its widest column. In a pipe, lines are never cut. Tables of partitions are sorted.
Long tables show their first and last rows, and the number of rows left out between them.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, TypeVar

import click
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from nova_assets.model.block import Block
from nova_assets.model.merge import Custom, Keyed, MergeModel, Upsert
from nova_assets.model.reads import (
    DeltaChain,
    EmptyRead,
    Read,
    Snapshot,
    SnapshotAsInserts,
    SnapshotDiff,
    describe_read,
    source_blocks,
)

T = TypeVar("T")

_PIPE_WIDTH = 1_000_000
"""Console width in a pipe, wider than any line."""

MAX_LISTED_PARTITIONS = 40
"""Maximum number of partitions that a text lists one by one. ``--json`` has all of them."""

_MAX_BLOCKS_SHOWN = 4
"""Maximum number of a read's blocks that a terminal names. A longer read shows its first and last block."""


def is_terminal(stream: Any) -> bool:
    """Whether a stream is a terminal."""
    return bool(getattr(stream, "isatty", lambda: False)())


@contextlib.contextmanager
def open_stdout_console() -> Iterator[Console]:
    """Console for results. In a pipe it has no width limit, no colours and no trailing blanks."""
    if is_terminal(sys.stdout):
        yield Console(force_terminal=True, markup=False, highlight=False, emoji=False)
        return
    console = Console(
        width=_PIPE_WIDTH,
        force_terminal=False,
        markup=False,
        highlight=False,
        emoji=False,
        color_system=None,
        record=False,
    )
    with console.capture() as captured:
        yield console
    click.echo("\n".join(line.rstrip() for line in captured.get().split("\n")), nl=False)


def print_progress(text: str, quiet: bool = False) -> None:
    """Print the current activity to standard error, on a terminal only and not if ``quiet``.

    Progress consists of lines without animation, because tasks and Spark print on the same terminal.
    """
    if not quiet and is_terminal(sys.stderr):
        click.secho(f"{text} …", dim=True, err=True)


class TableGrid(Table):
    """Table without lines between columns, with one line per row."""

    def __init__(self, *columns: str, right_aligned: Sequence[str] = (), shorten: Sequence[str] = ()) -> None:
        """Create a table with a column for each header.

        Args:
            columns: headers of the columns.
            right_aligned: headers of numeric columns.
            shorten: headers of columns that are shortened on a narrow terminal.
        """
        super().__init__(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, header_style="bold", padding=(0, 1))
        self._may_shorten = [name in shorten for name in columns]
        for name, may_shorten in zip(columns, self._may_shorten, strict=True):
            self.add_column(
                name, justify="right" if name in right_aligned else "left", no_wrap=not may_shorten, overflow="ellipsis"
            )

    def add(self, *cells: str) -> None:
        """Add a row. Missing cells are empty."""
        cells += ("",) * (len(self._may_shorten) - len(cells))
        # rich narrows only columns that may wrap, so the cells themselves request an ellipsis.
        texts = [
            Text(cell, no_wrap=True, overflow="ellipsis") if may_shorten else Text(cell)
            for cell, may_shorten in zip(cells, self._may_shorten, strict=True)
        ]
        self.add_row(*texts)


_MAX_ROWS_SHOWN = 20
"""Maximum number of printed rows of a table of partitions. ``--json`` has all rows."""


def elide_middle_rows(rows: Sequence[T]) -> list[T | str]:
    """First and last rows of a long list, with a text between them that counts the rows left out."""
    left_out = len(rows) - _MAX_ROWS_SHOWN
    if left_out <= 0:
        return list(rows)
    half = _MAX_ROWS_SHOWN // 2
    return [*rows[:half], f"… {left_out:,} more; --json lists all", *rows[-half:]]


def format_count(count: int | None) -> str:
    """Count with thousands separators, such as ``1,204``; a dash for None."""
    return "–" if count is None else f"{count:,}"


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


def format_duration(seconds: float) -> str:
    """Duration in seconds as text, such as ``0.4 s`` or ``3 min 20 s``."""
    return f"{seconds:.1f} s" if seconds < 60 else f"{int(seconds) // 60} min {int(seconds) % 60} s"


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


def block_json(block: Block) -> dict[str, Any]:
    """Block as a JSON object. Its files are counted, not listed."""
    return {
        "channel": block.channel,
        "range": block.range,
        "kind": block.kind,
        "lo": block.lo,
        "hi": block.hi,
        "origin": block.origin,
        "partition": block.partition,
        "rows": block.rows,
        "deletes": block.manifest.deletes,
        "bytes": block.bytes,
        "files": len(block.manifest.files),
        "id": block.id,
    }


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


def escape_unprintable(text: str) -> str:
    """Text with unprintable characters escaped, so that it cannot break a line or control a terminal."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def print_title(console: Console, title: str) -> None:
    """Print an underlined title between blank lines."""
    console.print(f"\n{title}\n{'=' * len(title)}\n")


def print_table(console: Console, columns: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> None:
    """Print rows of text as a table without right-aligned or shortened columns."""
    grid = TableGrid(*columns)
    for row in rows:
        grid.add(*row)
    console.print(grid)
