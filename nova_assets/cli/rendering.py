"""How answers look: tables, sizes, moments, blocks. Shared by all commands.

On a terminal a table may shorten its widest column. In a pipe no line is ever cut: lines are as long as they must be.
Tables of partitions are sorted, and of many rows the middle is left out, with a remark on how many these are.
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
from nova_assets.model.reads import Chain, Diff, Empty, Inserts, Read, Snapshot, describe, sources

T = TypeVar("T")

_ENDLESS = 1_000_000
"""As wide as any line in a pipe."""

_SHOWN_BLOCKS = 4
"""So many blocks of one read are named on a terminal; of more, the first and the last."""


def is_terminal(stream: Any) -> bool:
    """Whether a person reads this stream."""
    return bool(getattr(stream, "isatty", lambda: False)())


@contextlib.contextmanager
def on_stdout() -> Iterator[Console]:
    """A console for answers. In a pipe it has no width, no colours and no blanks at the ends of lines."""
    if is_terminal(sys.stdout):
        yield Console(force_terminal=True, markup=False, highlight=False, emoji=False)
        return
    console = Console(
        width=_ENDLESS,
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


def progress(text: str, quiet: bool = False) -> None:
    """Say what is being done now: a line on a terminal; nothing in a pipe, and nothing with ``--json``.

    Lines, and nothing that moves: tasks and Spark print on the same terminal.
    """
    if not quiet and is_terminal(sys.stderr):
        click.secho(f"{text} …", dim=True, err=True)


class Grid(Table):
    """A table without lines between columns, one line a row."""

    def __init__(self, *columns: str, right: Sequence[str] = (), shorten: Sequence[str] = ()) -> None:
        """Args:
        right: columns of numbers.
        shorten: columns that lose their ends first where a terminal is narrow.
        """
        super().__init__(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, header_style="bold", padding=(0, 1))
        self._shorten = [name in shorten for name in columns]
        for name, gives in zip(columns, self._shorten, strict=True):
            self.add_column(name, justify="right" if name in right else "left", no_wrap=not gives, overflow="ellipsis")

    def add(self, *cells: str) -> None:
        """One more row; cells that are left out are empty."""
        cells += ("",) * (len(self._shorten) - len(cells))
        # rich narrows only columns that may wrap; their cells then say that they rather end in an ellipsis.
        texts = [
            Text(cell, no_wrap=True, overflow="ellipsis") if gives else Text(cell)
            for cell, gives in zip(cells, self._shorten, strict=True)
        ]
        self.add_row(*texts)


_SHOWN_ROWS = 20
"""So many lines of a table of partitions are printed; ``--json`` has all."""


def summarised(rows: Sequence[T]) -> list[T | str]:
    """The first and the last of many rows, and between them a remark on how many are left out."""
    left_out = len(rows) - _SHOWN_ROWS
    if left_out <= 0:
        return list(rows)
    half = _SHOWN_ROWS // 2
    return [*rows[:half], f"… {left_out:,} more; --json lists all", *rows[-half:]]


def number(value: int | None) -> str:
    """A count: ``1,204``; a dash where it is not known."""
    return "–" if value is None else f"{value:,}"


def plural(count: int, noun: str) -> str:
    """``1 row``, ``2 rows``."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def size(count: int | None) -> str:
    """Bytes as people say them: ``12.3 KiB``."""
    if count is None:
        return "–"
    value, units = float(count), iter(("B", "KiB", "MiB", "GiB", "TiB"))
    unit = next(units)
    for larger in units:
        if value < 1023.95:
            break
        value, unit = value / 1024, larger
    return f"{count} B" if unit == "B" else f"{value:.1f} {unit}"


def seconds(value: float) -> str:
    """A duration: ``0.4 s``, ``3 min 20 s``."""
    return f"{value:.1f} s" if value < 60 else f"{int(value) // 60} min {int(value) % 60} s"


def moment(at: datetime | None) -> str:
    """A moment in UTC, to the second; ``never`` for none."""
    return "never" if at is None else _utc(at).strftime("%Y-%m-%d %H:%M:%S")


def iso(at: datetime | None) -> str | None:
    """A moment for JSON: ISO 8601, in UTC."""
    return None if at is None else _utc(at).isoformat()


def _utc(at: datetime) -> datetime:
    return (at if at.tzinfo is not None else at.replace(tzinfo=UTC)).astimezone(UTC)


def model(merge: MergeModel) -> str:
    """A merge model in a few words: ``Upsert(site, block)``."""
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
    """A block for JSON; its files are counted, not listed."""
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


def name_of(block: Block) -> str:
    """``Δ(4→5)``, with its partition where there is one."""
    return f"{block.range} {in_one_line(block.partition)}".rstrip()


def read_as(read: Read, whole: bool) -> str:
    """A read in Nova's notation. A long chain is named by its ends, unless ``whole``."""
    if isinstance(read, Empty) and not read.change:
        return "no rows yet"
    if whole:
        return describe(read)
    if isinstance(read, Inserts):
        return f"{read_as(read.snapshot, whole)} as inserts"
    if isinstance(read, Diff):
        return f"diff({read_as(read.old, whole)}, {read_as(read.new, whole)})"
    partitioned = any(isinstance(b, Block) and b.partition for b in sources(read))
    if isinstance(read, Snapshot | Chain) and len(read.deltas) > _SHOWN_BLOCKS and not partitioned:
        sign = " · " if isinstance(read, Chain) else " ⊕ "
        base = [b.range for b in read.bases] if isinstance(read, Snapshot) else []
        left_out = f"({len(read.deltas) - 2} more)"
        return sign.join([*base, read.deltas[0].range, left_out, read.deltas[-1].range])
    return describe(read)


def in_one_line(text: str) -> str:
    """Text that cannot break a line or command a terminal: everything unprintable is escaped."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
