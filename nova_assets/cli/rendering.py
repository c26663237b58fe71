"""Text output shared by all commands: tables, sizes, times and blocks.

On a terminal, a table may shorten its widest column. In a pipe, lines are never cut. Tables of partitions are sorted.
Long tables show their first and last rows, and the number of rows left out between them.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeVar

import click
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from nova_assets.model.block import Block
from nova_assets.model.text_format import escape_unprintable as escape_unprintable
from nova_assets.model.text_format import format_block_name as format_block_name
from nova_assets.model.text_format import format_bytes as format_bytes
from nova_assets.model.text_format import format_count as format_count
from nova_assets.model.text_format import format_iso_time as format_iso_time
from nova_assets.model.text_format import format_merge_model as format_merge_model
from nova_assets.model.text_format import format_read as format_read
from nova_assets.model.text_format import format_time as format_time
from nova_assets.model.text_format import pluralize as pluralize
from nova_assets.model.text_table import TextTable

T = TypeVar("T")

_PIPE_WIDTH = 1_000_000
"""Console width in a pipe, wider than any line."""

MAX_LISTED_PARTITIONS = 40
"""Maximum number of partitions that a text lists one by one. ``--json`` has all of them."""


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
        console = Console(stderr=True, force_terminal=True, markup=False, highlight=False, emoji=False)
        console.print(f"{text} …", style="dim", soft_wrap=True)


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

    @classmethod
    def of(cls, table: TextTable) -> TableGrid:
        """Grid of a table of text."""
        grid = cls(*table.columns, right_aligned=table.right_aligned, shorten=table.shorten)
        for row in table.rows:
            grid.add(*row)
        return grid

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


def format_duration(seconds: float) -> str:
    """Duration in seconds as text, such as ``0.4 s`` or ``3 min 20 s``."""
    return f"{seconds:.1f} s" if seconds < 60 else f"{int(seconds) // 60} min {int(seconds) % 60} s"


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
        "format": block.manifest.format,
        **({"merge": block.merge.as_json()} if block.has_own_merge else {}),
        "id": block.id,
    }


def print_title(console: Console, title: str) -> None:
    """Print an underlined title between blank lines."""
    console.print(f"\n{title}\n{'=' * len(title)}\n")


def print_table(
    console: Console,
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    right_aligned: Sequence[str] = (),
    shorten: Sequence[str] = (),
    empty: str = "",
) -> None:
    """Print rows of text as a table.

    Args:
        rows: cells of each row. A text alone is a row of one cell, as ``elide_middle_rows`` makes it.
        right_aligned, shorten: as for ``TableGrid``.
        empty: text in place of a table without rows.
    """
    grid = TableGrid(*columns, right_aligned=right_aligned, shorten=shorten)
    for row in rows:
        grid.add(*([row] if isinstance(row, str) else row))
    console.print(grid if grid.row_count or not empty else empty)


def print_lines(console: Console, lines: Iterable[str]) -> None:
    """Print lines that are not wrapped, since they may hold paths and names to copy."""
    for line in lines:
        console.print(line, soft_wrap=True)
