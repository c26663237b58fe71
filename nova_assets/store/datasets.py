"""What a store can do about datasets in SQL: make what they lack, and make again what was at fault."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import cached_property
from typing import TYPE_CHECKING, Literal

from nova_assets.execution.runtime import Runtime
from nova_assets.model.backfill import Backfill, Priority
from nova_assets.model.catalog import Catalog
from nova_assets.model.external_table import Refreshed
from nova_assets.operations.maintenance import ChannelMaintenance
from nova_assets.plan.tick import Policy, Tick
from nova_assets.settings import Settings

if TYPE_CHECKING:
    from nova_assets.operations.datasets.backfill import BackfillManager, Preview
    from nova_assets.operations.datasets.tick import DatasetScheduler, Ran
    from nova_assets.operations.external_tables import ExternalTableRefresher


class DatasetMethods:
    """This part of a store; the rest of it is in ``store.py``."""

    runtime: Runtime
    catalog: Catalog
    settings: Settings
    _maintenance: ChannelMaintenance

    @cached_property
    def _scheduler(self) -> DatasetScheduler:
        """Loaded on first use: it brings the parser of SQL."""
        from nova_assets.operations.datasets.tick import DatasetScheduler

        return DatasetScheduler(self.runtime, self._maintenance)

    @cached_property
    def _backfill_manager(self) -> BackfillManager:
        from nova_assets.operations.datasets.backfill import BackfillManager

        return BackfillManager(self.runtime)

    @cached_property
    def _external_refresher(self) -> ExternalTableRefresher:
        from nova_assets.operations.external_tables import ExternalTableRefresher

        return ExternalTableRefresher(self.runtime, self.settings.root)

    def refresh(self, channel: str, *, gone: bool = False) -> Refreshed:
        """Look what others have written of an external channel, and commit what is otherwise since, as a base of each
        partition that lists their files where they are. Nothing is copied, and nothing of theirs is ever touched.

        Args:
            gone: partitions of which nothing is there any more may be gone, however many they are.

        Raises:
            DefinitionError: the channel is not external.
            SourceUnavailable: its location cannot be listed.
            NotSupported: it is a table of a format that says elsewhere which of its files count.
            SchemaMismatch: no file has one of its columns.
        """
        return self._external_refresher.refresh(channel, allow_vanished=gone)

    def preview_refresh(self, channel: str, *, gone: bool = False) -> Refreshed:
        """What ``refresh`` would commit. Changes nothing, and opens no file."""
        return self._external_refresher.preview_refresh(channel, allow_vanished=gone)

    def refresh_all(self) -> list[Refreshed]:
        """Look at all external channels of the project. One that cannot be looked at stops no other, is as it was, and
        says why."""
        return self._external_refresher.refresh_all() if any(c.external for c in self.runtime.project.channels) else []

    def next_tick(self, policy: Policy | None = None) -> Tick:
        """What ``tick`` would do now, and what waits for what: its dry run.

        Args:
            policy: how much it does at once.
        """
        return self._scheduler.plan_tick(policy)

    def tick(
        self, found: Tick | None = None, tell: Callable[[Ran], None] = lambda ran: None, run_id: str | None = None
    ) -> list[Ran]:
        """Make what datasets in SQL lack, once: every task whose partition is missing, marked, or older than what it
        was made of, as soon as all that it reads is there; and drop partitions that no task writes any more.

        External channels are looked at first, unless ``found`` is given. Nothing is kept that the next tick needs. A
        task that fails stops no other, and is tried again by a later tick.

        Args:
            found: what ``next_tick`` has said; what it says now by default.
            tell: told of each task when it has ended.
            run_id: of the run, of another orchestrator, that does this.

        Returns:
            The tasks that were run; none where there was nothing to do, or everything waits.
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
        preview: Preview | None = None,
    ) -> Backfill:
        """Have partitions of a dataset made again, and what was made of them: they are marked, and ticks make them.

        Whatever reads a marked partition waits until it is made again. What does not follow is left as it is, and does
        not become stale by it.

        Args:
            dataset: whose partitions are at fault.
            partitions: which: ``day=2022-03-01..2022-03-31``, ``store=Paris``; all terms have to hold.
            downstream: what follows: ``all`` that was made of them, near or far, ``none``, or these datasets.
            priority: ``low``, after what is missing or stale; ``normal``, as that is; ``high``, before it.
            why, by: kept with it.
            everything: all partitions, where none are picked.
            preview: what ``preview_backfill`` has said; what it says now by default.

        Raises:
            DefinitionError: there is no such dataset; or one that is to follow reads nothing of it.
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
    ) -> Preview:
        """What ``backfill`` would make again, and what each partition cost the last time. Changes nothing."""
        chosen = None if downstream == "all" else () if downstream == "none" else _as_name_collection(downstream)
        return self._backfill_manager.preview_backfill(dataset, partitions, chosen, everything)

    def backfills(self, limit: int = 100) -> list[Backfill]:
        """Who wanted what made again, and how far that is; newest first."""
        return self.catalog.backfills(limit)

    def cancel_backfill(self, backfill_id: str) -> int:
        """Leave as they are the partitions of a backfill that are not made yet, and give how many these are. What runs
        is not stopped. Raises NovaError when there is no such backfill."""
        return self.catalog.cancel_backfill(backfill_id)


def _as_name_collection(names: str | Collection[str]) -> Collection[str]:
    return (names,) if isinstance(names, str) else names
