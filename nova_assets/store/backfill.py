"""Backfills: mark partitions of datasets in SQL, and their descendants, for recomputation by ticks."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Literal

from nova_assets.errors import DefinitionError
from nova_assets.execution.runtime import Runtime
from nova_assets.model.scheduler_state import PRIORITIES, Backfill, ExecutionCost, Priority
from nova_assets.plan.backfill import BackfillScope, backfill_scope, select_partitions
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


class DatasetBackfills:
    """Store methods that recompute partitions of datasets in SQL."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self.catalog = runtime.catalog

    def backfill(
        self,
        dataset: str,
        *partitions: str,
        downstream: Literal["all", "none"] | Collection[str] = "all",
        priority: Priority = "low",
        why: str = "",
        by: str = "",
        everything: bool = False,
        preview: BackfillPreview | None = None,
    ) -> Backfill:
        """Mark partitions of a dataset, and the partitions derived from them, for recomputation by the next ticks.

        Readers of a marked partition wait until it is recomputed. Datasets that the backfill leaves out stay unchanged.
        The backfill does not make these datasets stale.

        Args:
            dataset: the dataset whose partitions are wrong.
            partitions: terms that select partitions, such as ``day=2022-03-01..2022-03-31`` or ``store=Paris``. A
                partition has to match all terms.
            downstream: derived datasets that are recomputed, too. ``all`` means all datasets that read this dataset
                directly or indirectly. ``none`` means no other dataset. A list contains names of datasets.
            priority: ``low`` runs after missing and stale partitions, ``normal`` together with them, and ``high``
                before them.
            why, by: reason and requester, stored with the backfill.
            everything: select all partitions if ``partitions`` is empty.
            preview: the result of ``preview_backfill``. By default, a new preview.

        Raises:
            DefinitionError: there is no such dataset or priority, or a named downstream dataset does not read from it.
            PartitionError: no task writes such a partition.
        """
        preview = preview or self.preview_backfill(dataset, *partitions, downstream=downstream, everything=everything)
        if priority not in PRIORITIES:
            raise DefinitionError(f"there is no priority {priority!r}", expected=", ".join(PRIORITIES))
        for name in dict.fromkeys(d for d, _ in preview.affected.parts):
            self.runtime.register_binding(self.runtime.project.binding(name))
        name = f"{dataset[:50]}-{uuid.uuid4().hex[:8]}"
        backfill = Backfill(name, dataset, self.catalog.now(), by, why, priority, preview.affected.downstream_datasets)
        return self.catalog.backfills.start(backfill, preview.affected.parts)

    def preview_backfill(
        self,
        dataset: str,
        *partitions: str,
        downstream: Literal["all", "none"] | Collection[str] = "all",
        everything: bool = False,
    ) -> BackfillPreview:
        """Dry run of ``backfill``: the partitions that ``backfill`` would recompute, each with the cost of its last
        run.
        """
        # These imports load the SQL parser, and a command that only prints its help must stay fast.
        from nova_assets.sql.datasets.dataset_bindings import dataset_queries_by_name
        from nova_assets.store.scheduler_snapshot import StalenessTracker

        datasets = None if downstream == "all" else () if downstream == "none" else _as_name_collection(downstream)
        snapshot = StalenessTracker(self.runtime).snapshot_without_staleness()
        if dataset not in snapshot.partition_ordinals:
            raise DefinitionError(
                f"no dataset in SQL is called {dataset!r}{did_you_mean(dataset, snapshot.partition_ordinals)}",
                expected=", ".join(sorted(snapshot.partition_ordinals))
                or "a dataset of nova.datasets(FOLDER), which the project does not have",
            )
        columns = [d.column for d in self.runtime.project.binding(dataset).dimensions]
        if columns and not partitions and not everything:
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
        selected = select_partitions(dataset, list(snapshot.partition_ordinals[dataset]), columns, partitions)
        repeatable = {name for name, q in queries.items() if q.is_repeatable}
        scope = backfill_scope(
            snapshot.partition_ordinals, snapshot.task_inputs, dataset, selected, datasets, repeatable.__contains__
        )
        cost_by_partition = self.catalog.backfills.last_execution_costs(dict.fromkeys(d for d, _ in scope.parts))
        return BackfillPreview(
            scope, {part: cost_by_partition[part] for part in scope.parts if part in cost_by_partition}
        )

    def backfills(self, limit: int = 100) -> list[Backfill]:
        """Backfills with requester, reason and progress, newest first."""
        return self.catalog.backfills.find(limit)

    def cancel_backfill(self, backfill_id: str) -> int:
        """Cancel the pending partitions of a backfill. Running tasks are not stopped.

        Returns:
            The number of partitions that are left as they are.

        Raises:
            NovaError: there is no such backfill.
        """
        return self.catalog.backfills.cancel(backfill_id)


def _as_name_collection(names: str | Collection[str]) -> Collection[str]:
    return (names,) if isinstance(names, str) else names
