"""Opens a catalog on SQLite or PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from functools import partial

from nova_assets.catalog import catalog_place, schema_version
from nova_assets.catalog.arrivals import Arrivals, Seals
from nova_assets.catalog.backfills import Backfills
from nova_assets.catalog.backups import Backups
from nova_assets.catalog.catalog import Catalog
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
from nova_assets.settings import CATALOG_PATIENCE, CATALOG_TIMEOUT


def open_catalog(
    url: str,
    clock: Callable[[], datetime] | None = None,
    *,
    on_before_commit: Callable[[], None] | None = None,
    patience: float = CATALOG_PATIENCE,
    timeout: float = CATALOG_TIMEOUT,
) -> Catalog:
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
    return Catalog(
        database,
        definitions=Definitions(database),
        definition_versions=DefinitionVersions(database),
        definition_states=DefinitionStates(database),
        histories=Histories(database),
        instants=Instants(database),
        timelines=Timelines(database),
        provenance=Provenance(database),
        executions=Executions(database),
        staging=StagingArea(database),
        commits=Commits(database, on_before_commit),
        cursors=Cursors(database),
        firings=Firings(database),
        scheduler=SchedulerState(database),
        partitions=MaterializedPartitions(database),
        backfills=Backfills(database),
        arrivals=Arrivals(database),
        seals=Seals(database),
        sources=ExternalSources(database),
        garbage=GarbageCollection(database),
        repairs=Repairs(database),
        identity=Identity(database),
        backups=Backups(database),
        published_versions=PublishedVersions(database),
        dagster_publishers=DagsterPublishers(database),
        notifications=Notifications(database),
        tokens=Tokens(database),
    )
