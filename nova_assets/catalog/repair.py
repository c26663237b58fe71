"""Repair transactions: known paths of the warehouse, commits reported to Dagster, and corrections of both."""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import Connection, select, update

from nova_assets.catalog.database import Database, query_as_dict
from nova_assets.catalog.execution_rows import SKIPPED_FOLDER
from nova_assets.catalog.maintenance import Maintenance, mark_collected
from nova_assets.catalog.tables import blocks, catalog_identity, channels, commit_numbers, commits, files, staged_blocks
from nova_assets.model.maintenance import Collection
from nova_assets.model.warehouse_contents import CatalogPaths
from nova_assets.plan.lost_files import blocks_to_give_up


class Repairs:
    """Catalog operations of ``nova doctor --repair``."""

    def __init__(self, database: Database, maintenance: Maintenance) -> None:
        self.database = database
        self.maintenance = maintenance

    def identity(self) -> str:
        """Identity of this catalog, independent of its name and location."""
        return str(self.database.read(lambda c: c.execute(select(catalog_identity.c.id)).scalar_one()))

    def warehouse(self) -> tuple[str | None, str | None]:
        """Identity and first address of the warehouse; None for both if nothing was written yet."""
        row = self.database.read(
            lambda c: c.execute(select(catalog_identity.c.warehouse, catalog_identity.c.warehouse_address)).one()
        )
        return row[0], row[1]

    def adopt_warehouse(self, new_identity: str, address: str) -> tuple[str, str]:
        """Store the identity and the address of the warehouse, unless they are set.

        Returns:
            The stored identity and address.
        """

        def adopt_if_unset(c: Connection) -> tuple[str, str]:
            change = update(catalog_identity).where(catalog_identity.c.warehouse.is_(None))
            c.execute(change.values(warehouse=new_identity, warehouse_address=address))
            row = c.execute(select(catalog_identity.c.warehouse, catalog_identity.c.warehouse_address)).one()
            return row[0], row[1]

        return self.database.write(adopt_if_unset)

    def newest_listed_file(self) -> str | None:
        """A file of the newest block that has files in the warehouse; None if there is no such block."""
        is_live_block = blocks.c.collected_at.is_(None) & blocks.c.outside.is_(None)
        query = select(files.c.path).join(blocks, files.c.block_id == blocks.c.id).where(is_live_block)
        query = query.join(commits, commits.c.id == blocks.c.commit_id).order_by(commits.c.at.desc()).limit(1)
        return self.database.read(lambda c: c.execute(query).scalar())

    def known_paths(self) -> CatalogPaths:
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
    ) -> Collection:
        """Mark damaged blocks as collected, in each partition whose retained answers are all possible without them.

        Decided under the channel's lock, as for a collection.

        Args:
            damaged_block_ids: ids of blocks whose files are missing or changed.
            retain_seconds: seconds for which old versions are kept for time travel.
        """

        def collect_damaged(c: Connection) -> Collection:
            c.execute(select(channels.c.name).where(channels.c.name == channel).with_for_update()).all()
            given_up_blocks = blocks_to_give_up(
                self.maintenance.read_retention_state(c, channel, retain_seconds), frozenset(damaged_block_ids)
            )
            if not given_up_blocks:
                return Collection(channel, ())
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
        return {commit: bool(told) for commit, told in self.database.read(lambda c: query_as_dict(c, query)).items()}

    def unmark_published(self, channel: str) -> None:
        """Mark all commits on the channel as not reported to Dagster, so that they are reported again."""
        on_channel = select(commit_numbers.c.commit_id).where(commit_numbers.c.channel == channel)
        change = update(commits).where(commits.c.id.in_(on_channel)).values(published_at=None)
        self.database.write(lambda c: c.execute(change))
