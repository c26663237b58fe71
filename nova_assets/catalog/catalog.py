"""SQL catalog: one class that inherits the methods of all parts of this package."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import TypeVar

from sqlalchemy import text

from nova_assets.catalog import catalog_place, schema_version
from nova_assets.catalog.arrivals import Arrivals
from nova_assets.catalog.backfills import Backfills
from nova_assets.catalog.backups import Backups
from nova_assets.catalog.catalog_damage import CatalogDamage
from nova_assets.catalog.channel_outlines import Outlines
from nova_assets.catalog.commits import Commits
from nova_assets.catalog.cursors import Cursors
from nova_assets.catalog.dagster_publishers import DagsterPublishers
from nova_assets.catalog.database.transactions import Database
from nova_assets.catalog.definition_states import DefinitionStates
from nova_assets.catalog.definition_versions import DefinitionVersions
from nova_assets.catalog.definitions import Definitions
from nova_assets.catalog.executions import Executions
from nova_assets.catalog.external_positions import ExternalPositions
from nova_assets.catalog.firings import Firings
from nova_assets.catalog.garbage_collection import GarbageCollection
from nova_assets.catalog.history import Histories
from nova_assets.catalog.identity import Identity
from nova_assets.catalog.instants import Instants
from nova_assets.catalog.materialized_partitions import MaterializedPartitions
from nova_assets.catalog.notifications import Notifications
from nova_assets.catalog.provenance import Provenance
from nova_assets.catalog.published_versions import PublishedVersions
from nova_assets.catalog.read_pins import ReadPins
from nova_assets.catalog.repair import Repairs
from nova_assets.catalog.scheduler_state import SchedulerState
from nova_assets.catalog.seals import Seals
from nova_assets.catalog.source_versions import SourceVersions
from nova_assets.catalog.staged_blocks import StagingArea
from nova_assets.catalog.timeline_reads import TimelineReads
from nova_assets.catalog.tokens import Tokens
from nova_assets.settings import CATALOG_PATIENCE, CATALOG_TIMEOUT

T = TypeVar("T")


class SqlCatalog(
    Definitions,
    DefinitionVersions,
    DefinitionStates,
    Histories,
    Instants,
    Cursors,
    TimelineReads,
    Outlines,
    Executions,
    StagingArea,
    Commits,
    ReadPins,
    GarbageCollection,
    Identity,
    CatalogDamage,
    Repairs,
    Arrivals,
    Seals,
    MaterializedPartitions,
    SchedulerState,
    Backfills,
    DagsterPublishers,
    Provenance,
    PublishedVersions,
    ExternalPositions,
    SourceVersions,
    Firings,
    Notifications,
    Tokens,
    Backups,
):
    """Implements the ``Catalog`` protocol on SQLite or PostgreSQL.

    Each method is one transaction, or two if the first finds that there is nothing to write.

    Args:
        on_before_commit: called inside each commit transaction, right before COMMIT.
    """

    def __init__(self, database: Database, on_before_commit: Callable[[], None] | None = None) -> None:
        super().__init__(database)
        self.url = database.masked_url
        self.on_before_commit = on_before_commit

    def now(self) -> datetime:
        """Current time by the clock that governs leases and firings."""
        return self.database.clock()

    def read_together(self, reads: Callable[[], T]) -> T:
        """Call a function whose reads of this catalog share one transaction, so that all of them see one moment.

        Args:
            reads: writes nothing, and may be called again if the connection is lost.
        """
        return self.database.read_together(reads)

    def check_writable(self) -> str:
        """One-line description of the catalog. Raises CatalogUnavailable."""
        self.database.write(lambda c: c.execute(text("SELECT 1")))
        kind = "SQLite" if self.database.is_sqlite else "PostgreSQL"
        return f"{kind}, version {schema_version.current_version(self.database)}, {self.url}"

    def close(self) -> None:
        """Close all connections."""
        self.database.close()


def open_catalog(
    url: str,
    clock: Callable[[], datetime] | None = None,
    *,
    on_before_commit: Callable[[], None] | None = None,
    patience: float = CATALOG_PATIENCE,
    timeout: float = CATALOG_TIMEOUT,
) -> SqlCatalog:
    """Open a catalog. An empty database is initialised, and an older catalog is migrated.

    Args:
        url: ``sqlite:///FILE``, ``sqlite://`` (in memory, for this process alone) or ``postgresql+psycopg://...``.
        clock: returns the current time with a zone; by default the database's own clock, which all its processes share.
        on_before_commit: called inside each commit transaction, right before COMMIT.
        patience, timeout: seconds; see ``Settings.catalog_patience`` and ``catalog_timeout``.

    Raises:
        CatalogUnavailable, CatalogVersion.
    """
    database = Database(url, clock, patience=patience, statement_timeout=timeout)
    schema_version.upgrade(database, partial(catalog_place.check_before_change, database))
    catalog_place.check_or_record_place(database)
    return SqlCatalog(database, on_before_commit)
