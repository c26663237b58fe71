"""Replaces the cursors of a binding in one transaction."""

from __future__ import annotations

from sqlalchemy import Connection, delete, insert, select

from nova_assets.catalog.database import Database
from nova_assets.catalog.executions import Executions, abort
from nova_assets.catalog.tables import bindings, cursors
from nova_assets.errors import CommitConflict
from nova_assets.model.cursor_switch import CursorAt, Switch


class Switching:
    """Cursors that are replaced without an execution."""

    def __init__(self, database: Database, life: Executions) -> None:
        self.database = database
        self.life = life

    def switch(self, wanted: Switch) -> None:
        """Replace the cursors of a binding. Its failed executions are aborted: they pinned the old cursors.

        Raises:
            ExecutionInProgress: an execution of the binding is alive.
            CommitConflict: a cursor has moved since the switch was planned; nothing was changed.
        """
        self.database.write(lambda c: self._switch(c, wanted))

    def _switch(self, c: Connection, wanted: Switch) -> None:
        c.execute(select(bindings.c.name).where(bindings.c.name == wanted.binding).with_for_update())
        for execution_id in self.life.superseded(c, wanted.binding):
            abort(c, execution_id, f"the cursors were switched to {wanted.to}", self.database)
        rows = c.execute(select(cursors).where(cursors.c.binding == wanted.binding)).mappings().all()
        now = {CursorAt(r["channel"], r["seq"], r["partition"], r["channel_partition"]) for r in rows}
        if now != set(wanted.before):
            raise CommitConflict(
                f"the cursors of binding {wanted.binding!r} have moved since the switch was planned",
                next=f"nova switch {wanted.binding} --to {wanted.to}",
                reason="cursor",
                binding=wanted.binding,
            )
        commit_of = {r["channel"]: r["commit_id"] for r in sorted(rows, key=lambda r: r["moved_at"])}
        c.execute(delete(cursors).where(cursors.c.binding == wanted.binding))
        values = [
            {
                "binding": wanted.binding,
                "partition": at.partition,
                "channel": at.channel,
                "channel_partition": at.channel_partition,
                "seq": at.seq,
                "commit_id": commit_of[at.channel],
                "moved_at": self.database.clock(),
            }
            for at in wanted.after
        ]
        if values:
            c.execute(insert(cursors), values)
