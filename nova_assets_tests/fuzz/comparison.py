"""What a user reads beside what the naive channel has."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa

from nova_assets_tests.fuzz.commands import DELETED
from nova_assets_tests.fuzz.naive import Change, Column, Model, NaiveChannel, State, key_of, projected
from nova_assets_tests.fuzz.scenario import canonical_row


class Difference(AssertionError):
    """What a user sees differs from the naive channel."""


class Comparison:
    """Compares tables with versions of a naive channel.

    Each method raises Difference, naming ``where``.
    """

    def __init__(self, naive: NaiveChannel) -> None:
        self.naive = naive

    def snapshot(self, table: pa.Table, state: State, columns: tuple[Column, ...] | None, where: str) -> None:
        """A snapshot has exactly these rows, columns and types.

        Args:
            columns: None compares those columns of the table that the channel has now.
        """
        if columns is None:
            names = {c.name: c for c in self.naive.columns}
            columns = tuple(names[n] for n in table.column_names if n in names)
            table = table.select([c.name for c in columns])
        if table.column_names != [c.name for c in columns]:
            raise Difference(f"{where}: columns {table.column_names}, not {[c.name for c in columns]}")
        for column in columns:
            if table.schema.field(column.name).type != column.type.arrow:
                raise Difference(
                    f"{where}: {column.name} is {table.schema.field(column.name).type}, not {column.type.ddl}"
                )
        actual = projected((canonical_row(r, columns) for r in table.to_pylist()), columns)
        expected = projected(state, columns)
        if actual != expected:
            raise Difference(f"{where}: extra {dict(actual - expected)}, missing {dict(expected - actual)}")

    def changes(
        self, table: pa.Table, since: int, until: int, partition: tuple[Any] | None, where: str, has_run: bool = False
    ) -> None:
        """Changes must lead from one version to the other, and a base's changes must be the least that do."""
        if until == 0:
            return
        naive, columns = self.naive, self.naive.columns_at(until)
        if self.loses_rows(since, until):
            return  # a bag that lost rows in between and got them back tells of both
        model = naive.models[until]
        changes = self.as_changes(table, columns, model)
        before, after = naive.states[since], naive.told(since, until)
        if partition is not None:
            before, after = naive.in_partition(before, partition), naive.in_partition(after, partition)
        expected = [projected(after, columns)]
        if since == 0 and not has_run:
            now = naive.states[until]
            expected.append(projected(now if partition is None else naive.in_partition(now, partition), columns))
        if projected(naive.merged(before, changes, model), columns) not in expected:
            raise Difference(f"{where}: {changes} does not lead from {before} to {after}")
        if until == since + 1 and since > 0 and naive.events[since].kind == "base":
            self._check_least(changes, before, after, columns, model, where)

    def some_columns(self, some: pa.Table, table: pa.Table, where: str) -> None:
        """Some columns of a change are those of the whole change, and tell deletions as it does (R11)."""
        names = [n for n in table.column_names if n in some.column_names or n == DELETED]
        if some.column_names != names:
            raise Difference(f"{where}: columns {some.column_names}, not {names}")
        rows, expected = (Counter(map(repr, t.select(names).to_pylist())) for t in (some, table))
        if rows != expected:
            raise Difference(f"{where}: extra {rows - expected}, missing {expected - rows}")

    def loses_rows(self, since: int, until: int) -> bool:
        """Whether a bag lacks, at some version in between, rows that it had."""
        naive, columns = self.naive, self.naive.columns_at(until)
        before = projected(naive.states[since], columns)
        return naive.models[until].kind == "append" and any(
            before - projected(naive.told(since, n), columns) for n in range(since, until + 1)
        )

    def _check_least(
        self,
        changes: tuple[Change, ...],
        before: State,
        after: State,
        columns: tuple[Column, ...],
        model: Model,
        where: str,
    ) -> None:
        old, new = projected(before, columns), projected(after, columns)
        if not model.key:
            least, actual = sum((new - old).values()), len(changes)
            if model.has_deletions:
                least += sum((old - new).values())
        else:
            moved = {_projected_key(values, columns, model) for values in (old - new) + (new - old)}
            least, actual = len(moved), len({key_of(c.row, model) for c in changes})
        if least != actual:
            raise Difference(f"{where}: {actual} changed, but {least} differ: {changes}")

    def as_changes(self, table: pa.Table, columns: tuple[Column, ...], model: Model) -> tuple[Change, ...]:
        """The rows of a change; on keyed channels at most one deletion and one live row of each key (R11)."""
        names = [c.name for c in columns] + [DELETED] * model.has_deletions
        if table.column_names != names:
            raise Difference(f"the changes have the columns {table.column_names}, not {names}")
        found = tuple(Change(canonical_row(r, columns), bool(r.get(DELETED))) for r in table.to_pylist())
        if model.has_deletions and table.column(DELETED).null_count:
            raise Difference("_deleted is null")
        if model.key:
            twice = [k for k, n in Counter((key_of(c.row, model), c.deleted) for c in found).items() if n > 1]
            if twice:
                raise Difference(f"several deletions or live rows of one key: {twice}")
        return found


def _projected_key(values: tuple[Any, ...], columns: tuple[Column, ...], model: Model) -> tuple[Any, ...]:
    return key_of({c.identity: v for c, v in zip(columns, values, strict=True)}, model)
