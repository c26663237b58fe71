"""Definitions that are paused or removed. A removal is a tombstone that garbage collection makes final.

The catalog keeps what it knows of a removed channel, because the provenance of other channels names its commits. The
name of a channel that had data is not used again: numbers that begin at 1 would be taken for earlier ones.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, Connection, RowMapping, and_, delete, insert, or_, select, update

from nova_assets.catalog.catalog_part import CatalogPart
from nova_assets.catalog.database.transactions import query_as_dict
from nova_assets.catalog.definition_versions import definition_states
from nova_assets.catalog.execution_rows import mark_aborted
from nova_assets.catalog.external_sources import delete_source_versions
from nova_assets.catalog.garbage_collection import mark_collected
from nova_assets.catalog.history import read_history
from nova_assets.catalog.leases import supersedable_executions
from nova_assets.catalog.tables import (
    backfill_requests,
    bindings,
    channels,
    cursors,
    executions,
    firings,
    pins,
)
from nova_assets.errors import DefinitionRemoved
from nova_assets.model.registered_definition import DefinitionKey, DefinitionStatus, user_without_host


class DefinitionStates(CatalogPart):
    """Pauses, resumes and removes definitions, and takes removals back."""

    def statuses(self) -> dict[DefinitionKey, DefinitionStatus]:
        """Status of each definition that is paused or removed."""
        return self.database.read(read_statuses)

    def set_paused(self, key: DefinitionKey, paused_by: str | None) -> None:
        """Pause a definition, or resume it. A definition that is paused already keeps its time.

        Args:
            paused_by: the person or process that pauses it; None to resume.
        """

        def write_pause(c: Connection) -> None:
            if paused_by is None:
                c.execute(update(definition_states).where(_is(key)).values(paused_at=None, paused_by=None))
                _delete_empty_states(c)
            elif not read_statuses(c, [key]).get(key, DefinitionStatus(key)).is_paused:
                _set_state(c, key, {"paused_at": self.database.clock(), "paused_by": paused_by})

        self.database.write(write_pause)

    def remove(self, keys: Sequence[DefinitionKey], removed_by: str) -> None:
        """Remove definitions together: a tombstone for each. Failed executions that could be resumed are aborted, and
        open firings end.

        Raises:
            ExecutionInProgress: an execution of one of the bindings, or one that pins one of the channels, is live.
        """

        def write_tombstones(c: Connection) -> None:
            _lock_definitions(c, keys)
            reason = f"{', '.join(map(str, keys))} was removed by {user_without_host(removed_by)}"
            for execution_id in supersedable_executions(c, self.database, _concerns(keys), lock=True):
                mark_aborted(c, execution_id, reason, self.database, counts_as_failure=False)
            for key in keys:
                if not read_statuses(c, [key]).get(key, DefinitionStatus(key)).is_removed:
                    _set_state(c, key, {"removed_at": self.database.clock(), "removed_by": removed_by})
            names = [k.name for k in keys if k.kind in ("binding", "trigger")]
            open_firings = (firings.c.binding.in_(names), firings.c.state == "requested")
            c.execute(update(firings).where(*open_firings).values(state="abandoned", why=reason))

        self.database.write(write_tombstones)

    def take_back_removals(self, keys: Sequence[DefinitionKey]) -> None:
        """Take back removals that garbage collection has not made final.

        Raises:
            DefinitionRemoved: a removal is final. Nothing was changed.
        """

        def delete_tombstones(c: Connection) -> None:
            statuses = read_statuses(c, keys, lock=True)
            final = [s for s in statuses.values() if s.collected_at is not None]
            if final:
                raise DefinitionRemoved(
                    f"the removal of {final[0].key} cannot be taken back",
                    found=_format_without_host(final[0]),
                    expected="a removal that garbage collection has not made final",
                    kind=final[0].key.kind,
                    name=final[0].key.name,
                )
            for key in keys:
                c.execute(update(definition_states).where(_is(key)).values(removed_at=None, removed_by=None))
            _delete_empty_states(c)

        self.database.write(delete_tombstones)

    def removals_to_collect(
        self, channel_names: Collection[str] | None = None, min_age_seconds: float = 0.0
    ) -> list[DefinitionKey]:
        """Dry run of ``collect_removals``."""
        removed_before = self.database.clock() - timedelta(seconds=min_age_seconds)
        return self.database.read(lambda c: _due_removals(c, channel_names, removed_before))

    def collect_removals(
        self, channel_names: Collection[str] | None = None, min_age_seconds: float = 0.0
    ) -> list[DefinitionKey]:
        """Make removals final: delete the cursors of removed bindings, and mark all blocks of removed channels as
        collected. A removed channel that a reader has pinned stays until the next collection.

        Args:
            channel_names: only removals of these channels and of bindings with one of them. By default, all.
            min_age_seconds: only removals that are at least as old.

        Returns:
            The definitions whose removal is final now.
        """
        if not self.removals_to_collect(channel_names, min_age_seconds):
            return []
        removed_before = self.database.clock() - timedelta(seconds=min_age_seconds)

        def make_final(c: Connection) -> list[DefinitionKey]:
            due = _due_removals(c, channel_names, removed_before, lock=True)
            final = [k for k in due if k.kind != "channel" or self._collect_channel(c, k.name)]
            removed_bindings = [k.name for k in final if k.kind == "binding"]
            c.execute(delete(cursors).where(cursors.c.binding.in_(removed_bindings)))
            for key in final:
                c.execute(update(definition_states).where(_is(key)).values(collected_at=self.database.clock()))
            return final

        return self.database.write(make_final)

    def _collect_channel(self, c: Connection, channel: str) -> bool:
        """Mark all blocks of a removed channel as collected, unless a reader has pinned it."""
        c.execute(select(channels.c.name).where(channels.c.name == channel).with_for_update()).all()
        pinned = select(pins.c.channel).join(executions, executions.c.id == pins.c.execution_id)
        if c.execute(pinned.where(pins.c.channel == channel, executions.c.state == "running").limit(1)).first():
            return False
        history = read_history(c, channel)
        if history is not None and history.blocks:
            details = {"collected": len(history.blocks)}
            mark_collected(c, channel, history.blocks, details, self.database.clock())
        c.execute(delete(cursors).where(cursors.c.channel == channel))
        c.execute(delete(backfill_requests).where(backfill_requests.c.channel == channel))
        delete_source_versions(c, channel)
        return True


def read_statuses(
    c: Connection, keys: Collection[DefinitionKey] | None = None, *, lock: bool = False
) -> dict[DefinitionKey, DefinitionStatus]:
    """Status of each definition that is paused or removed, within a transaction.

    Args:
        keys: only these definitions.
    """
    query = select(definition_states).order_by(definition_states.c.kind, definition_states.c.name)
    if keys is not None:
        query = query.where(definition_states.c.name.in_(sorted({k.name for k in keys})))
    rows = c.execute(query.with_for_update() if lock else query).mappings().all()
    statuses = {s.key: s for s in map(_status_from_row, rows)}
    return statuses if keys is None else {k: s for k, s in statuses.items() if k in set(keys)}


def check_not_removed(c: Connection, keys: Iterable[DefinitionKey]) -> None:
    """Check that none of these definitions is removed.

    Raises:
        DefinitionRemoved: names all definitions that are removed.
    """
    raise_if_removed(read_statuses(c, set(keys)).values())


def raise_if_removed(statuses: Iterable[DefinitionStatus]) -> None:
    """Raise the error of ``check_not_removed`` for the removed definitions among these."""
    removed = [s for s in statuses if s.is_removed]
    if not removed:
        return
    first = removed[0]
    raise DefinitionRemoved(
        f"{', '.join(str(s.key) for s in removed)} {'was' if len(removed) == 1 else 'were'} removed",
        found=_format_without_host(first),
        expected="a definition that is not removed",
        next=_next_step(first),
        kind=first.key.kind,
        name=first.key.name,
    )


def _format_without_host(status: DefinitionStatus) -> str:
    """Status for an error, which the service sends to callers."""
    return str(replace(status, removed_by=user_without_host(status.removed_by or "")))


def _next_step(status: DefinitionStatus) -> str:
    if status.can_be_taken_back:
        return f"nova remove {status.key} --undo takes the removal back; or leave it out of the project"
    if status.key.kind == "channel":
        return "give the new channel another name; nova init --replace registers it anew if it never had data"
    return "nova init --replace registers it anew, with new cursors; or leave it out of the project"


def without_renewable(c: Connection, statuses: Collection[DefinitionStatus]) -> list[DefinitionStatus]:
    """Removals that prevent a new registration.

    A removal that is final does not, unless it is that of a channel with versions: the provenance of other channels has
    its numbers, so they must not start again.
    """
    names = [s.key.name for s in statuses if s.key.kind == "channel"]
    heads = query_as_dict(c, select(channels.c.name, channels.c.head).where(channels.c.name.in_(names)))
    return [s for s in statuses if s.collected_at is None or (s.key.kind == "channel" and heads.get(s.key.name, 0) > 0)]


def delete_collected_tombstones(c: Connection, keys: Iterable[DefinitionKey]) -> None:
    """Delete the tombstones of definitions that are registered anew."""
    for key in keys:
        c.execute(delete(definition_states).where(_is(key), definition_states.c.collected_at.is_not(None)))


def _is(key: DefinitionKey) -> ColumnElement[bool]:
    return and_(definition_states.c.kind == key.kind, definition_states.c.name == key.name)


def _set_state(c: Connection, key: DefinitionKey, values: Mapping[str, Any]) -> None:
    if not c.execute(update(definition_states).where(_is(key)).values(**values)).rowcount:
        c.execute(insert(definition_states).values(kind=key.kind, name=key.name, **values))


def _delete_empty_states(c: Connection) -> None:
    columns = definition_states.c
    c.execute(delete(definition_states).where(columns.paused_at.is_(None), columns.removed_at.is_(None)))


def _status_from_row(row: RowMapping) -> DefinitionStatus:
    times_and_people = (row[n] for n in ("paused_at", "paused_by", "removed_at", "removed_by", "collected_at"))
    return DefinitionStatus(DefinitionKey(row["kind"], row["name"]), *times_and_people)


def _lock_definitions(c: Connection, keys: Sequence[DefinitionKey]) -> None:
    """Lock the rows that ``begin`` locks, so that no execution begins meanwhile."""
    for kind, table in (("binding", bindings), ("channel", channels)):
        names = sorted(key.name for key in keys if key.kind == kind)
        c.execute(select(table.c.name).where(table.c.name.in_(names)).order_by(table.c.name).with_for_update()).all()


def _concerns(keys: Sequence[DefinitionKey]) -> ColumnElement[bool]:
    """Executions of these bindings, and executions other than readers that pin these channels."""
    binding_names = [k.name for k in keys if k.kind == "binding"]
    channel_names = [k.name for k in keys if k.kind == "channel"]
    pinning = select(pins.c.execution_id).where(pins.c.channel.in_(channel_names))
    return or_(
        executions.c.binding.in_(binding_names),
        and_(executions.c.id.in_(pinning), executions.c.purpose != "read"),
    )


def _due_removals(
    c: Connection, channel_names: Collection[str] | None, removed_before: datetime, *, lock: bool = False
) -> list[DefinitionKey]:
    """Removals that are not final, were made before a time, and concern some channels."""
    statuses = read_statuses(c, lock=lock).values()
    due = [
        s.key for s in statuses if s.removed_at is not None and s.can_be_taken_back and s.removed_at <= removed_before
    ]
    if not due or channel_names is None:
        return due
    concerned = _definitions_with_channels(c, channel_names)
    return [key for key in due if key in concerned]


def _definitions_with_channels(c: Connection, channel_names: Collection[str]) -> set[DefinitionKey]:
    """Channels, and the bindings with one of these channels, their triggers and their workflowettes."""
    concerned = {DefinitionKey("channel", name) for name in channel_names}
    for name, definition in query_as_dict(c, select(bindings.c.name, bindings.c.definition)).items():
        if not set(channel_names).isdisjoint(definition["channels"].values()):
            concerned |= {DefinitionKey("binding", name), DefinitionKey("trigger", name)}
            concerned.add(DefinitionKey("workflowette", definition["workflowette"]))
    return concerned
