"""Backfills: mark partitions of datasets in SQL, and their descendants, for recomputation by ticks."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from nova_assets.errors import DefinitionError
from nova_assets.execution.runtime import Runtime
from nova_assets.model.backfill import PRIORITIES, Backfill, ExecutionCost, Priority
from nova_assets.plan.backfill import BackfillScope, backfill_scope, select_partitions
from nova_assets.sql.datasets.dataset_bindings import dataset_queries_by_name
from nova_assets.store.scheduler_snapshot import StalenessTracker
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
        seconds_by_partition = {k: c.seconds for k, c in self.costs.items()}
        if not seconds_by_partition:
            return None
        seconds_by_dataset: dict[str, list[float]] = {}
        for (dataset, _), duration in seconds_by_partition.items():
            seconds_by_dataset.setdefault(dataset, []).append(duration)
        average_by_dataset = {
            dataset: sum(durations) / len(durations) for dataset, durations in seconds_by_dataset.items()
        }
        overall_average = sum(seconds_by_partition.values()) / len(seconds_by_partition)
        return sum(
            seconds_by_partition.get(dataset_partition, average_by_dataset.get(dataset_partition[0], overall_average))
            for dataset_partition in self.affected.parts
        )


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
        snapshot = StalenessTracker(self.runtime).snapshot_without_staleness()
        if dataset not in snapshot.partition_ordinals:
            raise DefinitionError(
                f"no dataset in SQL is called {dataset!r}{did_you_mean(dataset, snapshot.partition_ordinals)}",
                expected=", ".join(sorted(snapshot.partition_ordinals))
                or "a dataset of nova.datasets(FOLDER), which the project does not have",
            )
        columns = [d.column for d in self.runtime.project.binding(dataset).dimensions]
        if columns and not partition_terms and not all_partitions:
            raise DefinitionError(
                f"a backfill of {dataset!r} needs the partitions to recompute",
                expected=" or ".join(f"{c}=VALUE, {c}=FROM..TO" for c in columns),
                next=f"name partitions, or run nova backfill {dataset} --all for all "
                f"{len(snapshot.partition_ordinals[dataset])} partitions",
            )
        queries = dataset_queries_by_name(self.runtime.project)
        if not queries[dataset].is_repeatable:
            raise DefinitionError(
                f"partitions of {dataset!r} cannot be recomputed",
                found="INSERT INTO, which appends rows, or FROM NEW(...), which reads only new rows",
                expected="INSERT OVERWRITE, with inputs that are read in full",
                next=f"drop the partitions with nova drop {dataset} --partition ..., or change the query",
            )
        partitions = select_partitions(dataset, list(snapshot.partition_ordinals[dataset]), columns, partition_terms)
        repeatable = {name for name, q in queries.items() if q.is_repeatable}
        scope = backfill_scope(
            snapshot.partition_ordinals, snapshot.task_inputs, dataset, partitions, downstream, repeatable.__contains__
        )
        cost_by_partition = self.catalog.last_execution_costs(dict.fromkeys(d for d, _ in scope.parts))
        return BackfillPreview(
            scope, {part: cost_by_partition[part] for part in scope.parts if part in cost_by_partition}
        )

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
        backfill = Backfill(
            name, dataset, self.catalog.now(), requested_by, reason, priority, preview.affected.downstream_datasets
        )
        return self.catalog.start_backfill(backfill, preview.affected.parts)
