"""The catalog as the runtime knows it: one object over the rooms of this package."""

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
from nova_assets.catalog.cursor_switch import Switching
from nova_assets.catalog.dagster_publishers import Publishers
from nova_assets.catalog.database import Database
from nova_assets.catalog.definitions import Definitions
from nova_assets.catalog.executions import Executions
from nova_assets.catalog.firings import Firings
from nova_assets.catalog.history import Histories
from nova_assets.catalog.maintenance import Upkeep
from nova_assets.catalog.published_versions import Editions
from nova_assets.catalog.read_pins import Readers
from nova_assets.catalog.readability import damage_of
from nova_assets.catalog.repair import Repairs
from nova_assets.catalog.scheduler_state import Marks
from nova_assets.catalog.seals import Seals
from nova_assets.catalog.staged_blocks import StagingArea
from nova_assets.catalog.timeline_reads import Following
from nova_assets.catalog.tokens import Tokens
from nova_assets.settings import CATALOG_PATIENCE, CATALOG_TIMEOUT


class SqlCatalog:
    """The ``Catalog`` protocol on SQLite or PostgreSQL. Each method is one transaction (two, where the first finds out
    that there is nothing to write). See the classes that the methods come from."""

    def __init__(self, database: Database, on_before_commit: Callable[[], None] | None = None) -> None:
        self.database = database
        self.url = database.shown
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
        self.positions = histories.positions
        self.lagging = histories.lagging
        self.has_consumers = histories.has_consumers
        self.has_drops = histories.has_drops
        known = Following(database, definitions, histories)
        self.standing = known.standing
        self.steps = known.steps
        self.passed = known.passed
        self.told = known.told
        self.named = known.named
        self.bootstrap = known.bootstrap
        self.history_there = known.history_there
        self.outlines = Outlines(database, histories).outlines

        self.begin = executions.begin
        self.preview = executions.preview
        self.switch = Switching(database, executions).switch
        self.execution = executions.execution
        self.executions = executions.executions
        self.at_work = executions.at_work
        self.finished = executions.finished
        self.renew = executions.renew
        self.resume = executions.resume
        self.fail = executions.fail
        self.abort = executions.abort
        self.damage = partial(damage_of, database)
        self.end_read = Readers(database).end_read

        self.stage = staging.stage
        self.fill = staging.fill
        self.drop_staged = staging.drop_staged
        self.staged = staging.staged
        self.sweepable = staging.sweepable
        self.swept = staging.swept
        self.leftovers = staging.leftovers

        self.commit = commits.commit
        self.settle = commits.settle
        self.commit_of_key = commits.commit_of_key
        self.commit_by_id = commits.commit_by_id
        self.unpublished = commits.unpublished
        self.mark_published = commits.mark_published

        upkeep = Upkeep(database, histories)
        self.upkeep = upkeep.upkeep
        self.collect = upkeep.collect
        self.deletable = upkeep.deletable
        self.deleted = upkeep.deleted
        self.reads_of_all = upkeep.reads_of_all

        repairs = Repairs(database, upkeep)
        self.identity = repairs.identity
        self.warehouse = repairs.warehouse
        self.adopt_warehouse = repairs.adopt_warehouse
        self.listed_file = repairs.listed_file
        self.known = repairs.known
        self.give_up = repairs.give_up
        self.commits_on = repairs.commits_on
        self.unmark_published = repairs.unmark_published

        arrivals = Arrivals(database)
        self.announce = arrivals.announce
        self.waiting = arrivals.waiting
        self.arrivals = arrivals.arrivals
        self.versions = arrivals.versions
        self.arrival_counts = arrivals.arrival_counts
        self.looked = arrivals.looked

        seals = Seals(database)
        self.seals = seals.seals
        self.latest_seals = seals.latest_seals
        marks = Marks(database)
        self.heads = marks.heads
        self.given_since = marks.given_since
        self.made = marks.made
        self.mark = marks.mark
        self.unmark = marks.unmark
        self.marks = marks.marks
        self.running = marks.running
        self.failing = marks.failing
        asked = Backfills(database)
        self.start_backfill = asked.start_backfill
        self.backfill = asked.backfill
        self.backfills = asked.backfills
        self.backfill_parts = asked.backfill_parts
        self.cancel_backfill = asked.cancel_backfill
        self.spent = asked.spent
        self.seal_count = seals.seal_count

        claims = Publishers(database)
        self.claim_channels = claims.claim_channels
        self.publishers = claims.publishers

        published = Editions(database)
        self.editions = published.editions
        self.open_edition = published.open_edition
        self.forget_editions = published.forget_editions

        self.firing = firings.firing
        self.firings = firings.firings
        self.requested = firings.requested
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
        """What time it is, by the clock that leases and firings go by."""
        return self.database.clock()

    def check(self) -> str:
        """One line about the catalog. Raises CatalogUnavailable."""
        self.database.write(lambda c: c.execute(text("SELECT 1")))
        kind = "SQLite" if self.database.is_sqlite else "PostgreSQL"
        return f"{kind}, version {schema_version.current(self.database)}, {self.url}"

    def close(self) -> None:
        """Let go of all connections."""
        self.database.close()


def open_catalog(
    url: str,
    clock: Callable[[], datetime] | None = None,
    *,
    on_before_commit: Callable[[], None] | None = None,
    patience: float = CATALOG_PATIENCE,
    timeout: float = CATALOG_TIMEOUT,
) -> SqlCatalog:
    """Open a catalog; an empty database becomes one, an older one is migrated.

    Args:
        url: ``sqlite:///FILE``, ``sqlite://`` (in memory, of this process alone) or ``postgresql+psycopg://...``.
        clock: what time it is, with a zone; by default the database's own clock, which all its processes share.
        on_before_commit: called inside each commit transaction, right before COMMIT.
        patience, timeout: seconds; see ``Settings.catalog_patience`` and ``catalog_timeout``.

    Raises:
        CatalogUnavailable, CatalogVersion.
    """
    database = Database(url, clock, patience=patience, timeout=timeout)
    schema_version.upgrade(database)
    return SqlCatalog(database, on_before_commit)
