"""The catalog, the transactional source of truth about channels, executions and cursors."""

# Only type checkers load the parts here. So a room that is given a catalog loads no database driver.

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from nova_assets.catalog.arrivals import Arrivals, Seals
    from nova_assets.catalog.backfills import Backfills
    from nova_assets.catalog.backups import Backups
    from nova_assets.catalog.commits import Commits
    from nova_assets.catalog.cursors import Cursors
    from nova_assets.catalog.dagster_publishers import DagsterPublishers
    from nova_assets.catalog.database.transactions import Database
    from nova_assets.catalog.definition_states import DefinitionStates
    from nova_assets.catalog.definition_versions import DefinitionVersions
    from nova_assets.catalog.definitions import Definitions
    from nova_assets.catalog.executions import Executions
    from nova_assets.catalog.external_sources import ExternalSources
    from nova_assets.catalog.firings import Firings
    from nova_assets.catalog.garbage_collection import GarbageCollection
    from nova_assets.catalog.history import Histories
    from nova_assets.catalog.identity import Identity
    from nova_assets.catalog.instants import Instants
    from nova_assets.catalog.materialized_partitions import MaterializedPartitions
    from nova_assets.catalog.notifications import Notifications
    from nova_assets.catalog.provenance import Provenance
    from nova_assets.catalog.published_versions import PublishedVersions
    from nova_assets.catalog.repairs import Repairs
    from nova_assets.catalog.scheduler_state import SchedulerState
    from nova_assets.catalog.staged_blocks import StagingArea
    from nova_assets.catalog.timelines import Timelines
    from nova_assets.catalog.tokens import Tokens

T = TypeVar("T")


class ViewSource(Protocol):
    """File views through which histories are read, in place of the database."""

    def close(self) -> None: ...


@dataclass
class Catalog:
    """The transactional source of truth (R17), on SQLite or PostgreSQL.

    Each method of a part is one transaction, or two if the first finds that there is nothing to write. None raises an
    error of the database.
    """

    database: Database

    # definitions
    definitions: Definitions
    definition_versions: DefinitionVersions
    definition_states: DefinitionStates

    # what channels contain
    histories: Histories
    instants: Instants
    timelines: Timelines
    provenance: Provenance

    # one execution, from begin to commit
    executions: Executions
    staging: StagingArea
    commits: Commits
    cursors: Cursors

    # what is to be run
    firings: Firings
    scheduler: SchedulerState
    partitions: MaterializedPartitions
    backfills: Backfills

    # data that arrives
    arrivals: Arrivals
    seals: Seals
    sources: ExternalSources

    # maintenance
    garbage: GarbageCollection
    repairs: Repairs
    identity: Identity
    backups: Backups

    # what others are told
    published_versions: PublishedVersions
    dagster_publishers: DagsterPublishers
    notifications: Notifications
    tokens: Tokens

    views: ViewSource | None = None
    """Source of the file views through which histories are read; None if they are read from the database alone."""

    @property
    def url(self) -> str:
        """Address of the catalog, without secrets."""
        return self.database.masked_url

    def now(self) -> datetime:
        """Current time by the clock that governs leases and firings."""
        return self.database.clock()

    def read_together(self, reads: Callable[[], T]) -> T:
        """Call a function whose reads of this catalog share one transaction, so that all of them see one moment.

        Args:
            reads: writes nothing, and may be called again if the connection is lost.
        """
        return self.database.read_together(reads)

    def close(self) -> None:
        """Close all connections."""
        try:
            if self.views is not None:
                self.views.close()
        finally:
            self.database.close()
