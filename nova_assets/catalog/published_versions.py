"""Published versions (*editions*): which table shows which snapshot of a channel, and which files it lists (R15)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sqlalchemy import Connection, RowMapping, delete, insert, select, update

from nova_assets.catalog.catalog_part import CatalogPart
from nova_assets.catalog.execution_rows import lock_execution
from nova_assets.catalog.leases import is_live
from nova_assets.catalog.tables import channels, executions, published_versions
from nova_assets.errors import CommitConflict, ExecutionInProgress, ExecutionNotLive
from nova_assets.model.commit import CommitRequest
from nova_assets.model.published_version import PublishedContent, PublishedVersion


class PublishedVersions(CatalogPart):
    """Records the published versions of channels."""

    def find(self, channel: str, table: str | None = None) -> list[PublishedVersion]:
        """Published versions of a channel that readers may still use, latest first.

        Args:
            table: only versions in this table.
        """
        shown_columns = [column for column in published_versions.c if column.name != "blocks"]
        query = select(*shown_columns).where(published_versions.c.channel == channel)
        query = query if table is None else query.where(published_versions.c.place == table)
        query = query.order_by(
            published_versions.c.at.desc(), published_versions.c.place, published_versions.c.number.desc()
        )
        return [_version_from_row(r) for r in self.database.read(lambda c: c.execute(query).mappings().all())]

    def open(
        self, execution_id: str, table: str, content: PublishedContent, fingerprint: str, shown_number: int = 0
    ) -> PublishedVersion:
        """Open the next version of a table. From now on no file that it lists is deleted, even if publishing fails.

        Args:
            execution_id: execution that has pinned the channel.
            content: the files to show, and their blocks.
            fingerprint: hash of the content.
            shown_number: number that the table shows, which this catalog may not know.

        Raises:
            ExecutionInProgress: another live execution has opened a version.
            ExecutionNotLive: the execution has ended.
        """
        return self.database.write(
            lambda c: self._open_version(c, execution_id, table, content, fingerprint, shown_number)
        )

    def delete(self, channel: str, table: str, numbers: Iterable[int]) -> None:
        """Delete the records of versions that readers can no longer use."""
        conditions = (
            published_versions.c.channel == channel,
            published_versions.c.place == table,
            published_versions.c.number.in_(sorted(numbers)),
        )
        self.database.write(lambda c: c.execute(delete(published_versions).where(*conditions)))

    def _open_version(
        self,
        c: Connection,
        execution_id: str,
        table: str,
        content: PublishedContent,
        fingerprint: str,
        shown_number: int,
    ) -> PublishedVersion:
        execution = lock_execution(c, execution_id)
        c.execute(select(channels.c.name).where(channels.c.name == content.channel).with_for_update()).all()
        if execution is None or execution["state"] != "running":
            raise ExecutionNotLive("the execution that publishes has ended", execution_id=execution_id)
        conditions = (published_versions.c.channel == content.channel, published_versions.c.place == table)
        latest_row = (
            c.execute(
                select(published_versions).where(*conditions).order_by(published_versions.c.number.desc()).limit(1)
            )
            .mappings()
            .first()
        )
        if latest_row is not None and latest_row["state"] == "opening":
            self._check_opener_not_live(c, latest_row)
        row: dict[str, Any] = {
            "channel": content.channel,
            "place": table,
            "number": 1 + max(shown_number, 0 if latest_row is None else latest_row["number"]),
            "state": "opening",
            "seq": content.seq,
            "fingerprint": fingerprint,
            "at": execution["started_at"],
            "execution_id": execution_id,
            "rows": content.rows,
            "bytes": content.bytes,
            "files": len(content.files),
            "blocks": list(content.blocks),
        }
        c.execute(insert(published_versions).values(**row))
        return _version_from_row({**row, "shown_at": None, "superseded_at": None})

    def _check_opener_not_live(self, c: Connection, latest_row: RowMapping) -> None:
        query = select(executions).where(executions.c.id == latest_row["execution_id"], executions.c.state == "running")
        live_execution = c.execute(query).mappings().first()
        if live_execution is not None and is_live(live_execution, self.database.clock()):
            raise ExecutionInProgress(
                f"channel {latest_row['channel']!r} is being published to {latest_row['place']}",
                found=f"edition {latest_row['number']}, by {live_execution['owner']}",
                next="nothing: the next publication shows the newest version",
                owner=live_execution["owner"],
                execution_id=live_execution["id"],
            )


def mark_versions_shown(c: Connection, request: CommitRequest, now: Any) -> None:
    """Part of a commit: mark versions as shown, and older versions as superseded.

    Raises:
        CommitConflict: another execution has opened a later version.
    """
    for version in request.published_versions:
        conditions = (published_versions.c.channel == version.channel, published_versions.c.place == version.table)
        query = select(published_versions).where(*conditions).order_by(published_versions.c.number.desc()).limit(1)
        latest_row = c.execute(query).mappings().first()
        if latest_row is None or (latest_row["number"], latest_row["execution_id"]) != (
            version.number,
            request.execution_id,
        ):
            raise CommitConflict(
                f"channel {version.channel!r} was published in {version.table} meanwhile",
                found=None if latest_row is None else f"edition {latest_row['number']}",
                expected=f"edition {version.number}",
                next="it is planned again",
                reason="edition",
                channel=version.channel,
            )
        older_conditions = (
            *conditions,
            published_versions.c.number < version.number,
            published_versions.c.superseded_at.is_(None),
        )
        c.execute(update(published_versions).where(*older_conditions).values(superseded_at=now))
        c.execute(
            update(published_versions)
            .where(*conditions, published_versions.c.number == version.number)
            .values(state="shown", shown_at=now)
        )


def _version_from_row(row: Any) -> PublishedVersion:
    return PublishedVersion(
        row["channel"],
        row["place"],
        row["number"],
        row["state"],
        row["seq"],
        row["fingerprint"],
        row["at"],
        row["shown_at"],
        row["superseded_at"],
        row["execution_id"],
        row["rows"],
        row["bytes"],
        row["files"],
    )
