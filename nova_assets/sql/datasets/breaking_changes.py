"""Breaking changes of dataset definitions, found before anything runs (BigDataFlow, part 2).

The datasets in use are compared with the new definitions. A column that is dropped, renamed or retyped breaks every
query that still names the column, and everything downstream of that query. A wider type or an added column breaks
nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from nova_assets.model.channel import Channel
from nova_assets.model.schema import Schema
from nova_assets.model.schema_evolution import can_widen
from nova_assets.sql.datasets.graph import Dataset, Graph
from nova_assets.sql.datasets.graph_builder import analyse_dataset
from nova_assets.sql.query.column_lineage import Lineage, trace_lineage
from nova_assets.sql.statement.dataset_statement import DatasetStatement
from nova_assets.sql.text import Span

ChangeKind = Literal["added", "widened", "dropped", "renamed", "retyped", "removed", "partitioned"]

NON_BREAKING_KINDS: tuple[ChangeKind, ...] = ("added", "widened")


@dataclass(frozen=True)
class BrokenReference:
    """A place in a query that has to be adapted before a change.

    Args:
        dataset: the dataset whose query names the changed column.
        affected_columns: columns of that dataset computed from the changed column. Empty if the query only filters,
            joins or groups by the column.
        file, line, column, snippet: the place where the query names the column.
        owner: the contact for that dataset.
    """

    dataset: str
    affected_columns: tuple[str, ...]
    file: str
    line: int
    column: int
    snippet: str
    owner: str = ""


@dataclass(frozen=True)
class Change:
    """A change of a dataset or channel.

    Args:
        dataset: the name of the dataset or channel.
        kind: the kind of change.
        column: the changed column, or empty if the dataset itself changes.
        old_value, new_value: a name, a type, or partition columns, depending on ``kind``.
        breaks: the places that depend on the old definition.
    """

    dataset: str
    kind: ChangeKind
    column: str = ""
    old_value: str = ""
    new_value: str = ""
    breaks: tuple[BrokenReference, ...] = ()

    @property
    def is_breaking(self) -> bool:
        """Whether something has to be adapted before the change. A new partitioning counts, because all partitions have
        to be rebuilt.
        """
        return bool(self.breaks) or self.kind == "partitioned"

    def __str__(self) -> str:
        of = f"{self.dataset}.{self.column}" if self.column else self.dataset
        if self.kind in ("widened", "retyped", "partitioned", "renamed"):
            return f"{of} is {self.kind}: {self.old_value or '(none)'} → {self.new_value or '(none)'}"
        return f"{of} is {self.kind}"


def find_changes(
    old_graph: Graph,
    new_statements: Sequence[DatasetStatement],
    channels: Sequence[Channel] = (),
    function_types: Mapping[str, str] | None = None,
) -> tuple[Change, ...]:
    """All changes between the datasets in use and the new statements, with the references that they break, in the order
    in which data flows.

    Args:
        old_graph: the datasets in use.
        new_statements: the new statements, ordered so that each follows the datasets that it reads.
        channels: channels that the new statements read.
        function_types: return types of the user-defined functions, by function name.

    Raises:
        SqlError: a new statement is invalid by itself.
    """
    return tuple(
        _GraphComparison(old_graph, {c.name: c for c in channels}, function_types or {}).find_changes(new_statements)
    )


class _GraphComparison:
    """Walks the new datasets with both the old and the new columns of all inputs. A reference to a dropped column can
    then still be resolved and located.
    """

    def __init__(self, old_graph: Graph, channels: Mapping[str, Channel], function_types: Mapping[str, str]) -> None:
        self.old_graph = old_graph
        self.function_types = function_types
        self.channels = channels
        self.old_schemas = {n: c.schema for n, c in old_graph.channels.items() if c.schema is not None}
        self.old_schemas |= {n: d.schema for n, d in old_graph.datasets.items()}
        self.combined_schemas: dict[str, Schema] = {}
        self.changes: list[Change] = []
        self.causes_by_column: dict[tuple[str, str], set[int]] = {}  # positions in ``changes``

    def find_changes(self, new_statements: Sequence[DatasetStatement]) -> Iterator[Change]:
        new_names = {w.name for w in new_statements}
        for name, channel in self.channels.items():
            if channel.schema is not None and name not in new_names:
                self._record_schema_changes(name, channel.schema, {}, frozenset())
        names = {w.name for w in new_statements} | set(self.channels)
        for gone in [n for n in self.old_schemas if n not in names]:
            self._record_removed_dataset(gone)
        for one in new_statements:
            self._compare_dataset(one)
        yield from self.changes

    def _record_removed_dataset(self, dataset: str) -> None:
        if any(dataset in d.reads for d in self.old_graph.datasets.values()) or dataset in self.old_graph.datasets:
            self.changes.append(Change(dataset, "removed"))
            self.combined_schemas[dataset] = self.old_schemas[dataset]
            for column in self.old_schemas[dataset].names:
                self.causes_by_column.setdefault((dataset, column.lower()), set()).add(len(self.changes) - 1)

    def _compare_dataset(self, statement: DatasetStatement) -> None:
        dataset = analyse_dataset(
            statement, self.combined_schemas, self.channels.get(statement.name), self.function_types
        )
        column_lineage = trace_lineage(dataset.query)
        inherited_changes = self._inherited_changes_by_column(dataset, column_lineage)
        self._record_broken_references(dataset, column_lineage)
        before = self.old_graph.datasets.get(statement.name)
        self._record_schema_changes(
            statement.name, dataset.schema, inherited_changes, self._renamed_columns(before, dataset)
        )
        if before is not None and before.channel.partitions != dataset.channel.partitions:
            was, becomes = (", ".join(map(_format_dimension, d.channel.partitions)) for d in (before, dataset))
            self.changes.append(Change(statement.name, "partitioned", "", was, becomes))

    def _inherited_changes_by_column(self, dataset: Dataset, column_lineage: Lineage) -> dict[str, set[int]]:
        """Column of a dataset -> the changes of input columns from which it is computed."""
        found: dict[str, set[int]] = {}
        for column, origins in column_lineage.outputs.items():
            for number, name in origins:
                found.setdefault(column, set()).update(
                    self.causes_by_column.get((dataset.query.scans[number].dataset, name), set())
                )
        return {column: some for column, some in found.items() if some}

    def _record_broken_references(self, dataset: Dataset, column_lineage: Lineage) -> None:
        """Record every place in a query that names a changed column."""
        places: dict[tuple[int, Span], set[str]] = {}
        for use in column_lineage.uses:
            number, name = use.origin
            scan = dataset.query.scans[number]
            computed_columns = {c for c, origins in column_lineage.outputs.items() if use.origin in origins}
            for n in self.causes_by_column.get((scan.dataset, name), set()):
                if use.span is not None and self.changes[n].kind not in NON_BREAKING_KINDS:
                    places.setdefault((n, use.span), set()).update(computed_columns)
        for scan in dataset.query.scans:
            for n, change in enumerate(self.changes):
                if change.kind == "removed" and change.dataset == scan.dataset:
                    places[n, scan.span] = set(column_lineage.outputs)
        for (n, place), columns in sorted(places.items()):
            spelled = tuple(c for c in dataset.schema.names if c.lower() in columns)
            error = dataset.statement.text.error("", place)
            reference = BrokenReference(
                dataset.name, spelled, error.file, error.line, error.column, error.snippet, dataset.statement.owner
            )
            if reference not in self.changes[n].breaks:
                self.changes[n] = replace(self.changes[n], breaks=(*self.changes[n].breaks, reference))

    def _renamed_columns(self, old_dataset: Dataset | None, new_dataset: Dataset) -> frozenset[tuple[str, str]]:
        """(old, new) names of columns whose expression is unchanged, so that only the name differs."""
        if old_dataset is None:
            return frozenset()
        old = {s.unalias().sql(): s.alias_or_name.lower() for s in old_dataset.query.tree.selects}
        pairs = ((old.get(s.unalias().sql()), s.alias_or_name.lower()) for s in new_dataset.query.tree.selects)
        return frozenset((a, b) for a, b in pairs if a is not None and a != b)

    def _record_schema_changes(
        self,
        dataset: str,
        new_schema: Schema,
        inherited_changes: Mapping[str, set[int]],
        renamed_columns: frozenset[tuple[str, str]],
    ) -> None:
        """Record the schema changes that a dataset's own definition causes. Changes that only follow from an upstream
        change are attributed to that change.
        """
        old_schema = self.old_schemas.get(dataset)
        fields_by_name = {f.name.lower(): f for f in new_schema.fields}
        for column, some in inherited_changes.items():
            self.causes_by_column.setdefault((dataset, column), set()).update(some)
        if old_schema is not None:
            names = dict(renamed_columns)
            for f in old_schema.fields:
                self._record_column_change(dataset, f.name, old_schema, new_schema, names, inherited_changes)
                fields_by_name.setdefault(f.name.lower(), f)
            self.changes += [
                Change(dataset, "added", n)
                for n in new_schema.names
                if n.lower() not in (o.lower() for o in old_schema.names) and n.lower() not in names.values()
            ]
        self.combined_schemas[dataset] = Schema(tuple(fields_by_name.values()))

    def _record_column_change(
        self,
        dataset: str,
        column: str,
        old_schema: Schema,
        new_schema: Schema,
        new_name_by_column: Mapping[str, str],
        inherited_changes: Mapping[str, set[int]],
    ) -> None:
        now = {f.name.lower(): f for f in new_schema.fields}.get(column.lower())
        old = old_schema.field(column).type
        change: Change | None = None
        if now is None:
            other = new_name_by_column.get(column.lower())
            spelled = next((n for n in new_schema.names if n.lower() == other), "")
            change = (
                Change(dataset, "renamed", column, column, spelled) if other else Change(dataset, "dropped", column)
            )
        elif now.type != old:
            kind: ChangeKind = "widened" if can_widen(old, now.type) else "retyped"
            causes = {self.changes[n].kind for n in inherited_changes.get(column.lower(), ())}
            if not causes or (kind not in NON_BREAKING_KINDS and causes <= set(NON_BREAKING_KINDS)):
                change = Change(dataset, kind, column, str(old), str(now.type))
        if change is not None:
            self.changes.append(change)
            self.causes_by_column.setdefault((dataset, column.lower()), set()).add(len(self.changes) - 1)


def _format_dimension(dimension: object) -> str:
    kind, column = getattr(dimension, "kind", ""), getattr(dimension, "column", "")
    return f"{column} ({kind})"
