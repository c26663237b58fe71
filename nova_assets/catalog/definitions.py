"""Registered channels and bindings."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import replace as _replace
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, RowMapping, and_, func, insert, select, true, update
from sqlalchemy.exc import IntegrityError

from nova_assets.catalog.database import Database, pairs
from nova_assets.catalog.tables import bindings, blocks, channels, commits, numbers
from nova_assets.catalog.timeline_steps import put_step
from nova_assets.errors import BindingNotFound, ChannelNotFound, DefinitionConflict
from nova_assets.model.binding import Binding
from nova_assets.model.channel import Channel, fingerprint, upkeep_after
from nova_assets.model.channel_state import ChannelState
from nova_assets.model.period import retention_of
from nova_assets.model.schema import Schema
from nova_assets.model.schema_evolution import redeclare
from nova_assets.model.seal import Sealing
from nova_assets.model.timeline import Position
from nova_assets.suggestions import did_you_mean, known_names


class Definitions:
    """What is registered."""

    def __init__(self, database: Database) -> None:
        self.database = database

    def register(self, given: Sequence[Channel], bound: Sequence[Binding] = (), replace: bool = False) -> None:
        """Make definitions known. The same again is silent, and costs one read.

        Raises:
            DefinitionConflict: a channel is known under another definition, and ``replace`` is not given.
        """
        channel_rows = {c.name: c.as_json() for c in given}
        binding_rows = {b.name: b.as_json() for b in bound}
        upkeep = {c.name: c.upkeep for c in given}
        if self.database.read(lambda c: self._all_known(c, channel_rows, binding_rows, upkeep)):
            return
        for attempt in (1, 2):
            try:
                self.database.write(lambda c: self._register(c, channel_rows, binding_rows, upkeep, replace))
                return
            except _Raced:  # another process registered the same name first: look again
                if attempt == 2:
                    raise
        return

    def check_registration(self, given: Sequence[Channel]) -> None:
        """Every check of ``register``, without ``replace``. Changes nothing.

        Raises:
            DefinitionConflict: a channel is known under another definition.
        """
        by_name = {c.name: c for c in given}
        query = select(channels).where(channels.c.name.in_(list(by_name))).order_by(channels.c.name)
        for row in self.database.read(lambda c: c.execute(query).mappings().all()):
            name = row["name"]
            _check_same(name, row["definition"], by_name[name].as_json())
            upkeep_after(name, row["upkeep"], by_name[name].upkeep, replaced=False)

    def channel(self, name: str) -> ChannelState:
        """One channel as it stands, without its sizes. Raises ChannelNotFound."""
        query = select(channels).where(channels.c.name == name)
        row = self.database.read(lambda c: c.execute(query).mappings().first())
        if row is None:
            raise self.not_found(name)
        return state_of(row)

    def channels(self, name: str | None = None) -> list[ChannelState]:
        """All channels, by name; or one of them, or none."""
        return self.database.read(lambda c: self._states(c, name))

    def bindings(self) -> dict[str, dict[str, Any]]:
        """All registered bindings, by name, as their ``as_json`` said."""
        query = select(bindings.c.name, bindings.c.definition).order_by(bindings.c.name)
        return self.database.read(lambda c: pairs(c, query))

    def registered_at(self, binding: str) -> datetime:
        """When a binding was first registered. Raises BindingNotFound."""
        row = self.database.read(
            lambda c: c.execute(select(bindings.c.registered_at).where(bindings.c.name == binding)).first()
        )
        if row is None:
            raise BindingNotFound(f"no binding {binding!r} is registered", next="nova init", binding=binding)
        moment: datetime = row[0]
        return moment

    def not_found(self, name: str) -> ChannelNotFound:
        """The error for an unknown channel, naming the known ones."""
        known = self.database.read(
            lambda c: list(c.execute(select(channels.c.name).order_by(channels.c.name)).scalars())
        )
        return ChannelNotFound(
            f"no channel is called {name!r}{did_you_mean(name, known)}",
            expected=known_names(known, "(none is registered yet)"),
            next="nova channels, or store.register(nova.Channel(...))",
            channel=name,
        )

    def _all_known(
        self, c: Connection, given: dict[str, Any], bound: dict[str, Any], upkeep: dict[str, dict[str, Any]]
    ) -> bool:
        kept: dict[str, Any] = pairs(c, select(channels.c.name, channels.c.upkeep).where(channels.c.name.in_(upkeep)))
        if any(_said(kept.get(name) or {}) != _said(part) for name, part in upkeep.items()):
            return False
        for table, rows in ((channels, given), (bindings, bound)):
            known = pairs(c, select(table.c.name, table.c.fingerprint).where(table.c.name.in_(list(rows))))
            if any(known.get(name) != fingerprint(definition) for name, definition in rows.items()):
                return False
        return True

    def _register(
        self,
        c: Connection,
        given: dict[str, Any],
        bound: dict[str, Any],
        upkeep: dict[str, dict[str, Any]],
        replace: bool,
    ) -> None:
        now = self.database.clock()
        for name, definition in sorted(given.items()):
            self._register_channel(c, name, definition, replace, now)
            kept = c.execute(select(channels.c.upkeep).where(channels.c.name == name)).scalar() or {}
            after = upkeep_after(name, kept, upkeep[name], replace)
            if after != kept:
                c.execute(update(channels).where(channels.c.name == name).values(upkeep=after))
        for name, definition in sorted(bound.items()):
            values = {"definition": definition, "fingerprint": fingerprint(definition)}
            if not c.execute(update(bindings).where(bindings.c.name == name).values(**values)).rowcount:
                _insert(c, insert(bindings).values(name=name, registered_at=now, **values))
            produces = {e["port"] for t in definition["tasks"] for e in t["produces"] if e["kind"] == "base"}
            may = [channel for port, channel in definition["channels"].items() if port in produces]
            c.execute(update(channels).where(channels.c.name.in_(may), channels.c.bases.is_(False)).values(bases=True))

    def _register_channel(
        self, c: Connection, name: str, definition: dict[str, Any], replace: bool, now: datetime
    ) -> None:
        known = c.execute(select(channels).where(channels.c.name == name).with_for_update()).mappings().first()
        mark = fingerprint(definition)
        if known is None:
            values = {
                "definition": definition,
                "fingerprint": mark,
                "schema": definition["schema"],
                "head": 0,
                "registered_at": now,
            }
            _insert(c, insert(channels).values(name=name, **values))
            return
        if known["fingerprint"] == mark:
            return
        if not replace:
            _check_same(name, known["definition"], definition)
        changed = {"definition": definition, "fingerprint": mark, "schema": _redeclared(c, name, known, definition)}
        c.execute(update(channels).where(channels.c.name == name).values(**changed))
        put_step(c, name, "define", uuid.uuid4().hex, now)

    def _states(self, c: Connection, name: str | None) -> list[ChannelState]:
        sizes = (
            select(
                blocks.c.channel,
                func.count().label("blocks"),
                func.sum(blocks.c.rows).label("rows"),
                func.sum(blocks.c.bytes).label("bytes"),
            )
            .where(blocks.c.collected_at.is_(None), true() if name is None else blocks.c.channel == name)
            .group_by(blocks.c.channel)
            .subquery()
        )
        latest = select(commits.c.at).join(numbers, numbers.c.commit_id == commits.c.id)
        moved = latest.where(
            and_(numbers.c.channel == channels.c.name, numbers.c.seq == channels.c.head)
        ).scalar_subquery()
        query = select(channels, sizes.c.blocks, sizes.c.rows, sizes.c.bytes, moved.label("moved"))
        query = query.outerjoin(sizes, sizes.c.channel == channels.c.name).order_by(channels.c.name)
        if name is not None:
            query = query.where(channels.c.name == name)
        return [
            _replace(
                state_of(r),
                rows=int(r["rows"] or 0),
                bytes=int(r["bytes"] or 0),
                blocks=int(r["blocks"] or 0),
                updated_at=r["moved"],
            )
            for r in c.execute(query).mappings()
        ]


def state_of(row: RowMapping) -> ChannelState:
    schema = None if row["schema"] is None else Schema.from_json(row["schema"])
    kept: dict[str, Any] = row["upkeep"]
    return ChannelState(
        Channel.from_json(row["definition"], kept),
        row["head"],
        schema,
        bases=row["bases"],
        news=row["news"],
        retain=kept.get("retain"),
        keep=kept.get("keep", {}),
        since=row["registered_at"],
        looked=row["looked_at"],
        position=Position(row["step"], row["prefix"]),
        seal=None if kept.get("seal") is None else Sealing.from_json(kept["seal"]),
    )


def _redeclared(c: Connection, name: str, known: RowMapping, definition: dict[str, Any]) -> Any:
    """The schema of a channel under a changed definition."""
    if known["head"] == 0 or known["schema"] is None or definition.get("external"):  # its owner decides
        return definition["schema"]
    before = known["definition"]["schema"]
    if definition["schema"] is None or definition["schema"] == before:
        return known["schema"]
    return redeclare(
        name,
        Schema.from_json(known["schema"]),
        None if before is None else Schema.from_json(before),
        Schema.from_json(definition["schema"]),
        definition.get("renamed", {}),
        known["head"],
        _merged_by(c, name),
    ).as_json()


def _merged_by(c: Connection, name: str) -> frozenset[str]:
    """Columns that the merge model of a channel's newest block names."""
    query = select(blocks.c.merge).where(blocks.c.channel == name, blocks.c.collected_at.is_(None))
    merge = c.execute(query.order_by(blocks.c.hi.desc()).limit(1)).scalar()
    if merge is None:
        return frozenset()
    return frozenset((*merge.get("key", ()), *merge.get("order_by", ()), *merge.get("combine", {})))


