"""Replacement of a binding's cursors in one transaction."""

from __future__ import annotations

from sqlalchemy import Connection, delete, insert, select

from nova_assets.catalog.database import Database
from nova_assets.catalog.executions import Executions, mark_aborted
from nova_assets.catalog.tables import bindings, cursors
from nova_assets.errors import CommitConflict
from nova_assets.model.cursor_switch import CursorPosition, Switch


class CursorSwitches:
    """Replaces cursors without an execution."""

    def __init__(self, database: Database, executions: Executions) -> None:
        self.database = database
        self.executions = executions

    def switch_cursors(self, request: Switch) -> None:
        """Replace the cursors of a binding. Its failed executions are aborted, since they pinned the old cursors.

        Raises:
            ExecutionInProgress: an execution of the binding is live.
            CommitConflict: a cursor has moved since the switch was planned; nothing was changed.
        """
        self.database.write(lambda c: self._replace_cursors(c, request))

    def _replace_cursors(self, c: Connection, request: Switch) -> None:
        c.execute(select(bindings.c.name).where(bindings.c.name == request.binding).with_for_update())
        for execution_id in self.executions.supersedable_executions(c, request.binding):
            mark_aborted(c, execution_id, f"the cursors were switched to {request.to}", self.database)
        rows = c.execute(select(cursors).where(cursors.c.binding == request.binding)).mappings().all()
        current_cursors = {CursorPosition(r["channel"], r["seq"], r["partition"], r["channel_partition"]) for r in rows}
        if current_cursors != set(request.before):
            raise CommitConflict(
                f"the cursors of binding {request.binding!r} have moved since the switch was planned",
                next=f"nova switch {request.binding} --to {request.to}",
                reason="cursor",
                binding=request.binding,
            )
        commit_id_by_channel = {r["channel"]: r["commit_id"] for r in sorted(rows, key=lambda r: r["moved_at"])}
        c.execute(delete(cursors).where(cursors.c.binding == request.binding))
        values = [
            {
                "binding": request.binding,
                "partition": at.partition,
                "channel": at.channel,
                "channel_partition": at.channel_partition,
                "seq": at.seq,
                "commit_id": commit_id_by_channel[at.channel],
                "moved_at": self.database.clock(),
            }
            for at in request.after
        ]
        if values:
            c.execute(insert(cursors), values)
