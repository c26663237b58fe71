"""Datasets in SQL: refresh external inputs, run due tasks, backfill."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from nova_assets.execution.runtime import Runtime
from nova_assets.model.backfill import Backfill, Priority
from nova_assets.model.external_table import RefreshResult
from nova_assets.plan.tick import Policy, Tick
from nova_assets.store.retention import ChannelRetention

if TYPE_CHECKING:
    from nova_assets.store.backfill import BackfillManager, BackfillPreview
    from nova_assets.store.external_tables import ExternalTableRefresher
    from nova_assets.store.tick import DatasetScheduler, TaskOutcome


class StoreDatasets:
    """Store methods that maintain datasets in SQL."""

    def __init__(self, runtime: Runtime, retention: ChannelRetention, root: Path) -> None:
        self.runtime = runtime
        self.retention = retention
        self.root = root

    @cached_property
    def _scheduler(self) -> DatasetScheduler:
        """Loaded on first use, since the scheduler imports the SQL parser."""
        from nova_assets.store.tick import DatasetScheduler

        return DatasetScheduler(self.runtime, self.retention)

    @cached_property
    def _backfill_manager(self) -> BackfillManager:
        from nova_assets.store.backfill import BackfillManager

        return BackfillManager(self.runtime)

    @cached_property
    def _external_refresher(self) -> ExternalTableRefresher:
        from nova_assets.store.external_tables import ExternalTableRefresher

        return ExternalTableRefresher(self.runtime, self.root)

    def refresh(self, channel: str, *, gone: bool = False) -> RefreshResult:
        """List the files of an external channel and commit the differences since the last refresh.

        Each changed partition gets a base that references the external files in place. Nothing is copied, and the
        external files are never modified.

        Args:
            gone: accept any number of vanished partitions. By default, if many partitions vanish at once, nova assumes
                a storage failure and keeps their state.

        Raises:
            DefinitionError: the channel is not external.
            SourceUnavailable: the location cannot be listed.
            NotSupported: the location holds a table format with its own file list.
            SchemaMismatch: a declared column is missing in every file.
        """
        return self._external_refresher.refresh(channel, allow_vanished=gone)

    def preview_refresh(self, channel: str, *, gone: bool = False) -> RefreshResult:
        """Dry run of ``refresh``: the changes that ``refresh`` would commit. No file is opened."""
        return self._external_refresher.preview_refresh(channel, allow_vanished=gone)

    def refresh_all(self) -> list[RefreshResult]:
        """Refresh all external channels of the project.

        If a channel cannot be refreshed, the channel keeps its state, and its result holds the reason. The other
        channels are refreshed all the same.
        """
        return self._external_refresher.refresh_all() if any(c.external for c in self.runtime.project.channels) else []

    def next_tick(self, policy: Policy | None = None) -> Tick:
        """Dry run of ``tick``: the tasks that ``tick`` would run now, and the tasks that wait for other tasks.

        Args:
            policy: limits of one tick, such as the number of tasks that run at once.
        """
        return self._scheduler.plan_tick(policy)

    def tick(
        self,
        found: Tick | None = None,
        tell: Callable[[TaskOutcome], None] = lambda ran: None,
        run_id: str | None = None,
    ) -> list[TaskOutcome]:
        """Run due tasks of the SQL datasets, as many as the policy of ``next_tick`` allows (eight by default), and drop
        partitions that no task writes any more.

        A task is due if its partition is missing, marked for a backfill, or older than its inputs. A due task runs as
        soon as all its inputs exist. A failed task does not stop the other tasks, and a later tick retries the failed
        task. A tick keeps no state for the next tick.

        Args:
            found: the result of ``next_tick``, which is then carried out. By default, ``tick`` refreshes the external
                channels and makes a new plan.
            tell: function that is called with the outcome of each task when the task has ended.
            run_id: id of the orchestrator's run that executes the tick.

        Returns:
            The tasks that were run. Empty if no task is due or all due tasks wait.
        """
        if found is None:
            self.refresh_all()
            found = self._scheduler.plan_tick()
        return list(self._scheduler.run_tick(found, tell, run_id))

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
            DefinitionError: there is no such dataset, or a named downstream dataset does not read from it.
            PartitionError: no task writes such a partition.
        """
        preview = preview or self.preview_backfill(dataset, *partitions, downstream=downstream, everything=everything)
        return self._backfill_manager.start_backfill(dataset, preview, requested_by=by, reason=why, priority=priority)

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
        downstream_datasets = (
            None if downstream == "all" else () if downstream == "none" else _as_name_collection(downstream)
        )
        return self._backfill_manager.preview_backfill(dataset, partitions, downstream_datasets, everything)

    def backfills(self, limit: int = 100) -> list[Backfill]:
        """Backfills with requester, reason and progress, newest first."""
        return self.runtime.catalog.backfills(limit)

    def cancel_backfill(self, backfill_id: str) -> int:
        """Cancel the pending partitions of a backfill. Running tasks are not stopped.

        Returns:
            The number of partitions that are left as they are.

        Raises:
            NovaError: there is no such backfill.
        """
        return self.runtime.catalog.cancel_backfill(backfill_id)


def _as_name_collection(names: str | Collection[str]) -> Collection[str]:
    return (names,) if isinstance(names, str) else names