class _Raced(Exception):
    """Another process has registered the name since we looked."""


def _insert(c: Connection, statement: Any) -> None:
    try:
        c.execute(statement)
    except IntegrityError as error:
        raise _Raced from error


def _said(upkeep: dict[str, Any]) -> dict[str, Any]:
    """The parts of an upkeep that are in force."""
    return {part: value for part, value in upkeep.items() if value and (part != "retain" or retention_of(value))}


def _check_same(name: str, known: dict[str, Any], definition: dict[str, Any]) -> None:
    """Raises DefinitionConflict where a channel is registered with another definition."""
    if fingerprint(known) != fingerprint(definition):
        raise _conflict(name, known, definition)


def _conflict(name: str, known: dict[str, Any], given: dict[str, Any]) -> DefinitionConflict:
    parts = [k for k in given if given[k] != known.get(k)]
    return DefinitionConflict(
        f"channel {name!r} is registered with another definition (different: {', '.join(parts)})",
        found="; ".join(f"{k}={_shown(k, given[k])}" for k in parts),
        expected="; ".join(f"{k}={_shown(k, known.get(k))}" for k in parts),
        next="register the same definition, or accept the new one: register(..., replace=True) or nova init --replace",
        channel=name,
        differences=parts,
    )


def _shown(part: str, value: Any) -> str:
    return str(Schema.from_json(value)) if part == "schema" and value is not None else str(value)
