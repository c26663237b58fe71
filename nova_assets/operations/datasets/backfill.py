"""Backfills: mark partitions of datasets in SQL, and their descendants, for recomputation by ticks."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from nova_assets.errors import DefinitionError
from nova_assets.execution.runtime import Runtime
from nova_assets.model.backfill import PRIORITIES, Backfill, ExecutionCost, Priority
from nova_assets.operations.datasets.snapshot import StalenessTracker
from nova_assets.plan.backfill import BackfillScope, backfill_scope, select_partitions
from nova_assets.sql.datasets.dataset_bindings import dataset_queries_by_name
from nova_assets.suggestions import did_you_mean


@dataclass(frozen=True)
class BackfillPreview:
    """Partitions that a backfill would recompute.

    Args:
        affected: the partitions, and the datasets that follow.
        costs: (dataset, partition) -> cost of its last run. Missing for partitions that never ran.
    """

    affected: BackfillScope
    costs: Mapping[tuple[str, str], ExecutionCost]

    @property
    def seconds(self) -> float | None:
        """Expected duration of a sequential recomputation in seconds. None if none of the partitions ever ran.

        A partition that never ran counts with the average of its dataset, or with the overall average.
        """
        known = {k: c.seconds for k, c in self.costs.items()}
        if not known:
            return None
        of_each: dict[str, list[float]] = {}
        for (dataset, _), took in known.items():
            of_each.setdefault(dataset, []).append(took)
        usual = {dataset: sum(some) / len(some) for dataset, some in of_each.items()}
        of_all = sum(known.values()) / len(known)
        return sum(known.get(part, usual.get(part[0], of_all)) for part in self.affected.parts)


class BackfillManager:
    """Previews and starts backfills.

    Args:
        runtime: runtime of the project with the datasets.
    """

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self.catalog = runtime.catalog

    def preview_backfill(
        self,
        dataset: str,
        partition_terms: Sequence[str] = (),
        downstream: Collection[str] | None = None,
        all_partitions: bool = False,
    ) -> BackfillPreview:
        """Partitions that a backfill would recompute. Changes nothing.

        Args:
            partition_terms: terms that select partitions, such as ``day=2022-03-01..2022-03-31`` or ``store=Paris``.
            downstream: datasets that follow. None for all.
            all_partitions: select all partitions if there are no terms.

        Raises:
            DefinitionError: there is no such dataset, or a named downstream dataset does not read from it.
            PartitionError: a term matches nothing.
        """
        snapshot = StalenessTracker(self.runtime).current_snapshot()
        if dataset not in snapshot.tasks:
            raise DefinitionError(
                f"no dataset in SQL is called {dataset!r}{did_you_mean(dataset, snapshot.tasks)}",
                expected=", ".join(sorted(snapshot.tasks)) or "the project has none: nova.datasets(FOLDER)",
            )
        columns = [d.column for d in self.runtime.project.binding(dataset).dimensions]
        if columns and not partition_terms and not all_partitions:
            raise DefinitionError(
                f"a backfill of {dataset!r} says which partitions",
                expected=" or ".join(f"{c}=VALUE, {c}=FROM..TO" for c in columns),
                next=f"nova backfill {dataset} --all is for all {len(snapshot.tasks[dataset])} of them",
            )
        queries = dataset_queries_by_name(self.runtime.project)
        if not queries[dataset].is_repeatable:
            raise DefinitionError(
                f"partitions of {dataset!r} cannot be made again as they were",
                found="INSERT INTO adds to what is there; FROM NEW(...) reads what came since",
                expected="INSERT OVERWRITE, of all that is read",
                next=f"nova drop {dataset} --partition ..., and what it reads in full",
            )
        partitions = select_partitions(dataset, list(snapshot.tasks[dataset]), columns, partition_terms)
        repeatable = {name for name, q in queries.items() if q.is_repeatable}
        reached = backfill_scope(
            snapshot.tasks, snapshot.needs, dataset, partitions, downstream, repeatable.__contains__
        )
        spent = self.catalog.last_execution_costs(dict.fromkeys(d for d, _ in reached.parts))
        return BackfillPreview(reached, {part: spent[part] for part in reached.parts if part in spent})

    def start_backfill(
        self, dataset: str, preview: BackfillPreview, *, requested_by: str, reason: str, priority: Priority
    ) -> Backfill:
        """Mark all partitions of a preview.

        Raises:
            DefinitionError: there is no such priority.
        """
        if priority not in PRIORITIES:
            raise DefinitionError(f"there is no priority {priority!r}", expected=", ".join(PRIORITIES))
        for name in dict.fromkeys(d for d, _ in preview.affected.parts):
            self.runtime.register_binding(self.runtime.project.binding(name))
        name = f"{dataset[:50]}-{uuid.uuid4().hex[:8]}"
        asked = Backfill(
            name, dataset, self.catalog.now(), requested_by, reason, priority, preview.affected.downstream_datasets
        )
        return self.catalog.start_backfill(asked, preview.affected.parts)
