"""Table of text, which commands print and notebooks show as HTML."""

from __future__ import annotations

from dataclasses import dataclass, field
from html import escape


@dataclass(frozen=True)
class TextTable:
    """Columns and rows of text.

    Args:
        right_aligned: columns of numbers.
        shorten: columns that a narrow terminal may shorten.
        caption: the line above the table.
    """

    columns: tuple[str, ...]
    right_aligned: tuple[str, ...] = ()
    shorten: tuple[str, ...] = ()
    caption: str = ""
    rows: list[tuple[str, ...]] = field(default_factory=list)

    def add(self, *cells: str) -> None:
        """Add a row. Missing cells are empty."""
        self.rows.append(cells + ("",) * (len(self.columns) - len(cells)))

    def to_html(self) -> str:
        """The table for a notebook, with escaped text and without scripts."""
        caption = f"<caption>{escape(self.caption)}</caption>" if self.caption else ""
        header = "".join(self._cell("th", column, column) for column in self.columns)
        rows = "".join(
            f"<tr>{''.join(self._cell('td', c, text) for c, text in zip(self.columns, row, strict=True))}</tr>"
            for row in self.rows
        )
        return f"<table>{caption}<thead><tr>{header}</tr></thead><tbody>{rows}</tbody></table>"

    def _cell(self, tag: str, column: str, text: str) -> str:
        side = "right" if column in self.right_aligned else "left"
        return f'<{tag} style="text-align: {side}">{escape(text)}</{tag}>'
