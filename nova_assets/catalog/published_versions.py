"""Editions: what the tables show in which channels are published, and which files they list (R15)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sqlalchemy import Connection, RowMapping, delete, insert, select, update

from nova_assets.catalog.database import Database
from nova_assets.catalog.executions import lock_execution
from nova_assets.catalog.tables import channels, editions, executions
from nova_assets.errors import CommitConflict, ExecutionInProgress, ExecutionNotLive
from nova_assets.model.commit import CommitRequest
from nova_assets.model.published_version import Content, Edition


class Editions:
    """What is published."""

    def __init__(self, database: Database) -> None:
        self.database = database

    def editions(self, channel: str, table: str | None = None) -> list[Edition]:
        """The editions of a channel that somebody may still read, latest first."""
        query = select(editions).where(editions.c.channel == channel)
        query = query if table is None else query.where(editions.c.place == table)
        query = query.order_by(editions.c.at.desc(), editions.c.place, editions.c.number.desc())
        return [_edition(r) for r in self.database.read(lambda c: c.execute(query).mappings().all())]

    def open_edition(
        self, execution_id: str, table: str, content: Content, fingerprint: str, after: int = 0
    ) -> Edition:
        """Open the next edition of a table: from now on nothing that it lists is deleted, whatever becomes of it.

        Args:
            execution_id: that has pinned the channel.
            after: the number that the table shows, which this catalog may not know of.

        Raises:
            ExecutionInProgress: another execution, which is alive, has opened one.
            ExecutionNotLive: the execution itself is not.
        """
        return self.database.write(lambda c: self._open(c, execution_id, table, content, fingerprint, after))

    def forget_editions(self, channel: str, table: str, numbers: Iterable[int]) -> None:
        """These can be read no more."""
        gone = (editions.c.channel == channel, editions.c.place == table, editions.c.number.in_(sorted(numbers)))
        self.database.write(lambda c: c.execute(delete(editions).where(*gone)))

    def _open(
        self, c: Connection, execution_id: str, table: str, content: Content, fingerprint: str, after: int
    ) -> Edition:
        execution = lock_execution(c, execution_id)
        c.execute(select(channels.c.name).where(channels.c.name == content.channel).with_for_update()).all()
        if execution is None or execution["state"] != "running":
            raise ExecutionNotLive("the execution that publishes has ended", execution_id=execution_id)
        mine = (editions.c.channel == content.channel, editions.c.place == table)
        last = c.execute(select(editions).where(*mine).order_by(editions.c.number.desc()).limit(1)).mappings().first()
        if last is not None and last["state"] == "opening":
            self._refuse_if_live(c, last)
        row: dict[str, Any] = {
            "channel": content.channel,
            "place": table,
            "number": 1 + max(after, 0 if last is None else last["number"]),
            "state": "opening",
            "seq": content.seq,
            "fingerprint": fingerprint,
            "at": execution["started_at"],
            "execution_id": execution_id,
            "rows": content.rows,
            "bytes": content.bytes,
            "files": len(content.files),
        }
        c.execute(insert(editions).values(**row))
        return _edition({**row, "shown_at": None, "superseded_at": None})

    def _refuse_if_live(self, c: Connection, last: RowMapping) -> None:
        query = select(executions).where(executions.c.id == last["execution_id"], executions.c.state == "running")
        busy = c.execute(query).mappings().first()
        if busy is not None and busy["lease_until"] >= self.database.clock():
            raise ExecutionInProgress(
                f"channel {last['channel']!r} is just being published in {last['place']}",
                found=f"edition {last['number']}, by {busy['owner']}",
                next="nothing: whoever publishes next, shows what is newest then",
                owner=busy["owner"],
                execution_id=busy["id"],
            )


def show_editions(c: Connection, request: CommitRequest, now: Any) -> None:
    """Part of a commit: tables show editions; those before are superseded.

    Raises:
        CommitConflict: another execution has opened one since.
    """
    for put in request.editions:
        mine = (editions.c.channel == put.channel, editions.c.place == put.table)
        query = select(editions).where(*mine).order_by(editions.c.number.desc()).limit(1)
        last = c.execute(query).mappings().first()
        if last is None or (last["number"], last["execution_id"]) != (put.number, request.execution_id):
            raise CommitConflict(
                f"channel {put.channel!r} was published in {put.table} meanwhile",
                found=None if last is None else f"edition {last['number']}",
                expected=f"edition {put.number}",
                next="it is planned again",
                reason="edition",
                channel=put.channel,
            )
        before = (*mine, editions.c.number < put.number, editions.c.superseded_at.is_(None))
        c.execute(update(editions).where(*before).values(superseded_at=now))
        c.execute(update(editions).where(*mine, editions.c.number == put.number).values(state="shown", shown_at=now))


def _edition(row: Any) -> Edition:
    return Edition(
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
