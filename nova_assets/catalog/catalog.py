"""SQL catalog: one object with the methods of all classes of this package."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from functools import partial

from sqlalchemy import text

from nova_assets.catalog import schema_version
from nova_assets.catalog.arrivals import Arrivals
from nova_assets.catalog.backfills import Backfills
from nova_assets.catalog.channel_outlines import Outlines
from nova_assets.catalog.commits import Commits
from nova_assets.catalog.cursor_switch import CursorSwitches
from nova_assets.catalog.dagster_publishers import Publishers
from nova_assets.catalog.database import Database
from nova_assets.catalog.definitions import Definitions
from nova_assets.catalog.executions import Executions
from nova_assets.catalog.firings import Firings
from nova_assets.catalog.history import Histories
from nova_assets.catalog.maintenance import Maintenance
from nova_assets.catalog.published_versions import PublishedVersions
from nova_assets.catalog.read_pins import ReadPins
from nova_assets.catalog.readability import find_catalog_damage
from nova_assets.catalog.repair import Repairs
from nova_assets.catalog.scheduler_state import SchedulerCatalog
from nova_assets.catalog.seals import Seals
from nova_assets.catalog.staged_blocks import StagingArea
from nova_assets.catalog.timeline_reads import TimelineReads
from nova_assets.catalog.tokens import Tokens
from nova_assets.settings import CATALOG_PATIENCE, CATALOG_TIMEOUT


class SqlCatalog:
    """Implements the ``Catalog`` protocol on SQLite or PostgreSQL.

    Each method is one transaction, or two if the first finds that there is nothing to write. The classes that provide
    the methods document them.

    Args:
        on_before_commit: called inside each commit transaction, right before COMMIT.
    """

    def __init__(self, database: Database, on_before_commit: Callable[[], None] | None = None) -> None:
        self.database = database
        self.url = database.masked_url
        definitions = Definitions(database)
        histories = Histories(database, definitions)
        executions = Executions(database, definitions)
        staging = StagingArea(database, executions)
        commits = Commits(database, on_before_commit)
        firings = Firings(database)

        self.register = definitions.register
        self.check_registration = definitions.check_registration
        self.channel = definitions.channel
        self.channels = definitions.channels
        self.bindings = definitions.bindings
        self.registered_at = definitions.registered_at

        self.history = histories.history
        self.partitions = histories.partitions
        self.unread = histories.unread
        self.blocks = histories.blocks
        self.timeline = histories.timeline
        self.cursors = histories.cursors
        self.cursor_positions = histories.cursor_positions
        self.lagging_cursors = histories.lagging_cursors
        self.has_consumers = histories.has_consumers
        self.has_drops = histories.has_drops
        timeline_reads = TimelineReads(database, definitions, histories)
        self.channel_head = timeline_reads.channel_head
        self.timeline_steps = timeline_reads.timeline_steps
        self.steps_without_blocks = timeline_reads.steps_without_blocks
        self.instant_summaries = timeline_reads.instant_summaries
        self.partition_names = timeline_reads.partition_names
        self.bootstrap = timeline_reads.bootstrap
        self.head_and_history = timeline_reads.head_and_history
        self.outlines = Outlines(database, histories).outlines

        self.begin = executions.begin
        self.preview_pins = executions.preview_pins
        self.switch_cursors = CursorSwitches(database, executions).switch_cursors
        self.execution = executions.execution
        self.executions = executions.executions
        self.running_executions = executions.running_executions
        self.execution_counts = executions.execution_counts
        self.renew = executions.renew
        self.resume = executions.resume
        self.fail = executions.fail
        self.abort = executions.abort
        self.catalog_damage = partial(find_catalog_damage, database)
        self.end_read = ReadPins(database).end_read

        self.stage = staging.stage
        self.fill = staging.fill
        self.drop_staged = staging.drop_staged
        self.staged = staging.staged
        self.sweepable_blocks = staging.sweepable_blocks
        self.mark_swept = staging.mark_swept
        self.executions_with_staged_blocks = staging.executions_with_staged_blocks

        self.commit = commits.commit
        self.commit_or_abort = commits.commit_or_abort
        self.commit_of_key = commits.commit_of_key
        self.commit_by_id = commits.commit_by_id
        self.unpublished = commits.unpublished
        self.mark_published = commits.mark_published

        maintenance = Maintenance(database, histories)
        self.retention_state = maintenance.retention_state
        self.collect = maintenance.collect
        self.deletable_files = maintenance.deletable_files
        self.delete_file_records = maintenance.delete_file_records
        self.count_full_reads = maintenance.count_full_reads

        repairs = Repairs(database, maintenance)
        self.identity = repairs.identity
        self.warehouse = repairs.warehouse
        self.adopt_warehouse = repairs.adopt_warehouse
        self.newest_listed_file = repairs.newest_listed_file
        self.known_paths = repairs.known_paths
        self.collect_damaged_blocks = repairs.collect_damaged_blocks
        self.reported_by_commit = repairs.reported_by_commit
        self.unmark_published = repairs.unmark_published

        arrivals = Arrivals(database)
        self.announce = arrivals.announce
        self.waiting_arrivals = arrivals.waiting_arrivals
        self.arrivals = arrivals.arrivals
        self.arrivals_by_path_key = arrivals.arrivals_by_path_key
        self.arrival_counts = arrivals.arrival_counts
        self.record_source_listing = arrivals.record_source_listing

        seals = Seals(database)
        self.seals = seals.seals
        self.latest_seals = seals.latest_seals
        scheduler_catalog = SchedulerCatalog(database)
        self.heads = scheduler_catalog.heads
        self.partitions_updated_since = scheduler_catalog.partitions_updated_since
        self.materialized_partitions = scheduler_catalog.materialized_partitions
        self.mark_dirty = scheduler_catalog.mark_dirty
        self.clear_dirty = scheduler_catalog.clear_dirty
        self.dirty_partitions = scheduler_catalog.dirty_partitions
        self.running_partitions = scheduler_catalog.running_partitions
        self.failing_partitions = scheduler_catalog.failing_partitions
        backfills = Backfills(database)
        self.start_backfill = backfills.start_backfill
        self.backfill = backfills.backfill
        self.backfills = backfills.backfills
        self.backfill_parts = backfills.backfill_parts
        self.cancel_backfill = backfills.cancel_backfill
        self.last_execution_costs = backfills.last_execution_costs
        self.seal_count = seals.seal_count

        claims = Publishers(database)
        self.claim_channels = claims.claim_channels
        self.publishers = claims.publishers

        published_versions = PublishedVersions(database)
        self.editions = published_versions.editions
        self.open_edition = published_versions.open_edition
        self.forget_editions = published_versions.forget_editions

        self.firing = firings.firing
        self.firings = firings.firings
        self.partitions_with_open_firing = firings.partitions_with_open_firing
        self.last_firing = firings.last_firing
        self.fire = firings.fire
        self.retry_firing = firings.retry_firing
        self.end_firing = firings.end_firing

        tokens = Tokens(database)
        self.add_token = tokens.add_token
        self.token = tokens.token
        self.tokens = tokens.tokens
        self.revoke_token = tokens.revoke_token

    def now(self) -> datetime:
        """Current time by the clock that governs leases and firings."""
        return self.database.clock()

    def check(self) -> str:
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
    schema_version.upgrade(database)
    return SqlCatalog(database, on_before_commit)
