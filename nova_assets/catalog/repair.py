"""Repair's transactions: what the catalog knows of the warehouse and has told Dagster, and what of it is taken back."""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import Connection, select, update

from nova_assets.catalog.database import Database, pairs
from nova_assets.catalog.executions import SKIPPED
from nova_assets.catalog.maintenance import Upkeep, mark_collected
from nova_assets.catalog.tables import blocks, channels, commits, files, identity, numbers, staged
from nova_assets.model.maintenance import Collection
from nova_assets.model.warehouse_contents import Known
from nova_assets.plan.lost_files import given_up


class Repairs:
    """What ``nova doctor --repair`` asks of a catalog."""

    def __init__(self, database: Database, upkeep: Upkeep) -> None:
        self.database = database
        self.upkeep = upkeep

    def identity(self) -> str:
        """Which catalog this is, whatever it is called and wherever it lies."""
        return str(self.database.read(lambda c: c.execute(select(identity.c.id)).scalar_one()))

    def warehouse(self) -> tuple[str | None, str | None]:
        """Identity and first address of the warehouse; None where nothing was written yet."""
        row = self.database.read(lambda c: c.execute(select(identity.c.warehouse, identity.c.warehouse_address)).one())
        return row[0], row[1]

    def adopt_warehouse(self, offered: str, address: str) -> tuple[str, str]:
        """Keep the identity and the address of the warehouse, unless there is one. Gives those that are kept."""

        def work(c: Connection) -> tuple[str, str]:
            change = update(identity).where(identity.c.warehouse.is_(None))
            c.execute(change.values(warehouse=offered, warehouse_address=address))
            row = c.execute(select(identity.c.warehouse, identity.c.warehouse_address)).one()
            return row[0], row[1]

        return self.database.write(work)

    def listed_file(self) -> str | None:
        """A file of the newest block that has one in the warehouse; None where nothing is committed."""
        there = blocks.c.collected_at.is_(None) & blocks.c.outside.is_(None)
        query = select(files.c.path).join(blocks, files.c.block_id == blocks.c.id).where(there)
        query = query.join(commits, commits.c.id == blocks.c.commit_id).order_by(commits.c.at.desc()).limit(1)
        return self.database.read(lambda c: c.execute(query).scalar())

    def known(self) -> Known:
        """What of the warehouse is accounted for.

        To be asked after the warehouse was listed: a file is recorded, as staged, before it is written (R3).
        """
        manifests = select(staged.c.folder, staged.c.manifest).where(staged.c.folder != SKIPPED)
        there = select(blocks.c.id).where(blocks.c.collected_at.is_(None))

        def work(c: Connection) -> Known:
            # What is staged comes first: committed in between, it is found among the files, and never in neither.
            written = c.execute(manifests).all()
            listed = {f["path"] for _, manifest in written if manifest for f in manifest["files"]}
            listed |= set(c.execute(select(files.c.path).distinct()).scalars())
            folders = {f"blocks/{block}" for block in c.execute(there).scalars()}
            return Known(frozenset(listed), frozenset(folders), frozenset(folder for folder, _ in written))

        return self.database.read(work)

    def give_up(self, channel: str, damaged: Iterable[str], retain: float = 0.0) -> Collection:
        """Mark damaged blocks as collected, of each partition whose retained answers are all possible without them.

        Judged under the channel's lock, as a collection is.

        Args:
            damaged: ids of blocks whose files are missing or changed.
        """

        def work(c: Connection) -> Collection:
            c.execute(select(channels.c.name).where(channels.c.name == channel).with_for_update()).all()
            found = given_up(self.upkeep.facts_in(c, channel, retain), frozenset(damaged))
            if not found:
                return Collection(channel, ())
            return mark_collected(c, channel, found, {"given up": len(found)}, self.database.clock())

        return self.database.write(work)

    def commits_on(self, channel: str) -> dict[str, bool]:
        """Commit -> whether Dagster is taken to have heard of it, for those that gave the channel a block and a
        number."""
        given = select(blocks.c.commit_id).where(blocks.c.channel == channel, blocks.c.origin != "compact")
        query = select(commits.c.id, commits.c.published_at.is_not(None)).where(commits.c.id.in_(given))
        return {commit: bool(told) for commit, told in self.database.read(lambda c: pairs(c, query)).items()}

    def unmark_published(self, channel: str) -> None:
        """Dagster is to hear of the channel's commits again."""
        on_channel = select(numbers.c.commit_id).where(numbers.c.channel == channel)
        change = update(commits).where(commits.c.id.in_(on_channel)).values(published_at=None)
        self.database.write(lambda c: c.execute(change))
