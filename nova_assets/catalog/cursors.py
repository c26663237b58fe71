"""Cursors: how far each binding has read each channel (R10, R13)."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import ColumnElement, Connection, delete, func, insert, or_, select, update

from nova_assets.catalog.catalog_part import CatalogPart
from nova_assets.catalog.channel_rows import read_lost_numbers
from nova_assets.catalog.execution_rows import mark_aborted
from nova_assets.catalog.leases import supersedable_executions
from nova_assets.catalog.tables import bindings, blocks, channels, cursors, executions, pins
from nova_assets.errors import CommitConflict
from nova_assets.model.channel_state import Cursor
from nova_assets.model.commit import MoveCursor
from nova_assets.model.execution import CursorPosition, CursorSwitch
from nova_assets.model.partitions import WHOLE, partition_values, scope_for_columns


class Cursors(CatalogPart):
    """Reads cursors, and switches a binding to other cursors, which aborts its failed executions. A commit moves
    cursors, too.

    ``keep_snapshots`` changes the channel, not a cursor: later collections keep more of its blocks.
    """

    def find(self, binding: str | None = None) -> list[Cursor]:
        """Positions of all bindings, or of one. The head of a cursor on some partitions is their last change."""
        return self.database.read(lambda c: read_cursors(c, binding))

    def positions(self, binding: str, partition: str = WHOLE) -> dict[tuple[str, str], int]:
        """Cursors of one partition of a binding: (channel, partition of the channel) -> sequence number."""
        query = select(cursors.c.channel, cursors.c.channel_partition, cursors.c.seq)
        query = query.where(cursors.c.binding == binding, cursors.c.partition == partition)
        return self.database.read(lambda c: {(r[0], r[1]): r[2] for r in c.execute(query)})

    def lagging(self, channel: str, head: int) -> list[tuple[int, str]]:
        """Cursors on a channel between 0 and a head, both excluded: (sequence number, partition of the channel)."""
        query = select(cursors.c.seq, cursors.c.channel_partition).distinct()
        query = query.where(cursors.c.channel == channel, cursors.c.seq > 0, cursors.c.seq < head)
        return self.database.read(lambda c: [(r[0], r[1]) for r in c.execute(query.order_by(cursors.c.seq))])

    def has_consumers(self, channel: str) -> bool:
        """Whether a consumer has read changes of the channel, or is about to (R10)."""
        return self.database.read(lambda c: has_active_consumers(c, channel, None))

    def keep_snapshots(self, channel: str) -> None:
        """Make collection keep the snapshot at each cursor, as for a channel that may be given a base (R15)."""
        is_new = (channels.c.name == channel, channels.c.bases.is_(False))
        if self.database.read(lambda c: c.execute(select(channels.c.name).where(*is_new)).first()) is not None:
            self.database.write(lambda c: c.execute(update(channels).where(*is_new).values(bases=True)))

    def switch(self, request: CursorSwitch) -> None:
        """Replace the cursors of a binding. Its failed and lapsed executions are aborted: they pinned the old cursors.

        Raises:
            ExecutionInProgress: an execution of the binding is live.
            CommitConflict: a cursor has moved since the switch was planned; nothing was changed.
        """
        self.database.write(lambda c: self._replace_cursors(c, request))

    def _replace_cursors(self, c: Connection, request: CursorSwitch) -> None:
        c.execute(select(bindings.c.name).where(bindings.c.name == request.binding).with_for_update())
        for execution_id in supersedable_executions(
            c, self.database, executions.c.binding == request.binding, lock=True
        ):
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


def read_cursors(c: Connection, binding: str | None = None, channel_names: Sequence[str] | None = None) -> list[Cursor]:
    """Positions of bindings, within a transaction.

    Args:
        binding: only cursors of this binding.
        channel_names: only cursors on these channels.
    """
    query = select(cursors, channels.c.head, channels.c.used_until).join(channels, channels.c.name == cursors.c.channel)
    query = query.order_by(cursors.c.binding, cursors.c.channel, cursors.c.partition, cursors.c.channel_partition)
    if binding is not None:
        query = query.where(cursors.c.binding == binding)
    if channel_names is not None:
        query = query.where(cursors.c.channel.in_(channel_names))
    rows = c.execute(query).mappings().all()
    dimensions_by_channel: dict[str, set[tuple[str, ...]]] = {}
    for r in rows:
        if r["channel_partition"]:
            dimensions_by_channel.setdefault(r["channel"], set()).add(tuple(partition_values(r["channel_partition"])))
    heads = {channel: _heads_by_scope(c, channel, columns) for channel, columns in dimensions_by_channel.items()}
    lost = {channel: read_lost_numbers(c, channel) for channel in {r["channel"] for r in rows if r["used_until"]}}
    result = []
    for r in rows:
        scope, head = r["channel_partition"], r["head"]
        if scope:  # a cursor is set to the channel's head, past the last change of the partition
            head = max(heads[r["channel"]].get(scope, 0), r["seq"])
        skipped = sum(len(range(max(n.start, r["seq"] + 1), min(n.stop, head + 1))) for n in lost.get(r["channel"], ()))
        result.append(Cursor(r["binding"], r["channel"], r["seq"], head, r["partition"], scope, r["moved_at"], skipped))
    return result


def has_active_consumers(c: Connection, channel: str, excluded_execution_id: str | None) -> bool:
    """Whether a cursor on the channel is above 0, or a live execution is about to move one there.

    Args:
        excluded_execution_id: an execution to ignore.
    """
    moved_cursors = select(cursors.c.binding).where(cursors.c.channel == channel, cursors.c.seq > 0).limit(1)
    if c.execute(moved_cursors).first() is not None:
        return True
    # Starting from live executions keeps the query fast: they are few, while old pins may be many.
    live_executions = select(executions.c.id).where(
        executions.c.binding.is_not(None),  # a reader's pin moves no cursor
        executions.c.state.in_(["running", "failed"]),
    )
    if excluded_execution_id is not None:
        live_executions = live_executions.where(executions.c.id != excluded_execution_id)
    live_pins = select(pins.c.channel).where(pins.c.execution_id.in_(live_executions), pins.c.channel == channel)
    live_pins = live_pins.where(pins.c.cursor.is_not(None), or_(pins.c.cursor > 0, pins.c.head > 0))
    return c.execute(live_pins.limit(1)).first() is not None


def cursor_conditions(cursor: MoveCursor) -> tuple[ColumnElement[bool], ...]:
    """Conditions for the row of the cursor that a commit moves."""
    return (
        cursors.c.binding == cursor.binding,
        cursors.c.partition == cursor.partition,
        cursors.c.channel == cursor.channel,
        cursors.c.channel_partition == cursor.channel_partition,
    )


def partition_of_conflicting_cursor(c: Connection, binding: str, partition: str) -> str | None:
    """Partition of a cursor of the other kind: unpartitioned, if this execution is partitioned, or the reverse (R13).

    Returns:
        None if there is no such cursor.
    """
    is_unpartitioned = cursors.c.partition == ""
    query = select(cursors.c.partition).join(bindings, bindings.c.name == cursors.c.binding)
    query = query.where(
        cursors.c.binding == binding, cursors.c.seq > 0, ~is_unpartitioned if partition == "" else is_unpartitioned
    )
    other_partition: str | None = c.execute(query.limit(1)).scalar()
    return other_partition


def _heads_by_scope(c: Connection, channel: str, dimensions: set[tuple[str, ...]]) -> dict[str, int]:
    """Number of the last change in each scope of the given dimensions."""
    newest_numbers = select(blocks.c.partition, func.max(blocks.c.hi)).where(blocks.c.channel == channel)
    head_by_scope: dict[str, int] = {}
    for partition, hi in c.execute(newest_numbers.group_by(blocks.c.partition)):
        for scope_dimensions in dimensions:
            scope = scope_for_columns(scope_dimensions, partition)
            head_by_scope[scope] = max(head_by_scope.get(scope, 0), hi)
    return head_by_scope
