"""What a change of definitions breaks, told before anything runs (BigDataFlow, part 2).

Datasets in use are compared with those that are to be. A column that is gone, called otherwise or of another type
breaks whoever still names it, and what is made of that, on and on. A wider type, or a column that came, breaks nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from nova_assets.model.channel import Channel
from nova_assets.model.schema import Schema, widens
from nova_assets.sql.datasets.graph import Dataset, Graph
from nova_assets.sql.datasets.graph_builder import understood_dataset
from nova_assets.sql.query.column_lineage import Lineage, lineage
from nova_assets.sql.statement.statement import Written
from nova_assets.sql.text import Span

Kind = Literal["added", "widened", "dropped", "renamed", "retyped", "removed", "partitioned"]

HARMLESS: tuple[Kind, ...] = ("added", "widened")


@dataclass(frozen=True)
class Break:
    """A place that has to be adapted first.

    Args:
        dataset: that reads what changes.
        columns: of it that are made of that; none where it only filters, joins or groups by it.
        file, line, column, snippet: where it is named.
        owner: whom to ask.
    """

    dataset: str
    columns: tuple[str, ...]
    file: str
    line: int
    column: int
    snippet: str
    owner: str = ""


@dataclass(frozen=True)
class Change:
    """Something of a dataset or channel that is to be otherwise.

    Args:
        dataset: its name.
        kind: what happens.
        column: to which of its columns; none where it is the dataset itself.
        was, becomes: a name, a type, or partition columns.
        breaks: the places that count on what was.
    """

    dataset: str
    kind: Kind
    column: str = ""
    was: str = ""
    becomes: str = ""
    breaks: tuple[Break, ...] = ()

    @property
    def is_breaking(self) -> bool:
        """Whether something has to be done about it first. Partitions that are cut otherwise have to be made again."""
        return bool(self.breaks) or self.kind == "partitioned"

    def __str__(self) -> str:
        of = f"{self.dataset}.{self.column}" if self.column else self.dataset
        if self.kind in ("widened", "retyped", "partitioned", "renamed"):
            return f"{of} is {self.kind}: {self.was or '(none)'} → {self.becomes or '(none)'}"
        return f"{of} is {self.kind}"


def changes(
    old: Graph, new: Sequence[Written], channels: Sequence[Channel] = (), functions: Mapping[str, str] | None = None
) -> tuple[Change, ...]:
    """What is to be otherwise, and what that breaks; in the order in which data flows.

    Args:
        old: the datasets in use.
        new: those that are to be, each after those that it reads.
        channels: that they read.
        functions: user-defined functions, with the types that they give.

    Raises:
        SqlError: one of the new ones is wrong by itself.
    """
    return tuple(_Comparison(old, {c.name: c for c in channels}, functions or {}).through(new))


class _Comparison:
    """Goes through the new datasets with both schemas of everything before them in hand: what names a column that is
    gone is then still understood, and can be pointed at."""

    def __init__(self, old: Graph, channels: Mapping[str, Channel], functions: Mapping[str, str]) -> None:
        self.old = old
        self.functions = functions
        self.channels = channels
        self.was = {n: c.schema for n, c in old.channels.items() if c.schema is not None}
        self.was |= {n: d.schema for n, d in old.datasets.items()}
        self.known: dict[str, Schema] = {}  # old and new columns together
        self.found: list[Change] = []
        self.broken: dict[tuple[str, str], set[int]] = {}  # a column -> the changes that it suffers from

    def through(self, new: Sequence[Written]) -> Iterator[Change]:
        made = {w.name for w in new}
        for name, channel in self.channels.items():
            if channel.schema is not None and name not in made:
                self._compared(name, channel.schema, {}, frozenset())
        names = {w.name for w in new} | set(self.channels)
        for gone in [n for n in self.was if n not in names]:
            self._removed(gone)
        for one in new:
            self._dataset(one)
        yield from self.found

    def _removed(self, name: str) -> None:
        if any(name in d.reads for d in self.old.datasets.values()) or name in self.old.datasets:
            self.found.append(Change(name, "removed"))
            self.known[name] = self.was[name]
            for column in self.was[name].names:
                self.broken.setdefault((name, column.lower()), set()).add(len(self.found) - 1)

    def _dataset(self, one: Written) -> None:
        dataset = understood_dataset(one, self.known, self.channels.get(one.name), self.functions)
        traced = lineage(dataset.query)
        suffers = self._suffers(dataset, traced)
        self._point_out(dataset, traced)
        before = self.old.datasets.get(one.name)
        self._compared(one.name, dataset.schema, suffers, self._same_columns(before, dataset))
        if before is not None and before.channel.partitions != dataset.channel.partitions:
            was, becomes = (", ".join(map(_shown, d.channel.partitions)) for d in (before, dataset))
            self.found.append(Change(one.name, "partitioned", "", was, becomes))

    def _suffers(self, dataset: Dataset, traced: Lineage) -> dict[str, set[int]]:
        """The columns of a dataset that are made of changed ones."""
        found: dict[str, set[int]] = {}
        for column, origins in traced.outputs.items():
            for number, name in origins:
                found.setdefault(column, set()).update(
                    self.broken.get((dataset.query.scans[number].dataset, name), set())
                )
        return {column: some for column, some in found.items() if some}

    def _point_out(self, dataset: Dataset, traced: Lineage) -> None:
        """Every place in a query that names what is changed."""
        places: dict[tuple[int, Span], set[str]] = {}
        for use in traced.uses:
            number, name = use.origin
            scan = dataset.query.scans[number]
            made = {c for c, origins in traced.outputs.items() if use.origin in origins}
            for n in self.broken.get((scan.dataset, name), set()):
                if use.span is not None and self.found[n].kind not in HARMLESS:
                    places.setdefault((n, use.span), set()).update(made)
        for scan in dataset.query.scans:
            for n, change in enumerate(self.found):
                if change.kind == "removed" and change.dataset == scan.dataset:
                    places[n, scan.place] = set(traced.outputs)
        for (n, place), columns in sorted(places.items()):
            spelled = tuple(c for c in dataset.schema.names if c.lower() in columns)
            said = dataset.written.text.error("", place)
            added = Break(dataset.name, spelled, said.file, said.line, said.column, said.snippet, dataset.written.owner)
            if added not in self.found[n].breaks:
                self.found[n] = replace(self.found[n], breaks=(*self.found[n].breaks, added))

    def _same_columns(self, before: Dataset | None, after: Dataset) -> frozenset[tuple[str, str]]:
        """(old, new) names of columns that are made alike: what has only got another name."""
        if before is None:
            return frozenset()
        old = {s.unalias().sql(): s.alias_or_name.lower() for s in before.query.tree.selects}
        pairs = ((old.get(s.unalias().sql()), s.alias_or_name.lower()) for s in after.query.tree.selects)
        return frozenset((a, b) for a, b in pairs if a is not None and a != b)

    def _compared(
        self, name: str, new: Schema, suffers: Mapping[str, set[int]], renamed: frozenset[tuple[str, str]]
    ) -> None:
        """Record what is otherwise in a schema by its own definition; what only follows from a change before it is that
        change's."""
        was = self.was.get(name)
        both = {f.name.lower(): f for f in new.fields}
        for column, some in suffers.items():
            self.broken.setdefault((name, column), set()).update(some)
        if was is not None:
            names = dict(renamed)
            for f in was.fields:
                self._column(name, f.name, was, new, names, suffers)
                both.setdefault(f.name.lower(), f)
            self.found += [
                Change(name, "added", n)
                for n in new.names
                if n.lower() not in (o.lower() for o in was.names) and n.lower() not in names.values()
            ]
        self.known[name] = Schema(tuple(both.values()))

    def _column(
        self,
        name: str,
        column: str,
        was: Schema,
        new: Schema,
        renamed: Mapping[str, str],
        suffers: Mapping[str, set[int]],
    ) -> None:
        now = {f.name.lower(): f for f in new.fields}.get(column.lower())
        old = was.field(column).type
        change: Change | None = None
        if now is None:
            other = renamed.get(column.lower())
            spelled = next((n for n in new.names if n.lower() == other), "")
            change = Change(name, "renamed", column, column, spelled) if other else Change(name, "dropped", column)
        elif now.type != old:
            kind: Kind = "widened" if widens(old, now.type) else "retyped"
            causes = {self.found[n].kind for n in suffers.get(column.lower(), ())}
            if not causes or (kind not in HARMLESS and causes <= set(HARMLESS)):
                change = Change(name, kind, column, str(old), str(now.type))
        if change is not None:
            self.found.append(change)
            self.broken.setdefault((name, column.lower()), set()).add(len(self.found) - 1)


def _shown(dimension: object) -> str:
    kind, column = getattr(dimension, "kind", ""), getattr(dimension, "column", "")
    return f"{column} ({kind})"
