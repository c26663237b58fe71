"""Objects, one by one, as rows of declared types."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from nova_assets.formats.outcome import Parsed, Refused
from nova_assets.formats.typed import declared_types
from nova_assets.model.arrow_types import arrow_type
from nova_assets.model.schema import DELETED, Schema
from nova_assets.model.values import coerced


@dataclass
class Rows:
    """What was read of a file up to now: tables that were read at once, and rows between them.

    Args:
        schema: what is declared.
        drop: columns that are not declared are left out; otherwise what has one is refused.
    """

    schema: Schema
    drop: bool = False
    numbers: list[int] = field(default_factory=list)
    refused: list[Refused] = field(default_factory=list)
    _tables: list[pa.Table] = field(default_factory=list)
    _rows: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.declared = declared_types(self.schema)
        self.wanted = pa.schema([(n, arrow_type(t)) for n, t in self.declared.items()])

    def take(self, number: int, value: Any) -> None:
        """An object as the next row. Raises ValueError where it is none of the declared types."""
        if not isinstance(value, dict):
            raise ValueError('no object: expected {"column": value, ...}')
        strange = [n for n in value if n not in self.declared]
        if strange and not self.drop:
            raise ValueError(f"columns that are not the channel's: {', '.join(map(repr, strange))}")
        row = {}
        for name, given in value.items():
            if name not in self.declared:
                continue
            try:
                row[name] = coerced(given, self.declared[name])
                if isinstance(given, str):
                    given.encode()  # JSON can say half of a character
            except (ValueError, ArithmeticError) as error:
                raise ValueError(f"column {name!r}: {error}") from error
        self._rows.append(row)
        self.numbers.append(number)

    def take_table(self, table: pa.Table, numbers: list[int]) -> None:
        """Several rows, which have all columns."""
        self._settle()
        self._tables.append(table)
        self.numbers += numbers

    def parsed(self) -> Parsed:
        self._settle()
        table = pa.concat_tables(self._tables) if self._tables else self.wanted.empty_table()
        return Parsed(without_unsaid(table), self.numbers, tuple(self.refused))

    def _settle(self) -> None:
        if self._rows:
            columns = [pa.array([r.get(f.name) for r in self._rows], f.type) for f in self.wanted]
            self._tables.append(pa.Table.from_arrays(columns, schema=self.wanted))
            self._rows = []


def without_unsaid(table: pa.Table) -> pa.Table:
    """``_deleted`` is asked for by name, and comes back empty from a file that does not say it."""
    if DELETED in table.column_names and table.column(DELETED).null_count == table.num_rows:
        return table.drop_columns([DELETED])
    return table
