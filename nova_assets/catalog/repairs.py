"""Repair transactions: known paths of the warehouse, commits reported to Dagster, and corrections of both."""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import Connection, select, update

from nova_assets.catalog.catalog_part import CatalogPart
from nova_assets.catalog.database.transactions import query_as_dict
from nova_assets.catalog.execution_rows import SKIPPED_FOLDER
from nova_assets.catalog.garbage_collection import mark_collected, read_retention_state
from nova_assets.catalog.tables import blocks, channels, commit_numbers, commits, files, staged_blocks
from nova_assets.model.channel_state import CollectedGarbage
from nova_assets.model.damage import CatalogPaths
from nova_assets.plan.lost_files import blocks_to_give_up


class Repairs(CatalogPart):
    """Catalog operations of ``nova doctor --repair``."""

    def catalog_paths(self) -> CatalogPaths:
        """All paths of the warehouse that the catalog knows.

        Call this after listing the warehouse. Every file is recorded as staged before it is written (R3).
        """
        manifests = select(staged_blocks.c.folder, staged_blocks.c.manifest).where(
            staged_blocks.c.folder != SKIPPED_FOLDER
        )
        live_block_ids = select(blocks.c.id).where(blocks.c.collected_at.is_(None))

        def read_contents(c: Connection) -> CatalogPaths:
            # Read staged blocks first. A block committed in between is then in at least one of the two lists.
            staged_rows = c.execute(manifests).all()
            listed_paths = {f["path"] for _, manifest in staged_rows if manifest for f in manifest["files"]}
            listed_paths |= set(c.execute(select(files.c.path).distinct()).scalars())
            folders = {f"blocks/{block}" for block in c.execute(live_block_ids).scalars()}
            return CatalogPaths(
                frozenset(listed_paths), frozenset(folders), frozenset(folder for folder, _ in staged_rows)
            )

        return self.database.read(read_contents)

    def collect_damaged_blocks(
        self, channel: str, damaged_block_ids: Iterable[str], retain_seconds: float = 0.0
    ) -> CollectedGarbage:
        """Mark damaged blocks as collected, in each partition whose retained answers are all possible without them.

        Decided under the channel's lock, as for a collection.

        Args:
            damaged_block_ids: ids of blocks whose files are missing or changed.
            retain_seconds: seconds for which old versions are kept for time travel.
        """

        def collect_damaged(c: Connection) -> CollectedGarbage:
            c.execute(select(channels.c.name).where(channels.c.name == channel).with_for_update()).all()
            given_up_blocks = blocks_to_give_up(
                read_retention_state(c, self.database, channel, retain_seconds), frozenset(damaged_block_ids)
            )
            if not given_up_blocks:
                return CollectedGarbage(channel, ())
            return mark_collected(
                c, channel, given_up_blocks, {"given up": len(given_up_blocks)}, self.database.clock()
            )

        return self.database.write(collect_damaged)

    def reported_by_commit(self, channel: str) -> dict[str, bool]:
        """Whether each commit counts as reported to Dagster.

        Covers the commits that added a block with a new number to the channel.
        """
        commit_ids = select(blocks.c.commit_id).where(blocks.c.channel == channel, blocks.c.origin != "compact")
        query = select(commits.c.id, commits.c.published_at.is_not(None)).where(commits.c.id.in_(commit_ids))
        reported_by_commit = self.database.read(lambda c: query_as_dict(c, query))
        return {commit: bool(is_reported) for commit, is_reported in reported_by_commit.items()}

    def mark_channel_unreported(self, channel: str) -> None:
        """Mark all commits on the channel as not reported to Dagster, so that they are reported again."""
        on_channel = select(commit_numbers.c.commit_id).where(commit_numbers.c.channel == channel)
        change = update(commits).where(commits.c.id.in_(on_channel)).values(published_at=None)
        self.database.write(lambda c: c.execute(change))
