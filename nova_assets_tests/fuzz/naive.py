"""A channel as a list of whole versions. It knows rows and columns, and nothing of blocks, files or cursors.

Rows are mappings from column *identity* to canonical value: a renamed column keeps its identity, and a column that is
dropped and comes back has another one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any, Literal, TypeAlias

from nova_assets_tests.fuzz.values import COMBINERS, ColumnType, limits, rank

Row = Mapping[int, Any]
Kind: TypeAlias = Literal["append", "multiset", "upsert", "keyed"]


@dataclass(frozen=True)
class Column:
    """One column of one version."""

    identity: int
    name: str
    type: ColumnType


@dataclass(frozen=True)
class Model:
    """A merge model by the identities of its columns."""

    kind: Kind
    key: tuple[int, ...] = ()
    order_by: int | None = None
    combine: Mapping[int, str] = field(default_factory=dict)

    @property
    def has_deletions(self) -> bool:
        return self.kind != "append"


@dataclass(frozen=True)
class Change:
    """One live row or deletion of a delta."""

    row: Row
    deleted: bool = False


@dataclass(frozen=True)
class Event:
    """What one sequence number did.

    Args:
        partition: the one value of the partition column that a base or drop is for; a tuple, or None for all.
        own_model: the merge model of this delta alone.
    """

    kind: Literal["delta", "base", "drop"]
    changes: tuple[Change, ...] = ()
    partition: tuple[Any] | None = None
    own_model: Model | None = None


State = tuple[Row, ...]


class NaiveChannel:
    """Every version of a channel.

    Args:
        model: the merge model of its first definition.
        partition: the identity of its partition column; None for an unpartitioned channel.

    Attributes:
        declared: the merge model of the present definition. A changed one takes effect with a base of all partitions.
        models: the merge model of each version.
    """

    def __init__(self, model: Model, columns: Sequence[Column], partition: int | None) -> None:
        self.declared = model
        self.models: list[Model] = [model]
        self.partition = partition
        self.columns = tuple(columns)
        self.next_identity = len(self.columns)
        self.schemas: list[tuple[Column, ...]] = [self.columns]
        self.states: list[State] = [()]
        self.events: list[Event] = []

    @property
    def head(self) -> int:
        return len(self.states) - 1

    @property
    def model(self) -> Model:
        """The merge model in effect."""
        return self.models[-1]

    @property
    def is_model_pending(self) -> bool:
        """Whether the channel waits for the base with which a changed merge model takes effect (R18)."""
        return self.declared != self.model

    @property
    def fixed(self) -> frozenset[int]:
        """The columns that no redefinition of columns touches: those of the partitions and of the merge models."""
        models = (self.model, self.declared)
        own = {c for m in models for c in (*m.key, *m.combine, m.order_by)} | {self.partition}
        return frozenset(c for c in own if c is not None)

    def declare(self, model: Model) -> None:
        """Change the merge model in the definition. A channel without versions has it at once."""
        self.declared = model
        if self.head == 0:
            self.models = [model]

    def columns_at(self, number: int) -> tuple[Column, ...]:
        """The columns of a version; of the newest, as they are declared now."""
        return self.columns if number >= self.head else self.schemas[number]

    def commit(self, event: Event) -> None:
        takes_effect = event.kind == "base" and event.partition is None
        self.models.append(self.declared if takes_effect else self.model)
        self.states.append(self.after(self.states[-1], event, self.models[-1]))
        self.events.append(event)
        self.schemas.append(self.columns)

    def after(self, state: State, event: Event, model: Model) -> State:
        """The rows after one event, under the merge model of its version."""
        if event.kind == "delta":
            return self.merged(state, event.changes, event.own_model or model)
        left = () if event.partition is None else tuple(r for r in state if not self._within(r, event.partition))
        return left + self.rows_of_base(event, model)

    def rows_of_base(self, event: Event, model: Model) -> State:
        """The rows of a base. Among rows of one key, ``order_by`` decides (R11)."""
        return tuple(c.row for c in event.changes) if model.order_by is None else self.merged((), event.changes, model)

    def merged(self, state: State, changes: Sequence[Change], model: Model) -> State:
        """The rows after a delta. Of each key its deletion applies before its live rows.

        Under a model that takes effect now, earlier rows may have one key in common: a change of this key concerns all
        of them.
        """
        if model.kind == "append":
            return state + tuple(c.row for c in changes)
        if model.kind == "multiset":
            return self._merged_multiset(state, changes)
        rows: dict[Any, list[Row]] = {}
        for row in state:
            rows.setdefault(key_of(row, model), []).append(row)
        for change in sorted(changes, key=lambda c: not c.deleted):
            key = key_of(change.row, model)
            if change.deleted:
                rows.pop(key, None)
            else:
                rows[key] = [reduce(lambda a, b: self.folded(a, b, model), [*rows.get(key, []), change.row])]
        return tuple(row for same in rows.values() for row in same)

    def _merged_multiset(self, state: State, changes: Sequence[Change]) -> State:
        """The rows after a delta of a multiset: one row fewer for each deletion, as far as there is one."""
        rows = list(state)
        for change in (c for c in changes if c.deleted):
            equal = next((n for n, r in enumerate(rows) if self._values(r) == self._values(change.row)), None)
            if equal is not None:
                del rows[equal]
        return (*rows, *(c.row for c in changes if not c.deleted))

    def _values(self, row: Row) -> tuple[Any, ...]:
        return tuple(row.get(c.identity) for c in self.columns)

    def folded(self, earlier: Row, later: Row, model: Model) -> Row:
        """One live row from two of one key."""
        order = model.order_by
        loses = order is not None and rank(later.get(order)) < rank(earlier.get(order))
        row = dict(earlier if loses else later)
        for column, combine in model.combine.items():
            row[column] = COMBINERS[combine](earlier.get(column), later.get(column))
        return row

    def key(self, row: Row) -> tuple[Any, ...]:
        """The key of a row under the declared model."""
        return key_of(row, self.declared)

    def can_be_base(self, rows: Sequence[Row]) -> bool:
        """Whether rows can be a base under the declared model: their keys are not null, and differ; or ``order_by``
        decides between rows of one key.
        """
        if not self.declared.key:
            return True
        own = [n for n, c in enumerate(self.declared.key) if c != self.partition]
        by_key: dict[tuple[Any, ...], list[Row]] = {}
        for row in rows:
            by_key.setdefault(self.key(row), []).append(row)
        return all(self._has_one_last_row(same) for same in by_key.values()) and not any(
            key[n] is None for key in by_key for n in own
        )

    def _has_one_last_row(self, same_key: Sequence[Row]) -> bool:
        order = self.declared.order_by
        if len(same_key) == 1 or order is None:
            return len(same_key) == 1
        last = reduce(lambda a, b: self.folded(a, b, self.declared), same_key).get(order)
        return len({repr(self._values(row)) for row in same_key if row.get(order) == last}) == 1

    def has_other_merge_columns(self, at: int) -> bool:
        """Whether a column by which a version was merged has another name now, or is gone."""
        models = [*self.models[: at + 1], *(e.own_model for e in self.events[:at] if e.own_model)]
        then, now = ({c.identity: c.name for c in columns} for columns in (self.columns_at(at), self.columns))
        return any(then.get(c) != now.get(c) for m in models for c in (*m.key, *m.combine, m.order_by))

    def in_partition(self, state: Iterable[Row], partition: tuple[Any]) -> State:
        return tuple(r for r in state if self._within(r, partition))

    def _within(self, row: Row, partition: tuple[Any]) -> bool:
        assert self.partition is not None
        return bool(row.get(self.partition) == partition[0])

    def told(self, since: int, until: int) -> State:
        """What a consumer of ``since`` has after it is told of everything up to ``until``.

        It is not told of drops (R19). A bag cannot tell of rows that went, so what was dropped stays with its
        consumers. A base of all partitions does not touch a partition that was dropped and that it leaves out. After a
        base with a model that has deletions, the consumer is told by comparison, also of rows that a bag had dropped.
        """
        retained: State = ()
        state = self.states[since]
        dropped: set[tuple[Any]] = set()
        for event, model in zip(self.events[since:until], self.models[since + 1 : until + 1], strict=True):
            partitions = {(c.row.get(self.partition),) for c in event.changes} if self.partition is not None else set()
            if event.kind == "drop":
                assert event.partition is not None
                dropped.add(event.partition)
                if model.kind == self.models[until].kind == "append":
                    retained += self.in_partition(state, event.partition)
                    state = self.after(state, event, model)
                continue
            if event.kind == "base" and event.partition is None:
                untouched = tuple(r for p in dropped - partitions for r in self.in_partition(state, p))
                state = untouched + self.rows_of_base(event, model)
            else:
                state = self.after(state, event, model)
            dropped -= partitions | ({event.partition} if event.partition is not None else set())
        return retained + state

    def sum_outside_its_type(self, state: State) -> str | None:
        """A sum that its column's type cannot hold."""
        for column in self.columns:
            if self.model.combine.get(column.identity) == "sum":
                least, greatest = limits(column.type)
                for row in state:
                    value = row.get(column.identity)
                    if value is not None and not least <= value <= greatest:
                        return f"{column.name} = {value} of {column.type.ddl}"
        return None

    def sums_overflow(self, changes: Sequence[Change]) -> bool:
        """Whether a sum of any group of this delta's rows with earlier rows may leave its type."""
        sums = [c for c in self.columns if self.model.combine.get(c.identity) == "sum"]
        for column in sums:
            least, greatest = limits(column.type)
            totals: dict[Any, list[Any]] = {}
            earlier = [c.row for e in self.events for c in e.changes]
            for row in [*earlier, *(c.row for c in changes)]:
                totals.setdefault(self.key(row), []).append(row.get(column.identity) or 0)
            for values in totals.values():
                gains, losses = (reduce(COMBINERS["sum"], part, 0) for part in _signs(values))
                if gains > greatest or losses < least:
                    return True
        return False


def key_of(row: Row, model: Model) -> tuple[Any, ...]:
    return tuple(row.get(c) for c in model.key)


def _signs(values: list[Any]) -> tuple[list[Any], list[Any]]:
    return [v for v in values if v > 0], [v for v in values if v < 0]


def projected(state: Iterable[Row], columns: Sequence[Column]) -> Counter[tuple[Any, ...]]:
    """Rows as the values of these columns, counted. A column that a row lacks is null in it."""
    return Counter(tuple(r.get(c.identity) for c in columns) for r in state)
