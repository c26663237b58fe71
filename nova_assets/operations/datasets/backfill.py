"""Backfills: partitions of datasets in SQL, and what was made of them, are marked to be made again; ticks make them."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from nova_assets.errors import DefinitionError
from nova_assets.execution.runtime import Runtime
from nova_assets.model.backfill import PRIORITIES, Backfill, Cost, Priority
from nova_assets.operations.datasets.snapshot import Watch
from nova_assets.plan.backfill import Affected, affected, chosen
from nova_assets.sql.datasets.datasets import queries_of
from nova_assets.suggestions import did_you_mean


@dataclass(frozen=True)
class Preview:
    """What a backfill would make again.

    Args:
        costs: of its parts, what each cost the last time; of those that ever ran.
    """

    affected: Affected
    costs: Mapping[tuple[str, str], Cost]

    @property
    def seconds(self) -> float | None:
        """What it is likely to take, one after the other: parts that never ran count as those of their dataset do on
        average. None where nothing of it ever ran."""
        known = {k: c.seconds for k, c in self.costs.items()}
        if not known:
            return None
        of_each: dict[str, list[float]] = {}
        for (dataset, _), took in known.items():
            of_each.setdefault(dataset, []).append(took)
        usual = {dataset: sum(some) / len(some) for dataset, some in of_each.items()}
        of_all = sum(known.values()) / len(known)
        return sum(known.get(part, usual.get(part[0], of_all)) for part in self.affected.parts)


class Backfilling:
    """Asks for backfills.

    Args:
        runtime: whose project has the datasets.
    """

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self.catalog = runtime.catalog

    def preview(
        self,
        dataset: str,
        terms: Sequence[str] = (),
        downstream: Collection[str] | None = None,
        everything: bool = False,
    ) -> Preview:
        """What would be made again. Changes nothing.

        Args:
            terms: which partitions: ``day=2022-03-01..2022-03-31``, ``store=Paris``.
            downstream: the datasets that follow; None for all.
            everything: all partitions, where no terms pick some.

        Raises:
            DefinitionError: there is no such dataset; or one of those that are to follow reads nothing of it.
            PartitionError: a term picks nothing.
        """
        found = Watch(self.runtime).standing()
        if dataset not in found.tasks:
            raise DefinitionError(
                f"no dataset in SQL is called {dataset!r}{did_you_mean(dataset, found.tasks)}",
                expected=", ".join(sorted(found.tasks)) or "the project has none: nova.datasets(FOLDER)",
            )
        columns = [d.column for d in self.runtime.project.binding(dataset).dimensions]
        if columns and not terms and not everything:
            raise DefinitionError(
                f"a backfill of {dataset!r} says which partitions",
                expected=" or ".join(f"{c}=VALUE, {c}=FROM..TO" for c in columns),
                next=f"nova backfill {dataset} --all is for all {len(found.tasks[dataset])} of them",
            )
        queries = queries_of(self.runtime.project)
        if not queries[dataset].is_repeatable:
            raise DefinitionError(
                f"partitions of {dataset!r} cannot be made again as they were",
                found="INSERT INTO adds to what is there; FROM NEW(...) reads what came since",
                expected="INSERT OVERWRITE, of all that is read",
                next=f"nova drop {dataset} --partition ..., and what it reads in full",
            )
        partitions = chosen(dataset, list(found.tasks[dataset]), columns, terms)
        can = {name for name, q in queries.items() if q.is_repeatable}
        reached = affected(found.tasks, found.needs, dataset, partitions, downstream, can.__contains__)
        spent = self.catalog.spent(dict.fromkeys(d for d, _ in reached.parts))
        return Preview(reached, {part: spent[part] for part in reached.parts if part in spent})

    def start(self, dataset: str, preview: Preview, *, by: str, why: str, priority: Priority) -> Backfill:
        """Mark all of it.

        Raises:
            DefinitionError: there is no such priority.
        """
        if priority not in PRIORITIES:
            raise DefinitionError(f"there is no priority {priority!r}", expected=", ".join(PRIORITIES))
        for name in dict.fromkeys(d for d, _ in preview.affected.parts):
            self.runtime.register(self.runtime.project.binding(name))
        name = f"{dataset[:50]}-{uuid.uuid4().hex[:8]}"
        asked = Backfill(name, dataset, self.catalog.now(), by, why, priority, preview.affected.followed)
        return self.catalog.start_backfill(asked, preview.affected.parts)
